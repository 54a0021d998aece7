"""Handing a buffer to another process, and the handles on what is there already.

A child that is forked has the buffer already: it joins when it first writes. A child that is
spawned gets the descriptor of the segment, so that a buffer without a name can be handed over too;
anybody else gets the name.

A child of multiprocessing ends by os._exit(), which runs no destructor. So that it does not look as
if it had been killed, it closes its buffers when multiprocessing clears up.
"""

from __future__ import annotations

import os
import sys
import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

from . import _core
from .config import BufferConfig
from .errors import Corrupt, InvalidArgument, SchemaMismatch
from .inference import Draft, check_steps
from .schema import Schema

if TYPE_CHECKING:
    from .buffer import ReplayBuffer

Handle = TypeVar("Handle", bound="ReplayBuffer")

#: Buffers of this process, and from before it was forked, that other processes may have too.
_shared: weakref.WeakSet[ReplayBuffer] = weakref.WeakSet()
_watching_forks = False


def attached(
    cls: type[Handle], location: str, attach: Callable[[Handle], None], *, made: bool = False
) -> Handle:
    """A buffer that `attach` gives its segment; columns and config come from there.

    Where they are those of no buffer, a segment that was just `made` is removed.
    """
    buffer = cls.__new__(cls)
    _core.Buffer.__init__(buffer)
    buffer._begin(location)
    attach(buffer)
    buffer._reads_only = not buffer._writable()
    buffer._own = buffer._identity()
    try:
        _describe(buffer)
    except (InvalidArgument, SchemaMismatch) as error:
        buffer._release()
        if made and location not in ("heap:", "shm:"):
            _core.remove_own(location, buffer._own)
        raise Corrupt(f"{location} is not a whole segment: {error}") from error
    attend(buffer)
    return buffer


def _describe(buffer: ReplayBuffer) -> None:
    """Takes over what the segment says of itself."""
    facts = buffer._facts()
    buffer._config = BufferConfig.from_core(facts)
    buffer._seed = facts["seed"]
    buffer._draft = Draft()
    buffer._schema = Schema.from_core(facts["columns"])
    if buffer._config.storage == "steps":
        check_steps(buffer._schema)


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


def reduce(buffer: ReplayBuffer) -> tuple[Any, ...]:
    """What pickle needs to make the buffer again in another process."""
    buffer._check_open()
    location, cls = buffer.location, type(buffer)
    if location == "heap:":
        raise TypeError(
            "a buffer in the memory of this process cannot be handed to another one; "
            "make it with ReplayBuffer.create('shm:', ...)"
        )
    spawning_popen = _loaded("multiprocessing.context", "get_spawning_popen")
    if spawning_popen is not None and spawning_popen() is not None:
        handed = sys.modules["multiprocessing.reduction"].DupFd(buffer._descriptor())
        return _adopt, (cls, handed, location, buffer.readonly)
    if location == "shm:":
        raise TypeError(
            "a shared buffer without a name can be handed to a child when it is started, "
            "and to nobody else; give it a name"
        )
    return _open, (cls, location, buffer.readonly)


def _open(cls: type[ReplayBuffer], location: str, readonly: bool) -> ReplayBuffer:
    return cls.open(location, readonly=readonly)


def _adopt(cls: type[ReplayBuffer], handed: Any, location: str, readonly: bool) -> ReplayBuffer:
    return attached(cls, location, lambda self: self._adopt(handed.detach(), location, readonly))
