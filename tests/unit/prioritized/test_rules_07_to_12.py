"""Rules 7 to 12 of drawing: each excludes a bug of other replay buffers, and fails on it."""

import random

import numpy as np
import pytest

from replay_buffer import InvalidArgument
from unit.prioritized.law import (
    assert_law,
    fill,
    live_ids,
    make,
    rank_masses,
)

WEIGHTED = pytest.mark.parametrize("strategy", ["prioritized", "rank"])


@pytest.mark.parametrize("most", [1.25, 2.75, 1e-3 + 1, 16777217.0, 3e38])
def test_rule_07_the_maximum_keeps_its_fraction(most: float) -> None:
    """Bug: the largest priority went through an integer on its way to new rows."""
    buffer = make(8)
    old = buffer.add(0)
    buffer.update_priorities([old], [most])
    assert buffer.max_priority == np.float32(most)
    assert buffer.priorities([buffer.add(1)])[0] == np.float32(most)
    assert buffer.priorities(buffer.add_batch(np.arange(2))).tolist() == [np.float32(most)] * 2


@WEIGHTED
def test_rule_08_a_late_update_does_not_hit_the_row_that_came_after(strategy: str) -> None:
    """Bug: indices were slots, so the TD error of an overwritten row landed on its successor."""
    buffer = make(4, strategy, alpha=1.0, epsilon=0.0)
    old = fill(buffer, [1, 1, 1, 1])
    new = fill(buffer, [5, 6, 7])
    assert buffer.update_priorities(old, [100.0] * 4) == 1
    assert buffer.stats()["updates_stale"] == 3
    assert buffer.priorities(new).tolist() == [5, 6, 7]
    assert buffer.priorities([old[3]]).tolist() == [100]
    assert buffer.total_priority == pytest.approx(118)
    law = [100, 5, 6, 7] if strategy == "prioritized" else rank_masses([100, 5, 6, 7], 1.0)
    assert_law(buffer, live_ids(buffer), law, rows=5000)


@pytest.mark.parametrize("cer", [False, True])
@WEIGHTED
def test_rule_09_sampling_changes_nothing(strategy: str, cer: bool) -> None:
    """Bug: drawing zeroed leaves, set flags or handed out views of the storage."""
    buffer = make(50, strategy, cer=cer, weights="none")
    fill(buffer, np.random.default_rng(9).random(70))
    ids = live_ids(buffer)
    rows, raws = buffer.get(ids), buffer.priorities(ids)
    first = buffer.sample(500)
    weights = dict(
        zip(first["indices"], first["weights"], strict=True)
    )  # say what leaves there are
    facts = (buffer.total_priority, buffer.max_priority, len(buffer), buffer.alpha)
    out = buffer.sample(32)
    for _ in range(300):
        batch = buffer.sample(32)
        for array in batch.values():
            array[:] = 0  # the caller's own, to do with as he likes
        buffer.sample(32, out=out)
    assert np.array_equal(live_ids(buffer), ids)
    assert np.array_equal(buffer.get(ids)["x"], rows["x"])
    assert np.array_equal(buffer.priorities(ids), raws)
    assert (buffer.total_priority, buffer.max_priority, len(buffer), buffer.alpha) == facts
    last = buffer.sample(500)
    assert all(
        weights.get(i, w) == w for i, w in zip(last["indices"], last["weights"], strict=True)
    )


@WEIGHTED
def test_rule_10_draws_depend_on_the_seed_and_the_content_alone(strategy: str) -> None:
    """Bug: global random state: runs could not be repeated and buffers disturbed each other."""

    def run(seed: int, disturb: bool) -> np.ndarray:
        buffer, other = make(40, strategy, seed=seed), make(40, strategy, seed=1)
        fill(other, np.ones(40))
        drawn = []
        for step in range(60):
            buffer.add(step, priority=float(step % 7))
            if disturb:
                np.random.seed(step)  # noqa: NPY002
                random.seed(step)
                other.sample(3)
            batch = buffer.sample(8)
            buffer.update_priorities(batch["indices"], np.sin(batch["indices"]))
            drawn.append(batch["indices"])
        return np.array(drawn)

    state = np.random.get_state()[1].copy(), random.getstate()  # noqa: NPY002
    first = run(7, disturb=False)
    assert np.array_equal(np.random.get_state()[1], state[0])  # noqa: NPY002
    assert random.getstate() == state[1]
    assert np.array_equal(first, run(7, disturb=True))
    assert not np.array_equal(first, run(8, disturb=False))


@pytest.mark.parametrize("poison", [float("nan"), float("inf"), float("-inf")])
@pytest.mark.parametrize("place", [0, 20, 39])
@WEIGHTED
def test_rule_11_poison_is_refused_before_anything_is_written(
    strategy: str, place: int, poison: float
) -> None:
    """Bug: one NaN made every sum above it NaN; the rest of the batch was written already."""
    raws = np.float32(np.random.default_rng(11).random(40))
    buffer = make(50, strategy)
    ids = fill(buffer, raws)
    total = buffer.total_priority
    bad = np.full(40, 9.0)
    bad[place] = poison
    for dtype in (np.float32, np.float64, np.float16):
        with pytest.raises(InvalidArgument):
            buffer.update_priorities(ids, bad.astype(dtype))
    with pytest.raises(InvalidArgument):
        buffer.update_priorities(ids, bad.tolist())
    with pytest.raises(InvalidArgument):
        buffer.add(0, priority=poison)
    with pytest.raises(InvalidArgument):
        buffer.add_batch(np.arange(40), priority=bad)
    assert np.array_equal(buffer.priorities(ids), raws)
    assert (buffer.total_priority, buffer.max_priority, len(buffer)) == (total, 1.0, 40)
    assert buffer.stats()["updates_applied"] == 0
    buffer.sample(100)


def test_rule_11_negative_priorities_are_refused_and_negative_errors_are_not() -> None:
    buffer = make(10, alpha=1.0, epsilon=0.0)
    for bad in (-1.0, -1e-30, -1):
        with pytest.raises(InvalidArgument):
            buffer.add(0, priority=bad)
        with pytest.raises(InvalidArgument):
            buffer.add_batch(np.arange(2), priority=[1.0, bad])
    assert len(buffer) == 0
    ids = fill(buffer, [1, 1])
    assert buffer.update_priorities(ids, [-3.0, 2.0]) == 2
    assert buffer.priorities(ids).tolist() == [3, 2]


@pytest.mark.parametrize("weights", ["batch", "global", "none"])
@pytest.mark.parametrize("added", [1, 20, 30, 47])
def test_rule_12_all_priorities_zero_is_uniform(added: int, weights: str) -> None:
    """Bug: a division by the total of zero, or a search that never ended."""
    buffer = make(30, epsilon=0.0, weights=weights)
    ids = fill(buffer, np.zeros(added))[-30:]
    assert buffer.total_priority == 0
    assert_law(buffer, ids, np.ones(len(ids)))
    batch = buffer.sample(64)
    assert np.array_equal(batch["weights"], np.ones(64))
    buffer.update_priorities(ids[:1], [1.0])  # one is not zero any more
    assert set(buffer.sample(64)["indices"]) == {ids[0]}
    buffer.update_priorities(ids[:1], [0.0])
    assert_law(buffer, ids, np.ones(len(ids)))


def test_rule_12_all_priorities_zero_after_clear_and_with_ranks() -> None:
    buffer = make(30, epsilon=0.0)
    fill(buffer, np.ones(25))
    buffer.clear()
    ids = fill(buffer, np.zeros(7))
    assert_law(buffer, ids, np.ones(7))
    ranked = make(30, "rank", epsilon=0.0)
    ids = fill(ranked, np.zeros(7))
    assert_law(ranked, ids, np.ones(7))
