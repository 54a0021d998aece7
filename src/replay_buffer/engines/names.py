"""The name of a segment, which outlives its buffers: who removes it, and what for."""

from __future__ import annotations

from typing import Any

from .. import _core
from ..errors import InvalidArgument, NotFound, ReadOnly


class Name:
    """The name under which a handle has, or had, a segment; removes that segment and no other."""

    def __init__(
        self, location: str, identity: tuple[int, int, int] = (0, 0, 0), readonly: bool = False
    ) -> None:
        self._location = location
        self._identity = identity  # of heap memory there is none
        self._readonly = readonly
        self._removed = False

    def remove(self) -> None:
        if self._readonly:
            raise ReadOnly(
                f"this handle of {self._location} is for reading only and removes nothing; "
                f"ReplayBuffer.unlink({self._location!r}) does"
            )
        if self._removed:
            return
        if not _core.remove_own(self._location, self._identity):
            raise NotFound(f"{self._location} is no longer the name of this buffer")
        self._removed = True


def unlink(location: Any) -> None:
    """Removes the name of whatever segment is at a location."""
    if not isinstance(location, str):
        raise InvalidArgument(f"a location is a string such as 'shm:name', not {location!r}")
    _core.unlink(location)
