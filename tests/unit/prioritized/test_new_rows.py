"""What priority a new row has: the one it was given, else the largest so far."""

from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, InvalidArgument, ReplayBuffer, RowGone
from unit.prioritized.law import assert_law, fill, live_ids, make, masses

WEIGHTED = pytest.mark.parametrize("strategy", ["prioritized", "rank"])


@WEIGHTED
def test_the_first_row_has_priority_one(strategy: str) -> None:
    buffer = make(10, strategy)
    assert buffer.max_priority == 1.0
    assert buffer.total_priority == 0.0
    assert buffer.priorities([buffer.add(0)]).tolist() == [1.0]
    assert buffer.total_priority == pytest.approx((1 + 1e-6) ** 0.6, rel=1e-6)


@WEIGHTED
def test_new_rows_get_the_largest_priority_so_far(strategy: str) -> None:
    buffer = make(100, strategy)
    first = buffer.add(0)
    for error, expected in [(0.1, 1.0), (7.5, 7.5), (3.0, 7.5), (-9.25, 9.25), (0.0, 9.25)]:
        buffer.update_priorities([first], [error])
        assert buffer.max_priority == expected
        assert buffer.priorities([buffer.add(0)]).tolist() == [expected]
        assert buffer.priorities(buffer.add_batch(np.arange(3))).tolist() == [expected] * 3


def test_a_given_priority_raises_the_maximum() -> None:
    buffer = make(100)
    buffer.add(0, priority=3.5)
    buffer.add_batch(np.arange(3), priority=[0.5, 8.25, 2.0])
    assert buffer.max_priority == 8.25
    assert buffer.priorities([buffer.add(0)]).tolist() == [8.25]


@WEIGHTED
@pytest.mark.parametrize(
    "priority", [0.0, 0.25, 3.5, 0, 2, np.float32(0.5), np.float64(1e-20), np.int64(4)]
)
def test_add_with_a_priority(strategy: str, priority: Any) -> None:
    buffer = make(10, strategy)
    assert buffer.priorities([buffer.add(5, priority=priority)]).tolist() == [np.float32(priority)]
    assert buffer.priorities([buffer.add(x=5, priority=priority)]).tolist() == [
        np.float32(priority)
    ]


def test_add_with_a_priority_before_the_columns_are_settled() -> None:
    buffer = ReplayBuffer(BufferConfig(capacity=10, strategy="prioritized"), obs_shape=(2,))
    row = buffer.add(np.zeros(2), 0, 0.0, np.zeros(2), False, priority=2.5)
    assert buffer.priorities([row]).tolist() == [2.5]
    assert buffer.max_priority == 2.5


@pytest.mark.parametrize("form", [list, tuple, np.float32, np.float64, np.float16, "strided"])
def test_add_batch_with_priorities(form: Any) -> None:
    raws = [0.0, 0.5, 2.0, 1024.0]
    given = np.repeat(raws, 2)[::2] if form == "strided" else form(raws)
    buffer = make(6)
    fill(buffer, np.ones(4))
    ids = buffer.add_batch(np.arange(4), priority=given)
    assert buffer.priorities(ids).tolist() == raws
    assert buffer.total_priority == pytest.approx(masses([1, 1, *raws], 0.6).sum(), rel=1e-6)
    assert_law(buffer, live_ids(buffer), masses([1, 1, *raws], 0.6), rows=5000)


def test_add_batch_larger_than_the_ring_keeps_the_last_priorities() -> None:
    buffer = make(10)
    ids = buffer.add_batch(np.arange(37), priority=np.arange(37, dtype=np.float32))
    assert np.array_equal(live_ids(buffer), ids[-10:])
    assert np.array_equal(buffer.priorities(ids[-10:]), np.arange(27, 37))
    assert buffer.total_priority == pytest.approx(masses(np.arange(27, 37), 0.6).sum(), rel=1e-6)


@pytest.mark.parametrize(
    "bad", [-1.0, float("nan"), float("inf"), 1e39, "high", [1.0, 2.0], np.ones(1), 1j]
)
def test_add_refuses_what_is_no_priority(bad: Any) -> None:
    buffer = make(10)
    fill(buffer, [1.0, 2.0])
    total = buffer.total_priority
    with pytest.raises(InvalidArgument, match="priority"):
        buffer.add(0, priority=bad)
    assert (len(buffer), buffer.max_priority, buffer.total_priority) == (2, 2.0, total)
    assert buffer.add(0) == 2  # no id was used up


@pytest.mark.parametrize("bad", ["high", [1.0], np.ones(1), np.ones((1, 1)), True, 1j, {}])
def test_the_priority_of_one_row_is_one_number(bad: Any) -> None:
    buffer = make(10)
    fill(buffer, [1.0])
    with pytest.raises(InvalidArgument, match=r"priority must be a (finite )?number, not "):
        buffer.add(0, priority=bad)


@pytest.mark.parametrize(
    "bad",
    [
        [1.0],
        [1.0, 2.0, 3.0, 4.0],
        [1.0, -2.0, 3.0],
        [1.0, float("nan"), 3.0],
        [[1.0, 2.0, 3.0]],
        2.0,
        [1.0, float("inf"), 1.0],
        ["a", "b", "c"],
        np.ones((3, 1)),
    ],
)
def test_add_batch_refuses_what_are_no_priorities(bad: Any) -> None:
    buffer = make(10)
    fill(buffer, [1.0, 2.0])
    total = buffer.total_priority
    with pytest.raises(InvalidArgument, match="priority"):
        buffer.add_batch(np.arange(3), priority=bad)
    assert (len(buffer), buffer.max_priority, buffer.total_priority) == (2, 2.0, total)
    assert buffer.add(0) == 2


def test_a_first_row_with_a_refused_priority_settles_nothing() -> None:
    buffer = ReplayBuffer(BufferConfig(capacity=10, strategy="prioritized"))
    with pytest.raises(InvalidArgument):
        buffer.add(np.zeros(2), 0, 0.0, np.zeros(2), False, priority=float("nan"))
    assert buffer.schema is None
    buffer.add(np.zeros(3), 0, 0.0, np.zeros(3), False)
    assert len(buffer) == 1


@pytest.mark.parametrize("strategy", ["uniform", "without_replacement", "fifo", "lifo"])
def test_a_priority_is_refused_where_none_is_kept(strategy: str) -> None:
    buffer = make(10, strategy)
    with pytest.raises(InvalidArgument, match="priorities"):
        buffer.add(0, priority=1.0)
    with pytest.raises(InvalidArgument, match="priorities"):
        buffer.add_batch(np.arange(2), priority=[1.0, 1.0])
    assert len(buffer) == 0
    for name in ("total_priority", "max_priority"):
        with pytest.raises(InvalidArgument, match="priorities"):
            getattr(buffer, name)


@WEIGHTED
def test_priorities_of_rows(strategy: str) -> None:
    buffer = make(4, strategy)
    ids = fill(buffer, [3, 1, 4, 1, 5, 9])
    raws = buffer.priorities(ids[2:])
    assert raws.dtype == np.float32
    assert raws.tolist() == [4, 1, 5, 9]
    assert buffer.priorities([int(ids[5]), int(ids[2]), int(ids[5])]).tolist() == [9, 4, 9]
    assert buffer.priorities([]).tolist() == []


@pytest.mark.parametrize("ids", [[0], [3, 0], [6], [-1], [2**40]])
def test_priorities_of_rows_that_are_not_there(ids: list[int]) -> None:
    buffer = make(4)
    fill(buffer, [3, 1, 4, 1, 5, 9])
    with pytest.raises(RowGone):
        buffer.priorities(ids)


def test_the_total_follows_every_change() -> None:
    buffer = make(5, alpha=0.5, epsilon=0.01)
    rng = np.random.default_rng(4)
    for step in range(50):
        buffer.add(step, priority=float(rng.random()))
        ids = live_ids(buffer)
        buffer.update_priorities(ids[:1], rng.random(1))
        expected = masses(buffer.priorities(ids), 0.5, 0.01).sum()
        assert buffer.total_priority == pytest.approx(expected, rel=1e-6)


def test_after_clear_the_total_is_zero_and_old_rows_are_gone() -> None:
    buffer = make(20)
    old = fill(buffer, [1, 2, 3])
    buffer.clear()
    assert buffer.total_priority == 0.0
    with pytest.raises(RowGone):
        buffer.priorities(old)
    new = fill(buffer, [0.5, 0.25])
    assert buffer.priorities(new).tolist() == [0.5, 0.25]
    assert_law(buffer, new, masses([0.5, 0.25], 0.6), rows=3000)
