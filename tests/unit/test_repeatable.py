"""The same seed and the same rows give the same batches, in every way of asking for them."""

from __future__ import annotations

import json
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, ReplayBuffer

CAPACITY, ROWS = 50, 130


def make(seed: int | None = 3, capacity: int = CAPACITY, **options: Any) -> ReplayBuffer:
    config = BufferConfig(capacity, **options)
    return ReplayBuffer(config, schema={"k": Column((), "int64")}, seed=seed)


def filled(seed: int | None = 3, **options: Any) -> ReplayBuffer:
    buffer = make(seed, **options)
    buffer.add_batch(np.arange(ROWS))
    return buffer


def draws(buffer: ReplayBuffer, times: int = 10, batch_size: int = 16) -> list[list[int]]:
    return [buffer.sample(batch_size)["indices"].tolist() for _ in range(times)]


def test_it_does_not_matter_how_the_rows_were_added() -> None:
    expected = draws(filled())
    one_by_one, by_name, converted = make(), make(), make()
    for k in range(ROWS):
        one_by_one.add(k)
        by_name.add(k=k)
        converted.add_batch([k])
    assert draws(one_by_one) == draws(by_name) == draws(converted) == expected


@pytest.mark.parametrize("block_rows", [1, 3, 7, 50])
def test_it_does_not_matter_how_large_blocks_are(block_rows: int) -> None:
    assert draws(filled(block_rows=block_rows)) == draws(filled())


def test_it_does_not_matter_where_a_batch_is_written() -> None:
    buffer = filled()
    out = {"k": np.zeros(16, np.int64), "indices": np.zeros(16, np.int64)}
    got = [buffer.sample(16, out=out)["indices"].tolist() for _ in range(10)]
    assert got == draws(filled())


def test_it_does_not_matter_what_is_read_in_between() -> None:
    buffer = filled()
    got = []
    for _ in range(10):
        buffer.latest(5)
        buffer.get([ROWS - 1])
        buffer.stats()
        repr(buffer)
        got += draws(buffer, times=1)
    assert got == draws(filled())


def test_a_batch_follows_the_rows_added_before_it() -> None:
    one, other = filled(), filled()
    assert draws(one) == draws(other)
    for buffer in (one, other):
        buffer.add_batch(np.arange(7))
    assert draws(one) == draws(other)


def test_large_batches_copied_by_several_threads_are_repeatable() -> None:
    def large(width: int = 8_000) -> list[Any]:
        buffer = ReplayBuffer(BufferConfig(20), schema={"x": Column((width,), "int32")}, seed=3)
        for k in range(33):
            buffer.add(np.full(width, k, np.int32))
        batches = [buffer.sample(64) for _ in range(5)]
        assert all((b["x"] == b["indices"][:, None]).all() for b in batches)
        return [batch["indices"].tolist() for batch in batches]

    assert large() == large()


def test_large_and_small_rows_are_drawn_alike() -> None:
    small = make(capacity=20)
    large = ReplayBuffer(BufferConfig(20), schema={"x": Column((8_000,), "int32")}, seed=3)
    for k in range(33):
        small.add(k)
        large.add(np.zeros(8_000, np.int32))
    assert draws(small, batch_size=64) == draws(large, batch_size=64)


def test_seeds_and_calls_do_not_share_numbers() -> None:
    """No stream is another one, shifted by a place or by a call."""
    streams = [tuple(batch) for seed in range(20) for batch in draws(filled(seed), times=20)]
    assert len(set(streams)) == len(streams)
    starts = {stream[:-1] for stream in streams}
    assert all(stream[1:] not in starts for stream in streams)


@pytest.mark.parametrize("seed", [0, 1, 2**32, 2**63, 2**64 - 1])
def test_every_seed_of_64_bits_is_a_seed_of_its_own(seed: int) -> None:
    assert draws(filled(seed)) == draws(filled(seed))
    assert draws(filled(seed)) != draws(filled(seed ^ 1))
    assert draws(filled(seed)) != draws(filled(seed ^ (1 << 63)))


def test_the_seed_may_be_a_number_of_numpy() -> None:
    assert draws(filled(np.int64(3))) == draws(filled(3))


SCRIPT = """
import json
import numpy as np
from replay_buffer import BufferConfig, Column, ReplayBuffer
buffer = ReplayBuffer(BufferConfig(50), schema={"k": Column((), "int64")}, seed=3)
buffer.add_batch(np.arange(130))
print(json.dumps([buffer.sample(16)["indices"].tolist() for _ in range(10)]))
"""


def test_another_process_draws_the_same() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCRIPT], capture_output=True, text=True, check=True
    )
    assert json.loads(done.stdout) == draws(filled())
