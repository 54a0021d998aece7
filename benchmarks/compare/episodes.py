"""The steps that views are made of: whole episodes, all of one length."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace

import numpy as np
import numpy.typing as npt
from workload import Rows, Workload

LENGTH = 500
KINDS = 8  # episodes of different content; then they repeat


def episode(workload: Workload, seed: int) -> Rows:
    """Like `Workload.rows`, but each observation is the one after the step before it."""
    rows = workload.rows(LENGTH + 1, seed)
    obs = rows["obs"]
    found = {name: column[:LENGTH] for name, column in rows.items()}
    done = np.arange(LENGTH) == LENGTH - 1
    return {**found, "obs": obs[:-1], "next_obs": obs[1:], "done": done}


def episodes(workload: Workload) -> Iterator[Rows]:
    """As many as fill the capacity."""
    kinds = [episode(workload, seed) for seed in range(KINDS)]
    for i in range(workload.capacity // LENGTH):
        yield kinds[i % KINDS]


def steps(workload: Workload) -> Iterator[tuple[object, ...]]:
    """The same, a step at a time: obs, action, reward, next_obs, done."""
    for rows in episodes(workload):
        yield from zip(*rows.values(), strict=True)


def stacked(frames: npt.NDArray[np.uint8], n: int) -> npt.NDArray[np.uint8]:
    """Stacks of `n` frames along a new last axis, padded with the first."""
    padded = np.concatenate([np.repeat(frames[:1], n - 1, 0), frames])
    return np.stack([padded[i : len(padded) - n + 1 + i] for i in range(n)], -1)


def stack_workload(workload: Workload) -> Workload:
    """The workload whose observations are the stacks."""
    return replace(workload, obs_shape=(*workload.obs_shape, workload.options["views"]["stack"]))
