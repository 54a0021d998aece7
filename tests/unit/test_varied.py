"""Values of any length, and compressed ones: what goes in comes out, in every location."""

from __future__ import annotations

import os
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay_buffer import BufferConfig, ReplayBuffer
from replay_buffer.errors import InvalidArgument, SchemaMismatch
from replay_buffer.schema import Column, Schema
from replay_buffer.testing.crowd import Crowd

SCHEMA = {
    "tokens": Column((None,), "int32", expected=20),
    "scene": {
        "points": Column((None, 3), "float32", compression="zstd", padded=True),
        "pixels": Column((16, 16), "uint8", compression="lz4"),
    },
    "number": Column((), "int64"),
}


def row_of(number: int) -> dict[str, Any]:
    """A row that follows from its number: some values are empty, some large, some noise."""
    rng = np.random.default_rng(number)
    tokens = rng.integers(0, 1000, rng.integers(0, 60) * (1 + 3 * (number % 5 == 0)))
    points = rng.normal(size=(rng.integers(0, 20), 3))
    pixels = rng.integers(0, 256, (16, 16)) if number % 3 else np.full((16, 16), number % 256)
    scene = {"points": points.astype("float32"), "pixels": pixels.astype("uint8")}
    return {"tokens": tokens.astype("int32"), "scene": scene, "number": number}


def rows_in(batch: dict[str, Any]) -> Iterator[dict[str, Any]]:
    """The rows of a batch, one by one."""
    offsets = batch["tokens"]["offsets"]
    assert offsets.dtype == np.int64
    assert offsets[0] == 0
    assert len(offsets) == len(batch["number"]) + 1
    assert offsets[-1] == len(batch["tokens"]["values"])
    mask = batch["scene"]["points_mask"]
    assert mask.dtype == bool
    assert not batch["scene"]["points"][~mask].any()
    for i, number in enumerate(batch["number"]):
        points = batch["scene"]["points"][i]
        assert (np.diff(mask[i].astype(int)) <= 0).all()
        scene = {"points": points[mask[i]], "pixels": batch["scene"]["pixels"][i]}
        tokens = batch["tokens"]["values"][offsets[i] : offsets[i + 1]]
        yield {"tokens": tokens, "scene": scene, "number": int(number)}


def check(batch: dict[str, Any]) -> list[int]:
    """Every row is what its number says. Returns the numbers."""
    numbers = []
    for row in rows_in(batch):
        wanted = row_of(row["number"])
        np.testing.assert_array_equal(row["tokens"], wanted["tokens"])
        np.testing.assert_array_equal(row["scene"]["points"], wanted["scene"]["points"])
        np.testing.assert_array_equal(row["scene"]["pixels"], wanted["scene"]["pixels"])
        numbers.append(row["number"])
    return numbers


def add_many(buffer: ReplayBuffer, numbers: range, *, offsets: bool) -> None:
    rows = [row_of(n) for n in numbers]
    tokens: Any = [row["tokens"] for row in rows]
    if offsets:
        ends = np.cumsum([0, *map(len, tokens)])
        tokens = {"values": np.concatenate([*tokens, np.empty(0, "int32")]), "offsets": ends}
    scene = {
        "points": [row["scene"]["points"] for row in rows],
        "pixels": np.stack([row["scene"]["pixels"] for row in rows]),
    }
    buffer.add_batch(tokens=tokens, scene=scene, number=np.array(numbers))


@pytest.fixture(params=["heap:", "shm:", "file:"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    kind = str(request.param)
    return kind + str(tmp_path / "buffer") if kind == "file:" else kind


def make(location: str, capacity: int = 50, strategy: str = "uniform") -> ReplayBuffer:
    config = BufferConfig(capacity=capacity, strategy=strategy)
    return ReplayBuffer.create(location, config, schema=SCHEMA, seed=1)


def test_what_goes_in_comes_out(location: str) -> None:
    with make(location) as buffer:
        for number in range(300):
            assert buffer.add(**row_of(number)) >= 0
            if number % 9 == 0:
                assert check(buffer.latest(1)) == [number]
                assert set(check(buffer.sample(40))) <= set(range(number + 1))
        ids = buffer.latest(10)["indices"]
        assert check(buffer.get(ids)) == list(range(290, 300))
        assert list(buffer.sample(2)) == ["tokens", "scene", "number", "indices"]
        assert buffer._engine.verify() == []


@settings(max_examples=40, deadline=None)
@given(
    capacity=st.integers(1, 40),
    calls=st.lists(st.tuples(st.integers(0, 9), st.booleans()), min_size=1, max_size=30),
    strategy=st.sampled_from(["uniform", "prioritized"]),
)
def test_a_ring_holds_the_newest_rows_of_a_list(
    capacity: int, calls: list[tuple[int, bool]], strategy: str
) -> None:
    with make("heap:", capacity, strategy) as buffer:
        added = 0
        for n, offsets in calls:
            if n == 0:
                buffer.add(**row_of(added))
                n = 1
            else:
                add_many(buffer, range(added, added + n), offsets=offsets)
            added += n
            numbers = check(buffer.latest(capacity))
            assert len(numbers) == len(buffer) >= 1
            assert numbers[-1] == added - 1
            assert numbers == sorted(set(numbers))
            assert numbers[0] >= added - capacity - buffer.stats()["block_rows"]
            assert set(check(buffer.sample(7))) <= set(numbers)
        assert buffer._engine.verify() == []


@pytest.mark.parametrize("rows", [1, 17, 49, 50, 51, 120])
def test_a_checkpoint_and_a_reopened_file_have_the_same_rows(rows: int, tmp_path: Path) -> None:
    location = f"file:{tmp_path / 'buffer'}"
    with make(location) as buffer:
        add_many(buffer, range(rows), offsets=True)
        kept = check(buffer.latest(50))
        buffer.checkpoint(tmp_path / "saved")
        ratio = buffer.stats()["compression"]
    with ReplayBuffer.open(location) as buffer:
        assert buffer.schema == Schema(SCHEMA)
        assert check(buffer.latest(50)) == kept
        assert buffer.stats()["compression"] == ratio
    with ReplayBuffer.restore(tmp_path / "saved") as buffer:
        assert buffer.schema == Schema(SCHEMA)
        assert check(buffer.latest(50)) == kept
        assert buffer.stats()["compression"] == ratio
        add_many(buffer, range(rows, rows + 70), offsets=False)
        assert check(buffer.latest(50))[-1] == rows + 69
        assert buffer._engine.verify() == []


def test_threads_sample_whole_rows_while_others_add() -> None:
    with make("shm:", 64) as buffer:
        add_many(buffer, range(64), offsets=True)

        def write(who: int) -> None:
            for number in range(who * 1000, who * 1000 + 300):
                buffer.add(**row_of(number))

        def read() -> None:
            check(buffer.sample(16))
            check(buffer.latest(8))

        with Crowd() as crowd:
            for _ in range(2):
                crowd.repeat(read)
            for writer in [crowd.start(write, who) for who in (1, 2)]:
                writer.result()
        assert buffer._engine.verify() == []


@pytest.mark.parametrize("location", ["heap:", "shm:"])
def test_the_child_of_a_fork_goes_on(location: str) -> None:
    with make(location) as buffer:
        add_many(buffer, range(30), offsets=True)
        child = os.fork()
        if child == 0:
            code = 1
            try:
                buffer.add(**row_of(77))
                code = 0 if 77 in check(buffer.latest(50)) else 2
            finally:
                os._exit(code)
        assert os.waitpid(child, 0)[1] == 0
        numbers = check(buffer.latest(50))
        assert set(range(30)) <= set(numbers)
        assert (77 in numbers) is (location == "shm:")
        buffer.add(**row_of(78))
        assert 78 in check(buffer.sample(100))


def test_out_takes_what_is_compressed() -> None:
    schema = {"frame": Column((64, 64), "uint8", compression="lz4"), "number": Column((), "int64")}
    with ReplayBuffer(BufferConfig(capacity=100), schema=schema) as buffer:
        for number in range(100):
            buffer.add(np.full((64, 64), number, "uint8"), number)
        batch = buffer.sample(32)
        frame = batch["frame"]
        assert buffer.sample(32, out=batch)["frame"] is frame
        assert (frame == batch["number"][:, None, None]).all()


def test_the_ratio_is_in_the_statistics() -> None:
    schema = {"frame": Column((64, 64), "uint8", compression="lz4", ratio=10)}
    with ReplayBuffer(BufferConfig(capacity=100), schema=schema) as buffer:
        assert buffer.stats()["compression"] == {"bytes_in": 0, "bytes_kept": 0, "ratio": None}
        buffer.add_batch(np.zeros((50, 64, 64), "uint8"))
        compression = buffer.stats()["compression"]
        assert compression["bytes_in"] == 50 * 64 * 64
        assert compression["ratio"] > 10
    with ReplayBuffer(BufferConfig(capacity=100), schema={"x": Column()}) as buffer:
        assert buffer.stats()["compression"] is None


def test_a_full_arena_ends_a_block_and_nothing_else() -> None:
    schema = {"tokens": Column((None,), "int64", expected=4), "number": Column((), "int64")}
    with ReplayBuffer(BufferConfig(capacity=4096), schema=schema) as buffer:
        for number in range(3000):
            buffer.add(np.full(40, number), number)
        assert 0 < len(buffer) < 3000  # far longer than expected: fewer rows have room
        batch = buffer.sample(200)
        lengths = np.diff(batch["tokens"]["offsets"])
        assert (lengths == 40).all()
        assert (batch["tokens"]["values"] == np.repeat(batch["number"], 40)).all()
        assert buffer._engine.verify() == []


@pytest.mark.parametrize(
    ("value", "said"),
    [
        (np.zeros((3, 2), "int32"), r"expected shape \(any,\), got \(3, 2\)"),
        (5, r"expected shape \(any,\), got \(\)"),
        ([1.5, 2.5], "expected int32, got float64"),
        (["a"], "expected numbers"),
        ([[1], [2, 3]], "not an array of numbers"),
        ([2**40], "does not fit into int32"),
        (np.array([1, "x"], dtype=object), "expected numbers"),
    ],
)
def test_a_value_that_does_not_fit_is_refused_with_its_column(value: Any, said: str) -> None:
    with make("heap:") as buffer:
        with pytest.raises(SchemaMismatch, match=said) as error:
            buffer.add(**{**row_of(1), "tokens": value})
        assert "tokens" in str(error.value)
        assert len(buffer) == 0


@pytest.mark.parametrize(
    ("tokens", "said"),
    [
        ({"values": [1, 2], "offsets": [0, 3]}, "offsets must grow from 0 to at most the 2 values"),
        ({"values": [1, 2], "offsets": [2, 1]}, "offsets must grow"),
        ({"values": [1, 2], "offsets": [-1, 1]}, "offsets must grow"),
        ({"values": [1, 2], "offsets": [0.0, 1.0]}, "a vector of whole numbers"),
        ({"values": [1, 2]}, "a dict with values and offsets"),
        ({"values": [1, 2], "offsets": [0, 1, 2]}, "1 rows were given, 2 in the columns before"),
        (7, "a list of arrays or a dict"),
        ([[1.5]], r"tokens\[0\]"),
    ],
)
def test_a_batch_that_does_not_fit_is_refused(tokens: Any, said: str) -> None:
    row = row_of(1)
    scene = {name: value[None] for name, value in row["scene"].items()}
    with make("heap:") as buffer:
        with pytest.raises(SchemaMismatch, match=said):
            buffer.add_batch(tokens=tokens, scene=scene, number=[1])
        assert len(buffer) == 0


def test_a_value_larger_than_an_arena_is_refused_before_anything_is_added() -> None:
    schema = {"tokens": Column((None,), "int32"), "number": Column((), "int64")}
    with ReplayBuffer(BufferConfig(capacity=10), schema=schema) as buffer:
        with pytest.raises(SchemaMismatch, match=r"'tokens': a value of 400000 bytes .* limit of"):
            buffer.add_batch([[1, 2], np.zeros(100_000, "int32")], [1, 2])
        assert len(buffer) == 0


@pytest.mark.parametrize(
    "wrong",
    [
        {"shape": (3, None)},
        {"shape": (None, None)},
        {"shape": (3,), "expected": 5},
        {"shape": (3,), "padded": True},
        {"shape": (None,), "expected": 0},
        {"shape": (None,), "expected": 1.5},
        {"compression": "gzip"},
        {"compression": "lz4", "ratio": 0.5},
        {"ratio": 2},
        {"shape": (None,), "limit": 3},
    ],
)
def test_a_column_that_makes_no_sense_is_refused(wrong: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        Column(**{"dtype": "int32", **wrong})


def test_a_mask_needs_its_name() -> None:
    with pytest.raises(InvalidArgument, match="'x_mask' is the name of its mask"):
        Schema({"x": Column((None,), padded=True), "x_mask": Column()})
