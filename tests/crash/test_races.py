"""Writers that are stopped, segments that are removed in use, and many who come at once."""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from crash.processes import (
    COMMON,
    WRITE_ON,
    add,
    check_rows,
    in_child,
    make,
    rows_of,
    running,
    wait_until,
)
from replay_buffer import AlreadyExists, Busy, NotFound, ReplayBuffer, _core

pytestmark = pytest.mark.usefixtures("shm_dir")


def test_a_stopped_writer_keeps_its_block_and_holds_up_nobody() -> None:
    with make(capacity=64, block_rows=8) as buffer, running(WRITE_ON, 1_000_000) as process:
        os.kill(process.pid, signal.SIGSTOP)
        for i in range(1000):
            add(buffer, i)
        check_rows(buffer.sample(200))
        assert [o[2] for o in buffer._engine.owners() if o[1] == process.pid] == [True]
        assert (buffer.latest(64)["number"] >= 1_000_000).any()  # its block was not stolen
        os.kill(process.pid, signal.SIGCONT)
        before = rows_of(buffer, 1_000_000)
        wait_until(lambda: rows_of(buffer, 1_000_000) > before)
        check_rows(buffer.latest(64))


def test_when_all_blocks_are_held_by_the_living_the_writer_is_told() -> None:
    with contextlib.ExitStack() as stack:
        buffer = stack.enter_context(make(capacity=4, block_rows=2))
        others = [stack.enter_context(ReplayBuffer.open("shm:hostile")) for _ in range(2)]
        for i, other in enumerate(others):
            add(other, i)
        with pytest.raises(Busy, match="live writers"):
            add(buffer, 3)


def test_a_segment_unlinked_in_use_lives_on_where_it_is_open() -> None:
    with make() as buffer, running(WRITE_ON, 1_000_000) as process:
        _core.remove("shm:hostile", False)
        with pytest.raises(NotFound):
            ReplayBuffer.open("shm:hostile")
        before = rows_of(buffer, 1_000_000)
        wait_until(lambda: rows_of(buffer, 1_000_000) > before)
        with make() as second:  # another one may take the name
            add(second, 1)
            assert len(second) == 1
            add(buffer, 5)
            assert len(second) == 1
        assert in_child(lambda: add(buffer, 6) and None) == 0
        assert 6 in buffer.latest(1000)["number"]
        process.kill()
        process.wait()
        for i in range(3000):
            add(buffer, i)  # reaps it
        check_rows(buffer.latest(1000))


CREATE = """
sys.stdin.readline()
from replay_buffer import AlreadyExists, BufferConfig, Column
schema = {"number": Column((), "int64"), "twice": Column((5,), "int64")}
try:
    buffer = ReplayBuffer.create("shm:hostile", BufferConfig(1000), schema=schema)
except AlreadyExists:
    print("late")
else:
    add(buffer, 1)
    print("first", flush=True)
    time.sleep(600)
"""


def test_of_many_that_create_at_once_exactly_one_wins(shm_dir: Path) -> None:
    command = [sys.executable, "-c", COMMON + CREATE]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(20)]
    try:
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in processes]
        assert sorted(answers) == ["first\n"] + ["late\n"] * 19
        with ReplayBuffer.open("shm:hostile") as buffer:
            assert len(buffer) == 1
        assert [path.name for path in shm_dir.iterdir()] == ["replay_buffer.hostile"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


REMOVE = """
from replay_buffer import NotFound, _core
print("begun", flush=True)
removed = 0
while not os.path.exists(sys.argv[1]):
    try:
        removed += _core.remove("shm:hostile", True)
    except NotFound:
        pass
print(removed)
"""


def test_opening_races_with_removing_orphans(shm_dir: Path, tmp_path: Path) -> None:
    """Who opens gets a whole buffer that keeps its name while it is open, or none."""
    path = shm_dir / "replay_buffer.hostile"
    stop = tmp_path / "stop"
    opened = 0
    with running(REMOVE, stop) as remover:
        for _ in range(300):
            with contextlib.suppress(AlreadyExists), make(capacity=10) as buffer:
                add(buffer, 1)
                with ReplayBuffer.open("shm:hostile") as other:
                    add(other, 2)
                assert len(buffer) == 2
                assert path.exists()
            with contextlib.suppress(NotFound), ReplayBuffer.open("shm:hostile") as other:
                opened += 1
                add(other, 3)
                assert path.exists()
        stop.touch()
        output, errors = remover.communicate(timeout=60)
    assert int(output) > 0, errors
    assert opened + int(output) >= 100
