"""Buffers that several handles and processes share: in shared memory and in a file."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import pytest

from replay_buffer import ReplayBuffer
from replay_buffer.testing.content import assert_whole, masses, numbered

#: Of every module of tests that share buffers.
MARKS = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm and /proc"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
SHARED_MEMORY = Path("/dev/shm")


def path_of(location: str) -> Path:
    kind, _, name = location.partition(":")
    return SHARED_MEMORY / f"replay_buffer.{name}" if kind == "shm" else Path(name)


def create(
    location: str,
    capacity: int = 100,
    strategy: Any = "uniform",
    *,
    overwrite: bool = False,
    **options: Any,
) -> Any:
    return numbered(
        lambda config, **columns: ReplayBuffer.create(
            location, config, **columns, overwrite=overwrite
        ),
        capacity,
        strategy,
        **options,
    )


def assert_sound(buffer: ReplayBuffer) -> None:
    """What is stored is whole, countable and has its mass."""
    batch = buffer.latest(buffer.capacity)
    assert_whole(batch)
    assert len(buffer) == len(batch["k"])
    if len(buffer):
        assert_whole(buffer.sample(64))
    if buffer.config.strategy == "prioritized":
        expected = masses(buffer.priorities(batch["indices"]), buffer.alpha).sum()
        assert buffer.total_priority == pytest.approx(expected, rel=1e-5)
