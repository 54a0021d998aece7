"""SharedCircularBuffer between processes."""

from __future__ import annotations

import multiprocessing
import os
import signal

import pytest

from replay_buffer import SharedCircularBuffer

METHODS = ["fork", "spawn"]


def push_many(buffer: SharedCircularBuffer, worker: int, count: int) -> None:
    for i in range(count):
        buffer.push([worker, i], worker, float(i), [worker, i + 1], i % 2 == 0)


def push_for_ever(buffer: SharedCircularBuffer, worker: int) -> None:
    while True:
        push_many(buffer, worker, 1000)


@pytest.mark.parametrize("method", METHODS)
def test_what_a_child_pushes_is_there(method: str) -> None:
    context = multiprocessing.get_context(method)
    buffer = SharedCircularBuffer(100, 2)
    push_many(buffer, 0, 5)
    child = context.Process(target=push_many, args=(buffer, 1, 10))
    child.start()
    child.join(60)
    assert child.exitcode == 0
    push_many(buffer, 2, 3)
    assert len(buffer) == 18
    latest = buffer.latest(100)
    assert latest["actions"] == [0] * 5 + [1] * 10 + [2] * 3
    assert latest["states"][5:8] == [[1, 0], [1, 1], [1, 2]]
    batch = buffer.sample(50, seed=3)
    assert {tuple(s) for s in batch["states"]} <= {tuple(s) for s in latest["states"]}


@pytest.mark.parametrize("method", METHODS)
def test_several_processes_share_one_ring(method: str) -> None:
    context = multiprocessing.get_context(method)
    buffer = SharedCircularBuffer(50, 2)
    children = [context.Process(target=push_many, args=(buffer, w, 200)) for w in range(3)]
    for child in children:
        child.start()
    for child in children:
        child.join(60)
        assert child.exitcode == 0
    assert len(buffer) == 50
    latest = buffer.latest(50)
    for worker in range(3):
        rewards = [
            r for r, a in zip(latest["rewards"], latest["actions"], strict=True) if a == worker
        ]
        assert rewards == sorted(rewards)
    for state, action, reward in zip(
        latest["states"], latest["actions"], latest["rewards"], strict=True
    ):
        assert state == [action, reward]


def test_a_killed_child_leaves_a_ring_that_works() -> None:
    context = multiprocessing.get_context("fork")
    buffer = SharedCircularBuffer(20, 2)
    push_many(buffer, 9, 20)
    for _ in range(10):
        child = context.Process(target=push_for_ever, args=(buffer, 1))
        child.start()
        while buffer.latest(1)["actions"] != [1]:
            pass
        assert child.pid is not None
        os.kill(child.pid, signal.SIGKILL)
        child.join(60)
        push_many(buffer, 9, 1)
        batch = buffer.sample(40, seed=0)
        for state, action, reward in zip(
            batch["states"], batch["actions"], batch["rewards"], strict=True
        ):
            assert state == [action, reward]
    push_many(buffer, 9, 40)
    assert len(buffer) == 20
    assert buffer.latest(20)["rewards"] == [float(i) for i in range(20, 40)]


def test_nothing_is_left_in_shared_memory() -> None:
    before = set(os.listdir("/dev/shm"))
    buffer = SharedCircularBuffer(1000, 8)
    push_many(SharedCircularBuffer(10, 2), 0, 3)
    assert set(os.listdir("/dev/shm")) == before
    assert len(buffer) == 0
