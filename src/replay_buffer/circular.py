"""SharedCircularBuffer: the plain circular buffer of five fields, in shared memory."""

from __future__ import annotations

from typing import Any

import numpy as np
from numpy.random import RandomState

from .arguments import count
from .buffer import ReplayBuffer
from .config import BufferConfig
from .errors import InvalidArgument, NotEnoughRows, RowGone
from .schema import Column, Schema

_TRIES = 3


class SharedCircularBuffer:
    """Transitions (state, action, reward, next_state, done) in a ring of fixed size.

    States are float64 of `state_dim`, actions int64, rewards float64, dones bool. When the buffer
    is full the oldest transition is overwritten. Batches are dicts of Python lists.

    It lives in shared memory without a name: processes that it is handed to when they are started
    push to and draw from the same ring, and nothing is left when the last of them ends.
    """

    def __init__(self, capacity: int, state_dim: int) -> None:
        state = Column((count("state_dim", state_dim),), "float64")
        schema = Schema(
            {
                "states": state,
                "actions": Column((), "int64"),
                "rewards": Column((), "float64"),
                "next_states": state,
                "dones": Column((), "bool"),
            }
        )
        # Blocks of one row: what several processes push is in the order they pushed it.
        config = BufferConfig(capacity, block_rows=1)
        self._buffer = ReplayBuffer.create("shm:", config, schema=schema, seed=0)

    def push(self, state: Any, action: int, reward: float, next_state: Any, done: bool) -> None:
        """Write a transition at the current position and advance, around the end if need be."""
        self._buffer.add(state, action, reward, next_state, done)

    def sample(self, batch_size: int, seed: int | None = None) -> dict[str, list[Any]]:
        """Transitions at random positions of the filled part, drawn by RandomState(seed)."""
        batch_size = count("batch_size", batch_size, least=0)
        random = _generator(seed)
        size = len(self)
        if size == 0:
            raise NotEnoughRows(f"cannot sample {batch_size} transitions: the buffer is empty")
        positions = random.randint(0, size, size=batch_size)
        for _ in range(_TRIES):
            newest = self._buffer.peek_latest(1).indices
            try:
                return self._lists(newest - (newest - positions) % self._buffer.capacity)
            except RowGone:
                continue  # overwritten between the two calls
        # Or a process was killed in the middle of a push, and the ring has a hole.
        while True:
            ids = self._buffer.peek_latest(size).indices
            by_position = ids[np.argsort(ids % self._buffer.capacity)]
            try:
                return self._lists(by_position[positions % len(ids)])
            except RowGone:
                continue

    def latest(self, n: int) -> dict[str, list[Any]]:
        """The n newest transitions, oldest first; all of them when there are fewer."""
        n = count("n", n, least=0)
        if n == 0:
            return {name: [] for name in self._fields()}
        batch = self._buffer.latest(n)
        return {name: batch[name].tolist() for name in self._fields()}

    def __len__(self) -> int:
        return len(self._buffer)

    def _fields(self) -> tuple[str, ...]:
        assert self._buffer.schema is not None
        return tuple(self._buffer.schema.fields)

    def _lists(self, ids: Any) -> dict[str, list[Any]]:
        batch = self._buffer.get(ids)
        return {name: batch[name].tolist() for name in self._fields()}


def _generator(seed: Any) -> RandomState:
    try:
        return RandomState(seed)
    except (TypeError, ValueError) as error:
        raise InvalidArgument(f"seed: {error}") from None
