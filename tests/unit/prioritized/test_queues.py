"""strategy="fifo": oldest first, each row at most so many times. strategy="lifo": newest first."""

from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, InvalidArgument, NotEnoughRows, ReplayBuffer, Schema
from replay_buffer.testing.crowd import together
from unit.prioritized.law import Ids, live_ids, make


@pytest.mark.parametrize("batch_size", [1, 3, 10, 30])
def test_fifo_gives_rows_in_the_order_they_came(batch_size: int) -> None:
    buffer = make(100, "fifo")
    ids = buffer.add_batch(np.arange(30))
    drawn = [buffer.sample(batch_size) for _ in range(30 // batch_size)]
    assert np.array_equal(np.concatenate([b["indices"] for b in drawn]), ids)
    assert np.array_equal(np.concatenate([b["x"] for b in drawn]), np.arange(30))


@pytest.mark.parametrize("times", [1, 2, 3, 10])
@pytest.mark.parametrize("batch_size", [1, 7])
def test_fifo_gives_every_row_so_many_times_and_then_no_more(times: int, batch_size: int) -> None:
    buffer = make(100, "fifo", max_times_sampled=times)
    ids = buffer.add_batch(np.arange(28))
    drawn = np.concatenate(
        [buffer.sample(batch_size)["indices"] for _ in range(28 * times // batch_size)]
    )
    assert np.array_equal(drawn, np.repeat(ids, times))
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)


def test_fifo_refuses_what_it_cannot_give_and_keeps_what_it_has() -> None:
    buffer = make(100, "fifo")
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
    ids = buffer.add_batch(np.arange(5))
    with pytest.raises(NotEnoughRows, match=r"6.*5"):
        buffer.sample(6)
    assert np.array_equal(buffer.sample(5)["indices"], ids)
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
    more = buffer.add_batch(np.arange(2))
    assert np.array_equal(buffer.sample(2)["indices"], more)
    assert len(buffer) == 7  # given out is not thrown away
    assert np.array_equal(buffer.get(ids)["x"], np.arange(5))


@pytest.mark.parametrize("block_rows", [1, 7, 8, 30])
@pytest.mark.parametrize("added", [30, 31, 37, 45, 60, 61, 95])
def test_fifo_begins_with_the_oldest_row_that_is_still_stored(added: int, block_rows: int) -> None:
    buffer = make(30, "fifo", block_rows=block_rows)
    ids = buffer.add_batch(np.arange(added))
    assert np.array_equal(buffer.sample(30)["indices"], ids[-30:])
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize("block_rows", [1, 4])
def test_fifo_follows_a_queue_through_many_turns(block_rows: int, times: int) -> None:
    rng = np.random.default_rng(times)
    buffer = make(20, "fifo", block_rows=block_rows, max_times_sampled=times)
    queue: list[int] = []
    for step in range(3000):
        if rng.random() < (0.2, 0.9, 0.5)[step // 50 % 3]:
            row = buffer.add(step)
            queue = [i for i in queue if i > row - 20] + [row] * times
            continue
        n = int(rng.integers(1, 6))
        if n > len(queue):
            with pytest.raises(NotEnoughRows):
                buffer.sample(n)
        else:
            assert buffer.sample(n)["indices"].tolist() == queue[:n]
            del queue[:n]


def test_fifo_forgets_cleared_rows() -> None:
    buffer = make(20, "fifo")
    buffer.add_batch(np.arange(15))
    buffer.sample(4)
    buffer.clear()
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
    ids = buffer.add_batch(np.arange(3))
    assert np.array_equal(buffer.sample(3)["indices"], ids)


def consume(buffer: ReplayBuffer, batch_size: int, threads: int) -> Ids:
    """What several threads get until there is no more."""
    drawn: list[Ids] = []

    def work() -> None:
        with suppress(NotEnoughRows):
            while True:
                drawn.append(buffer.sample(batch_size)["indices"])

    together(*[work] * threads)
    return np.concatenate(drawn)


@pytest.mark.parametrize("times", [1, 3])
@pytest.mark.parametrize(("width", "batch_size"), [(1, 1), (1, 16), (1024, 16), (1024, 64)])
def test_fifo_gives_several_consumers_disjoint_rows(
    width: int, batch_size: int, times: int
) -> None:
    """Wide rows are copied without the interpreter's lock, so that consumers truly race."""
    config = BufferConfig(capacity=3200, strategy="fifo", max_times_sampled=times)
    buffer = ReplayBuffer(config, schema=Schema({"x": Column((width,), "float32")}))
    ids = buffer.add_batch(np.zeros((3200, width), np.float32))
    drawn = consume(buffer, batch_size, threads=4)
    assert np.array_equal(np.sort(drawn), np.repeat(ids, times))


def test_fifo_loses_no_row_when_consumers_race_for_the_last() -> None:
    """Batches that do not divide what is there: a refused call must leave what it did not give."""
    rows = 20_000
    buffer = make(rows, "fifo", block_rows=1)  # many blocks: a call looks long before it takes
    for _ in range(20):
        ids = buffer.add_batch(np.arange(rows))
        drawn = consume(buffer, rows * 2 // 7, threads=4)
        rest = buffer.sample(rows - len(drawn))["indices"] if len(drawn) < rows else drawn[:0]
        assert np.array_equal(np.sort([*drawn, *rest]), ids)


@pytest.mark.parametrize("bad", [0, -1, 1.5, 2**32, True, "twice"])
def test_max_times_sampled_is_a_whole_number_of_at_least_one(bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="max_times_sampled"):
        make(10, "fifo", max_times_sampled=bad)


@pytest.mark.parametrize("block_rows", [1, 7, 30])
@pytest.mark.parametrize("added", [1, 29, 30, 31, 45, 95])
def test_lifo_gives_the_newest_first(added: int, block_rows: int) -> None:
    buffer = make(30, "lifo", block_rows=block_rows)
    ids = buffer.add_batch(np.arange(added))[-30:]
    for n in {1, len(ids) // 2 + 1, len(ids)}:
        batch = buffer.sample(n)
        assert np.array_equal(batch["indices"], ids[::-1][:n])
        assert np.array_equal(batch["x"], np.arange(added)[::-1][:n])
    assert np.array_equal(live_ids(buffer), ids)


def test_lifo_gives_the_same_again_until_there_is_something_newer() -> None:
    buffer = make(30, "lifo")
    buffer.add_batch(np.arange(10))
    assert buffer.sample(3)["indices"].tolist() == buffer.sample(3)["indices"].tolist() == [9, 8, 7]
    newest = buffer.add(0)
    assert buffer.sample(2)["indices"].tolist() == [newest, 9]


def test_lifo_refuses_more_than_is_stored() -> None:
    buffer = make(30, "lifo")
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
    buffer.add_batch(np.arange(5))
    with pytest.raises(NotEnoughRows, match=r"6.*5"):
        buffer.sample(6)
    buffer.clear()
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
    newest = buffer.add(7)
    assert buffer.sample(1)["indices"].tolist() == [newest]


@pytest.mark.parametrize("strategy", ["fifo", "lifo"])
def test_a_draw_that_fails_is_not_counted(strategy: str) -> None:
    buffer = make(100, strategy)
    buffer.add_batch(np.arange(5))
    buffer.sample(2)
    for _ in range(3):
        with pytest.raises(NotEnoughRows):
            buffer.sample(6)
    stats = buffer.stats()
    assert (stats["samples"], stats["rows_sampled"]) == (1, 2)
