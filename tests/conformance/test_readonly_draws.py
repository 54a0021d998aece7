"""Handles that only read draw batches of their own, and follow the schedule of all."""

from __future__ import annotations

import os

import numpy as np
import pytest

from conformance.children import in_fork, joined
from conformance.shared import MARKS, create
from replay_buffer import LinearSchedule, ReplayBuffer
from replay_buffer.testing.content import add_numbers

pytestmark = MARKS


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank", "without_replacement"])
def test_no_two_readonly_handles_draw_the_same_batches(location: str, strategy: str) -> None:
    with create(location, strategy=strategy) as buffer:
        add_numbers(buffer, 50)
        handles = [ReplayBuffer.open(location, readonly=True) for _ in range(3)]
        drawn = {tuple(handle.sample(20)["indices"].tolist()) for handle in handles}
        drawn |= {tuple(handle.sample(20)["indices"].tolist()) for handle in handles}
        assert len(drawn) == 6
        for handle in handles:
            handle.close()


def test_the_child_of_a_fork_draws_other_batches_than_its_parent(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 50)
        with ReplayBuffer.open(location, readonly=True) as watcher:
            reading, writing = os.pipe()

            def tell() -> None:
                os.write(writing, watcher.sample(20)["indices"].tobytes())

            children = [in_fork(tell) for _ in range(2)]
            assert [joined(child) for child in children] == [0, 0]
            told = np.frombuffer(os.read(reading, 2 * 20 * 8), np.int64).reshape(2, 20)
            own = watcher.sample(20)["indices"]
            os.close(reading)
            os.close(writing)
            assert len({tuple(batch.tolist()) for batch in (*told, own)}) == 3


def test_a_schedule_is_where_all_draws_have_brought_it(location: str) -> None:
    beta = LinearSchedule(0.0, 1.0, 10)
    with create(location, strategy="prioritized", beta=beta, weights="none") as buffer:
        ids = add_numbers(buffer, 50)
        buffer.update_priorities(ids, np.linspace(0.5, 2, 50))
        mass = buffer.priorities(ids).astype(np.float64) + buffer.config.epsilon
        mass **= buffer.alpha
        with ReplayBuffer.open(location, readonly=True) as watcher:
            for drawn in range(12):
                handle = watcher if drawn % 3 == 2 else buffer
                batch = handle.sample(16)
                seen = drawn if handle is watcher else drawn - drawn // 3
                exponent = min(1.0, seen / 10)
                share = mass[np.searchsorted(ids, batch["indices"])] / mass.sum()
                np.testing.assert_allclose(batch["weights"], (50 * share) ** -exponent, rtol=1e-5)
