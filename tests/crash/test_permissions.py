"""Other users, and readers that may only read."""

from __future__ import annotations

import contextlib
import io
import os
import stat
from collections.abc import Callable
from pathlib import Path

import pytest

from crash.processes import add, as_root, check_rows, in_child, make
from replay_buffer import AlreadyExists, PermissionDenied, ReadOnly, ReplayBuffer, _core
from replay_buffer.cli.__main__ import main

pytestmark = pytest.mark.usefixtures("shm_dir")
NOBODY = 54321  # a uid that no user has


def as_nobody(work: Callable[[], None]) -> None:
    def other_user() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()

    assert in_child(other_user) == 0


@pytest.fixture
def for_everybody(shm_dir: Path) -> Path:
    """A directory that all users can reach, as /dev/shm is."""
    for directory in (shm_dir, *shm_dir.parents):
        if directory.owner() == "root" and os.geteuid() == 0 and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o755)
    shm_dir.chmod(0o1777)
    return shm_dir


@as_root
def test_another_user_can_neither_open_nor_see_nor_remove(for_everybody: Path) -> None:
    with make() as buffer:
        add(buffer, 1)
        path = for_everybody / "replay_buffer.hostile"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

        def work() -> None:
            for readonly in (True, False):
                with pytest.raises(PermissionDenied):
                    ReplayBuffer.open("shm:hostile", readonly=readonly)
            with pytest.raises(PermissionError):
                path.read_bytes()
            with pytest.raises((PermissionDenied, AlreadyExists)):
                make()
            for only_stale in (True, False):
                with pytest.raises(PermissionDenied):
                    _core.remove("shm:hostile", only_stale)
            with contextlib.redirect_stdout(io.StringIO()) as listed:
                assert main(["ls"]) == 0
            assert "permission denied" in listed.getvalue()

        as_nobody(work)
        add(buffer, 2)
        assert len(buffer) == 2


@as_root
def test_a_reader_needs_only_permission_to_read(for_everybody: Path) -> None:
    with make() as buffer:
        for i in range(10):
            add(buffer, i)
        (for_everybody / "replay_buffer.hostile").chmod(0o644)

        def work() -> None:
            with pytest.raises(PermissionDenied):
                ReplayBuffer.open("shm:hostile")
            with ReplayBuffer.open("shm:hostile", readonly=True) as reader:
                check_rows(reader.sample(20))
                assert len(reader.latest(5)["number"]) == 5
                with pytest.raises(ReadOnly):
                    add(reader, 1)

        as_nobody(work)


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank", "without_replacement"])
def test_a_reader_writes_nothing(shm_dir: Path, strategy: str) -> None:
    with make(strategy=strategy) as buffer:
        for i in range(10):
            add(buffer, i)
    path = shm_dir / "replay_buffer.hostile"
    before = path.read_bytes()
    with ReplayBuffer.open("shm:hostile", readonly=True) as reader:
        check_rows(reader.sample(50))
        reader.latest(3)
        reader.stats()
        reader._engine.verify()
        for refused in (reader.clear, lambda: add(reader, 1)):
            with pytest.raises(ReadOnly):
                refused()
    assert path.read_bytes() == before


def test_a_reader_of_a_queue_cannot_take_from_it() -> None:
    with make(strategy="fifo") as buffer:
        add(buffer, 1)
        with (
            ReplayBuffer.open("shm:hostile", readonly=True) as reader,
            pytest.raises(ReadOnly, match="reading only"),
        ):
            reader.sample(1)
        assert len(buffer.sample(1)["number"]) == 1
