"""A lock that the child of a fork does not find held.

Another thread of the parent may hold it when the process forks; in the child that thread does not
exist, and would never let go.
"""

from __future__ import annotations

import os
import threading
import weakref
from types import TracebackType

_locks: weakref.WeakSet[ForkLock] = weakref.WeakSet()


class ForkLock:
    """For `with`. What it protects may be half changed in the child."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        _locks.add(self)

    def __enter__(self) -> None:
        self._lock.acquire()

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self._lock.release()


def _renew() -> None:
    for lock in list(_locks):
        lock._lock = threading.Lock()


os.register_at_fork(after_in_child=_renew)
