"""A writer for each episode or rollout: the next one goes on in the block the last one left."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, ReplayBuffer, Trajectory
from views.traffic import CHECKS, SCHEMA, Actor, Relay, config


@pytest.mark.parametrize("capacity", [500, 10_000])
def test_the_ring_is_full(capacity: int) -> None:
    buffer = ReplayBuffer(BufferConfig(capacity, storage="steps"), obs_shape=(2,), action_dim=3)
    zeros = np.zeros(2, np.float32)
    for _ in range(capacity // 5):
        with buffer.writer() as writer:
            for step in range(10):
                writer.append(zeros, 0, 1.0, step == 9, False, final_obs=zeros)
    assert len(buffer) == capacity
    whole = len(buffer.view(Trajectory()).starts())
    assert capacity // 11 - 1 <= whole <= capacity // 11


def test_a_writer_that_is_dropped_leaves_its_block_too() -> None:
    buffer = ReplayBuffer(config(1000), schema=SCHEMA)
    for i in range(400):
        Actor(buffer, i, 1, "same_step").act()
    assert len(buffer) >= 400


@pytest.mark.parametrize("block_rows", [1, 7, 16, 64])
@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
def test_nothing_of_two_writers_is_taken_for_one_stream(strategy: str, block_rows: int) -> None:
    buffer = ReplayBuffer(config(200, strategy, block_rows), schema=SCHEMA, seed=1)
    relay = Relay(buffer, 0)
    views = [(buffer.view(*parts), check) for parts, check in CHECKS]
    for i in range(600):
        relay.act()
        if i % 5:
            continue
        for view, check in views:
            starts = view.starts()
            if len(starts):
                check(view.get(starts))


def test_writers_in_many_threads_share_what_is_left() -> None:
    buffer = ReplayBuffer(config(2000, block_rows=32), schema=SCHEMA, seed=1)
    relays = [Relay(buffer, 10**6 * i) for i in range(8)]
    for _ in range(2000):
        for relay in relays:
            relay.act()
    # Of each relay a block, at most, has rows that are not there any more and none in their place.
    assert len(buffer) >= 2000 - 8 * 2 * 32


def test_a_cleared_buffer_is_begun_anew() -> None:
    buffer = ReplayBuffer(config(100, block_rows=10), schema=SCHEMA)
    actor = Actor(buffer, 1, 2, "same_step")
    actor.act()
    actor.writer.close()
    buffer.clear()
    later = Actor(buffer, 20, 2, "same_step")
    for _ in range(3):
        later.act()
    for parts, check in CHECKS[:2]:
        view = buffer.view(*parts)
        check(view.get(view.starts()))
    assert set(buffer.view().get(buffer.view().starts())["obs"][:, 0]) <= {20, 21}


def write(writer: Any, steps: int, value: int) -> None:
    zeros, never = np.zeros(writer.streams, int), np.zeros(writer.streams, bool)
    for _ in range(steps):
        writer.append(np.full((writer.streams, 1), value), zeros, zeros * 1.0, never, never)


def test_a_block_is_not_taken_up_again_when_the_ring_has_gone_on() -> None:
    config = BufferConfig(10_000, storage="steps", block_rows=1000)
    buffer = ReplayBuffer(config, obs_shape=(1,), action_dim=3)
    with buffer.writer(8) as writer:
        write(writer, 5, 1)  # leaves most of a block, for a writer of as many streams
    for _ in range(9):
        with buffer.writer() as writer:
            write(writer, 1000, 2)
    with buffer.writer(8) as writer:
        write(writer, 120, 3)
    with buffer.writer() as writer:
        write(writer, 1000, 4)
    assert (buffer.latest(1960)["obs"] >= 3).all()


def test_rank_notices_rows_in_a_block_that_was_taken_up_again() -> None:
    config = BufferConfig(4000, storage="steps", strategy="rank", block_rows=250)
    buffer = ReplayBuffer(config, obs_shape=(1,), action_dim=3)
    first, second = buffer.writer(), buffer.writer()
    write(first, 20, 1)
    write(second, 20, 2)  # has the newest block
    first.close()
    buffer.sample(32)
    write(buffer.writer(), 100, 3)
    assert 3 in buffer.sample(256)["obs"]
