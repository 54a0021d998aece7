"""The laws on a few rows, against numbers made by hand; and the table."""

from __future__ import annotations

from dataclasses import fields, replace
from itertools import combinations, product
from typing import Any

import numpy as np
import pytest

from laws import laws
from laws.laws import Rows
from laws.table import AXES, cases, fit

#: Four rows in a ring of three; the last one has overwritten the first, the third is a last
#: observation.
THEN = Rows(np.arange(3), np.array([9.0, 1.0, np.nan]), np.array([True, True, False]), 3, 1.0, 0.0)
ROWS = Rows(np.arange(1, 4), np.array([1.0, np.nan, 3.0]), np.array([True, False, True]), 3, 1.0, 0)


def test_masses() -> None:
    assert laws.equal(ROWS).tolist() == [1, 1, 1]
    assert laws.proportional(ROWS).tolist() == [1, 0, 3]
    assert laws.by_rank(ROWS).tolist() == [0.5, 0, 1]
    assert laws.masses([0.0, 0.0], 0.5, 0.0).tolist() == [1, 1]
    assert laws.rank_masses([2.0, 5.0, 2.0], 1.0).tolist() == [1 / 2, 1, 1 / 3]


def test_a_row_has_no_rank_until_the_next_sort() -> None:
    between = replace(ROWS, then=THEN)
    assert laws.by_rank(between).tolist() == [0.5, 0, 0]
    assert laws.share(laws.by_rank, between).tolist() == [1 / 3, 0, 0]


def test_equal_priorities_rank_in_the_order_of_slots() -> None:
    rows = replace(ROWS, raws=np.array([2.0, 2.0, 2.0]))
    assert laws.by_rank(rows).tolist() == [1 / 2, 1 / 3, 1]


def test_probabilities() -> None:
    assert laws.among(laws.proportional(ROWS), ROWS.starts).tolist() == [1 / 4, 0, 3 / 4]
    assert laws.among(np.zeros(3), ROWS.starts).tolist() == [1 / 2, 0, 1 / 2]
    assert laws.with_newest(np.array([1 / 4, 0, 3 / 4]), 2, 4) == pytest.approx(
        [3 / 16, 0, 13 / 16]
    )
    assert laws.with_newest(np.array([1 / 4, 0, 3 / 4]), 2, 1).tolist() == [0, 0, 1]
    assert laws.goal(4, 2) == pytest.approx((0.2, 0.4))
    assert laws.sequence_priority([[-4.0, 1.0, 1.0]], 0.5) == pytest.approx([3.0])


def test_weights() -> None:
    shares, drawn = np.array([1 / 8, 3 / 8, 1 / 2]), np.array([[2, 1], [2, 2]])

    def weights(scale: str) -> object:
        return laws.weights(shares, 1 / 8, 4, 1.0, scale, drawn)

    assert weights("none") == pytest.approx(np.array([[1 / 2, 2 / 3], [1 / 2, 1 / 2]]))
    assert weights("batch") == pytest.approx(np.array([[3 / 4, 1], [1, 1]]))
    assert weights("global") == pytest.approx(np.array([[1 / 4, 1 / 3], [1 / 4, 1 / 4]]))


def test_orders() -> None:
    ids = np.array([1, 3])
    none = ids[:0]
    assert laws.newest_first(ROWS, ROWS, [ids[::-1], ids[:0:-1]]) is None
    assert laws.newest_first(ROWS, ROWS, [ids]) is not None
    assert laws.queue(ROWS, none, 1, [ids[:1], ids[1:]]) is None
    assert laws.queue(ROWS, none, 1, [ids[::-1]]) is not None
    assert laws.queue(ROWS, none, 1, [ids[::-1], none]) is None
    assert laws.queue(ROWS, ids[:1], 2, [np.array([1, 3, 3])]) is None
    assert "1 were never" in str(laws.queue(ROWS, none, 1, [ids[:1]]))
    wrong, begins = laws.epochs(ROWS, none, np.array([3, 1, 1, 3, 1]))
    assert (wrong, begins.tolist()) == (None, [3, 1])
    assert laws.epochs(ROWS, none, np.array([3, 3]))[0] is not None


def test_an_epoch_that_had_begun_ends_with_the_slots_still_to_come() -> None:
    rows = replace(ROWS, then=THEN)
    one = np.array([1])
    assert laws.epochs(rows, one, np.array([3, 1, 3]))[0] is None  # slot 0 was still to come
    assert laws.epochs(rows, one, np.array([1, 1, 3]))[0] is not None


def test_every_pair_that_fits_is_in_the_table() -> None:
    table: list[tuple[Any, ...]] = [
        tuple(getattr(case, axis.name) for axis in fields(case)) for case in cases()
    ]
    for one, other in combinations(range(len(AXES)), 2):
        there = {(row[one], row[other]) for row in table}
        assert there == {pair for pair in product(AXES[one], AXES[other]) if fit(*pair)}
