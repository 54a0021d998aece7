"""Reading rows and facts; clear; close."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ..buffer import ReplayBuffer
from ..config import BufferConfig
from ..errors import Closed, InvalidArgument, NotEnoughRows, RowGone
from .content import NUMBERED, MakeBuffer, add_numbers, assert_whole, numbered

CALLS: dict[str, Callable[[ReplayBuffer], Any]] = {
    "add": lambda b: b.add(0, [0, 0, 0]),
    "add_batch": lambda b: add_numbers(b, 2),
    "sample": lambda b: b.sample(1),
    "latest": lambda b: b.latest(1),
    "get": lambda b: b.get([0]),
    "peek": lambda b: b.peek([0]),
    "peek_latest": lambda b: b.peek_latest(1),
    "len": len,
    "capacity": lambda b: b.capacity,
    "clear": lambda b: b.clear(),
    "flush": lambda b: b.flush(),
    "stats": lambda b: b.stats(),
    "update_priorities": lambda b: b.update_priorities([0], [1.0]),
    "priorities": lambda b: b.priorities([0]),
    "total_priority": lambda b: b.total_priority,
    "alpha": lambda b: b.alpha,
}


class Reading:
    def test_latest_gives_the_newest_rows_oldest_first(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10)
        add_numbers(buffer, 14)
        assert buffer.latest(3)["k"].tolist() == [11, 12, 13]
        assert buffer.latest(3)["indices"].tolist() == [11, 12, 13]
        assert buffer.latest(1000)["k"].tolist() == list(range(4, 14))

    def test_latest_of_an_empty_buffer_has_columns_of_length_zero(
        self, make_buffer: MakeBuffer
    ) -> None:
        batch = numbered(make_buffer, 10).latest(4)
        assert (batch["k"].shape, batch["x"].shape) == ((0,), (0, 3))

    def test_get_gives_rows_in_the_order_asked_for(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10)
        add_numbers(buffer, 14)
        batch = buffer.get([13, 4, 13])
        assert batch["k"].tolist() == [13, 4, 13]
        assert batch["indices"].tolist() == [13, 4, 13]
        assert_whole(batch)

    @pytest.mark.parametrize("gone", [0, 3, 14, 2**40, -1])
    def test_get_names_the_row_that_is_gone(self, make_buffer: MakeBuffer, gone: int) -> None:
        buffer = numbered(make_buffer, 10)
        add_numbers(buffer, 14)
        with pytest.raises(RowGone, match=str(gone)):
            buffer.get([5, gone])

    def test_ids_that_are_no_whole_numbers_are_refused(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10)
        add_numbers(buffer, 3)
        for ids in ([0.5], [[0, 1]], ["0"]):
            with pytest.raises(InvalidArgument):
                buffer.get(ids)

    def test_what_is_read_is_a_copy(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 4)
        add_numbers(buffer, 4)
        for batch in (buffer.get([0]), buffer.latest(1), buffer.sample(4)):
            batch["x"][:] = -1
            batch["k"][:] = -1
        assert_whole(buffer.latest(4))
        assert buffer.latest(4)["k"].tolist() == [0, 1, 2, 3]

    def test_clear_forgets_rows_and_ids_go_on(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10, "prioritized")
        last = add_numbers(buffer, 14)[-1]
        buffer.clear()
        assert len(buffer) == 0
        assert buffer.total_priority == 0
        assert buffer.latest(3)["k"].tolist() == []
        with pytest.raises(NotEnoughRows):
            buffer.sample(1)
        with pytest.raises(RowGone):
            buffer.get([last])
        ids = add_numbers(buffer, 3, first=50)
        assert ids[0] > last
        assert set(buffer.sample(30)["k"].tolist()) <= {50, 51, 52}
        assert len(buffer) == 3

    def test_clear_of_a_full_buffer_leaves_room_for_all(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 12, block_rows=5)
        for _ in range(4):
            add_numbers(buffer, 30)
            buffer.clear()
        add_numbers(buffer, 12)
        assert len(buffer) == 12
        assert buffer.latest(12)["k"].tolist() == list(range(12))

    def test_facts_are_those_it_was_made_with(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10, "prioritized", alpha=0.7, beta=0.5, weights="global")
        config = buffer.config
        assert (config.capacity, config.strategy) == (10, "prioritized")
        assert (config.alpha, config.beta, config.weights) == (0.7, 0.5, "global")
        assert buffer.schema == NUMBERED
        assert buffer.readonly is False
        assert buffer.closed is False
        assert bool(buffer)

    def test_stats_count_what_was_done(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10)
        add_numbers(buffer, 14)
        buffer.sample(5)
        buffer.sample(2, out=buffer.sample(2))
        stats = buffer.stats()
        assert (stats["size"], stats["capacity"], stats["strategy"]) == (10, 10, "uniform")
        assert (stats["rows_added"], stats["samples"], stats["rows_sampled"]) == (14, 3, 9)
        assert stats["raw_bytes"] == 10 * (8 + 12)
        assert stats["segment_bytes"] > stats["raw_bytes"]

    def test_repr_says_what_is_in_it(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 5000)
        add_numbers(buffer, 3)
        for part in ("3/5,000 rows", "uniform", "k int64", "x float32[3]"):
            assert part in repr(buffer)
        buffer.close()
        assert "closed" in repr(buffer)

    @pytest.mark.parametrize("call", CALLS)
    def test_after_close_a_call_says_so(self, make_buffer: MakeBuffer, call: str) -> None:
        buffer = numbered(make_buffer, 8, "prioritized")
        add_numbers(buffer, 3)
        buffer.close()
        buffer.close()
        assert buffer.closed
        with pytest.raises(Closed):
            CALLS[call](buffer)

    def test_a_context_manager_closes_also_after_an_error(self, make_buffer: MakeBuffer) -> None:
        with pytest.raises(KeyError), numbered(make_buffer, 8) as buffer:
            raise KeyError
        assert buffer.closed

    def test_a_batch_outlives_its_buffer(self, make_buffer: MakeBuffer) -> None:
        with numbered(make_buffer, 8) as buffer:
            add_numbers(buffer, 8)
            batches = [buffer.latest(8), buffer.sample(8), buffer.get(np.arange(8))]
        for batch in batches:
            assert_whole(batch)

    def test_flush_returns(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 8)
        buffer.flush()
        add_numbers(buffer, 3)
        buffer.flush()
        assert len(buffer) == 3

    @pytest.mark.parametrize("capacity", [0, -1, 1.5, True, "8"])
    def test_a_capacity_that_is_none_is_refused(self, capacity: Any) -> None:
        with pytest.raises(InvalidArgument, match="capacity"):
            BufferConfig(capacity)
