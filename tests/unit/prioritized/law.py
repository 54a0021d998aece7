"""Buffers with known priorities, the laws they must follow, and the test of what was drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt

from laws.laws import g_test as g_test
from laws.laws import rank_masses as rank_masses
from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema
from replay_buffer.testing.content import live_ids as live_ids
from replay_buffer.testing.content import masses as masses

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]

#: Every test has a fixed seed: a p-value below this is a wrong law, not bad luck.
UNLIKELY = 1e-3
#: Where threads race, what is drawn differs from run to run.
ALMOST_IMPOSSIBLE = 1e-9


def make(
    capacity: int, strategy: Any = "prioritized", *, seed: int = 0, **options: Any
) -> ReplayBuffer:
    """An empty buffer of one whole number per row."""
    config = BufferConfig(capacity=capacity, strategy=strategy, **options)
    return ReplayBuffer(config, schema=Schema({"x": Column((), "int64")}), seed=seed)


def fill(buffer: ReplayBuffer, raws: Iterable[float]) -> Ids:
    """Adds a row for each raw priority."""
    raws = np.asarray(list(raws), np.float32)
    ids: Ids = buffer.add_batch(np.arange(len(raws)), priority=raws)
    return ids


def draw(buffer: ReplayBuffer, rows: int, batch_size: int = 1) -> Ids:
    """The ids of at least `rows` rows, drawn in batches. Batches of one are independent draws."""
    batches = -(-rows // batch_size)
    return np.concatenate([buffer.sample(batch_size)["indices"] for _ in range(batches)])


def counts_of(drawn: Ids, ids: Ids) -> Ids:
    """How often each of `ids` (ascending) was drawn. Fails when anything else was."""
    foreign = np.setdiff1d(drawn, ids)
    assert foreign.size == 0, f"rows were drawn that are not there: {foreign[:5]}"
    counts: Ids = np.bincount(np.searchsorted(ids, drawn), minlength=len(ids))
    return counts


def assert_law(
    buffer: ReplayBuffer, ids: Ids, law: Any, rows: int = 20_000, batch_size: int = 1
) -> None:
    """Fails unless rows are drawn in proportion to `law`, which belongs to `ids`, ascending."""
    p = g_test(counts_of(draw(buffer, rows, batch_size), ids), law)
    assert p > UNLIKELY, f"what was drawn does not follow the law: p = {p:.2g}"
