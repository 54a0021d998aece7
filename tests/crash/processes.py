"""A buffer in which a torn row is noticed, and other processes that use it.

For tests of hostile surroundings: pid namespaces, forks in the middle of things, closed
descriptors, full and damaged memory, other users. There has to be a clear error or correct work;
never a crash or a hang.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, ReplayBuffer

#: Every value of a row follows from its number, so that a torn row is noticed.
SCHEMA = {"number": Column((), "int64"), "twice": Column((5,), "int64")}
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


def make(location: str = "shm:hostile", capacity: int = 1000, **options: Any) -> ReplayBuffer:
    return ReplayBuffer.create(location, BufferConfig(capacity, **options), schema=SCHEMA)


def add(buffer: ReplayBuffer, number: int) -> int:
    return buffer.add(number, np.full(5, 2 * number))


def check_rows(batch: dict[str, Any]) -> None:
    assert (batch["twice"] == 2 * batch["number"][:, None]).all()


COMMON = """
import os, signal, sys, time
import numpy as np
import replay_buffer
from replay_buffer import ReplayBuffer

def add(buffer, number):
    return buffer.add(number, np.full(5, 2 * number))
"""


def script(text: str, *arguments: Any, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-c", COMMON + text, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@contextlib.contextmanager
def running(text: str, *arguments: Any, prefix: tuple[str, ...] = ()) -> Iterator[Any]:
    """A process that has printed its first line, which is `process.first`."""
    with script(text, *arguments, prefix=prefix) as process:
        try:
            process.first = process.stdout.readline()  # type: ignore
            assert process.first, process.stderr.read()  # type: ignore
            yield process
        finally:
            process.kill()


def in_child(work: Callable[[], None]) -> int:
    """Runs `work` in a fork of this process. Returns the exit status: 0 when it did not raise."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            sys.stderr.write(f"child: {error!r}\n")
        finally:
            os._exit(code)
    return wait_for(pid)


def wait_for(pid: int, seconds: float = 60) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


WRITE_ON = """
buffer = ReplayBuffer.open("shm:hostile")
number = int(sys.argv[1])
add(buffer, number)
print(os.getpid(), flush=True)
while True:
    number += 1
    add(buffer, number)
    time.sleep(0.0005)
"""


def rows_of(buffer: ReplayBuffer, first: int) -> int:
    """The largest number of the writer that counts from `first`."""
    numbers = buffer.latest(buffer.capacity)["number"]
    mine = numbers[(numbers >= first) & (numbers < first + 1_000_000)]
    return int(mine.max()) if mine.size else 0


def wait_until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)
