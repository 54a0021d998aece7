"""`buffer.alpha = a` re-applies the exponent to every raw priority, exactly."""

import numpy as np
import pytest

from replay_buffer import InvalidArgument
from unit.prioritized.law import assert_law, fill, live_ids, make, masses, rank_masses

RAWS = np.float32(np.random.default_rng(1).lognormal(0, 2, 70))
ALPHAS = [0.0, 0.3, 0.6, 1.0, 2.0]


@pytest.mark.parametrize("after", ALPHAS)
@pytest.mark.parametrize("before", ALPHAS)
def test_a_changed_alpha_is_as_good_as_one_from_the_start(before: float, after: float) -> None:
    changed, fresh = make(70, alpha=before, seed=4), make(70, alpha=after, seed=4)
    for buffer in (changed, fresh):
        fill(buffer, np.ones(30))
        fill(buffer, RAWS)
    changed.alpha = after
    assert changed.alpha == fresh.alpha == pytest.approx(after)
    assert changed.total_priority == fresh.total_priority
    assert np.array_equal(changed.priorities(live_ids(changed)), RAWS)
    for _ in range(10):
        ours, theirs = changed.sample(64), fresh.sample(64)
        assert np.array_equal(ours["indices"], theirs["indices"])
        assert np.array_equal(ours["weights"], theirs["weights"])


def test_going_through_zero_and_back_changes_nothing() -> None:
    buffer = make(70, alpha=0.6)
    ids = fill(buffer, RAWS)
    total = buffer.total_priority
    for alpha in (0.0, 5.0, 0.0, 0.6):
        buffer.alpha = alpha
    assert buffer.total_priority == total
    assert np.array_equal(buffer.priorities(ids), RAWS)
    assert_law(buffer, ids, masses(RAWS, 0.6))


def test_rows_and_updates_after_the_change_use_the_new_alpha() -> None:
    buffer = make(20, alpha=0.0)
    old = fill(buffer, [4.0, 9.0])
    buffer.alpha = 0.5
    new = buffer.add(0)
    buffer.update_priorities(old[:1], [16.0])
    assert buffer.priorities([*old, new]).tolist() == [16, 9, 9]
    assert buffer.total_priority == pytest.approx(masses([16, 9, 9], 0.5).sum(), rel=1e-6)
    assert_law(buffer, live_ids(buffer), masses([16, 9, 9], 0.5))


def test_ranks_follow_alpha() -> None:
    buffer = make(70, "rank", alpha=1.0)
    ids = fill(buffer, RAWS)
    for alpha in (0.0, 0.5, 2.0):
        buffer.sample(10)
        buffer.alpha = alpha
        assert_law(buffer, ids, rank_masses(RAWS, alpha))


def test_global_weights_follow_alpha() -> None:
    buffer = make(8, alpha=1.0, beta=1.0, weights="global", epsilon=0.0)
    fill(buffer, [1.0, 4.0])
    buffer.alpha = 0.5
    batch = buffer.sample(50)
    assert batch["weights"] == pytest.approx(np.array([1.0, 0.5])[batch["indices"]], rel=1e-6)


def test_slots_without_a_row_stay_empty() -> None:
    buffer = make(100, alpha=0.6)
    fill(buffer, np.ones(50))
    buffer.clear()
    ids = fill(buffer, [1.0, 2.0, 3.0])
    for alpha in (0.0, 1.0):
        buffer.alpha = alpha
        assert buffer.total_priority == pytest.approx(masses([1, 2, 3], alpha).sum(), rel=1e-6)
        assert_law(buffer, ids, masses([1, 2, 3], alpha), rows=5000, batch_size=50)


def test_alpha_can_be_changed_before_the_first_row() -> None:
    buffer = make(4, alpha=0.6)
    buffer.alpha = 1.0
    ids = fill(buffer, [1.0, 3.0])
    assert buffer.total_priority == pytest.approx(4, rel=1e-5)
    assert_law(buffer, ids, [1, 3])


@pytest.mark.parametrize("bad", [-0.5, float("nan"), float("inf")])
def test_alpha_must_be_finite_and_not_negative(bad: float) -> None:
    with pytest.raises(InvalidArgument, match="alpha"):
        make(4, alpha=bad)
    buffer = make(4, alpha=0.6)
    fill(buffer, [1.0, 3.0])
    total = buffer.total_priority
    with pytest.raises(InvalidArgument, match="alpha"):
        buffer.alpha = bad
    assert (buffer.alpha, buffer.total_priority) == (pytest.approx(0.6), total)


def test_uniform_buffers_have_no_alpha() -> None:
    buffer = make(4, "uniform")
    with pytest.raises(InvalidArgument, match="priorities"):
        buffer.alpha = 0.5
    with pytest.raises(InvalidArgument, match="priorities"):
        _ = buffer.alpha


def test_alpha_reads_as_it_was_said() -> None:
    buffer = make(10, alpha=0.6)
    assert buffer.alpha == 0.6
    fill(buffer, [1.0, 2.0])
    assert buffer.alpha == 0.6
    buffer.alpha = 0.7
    assert buffer.alpha == buffer.config.alpha == 0.7
