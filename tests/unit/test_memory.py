"""Memory is reserved when a buffer is made and used as rows are written; stats() has the sizes."""

from __future__ import annotations

import gc
import math
import subprocess
import sys
import tracemalloc
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema, SchemaMismatch, _core

MB = 1e6
FRAME = (84, 84, 4)


def frames(**options: Any) -> ReplayBuffer:
    """The example of the specification: a million pairs of frames, 56 GB of uint8."""
    return ReplayBuffer(BufferConfig(1_000_000), obs_shape=FRAME, action_dim=6, **options)


def test_the_example_of_the_specification_uses_what_was_written() -> None:
    buffer = frames()
    frame = np.full(FRAME, 7, np.uint8)
    for k in range(100):
        buffer.add(frame, k % 6, 0.0, frame, False)
    stats = buffer.stats()
    assert stats["row_bytes"] == 2 * math.prod(FRAME) + 8 + 4 + 1
    assert stats["raw_bytes"] == 1_000_000 * stats["row_bytes"]
    assert 100 * stats["row_bytes"] <= stats["resident_bytes"] < 100 * stats["row_bytes"] + 8 * MB
    assert (buffer.sample(32)["obs"] == 7).all()


PROBE = """
import os
import numpy as np
from replay_buffer import BufferConfig, ReplayBuffer

def resident():
    with open("/proc/self/statm") as statm:
        return int(statm.read().split()[1]) * os.sysconf("SC_PAGE_SIZE")

frame = np.full((84, 84, 4), 7, np.uint8)
warm = ReplayBuffer(BufferConfig(8), obs_shape=(84, 84, 4), action_dim=6)
warm.add(frame, 1, 0.0, frame, False)
warm.sample(32)

seen = [resident()]
buffer = ReplayBuffer(BufferConfig(1_000_000), obs_shape=(84, 84, 4), action_dim=6)
seen.append(resident())
buffer.add(frame, 1, 0.0, frame, False)
seen.append(resident())
for _ in range(999):
    buffer.add(frame, 1, 0.0, frame, False)
seen.append(resident())
for _ in range(20):
    buffer.sample(64)
buffer.latest(50)
len(buffer), buffer.stats(), repr(buffer)
seen.append(resident())
buffer.clear()
seen.append(resident())
buffer.close()
seen.append(resident())
print(*(now - seen[0] for now in seen))
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_the_memory_of_the_process_grows_with_the_rows() -> None:
    done = subprocess.run([sys.executable, "-c", PROBE], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    _, made, first, thousand, read, cleared, closed = map(int, done.stdout.split())
    written = 1000 * 2 * math.prod(FRAME)
    assert made < 5 * MB
    assert first < 10 * MB
    assert written <= thousand < 1.1 * written + 10 * MB
    assert read < thousand + 15 * MB  # a batch of 64 is 3.6 MB
    assert cleared < read + 5 * MB  # clear() must not touch what was never written
    assert closed < 15 * MB


def test_the_estimate_before_the_first_row_is_what_is_reserved_after_it() -> None:
    buffer = frames(obs_dtype="uint8")
    keys = ("row_bytes", "raw_bytes", "segment_bytes", "overhead_bytes", "overhead")
    estimate = buffer.stats()
    frame = np.zeros(FRAME, np.uint8)
    buffer.add(frame, 1, 0.0, frame, False)
    assert [estimate[key] for key in keys] == [buffer.stats()[key] for key in keys]


def test_the_estimate_without_a_dtype_is_for_float32() -> None:
    raw = frames().stats()["raw_bytes"]
    assert raw == 1_000_000 * (2 * 4 * math.prod(FRAME) + 8 + 4 + 1)


def test_there_is_no_estimate_without_a_shape() -> None:
    assert ReplayBuffer(BufferConfig(8)).stats()["raw_bytes"] is None


def test_overhead_is_what_the_segment_has_beyond_the_raw_data() -> None:
    stats = ReplayBuffer(BufferConfig(1000), schema={"x": Column((32,))}).stats()
    assert stats["raw_bytes"] == 128_000
    assert stats["overhead_bytes"] == stats["segment_bytes"] - 128_000
    assert stats["overhead"] == pytest.approx(stats["overhead_bytes"] / 128_000)


TRANSITIONS: list[dict[str, Column]] = [
    {"x": Column((128,), "uint8")},
    {"x": Column((129,), "uint8")},
    {"x": Column((127,), "uint8"), "y": Column((), "float64")},
    {"obs": Column((16,)), "action": Column((), "int64"), "next_obs": Column((16,))},
    {"a": Column((17,), "float64"), "b": Column((3,), "uint8"), "c": Column((), "bool")},
    {"x": Column((1024,), "uint8")},
    {"x": Column((1025,), "uint8")},
    {"x": Column((1025,), "uint8"), "y": Column((1089,), "uint8"), "z": Column((), "bool")},
    {"obs": Column(FRAME, "uint8"), "next_obs": Column(FRAME, "uint8"), "r": Column()},
]


@pytest.mark.parametrize("schema", TRANSITIONS, ids=lambda s: ",".join(map(str, s.values())))
@pytest.mark.parametrize("capacity", [100_000, 1_000_000, 100_000_000])
def test_overhead_is_below_a_tenth_for_transitions_of_128_bytes_or_more(
    schema: dict[str, Column], capacity: int
) -> None:
    config = BufferConfig(capacity)
    fields = Schema(schema).core_columns()
    row_bytes, segment_bytes = _core.plan(fields, config.core_options(seed=0))
    assert row_bytes >= 128
    assert segment_bytes < 1.10 * row_bytes * capacity


# ---- nothing is left behind


def exercise(buffer: ReplayBuffer, out: dict[str, Any], row: dict[str, Any]) -> None:
    buffer.add(**row)
    buffer.add(*row.values())
    buffer.add_batch(obs={"a": [[1, 2]], "b": [3]}, k=[4])
    buffer.add_batch({"a": np.zeros((2, 2), np.float32), "b": np.zeros(2, np.int16)}, np.arange(2))
    buffer.sample(8)
    buffer.sample(500)
    buffer.sample(8, out=out)
    buffer.get(buffer.latest(3)["indices"])
    for bad in ({**row, "k": "text"}, {**row, "obs": {"a": [1, 2]}}, {"k": 1}):
        with pytest.raises(SchemaMismatch):
            buffer.add(**bad)
    with pytest.raises(SchemaMismatch):
        buffer.sample(9, out=out)


def grown_in_windows() -> list[int]:
    """Bytes that are left after each of several rounds of calls."""
    schema = {"obs": {"a": Column((2,)), "b": Column((), "int16")}, "k": Column((), "int64")}
    buffer = ReplayBuffer(BufferConfig(16), schema=schema, seed=0)
    row = {"obs": {"a": np.ones(2, np.float32), "b": 5}, "k": 6}
    buffer.add(**row)
    out = buffer.sample(8)
    grown = []
    tracemalloc.start()
    for _ in range(15):  # caches of the interpreter and of NumPy fill up in the first ones
        gc.collect()
        before = tracemalloc.get_traced_memory()[0]
        for _ in range(100):
            exercise(buffer, out, row)
        gc.collect()
        grown.append(tracemalloc.get_traced_memory()[0] - before)
    tracemalloc.stop()
    return grown


def test_calls_leave_no_objects_behind() -> None:
    """In a process of its own: threads of other tests allocate too."""
    tests = Path(__file__).resolve().parents[1]
    script = "from unit.test_memory import grown_in_windows; print(min(grown_in_windows()))"
    done = subprocess.run(
        [sys.executable, "-c", script], cwd=tests, capture_output=True, text=True, check=True
    )
    # A leak is in every window, what is made once and kept is not: less than the smallest object
    # for each round.
    assert int(done.stdout) < 100 * 16


@pytest.mark.parametrize("width", [2, 20_000], ids=["with the GIL", "without the GIL"])
def test_calls_keep_no_references_to_what_they_were_given(width: int) -> None:
    schema = {"obs": {"a": Column((width,))}, "k": Column((), "int64")}
    buffer = ReplayBuffer(BufferConfig(100), schema=schema, seed=0)
    array, nested = np.ones(width, np.float32), {"a": np.ones((3, width), np.float32)}
    ids = np.arange(3)
    buffer.add({"a": array}, 5)
    out = buffer.sample(4)
    given = [array, nested, nested["a"], ids, out, out["obs"], out["obs"]["a"], out["indices"]]
    before = [sys.getrefcount(thing) for thing in given]
    for _ in range(10):
        buffer.add({"a": array}, 5)
        buffer.add_batch(nested, ids)
        buffer.get(ids)
        buffer.sample(4, out=out)
    assert [sys.getrefcount(thing) for thing in given] == before


def test_closed_and_forgotten_buffers_give_their_memory_back() -> None:
    """A hundred buffers of a gigabyte each, touched here and there."""
    for k in range(100):
        buffer = ReplayBuffer(BufferConfig(1000), schema={"x": Column((10**6,), "uint8")})
        buffer.add(np.ones(10**6, np.uint8))
        if k % 2:
            buffer.close()
    assert len(buffer.schema.columns) == 1  # type: ignore[union-attr]


def test_calls_cost_what_is_stored_not_what_could_be() -> None:
    """Ten rows in a ring for 200 million: nothing may walk the whole ring."""
    buffer = ReplayBuffer(BufferConfig(200_000_000), schema={"k": Column((), "int64")})
    buffer.add_batch(np.arange(10))
    before = buffer.stats()["resident_bytes"]
    assert before < 16 * MB  # a buffer so large takes memory in pages of 2 MiB
    tracemalloc.start()
    try:
        assert len(buffer.latest(200_000_000)["k"]) == 10
        assert tracemalloc.get_traced_memory()[1] < MB
    finally:
        tracemalloc.stop()
    buffer.sample(32)
    buffer.clear()
    assert len(buffer) == 0
    assert buffer.stats()["resident_bytes"] <= before + 8 * MB
