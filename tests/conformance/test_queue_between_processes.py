"""A queue that several processes draw from: a batch is taken whole or not at all."""

from __future__ import annotations

import os
from collections import Counter
from typing import Any

import numpy as np
import pytest

from conformance.children import in_fork, joined
from conformance.shared import MARKS, create
from replay_buffer import NotEnoughRows, ReplayBuffer
from replay_buffer.testing.content import add_numbers

pytestmark = MARKS


def _drain(location: str, out: int, batch_size: int, tries: int) -> None:
    """Draws until there is too little, time after time; tells which rows it got."""
    with ReplayBuffer.open(location) as consumer:
        for _ in range(tries):
            try:
                os.write(out, consumer.sample(batch_size)["indices"].tobytes())
            except NotEnoughRows:
                continue


def _write(location: str, rows: int) -> None:
    with ReplayBuffer.open(location) as buffer:
        for _ in range(rows):
            add_numbers(buffer, 1)


@pytest.mark.parametrize("block_rows", [1, 4, 16])
@pytest.mark.parametrize("times", [1, 3])
def test_consumers_that_race_for_the_last_rows_lose_none(
    location: str, times: int, block_rows: int
) -> None:
    rows = 600
    for seed in range(4):
        options: dict[str, Any] = {"max_times_sampled": times, "block_rows": block_rows}
        with create(location, strategy="fifo", capacity=1000, **options) as buffer:
            add_numbers(buffer, 10)
            reading, writing = os.pipe()
            sizes = np.random.default_rng(seed).integers(2, 9, 3)
            children = [in_fork(_drain, location, writing, int(n), 400) for n in sizes]
            children.append(in_fork(_write, location, rows))
            os.close(writing)
            told = b""
            while part := os.read(reading, 1 << 16):
                told += part
            os.close(reading)
            assert [joined(child) for child in children] == [0] * 4
            drawn = np.frombuffer(told, np.int64).tolist()
            while True:
                try:
                    drawn += buffer.sample(1)["indices"].tolist()
                except NotEnoughRows:
                    break
            written = buffer.latest(rows + 10)["indices"].tolist()
            assert len(written) == rows + 10
            assert Counter(drawn) == dict.fromkeys(written, times)
            assert not buffer._engine.verify()
            buffer.unlink()


def test_rows_that_were_given_back_are_in_a_checkpoint(location: str, tmp_path: Any) -> None:
    """Each consumer takes more than is left, so that one of them gives back again and again."""
    with create(location, strategy="fifo", capacity=100, block_rows=4) as buffer:
        add_numbers(buffer, 60)
        reading, writing = os.pipe()
        children = [in_fork(_drain, location, writing, n, 200) for n in (7, 11)]
        os.close(writing)
        told = b""
        while part := os.read(reading, 1 << 16):
            told += part
        os.close(reading)
        assert [joined(child) for child in children] == [0, 0]
        drawn = np.frombuffer(told, np.int64).tolist()
        buffer.checkpoint(tmp_path / "saved")
        with ReplayBuffer.restore(tmp_path / "saved") as restored:
            for handle in (buffer, restored):
                rest = handle.sample(60 - len(drawn))["indices"].tolist()
                assert sorted(drawn + rest) == list(range(60))
                with pytest.raises(NotEnoughRows):
                    handle.sample(1)


@pytest.mark.parametrize("laps", [1, 2, 3, 7.5])
@pytest.mark.parametrize("written_before", [1, 3, 15])
def test_rows_of_a_slow_writer_are_given_out_however_far_the_others_have_got(
    location: str, written_before: int, laps: float
) -> None:
    """The others pass over the block that it holds. Rows come in the order of their ids."""
    limits: dict[str, Any] = {"samples_per_insert": 1, "tolerance": 40}
    options: dict[str, Any] = {"strategy": "fifo", "capacity": 200, "block_rows": 16, **limits}
    with (
        create(location, **options) as fast,
        ReplayBuffer.open(location) as slow,
        ReplayBuffer.open(location) as slower,
    ):
        writers = (slow, slower)
        before = [row for writer in writers for row in add_numbers(writer, written_before)]
        assert sorted(before) == sorted(fast.sample(len(before))["indices"].tolist())
        for _ in range(int(laps * 200)):
            (row,) = add_numbers(fast, 1)
            assert fast.sample(1)["indices"].tolist() == [row]
        late = [row for writer in writers for row in add_numbers(writer, 5)]
        (last,) = add_numbers(fast, 1)
        assert fast.sample(11, timeout=0)["indices"].tolist() == sorted([*late, last])
        assert fast.stats()["limiter"]["balance"] == 0
