"""What the tests put into buffers: rows that can be told apart, with known priorities."""

from __future__ import annotations

from typing import Any, Protocol

import numpy as np
import numpy.typing as npt

from ..buffer import ReplayBuffer
from ..config import BufferConfig
from ..schema import Column, Schema

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

STRATEGIES = ("uniform", "prioritized", "rank", "without_replacement", "fifo", "lifo")
WEIGHTED = ("prioritized", "rank")

#: A row is one number, `k`, and a vector of it.
NUMBERED = Schema({"k": Column((), "int64"), "x": Column((3,), "float32")})


class MakeBuffer(Protocol):
    """A new, empty buffer."""

    def __call__(self, config: BufferConfig, **columns: Any) -> ReplayBuffer: ...


def numbered(
    make_buffer: MakeBuffer,
    capacity: int,
    strategy: Any = "uniform",
    *,
    seed: int = 0,
    **options: Any,
) -> ReplayBuffer:
    """An empty buffer of NUMBERED rows."""
    config = BufferConfig(capacity, strategy=strategy, **options)
    return make_buffer(config, schema=NUMBERED, seed=seed)


def add_numbers(buffer: ReplayBuffer, n: int, first: int = 0, priority: Any = None) -> Ids:
    """Adds the rows first, first + 1, ... and returns their ids."""
    k = np.arange(first, first + n)
    x = np.repeat(k[:, None], 3, axis=1).astype(np.float32)
    if priority is None:
        return buffer.add_batch(k, x)
    return buffer.add_batch(k, x, priority=np.asarray(priority, np.float32))


def assert_whole(batch: dict[str, Any]) -> None:
    """Each row is one number in all its columns."""
    assert (batch["x"] == batch["k"][:, None]).all()
    assert len(batch["k"]) == len(batch["indices"])


def live_ids(buffer: ReplayBuffer) -> Ids:
    """The ids of all stored rows, oldest first."""
    ids: Ids = buffer.latest(buffer.capacity)["indices"]
    return ids


def masses(raws: Any, alpha: float, epsilon: float = 1e-6) -> Floats:
    """(p + epsilon)^alpha in double precision."""
    mass: Floats = (np.asarray(raws, np.float64) + epsilon) ** alpha
    return mass


def rank_masses(raws: Any, alpha: float) -> Floats:
    """1 / rank^alpha, rank 1 the largest."""
    order = np.argsort(-np.asarray(raws, np.float64), kind="stable")
    mass = np.empty(len(order))
    mass[order] = np.arange(1, len(order) + 1, dtype=np.float64) ** -alpha
    return mass


def assert_drawn_by(law: Any, counts: Any) -> None:
    """Counts of independent draws are within five standard deviations of a law."""
    counts = np.asarray(counts, np.float64)
    share = np.asarray(law, np.float64) / np.sum(law)
    expected = share * counts.sum()
    deviation = np.sqrt(expected * (1 - share))
    assert (np.abs(counts - expected) <= 5 * deviation + 1e-9).all(), (counts, expected)
