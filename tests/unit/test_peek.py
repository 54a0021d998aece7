"""Rows read where they lie: arrays over the memory itself, which outlives everything."""

from __future__ import annotations

import gc
import itertools
import os
import re
import sys
from collections.abc import Callable, Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    InvalidArgument,
    NotEnoughRows,
    PeekedColumn,
    PeekedRows,
    ReplayBuffer,
    RowGone,
    _core,
)
from replay_buffer.testing.content import STRATEGIES

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="looks into /proc")

CAPACITY = 40
#: Small columns lie in the record of their row, large ones in an array of their own, values of any
#: length in an arena. A few bytes are not worth compressing.
SCHEMA = {
    "obs": {"pixels": Column((20, 20, 4), "uint8"), "state": {"joints": Column((3,), "float32")}},
    "number": Column((), "int64"),
    "action": Column((), "int8"),
    "reward": Column(),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
    "tokens": Column((None,), "int32", expected=8),
    "points": Column((None, 2), "float64", expected=4, padded=True),
    "frame": Column((16, 16), "uint8", compression="lz4"),
    "tiny": Column((2,), "int16", compression="zstd"),
}
FIXED = ("obs/pixels", "obs/state/joints", "number", "reward", "terminated", "tiny")
VARYING = ("tokens", "points")

numbers = itertools.count()


def row_of(k: int) -> dict[str, Any]:
    """A row that follows from its number."""
    pixels = np.full((20, 20, 4), k % 251, np.uint8)
    points = np.arange(2.0 * (k % 4)).reshape(-1, 2) + k
    return {
        "obs": {"pixels": pixels, "state": {"joints": np.full(3, k, np.float32)}},
        "number": k,
        "action": k % 3,
        "reward": k / 4,
        "terminated": False,
        "truncated": False,
        "tokens": np.arange(k % 7, dtype=np.int32) + k,
        "points": points,
        "frame": np.full((16, 16), k % 256, np.uint8),
        "tiny": np.array([k, -k], np.int16),
    }


def at(batch: Any, path: str) -> Any:
    for name in path.split("/"):
        batch = batch[name]
    return batch


class Place:
    """A buffer somewhere: a handle that writes, and the one that is read through."""

    def __init__(self, writer: ReplayBuffer, reader: ReplayBuffer) -> None:
        self.writer, self.reader = writer, reader

    def add(self, first: int, end: int, episode: int | None = None) -> None:
        """Rows first to end; of steps an episode may end after so many, with a row more."""
        if self.writer.config.storage == "transitions":
            for k in range(first, end):
                self.writer.add(**row_of(k))
            return
        with self.writer.writer() as writer:
            for k in range(first, end):
                row = row_of(k)
                if episode is not None and k % episode == episode - 1:
                    row |= {"truncated": True, "final_obs": row_of(k + 1)["obs"]}
                writer.append(**row)


@pytest.fixture
def place_of(tmp_path: Path, shm_dir: Path) -> Iterator[Callable[..., Place]]:
    """Makes places by name, and closes their handles."""
    with ExitStack() as handles:

        def make(kind: str, storage: Any = "transitions", **columns: Any) -> Place:
            config = BufferConfig(CAPACITY, storage=storage, block_rows=10)
            columns = columns or {"schema": SCHEMA}
            name = f"peek-{next(numbers)}"
            locations = {"heap": "heap:", "shm": f"shm:{name}", "file": f"file:{tmp_path / name}"}
            location = locations[kind.split()[0]]
            writer = handles.enter_context(ReplayBuffer.create(location, config, **columns))
            if kind.endswith("for reading"):
                reader = handles.enter_context(ReplayBuffer.open(location, readonly=True))
                return Place(writer, reader)
            return Place(writer, writer)

        yield make


PLACES = ("heap", "shm", "file", "shm for reading", "file for reading")
every_place = pytest.mark.parametrize("kind", PLACES)
every_storage = pytest.mark.parametrize("storage", ["transitions", "steps"])


def assert_same(rows: PeekedRows, batch: dict[str, Any]) -> None:
    """What is peeked at is what was copied, row by row and in runs."""
    assert rows.indices.tolist() == batch["indices"].tolist()
    for path in FIXED:
        column, copied = at(rows, path), at(batch, path)
        assert len(column) == len(copied)
        for value, wanted in zip(column, copied, strict=True):
            assert (value.dtype, value.shape) == (wanted.dtype, copied.shape[1:])
            np.testing.assert_array_equal(value, wanted)
        together = np.concatenate(column.runs) if column.runs else copied[:0]
        assert together.shape == copied.shape
        np.testing.assert_array_equal(together, copied)
    ends = batch["tokens"]["offsets"]
    for i, value in enumerate(rows["tokens"]):
        np.testing.assert_array_equal(value, batch["tokens"]["values"][ends[i] : ends[i + 1]])
        points = batch["points"][i][batch["points_mask"][i]]
        np.testing.assert_array_equal(rows["points"][i], points)
        assert rows["points"][i].shape == points.shape


# ---- what the arrays show


@every_place
@every_storage
@pytest.mark.parametrize("n", [7, CAPACITY, CAPACITY + 13, 3 * CAPACITY])
def test_what_is_peeked_at_is_what_is_copied(
    place_of: Callable[..., Place], kind: str, storage: str, n: int
) -> None:
    place = place_of(kind, storage)
    place.add(0, n, episode=6)
    newest = place.reader.latest(CAPACITY)
    assert_same(place.reader.peek_latest(CAPACITY), newest)
    assert_same(place.reader.peek_latest(5), place.reader.latest(5))
    chosen = np.random.default_rng(0).choice(newest["indices"], 16)
    for ids in (chosen, chosen[:1], np.sort(chosen)[::-1], chosen[:0]):
        assert_same(place.reader.peek(ids), place.reader.get(ids))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_batch_of_any_strategy_can_be_peeked_at_and_nothing_is_taken(strategy: Any) -> None:
    with ReplayBuffer(BufferConfig(50, strategy=strategy), schema={"k": Column()}) as buffer:
        buffer.add_batch(np.arange(60.0))
        for _ in range(3):
            assert np.concatenate(buffer.peek_latest(50)["k"].runs).tolist() == [*range(10, 60)]
        batch = buffer.sample(50)
        assert np.stack(buffer.peek(batch["indices"])["k"]).tolist() == batch["k"].tolist()
        drawn = set(batch["k"].tolist())
        assert strategy not in ("fifo", "without_replacement") or drawn == set(range(10, 60))


def test_columns_are_found_by_name_as_in_a_batch() -> None:
    with ReplayBuffer(BufferConfig(CAPACITY), schema=SCHEMA) as buffer:
        buffer.add(**row_of(3))
        rows = buffer.peek_latest(1)
        assert list(rows) == list(SCHEMA)
        assert isinstance(rows["obs"], PeekedRows)
        assert list(rows["obs"]) == ["pixels", "state"]
        assert isinstance(rows["obs"]["state"]["joints"], PeekedColumn)
        assert "obs/pixels" not in rows
        with pytest.raises(KeyError, match="score"):
            rows["score"]
        assert rows["obs"].indices is rows.indices
        assert rows["obs"]["state"].intact()
        assert repr(rows["obs"]) == "<PeekedRows: pixels, state of 1 rows>"
        assert "obs/state/joints float32[3] of 1 rows" in repr(rows["obs"]["state"]["joints"])


def test_rows_of_a_column_are_counted_as_in_a_list() -> None:
    with ReplayBuffer(BufferConfig(50), schema={"k": Column()}) as buffer:
        column = buffer.peek(buffer.add_batch(np.arange(5.0)))["k"]
        assert (len(column), column[0], column[-1]) == (5, 0, 4)
        assert [float(k) for k in column] == [0, 1, 2, 3, 4]
        assert column[1:-1] == [1, 2, 3]
        assert column[::-2] == [4, 2, 0]
        for beyond in (5, -6):
            with pytest.raises(IndexError):
                column[beyond]


def test_the_newest_rows_are_one_run_and_two_where_the_ring_wraps() -> None:
    with ReplayBuffer(BufferConfig(40, block_rows=10), schema={"k": Column((2,))}) as buffer:
        for k in range(95):
            buffer.add([k, k])
        runs = buffer.peek_latest(12)["k"].runs
        assert [run.shape for run in runs] == [(12, 2)]
        runs = buffer.peek_latest(40)["k"].runs
        assert [run[0, 0] for run in runs] == [55, 80]
        assert [len(run) for run in runs] == [25, 15]
        assert len(np.concatenate(buffer.peek([60, 61, 63, 62])["k"].runs)) == 4
        assert len(buffer.peek([60, 61, 63, 62])["k"].runs) == 3


def test_rows_whose_elements_lie_askew_are_read_all_the_same() -> None:
    """Records of some sizes are squeezed, which leaves their numbers where they fall."""
    schema = {"x": Column((30,), "float32"), "done": Column((), "bool")}
    with ReplayBuffer(BufferConfig(20_000), schema=schema) as buffer:
        x = np.arange(300, dtype=np.float32).reshape(10, 30)
        rows = buffer.peek(buffer.add_batch(x, np.arange(10) % 2 == 0))
        assert not all(value.flags.aligned for value in rows["x"])
        assert np.array_equal(np.stack(rows["x"]), x)
        assert np.array_equal(np.concatenate(rows["x"].runs), x)
        assert float(rows["x"].runs[0].sum()) == x.sum()
        assert np.stack(rows["done"]).tolist() == [True, False] * 5


# ---- it is the memory itself, and nobody writes through it


@every_place
def test_nothing_is_copied(place_of: Callable[..., Place], kind: str) -> None:
    place = place_of(kind)
    place.add(0, 20)
    rows, again = place.reader.peek([3, 4]), place.reader.peek_latest(20)
    for path in FIXED:
        assert np.shares_memory(at(rows, path)[1], at(again, path)[4])
        assert np.shares_memory(at(rows, path).runs[0], at(again, path).runs[0])
        assert not np.shares_memory(at(rows, path)[1], at(again, path)[5])
        assert not np.shares_memory(at(rows, path)[1], at(place.reader.get([4]), path))
    for path in VARYING:
        assert np.shares_memory(at(rows, path)[0], at(again, path)[3])
    held = rows["obs"]["pixels"][0]
    place.add(20, CAPACITY + 4)
    assert np.array_equal(held, row_of(CAPACITY + 3)["obs"]["pixels"])


@every_place
def test_the_arrays_can_never_be_written(place_of: Callable[..., Place], kind: str) -> None:
    place = place_of(kind)
    place.add(0, 20)
    rows = place.reader.peek_latest(10)
    arrays = [at(rows, path)[0] for path in FIXED + VARYING]
    arrays += [run for path in FIXED for run in at(rows, path).runs]
    for array in [*arrays, *(a.view() for a in arrays), *(a[...] for a in arrays)]:
        assert not array.flags.writeable
        with pytest.raises(ValueError, match="WRITEABLE"):
            array.flags.writeable = True
        with pytest.raises(ValueError, match="read-only"):
            array[...] = 0
        assert memoryview(array).readonly
        assert array.__array_interface__["data"][1]
    with pytest.raises(TypeError):
        memoryview(arrays[0].base)


def test_the_ids_are_kept_and_cannot_be_changed() -> None:
    with ReplayBuffer(BufferConfig(50), schema={"k": Column()}) as buffer:
        ids = buffer.add_batch(np.arange(5.0))
        rows = buffer.peek(ids)
        ids[:] = 49
        assert rows.indices.tolist() == [0, 1, 2, 3, 4]
        assert rows.intact()
        with pytest.raises(ValueError, match="read-only"):
            rows.indices[0] = 7


# ---- whether the rows are still there


@every_place
@every_storage
def test_rows_that_are_overwritten_are_told_one_by_one(
    place_of: Callable[..., Place], kind: str, storage: str
) -> None:
    place = place_of(kind, storage)
    place.add(0, CAPACITY)
    rows = place.reader.peek(np.arange(10))
    assert rows.intact()
    assert not rows.gone().any()
    place.add(CAPACITY, CAPACITY + 3)
    lost = rows.gone()
    assert lost[:3].all()
    # Values of any length may have needed the bytes of some rows more.
    assert (np.diff(lost.astype(int)) <= 0).all()
    assert not lost.all()
    assert not rows.intact()
    assert not rows["obs"].intact()
    assert place.reader.peek(rows.indices[~lost]).intact()
    place.add(CAPACITY + 3, 3 * CAPACITY)
    assert rows.gone().all()
    assert rows.gone().dtype == bool


@every_place
def test_rows_that_were_cleared_are_gone_and_can_be_read(
    place_of: Callable[..., Place], kind: str
) -> None:
    place = place_of(kind)
    place.add(0, 20)
    rows = place.reader.peek_latest(20)
    held = rows["number"].runs
    place.writer.clear()
    assert rows.gone().all()
    assert np.concatenate(held).tolist() == [*range(20)]
    assert len(place.reader.peek_latest(20).indices) == 0


def test_a_row_that_is_being_written_is_not_shown(shm_dir: Path) -> None:
    """Its word says so; it stands in front of the row's only column."""
    number = 0x1122334455667788
    with ReplayBuffer.create("shm:w", BufferConfig(8), schema={"k": Column((), "int64")}) as buffer:
        buffer.add_batch(np.array([1, 2, number]))
        rows = buffer.peek_latest(3)
        memory = np.memmap(_core.segment_path("shm:w"), np.uint64)
        (word,) = np.flatnonzero(memory == number) - 1
        committed = int(memory[word])
        assert (committed >> 8, committed & 3) == (2, 2)
        memory[word] = committed - 1
        assert rows.gone().tolist() == [False, False, True]
        with pytest.raises(RowGone, match="the first is 2"):
            buffer.peek([1, 2])
        assert buffer.peek_latest(3).indices.tolist() == [0, 1]
        memory[word] = committed
        assert rows.intact()


@pytest.mark.parametrize("ids", [[5, 0], [53], [12, 2**40], [-1], [-(2**63)], [2**63 - 1]])
def test_a_row_that_is_not_there_is_named_as_get_names_it(ids: list[int]) -> None:
    with ReplayBuffer(BufferConfig(40), schema={"k": Column()}) as buffer:
        buffer.add_batch(np.arange(53.0))
        with pytest.raises(RowGone) as copied:
            buffer.get(ids)
        with pytest.raises(RowGone, match=re.escape(str(copied.value))):
            buffer.peek(ids)


@pytest.mark.parametrize("ids", [[0.5], [[0, 1]], ["0"], 3])
def test_ids_that_are_no_whole_numbers_are_refused(ids: Any) -> None:
    with ReplayBuffer(BufferConfig(40), schema={"k": Column()}) as buffer:
        buffer.add_batch(np.arange(5.0))
        with pytest.raises(InvalidArgument):
            buffer.peek(ids)


@pytest.mark.parametrize(
    ("peek", "copy", "argument"),
    [
        (ReplayBuffer.peek, ReplayBuffer.get, []),
        (ReplayBuffer.peek, ReplayBuffer.get, [3]),
        (ReplayBuffer.peek_latest, ReplayBuffer.latest, 0),
        (ReplayBuffer.peek_latest, ReplayBuffer.latest, 1),
    ],
)
@pytest.mark.parametrize("closed", [False, True])
def test_without_rows_a_peek_says_what_a_copy_says(
    peek: Any, copy: Any, argument: Any, closed: bool
) -> None:
    buffer = ReplayBuffer(BufferConfig(40), obs_shape=(2,), action_dim=2)
    if closed:
        buffer.close()
    with pytest.raises((RowGone, NotEnoughRows, Closed, InvalidArgument)) as copied:
        copy(buffer, argument)
    with pytest.raises(copied.type, match=re.escape(str(copied.value))):
        peek(buffer, argument)


# ---- columns that have no arrays


@every_place
def test_a_compressed_column_is_named_and_the_others_can_be_read(
    place_of: Callable[..., Place], kind: str
) -> None:
    place = place_of(kind)
    place.add(0, 3)
    rows = place.reader.peek_latest(3)
    refusals: list[Callable[[], Any]] = [
        lambda: rows["frame"][0],
        lambda: list(rows["frame"]),
        lambda: rows["frame"].runs,
    ]
    for refused in refusals:
        with pytest.raises(InvalidArgument, match=r"'frame' is compressed.*get\(\)"):
            refused()
    assert [int(k) for k in rows["number"]] == [0, 1, 2]


def test_values_of_any_length_have_arrays_and_no_runs() -> None:
    with ReplayBuffer(BufferConfig(CAPACITY), schema=SCHEMA) as buffer:
        buffer.add(**row_of(6))
        rows = buffer.peek_latest(1)
        assert rows["tokens"][0].tolist() == [6, 7, 8, 9, 10, 11]
        with pytest.raises(InvalidArgument, match=r"'tokens' has values of any length.*get\(\)"):
            _ = rows["tokens"].runs


def test_compressed_values_of_any_length_are_refused() -> None:
    schema = {"deep": {"tokens": Column((None,), "int32", compression="zstd")}}
    with ReplayBuffer(BufferConfig(CAPACITY), schema=schema) as buffer:
        buffer.add(deep={"tokens": np.arange(3, dtype=np.int32)})
        with pytest.raises(InvalidArgument, match="'deep/tokens' is compressed"):
            buffer.peek_latest(1)["deep"]["tokens"][0]


# ---- the memory outlives the buffer


def mapped(file: os.stat_result) -> bool:
    """Whether this process has the file in its memory."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return any(line.split()[4] == str(file.st_ino) for line in lines)


def closed_by_the_user(place: Place) -> None:
    place.reader.close()


def dropped(place: Place) -> None:
    del place.reader, place.writer
    gc.collect()


def removed(place: Place) -> None:
    place.writer.unlink()
    place.reader.close()


@pytest.mark.parametrize(
    ("kind", "end"),
    [
        (kind, end)
        for kind in PLACES
        for end in (closed_by_the_user, dropped, removed)
        if not (kind == "heap" and end is removed)
    ],  # private memory has no name
)
def test_what_is_held_stays_when_the_buffer_goes(
    tmp_path: Path, shm_dir: Path, kind: str, end: Callable[[Place], None]
) -> None:
    location = {"heap": "heap:", "shm": "shm:held", "file": f"file:{tmp_path / 'held'}"}
    where = location[kind.split()[0]]
    config = BufferConfig(CAPACITY, block_rows=10)
    writer = ReplayBuffer.create(where, config, schema=SCHEMA)
    place = Place(writer, writer)
    place.add(0, CAPACITY + 9)
    if kind.endswith("for reading"):
        place.reader = ReplayBuffer.open(where, readonly=True)
        writer.close()
        if end is removed:
            place.writer = ReplayBuffer.open(where)
    del writer
    copied = place.reader.latest(CAPACITY)
    rows = place.reader.peek_latest(CAPACITY)
    held = rows["obs"]["pixels"][7], rows["number"].runs
    end(place)
    gc.collect()
    assert np.array_equal(held[0], copied["obs"]["pixels"][7])
    assert np.array_equal(np.concatenate(held[1]), copied["number"])
    assert_same(rows, copied)  # arrays can still be made
    assert rows.intact()


@pytest.mark.parametrize("kind", ["shm", "file"])
def test_who_holds_rows_of_a_closed_buffer_holds_memory_and_nothing_else(
    tmp_path: Path, shm_dir: Path, kind: str
) -> None:
    location = "shm:held" if kind == "shm" else f"file:{tmp_path / 'held'}"
    writer = ReplayBuffer.create(location, BufferConfig(CAPACITY), schema=SCHEMA)
    file = os.stat(_core.segment_path(location))
    descriptors = len(os.listdir("/proc/self/fd"))
    Place(writer, writer).add(0, 20)
    row, rows = writer.peek([3])["number"][0], writer.peek([4])
    writer.close()
    assert len(os.listdir("/proc/self/fd")) == descriptors - 1
    with ReplayBuffer.open(location) as other:
        assert [pid for _, pid, *_ in other._engine.owners()] == [os.getpid()]  # its own place
        Place(other, other).add(20, CAPACITY + 4)
    assert (int(row), rows.intact()) == (CAPACITY + 3, True)
    del rows
    gc.collect()
    assert (mapped(file), _core.in_use(location)) == (True, True)
    del row
    gc.collect()
    assert (mapped(file), _core.in_use(location)) == (False, False)
    ReplayBuffer.unlink(location)


def test_what_others_overwrite_after_close_is_noticed(place_of: Callable[..., Place]) -> None:
    place = place_of("shm for reading")
    place.add(0, 20)
    rows = place.reader.peek([0, 19])
    place.reader.close()
    assert rows.intact()
    place.add(20, CAPACITY + 1)
    assert rows.gone().tolist() == [True, False]
    assert int(rows["number"][0]) == CAPACITY
