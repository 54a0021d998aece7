"""A name is compared with what is held before it is removed; one that leads nowhere is refused."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from pathlib import Path

import pytest

from crash.processes import COMMON, add, check_rows, in_child, make, running
from replay_buffer import (
    AlreadyExists,
    InvalidArgument,
    NotFound,
    ReplayBuffer,
    SharedArray,
)

pytestmark = pytest.mark.usefixtures("shm_dir")


@pytest.fixture(params=["shm", "file"])
def location(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    return "shm:hostile" if request.param == "shm" else f"file:{tmp_path / 'file'}"


REPLACE = """
from replay_buffer import BufferConfig, Column
schema = {"number": Column((), "int64"), "twice": Column((5,), "int64")}
with ReplayBuffer.open(sys.argv[1]) as old:
    old.unlink()
buffer = ReplayBuffer.create(sys.argv[1], BufferConfig(10), schema=schema)
add(buffer, 1000)
print("replaced", flush=True)
sys.stdin.readline()
add(buffer, 1001)
print(len(buffer), flush=True)
"""


def test_unlink_leaves_a_newer_buffer_of_the_name_to_its_users(location: str) -> None:
    with make(location) as old, running(REPLACE, location) as process:
        add(old, 1)
        with pytest.raises(NotFound, match="no longer the name"):
            old.unlink()
        with ReplayBuffer.open(location) as new:
            assert new.latest(10)["number"].tolist() == [1000]
            process.stdin.write("go on\n")
            process.stdin.flush()
            assert process.stdout.readline() == "2\n"
            check_rows(new.latest(10))
            assert old.latest(10)["number"].tolist() == [1]
            new.unlink()  # it has the name
        with pytest.raises(NotFound):
            ReplayBuffer.open(location)


def test_unlink_by_the_child_of_a_fork_leaves_a_newer_buffer_too(location: str) -> None:
    with make(location) as old:
        ReplayBuffer.unlink(location)
        with make(location) as new:

            def unlink_in_vain() -> None:
                with pytest.raises(NotFound):
                    old.unlink()

            assert in_child(unlink_in_vain) == 0
            with ReplayBuffer.open(location):
                new.unlink()


UNLINK = """
buffers = [ReplayBuffer.open(sys.argv[1])]
print("open", flush=True)
sys.stdin.readline()
from replay_buffer import NotFound
try:
    buffers[0].unlink()
    print("removed", flush=True)
except NotFound:
    print("late", flush=True)
"""


@pytest.mark.parametrize("turn", range(5))
def test_of_many_that_unlink_at_once_one_removes_the_name(location: str, turn: int) -> None:
    with make(location):
        command = [sys.executable, "-c", COMMON + UNLINK, location]
        processes = [
            subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True)
            for _ in range(4)
        ]
        try:
            for process in processes:
                assert process.stdout is not None
                assert process.stdout.readline() == "open\n"
            answers = [process.communicate("go\n", timeout=60)[0] for process in processes]
            assert sorted(answers) == ["late\n"] * 3 + ["removed\n"]
        finally:
            for process in processes:
                process.kill()
                process.wait()


def test_unlink_of_a_shared_array_leaves_another_one_that_got_its_name(shm_dir: Path) -> None:
    array = SharedArray.create((4,), "float32")
    path = shm_dir / f"replay_buffer_array.{array.name}"
    other = SharedArray.create((4,), "float32")
    other.array[:] = 7
    os.replace(shm_dir / f"replay_buffer_array.{other.name}", path)
    array.close()
    array.unlink()
    with SharedArray.open(array.name) as found:
        assert (found.array == 7).all()
    path.unlink()
    other.close()


def test_a_checkpoint_whose_lock_leads_nowhere_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "c"
    with make("heap:") as buffer:
        add(buffer, 1)
        buffer.checkpoint(path)
        (path / "lock").unlink()
        (path / "lock").symlink_to(tmp_path / "nowhere")
        with pytest.raises(InvalidArgument, match=r"lock is a symbolic link .* an empty file"):
            buffer.checkpoint(path)
        (path / "lock").unlink()
        (path / "lock").touch()
        buffer.checkpoint(path)
        check_rows(ReplayBuffer.restore(path).latest(1))
        shutil.rmtree(path)


def test_a_name_in_shared_memory_that_leads_nowhere_is_taken(shm_dir: Path) -> None:
    (shm_dir / "replay_buffer.hostile").symlink_to(shm_dir / "nowhere")
    with pytest.raises(AlreadyExists):
        make()
