"""strategy="prioritized" draws row i with probability (p + epsilon)^alpha over the sum of all."""

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
)

ROWS = 50
RNG = np.random.default_rng(3)
PRIORITIES = {
    "equal": np.full(ROWS, 0.7),
    "skewed": 1.0 / np.arange(1, ROWS + 1) ** 2,
    "uneven": RNG.lognormal(0, 2, ROWS),
    "tiny": RNG.random(ROWS) * 1e-30,
    "huge": RNG.random(ROWS) * 1e24,
    "some zero": np.where(np.arange(ROWS) % 3 == 0, 0, RNG.random(ROWS)),
    "one positive": np.where(np.arange(ROWS) == 17, 0.01, 0),
    "one giant": np.where(np.arange(ROWS) == 31, 1e6, 1),
    "falling over 12 decades": np.logspace(6, -6, ROWS),
}
# capacity and how many rows are added, of which the last ROWS have the priorities above
FILLS = {
    "half full": (2 * ROWS + 1, ROWS),
    "just full": (ROWS, ROWS),
    "wrapped once": (ROWS, ROWS + 19),
    "wrapped often": (ROWS, 4 * ROWS + 1),
}


@pytest.mark.parametrize("batch_size", [1, 64])
@pytest.mark.parametrize("alpha", [0.6, 1.0])
@pytest.mark.parametrize("filled", FILLS)
@pytest.mark.parametrize("kind", PRIORITIES)
def test_draws_follow_the_law(kind: str, filled: str, alpha: float, batch_size: int) -> None:
    capacity, added = FILLS[filled]
    buffer = make(capacity, alpha=alpha, epsilon=0.0, seed=added + batch_size)
    fill(buffer, np.full(added - ROWS, 1e30))  # gone again, all of them
    fill(buffer, PRIORITIES[kind])
    assert len(buffer) == ROWS
    law = masses(np.float32(PRIORITIES[kind]), alpha, 0.0)
    assert_law(buffer, live_ids(buffer), law, rows=12_000, batch_size=batch_size)


@pytest.mark.parametrize("epsilon", [0.5, 1e-6])
def test_epsilon_is_added_before_the_exponent(epsilon: float) -> None:
    raws = np.float32(np.where(np.arange(ROWS) % 2 == 0, 0, np.linspace(0, 1, ROWS)))
    buffer = make(ROWS, alpha=0.5, epsilon=epsilon)
    ids = fill(buffer, raws)
    assert_law(buffer, ids, masses(raws, 0.5, epsilon), rows=40_000)


@pytest.mark.parametrize("rows", [1, 2, 15, 16, 17, 255, 256, 257, 4095, 4097])
def test_draws_follow_the_law_at_the_edges_of_tree_levels(rows: int) -> None:
    raws = np.float32(np.random.default_rng(rows).lognormal(0, 1, rows))
    buffer = make(rows, alpha=0.6)
    ids = fill(buffer, raws)
    assert_law(buffer, ids, masses(raws, 0.6), rows=60_000, batch_size=32)


def test_draws_follow_the_law_among_many_rows() -> None:
    rows, groups = 100_000, 200
    raws = np.float32(np.random.default_rng(5).lognormal(0, 2, rows))
    buffer = make(rows, alpha=0.6)
    fill(buffer, raws)
    group = np.arange(rows) % groups  # neighbours in different groups: errors of one leaf show
    law = np.bincount(group, masses(raws, 0.6))
    drawn = draw(buffer, 200_000, batch_size=1000)
    assert g_test(np.bincount(group[drawn], minlength=groups), law) > UNLIKELY


def test_draws_follow_priorities_that_change() -> None:
    rng = np.random.default_rng(8)
    raws = np.float32(rng.random(ROWS))
    buffer = make(ROWS, alpha=0.8)
    ids = fill(buffer, raws)
    counts, law = np.zeros(ROWS), np.zeros(ROWS)
    for _ in range(400):
        changed = rng.choice(ROWS, 7, replace=False)
        raws[changed] = rng.lognormal(0, 2, 7)
        assert buffer.update_priorities(ids[changed], raws[changed]) == 7
        counts += counts_of(draw(buffer, 50), ids)
        mass = masses(raws, 0.8)
        law += mass / mass.sum()
    assert g_test(counts, law) > UNLIKELY


def test_draws_follow_priorities_that_change_while_the_ring_turns() -> None:
    rng = np.random.default_rng(9)
    buffer = make(ROWS, alpha=0.8)
    fill(buffer, np.ones(ROWS))
    raws = np.ones(ROWS, np.float32)  # by slot
    counts, law = np.zeros(ROWS), np.zeros(ROWS)
    for turn in range(400):
        slot = buffer.add(turn, priority=float(turn % 5)) % ROWS
        raws[slot] = turn % 5
        target = int(rng.integers(ROWS))
        raws[target] = rng.random()
        id_in_slot = live_ids(buffer)[live_ids(buffer) % ROWS == target]
        assert buffer.update_priorities(id_in_slot, raws[[target]]) == 1
        counts += np.bincount(draw(buffer, 50) % ROWS, minlength=ROWS)
        mass = masses(raws, 0.8)
        law += mass / mass.sum()
    assert g_test(counts, law) > UNLIKELY


def test_independent_draws_scatter_as_independent_draws_do() -> None:
    """Too little scatter would be as wrong as too much: p-values of batches of one are uniform."""
    raws = np.float32(np.linspace(0.1, 1, 20))
    p_values = []
    for seed in range(150):
        buffer = make(20, alpha=1.0, seed=seed)
        ids = fill(buffer, raws)
        p_values.append(g_test(counts_of(draw(buffer, 1000), ids), masses(raws, 1.0)))
    assert 0.4 < np.mean(p_values) < 0.6


@pytest.mark.parametrize("batch_size", [1, 2, 7, 63, 64, 65, 1000])
def test_every_batch_size_follows_the_same_law(batch_size: int) -> None:
    raws = np.float32(np.linspace(0, 1, ROWS) ** 3)
    buffer = make(ROWS, alpha=1.0, epsilon=0.0, seed=batch_size)
    ids = fill(buffer, raws)
    assert_law(buffer, ids, raws.astype(np.float64), rows=30_000, batch_size=batch_size)


def test_more_rows_than_stored_can_be_drawn() -> None:
    buffer = make(10)
    fill(buffer, [1.0, 3.0])
    batch = buffer.sample(1000)
    assert set(batch["indices"]) == {0, 1}
    assert np.array_equal(batch["x"], batch["indices"])
