"""Batches: their form, `out=`, seeds, and the order of each strategy."""

from __future__ import annotations

import asyncio
from typing import Any

import numpy as np
import pytest

from ..buffer import ReplayBuffer
from ..config import BufferConfig
from ..errors import InvalidArgument, NotEnoughRows, SchemaMismatch
from .content import (
    NUMBERED,
    STRATEGIES,
    WEIGHTED,
    Ids,
    MakeBuffer,
    add_numbers,
    assert_whole,
    live_ids,
    numbered,
)
from .crowd import short_turns


def draws(buffer: ReplayBuffer) -> list[dict[str, Any]]:
    """Batches between which rows come and priorities change."""
    found = []
    for turn in range(6):
        add_numbers(buffer, 23, first=100 * turn)
        batch = buffer.sample(16)
        found.append(batch)
        if buffer.config.weighted:
            buffer.update_priorities(batch["indices"], batch["indices"] % 7 + 0.5)
    return found


def drawn(buffer: ReplayBuffer, batch_size: int, times: int) -> Ids:
    return np.concatenate([buffer.sample(batch_size)["indices"] for _ in range(times)])


class Drawing:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_a_batch_is_columns_then_indices(self, make_buffer: MakeBuffer, strategy: str) -> None:
        buffer = numbered(make_buffer, 50, strategy)
        add_numbers(buffer, 80)
        batch = buffer.sample(20)
        weights = ["weights"] if strategy in WEIGHTED else []
        assert list(batch) == ["k", "x", "indices", *weights]
        assert [column.dtype.name for column in batch.values()][:3] == ["int64", "float32", "int64"]
        assert all(len(column) == 20 and column.flags.carray for column in batch.values())
        assert_whole(batch)
        assert np.array_equal(batch["k"], batch["indices"])
        assert batch["k"].min() >= 30

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_an_empty_buffer_has_nothing_to_draw(
        self, make_buffer: MakeBuffer, strategy: str
    ) -> None:
        buffer = numbered(make_buffer, 50, strategy)
        with pytest.raises(NotEnoughRows):
            buffer.sample(1)
        assert buffer.stats()["samples"] == 0

    @pytest.mark.parametrize("n", [0, -1, 1.5, True, "2", None])
    def test_a_batch_size_that_is_none_is_refused(self, make_buffer: MakeBuffer, n: Any) -> None:
        buffer = numbered(make_buffer, 50)
        add_numbers(buffer, 5)
        with pytest.raises(InvalidArgument, match="batch_size"):
            buffer.sample(n)

    def test_more_rows_than_are_stored_can_be_drawn(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 50)
        add_numbers(buffer, 3)
        assert set(buffer.sample(3000)["k"].tolist()) == {0, 1, 2}

    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("seed", [0, 7, 2**64 - 1])
    def test_the_same_seed_and_content_give_the_batches_of_private_memory(
        self, make_buffer: MakeBuffer, strategy: Any, seed: int
    ) -> None:
        ours = draws(numbered(make_buffer, 50, strategy, seed=seed))
        heap = ReplayBuffer(BufferConfig(50, strategy=strategy), schema=NUMBERED, seed=seed)
        for one, other in zip(ours, draws(heap), strict=True):
            assert list(one) == list(other)
            for name in one:
                assert np.array_equal(one[name], other[name]), name

    def test_another_seed_gives_other_batches(self, make_buffer: MakeBuffer) -> None:
        batches = set()
        for seed in range(5):
            buffer = numbered(make_buffer, 50, seed=seed)
            add_numbers(buffer, 50)
            batches.add(tuple(buffer.sample(20)["k"]))
        assert len(batches) == 5

    def test_reading_in_between_changes_no_batch(self, make_buffer: MakeBuffer) -> None:
        one, other = numbered(make_buffer, 50), numbered(make_buffer, 50)
        add_numbers(one, 50)
        add_numbers(other, 50)
        for _ in range(5):
            other.latest(5)
            other.get([3])
            other.stats()
            assert np.array_equal(one.sample(8)["k"], other.sample(8)["k"])

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_out_is_filled_and_gives_what_sample_gives(
        self, make_buffer: MakeBuffer, strategy: str
    ) -> None:
        fresh, reused = numbered(make_buffer, 200, strategy), numbered(make_buffer, 200, strategy)
        add_numbers(fresh, 200)
        add_numbers(reused, 200)
        fresh.sample(16)
        out = {**reused.sample(16), "mine": "untouched"}
        arrays = dict(out)
        for _ in range(5):
            expected = fresh.sample(16)
            assert reused.sample(16, out=out) is out
            assert all(out[name] is arrays[name] for name in arrays)
            assert all(np.array_equal(out[name], expected[name]) for name in expected)

    @pytest.mark.parametrize(
        "broken",
        [
            {"k": "missing"},
            {"k": np.zeros(16, np.int32)},
            {"k": np.zeros(15, np.int64)},
            {"x": np.zeros((16, 4), np.float32)},
            {"x": np.zeros((3, 16), np.float32).T},
            {"indices": [0] * 16},
        ],
    )
    def test_out_that_does_not_fit_is_refused(
        self, make_buffer: MakeBuffer, broken: dict[str, Any]
    ) -> None:
        buffer = numbered(make_buffer, 50)
        add_numbers(buffer, 50)
        out = {**buffer.sample(16), **broken}
        if isinstance(out["k"], str):
            del out["k"]
        with pytest.raises(SchemaMismatch, match=next(iter(broken))):
            buffer.sample(16, out=out)

    @pytest.mark.parametrize("strategy", ["uniform", *WEIGHTED])
    def test_cer_puts_the_newest_row_first(self, make_buffer: MakeBuffer, strategy: str) -> None:
        buffer = numbered(make_buffer, 20, strategy, cer=True)
        for k in range(50):
            newest = buffer.add(k, [k, k, k])
            assert buffer.sample(4)["indices"][0] == newest

    def test_without_replacement_gives_every_row_once_an_epoch(
        self, make_buffer: MakeBuffer
    ) -> None:
        buffer = numbered(make_buffer, 40, "without_replacement")
        add_numbers(buffer, 60)
        epochs = drawn(buffer, 8, 25).reshape(5, 40)
        assert np.array_equal(np.sort(epochs, axis=1), np.tile(live_ids(buffer), (5, 1)))
        assert len({tuple(epoch) for epoch in epochs}) == 5

    @pytest.mark.parametrize("times", [1, 3])
    def test_fifo_is_a_queue_that_gives_a_row_so_many_times(
        self, make_buffer: MakeBuffer, times: int
    ) -> None:
        buffer = numbered(make_buffer, 40, "fifo", max_times_sampled=times)
        ids = add_numbers(buffer, 30)
        assert np.array_equal(drawn(buffer, 5, 6 * times), np.repeat(ids, times))
        with pytest.raises(NotEnoughRows):
            buffer.sample(1)
        more = add_numbers(buffer, 2)
        assert buffer.sample(2 * times)["indices"].tolist() == np.repeat(more, times).tolist()
        assert len(buffer) == 32

    def test_fifo_skips_what_was_overwritten(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10, "fifo", block_rows=4)
        add_numbers(buffer, 37)
        assert buffer.sample(10)["k"].tolist() == list(range(27, 37))

    def test_lifo_gives_the_newest_first(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10, "lifo")
        for last in (3, 11, 26):
            add_numbers(buffer, last - buffer.stats()["rows_added"])
            ids = live_ids(buffer)[::-1][:3]
            assert buffer.sample(3)["indices"].tolist() == ids.tolist()

    def test_calls_of_a_loop_do_the_same(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10)

        async def use() -> dict[str, Any]:
            assert await buffer.add_async(0, [0, 0, 0]) == 0
            ids = await buffer.add_batch_async([1, 2], [[1] * 3, [2] * 3])
            assert ids.tolist() == [1, 2]
            return await buffer.sample_async(50)

        with short_turns():
            batch = asyncio.run(use())
        assert_whole(batch)
        assert set(batch["k"].tolist()) == {0, 1, 2}
