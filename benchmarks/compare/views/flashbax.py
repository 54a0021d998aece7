"""Flashbax: sequences out of arrays with a time axis; they go on over the ends of episodes."""

from __future__ import annotations

import itertools
from typing import Any

from episodes import episodes
from timing import Call, Fresh
from workload import UnsupportedError, Workload

KEYS = 4096


class Buffer:
    """`make_trajectory_buffer`, compiled, each call waited for."""

    def __init__(self, workload: Workload) -> None:
        import jax

        self._jax = jax
        self._workload = workload
        self._state: Any = None
        self._keys = list(jax.random.split(jax.random.key(0), KEYS))
        add = jax.jit(self._kind(32).add, donate_argnums=0)
        for rows in episodes(workload):
            given = {name: rows[name] for name in ("obs", "action", "reward", "done")}
            if self._state is None:
                row = {name: jax.numpy.asarray(column[0]) for name, column in given.items()}
                self._state = self._kind(32).init(row)
            batch = {name: jax.numpy.asarray(column)[None] for name, column in given.items()}
            self._state = add(self._state, batch)

    def _kind(self, n: int) -> Any:
        import flashbax

        length = self._workload.options["views"]["length"]
        return flashbax.make_trajectory_buffer(
            add_batch_size=1,
            sample_batch_size=n,
            sample_sequence_length=length,
            period=1,
            min_length_time_axis=length,
            max_length_time_axis=self._workload.capacity,
        )

    def sequences(self, n: int) -> Call:
        draw, wait = self._jax.jit(self._kind(n).sample), self._jax.block_until_ready
        call = lambda key: wait(draw(self._state, key))  # noqa: E731
        return Call(call, (Fresh(itertools.cycle(self._keys).__next__),))


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    if "stack" in workload.options["views"]:
        raise UnsupportedError("no stacks")
    return Buffer(workload)
