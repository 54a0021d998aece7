"""What the children of a test do: functions of a module that spawned processes can import."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from replay_buffer import BufferConfig, ReadOnly, ReplayBuffer
from replay_buffer.testing.content import NUMBERED


def write(buffer: ReplayBuffer, first: int, rows: int) -> None:
    """Adds the rows first, first + 1, ..., some one by one and some in batches of seven."""
    k, end = first, first + rows
    while k < end:
        n = min(7, end - k) if k % 2 else 1
        numbers = np.arange(k, k + n)
        buffer.add_batch(numbers, np.repeat(numbers[:, None], 3, 1).astype(np.float32))
        k += n


def check_and_answer(buffer: ReplayBuffer, rows: int) -> None:
    """Exits with 0 when the buffer holds the rows 0, 1, ... and then adds one."""
    batch = buffer.latest(rows)
    assert batch["k"].tolist() == list(range(rows))
    if buffer.readonly:
        assert len(buffer.sample(8)["k"]) == 8
    else:
        write(buffer, rows, 1)


def check_unlink_is_refused(buffer: ReplayBuffer) -> None:
    """Exits with 0 when the buffer, which is for reading, refuses to be removed."""
    try:
        buffer.unlink()
    except ReadOnly:
        return
    raise AssertionError("a handle for reading removed the buffer")


def open_or_create(location: str, worker: int, barrier: Any, told: Any) -> None:
    """Comes with many others, writes ten rows, and tells how many there are when all have."""
    barrier.wait(60)
    config = BufferConfig(100, block_rows=5)
    with ReplayBuffer.open_or_create(location, config, schema=NUMBERED) as buffer:
        write(buffer, 1000 * worker, 10)
        barrier.wait(60)
        told.put(len(buffer))
        barrier.wait(60)


def in_fork(work: Callable[..., object], *args: Any) -> int:
    """Runs in the child of a fork; the pid."""
    pid = os.fork()
    if pid == 0:
        _exit_after(work, *args)
    return pid


def joined(pid: int) -> int:
    """The exit code of a child, negative for a signal."""
    return os.waitstatus_to_exitcode(os.waitpid(pid, 0)[1])


def killed_after(work: Callable[..., object], *args: Any) -> None:
    """Runs in a child that then kills itself: it cleans nothing up."""

    def run() -> None:
        work(*args)
        os.kill(os.getpid(), signal.SIGKILL)

    assert joined(in_fork(run)) == -signal.SIGKILL


def _exit_after(work: Callable[..., object], *args: Any) -> NoReturn:
    try:
        work(*args)
    except BaseException:
        traceback.print_exc()
        sys.stderr.flush()
        os._exit(1)
    os._exit(0)
