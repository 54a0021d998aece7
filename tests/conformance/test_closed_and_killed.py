"""What was added is there when a file was closed, and when its writer was killed."""

from __future__ import annotations

import itertools
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from conformance.children import in_fork, joined, write
from conformance.shared import MARKS, assert_sound, create
from replay_buffer import BufferConfig, ReplayBuffer
from replay_buffer.testing.content import NUMBERED, add_numbers, live_ids

pytestmark = MARKS


@pytest.mark.parametrize("rows", [0, 1, 99, 100, 101, 250])
def test_a_file_has_after_close_what_it_had_before(tmp_path: Path, rows: int) -> None:
    location = f"file:{tmp_path / 'kept.rb'}"
    rng = np.random.default_rng(rows)
    twin = ReplayBuffer(BufferConfig(100, "prioritized"), schema=NUMBERED, seed=0)
    with create(location, 100, "prioritized") as buffer:
        for one in (buffer, twin):
            add_numbers(one, rows)
        ids = live_ids(buffer)
        errors = rng.lognormal(0, 2, len(ids))
        for one in (buffer, twin):
            one.update_priorities(ids, errors)
            one.alpha = 0.8
            for _ in range(3 if rows else 0):
                one.sample(16)
        before = (buffer.stats(), buffer.priorities(ids), buffer.total_priority)
    for _ in range(2):
        with ReplayBuffer.open(location) as again:
            assert live_ids(again).tolist() == ids.tolist()
            assert again.get(ids)["k"].tolist() == ids.tolist()
            assert np.array_equal(again.priorities(ids), before[1])
            assert again.total_priority == before[2]
            assert again.max_priority == twin.max_priority
            assert again.alpha == pytest.approx(0.8)
            for name in ("size", "capacity", "rows_added", "samples", "rows_sampled"):
                assert again.stats()[name] == before[0][name]
    if rows:
        with ReplayBuffer.open(location) as again:  # the generator goes on where it was
            assert np.array_equal(again.sample(16)["k"], twin.sample(16)["k"])


def test_a_file_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    location = f"file:{tmp_path / 'kept.rb'}"
    create(location).close()
    for k in range(0, 260, 26):
        with ReplayBuffer.open(location) as buffer:
            write(buffer, k, 26)
            assert_sound(buffer)
            newest = buffer.latest(26)["k"].tolist()
            assert newest == list(range(k, k + 26))
            assert len(buffer) <= 100


def test_rows_acknowledged_before_a_kill_are_in_the_file(location: str) -> None:
    """The writer is killed from outside, at any instruction, again and again."""
    create(location, 100_000, "prioritized", block_rows=16).close()
    rng = np.random.default_rng(0)
    done, say = os.pipe()

    def run(first: int) -> None:
        buffer = ReplayBuffer.open(location)
        for k in itertools.count(first):
            buffer.add(k, [k, k, k])
            os.write(say, k.to_bytes(8, "little"))

    acknowledged: list[int] = []
    for turn in range(10):
        child = in_fork(run, turn * 1_000_000)
        time.sleep(0.02 + 0.03 * rng.random())
        os.kill(child, signal.SIGKILL)
        assert joined(child) == -signal.SIGKILL
        os.set_blocking(done, False)
        while chunk := _read(done):
            acknowledged += np.frombuffer(chunk, np.int64).tolist()
        with ReplayBuffer.open(location) as buffer:
            assert_sound(buffer)
            stored = set(buffer.latest(100_000)["k"].tolist())
            assert stored.issuperset(acknowledged)
            assert len(stored) <= len(acknowledged) + turn + 1  # at most one row not yet said
    assert len(acknowledged) > 100
    os.close(done)
    os.close(say)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""
