"""Objects that fail, close or change the buffer while they are converted."""

from __future__ import annotations

import gc
import itertools
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    ReplayBuffer,
    ReplayBufferError,
    SchemaMismatch,
)
from unit.bad_input.rows import row, rows, state


class Meddling:
    """Runs something while it is converted to an array."""

    def __init__(self, meddle: Callable[[], Any]) -> None:
        self.meddle = meddle

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.meddle()
        return np.array(1, np.float32)


def test_a_value_whose_conversion_fails_lets_its_error_through(buffer: ReplayBuffer) -> None:
    def fail() -> None:
        raise ZeroDivisionError("mine")

    before = state(buffer)
    with pytest.raises(ZeroDivisionError, match="mine"):
        buffer.add(**row(reward=Meddling(fail)))
    assert state(buffer) == before


class MeddlingKey:
    """Runs something while it is compared with the name of a column."""

    def __init__(self, name: str, meddle: Callable[[], Any]) -> None:
        self.name, self.meddle = name, meddle

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        self.meddle()
        return self.name == other


def test_a_key_whose_comparison_fails_lets_its_error_through(buffer: ReplayBuffer) -> None:
    def failing_once(x: Any, lit: Any) -> dict[Any, Any]:
        times = itertools.count()
        return {MeddlingKey("x", lambda: 1 // next(times)): x, "lit": lit}

    def goal() -> dict[Any, Any]:
        return failing_once(row()["goal"]["x"], True)

    def goals() -> dict[Any, Any]:
        return failing_once(rows(3)["goal"]["x"], np.ones(3, bool))

    out = buffer.sample(3)
    before = state(buffer)
    calls: list[Callable[[], Any]] = [
        lambda: buffer.add(**row(goal=goal())),
        lambda: buffer.add(*row(goal=goal()).values()),
        lambda: buffer.add_batch(**rows(3, goal=goals())),
        lambda: buffer.sample(3, out={**out, "goal": goals()}),
    ]
    for call in calls:
        with pytest.raises(ZeroDivisionError):
            call()
    assert state(buffer) == before


def test_values_live_through_a_call_whose_keys_drop_them(buffer: ReplayBuffer) -> None:
    """`x` is found before `lit` is compared; then nobody but the call knows its array."""
    dropped: list[bool] = []

    def dropping(x: Any, lit: Any) -> dict[Any, Any]:
        goal: dict[Any, Any] = {"x": x}
        seen = weakref.ref(x)

        def drop() -> None:
            goal.clear()
            dropped.append(seen() is None)

        goal[MeddlingKey("lit", drop)] = lit
        return goal

    calls: list[Callable[[], Any]] = [
        lambda: buffer.add(**row(goal=dropping(np.zeros(2, np.int16), True))),
        lambda: buffer.add_batch(
            **rows(3, goal=dropping(np.zeros((3, 2), np.int16), np.ones(3, bool)))
        ),
        lambda: buffer.sample(
            3,
            out={
                **buffer.sample(3),
                "goal": dropping(np.zeros((3, 2), np.int16), np.ones(3, bool)),
            },
        ),
    ]
    for call in calls:
        with pytest.raises(SchemaMismatch, match="'goal/x'"):
            call()
    assert dropped == [False] * 3


def test_a_value_may_use_the_buffer_while_it_is_converted(buffer: ReplayBuffer) -> None:
    buffer.add(**row(reward=Meddling(lambda: buffer.add(**row(reward=41.0)))))
    assert buffer.latest(2)["reward"].tolist() == [41.0, 1.0]


def test_a_value_may_close_the_buffer_while_it_is_converted(buffer: ReplayBuffer) -> None:
    with pytest.raises(Closed):
        buffer.add(**row(reward=Meddling(buffer.close)))


def test_a_first_value_may_settle_the_columns_while_it_is_converted() -> None:
    buffer = ReplayBuffer(BufferConfig(8))
    buffer.add(x=Meddling(lambda: buffer.add(x=5.0) if buffer.schema is None else None))
    assert buffer.latest(8)["x"].tolist() == [5.0, 1.0]


def test_a_schedule_may_close_the_buffer_while_it_is_asked() -> None:
    def close(draws: int) -> float:
        buffer.close()
        return 0.4

    buffer = ReplayBuffer(
        BufferConfig(4, strategy="prioritized", beta=close), schema={"x": Column()}
    )
    buffer.add(1.0)
    assert buffer.sample(1)["x"].tolist() == [1.0]  # a call that has begun may end
    with pytest.raises(Closed):
        buffer.sample(1)


def test_an_object_whose_init_did_not_run_raises_and_does_not_crash() -> None:
    empty = ReplayBuffer.__new__(ReplayBuffer)
    for call in (lambda: empty.add(1), lambda: empty.add_batch(1), lambda: empty.sample(1)):
        with pytest.raises((AttributeError, TypeError, ReplayBufferError)):
            call()


def test_errors_leave_no_memory_behind(buffer: ReplayBuffer) -> None:
    """Arrays of refused calls are let go of: each is freed when its caller forgets it."""

    class Counted(np.ndarray):
        alive = 0

        def __del__(self) -> None:
            Counted.alive -= 1

    def counted() -> Any:
        Counted.alive += 1
        return np.zeros((2, 4), np.float32).view(Counted)

    for _, by_name in itertools.product(range(20), (False, True)):
        values = row(obs=counted())
        with pytest.raises(SchemaMismatch):
            buffer.add(**values) if by_name else buffer.add(*values.values())
        del values
    gc.collect()
    assert Counted.alive == 0
