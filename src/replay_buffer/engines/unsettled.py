"""The engine of a buffer whose columns are not known yet: it has no rows, and knows its config."""

from __future__ import annotations

import dataclasses
from typing import Any, NoReturn

import numpy as np

from .. import _core
from ..config import BufferConfig
from ..engine import Arrays, Autoreset, Batch, Engine, Ids, Priorities, Raws, Seconds
from ..errors import InvalidArgument, NotEnoughRows, RowGone
from ..inference import Draft
from ..plan import Plan
from ..schema import Column, Schema
from .closed import ClosedEngine
from .local import LocalEngine, refuse_heap
from .names import Name


class UnsettledEngine(Engine):
    """In the memory of this process. Raises what is wrong with the config."""

    location = "heap:"
    readonly = False

    def __init__(self, config: BufferConfig, seed: int, draft: Draft) -> None:
        _core.plan(Schema({"x": Column()}).core_columns(), config.core_options(seed))
        self.config = config
        self.seed = seed
        self.schema = None
        self._draft = draft

    def size(self) -> int:
        return 0

    def is_full(self) -> bool:
        return False

    def progress(self) -> tuple[int, int, int]:
        return 0, 0, 0

    def counters(self) -> dict[str, Any]:
        found = {"size": 0, "capacity": self.config.capacity, **self._memory()}
        found["limiter"] = _idle_limiter(self.config)
        found["compression"] = None
        if self.config.storage == "steps":
            found["episodes"] = _no_episodes()
        return found

    def masses(self) -> tuple[float, float, float]:
        return self.config.alpha, 0.0, 1.0

    def who(self) -> str:
        return "nobody has added a row"

    def count_waits(self, adds: bool, more: int) -> bool:
        return False

    def settle(self, schema: Schema) -> Engine:
        return LocalEngine.create("heap:", self.config, schema, self.seed)

    def write(
        self, arrays: Arrays, n: int, raws: Raws, timeout: Seconds, key: bytes | None = None
    ) -> NoReturn:
        _refuse()

    def writer(self, streams: int, autoreset: Autoreset) -> NoReturn:
        _refuse()

    def set_priorities(self, ids: Ids, raws: Priorities) -> int:
        if ids.size:
            raise InvalidArgument(f"id {ids[0]} was never given to a row; nothing was changed")
        return 0

    def clear(self) -> None:
        pass

    def set(self, *, alpha: float) -> None:
        self.config = dataclasses.replace(self.config, alpha=alpha)

    def draw(
        self, plan: Plan | None, n: int, beta: float, out: Batch | None, timeout: Seconds
    ) -> NoReturn:
        raise NotEnoughRows(f"cannot sample {n} rows: the buffer is empty")

    def make(self, plan: Plan | None, ids: Ids) -> NoReturn:
        if plan is None and ids.size:
            raise RowGone(f"row {ids[0]} is not in the buffer")
        _refuse()

    def find(self, rows: Plan | int) -> Ids:
        return np.empty(0, np.int64)

    def peek(self, ids: Ids) -> NoReturn:
        self.make(None, ids)

    def priorities(self, ids: Ids) -> Priorities:
        return np.full(ids.size, np.nan, np.float32)

    def recipe(self, plan: Plan) -> None:
        return None

    def save(self, path: str) -> NoReturn:
        _refuse()

    def flush(self) -> None:
        pass

    def hand_over(self) -> NoReturn:
        refuse_heap()

    def unlink(self) -> None:
        Name(self.location).remove()

    def close(self) -> Engine:
        return ClosedEngine(self, Name(self.location))

    def _memory(self) -> dict[str, Any]:
        """The memory that a full buffer needs, as far as the columns are known."""
        guess = self._draft.guess(steps=self.config.storage == "steps")
        if guess is None:
            return {"raw_bytes": None, "segment_bytes": None}
        row_bytes, segment_bytes = _core.plan(
            guess.core_columns(), self.config.core_options(self.seed)
        )
        return {
            "row_bytes": row_bytes,
            "raw_bytes": row_bytes * self.config.capacity,
            "segment_bytes": segment_bytes,
        }


def _refuse() -> NoReturn:
    raise NotEnoughRows("the buffer is empty and its columns are not settled yet")


def _no_episodes() -> dict[str, Any]:
    """What there is to say of episodes before the first row."""
    return {
        "finished": 0,
        "steps": 0,
        "return_sum": 0.0,
        "latest_lengths": [],
        "latest_returns": [],
    }


def _idle_limiter(config: BufferConfig) -> dict[str, Any] | None:
    """What there is to say of the limiter before the first row."""
    if not config.limited:
        return None
    return {
        "min_size": max(1, config.min_size),
        "samples_per_insert": config.samples_per_insert,
        "tolerance": config.tolerance,
        "balance": 0.0,
        "waiting": 0,
    }
