"""Odd input: accepted with its meaning, or refused by one clear error with the buffer unchanged.

A clear error names the column, what was given and what is expected.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from replay_buffer import Column, ReplayBuffer, ReplayBufferError, Schema

SCHEMA = Schema(
    {
        "obs": Column((2, 3), "float32"),
        "goal": {"x": Column((2,), "int16"), "lit": Column((), "bool")},
        "action": Column((), "int64", limit=4),
        "reward": Column((), "float32"),
    }
)


def row(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "obs": np.arange(6, dtype=np.float32).reshape(2, 3),
        "goal": {"x": np.array([1, 2], np.int16), "lit": True},
        "action": 1,
        "reward": 0.5,
    }
    return {**values, **changes}


def rows(n: int, **changes: Any) -> dict[str, Any]:
    def many(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: many(inner) for name, inner in value.items()}
        return np.stack([value] * n)

    return {**{name: many(value) for name, value in row().items()}, **changes}


def state(buffer: ReplayBuffer) -> Any:
    """All that a caller can see of a buffer."""

    def seen(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: seen(inner) for name, inner in value.items()}
        return value.tolist()

    stats = {name: value for name, value in buffer.stats().items() if name != "resident_bytes"}
    return len(buffer), str(buffer.schema), seen(buffer.latest(99)), stats


def refused(
    buffer: ReplayBuffer, call: Callable[[], Any], error: type[ReplayBufferError], *said: str
) -> None:
    """`call` raises `error` saying all of `said`, and the buffer is as it was."""
    before = state(buffer)
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    for part in said:
        assert part in str(caught.value)
    assert state(buffer) == before
    assert buffer.add(**row(reward=9)) == before[2]["indices"][-1] + 1  # no id was lost either


def numbered(cases: list[tuple[str, Any, Any]]) -> list[str]:
    """Names of cases: the column and which case of it."""
    return [f"{case[0]}-{number}" for number, case in enumerate(cases)]
