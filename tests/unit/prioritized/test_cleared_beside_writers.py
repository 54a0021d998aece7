"""clear() takes all mass away, also that of rows in blocks which other writers have open."""

from __future__ import annotations

import os
import signal
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from typing import Any

import numpy as np
import pytest

from conformance.children import in_fork, joined
from replay_buffer import BufferConfig, Column, NStep, ReplayBuffer
from replay_buffer.testing.crowd import Crowd

pytestmark = pytest.mark.usefixtures("shm_dir")

ROWS = {"k": Column((), "int64")}
STEPS = {
    "obs": Column(),
    "action": Column((), "int64"),
    "reward": Column(),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}
STEP = (0.0, 1, 0.5, False, False)


def create(schema: Any, **options: Any) -> ReplayBuffer:
    config = BufferConfig(
        1000, strategy="prioritized", alpha=1.0, beta=1.0, epsilon=0.0, weights="none", **options
    )
    return ReplayBuffer.create("shm:cleared", config, schema=schema)


def live_mass(buffer: ReplayBuffer) -> float:
    return float(buffer.priorities(buffer.latest(buffer.capacity)["indices"]).sum())


def add_seven(buffer: ReplayBuffer) -> None:
    buffer.add_batch(np.arange(7), priority=np.full(7, 5.0))


@contextmanager
def this_process() -> Iterator[None]:
    with ReplayBuffer.open("shm:cleared") as actor:
        for k in range(3):
            actor.add(k, priority=1e9)
        yield


@contextmanager
def another_process(stopped: bool = False) -> Iterator[None]:
    ready, told = os.pipe()
    go_on, end = os.pipe()

    def act() -> None:
        with this_process():
            os.close(end)
            os.write(told, b".")
            os.read(go_on, 1)

    child = in_fork(act)
    assert os.read(ready, 1) == b"."
    if stopped:
        os.kill(child, signal.SIGSTOP)
    try:
        yield
    finally:
        os.kill(child, signal.SIGCONT)
        os.close(end)
        assert joined(child) == 0
        for fd in (ready, told, go_on):
            os.close(fd)


ACTORS: dict[str, Callable[[], Any]] = {
    "this process": this_process,
    "another process": another_process,
    "a stopped process": lambda: another_process(stopped=True),
}


@pytest.mark.parametrize("actor", ACTORS)
def test_rows_of_an_idle_writer_have_no_mass_after_clear(actor: str) -> None:
    with create(ROWS) as buffer, ACTORS[actor]():
        assert buffer.total_priority == 3e9
        buffer.clear()
        assert (len(buffer), buffer.total_priority) == (0, 0)
        buffer.add_batch(np.arange(100), priority=np.ones(100))
        assert buffer.total_priority == 100
        assert (buffer.sample(50)["weights"] == 1).all()
        assert buffer._engine.verify() == []


def test_steps_of_an_idle_writer_have_no_mass_after_clear() -> None:
    with create(STEPS, storage="steps") as buffer:
        idle = buffer.writer()
        for _ in range(3):
            idle.append(*STEP, priority=1e9)
        buffer.clear()
        assert buffer.total_priority == 0
        with closing(buffer.writer()) as writer:
            for _ in range(100):
                writer.append(*STEP, priority=1.0)
        assert buffer.total_priority == pytest.approx(live_mass(buffer))
        for view in (buffer.view(), buffer.view(NStep(3))):
            assert (view.sample(50)["weights"] == 1).all()
        idle.append(*STEP, priority=2.0)
        assert buffer.total_priority == pytest.approx(live_mass(buffer))
        assert buffer._engine.verify() == []


@pytest.mark.parametrize("block_rows", [3, 50])
def test_writers_beside_clear_leave_no_mass_of_rows_that_are_gone(block_rows: int) -> None:
    with create(ROWS, block_rows=block_rows) as buffer:
        actors = [ReplayBuffer.open("shm:cleared") for _ in range(3)]
        for _ in range(20):
            with Crowd() as crowd:
                for actor in actors:
                    crowd.repeat(add_seven, actor)
                for _ in range(10):
                    buffer.clear()
            assert buffer.total_priority == pytest.approx(live_mass(buffer))
            assert buffer._engine.verify() == []
        for actor in actors:
            actor.close()
