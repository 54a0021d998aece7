"""Handing a buffer to another process.

A child that is forked has the buffer already: it joins when it first writes. A child that is
spawned gets the descriptor of the segment, so that a buffer without a name can be handed over too;
anybody else gets the name.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from .buffer import ReplayBuffer


def reduce(buffer: ReplayBuffer) -> tuple[Any, ...]:
    """What pickle needs to make the buffer again in another process."""
    from multiprocessing import context, reduction  # takes long, and few need it

    location, cls = buffer.location, type(buffer)
    if location == "heap:":
        raise TypeError(
            "a buffer in the memory of this process cannot be handed to another one; "
            "make it with ReplayBuffer.create('shm:', ...)"
        )
    if context.get_spawning_popen() is not None:
        handed = reduction.DupFd(buffer._descriptor())
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
    return cls._attached(location, lambda self: self._adopt(handed.detach(), location, readonly))
