"""rlox: sequences that never cross episodes."""

from __future__ import annotations

import itertools

import numpy as np
from episodes import steps
from timing import Call, Fresh
from workload import UnsupportedError, Workload


class Buffer:
    """`SequenceReplayBuffer`; the action is a vector of one float32."""

    def __init__(self, workload: Workload) -> None:
        import rlox

        self._length = workload.options["views"]["length"]
        self._seed = Fresh(itertools.count().__next__)
        self._buffer = rlox.SequenceReplayBuffer(workload.capacity, workload.obs_shape[0], 1)
        for obs, action, reward, next_obs, done in steps(workload):
            given = np.array([action], np.float32)
            self._buffer.push(obs, next_obs, given, float(reward), bool(done), False)

    def sequences(self, n: int) -> Call:
        return Call(self._buffer.sample_sequences, (n, self._length, self._seed))


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    if "stack" in workload.options["views"]:
        raise UnsupportedError("no stacks")
    return Buffer(workload)
