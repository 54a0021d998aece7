"""Rows read in place while other processes write: what passes the check is whole."""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from typing import Any

import numpy as np
import pytest

from conformance.children import in_fork, joined, write
from conformance.shared import MARKS, create
from replay_buffer import BufferConfig, Column, PeekedRows, ReplayBuffer
from replay_buffer.testing.content import NUMBERED, add_numbers
from replay_buffer.testing.crowd import PATIENCE

pytestmark = MARKS

#: A row is one number in all its columns: in the record, in a large array, in the arena.
SCHEMA = {
    "k": Column((), "int64"),
    "x": Column((3,), "float32"),
    "frame": Column((40, 40), "uint16"),
    "tokens": Column((None,), "int32", expected=16),
}


def test_what_another_process_overwrites_is_told(location: str) -> None:
    with create(location, 40, block_rows=10) as buffer:
        write(buffer, 0, 40)
        rows = buffer.peek_latest(40)
        held = rows["k"][0]
        assert joined(in_fork(write, buffer, 40, 5)) == 0
        assert rows.gone().tolist() == [True] * 5 + [False] * 35
        assert int(held) == 40
        assert [int(k) for k in rows["k"][5:]] == [*range(5, 40)]


def read_on(buffer: ReplayBuffer, rows: PeekedRows, held: Any, ready: int) -> None:
    """What a child does when its parent has overwritten the first row and closed the buffer."""
    os.read(ready, 1)
    assert held.tolist() == [40, *range(1, 40)]
    assert rows.gone().tolist() == [True] + [False] * 39
    buffer.close()
    assert held.tolist() == [40, *range(1, 40)]
    assert int(rows["k"][7]) == 7


def test_a_child_of_a_fork_reads_on_whatever_its_parent_does(location: str) -> None:
    ready, go = os.pipe()
    with create(location, 40, block_rows=10) as buffer:
        write(buffer, 0, 40)
        rows = buffer.peek_latest(40)
        held = rows["k"].runs[0]
        child = in_fork(read_on, buffer, rows, held, ready)
        write(buffer, 40, 1)
    del rows, held
    os.write(go, b"x")
    assert joined(child) == 0
    os.close(ready)
    os.close(go)


def test_a_child_of_a_fork_has_private_memory_of_its_own() -> None:
    with ReplayBuffer(BufferConfig(40), schema=NUMBERED) as buffer:
        add_numbers(buffer, 40)
        rows = buffer.peek_latest(40)

        def child() -> None:
            add_numbers(buffer, 10, first=100)
            assert rows.gone().sum() == 10
            assert int(rows["k"][0]) == 100

        assert joined(in_fork(child)) == 0
        assert rows.intact()
        assert int(rows["k"][0]) == 0


def row_of(k: int) -> dict[str, Any]:
    return {
        "k": k,
        "x": np.full(3, k % 2**20, np.float32),
        "frame": np.full((40, 40), k % 2**16, np.uint16),
        "tokens": np.full(1 + k % 29, k % 2**20, np.int32),
    }


def whole(row: dict[str, Any], k: int) -> bool:
    wanted = row_of(k)
    return all(np.array_equal(value, wanted[name]) for name, value in row.items())


def keep_writing(buffer: ReplayBuffer) -> None:
    """Rows whose number is their id, in bursts, until somebody kills it."""
    for k in itertools.count():
        assert buffer.add(**row_of(k)) == k
        if random.random() < 1 / 30:
            time.sleep(0.0005)


@pytest.mark.parametrize("readonly", [False, True])
def test_rows_that_pass_the_check_are_whole(location: str, readonly: bool) -> None:
    """A writer laps a small ring while rows that are about to go are read. Some are lost meanwhile,
    some of these torn: no batch, and no row, of which the check says that it is intact."""
    config = BufferConfig(64, block_rows=8)
    with ReplayBuffer.create(location, config, schema=SCHEMA) as buffer:
        writer = in_fork(keep_writing, buffer)
        try:
            with ReplayBuffer.open(location, readonly=readonly) as reader:
                read_until_enough(reader)
        finally:
            os.kill(writer, signal.SIGKILL)
            joined(writer)


def read_until_enough(reader: ReplayBuffer) -> None:
    """Reads the oldest rows of the newest 8 to 64 and sees that those which are intact are whole,
    until enough were intact, gone, and torn."""
    seen = {"intact": 0, "batches": 0, "gone": 0, "torn": 0}
    enough = {"intact": 1000, "batches": 100, "gone": 1000, "torn": 1}
    deadline = time.monotonic() + PATIENCE
    while any(seen[name] < wanted for name, wanted in enough.items()):
        assert time.monotonic() < deadline, seen
        rows = reader.peek_latest(random.choice([8, 48, 56, 64]))
        first = range(min(8, len(rows.indices)))
        copies = [{name: np.array(rows[name][i]) for name in rows} for i in first]
        intact, gone = rows.intact(), rows.gone()
        seen["batches"] += intact
        for i in first:
            torn = not whole(copies[i], int(rows.indices[i]))
            assert not (torn and (intact or not gone[i])), (rows.indices[i], copies[i])
            seen["gone" if gone[i] else "intact"] += 1
            seen["torn"] += torn
