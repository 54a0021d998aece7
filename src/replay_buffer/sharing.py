"""Buffers of child processes, closed when these end.

A child of multiprocessing ends by os._exit(), which runs no destructor. So that it does not look as
if it had been killed, it closes its buffers when multiprocessing clears up.
"""

from __future__ import annotations

import os
import sys
import weakref
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .buffer import ReplayBuffer

#: Buffers of this process, and from before it was forked, that other processes may have too.
_shared: weakref.WeakSet[ReplayBuffer] = weakref.WeakSet()
_watching_forks = False


def attend(buffer: ReplayBuffer) -> None:
    """Sees to it that a child of multiprocessing closes the buffer when it ends."""
    global _watching_forks
    if buffer.location == "heap:":
        return
    if not _watching_forks:
        os.register_at_fork(after_in_child=_after_fork)
        _watching_forks = True
    _shared.add(buffer)
    process = sys.modules.get("multiprocessing.process")
    if process is None:
        return
    if getattr(process.current_process(), "_inheriting", False):
        # A child unpickles what it is handed before it begins, and beginning forgets what is
        # registered to be cleared up; what is to be done after a fork is done after that.
        sys.modules["multiprocessing.util"].register_after_fork(buffer, _close_at_exit)
    elif process.parent_process() is not None:
        _close_at_exit(buffer)


def _after_fork() -> None:
    """In any child; multiprocessing calls what is registered in its own, and only there."""
    register_after_fork = _loaded("multiprocessing.util", "register_after_fork")
    if register_after_fork is not None:
        for buffer in list(_shared):
            register_after_fork(buffer, _close_at_exit)


def _close_at_exit(buffer: ReplayBuffer) -> None:
    finalize = sys.modules["multiprocessing.util"].Finalize  # loaded in each of its children
    # After everything else that multiprocessing clears up, which may still use the buffer.
    finalize(None, _close, args=(weakref.ref(buffer),), exitpriority=-100)


def _close(reference: weakref.ref[ReplayBuffer]) -> None:
    buffer = reference()
    if buffer is not None:
        buffer.close()


def _loaded(module: str, name: str) -> Any:
    """Something of a module that is loaded; None of one that is not, or not yet.

    Nothing is imported here: in the child of a fork an import may wait for ever.
    """
    return getattr(sys.modules.get(module), name, None)
