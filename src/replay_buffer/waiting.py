"""Waiting: timeouts as numbers, and waits that say what for."""

from __future__ import annotations

import math
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable
from typing import Any

from .errors import InvalidArgument, ReplayBufferWarning, Timeout, shown

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
        raise InvalidArgument(
            f"{name} must be {none}a number of seconds >= 0, not {shown(timeout)}"
        )
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
            self.go_on(call, missing)
            if now - begin >= longest:
                return
            time.sleep(min(self.left, pause))
            pause = min(2 * pause, _LONGEST_PAUSE)

    def go_on(self, call: str, missing: str) -> None:
        """Raises Timeout when the time of the call is over, and warns when it waits for long."""
        if self.left == 0:
            raise Timeout(self.told(call, missing))
        self.warn_when_long(self.told(call, missing))

    def told(self, call: str, missing: str) -> str:
        """What a call waited for, and how long."""
        return f"{call}{self._waited()}{missing}"

    def retold(self, error: Exception) -> str:
        """What the last part of this wait said, with the time of all of it."""
        phrase = r" (waited [0-9.]+ s|would have to wait): "
        return re.sub(phrase, self._waited(), str(error), count=1)

    @property
    def until_warning(self) -> float:
        """Seconds until warn_when_long warns; infinite when it never will."""
        if self._warned:
            return math.inf
        return max(0.0, LONG - (time.monotonic() - self._start))

    def warn_when_long(self, told: str) -> None:
        """Warns once when a wait without a limit takes long."""
        if not self._warned and time.monotonic() - self._start >= LONG:
            self._warned = True
            warn_of_wait(told, self._who())

    def _waited(self) -> str:
        waited = min(time.monotonic() - self._start, self._limit)
        return f" waited {waited:.1f} s: " if waited else " would have to wait: "


def writers(owners: Iterable[tuple[int, int, bool, bool, int, int]]) -> str:
    """Which processes have a segment open for writing, and what each of them has added."""
    added: dict[int, int] = {}
    for _, pid, alive, _, rows, _ in owners:
        if alive:
            added[pid] = added.get(pid, 0) + rows
    if not added:
        return "no process has it open for writing"
    said = ", ".join(f"{pid} ({rows} rows added)" for pid, rows in sorted(added.items()))
    return f"open for writing in process {said}"


def warn_of_owners(told: str, owners: Iterable[tuple[int, int, bool, bool, int, int]]) -> None:
    """Called by the core when a call has waited for long."""
    warn_of_wait(told, writers(owners))


def warn_of_wait(told: str, who: str) -> None:
    """Warns, in the line that called the package."""
    level, frame = 1, sys._getframe()
    while frame.f_back is not None and frame.f_globals.get("__name__", "").startswith(
        __name__.partition(".")[0]
    ):
        level, frame = level + 1, frame.f_back
    warnings.warn(f"{told}; {who}", ReplayBufferWarning, stacklevel=level)
