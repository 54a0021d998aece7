"""What can be known of a segment from outside, without disturbing those who use it."""

from __future__ import annotations

import contextlib
import dataclasses
import os
import pwd
from typing import Any

from .. import _core
from ..engines.local import LocalEngine
from ..errors import NotFound, PermissionDenied, ReplayBufferError


def location_of(name: str) -> str:
    """The location that a name on the command line means."""
    if name.startswith(("shm:", "file:", "heap:")):
        return name
    if name.endswith(".rb") or "/" in name:
        return f"file:{name}"
    return f"shm:{name}"


@dataclasses.dataclass(frozen=True)
class Owner:
    """A process that has a segment open for writing, or had when it died."""

    slot: int
    pid: int
    alive: bool
    same_namespace: bool
    rows_added: int
    waits: int

    def __str__(self) -> str:
        return str(self.pid) if self.same_namespace else f"{self.pid} elsewhere"


def opened(location: str) -> contextlib.closing[LocalEngine]:
    """A segment, for reading, closed at the end."""
    return contextlib.closing(LocalEngine.open(location, readonly=True))


def owners_of(engine: LocalEngine) -> list[Owner]:
    return [Owner(*facts) for facts in engine.owners()]


@dataclasses.dataclass(frozen=True)
class Summary:
    """One line of `ls`. What could not be found out is None, and `problem` says why."""

    location: str
    bytes: int | None = None
    user: str | None = None
    in_use: bool | None = None
    size: int | None = None
    capacity: int | None = None
    strategy: str | None = None
    owners: list[Owner] = dataclasses.field(default_factory=list)
    problem: str | None = None

    @property
    def state(self) -> str:
        if self.problem is not None:
            return self.problem
        return "in use" if self.in_use else "stale"

    def as_json(self) -> dict[str, Any]:
        return {**dataclasses.asdict(self), "state": self.state}


def summary_of(location: str) -> Summary | None:
    """None when the segment vanished meanwhile."""
    facts: dict[str, Any] = {}
    try:
        status = os.stat(_core.segment_path(location))
        facts["bytes"], facts["user"] = status.st_size, user_name(status.st_uid)
        facts["in_use"] = _core.in_use(location)  # first: from here on it is open here
        with opened(location) as engine:
            facts["size"], facts["capacity"] = engine.size(), engine.config.capacity
            facts["strategy"] = engine.config.strategy
            facts["owners"] = owners_of(engine)
    except (NotFound, FileNotFoundError):
        return None
    except PermissionDenied:
        facts["problem"] = "permission denied"
    except (ReplayBufferError, OSError) as error:
        facts["problem"] = " ".join(str(error).split())
    return Summary(location, **facts)


def user_name(uid: int) -> str:
    try:
        return pwd.getpwuid(uid).pw_name
    except KeyError:
        return str(uid)
