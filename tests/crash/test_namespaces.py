"""Processes of other pid namespaces: told apart, and never taken for dead while they live."""

from __future__ import annotations

import os
import shutil
import signal
import subprocess
from pathlib import Path
from typing import Any

import pytest

from crash.processes import WRITE_ON, add, check_rows, make, rows_of, running, wait_until
from replay_buffer import ReplayBuffer

pytestmark = pytest.mark.usefixtures("shm_dir")


NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


@pytest.fixture
def namespaces() -> None:
    if not can_unshare():
        pytest.skip("this machine does not let this user make pid namespaces")


def kill_group(process: Any) -> None:
    """Kills what runs inside the namespace: its first process, a child of unshare."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    process.wait(30)


@pytest.mark.usefixtures("namespaces")
def test_writers_in_two_pid_namespaces_are_told_apart() -> None:
    with (
        make(capacity=64, block_rows=8) as buffer,
        running(WRITE_ON, 1_000_000, prefix=NAMESPACE) as one,
        running(WRITE_ON, 2_000_000, prefix=NAMESPACE) as two,
    ):
        # Both have the same pid, each in its own namespace.
        assert one.first == two.first == "1\n"
        add(buffer, 3_000_000)
        alive = [(o[1], o[2], o[3]) for o in buffer._engine.owners()]
        assert alive.count((1, True, False)) == 2
        assert (os.getpid(), True, True) in alive
        check_rows(buffer.sample(200))

        kill_group(one)
        wait_until(lambda: [o[2] for o in buffer._engine.owners() if o[1] == 1].count(False) == 1)
        # Who comes next mends what the dead one left, and nothing of the living one.
        with ReplayBuffer.open("shm:hostile") as other:
            assert [o[2] for o in other._engine.owners() if o[1] == 1] == [True]
            before = rows_of(other, 2_000_000)
            for i in range(200):
                add(other, 3_000_001 + i)
            check_rows(other.sample(200))
            wait_until(lambda: rows_of(other, 2_000_000) > before)
        assert two.poll() is None
        kill_group(two)
        wait_until(lambda: [o[2] for o in buffer._engine.owners() if o[1] == 1] == [False])
        with ReplayBuffer.open("shm:hostile") as other:
            assert not any(o[2] for o in other._engine.owners() if o[1] == 1)
            assert other._engine.verify() == []
            check_rows(other.latest(64))


@pytest.mark.usefixtures("namespaces")
def test_a_stopped_writer_of_another_namespace_lives() -> None:
    with (
        make(capacity=64, block_rows=8) as buffer,
        running(WRITE_ON, 1_000_000, prefix=NAMESPACE) as one,
    ):
        child = int(Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text())
        os.kill(child, signal.SIGSTOP)
        for i in range(300):
            add(buffer, i)
        assert [o[2] for o in buffer._engine.owners() if o[1] == 1] == [True]
        os.kill(child, signal.SIGCONT)
        kill_group(one)


BLIND = """
buffer = ReplayBuffer.open("shm:hostile")
os.closerange(3, 1000)
descriptors = [os.open("/dev/null", os.O_RDWR) for _ in range(30)]
for i in range(300):
    add(buffer, i)
print([owner[2] for owner in buffer._engine.owners() if not owner[3]], flush=True)
"""


@pytest.mark.usefixtures("namespaces")
def test_who_closed_its_descriptors_takes_nobody_elsewhere_for_dead() -> None:
    with (
        make(capacity=64, block_rows=8),
        running(WRITE_ON, 1_000_000, prefix=NAMESPACE) as writer,
        running(BLIND) as blind,
    ):
        assert blind.first == "[True]\n"
        kill_group(writer)
