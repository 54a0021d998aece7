"""Forks in the middle of things, and closed descriptors: correct work or a clear error."""

from __future__ import annotations

import contextlib
import itertools
import os
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash.processes import add, check_rows, in_child, make, running, wait_for
from replay_buffer import ReplayBuffer, ReplayBufferError
from replay_buffer.testing.crowd import Crowd

pytestmark = pytest.mark.usefixtures("shm_dir")
BOOT_AT = 512  # in the header: 0 in a file that its last writer closed


def test_forks_in_the_middle_of_writes_lose_and_tear_nothing() -> None:
    forks, per_child = 100, 3
    with make(capacity=1_000_000, block_rows=64) as buffer:
        mine: list[int] = []
        numbers = itertools.count()
        children = []
        with Crowd() as crowd:
            crowd.repeat(lambda: mine.append(add(buffer, next(numbers))))
            for child in range(forks):
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        for i in range(per_child):
                            add(buffer, 10_000_000 + child * per_child + i)
                        code = 0
                    finally:
                        os._exit(code)
                children.append(pid)
            assert [wait_for(pid) for pid in children] == [0] * forks
            before = len(mine)
            crowd.until(lambda: len(mine) > before)  # the parent goes on
        everything = buffer.latest(buffer.capacity)
        check_rows(everything)
        found = everything["number"]
        assert len(found) == len(set(everything["indices"])) == len(buffer)
        ours = np.sort(found[found < 10_000_000])
        assert (ours == np.arange(len(mine))).all()
        theirs = np.sort(found[found >= 10_000_000]) - 10_000_000
        assert (theirs == np.arange(forks * per_child)).all()
        assert set(mine) <= set(everything["indices"].tolist())


def allowed(work: Callable[[], Any]) -> None:
    """Correct work or a clear error."""
    with contextlib.suppress(ReplayBufferError):
        work()


@pytest.mark.parametrize("location", ["shm:hostile", "shm:"])
def test_a_child_that_closes_all_descriptors_works_or_is_refused(location: str) -> None:
    with make(location, strategy="prioritized") as buffer:
        for i in range(10):
            add(buffer, i)

        def work() -> None:
            os.closerange(3, 1000)
            allowed(lambda: add(buffer, 100))
            check_rows(buffer.sample(5))
            allowed(lambda: buffer.update_priorities([0], [2.0]))
            allowed(buffer.clear)
            allowed(buffer.close)

        assert in_child(work) == 0
        for i in range(10):
            add(buffer, i)
        check_rows(buffer.sample(20))
        assert [o[2] for o in buffer._engine.owners() if o[1] == os.getpid()] == [True]
        if location != "shm:":
            with ReplayBuffer.open(location) as other:
                add(other, 5)
                assert other._engine.verify() == []


CLOSE_ALL = """
buffer = ReplayBuffer.open("shm:hostile")
for i in range(10):
    add(buffer, i)
os.closerange(3, 1000)
descriptors = [os.open("/dev/null", os.O_RDWR) for _ in range(30)]  # the numbers are used again
for i in range(3000):
    add(buffer, i)
batch = buffer.sample(50)
assert (batch["twice"] == 2 * batch["number"][:, None]).all()
buffer.update_priorities(batch["indices"], np.ones(50))
try:
    if os.fork() == 0:
        try:
            add(buffer, 7)
        except replay_buffer.ReplayBufferError:
            pass
        os._exit(0)
    assert os.wait()[1] == 0
except replay_buffer.ReplayBufferError:
    pass
print("works", flush=True)
sys.stdin.readline()
try:
    buffer.close()
except replay_buffer.ReplayBufferError:
    pass
for descriptor in descriptors:
    os.fstat(descriptor)  # none of the new files was closed for an old one
print("closed", flush=True)
"""


def test_a_process_that_closes_all_descriptors_goes_on() -> None:
    with make(strategy="prioritized") as buffer, running(CLOSE_ALL) as process:
        assert process.first == "works\n"
        # Its locks are gone, and yet it lives: its pid says so.
        assert [o[2] for o in buffer._engine.owners() if o[1] == process.pid] == [True]
        with ReplayBuffer.open("shm:hostile") as other:
            for i in range(3000):
                add(other, i)
            check_rows(other.sample(100))
        output, errors = process.communicate(timeout=60)
        assert output == "closed\n", errors
        assert process.returncode == 0


@pytest.mark.parametrize("taken", [True, False])
def test_who_closed_its_descriptors_does_not_mark_a_file_as_closed(
    tmp_path: Path, taken: bool
) -> None:
    path = tmp_path / "file"
    with make(f"file:{path}") as buffer:

        def work() -> None:
            other = ReplayBuffer.open(f"file:{path}")
            os.closerange(3, 1000)
            if taken:  # the number is now that of a file that nobody else has
                for i in range(30):
                    os.open(tmp_path / f"{i}", os.O_RDWR | os.O_CREAT)
            other.close()

        assert in_child(work) == 0
        assert path.read_bytes()[BOOT_AT : BOOT_AT + 8] != bytes(8)
        add(buffer, 1)
    assert path.read_bytes()[BOOT_AT : BOOT_AT + 8] == bytes(8)
