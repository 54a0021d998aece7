"""A process that writes steps is killed: its open episodes are cut, and nothing is mixed."""

from __future__ import annotations

import os
import signal
import time
from collections.abc import Callable, Iterator

import numpy as np
import pytest

from conformance.children import in_fork, joined
from replay_buffer import NStep, ReplayBuffer, Sequence
from views.test_threads import sample_and_check
from views.traffic import CHECKS, SCHEMA, Actor, check_rows, config


@pytest.fixture
def shared() -> Iterator[Callable[..., ReplayBuffer]]:
    made: list[ReplayBuffer] = []

    def make(capacity: int, block_rows: int | None = None) -> ReplayBuffer:
        made.append(
            ReplayBuffer.create("shm:", config(capacity, "uniform", block_rows), schema=SCHEMA)
        )
        return made[-1]

    yield make
    for buffer in made:
        buffer.close()


def write_for_ever(buffer: ReplayBuffer, first: int) -> None:
    actors = [Actor(buffer, first, 2, "same_step"), Actor(buffer, first + 2, 3, "next_step")]
    while True:
        for actor in actors:
            actor.act()


def check_all_starts(buffer: ReplayBuffer) -> None:
    for parts, check in CHECKS:
        view = buffer.view(*parts)
        starts = view.starts()
        if starts.size:
            check(view.get(starts))


def wait_for_rows(buffer: ReplayBuffer, rows: int) -> None:
    deadline = time.monotonic() + 30
    while buffer.stats()["rows_added"] < rows:
        assert time.monotonic() < deadline, "the child does not write"
        time.sleep(0.002)


@pytest.mark.parametrize(("capacity", "block_rows"), [(60, 4), (400, 16)])
def test_views_while_a_process_writes_and_after_it_was_killed(
    shared: Callable[..., ReplayBuffer], capacity: int, block_rows: int
) -> None:
    buffer = shared(capacity, block_rows)
    for killed in range(3):
        before = buffer.stats()["rows_added"]
        child = in_fork(write_for_ever, buffer, 1 + 100 * killed)
        try:
            wait_for_rows(buffer, before + 50)
            assert sample_and_check(buffer, 40) > 0
        finally:
            os.kill(child, signal.SIGKILL)
        assert joined(child) == -signal.SIGKILL
        check_all_starts(buffer)
        actor = Actor(buffer, 51 + 100 * killed, 4, "same_step")
        for _ in range(capacity):  # laps over what the dead one left
            actor.act()
            if _ % 8 == 0:
                check_all_starts(buffer)
        actor.writer.close()


def test_the_last_step_of_a_killed_writer_has_no_successor(
    shared: Callable[..., ReplayBuffer],
) -> None:
    buffer = shared(300, 8)

    def write_and_die() -> None:
        actor = Actor(buffer, 20, 1, "same_step")
        for _ in range(7):
            actor.act()
        os.kill(os.getpid(), signal.SIGKILL)

    assert joined(in_fork(write_and_die)) == -signal.SIGKILL
    written = {tuple(row[:3]) for row in buffer.latest(300)["obs"].tolist()}
    newest = max(written)
    actor = Actor(buffer, 20, 1, "same_step")  # says it is the same stream; it is another
    actor.episode += 50
    for _ in range(30):
        actor.act()
    for parts in ((), (NStep(9, 0.5),), (Sequence(20, cross_episodes=True),)):
        view = buffer.view(*parts)
        batch = view.get(view.starts())
        if "mask" in batch:
            old, mask = batch["obs"][..., 1] < 50, batch["mask"]
            assert ((old & mask).any(axis=1) != (~old & mask).any(axis=1)).all()
        else:
            _, episode, _ = check_rows(batch["obs"])
            _, after, _ = check_rows(batch["next_obs"])
            assert (episode == after).all()
            assert newest not in {tuple(row[:3]) for row in batch["obs"].tolist()}


def test_the_copy_of_a_writer_in_a_fork_writes_streams_of_its_own(
    shared: Callable[..., ReplayBuffer],
) -> None:
    buffer = shared(400, 8)
    actor = Actor(buffer, 1, 3, "same_step")
    for _ in range(9):
        actor.act()

    def go_on() -> None:
        for stream in range(3):  # else the episodes of the parent's environments would go on
            actor.writer.end(stream)
        actor.streams = actor.streams + 100
        actor.episode[:] = 0
        actor.step[:] = 0
        for _ in range(12):
            actor.act()
        actor.writer.close()

    child = in_fork(go_on)
    for _ in range(12):
        actor.act()
    assert joined(child) == 0
    for _ in range(3):
        actor.act()
    check_all_starts(buffer)
    streams = np.unique(buffer.sample(500)["obs"][:, 0])
    assert streams.tolist() == [1, 2, 3, 101, 102, 103]
