"""strategy="rank" draws the row of rank r with probability 1 / r^alpha over the sum of all.

Rank 1 is the largest raw priority. Which of two equal rows goes first is not promised: together
they have the mass of their ranks.
"""

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
    rank_masses,
)

ROWS = 60
RNG = np.random.default_rng(6)
DISTINCT = {
    "skewed": RNG.permutation(1.0 / np.arange(1, ROWS + 1) ** 2),
    "tiny": RNG.permutation(ROWS) * 1e-40,  # below the smallest normal float
    "huge": RNG.permutation(ROWS + 1)[:ROWS] * 5e36,
    "close": 1 + RNG.permutation(ROWS) * 2.0**-23,
    "over 60 decades": RNG.permutation(np.logspace(-30, 30, ROWS)),
}


@pytest.mark.parametrize("alpha", [0.0, 0.7, 1.0, 2.0])
@pytest.mark.parametrize("added", [0, 1, 77])
@pytest.mark.parametrize("kind", DISTINCT)
def test_draws_follow_the_law(kind: str, added: int, alpha: float) -> None:
    buffer = make(ROWS, "rank", alpha=alpha)
    fill(buffer, np.full(added, 1e38))
    fill(buffer, DISTINCT[kind])
    law = rank_masses(np.float32(DISTINCT[kind]), alpha)
    assert_law(buffer, live_ids(buffer), law, rows=10_000)


def test_only_the_order_of_priorities_matters() -> None:
    first, second = make(ROWS, "rank"), make(ROWS, "rank")
    fill(first, DISTINCT["skewed"])
    fill(second, np.argsort(np.argsort(DISTINCT["skewed"])))
    for _ in range(20):
        ours, theirs = first.sample(32), second.sample(32)
        assert np.array_equal(ours["indices"], theirs["indices"])
        assert np.array_equal(ours["weights"], theirs["weights"])


def test_tied_rows_share_the_mass_of_their_ranks() -> None:
    raws = np.repeat([5.0, 4.0, 1.0, 0.0], [3, 10, 7, 12])
    order = np.random.default_rng(2).permutation(len(raws))
    buffer = make(50, "rank", alpha=0.8)
    ids = fill(buffer, raws[order])
    counts = counts_of(draw(buffer, 20_000), ids)
    mass = np.arange(1, len(raws) + 1) ** -0.8
    tie = np.unique(-raws, return_inverse=True)[1]
    law = np.bincount(tie, mass)
    assert g_test(np.bincount(tie[order], counts), law) > UNLIKELY
    for t in range(4):  # and the rows of a tie have its ranks, in some order
        assert g_test(np.sort(counts[tie[order] == t])[::-1], mass[tie == t]) > UNLIKELY


def test_draws_follow_updates_at_once() -> None:
    rng = np.random.default_rng(8)
    buffer = make(ROWS, "rank", alpha=1.0)
    raws = np.float32(rng.permutation(ROWS) + 1)
    ids = fill(buffer, raws)
    counts, law = np.zeros(ROWS), np.zeros(ROWS)
    for _ in range(300):
        changed = int(rng.integers(ROWS))
        raws[changed] = rng.random() * ROWS
        buffer.update_priorities(ids[[changed]], raws[[changed]])
        counts += counts_of(draw(buffer, 40), ids)
        mass = rank_masses(raws, 1.0)
        law += mass / mass.sum()
    assert g_test(counts, law) > UNLIKELY


def test_draws_follow_new_rows_at_once() -> None:
    rng = np.random.default_rng(9)
    buffer = make(ROWS, "rank", alpha=1.0)
    raws = np.full(ROWS, -1.0)  # by slot; -1 is an empty one
    counts, law = np.zeros(ROWS), np.zeros(ROWS)
    for turn in range(300):
        raw = float(np.float32(rng.random()))
        raws[buffer.add(turn, priority=raw) % ROWS] = raw
        counts += np.bincount(draw(buffer, 40) % ROWS, minlength=ROWS)
        mass = np.where(raws >= 0, rank_masses(raws, 1.0), 0)
        law += mass / mass.sum()
    assert g_test(counts, law) > UNLIKELY


def test_a_new_row_without_priority_ranks_with_the_first() -> None:
    buffer = make(ROWS, "rank", alpha=3.0)
    fill(buffer, np.linspace(0.1, 0.9, 20))
    new = buffer.add(0)
    share = (draw(buffer, 4000) == new).mean()
    assert share == pytest.approx(1 / (np.arange(1, 22.0) ** -3).sum(), abs=0.03)


def test_in_a_large_buffer_the_order_is_at_most_one_in_a_hundred_changes_old() -> None:
    rows = 20_000
    rng = np.random.default_rng(10)
    buffer = make(rows, "rank", alpha=0.5)
    ids = fill(buffer, rng.random(rows))
    buffer.sample(1)  # the order is made
    raws = np.float32(rng.random(rows))
    buffer.update_priorities(ids, raws)
    assert_law(buffer, ids, rank_masses(raws, 0.5), rows=200_000, batch_size=500)
    best = rng.choice(rows, rows // 100, replace=False)
    buffer.update_priorities(ids[best], np.full(len(best), 2.0))
    raws[best] = 2.0
    is_best = np.isin(np.arange(rows), best)
    law = np.bincount(is_best, rank_masses(raws, 0.5))
    drawn = draw(buffer, 50_000, batch_size=500)
    assert g_test(np.bincount(is_best[drawn]), law) > UNLIKELY


def test_rows_of_a_cleared_buffer_have_no_rank() -> None:
    buffer = make(ROWS, "rank", alpha=1.0)
    fill(buffer, np.full(40, 9.0))
    buffer.sample(5)
    buffer.clear()
    ids = fill(buffer, [0.1, 0.3, 0.2])
    assert_law(buffer, ids, [1 / 3, 1, 1 / 2], rows=6000)
