"""Rule 23, for longer: threads add and sample rows that carry a checksum of themselves."""

from __future__ import annotations

import os

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema
from replay_buffer.testing.crowd import Crowd

SECONDS = float(os.environ.get("SOAK_SECONDS", "120"))


@pytest.mark.soak
@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
def test_no_row_is_ever_torn(strategy: str) -> None:
    """A row is one number repeated, in columns of the record and in an array of its own."""
    schema = Schema(
        {"a": Column((8,), "int64"), "b": Column((512,), "int64"), "c": Column((), "int64")}
    )
    buffer = ReplayBuffer(BufferConfig(4096, strategy=strategy), schema=schema, seed=0)  # type: ignore[arg-type]
    sampled = [0, 0]
    torn = [0, 0]

    def write(crowd: Crowd, first: int) -> None:
        value = first
        while not crowd.over.is_set():
            n = np.arange(value, value + 32)
            buffer.add_batch(n[:, None].repeat(8, 1), n[:, None].repeat(512, 1), n)
            value += 32

    def read(me: int) -> None:
        batch = buffer.sample(256)
        whole = (batch["a"] == batch["c"][:, None]).all(1) & (
            batch["b"] == batch["c"][:, None]
        ).all(1)
        torn[me] += int((~whole).sum())
        sampled[me] += 256
        if strategy == "prioritized":
            buffer.update_priorities(batch["indices"], np.random.default_rng(me).random(256))

    buffer.add_batch(
        np.zeros((1, 8), np.int64), np.zeros((1, 512), np.int64), np.zeros(1, np.int64)
    )
    with Crowd() as crowd:
        for i in range(2):
            crowd.start(write, crowd, i << 40)
            crowd.repeat(read, i)
        crowd.over.wait(SECONDS)
    print(f"{strategy}: {sum(sampled):,} rows sampled, {sum(torn)} torn")
    assert min(sampled) > 0
    assert sum(torn) == 0
