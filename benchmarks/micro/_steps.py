"""Full buffers of steps, written as vector environments write them."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np
from benchmarks.compare.workload import ACTIONS

from replay_buffer import BufferConfig, ReplayBuffer

EPISODE = 500  # steps
Columns = tuple[np.ndarray, ...]


@dataclass(frozen=True)
class Steps:
    """Steps of one shape, and how many of them there is room for."""

    obs_shape: tuple[int, ...]
    dtype: str
    rows: int

    def empty(self) -> ReplayBuffer:
        """A buffer that takes no memory yet."""
        config = BufferConfig(capacity=self.rows, storage="steps")
        return ReplayBuffer(
            config, obs_shape=self.obs_shape, action_dim=ACTIONS, obs_dtype=self.dtype, seed=0
        )

    def one(self, streams: int, seed: int = 0) -> Columns:
        """What `append` takes of as many streams, but for the flags: obs, action, reward."""
        random = np.random.default_rng(seed)
        shape = (streams, *self.obs_shape)
        if np.dtype(self.dtype).kind == "u":
            obs = random.integers(0, 256, shape, dtype=self.dtype)
        else:
            obs = random.standard_normal(shape).astype(self.dtype)
        reward = random.standard_normal(streams).astype(np.float32)
        return obs, random.integers(0, ACTIONS, streams), reward

    def fill(self, buffer: ReplayBuffer, streams: int = 1) -> ReplayBuffer:
        """As many rows as there is room for: episodes that end at another time in every stream."""
        steps = [self.one(streams, seed) for seed in range(16)]
        finals = self.one(streams, 16)[0]
        never = np.zeros(streams, bool)
        phase = np.arange(streams) * EPISODE // streams
        ends = [(t + phase) % EPISODE == EPISODE - 1 for t in range(EPISODE)]
        flags = [(end, never, finals) if end.any() else None for end in ends]
        with buffer.writer(streams=streams) as writer:
            append = writer.append
            for t in range(-(-self.rows // streams)):
                if last := flags[t % EPISODE]:
                    append(*steps[t % 16], *last[:2], final_obs=last[2])
                else:
                    append(*steps[t % 16], never, never)
        return buffer

    def full(self, streams: int = 1) -> ReplayBuffer:
        """`empty`, filled."""
        return self.fill(self.empty(), streams)


def bytes_of(batch: dict[str, Any]) -> int:
    """Of all arrays of a batch."""
    return sum(
        bytes_of(value) if isinstance(value, dict) else value.nbytes for value in batch.values()
    )
