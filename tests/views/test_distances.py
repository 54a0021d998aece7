"""Rows whose distances change from lap to lap, while another process writes them."""

from __future__ import annotations

import time

import numpy as np
import pytest

from conformance.children import in_fork, joined
from replay_buffer import BufferConfig, Column, NotEnoughRows, NStep, ReplayBuffer

STREAMS = 32
SCHEMA = {
    "obs": Column((2,), "int64"),  # stream, number
    "action": Column((), "int64"),
    "reward": Column((), "float64"),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}


def write(buffer: ReplayBuffer, until: float) -> None:
    """Steps of streams whose episodes end at random: last observations lie between the rows."""
    random = np.random.default_rng(1)
    ends = [random.random(STREAMS) < 0.06 for _ in range(997)]
    streams, zeros, ones = np.arange(STREAMS), np.zeros(STREAMS, np.int64), np.ones(STREAMS)
    never = np.zeros(STREAMS, bool)
    with buffer.writer(streams=STREAMS) as writer:
        call = 0
        while time.time() < until:
            for _ in range(100):
                obs = np.stack([streams, np.full(STREAMS, call)], 1)
                end = ends[call % len(ends)]
                call += 1
                writer.append(obs, zeros, ones, never, end, final_obs=obs + np.array([0, 1]))


def watch(seconds: float) -> int:
    """Draws n steps all the while, each of one stream and without a gap; how many there were."""
    config = BufferConfig(capacity=512, storage="steps", block_rows=128)
    until = time.time() + seconds
    drawn = 0
    with ReplayBuffer.create("shm:", config, schema=SCHEMA, seed=1) as buffer:
        actor = in_fork(write, buffer, until)
        views = [buffer.view(NStep(n, gamma=1.0)) for n in (2, 3, 8)]
        while time.time() < until:
            try:
                batch = views[drawn % 3].sample(64)
            except NotEnoughRows:
                time.sleep(0.01)  # nothing is written yet
                continue
            drawn += 1
            before, after = batch["obs"], batch["next_obs"]
            np.testing.assert_array_equal(before[:, 0], after[:, 0])
            np.testing.assert_array_equal(before[:, 1] + batch["k"], after[:, 1])
        assert joined(actor) == 0
    return drawn


def test_n_steps_stay_in_their_stream_while_distances_change() -> None:
    assert watch(6) > 0


@pytest.mark.soak
@pytest.mark.timeout(600)
def test_n_steps_stay_in_their_stream_while_distances_change_for_long() -> None:
    assert watch(120) > 0
