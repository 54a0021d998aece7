"""cpprb: C++ columns behind Cython, keyword arguments."""

from __future__ import annotations

from typing import Any

import numpy as np
from draws import priorities, updates
from timing import Call
from workload import Workload

TITLE = "cpprb 11.0.0"
INSTALL = (("cpprb==11.0.0",),)
CAN = frozenset({"prioritized", "views"})


class Buffer:
    """`cpprb.ReplayBuffer`, or its prioritized kind."""

    def __init__(self, workload: Workload) -> None:
        import cpprb

        obs = {"shape": workload.obs_shape, "dtype": np.dtype(workload.obs_dtype)}
        columns = {
            "obs": obs,
            "action": {"dtype": np.int64},
            "reward": {"dtype": np.float32},
            "next_obs": obs,
            "done": {"dtype": np.bool_},
        }
        self._workload = workload
        self._prioritized = workload.options.get("prioritized")
        if self._prioritized:
            alpha = self._prioritized["alpha"]
            kind = cpprb.PrioritizedReplayBuffer
            self._buffer: Any = kind(workload.capacity, columns, alpha=alpha)
        else:
            self._buffer = cpprb.ReplayBuffer(workload.capacity, columns)
        for chunk in workload.chunks():
            n = len(chunk["obs"])
            extra = {"priorities": priorities(n)} if self._prioritized else {}
            self._buffer.add(**chunk, **extra)

    def add_one(self) -> Call:
        obs, action, reward, next_obs, done = (c[0] for c in self._workload.rows(1).values())
        row = {"obs": obs, "action": int(action), "reward": float(reward)}
        return Call(self._buffer.add, (), {**row, "next_obs": next_obs, "done": bool(done)})

    def add_batch(self, n: int) -> Call:
        return Call(self._buffer.add, (), self._workload.rows(n))

    def sample(self, n: int) -> Call:
        if self._prioritized:
            return Call(self._buffer.sample, (n, self._prioritized["beta"]))
        return Call(self._buffer.sample, (n,))


class Prioritized(Buffer):
    """With priorities."""

    def add_one_with_priority(self) -> Call:
        call = self.add_one()
        return Call(call.function, (), {**call.keywords, "priorities": 0.5})

    def update(self, n: int) -> Call:
        drawn = updates(lambda: self._buffer.sample(n)["indexes"], n, lambda errors: errors)
        return Call(self._buffer.update_priorities, drawn)


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return (Prioritized if "prioritized" in workload.options else Buffer)(workload)
