"""The last laps of a ring: ids end, and no lap is mistaken for anything else.

Nobody writes four billion laps in a test: the head of an empty file is forged, which no checksum
covers. Each case runs in a child, so that a crash is a failed test.
"""

from __future__ import annotations

import contextlib
import struct
from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash.processes import in_child
from replay_buffer import (
    BufferConfig,
    Column,
    Corrupt,
    FrameStack,
    NotEnoughRows,
    NStep,
    OutOfSpace,
    ReplayBuffer,
    RowGone,
    Sequence,
    StepWriter,
    Trajectory,
)

HEAD = 192
LAST_LAP = 2**32 - 256  # of capacities up to 2^24
STRATEGIES = ("uniform", "prioritized", "rank", "without_replacement", "fifo", "lifo")
CASES = (
    [(strategy, False, "transitions") for strategy in STRATEGIES]
    + [(strategy, True, "transitions") for strategy in ("uniform", "prioritized", "rank")]
    + [(strategy, False, "steps") for strategy in ("uniform", "prioritized", "rank")]
)
STEP_VIEWS = (
    (),
    (NStep(2),),
    (FrameStack(2),),
    (Sequence(2, burn_in=1),),
    (Sequence(2, pad=False),),
    (Trajectory(),),
)
#: Ends of laps, ids and counters. A ring of 8 rows in 2 blocks: lap L ends at head 2 * L.
FORGED = (2 * LAST_LAP, 2**32, 2 * (2**32 - 2), 2**33, 2**53, 2**54, 2**57, 2**63, 2**64 - 1)
TRANSITIONS = {
    "obs": Column((), "float32"),
    "action": Column((), "int64"),
    "reward": Column((), "float32"),
    "next_obs": Column((), "float32"),
    "done": Column((), "bool"),
}
STEPS = {
    "obs": Column((), "float32"),
    "action": Column((), "int64"),
    "reward": Column((), "float32"),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}


def patch(path: Path, offset: int, number: int) -> None:
    with path.open("r+b") as file:
        file.seek(offset)
        file.write(struct.pack("<Q", number))


def near_the_end(path: Path, head: int, schema: dict[str, Column], config: BufferConfig) -> str:
    """A buffer without rows whose next block is the one of `head`."""
    location = f"file:{path}"
    ReplayBuffer.create(location, config, schema=schema, seed=1).close()
    patch(path, HEAD, head)
    return location


def read_all(buffer: ReplayBuffer) -> None:
    """Every way to read: too few rows at worst."""
    for n in (1, 3, 8):
        with contextlib.suppress(NotEnoughRows):
            buffer.sample(n)
    views = STEP_VIEWS if buffer.config.storage == "steps" else ((NStep(2),),)
    for parts in views:
        view = buffer.view(*parts)
        with contextlib.suppress(NotEnoughRows):
            batch = view.sample(3)
            with contextlib.suppress(RowGone):
                view.get(batch["indices"])
        view.starts()
    ids = buffer.latest(buffer.capacity)["indices"]
    buffer.get(ids)
    if buffer.config.weighted:
        buffer.update_priorities(ids, np.ones(ids.size))
        buffer.priorities(ids)
    list(buffer.episodes() if buffer.config.storage == "steps" else ())
    buffer.stats()


def write_one(buffer: ReplayBuffer, writer: StepWriter | None, number: int) -> int:
    if writer is None:
        return buffer.add(number, 0, 1.0, number + 1, number % 3 == 2)
    end = number % 3 == 2
    return int(writer.append(number, 0, 1.0, end, False, final_obs=number + 1 if end else None))


def fill_up(buffer: ReplayBuffer) -> list[int]:
    """Writes until the ids are used up, and reads all the while; the ids."""
    ids: list[int] = []
    writer = buffer.writer() if buffer.config.storage == "steps" else None
    for number in range(100):
        try:
            ids.append(write_one(buffer, writer, number))
        except OutOfSpace:
            break
        read_all(buffer)
    with pytest.raises(OutOfSpace, match="new buffer"):
        write_one(buffer, writer, 0)
    return ids


def check_to_the_end(path: Path, strategy: Any, cer: bool, storage: Any) -> None:
    """Two laps to go: every id up to the last is given, then there are errors and all rows."""
    config = BufferConfig(
        8, strategy=strategy, cer=cer, storage=storage, block_rows=4, max_times_sampled=1_000_000
    )
    schema = STEPS if storage == "steps" else TRANSITIONS
    location = near_the_end(path, 2 * (LAST_LAP - 2), schema, config)
    with ReplayBuffer.open(location) as buffer:
        ids = fill_up(buffer)
        assert ids[0] == 8 * (LAST_LAP - 2)
        assert ids[-1] >= 8 * LAST_LAP - 2  # of steps the last one may be a last observation
        assert len(buffer) == 8
        assert buffer.latest(8)["indices"].tolist() == list(range(8 * LAST_LAP - 8, 8 * LAST_LAP))
        for _ in range(20):
            assert min(buffer.sample(2)["indices"]) >= 8 * LAST_LAP - 8
        buffer.checkpoint(path.with_suffix(".saved"))
        assert buffer._engine.verify() == []
    with ReplayBuffer.restore(path.with_suffix(".saved")) as again:
        assert again.latest(8)["indices"].tolist() == list(range(8 * LAST_LAP - 8, 8 * LAST_LAP))
        assert fill_up(again) == []
        read_all(again)
        again.clear()
        assert len(again) == 0
        assert fill_up(again) == []
        read_all(again)


@pytest.mark.parametrize(("strategy", "cer", "storage"), CASES)
def test_when_the_ids_are_used_up_a_writer_is_told_and_a_reader_goes_on(
    tmp_path: Path, strategy: Any, cer: bool, storage: Any
) -> None:
    assert in_child(lambda: check_to_the_end(tmp_path / "ring", strategy, cer, storage)) == 0


def check_forged(path: Path, strategy: Any, cer: bool, storage: Any) -> None:
    """A head that was never reached, before and behind rows."""
    config = BufferConfig(8, strategy=strategy, cer=cer, storage=storage, block_rows=4)
    schema = STEPS if storage == "steps" else TRANSITIONS
    for full, number, change in product((False, True), FORGED, (-3, -1, 0, 1)):
        path.unlink(missing_ok=True)
        near_the_end(path, 0, schema, config)
        if full:
            with ReplayBuffer.open(f"file:{path}") as buffer:
                writer = buffer.writer() if storage == "steps" else None
                for i in range(11):
                    write_one(buffer, writer, i)
        patch(path, HEAD, (number + change) % 2**64)
        with ReplayBuffer.open(f"file:{path}") as buffer:
            read_all(buffer)
            writer = buffer.writer() if storage == "steps" else None
            with contextlib.suppress(OutOfSpace, Corrupt):
                for i in range(20):
                    write_one(buffer, writer, i)
            read_all(buffer)
            buffer.clear()
            read_all(buffer)


@pytest.mark.parametrize(("strategy", "cer", "storage"), CASES)
def test_no_head_of_a_ring_crashes_who_reads_or_writes(
    tmp_path: Path, strategy: Any, cer: bool, storage: Any
) -> None:
    assert in_child(lambda: check_forged(tmp_path / "ring", strategy, cer, storage)) == 0
