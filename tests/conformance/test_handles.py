"""One buffer and several handles of one process: made, opened, replaced, removed."""

from __future__ import annotations

import os
import pickle
from typing import Any

import numpy as np
import pytest

from conformance.children import killed_after, write
from conformance.shared import MARKS, SHARED_MEMORY, assert_sound, create, path_of
from replay_buffer import (
    BufferConfig,
    InvalidArgument,
    LinearSchedule,
    NotFound,
    ReplayBuffer,
)
from replay_buffer.testing.content import NUMBERED, STRATEGIES, add_numbers, assert_whole

pytestmark = MARKS


def test_a_second_handle_sees_what_the_first_one_does(location: str) -> None:
    with create(location, strategy="prioritized") as one, ReplayBuffer.open(location) as other:
        ids = add_numbers(one, 30)
        assert other.latest(100)["k"].tolist() == list(range(30))
        assert other.update_priorities(ids[:2], [5.0, 6.0]) == 2
        assert one.priorities(ids[:3]).tolist() == [5, 6, 1]
        one.alpha = 0.3
        assert other.alpha == pytest.approx(0.3)
        assert other.total_priority == one.total_priority
        other.clear()
        assert len(one) == 0


def test_handles_write_to_blocks_of_their_own_and_nothing_is_lost(location: str) -> None:
    with create(location, 400) as one, ReplayBuffer.open(location) as other:
        ids = [[one.add(k, [k] * 3) for k in range(100)], []]
        for k in range(100, 150):
            ids[0].append(one.add(k, [k] * 3))
            ids[1].append(other.add(1000 + k, [1000 + k] * 3))
        assert set(ids[0]).isdisjoint(ids[1])
        assert one.get(ids[1])["k"].tolist() == list(range(1100, 1150))
        assert other.get(ids[0])["k"].tolist() == list(range(150))
        assert len(one) == len(other) == 200
        assert one.stats()["rows_added"] == other.stats()["rows_added"] == 200


def test_an_opened_buffer_has_the_columns_and_options_of_the_segment(location: str) -> None:
    options: dict[str, Any] = {
        "alpha": 0.7,
        "beta": LinearSchedule(0.4, 1.0, 100),
        "epsilon": 1e-3,
        "weights": "global",
        "cer": True,
        "block_rows": 9,
    }
    with create(location, 90, "prioritized", **options), ReplayBuffer.open(location) as opened:
        assert opened.config == BufferConfig(90, "prioritized", **options)
        assert opened.schema == NUMBERED
        assert opened.location == location
        assert location in repr(opened)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_draws_rows_that_another_handle_wrote(location: str, strategy: str) -> None:
    with create(location, 60, strategy) as writer, ReplayBuffer.open(location) as learner:
        add_numbers(writer, 90)
        batch = learner.sample(30)
        assert_whole(batch)
        assert batch["k"].min() >= 30


def test_handles_take_turns_in_one_sequence_of_draws(location: str) -> None:
    """Two learners never draw the same batch: the generator belongs to the buffer."""
    with create(location) as one, ReplayBuffer.open(location) as other:
        twin = ReplayBuffer(BufferConfig(100), schema=NUMBERED, seed=0)
        for buffer in (one, twin):
            add_numbers(buffer, 100)
        for turn in range(10):
            learner = one if turn % 3 else other
            assert np.array_equal(learner.sample(8)["k"], twin.sample(8)["k"])


# ---- opening and creating


def test_what_does_not_exist_is_not_found(location: str) -> None:
    for readonly in (False, True):
        with pytest.raises(NotFound, match=f"no buffer {location}: .*{path_of(location).name}"):
            ReplayBuffer.open(location, readonly=readonly)


def test_what_a_crash_left_can_be_opened(location: str) -> None:
    killed_after(lambda: write(create(location, strategy="prioritized"), 0, 37))
    with ReplayBuffer.open(location) as buffer:
        assert buffer.latest(100)["k"].tolist() == list(range(37))
        assert_sound(buffer)
        add_numbers(buffer, 200)
        assert len(buffer) == 100
        assert_sound(buffer)


def test_unlink_removes_the_name_and_the_buffer_lives_on(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 3)
        buffer.unlink()
        assert not path_of(location).exists()
        assert len(buffer) == 3
        with create(location) as another:
            assert len(another) == 0
            assert len(buffer) == 3
            buffer.unlink()  # the name is that of the other by now
            assert path_of(location).exists()


def test_shared_memory_without_a_name_is_nowhere() -> None:
    before = set(os.listdir(SHARED_MEMORY))
    with create("shm:") as buffer:
        add_numbers(buffer, 3)
        assert set(os.listdir(SHARED_MEMORY)) <= before
        for call in (
            lambda: ReplayBuffer.open("shm:"),
            buffer.unlink,
            lambda: pickle.dumps(buffer),
        ):
            with pytest.raises((InvalidArgument, TypeError), match="name"):
                call()


@pytest.mark.parametrize("bad", ["", "atari", "shm:a/b", "disk:x", "file:", "heap:name"])
def test_what_is_no_location_is_refused(bad: str) -> None:
    with pytest.raises(InvalidArgument):
        create(bad)
    with pytest.raises(InvalidArgument):
        ReplayBuffer.open(bad)


def test_what_is_missing_for_the_layout_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"obs_dtype.*action_dtype"):
        ReplayBuffer.create("shm:", BufferConfig(8), obs_shape=(3,), action_dim=2)
