"""What the actors and learners of the limiter's tests do, in processes of their own."""

from __future__ import annotations

import os
import signal
import time
from contextlib import suppress
from typing import Any

from replay_buffer import Column, NotEnoughRows, ReplayBuffer

SCHEMA = {"k": Column((), "int64")}


def act(buffer: ReplayBuffer, rows: int) -> None:
    for k in range(rows):
        buffer.add(k)


def learn(buffer: ReplayBuffer, batches: int, size: int) -> None:
    for _ in range(batches):
        assert len(buffer.sample(size)["k"]) == size


def learn_once(buffer: ReplayBuffer, told: Any) -> None:
    """Draws, and says how long that took and what it drew."""
    start = time.monotonic()
    batch = buffer.sample(4)
    told.put((time.monotonic() - start, sorted(set(batch["k"].tolist()))))


def interrupted(buffer: ReplayBuffer, told: Any, call: str) -> None:
    """Says when the signal that the parent sends was raised as an exception."""
    signal.signal(signal.SIGINT, signal.default_int_handler)
    told.put("ready")
    try:
        buffer.sample(1) if call == "sample" else buffer.add(0)
    except KeyboardInterrupt:
        told.put(time.monotonic())
        return
    told.put(None)


def act_until_killed(buffer: ReplayBuffer) -> None:
    """Adds without end, single rows and batches: killed somewhere."""
    while True:
        buffer.add(0)
        buffer.add_batch([1, 2, 3])


def learn_until_killed(buffer: ReplayBuffer) -> None:
    while True:
        buffer.sample(4)


def take_until_killed(buffer: ReplayBuffer) -> None:
    """Draws from a queue that others may empty first."""
    while True:
        with suppress(NotEnoughRows):
            buffer.sample(4)


def wait_for_rows(buffer: ReplayBuffer, told: Any) -> None:
    told.put(os.getpid())
    buffer.sample(1)
