"""Handles that only read: what they see, and that they change nothing."""

from __future__ import annotations

import os
from typing import Any

import numpy as np
import pytest

from conformance.children import in_fork, joined
from conformance.shared import MARKS, assert_sound, create, path_of
from replay_buffer import BufferConfig, PermissionDenied, ReadOnly, ReplayBuffer
from replay_buffer.testing.content import NUMBERED, add_numbers, assert_whole

pytestmark = MARKS


def test_a_readonly_handle_reads_and_cannot_write(location: str) -> None:
    with create(location, strategy="prioritized") as buffer:
        ids = add_numbers(buffer, 30)
        with ReplayBuffer.open(location, readonly=True) as watcher:
            assert watcher.readonly
            assert not buffer.readonly
            calls: list[Any] = [
                lambda: add_numbers(watcher, 1),
                lambda: watcher.add(0, [0, 0, 0]),
                lambda: watcher.update_priorities(ids, np.ones(30)),
                watcher.clear,
                lambda: setattr(watcher, "alpha", 0.1),
            ]
            for call in calls:
                with pytest.raises(ReadOnly):
                    call()
            assert watcher.get(ids)["k"].tolist() == list(range(30))
            assert_sound(watcher)
        assert buffer.alpha == pytest.approx(0.6)
        assert len(buffer) == 30


@pytest.mark.parametrize(
    "strategy", ["uniform", "prioritized", "rank", "without_replacement", "lifo"]
)
def test_a_readonly_handle_draws_without_being_counted(location: str, strategy: str) -> None:
    with create(location, strategy=strategy) as buffer:
        add_numbers(buffer, 50)
        twin = ReplayBuffer(BufferConfig(100, strategy=strategy), schema=NUMBERED, seed=0)  # type: ignore[arg-type]
        add_numbers(twin, 50)
        before = buffer.stats()
        with ReplayBuffer.open(location, readonly=True) as watcher:
            for _ in range(10):
                assert_whole(watcher.sample(16))
        after = buffer.stats()
        changing = {"resident_bytes"}
        assert all(after[name] == before[name] for name in before if name not in changing)
        assert np.array_equal(buffer.sample(16)["k"], twin.sample(16)["k"])


def test_a_readonly_handle_follows_the_writer(location: str) -> None:
    with create(location) as buffer, ReplayBuffer.open(location, readonly=True) as watcher:
        for k in range(0, 300, 50):
            add_numbers(buffer, 50, first=k)
            assert watcher.latest(3)["k"].tolist() == [k + 47, k + 48, k + 49]
            assert watcher.stats()["rows_added"] == k + 50


def test_a_readonly_handle_needs_no_permission_to_write(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 30)
        path = path_of(location)
        path.chmod(0o444)
        path.parent.chmod(path.parent.stat().st_mode | 0o055)

        def watch() -> None:
            if os.getuid() == 0:
                os.setuid(65534)
            with ReplayBuffer.open(location, readonly=True) as watcher:
                assert watcher.latest(100)["k"].tolist() == list(range(30))
                assert_whole(watcher.sample(8))
            with pytest.raises(PermissionDenied):
                ReplayBuffer.open(location)

        assert joined(in_fork(watch)) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_another_user_cannot_open_a_buffer(location: str) -> None:
    with create(location):
        path_of(location).parent.chmod(path_of(location).parent.stat().st_mode | 0o055)

        def try_it() -> None:
            os.setuid(65534)
            for readonly in (False, True):
                with pytest.raises(PermissionDenied):
                    ReplayBuffer.open(location, readonly=readonly)

        assert joined(in_fork(try_it)) == 0
