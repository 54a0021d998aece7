"""The threads of a test.

A thread that gives up the interpreter's lock for a moment, as NumPy does in many small calls, can
keep others waiting for minutes: those who wait are woken, find the lock taken again, and never wait
long enough to ask for it. With a short switch interval they ask at once. So a crowd sets one, and
no test depends on how fair the lock is.

The package keeps that lock for all but long calls. In a crowd it lets go of it in short ones too,
so that threads truly race.
"""

from __future__ import annotations

import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from typing import Any

import pytest

from .. import _core

#: Seconds until a thread that does not end fails its test.
PATIENCE = 60.0
#: The same where it failed already.
PATIENCE_AFTER = 5.0


@contextmanager
def short_turns(seconds: float = 1e-5) -> Iterator[None]:
    """Whoever waits for the interpreter's lock asks for it after so many seconds."""
    before = sys.getswitchinterval()
    sys.setswitchinterval(seconds)
    try:
        yield
    finally:
        sys.setswitchinterval(before)


@contextmanager
def short_calls_race() -> Iterator[None]:
    """Calls of more than a few rows run without the interpreter's lock."""
    before = _core.set_long_work(0)
    try:
        yield
    finally:
        _core.set_long_work(before)


class Member:
    """One thread of a crowd."""

    def __init__(self, crowd: Crowd, work: Callable[..., Any], args: tuple[Any, ...]) -> None:
        self._crowd = crowd
        self._work = work
        self._args = args
        self._result: Any = None
        self.error: BaseException | None = None
        # A thread that hangs must not keep the process from ending.
        self.thread = threading.Thread(target=self._run, daemon=True)
        self.thread.start()

    def _run(self) -> None:
        try:
            self._result = self._work(*self._args)
        except BaseException as error:
            self.error = error
            self._crowd.over.set()
        finally:
            self._crowd.ended.release()

    @property
    def running(self) -> bool:
        return self.thread.is_alive()

    def result(self) -> Any:
        """What the thread returned; raises what it raised."""
        self.thread.join(self._crowd.patience)
        assert not self.running, f"a thread did not end within {self._crowd.patience:.0f} s"
        if self.error is not None:
            error, self.error = self.error, None  # raised once
            raise error
        return self._result


class Crowd:
    """Threads that end with the block, however it ends.

    `over` is set when the block ends or a thread fails: threads that loop look at it. The block
    raises what a thread raised, unless it raises something itself.
    """

    def __init__(self, patience: float = PATIENCE, *, race: bool = True) -> None:
        self.patience = patience
        self.over = threading.Event()
        self.ended = threading.Semaphore(0)  # counts threads
        self.members: list[Member] = []
        self._race = race
        self._settings = ExitStack()

    def __enter__(self) -> Crowd:
        self._settings.enter_context(short_turns())
        if self._race:
            self._settings.enter_context(short_calls_race())
        return self

    def start(self, work: Callable[..., Any], *args: Any) -> Member:
        """Calls work(*args) in a thread."""
        self.members.append(Member(self, work, args))
        return self.members[-1]

    def repeat(self, step: Callable[..., Any], *args: Any) -> Member:
        """Calls step(*args) in a thread, again and again until it is over."""

        def work() -> None:
            while not self.over.is_set():
                step(*args)

        return self.start(work)

    def check(self) -> None:
        """Raises what a thread raised so far. For loops that wait for what threads do."""
        for member in self.members:
            if member.error is not None:
                member.result()

    def until(self, true: Callable[[], bool]) -> None:
        """Waits for what threads do."""
        deadline = time.monotonic() + self.patience
        while not true():
            self.check()
            assert time.monotonic() < deadline, f"not within {self.patience:.0f} s"
            time.sleep(0.001)

    def join(self) -> None:
        """Returns when all threads have ended by themselves; once for a crowd."""
        for _ in self.members:
            ended = self.ended.acquire(timeout=self.patience)
            assert ended, f"no thread ended within {self.patience:.0f} s"
            self.check()

    def __exit__(self, kind: object, error: BaseException | None, trace: object) -> None:
        self.over.set()
        try:
            patience = self.patience if error is None else min(self.patience, PATIENCE_AFTER)
            deadline = time.monotonic() + patience
            for member in self.members:
                member.thread.join(max(0.0, deadline - time.monotonic()))
        finally:
            self._settings.close()
        if error is not None:
            return
        self.check()
        running = sum(member.running for member in self.members)
        if running:
            pytest.fail(f"{running} of {len(self.members)} threads did not end")


def together(*works: Callable[[], Any]) -> list[Any]:
    """Runs each in a thread of its own, begun at once. Raises what one raised, or returns all."""
    start = threading.Barrier(len(works))

    def begin(work: Callable[[], Any]) -> Any:
        start.wait(PATIENCE)
        return work()

    with Crowd() as crowd:
        for work in works:
            crowd.start(begin, work)
        crowd.join()
    return [member.result() for member in crowd.members]
