"""This package: one buffer of steps, and views of it."""

from __future__ import annotations

from typing import Any

from episodes import LENGTH, steps
from timing import Call
from workload import ACTIONS, Workload


class Buffer:
    """Steps of one stream."""

    def __init__(self, workload: Workload) -> None:
        from replay_buffer import BufferConfig, ReplayBuffer

        rows = workload.capacity + workload.capacity // LENGTH  # last observations are rows too
        self._views = workload.options["views"]
        self._buffer: Any = ReplayBuffer(
            BufferConfig(capacity=rows, storage="steps"),
            obs_shape=workload.obs_shape,
            obs_dtype=workload.obs_dtype,
            action_dim=ACTIONS,
            seed=0,
        )
        with self._buffer.writer() as writer:
            for obs, action, reward, next_obs, done in steps(workload):
                final = {"final_obs": next_obs} if done else {}
                writer.append(obs, action, reward, done, False, **final)

    def n_step(self, n: int) -> Call:
        from replay_buffer import NStep

        view = self._buffer.view(NStep(self._views["n"], gamma=self._views["gamma"]))
        return Call(view.sample, (n,))

    def sequences(self, n: int) -> Call:
        from replay_buffer import Sequence

        return Call(self._buffer.view(Sequence(self._views["length"], pad=False)).sample, (n,))

    def stacks(self, n: int) -> Call:
        from replay_buffer import FrameStack

        return Call(self._buffer.view(FrameStack(self._views["stack"])).sample, (n,))


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return Buffer(workload)
