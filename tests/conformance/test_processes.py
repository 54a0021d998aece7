"""One buffer and several processes: forked, spawned, handed a buffer, writing and learning."""

from __future__ import annotations

import multiprocessing
import os
import pickle
import signal
import time

import numpy as np
import pytest

from conformance.children import check_and_answer, in_fork, joined, write
from conformance.shared import MARKS, assert_sound, create
from replay_buffer import AlreadyExists, ReplayBuffer
from replay_buffer.testing.content import assert_whole

pytestmark = MARKS


def test_a_forked_child_writes_while_its_parent_does(location: str) -> None:
    with create(location, 4000, "prioritized") as buffer:
        write(buffer, 0, 5)  # the parent has a block open, which the child must leave alone
        child = in_fork(write, buffer, 10_000, 1000)
        write(buffer, 5, 995)
        assert joined(child) == 0
        stored = buffer.latest(4000)["k"]
        assert sorted(stored) == [*range(1000), *range(10_000, 11_000)]
        # Each writer's rows are in the order it wrote them.
        for own in (stored[stored < 10_000], stored[stored >= 10_000]):
            assert (np.diff(own) > 0).all()
        assert_sound(buffer)


def test_a_forked_child_that_only_ends_takes_nothing_with_it(location: str) -> None:
    with create(location, strategy="prioritized") as buffer:
        write(buffer, 0, 5)
        assert joined(in_fork(lambda: buffer.sample(4))) == 0
        assert joined(in_fork(buffer.close)) == 0
        assert joined(in_fork(lambda: None)) == 0
        write(buffer, 5, 5)
        assert buffer.latest(100)["k"].tolist() == list(range(10))
        with pytest.raises(AlreadyExists):
            create(location)


def test_a_forked_child_survives_its_parent(location: str) -> None:
    ready, go = os.pipe()

    def parent() -> None:
        buffer = create(location, 400)
        write(buffer, 0, 10)

        def child() -> None:
            os.read(ready, 1)
            write(buffer, 10, 20)

        in_fork(child)
        os.kill(os.getpid(), signal.SIGKILL)

    assert joined(in_fork(parent)) == -signal.SIGKILL
    with ReplayBuffer.open(location) as buffer:
        os.write(go, b"x")
        deadline = time.monotonic() + 20
        while len(buffer) < 30 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert buffer.latest(400)["k"].tolist() == list(range(30))
    os.close(ready)
    os.close(go)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("name", [True, False])
def test_a_buffer_is_handed_to_children(location: str, method: str, name: bool) -> None:
    context = multiprocessing.get_context(method)
    with create(location if name else "shm:", 400) as buffer:
        write(buffer, 0, 20)
        child = context.Process(target=check_and_answer, args=(buffer, 20))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert buffer.latest(2)["k"].tolist() == [19, 20]


def open_and_write(location: str) -> None:
    handle = ReplayBuffer.open(location)
    write(handle, 0, 3)
    KEPT.append(handle)  # as a module would: nothing closes it


KEPT: list[ReplayBuffer] = []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_that_ends_in_good_order_is_no_dead_owner(location: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with create(location, 400) as buffer:
        # One after the other: who opens a buffer mends what a dead one before it left.
        works = [(open_and_write, (location,)), (write, (buffer, 0, 3))]
        children = [context.Process(target=work, args=args) for work, args in works]
        for child in children:
            child.start()
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0]
        assert len(buffer) == 6
        assert [pid for _, pid, *_ in buffer._engine.owners()] == [os.getpid()]
        assert buffer._engine.verify() == []


def test_a_readonly_buffer_is_handed_on_as_such(location: str) -> None:
    with create(location) as buffer:
        write(buffer, 0, 20)
        with ReplayBuffer.open(location, readonly=True) as watcher:
            child = multiprocessing.get_context("spawn").Process(
                target=check_and_answer, args=(watcher, 20)
            )
            child.start()
            child.join(60)
        assert child.exitcode == 0
        assert len(buffer) == 20


def test_a_pickled_buffer_is_its_location(location: str) -> None:
    with create(location) as buffer:
        write(buffer, 0, 20)
        with pickle.loads(pickle.dumps(buffer)) as copy:
            assert copy.location == location
            assert copy.latest(100)["k"].tolist() == list(range(20))


def test_private_memory_is_not_handed_on() -> None:
    with create("heap:") as buffer, pytest.raises(TypeError, match="shm:"):
        pickle.dumps(buffer)


def test_processes_write_and_learn_at_once(location: str) -> None:
    def learn() -> None:
        with ReplayBuffer.open(location) as learner:
            for _ in range(300):
                batch = learner.sample(32)
                assert_whole(batch)
                learner.update_priorities(batch["indices"], np.ones(32))

    with create(location, 64, "prioritized", block_rows=8) as buffer:
        write(buffer, 0, 64)
        children = [in_fork(write, buffer, 1000 * i, 1000) for i in (1, 2)] + [in_fork(learn)]
        assert [joined(child) for child in children] == [0, 0, 0]
        assert buffer.stats()["rows_added"] == 2064
        assert_sound(buffer)
