"""Stable-Baselines3: n steps are made when rows are drawn."""

from __future__ import annotations

import numpy as np
import torch_threads
from episodes import steps
from timing import Call
from workload import ACTIONS, UnsupportedError, Workload


class Buffer:
    """`NStepReplayBuffer`."""

    def __init__(self, workload: Workload) -> None:
        from gymnasium import spaces
        from stable_baselines3.common.buffers import NStepReplayBuffer

        views = workload.options["views"]
        space = spaces.Box(-np.inf, np.inf, workload.obs_shape, np.float32)
        self._buffer = NStepReplayBuffer(
            workload.capacity,
            space,
            spaces.Discrete(ACTIONS),
            device="cpu",
            n_steps=views["n"],
            gamma=views["gamma"],
        )
        infos: list[dict[str, object]] = [{}]
        for obs, action, reward, next_obs, done in steps(workload):
            self._buffer.add(obs, next_obs, action, reward, done, infos)

    def n_step(self, n: int) -> Call:
        torch_threads.choose(lambda: self._buffer.sample(n))
        return Call(self._buffer.sample, (n,))


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    if "stack" in workload.options["views"]:
        raise UnsupportedError("no stacks")
    return Buffer(workload)
