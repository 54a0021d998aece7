"""This package, built from the checkout this file stands in."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from typing import Any

from draws import priorities, updates
from timing import Call
from workload import ACTIONS, Workload

TITLE = "replay_buffer"
ROOT = Path(__file__).resolve().parents[3]
INSTALL = ((str(ROOT),),)
CAN = frozenset({"prioritized", "views"})


def steps() -> tuple[tuple[str, ...], ...]:
    """Like `INSTALL`, but compiling only what has changed since the last run."""
    command = [sys.executable, "scripts/requirements.py", "build"]
    ran = subprocess.run(command, capture_output=True, check=True, cwd=ROOT, text=True)
    kept = f"--config-settings=build-dir={ROOT}/out/peers/compiled"
    return tuple(ran.stdout.split("\n")[:-1]), ("--no-build-isolation", kept, str(ROOT))


class Buffer:
    """Positional calls with NumPy arrays, as in a training loop."""

    def __init__(self, workload: Workload) -> None:
        from replay_buffer import BufferConfig, ReplayBuffer

        prioritized = workload.options.get("prioritized")
        options = {"strategy": "prioritized", **prioritized} if prioritized else {}
        config = BufferConfig(capacity=workload.capacity, **options)
        self._buffer: Any = ReplayBuffer(
            config, obs_shape=workload.obs_shape, action_dim=ACTIONS, seed=0
        )
        self._workload = workload
        self._row = tuple(column[0] for column in workload.rows(1).values())
        self._buffer.add(*self._arguments())
        for chunk in workload.chunks():
            ids = self._buffer.add_batch(*chunk.values())
            if prioritized:
                self._buffer.update_priorities(ids, priorities(len(ids)))

    def _arguments(self) -> tuple[Any, ...]:
        obs, action, reward, next_obs, done = self._row
        return obs, int(action), float(reward), next_obs, bool(done)

    def add_one(self) -> Call:
        return Call(self._buffer.add, self._arguments())

    def add_batch(self, n: int) -> Call:
        return Call(self._buffer.add_batch, tuple(self._workload.rows(n).values()))

    def sample(self, n: int) -> Call:
        return Call(self._buffer.sample, (n,))

    def sample_into(self, n: int) -> Call:
        return Call(self._buffer.sample, (n,), {"out": self._buffer.sample(n)})


class Prioritized(Buffer):
    """The same with priorities."""

    def add_one_with_priority(self) -> Call:
        return Call(self._buffer.add, self._arguments(), {"priority": 0.5})

    def update(self, n: int) -> Call:
        drawn = updates(lambda: self._buffer.sample(n)["indices"], n, lambda errors: errors)
        return Call(self._buffer.update_priorities, drawn)


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return (Prioritized if "prioritized" in workload.options else Buffer)(workload)
