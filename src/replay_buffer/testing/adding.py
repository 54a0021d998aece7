"""Writing rows: every way to give them, ids, the wrap, and what is refused."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..config import BufferConfig
from ..errors import InvalidArgument, SchemaMismatch
from ..schema import DTYPES, Column, Schema
from .content import MakeBuffer, add_numbers, assert_whole, live_ids, numbered

OBS = np.arange(3, dtype=np.float32)
COLUMNS: dict[str, Any] = {
    "obs_shape": (3,),
    "obs_dtype": "float32",
    "action_dim": 4,
    "action_dtype": "int64",
}
NESTED = Schema(
    {
        "obs": {"image": Column((2, 3), "uint8"), "goal": {"at": Column((2,), "float64")}},
        "action": Column((), "int16"),
        "value": Column((), "float16"),
    }
)


class Adding:
    def test_a_row_is_given_by_position(self, make_buffer: MakeBuffer) -> None:
        buffer = make_buffer(BufferConfig(8), **COLUMNS)
        assert buffer.add(OBS, 3, 0.5, OBS + 1, True) == 0
        row = buffer.get([0])
        assert list(row) == ["obs", "action", "reward", "next_obs", "done", "indices"]
        assert row["obs"].tolist() == [OBS.tolist()]
        assert row["next_obs"].tolist() == [(OBS + 1).tolist()]
        assert (row["action"][0], row["reward"][0], row["done"][0]) == (3, 0.5, True)

    def test_a_row_is_given_by_name(self, make_buffer: MakeBuffer) -> None:
        buffer = make_buffer(BufferConfig(8), **COLUMNS)
        buffer.add(done=True, obs=OBS, reward=0.5, action=3, next_obs=OBS + 1)
        buffer.add(OBS, 3, next_obs=OBS + 1, reward=0.5, done=True)
        one, other = buffer.get([0]), buffer.get([1])
        assert all(np.array_equal(one[name], other[name]) for name in one if name != "indices")

    def test_two_ends_of_an_episode_are_two_columns(self, make_buffer: MakeBuffer) -> None:
        schema = {
            "obs": Column((3,)),
            "action": Column((), "int64"),
            "reward": Column(),
            "next_obs": Column((3,)),
            "terminated": Column((), "bool"),
            "truncated": Column((), "bool"),
        }
        buffer = make_buffer(BufferConfig(8), schema=schema)
        buffer.add(OBS, 0, 0.0, OBS, False, True)
        buffer.add(obs=OBS, action=0, reward=0.0, next_obs=OBS, done=True)
        rows = buffer.get([0, 1])
        assert rows["terminated"].tolist() == [False, True]
        assert rows["truncated"].tolist() == [True, False]

    @pytest.mark.parametrize("n", [1, 7, 64])
    def test_a_batch_of_rows_gets_ids_in_order(self, make_buffer: MakeBuffer, n: int) -> None:
        buffer = numbered(make_buffer, 100)
        first = buffer.add(7, [7, 7, 7])
        ids = add_numbers(buffer, n)
        assert ids.dtype == np.int64
        assert ids.tolist() == list(range(first + 1, first + 1 + n))
        assert buffer.get(ids)["k"].tolist() == list(range(n))
        assert_whole(buffer.get(ids))

    def test_rows_are_stored_alike_one_by_one_and_in_batches(self, make_buffer: MakeBuffer) -> None:
        batched, single = numbered(make_buffer, 20), numbered(make_buffer, 20)
        add_numbers(batched, 33)
        for k in range(33):
            single.add(k, np.full(3, k, np.float32))
        ours, theirs = batched.latest(20), single.latest(20)
        assert all(np.array_equal(ours[name], theirs[name]) for name in ours)

    def test_an_empty_batch_adds_nothing(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 8)
        assert buffer.add_batch([], np.empty((0, 3), np.float32)).tolist() == []
        assert len(buffer) == 0

    def test_nested_columns_come_back_nested(self, make_buffer: MakeBuffer) -> None:
        buffer = make_buffer(BufferConfig(4), schema=NESTED)
        image = np.arange(6, dtype=np.uint8).reshape(2, 3)
        buffer.add({"image": image, "goal": {"at": [0.1, 0.2]}}, -5, 0.5)
        buffer.add(obs={"goal": {"at": [0.3, 0.4]}, "image": image + 1}, action=6, value=1.5)
        rows = buffer.get([0, 1])
        assert rows["obs"]["image"].tolist() == [image.tolist(), (image + 1).tolist()]
        assert rows["obs"]["goal"]["at"].tolist() == [[0.1, 0.2], [0.3, 0.4]]
        assert rows["action"].tolist() == [-5, 6]
        assert rows["value"].dtype == np.float16
        assert buffer.schema == NESTED
        assert buffer.sample(5)["obs"]["goal"]["at"].shape == (5, 2)

    @pytest.mark.parametrize(
        "dtype",
        DTYPES,
    )
    def test_every_dtype_keeps_its_extremes(self, make_buffer: MakeBuffer, dtype: str) -> None:
        of = np.dtype(dtype)
        if of.kind == "b":
            values = np.array([False, True, True])
        else:
            info: Any = np.finfo(of) if of.kind == "f" else np.iinfo(of)
            values = np.array([info.min, info.max, 1], of)
        buffer = make_buffer(BufferConfig(4), schema={"x": Column((3,), dtype)})
        buffer.add(values)
        stored = buffer.get([0])["x"]
        assert stored.dtype == of
        assert np.array_equal(stored[0], values)

    def test_large_columns_are_stored_whole(self, make_buffer: MakeBuffer) -> None:
        schema = {"frame": Column((84, 84), "uint8"), "k": Column((), "int64")}
        buffer = make_buffer(BufferConfig(10), schema=schema)
        for k in range(25):
            buffer.add(np.full((84, 84), k, np.uint8), k)
        for batch in (buffer.latest(10), buffer.sample(40)):
            assert (batch["frame"] == batch["k"][:, None, None]).all()

    @pytest.mark.parametrize("capacity", [1, 2, 7, 64, 100])
    def test_the_wrap_overwrites_the_oldest_at_exactly_the_capacity(
        self, make_buffer: MakeBuffer, capacity: int
    ) -> None:
        buffer = numbered(make_buffer, capacity)
        assert buffer.capacity == capacity
        for k in range(2 * capacity + 3):
            assert buffer.add(k, [k, k, k]) == k
            assert len(buffer) == min(k + 1, capacity)
            assert buffer.is_full is (k + 1 >= capacity)
            assert live_ids(buffer)[0] == max(0, k + 1 - capacity)
        assert_whole(buffer.latest(capacity))

    @pytest.mark.parametrize("n", [10, 11, 25, 40])
    def test_a_batch_larger_than_the_capacity_keeps_its_end(
        self, make_buffer: MakeBuffer, n: int
    ) -> None:
        buffer = numbered(make_buffer, 10)
        assert add_numbers(buffer, n).tolist() == list(range(n))
        assert buffer.latest(100)["k"].tolist() == list(range(n - 10, n))

    @pytest.mark.parametrize("block_rows", [1, 3, 8, 30])
    def test_the_size_of_blocks_changes_nothing(
        self, make_buffer: MakeBuffer, block_rows: int
    ) -> None:
        buffer = numbered(make_buffer, 30, block_rows=block_rows)
        for n in (1, 13, 30, 31, 7):
            add_numbers(buffer, n)
        assert live_ids(buffer).tolist() == list(range(52, 82))

    @pytest.mark.parametrize(
        ("values", "says"),
        [
            ((1,), "missing"),
            ((1, [1.0, 2.0]), "shape"),
            ((1.5, [1.0, 2.0, 3.0]), "int64"),
            ((1, "abc"), "numbers"),
            ((1, [1.0, 2.0, 3.0], 4), "3 values"),
        ],
    )
    def test_a_row_that_does_not_fit_is_refused_by_the_columns_name(
        self, make_buffer: MakeBuffer, values: tuple[Any, ...], says: str
    ) -> None:
        buffer = numbered(make_buffer, 8)
        with pytest.raises(SchemaMismatch, match=says):
            buffer.add(*values)
        assert len(buffer) == 0
        assert buffer.add(1, [1.0, 2.0, 3.0]) == 0

    def test_unknown_and_repeated_names_are_refused(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 8)
        for columns in ({"k": 1, "y": 2}, {"x": [1, 2, 3]}):
            with pytest.raises(SchemaMismatch):
                buffer.add(**columns)
        with pytest.raises(SchemaMismatch, match="by position and by name"):
            buffer.add(1, k=1, x=[1, 2, 3])

    def test_a_batch_with_columns_of_two_lengths_is_refused_whole(
        self, make_buffer: MakeBuffer
    ) -> None:
        buffer = numbered(make_buffer, 8)
        with pytest.raises(SchemaMismatch, match="rows"):
            buffer.add_batch([1, 2, 3], np.zeros((2, 3), np.float32))
        assert len(buffer) == 0

    def test_an_action_outside_its_range_is_refused(self, make_buffer: MakeBuffer) -> None:
        buffer = make_buffer(BufferConfig(8), **COLUMNS)
        for action in (-1, 4):
            with pytest.raises(SchemaMismatch, match="action"):
                buffer.add(OBS, action, 0.0, OBS, False)

    def test_a_priority_needs_a_strategy_that_keeps_it(self, make_buffer: MakeBuffer) -> None:
        with pytest.raises(InvalidArgument, match="priorities"):
            add_numbers(numbered(make_buffer, 8), 2, priority=[1, 2])
