"""Closing a buffer while other threads use it."""

from __future__ import annotations

import sys
import threading
from collections.abc import Iterator

import numpy as np
import pytest

from replay_buffer import BufferConfig, Closed, NStep, ReplayBuffer, Trajectory
from views.world import World


def test_a_batch_that_a_close_comes_before_says_that_the_buffer_is_closed() -> None:
    world = World(20)
    world.run(world.open(1), 5, [2])
    view = world.buffer.view(NStep(2))
    whole = world.buffer.view(Trajectory())._measure()  # type: ignore[attr-defined]
    view.sample(1)
    world.buffer.close()
    for prepared in (view._sample_prepared, whole._sample_prepared):
        with pytest.raises(Closed):
            prepared(2, out=None, beta=None, timeout=1.0)


def test_a_batch_of_transitions_that_a_close_comes_before_says_so_too() -> None:
    buffer = ReplayBuffer(BufferConfig(20))
    buffer.add([0.0], 0, 1.0, [1.0], False)
    buffer.close()
    with pytest.raises(Closed):
        buffer._sample_prepared(2, out=None, beta=None, timeout=1.0)


def test_arrays_that_do_not_fit_are_still_no_closed_buffer() -> None:
    buffer = ReplayBuffer(BufferConfig(20))
    buffer.add([0.0], 0, 1.0, [1.0], False)
    with pytest.raises(ValueError, match="do not fit"):
        buffer._sample_prepared(2, out={"obs": np.zeros(3)}, beta=None, timeout=1.0)


@pytest.fixture
def hurried() -> Iterator[None]:
    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    yield
    sys.setswitchinterval(before)


@pytest.mark.usefixtures("hurried")
def test_a_buffer_closes_while_threads_make_writers() -> None:
    for _ in range(10):
        buffer = ReplayBuffer(BufferConfig(1000, storage="steps"))
        kept = [buffer.writer() for _ in range(200)]
        wrong: list[BaseException] = []
        barrier = threading.Barrier(3)

        def make(
            buffer: ReplayBuffer = buffer,
            wrong: list[BaseException] = wrong,
            barrier: threading.Barrier = barrier,
        ) -> None:
            mine = []
            barrier.wait()
            try:
                while True:
                    mine.append(buffer.writer())
            except Closed:
                wrong.extend(RuntimeError("open") for writer in mine if not writer.closed)
            except BaseException as error:
                wrong.append(error)

        threads = [threading.Thread(target=make) for _ in range(2)]
        for thread in threads:
            thread.start()
        barrier.wait()
        buffer.close()
        for thread in threads:
            thread.join()
        assert wrong == []
        assert buffer.closed
        assert all(writer.closed for writer in kept)
