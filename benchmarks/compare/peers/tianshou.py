"""Tianshou: NumPy columns inside nested `Batch` objects; priorities in a Numba segment tree."""

from __future__ import annotations

from typing import Any

import numpy as np
from draws import priorities, updates
from timing import Call
from workload import Workload

TITLE = "Tianshou 2.0.1"
INSTALL = (("torch==2.13.0",), ("tianshou==2.0.1",))
CAN = frozenset({"prioritized", "views"})
NOTE = (
    "`add` takes a `Batch`, made for each call. Batches are added as one step of 64 environments, "
    "to a second, smaller buffer."
)


class Buffer:
    """`ReplayBuffer`, or its prioritized kind; batches go to the `Vector` kind of it."""

    def __init__(self, workload: Workload) -> None:
        from tianshou import data

        self._data = data
        self._workload = workload
        self._prioritized: dict[str, float] = workload.options.get("prioritized", {})
        prefix = "Prioritized" if self._prioritized else ""
        self._plain = getattr(data, f"{prefix}ReplayBuffer")
        self._vector_kind = getattr(data, f"{prefix}VectorReplayBuffer")
        self._buffer = self._plain(workload.capacity, **self._prioritized)
        self._fill(self._buffer)
        self._vector: Any = None

    def _fill(self, buffer: Any) -> None:
        """Moves chunks in, because a million single adds take a minute and more."""
        for chunk in self._workload.chunks():
            columns = self._columns(chunk)
            source = self._data.ReplayBuffer.from_data(**columns, done=columns["terminated"])
            buffer.update(source)
        if self._prioritized:
            capacity = self._workload.capacity
            buffer.update_weight(np.arange(capacity), priorities(capacity))

    @staticmethod
    def _columns(rows: dict[str, Any]) -> dict[str, Any]:
        done = rows["done"]
        return {
            "obs": rows["obs"],
            "act": rows["action"],
            "rew": rows["reward"].astype(np.float64),
            "terminated": done,
            "truncated": np.zeros_like(done),
            "obs_next": rows["next_obs"],
        }

    def _add(self, add: Any, columns: dict[str, Any]) -> Call:
        batch = self._data.Batch
        return Call(lambda **values: add(batch(**values)), (), columns)

    def add_one(self) -> Call:
        columns = self._columns(self._workload.rows(1))
        return self._add(self._buffer.add, {name: column[0] for name, column in columns.items()})

    def add_batch(self, n: int) -> Call:
        columns = self._columns(self._workload.rows(n))
        if self._vector is None:
            rows = max(4 * n, self._workload.capacity // 16 // n * n)
            self._vector = self._vector_kind(rows, n, **self._prioritized)
            for _ in range(rows // n):
                self._vector.add(self._data.Batch(**columns))
        return self._add(self._vector.add, columns)

    def sample(self, n: int) -> Call:
        return Call(self._buffer.sample, (n,))


class Prioritized(Buffer):
    """With priorities."""

    def update(self, n: int) -> Call:
        drawn = updates(lambda: self._buffer.sample(n)[1], n, lambda errors: errors)
        return Call(self._buffer.update_weight, drawn)


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return (Prioritized if "prioritized" in workload.options else Buffer)(workload)
