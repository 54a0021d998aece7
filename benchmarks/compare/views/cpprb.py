"""cpprb: n steps are made when rows are added; stacks share their frames."""

from __future__ import annotations

from typing import Any

import numpy as np
from episodes import episodes, stack_workload, stacked
from timing import Call
from workload import Workload


def columns(workload: Workload) -> dict[str, Any]:
    """All but the next observation."""
    return {
        "obs": {"shape": workload.obs_shape, "dtype": np.dtype(workload.obs_dtype)},
        "action": {"dtype": np.int64},
        "reward": {"dtype": np.float32},
        "done": {"dtype": np.bool_},
    }


class Steps:
    """`Nstep`."""

    def __init__(self, workload: Workload) -> None:
        import cpprb

        views = workload.options["views"]
        given = columns(workload)
        wanted = {"size": views["n"], "gamma": views["gamma"], "rew": "reward", "next": "next_obs"}
        self._buffer = cpprb.ReplayBuffer(
            workload.capacity, {**given, "next_obs": given["obs"]}, Nstep=wanted
        )
        for rows in episodes(workload):
            self._buffer.add(**rows)
            self._buffer.on_episode_end()

    def n_step(self, n: int) -> Call:
        return Call(self._buffer.sample, (n,))


class Stacks:
    """`stack_compress` and `next_of`; stacks are made by the environment."""

    def __init__(self, workload: Workload) -> None:
        import cpprb

        frames = workload.options["views"]["stack"]
        given = columns(stack_workload(workload))
        self._buffer = cpprb.ReplayBuffer(
            workload.capacity, given, stack_compress="obs", next_of="obs"
        )
        for rows in episodes(workload):
            every = np.concatenate([rows["obs"], rows["next_obs"][-1:]])
            stacks = stacked(every, frames)
            self._buffer.add(**{**rows, "obs": stacks[:-1], "next_obs": stacks[1:]})
            self._buffer.on_episode_end()

    def stacks(self, n: int) -> Call:
        return Call(self._buffer.sample, (n,))


def make(workload: Workload) -> Steps | Stacks:
    """A full buffer."""
    return (Stacks if "stack" in workload.options["views"] else Steps)(workload)
