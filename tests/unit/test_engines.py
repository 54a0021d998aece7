"""What a buffer goes to: one engine after the other, and plans that are values."""

from __future__ import annotations

import gc
import inspect
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    FrameStack,
    Hindsight,
    NotEnoughRows,
    NStep,
    ReplayBuffer,
    Sequence,
)
from replay_buffer.engine import Engine
from replay_buffer.engines.closed import ClosedEngine
from replay_buffer.engines.local import LocalEngine
from replay_buffer.engines.unsettled import UnsettledEngine
from replay_buffer.plan import Plan
from replay_buffer.testing.crowd import together

STEPS = {
    "obs": Column((2,)),
    "action": Column((), "int64"),
    "reward": Column(),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}
#: Primitives that a closed engine still answers.
ANSWERED = {"who", "count_waits", "unlink", "close"}
PRIMITIVES = sorted(Engine.__abstractmethods__)


def rows(buffer: ReplayBuffer, n: int) -> None:
    for i in range(n):
        buffer.add(np.zeros(2, np.float32), i, 1.0, np.zeros(2, np.float32), False)


def test_a_buffer_goes_to_one_engine_after_the_other() -> None:
    buffer = ReplayBuffer(BufferConfig(10, "prioritized"), seed=3)
    seen = [buffer._engine]
    buffer.alpha = 0.25
    rows(buffer, 1)
    seen.append(buffer._engine)
    buffer.close()
    seen.append(buffer._engine)
    assert [type(engine) for engine in seen] == [UnsettledEngine, LocalEngine, ClosedEngine]
    assert {(e.location, e.seed, e.config) for e in seen} == {("heap:", 3, buffer.config)}
    assert buffer.config.alpha == 0.25
    assert seen[1].schema == seen[2].schema == buffer.schema


@pytest.mark.parametrize("name", [name for name in PRIMITIVES if name not in ANSWERED])
def test_a_closed_engine_refuses(name: str) -> None:
    buffer = ReplayBuffer(BufferConfig(10))
    rows(buffer, 1)
    buffer.close()
    call = getattr(buffer._engine, name)
    needed = inspect.signature(getattr(Engine, name)).parameters
    with pytest.raises(Closed):
        call(*[None] * (len(needed) - 1))


@pytest.mark.parametrize("rows_there", [0, 1])
def test_a_closed_engine_leaves_nothing_to_the_calls_of_before(rows_there: int) -> None:
    buffer = ReplayBuffer(BufferConfig(10))
    rows(buffer, rows_there)
    before = buffer._engine
    buffer.close()
    with pytest.raises((Closed, NotEnoughRows)):
        before.draw(None, 1, 0.0, None, None)
    with pytest.raises(Closed):
        buffer._engine.draw(None, 1, 0.0, None, None)


def test_of_threads_that_settle_a_buffer_one_makes_its_engine() -> None:
    for _ in range(20):
        buffer = ReplayBuffer(BufferConfig(100))
        seen: list[Any] = []

        def add(buffer: ReplayBuffer = buffer, seen: list[Any] = seen) -> None:
            rows(buffer, 1)
            seen.append(buffer._engine)

        together(*[add] * 4)
        assert len(set(map(id, seen))) == 1
        assert buffer.size == 4


def test_what_nobody_holds_goes_at_once() -> None:
    gc.disable()
    try:
        buffer = ReplayBuffer(BufferConfig(100))
        rows(buffer, 1)
        engine = weakref.ref(buffer._engine)
        del buffer
        assert engine() is None
    finally:
        gc.enable()


def test_equal_parts_make_equal_plans() -> None:
    one = Plan.of([NStep(3), FrameStack(4, columns=["obs"])])
    same = Plan.of([FrameStack(4, columns=("obs",)), NStep(3)])
    assert one == same
    assert hash(one) == hash(same)
    assert {one: 1}[pickle.loads(pickle.dumps(one))] == 1
    assert one != Plan.of([NStep(2), FrameStack(4, columns=["obs"])])
    assert one != Plan.of([Sequence(3)])


def test_a_plan_has_no_functions_of_the_users() -> None:
    def reward(achieved: Any, goal: Any, info: Any) -> Any:
        return np.zeros(len(goal))

    one = Plan.of([Hindsight(reward=reward)])
    other = Plan.of([Hindsight(reward=lambda achieved, goal, info: np.ones(len(goal)))])
    assert one == other
    assert pickle.loads(pickle.dumps(one)) == other
    assert one != Plan.of([Hindsight(reward=reward, terminated=reward)])


def test_an_engine_draws_and_makes_by_plan() -> None:
    buffer = ReplayBuffer(BufferConfig(100, storage="steps"), schema=STEPS, seed=0)
    with buffer.writer() as writer:
        for i in range(10):
            writer.append([0.0, i], 0, 1.0, False, False)
    engine = buffer._engine
    plan = Plan.of([NStep(2, gamma=0.5)])
    batch = engine.draw(plan, 4, 0.0, None, None)
    made, missing = engine.make(plan, batch["indices"])
    assert missing is None
    np.testing.assert_array_equal(made["reward"], batch["reward"])
    np.testing.assert_array_equal(engine.find(plan), buffer.view(NStep(2, gamma=0.5)).starts())
    _, missing = engine.make(plan, np.array([0, 99]))
    assert missing is not None
    assert missing.tolist() == [False, True]


def test_any_number_of_plans_may_come_one_after_the_other() -> None:
    buffer = ReplayBuffer(BufferConfig(100, storage="steps"), schema=STEPS, seed=0)
    with buffer.writer() as writer:
        for i in range(10):
            writer.append([0.0, i], 0, 1.0, False, False)
        for n in range(1, 200):
            assert buffer.view(NStep(n)).get([0])["k"] == min(n, 9)
