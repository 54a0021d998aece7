"""Waiting: timeouts as numbers, waits that say what for, and the async calls, which wait in a
thread."""

from __future__ import annotations

import asyncio
import concurrent.futures.thread  # noqa: F401  an event loop would do so, perhaps after a fork
import functools
import math
import re
import sys
import time
import warnings
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import InvalidArgument, ReplayBufferWarning, Timeout

T = TypeVar("T")

#: Seconds that an async call waits in a thread at a time, and so until it notices its cancelling.
SLICE = 0.25

#: Seconds after which a call that waits without a timeout says so. The core asks for it by name.
LONG = 30.0

#: Seconds between two looks at what is waited for: first, and at most.
_SHORTEST_PAUSE, _LONGEST_PAUSE = 0.0005, 0.02


def seconds(timeout: Any, name: str = "timeout", none: str = "None or ") -> float:
    """A timeout as a number; infinite for None."""
    if timeout is None and none:
        return math.inf
    try:
        number = math.nan if isinstance(timeout, (bool, str, bytes)) else float(timeout)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not number >= 0:
        raise InvalidArgument(f"{name} must be {none}a number of seconds >= 0, not {timeout!r}")
    return number


class Wait:
    """The patience of one call, from its beginning on.

    `who` says, for the warning of a call that waits long, who could end the wait.
    """

    def __init__(self, limit: float, who: Callable[[], str]) -> None:
        self._start = time.monotonic()
        self._limit = limit
        self._who = who
        self._warned = limit < math.inf

    @property
    def left(self) -> float:
        """Seconds that the call may still wait."""
        return max(0.0, self._limit - (time.monotonic() - self._start))

    def until(
        self, ready: Callable[[], bool], call: str, missing: str, longest: float = math.inf
    ) -> None:
        """Returns when something is so, or after `longest` seconds; raises Timeout when the time of
        the call is over. Serves signals."""
        begin, pause = time.monotonic(), _SHORTEST_PAUSE
        while not ready():
            now = time.monotonic()
            if now - self._start >= self._limit:
                raise Timeout(self.told(call, missing))
            if now - begin >= longest:
                return
            self.warn_when_long(self.told(call, missing))
            time.sleep(min(self.left, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def told(self, call: str, missing: str) -> str:
        """What a call waited for, and how long."""
        waited = min(time.monotonic() - self._start, self._limit)
        return (
            f"{call} "
            + (f"waited {waited:.1f} s: " if waited else "would have to wait: ")
            + missing
        )

    def retold(self, error: Timeout) -> str:
        """What the last part of this wait said, with the time of all of it."""
        waited = min(time.monotonic() - self._start, self._limit)
        return re.sub(r" waited [0-9.]+ s: ", f" waited {waited:.1f} s: ", str(error))

    def warn_when_long(self, told: str) -> None:
        """Warns once when a wait without a limit takes long."""
        if not self._warned and time.monotonic() - self._start >= LONG:
            self._warned = True
            warn_of_wait(told, self._who())


def warn_of_wait(told: str, who: str) -> None:
    """Warns, in the line that called the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        __name__.partition(".")[0]
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{told}; {who}", ReplayBufferWarning, stacklevel=level)


async def in_thread(call: Callable[..., T], timeout: Any, who: Callable[[], str]) -> T:
    """Runs call(timeout=...) in a thread of the loop's executor.

    In slices, so that a call that is cancelled ends, and many that wait do not keep others from
    the threads.
    """
    wait = Wait(seconds(timeout), who)
    while True:
        left = wait.left
        sliced = functools.partial(call, timeout=min(left, SLICE))
        try:
            return await asyncio.get_running_loop().run_in_executor(None, sliced)
        except Timeout as error:
            told = wait.retold(error)
            if wait.left == 0:
                raise Timeout(told) from None
            wait.warn_when_long(told)
