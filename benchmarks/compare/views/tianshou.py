"""Tianshou: `stack_num` reads any column backwards in time; n steps are an algorithm's."""

from __future__ import annotations

from typing import Any

import numpy as np
from episodes import steps
from timing import Call
from workload import Workload

COLUMNS = ("obs", "act", "rew", "terminated", "truncated")


class Buffer:
    """`ReplayBuffer`; next observations are stored unless there are stacks."""

    def __init__(self, workload: Workload) -> None:
        from tianshou import data

        self._views = workload.options["views"]
        stack = self._views.get("stack", 1)
        self._buffer: Any = data.ReplayBuffer(
            workload.capacity, stack_num=stack, ignore_obs_next=stack > 1
        )
        for obs, action, reward, next_obs, done in steps(workload):
            self._buffer.add(
                data.Batch(
                    obs=obs,
                    act=action,
                    rew=float(reward),
                    terminated=done,
                    truncated=np.False_,
                    obs_next=next_obs,
                    info={},
                )
            )

    def stacks(self, n: int) -> Call:
        return Call(self._buffer.sample, (n,))


class Vectors(Buffer):
    """What needs more than one call."""

    def n_step(self, n: int) -> Call:
        import torch
        from tianshou.algorithm import Algorithm

        buffer, views, values = self._buffer, self._views, torch.zeros(n)

        def target(of: Any, indices: Any) -> torch.Tensor:
            of[indices].obs_next  # noqa: B018  what the network would be given
            return values

        def draw() -> Any:
            batch, indices = buffer.sample(n)
            return Algorithm.compute_nstep_return(
                batch, buffer, indices, target, views["gamma"], views["n"]
            )

        return Call(draw)

    def sequences(self, n: int) -> Call:
        buffer, length = self._buffer, self._views["length"]

        def draw() -> dict[str, Any]:
            indices = buffer.sample_indices(n)
            return {name: buffer.get(indices, name, stack_num=length) for name in COLUMNS}

        return Call(draw)


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return (Buffer if "stack" in workload.options["views"] else Vectors)(workload)
