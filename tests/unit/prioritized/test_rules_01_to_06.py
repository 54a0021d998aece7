"""Rules 1 to 6 of drawing: each excludes a bug of other replay buffers, and fails on it."""

import numpy as np
import pytest

from unit.prioritized.law import (
    UNLIKELY,
    assert_law,
    counts_of,
    draw,
    fill,
    g_test,
    live_ids,
    make,
    masses,
    rank_masses,
)

WEIGHTED = pytest.mark.parametrize("strategy", ["prioritized", "rank"])


@WEIGHTED
@pytest.mark.parametrize("added", [1, 2, 16, 17, 30, 31, 32, 60, 95])
def test_rule_01_the_newest_row_is_drawn_like_any_other(strategy: str, added: int) -> None:
    """Bug: an exclusive end, off by one."""
    buffer = make(30, strategy, alpha=0.0)
    ids = fill(buffer, np.ones(added))[-30:]
    assert buffer.total_priority == len(ids)
    counts = counts_of(draw(buffer, 10_000), ids)
    assert counts[-1] > 0
    assert counts[0] > 0
    assert g_test(counts, np.ones(len(ids))) > UNLIKELY


@pytest.mark.parametrize("alpha", [0.5, 2.0])
def test_rule_02_the_exponent_is_applied_once_to_new_rows(alpha: float) -> None:
    """Bug: new rows got the largest leaf as priority, which was then raised to alpha again."""
    buffer = make(8, alpha=alpha)
    fill(buffer, [16.0, 4.0])
    new = [buffer.add(0) for _ in range(3)]
    assert buffer.priorities(new).tolist() == [16.0] * 3
    assert buffer.total_priority == pytest.approx(
        masses([16, 4, 16, 16, 16], alpha).sum(), rel=1e-6
    )
    assert_law(buffer, live_ids(buffer), masses([16, 4, 16, 16, 16], alpha))


@WEIGHTED
def test_rule_03_a_change_of_alpha_reaches_every_row(strategy: str) -> None:
    """Bug: only rows touched afterwards used the new exponent; from 0 the priorities were lost."""
    raws = np.float32(np.random.default_rng(3).lognormal(0, 2, 40))
    law = masses if strategy == "prioritized" else rank_masses
    buffer = make(40, strategy, alpha=0.0)
    ids = fill(buffer, raws)
    for alpha in (1.0, 0.3, 0.0, 0.7):
        buffer.alpha = alpha
        assert_law(buffer, ids, law(raws, alpha))


def test_rule_04_the_minimum_behind_global_weights_recovers() -> None:
    """Bug: a running minimum stayed at the least priority ever seen; raw and leaf were mixed."""
    buffer = make(4, alpha=0.5, beta=1.0, weights="global", epsilon=0.0)
    ids = fill(buffer, [1e-8, 4.0, 16.0, 64.0])
    for update, expected in [
        (None, [1.0, 1e-4 / 2, 1e-4 / 4, 1e-4 / 8]),
        (([ids[0]], [9.0]), [2 / 3, 1.0, 2 / 4, 2 / 8]),
        (([ids[1]], [25.0]), [1.0, 3 / 5, 3 / 4, 3 / 8]),
    ]:
        if update:
            buffer.update_priorities(*update)
        batch = buffer.sample(2000)
        assert batch["weights"] == pytest.approx(np.array(expected)[batch["indices"]], rel=1e-6)
    fill(buffer, [36.0])  # overwrites the least
    batch = buffer.sample(500)
    expected = dict(zip(live_ids(buffer), [4 / 5, 1.0, 4 / 8, 4 / 6], strict=True))
    assert batch["weights"] == pytest.approx([expected[i] for i in batch["indices"]], rel=1e-6)


def test_rule_05_sums_do_not_drift() -> None:
    """Bug: differences were added to float32 sums; what was left over drew rows of priority 0."""
    rng = np.random.default_rng(5)
    buffer = make(1000, alpha=1.0, epsilon=0.0)
    ids = fill(buffer, np.ones(1000))
    for _ in range(500):
        chosen = rng.integers(0, 1000, 500)
        buffer.update_priorities(ids[chosen], rng.lognormal(0, 6, 500))
    raws = buffer.priorities(ids).astype(np.float64)
    assert buffer.total_priority == pytest.approx(raws.sum(), rel=1e-6)
    small = np.zeros(1000)
    small[[3, 500, 997]] = 1e-6, 2e-6, 1e-6
    buffer.update_priorities(ids, small)
    assert buffer.total_priority == pytest.approx(4e-6, rel=1e-6)
    assert_law(buffer, ids, small)


@pytest.mark.parametrize("capacity", [7, 16, 100, 257, 5000])
def test_rule_06_nothing_past_the_end_and_nothing_of_priority_zero_is_drawn(capacity: int) -> None:
    """Bug: rounding pushed the point past the last prefix sum, onto an empty or zero leaf."""
    rng = np.random.default_rng(capacity)
    for rows in {1, capacity // 2, capacity - 1, capacity}:
        buffer = make(capacity, alpha=1.0, epsilon=0.0, seed=rows)
        raws = np.float32(rng.lognormal(0, 10, rows))
        raws[rng.random(rows) < 0.5] = 0
        raws[-(rows // 3) :] = 0
        raws[0] = 0.1
        fill(buffer, raws)
        for batch_size in (1, 64, 9973):
            drawn = draw(buffer, 20_000, batch_size)
            assert drawn.max() < rows
            assert (raws[drawn] > 0).all()
