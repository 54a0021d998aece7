"""Holds one rule over the whole run: no test leaves a segment behind in shared memory."""

from pathlib import Path

import pytest

SHARED_MEMORY = Path("/dev/shm")
segments_before = pytest.StashKey[set[str]]()
segments_left = pytest.StashKey[set[str]]()


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
