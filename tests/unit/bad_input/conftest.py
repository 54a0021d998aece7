"""The buffer that is given odd input."""

from __future__ import annotations

import pytest

from replay_buffer import BufferConfig, ReplayBuffer
from unit.bad_input.rows import SCHEMA, row


@pytest.fixture
def buffer() -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(5), schema=SCHEMA, seed=0)
    for k in range(7):
        buffer.add(**row(reward=float(k), action=k % 4))
    return buffer
