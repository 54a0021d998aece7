"""Threads of a test, and shared memory of its own; no test leaves a segment behind in /dev/shm."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from replay_buffer.testing.crowd import Crowd, short_turns

SHARED_MEMORY = Path("/dev/shm")
segments_before = pytest.StashKey[set[str]]()
segments_left = pytest.StashKey[set[str]]()


@pytest.fixture
def shm_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A directory of the test's own in the place of /dev/shm."""
    directory = tmp_path / "shm"
    directory.mkdir()
    monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", str(directory))
    return directory


@pytest.fixture
def crowd() -> Iterator[Crowd]:
    with Crowd() as threads:
        yield threads


@pytest.fixture(name="short_turns")
def fixture_short_turns() -> Iterator[None]:
    """For tests whose threads are those of an event loop."""
    with short_turns():
        yield


def segments() -> set[str]:
    return {path.name for path in SHARED_MEMORY.glob("replay_buffer*")}


def pytest_sessionstart(session: pytest.Session) -> None:
    session.config.stash[segments_before] = segments()


@pytest.hookimpl(trylast=True)
def pytest_sessionfinish(session: pytest.Session) -> None:
    left = segments() - session.config.stash[segments_before]
    session.config.stash[segments_left] = left
    if left and session.exitstatus in (pytest.ExitCode.OK, pytest.ExitCode.NO_TESTS_COLLECTED):
        session.exitstatus = pytest.ExitCode.TESTS_FAILED


def pytest_terminal_summary(
    terminalreporter: pytest.TerminalReporter, config: pytest.Config
) -> None:
    left = config.stash.get(segments_left, set())
    if left:
        terminalreporter.section("segments left in shared memory", red=True)
        for name in sorted(left):
            terminalreporter.line(str(SHARED_MEMORY / name))
