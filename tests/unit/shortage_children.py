"""What the processes do that others wait for."""

from __future__ import annotations

import time
from typing import Any

from replay_buffer import Column, ReplayBuffer
from replay_buffer.testing.content import add_numbers

STEPS = {
    "obs": Column((), "int64"),
    "action": Column((), "int64"),
    "reward": Column(),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}


def add_later(buffer: ReplayBuffer, seconds: float, rows: int, first: int = 0) -> None:
    time.sleep(seconds)
    for k in range(first, first + rows):
        add_numbers(buffer, 1, first=k)


def append_later(buffer: ReplayBuffer, seconds: float, rows: int) -> None:
    time.sleep(seconds)
    with buffer.writer() as writer:
        for k in range(rows):
            writer.append(k, 0, 0.0, False, False)


def add_and_hang(buffer: ReplayBuffer, rows: int) -> None:
    add_numbers(buffer, rows)
    time.sleep(60)


def consume(buffer: ReplayBuffer, batches: int, size: int, told: Any) -> None:
    """Draws batches, and tells all that was in them."""
    drawn: list[int] = []
    for _ in range(batches):
        drawn += buffer.sample(size, timeout=60)["k"].tolist()
    told.put(drawn)


def add_then_draw(buffer: ReplayBuffer) -> None:
    add_numbers(buffer, 1)
    buffer.sample(4, timeout=60)
