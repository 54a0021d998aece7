"""The engine of a buffer that was closed: it knows what it was, and refuses everything else."""

from __future__ import annotations

from typing import Any

from ..engine import Engine
from ..errors import Closed
from .names import Name


def _refuse(*_: Any, **__: Any) -> Any:
    raise Closed("the buffer is closed")


class ClosedEngine(Engine):
    """What is left of an engine."""

    def __init__(self, before: Engine, name: Name) -> None:
        self.location = before.location
        self.config = before.config
        self.seed = before.seed
        self.schema = before.schema
        self.readonly = before.readonly
        self._name = name

    size = is_full = progress = counters = masses = _refuse
    settle = write = writer = set_priorities = clear = set = _refuse
    draw = make = find = peek = priorities = recipe = _refuse
    save = flush = hand_over = _refuse

    def who(self) -> str:
        return "nobody has added a row"

    def count_waits(self, adds: bool, more: int) -> bool:
        return False

    def unlink(self) -> None:
        self._name.remove()

    def close(self) -> Engine:
        return self
