"""Closing a buffer while other threads use it."""

from __future__ import annotations

from contextlib import suppress

import numpy as np
import pytest

from replay_buffer import BufferConfig, Closed, NStep, ReplayBuffer, Trajectory
from replay_buffer.testing.crowd import together
from views.world import World


def test_a_batch_that_a_close_comes_before_says_that_the_buffer_is_closed() -> None:
    world = World(20)
    world.run(world.open(1), 5, [2])
    view = world.buffer.view(NStep(2))
    whole = world.buffer.view(Trajectory())
    view.sample(1)
    whole.sample(1)
    engine = world.buffer._engine
    world.buffer.close()
    for drawn in (view, whole):
        with pytest.raises(Closed):
            engine.draw(drawn._source.plan, 2, 0.0, None, 1.0)


def test_a_batch_of_transitions_that_a_close_comes_before_says_so_too() -> None:
    buffer = ReplayBuffer(BufferConfig(20))
    buffer.add([0.0], 0, 1.0, [1.0], False)
    engine = buffer._engine
    buffer.close()
    with pytest.raises(Closed):
        engine.draw(None, 2, 0.0, None, 1.0)


def test_arrays_that_do_not_fit_are_still_no_closed_buffer() -> None:
    buffer = ReplayBuffer(BufferConfig(20))
    buffer.add([0.0], 0, 1.0, [1.0], False)
    with pytest.raises(ValueError, match="do not fit"):
        buffer._engine.draw(None, 2, 0.0, {"obs": np.zeros(3)}, 1.0)


def test_a_buffer_closes_while_threads_make_writers() -> None:
    for _ in range(10):
        buffer = ReplayBuffer(BufferConfig(1000, storage="steps"))
        kept = [buffer.writer() for _ in range(200)]

        def make(buffer: ReplayBuffer = buffer) -> None:
            mine = []
            with suppress(Closed):
                while True:
                    mine.append(buffer.writer())
            assert all(writer.closed for writer in mine)

        together(make, make, buffer.close)
        assert buffer.closed
        assert all(writer.closed for writer in kept)
