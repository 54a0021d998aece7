"""Buffers with known priorities, the laws they must follow, and the test of what was drawn."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

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


def rank_masses(raws: Any, alpha: float) -> Floats:
    """1 / rank^alpha, rank 1 the largest; equal priorities in the order given; all zero: equal."""
    if not np.any(raws):
        return np.ones(len(raws))
    order = np.argsort(-np.asarray(raws, np.float64), kind="stable")
    mass = np.empty(len(order))
    mass[order] = np.arange(1, len(order) + 1, dtype=np.float64) ** -alpha
    return mass


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


def g_test(counts: Any, law: Any) -> float:
    """The p-value of counts against a law given up to a factor. Rare cells are merged.

    The draws of a stratified batch scatter less than independent ones, so for them the p-value
    is too large, never too small.
    """
    counts = np.asarray(counts, np.float64)
    expected = np.asarray(law, np.float64) / np.sum(law) * counts.sum()
    assert (counts[expected == 0] == 0).all(), "a row without priority was drawn"
    order = np.argsort(expected)
    group = np.floor(np.cumsum(expected[order]) / 8)
    group[expected[order] >= 8] = -1 - np.arange(np.count_nonzero(expected >= 8))
    _, cell = np.unique(group, return_inverse=True)
    expected = np.bincount(cell, expected[order])
    counts = np.bincount(cell, counts[order])
    counts, expected = counts[expected > 0], expected[expected > 0]
    if len(counts) == 1:
        return 1.0
    expected *= counts.sum() / expected.sum()
    return float(stats.power_divergence(counts, expected, lambda_="log-likelihood").pvalue)


def assert_law(
    buffer: ReplayBuffer, ids: Ids, law: Any, rows: int = 20_000, batch_size: int = 1
) -> None:
    """Fails unless rows are drawn in proportion to `law`, which belongs to `ids`, ascending."""
    p = g_test(counts_of(draw(buffer, rows, batch_size), ids), law)
    assert p > UNLIKELY, f"what was drawn does not follow the law: p = {p:.2g}"
