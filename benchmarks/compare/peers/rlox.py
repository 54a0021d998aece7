"""rlox: Rust behind PyO3; float32 columns only, and a seed with every draw."""

from __future__ import annotations

import itertools
from typing import Any

import numpy as np
from draws import priorities, updates
from timing import Call, Fresh
from workload import UnsupportedError, Workload

TITLE = "rlox 1.2.0"
INSTALL = (("torch==2.13.0",), ("rlox==1.2.0",))
CAN = frozenset({"prioritized", "views"})
NOTE = "`sample` takes a seed; every call gets another one, or it would draw the same rows again."


class Buffer:
    """What both kinds share; the action is a vector of one float32."""

    def __init__(self, workload: Workload) -> None:
        if workload.obs_dtype != "float32":
            raise UnsupportedError("stores float32 only")
        self._workload = workload
        self._seed = Fresh(itertools.count().__next__)
        self._buffer = self._full()

    def _full(self) -> Any:
        raise NotImplementedError

    def _row(self) -> tuple[Any, ...]:
        obs, action, reward, next_obs, done = (c[0] for c in self._workload.rows(1).values())
        return obs, np.array([action], np.float32), float(reward), bool(done), False, next_obs

    def add_one(self) -> Call:
        return Call(self._buffer.push, self._row())

    def sample(self, n: int) -> Call:
        return Call(self._buffer.sample, (n, self._seed))


class Uniform(Buffer):
    """`rlox.ReplayBuffer`, which alone has a batched add."""

    def _full(self) -> Any:
        import rlox

        size = self._workload.obs_shape[0]
        buffer = rlox.ReplayBuffer(self._workload.capacity, size, 1)
        for chunk in self._workload.chunks():
            buffer.push_batch(*self._columns(chunk))
        return buffer

    @staticmethod
    def _columns(rows: dict[str, Any]) -> tuple[Any, ...]:
        actions = rows["action"].astype(np.float32)
        flat = (rows["obs"].ravel(), rows["next_obs"].ravel(), actions, rows["reward"])
        return (*flat, rows["done"].astype(np.uint8), np.zeros(len(actions), np.uint8))

    def add_batch(self, n: int) -> Call:
        return Call(self._buffer.push_batch, self._columns(self._workload.rows(n)))


class Prioritized(Buffer):
    """`rlox.PrioritizedReplayBuffer`."""

    def _full(self) -> Any:
        import rlox

        size = self._workload.obs_shape[0]
        options = self._workload.options["prioritized"]
        buffer = rlox.PrioritizedReplayBuffer(self._workload.capacity, size, 1, **options)
        row = self._row()
        for priority in priorities(self._workload.capacity).tolist():
            buffer.push(*row, priority)
        return buffer

    def add_one_with_priority(self) -> Call:
        return Call(self._buffer.push, (*self._row(), 0.5))

    def update(self, n: int) -> Call:
        def draw() -> Any:
            return self._buffer.sample(n, self._seed.next())["indices"]

        drawn = updates(draw, n, lambda errors: errors.astype(np.float64))
        return Call(self._buffer.update_priorities, drawn)


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return (Prioritized if "prioritized" in workload.options else Uniform)(workload)
