"""Full buffers of this package, and the rows and priorities they are filled with."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import numpy.typing as npt
from benchmarks.compare.workload import ACTIONS, Workload

from replay_buffer import BufferConfig, ReplayBuffer

Strategy = Literal["uniform", "prioritized", "rank", "without_replacement", "fifo", "lifo"]


def workload(obs_shape: tuple[int, ...], dtype: str, rows: int) -> Workload:
    """Transitions (obs, int64 action, float32 reward, next_obs, bool done), `rows` of them."""
    return Workload("", "", obs_shape, dtype, rows, ())


def priorities(n: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """`n` positive priorities, most of them small, as TD errors are."""
    return (np.random.default_rng(seed).exponential(size=n) + 0.01).astype(np.float32)


def empty_buffer(rows: Workload, strategy: Strategy = "uniform") -> ReplayBuffer:
    """A buffer whose columns are settled and which takes no memory yet."""
    config = BufferConfig(capacity=rows.capacity, strategy=strategy)
    return ReplayBuffer(
        config, obs_shape=rows.obs_shape, action_dim=ACTIONS, obs_dtype=rows.obs_dtype, seed=0
    )


def buffer_at(location: str, rows: Workload, strategy: Strategy = "uniform") -> ReplayBuffer:
    """The same at a location."""
    return ReplayBuffer.create(
        location,
        BufferConfig(capacity=rows.capacity, strategy=strategy),
        obs_shape=rows.obs_shape,
        obs_dtype=rows.obs_dtype,
        action_dim=ACTIONS,
        action_dtype="int64",
        seed=0,
    )


def fill(buffer: ReplayBuffer, rows: Workload) -> ReplayBuffer:
    """Adds as many rows as there is room for, with random priorities where it keeps any."""
    buffer.add(*one_row(rows))
    some = priorities(2**20)
    for chunk in rows.chunks(size=min(2**20, max(64, 2**24 // rows.row_bytes))):
        if buffer.config.weighted:
            buffer.add_batch(*chunk.values(), priority=some[: len(chunk["done"])])
        else:
            buffer.add_batch(*chunk.values())
    return buffer


def full_buffer(rows: Workload, strategy: Strategy = "uniform") -> ReplayBuffer:
    """`empty_buffer`, filled."""
    return fill(empty_buffer(rows, strategy), rows)


def full_trajectory(rows: Workload) -> ReplayBuffer:
    """A full buffer of one environment: each row's next_obs is the next one's obs."""
    buffer = empty_buffer(rows)
    buffer.add(*one_row(rows))
    for chunk in rows.chunks(size=min(2**20, max(64, 2**24 // rows.row_bytes))):
        buffer.add_batch(*(chunk | {"next_obs": np.roll(chunk["obs"], -1, axis=0)}).values())
    return buffer


def one_row(rows: Workload) -> tuple[Any, ...]:
    """The arguments of a positional `add`."""
    obs, action, reward, next_obs, done = (column[0] for column in rows.rows(1).values())
    return obs, int(action), float(reward), next_obs, bool(done)
