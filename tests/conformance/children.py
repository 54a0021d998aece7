"""What the children of a test do: functions of a module that spawned processes can import."""

from __future__ import annotations

import os
import signal
import sys
import traceback
from collections.abc import Callable
from typing import Any, NoReturn

import numpy as np

from replay_buffer import ReplayBuffer


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
