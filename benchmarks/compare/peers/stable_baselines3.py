"""Stable-Baselines3: NumPy columns, PyTorch batches, no priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import torch_threads
from timing import Call
from workload import ACTIONS, Workload

TITLE = "Stable-Baselines3 2.9.2"
INSTALL = (("torch==2.13.0",), ("stable-baselines3==2.9.2",))
CAN = frozenset({"views"})
NOTE = (
    "Batches are added as one step of 64 environments, to a second buffer of at most 128 MiB. "
    + torch_threads.NOTE
)

BATCH_BYTES = 2**27  # more than any cache holds


class Buffer:
    """`ReplayBuffer` of one environment; batches go to one of as many environments as rows."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._buffer = self._full(workload.capacity, 1)

    def _full(self, capacity: int, environments: int) -> Any:
        from gymnasium import spaces
        from stable_baselines3.common.buffers import ReplayBuffer

        shape, dtype = self._workload.obs_shape, np.dtype(self._workload.obs_dtype).type
        low, high = (0, 255) if dtype is np.uint8 else (-np.inf, np.inf)
        space = spaces.Box(low, high, shape, dtype)
        buffer = ReplayBuffer(
            capacity, space, spaces.Discrete(ACTIONS), device="cpu", n_envs=environments
        )
        step = self._step(environments)
        while not buffer.full:
            buffer.add(*step)
        return buffer

    def _step(self, environments: int) -> tuple[Any, ...]:
        obs, action, reward, next_obs, done = self._workload.rows(environments).values()
        return obs, next_obs, action, reward, done, [{} for _ in range(environments)]

    def add_one(self) -> Call:
        return Call(self._buffer.add, self._step(1))

    def add_batch(self, n: int) -> Call:
        if not hasattr(self, "_vector"):
            rows = min(self._workload.capacity, BATCH_BYTES // self._workload.row_bytes)
            self._vector = self._full(rows, n)
        return Call(self._vector.add, self._step(n))

    def sample(self, n: int) -> Call:
        torch_threads.choose(lambda: self._buffer.sample(n))
        return Call(self._buffer.sample, (n,))


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return Buffer(workload)
