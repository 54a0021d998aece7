"""Every way in which an async call has to wait: a buffer, a call on it, and what lets it go on."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Awaitable, Callable, Coroutine
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np

from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    Hindsight,
    NStep,
    ReplayBuffer,
    Sequence,
    Trajectory,
)
from replay_buffer.testing.content import NUMBERED, STRATEGIES

BATCH = 4
RATIO = {"min_size": 1, "samples_per_insert": 1.0, "tolerance": 4.0}
STEP_STRATEGIES = ("uniform", "prioritized", "rank")
GOALS = {
    "obs": {"position": Column((2,)), "achieved_goal": Column((1,)), "desired_goal": Column((1,))},
    "action": Column((), "int64"),
    "reward": Column(),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}
VIEWS: dict[str, tuple[Any, ...]] = {
    "transitions": (),
    "n steps": (NStep(2), FrameStack(2)),
    "sequences": (Sequence(2),),
    "trajectories": (Trajectory(),),
    "hindsight": (Hindsight(reward=lambda reached, goals, info: np.zeros(len(reached))),),
}


@dataclass
class Scene:
    """`call(timeout)` has to wait. After `go_on`, two such calls do not; each moves `rows` rows, as
    `counted` in the buffer's stats."""

    buffer: ReplayBuffer
    call: Callable[[float | None], Coroutine[Any, Any, Any]]
    go_on: Callable[[], Awaitable[None]]
    counted: str
    rows: int
    kept: object = None


def numbered(location: str, **options: Any) -> ReplayBuffer:
    config = BufferConfig(64, block_rows=8, **options)
    return ReplayBuffer.create(location, config, schema=NUMBERED, seed=0)


def steps(location: str, **options: Any) -> ReplayBuffer:
    config = BufferConfig(64, storage="steps", block_rows=16, **options)
    return ReplayBuffer.create(location, config, schema=GOALS, seed=0)


def row(k: int) -> tuple[int, Any]:
    return k, np.full(3, k, np.float32)


def obs(k: int) -> dict[str, Any]:
    one = np.full(1, k, np.float32)
    return {"position": np.full(2, k, np.float32), "achieved_goal": one, "desired_goal": one}


def add_rows(buffer: ReplayBuffer, n: int) -> None:
    for k in range(n):
        buffer.add(*row(k), timeout=0)


async def add_slowly(buffer: ReplayBuffer, n: int) -> None:
    for k in range(n):
        await buffer.add_async(*row(k))


def add_episode(buffer: ReplayBuffer, n: int) -> None:
    with buffer.writer() as writer:
        for k in range(n):
            end = k == n - 1
            writer.append(obs(k), 0, 1.0, end, False, final_obs=obs(n) if end else None)


async def soon(call: Callable[..., Any], *args: Any) -> None:
    call(*args)


def draws_for_rows(strategy: str, location: str) -> Scene:
    buffer = numbered(location, strategy=strategy)
    add_rows(buffer, 3 if strategy in ("fifo", "lifo") else 0)
    call = lambda timeout: buffer.sample_async(BATCH, timeout=timeout or 60)  # noqa: E731
    return Scene(buffer, call, partial(soon, add_rows, buffer, 8), "rows_sampled", BATCH)


def draws_for_min_size(strategy: str, location: str) -> Scene:
    buffer = numbered(location, strategy=strategy, min_size=12)
    add_rows(buffer, 11)
    call = lambda timeout: buffer.sample_async(BATCH, timeout=timeout)  # noqa: E731
    return Scene(buffer, call, partial(soon, add_rows, buffer, 1), "rows_sampled", BATCH)


def draws_for_the_ratio(strategy: str, location: str) -> Scene:
    buffer = numbered(location, strategy=strategy, **RATIO)
    add_rows(buffer, 4)
    buffer.sample(BATCH, timeout=0)
    call = lambda timeout: buffer.sample_async(BATCH, timeout=timeout or 60)  # noqa: E731
    return Scene(buffer, call, partial(add_slowly, buffer, 8), "rows_sampled", BATCH)


def adds(batched: bool, strategy: str, location: str) -> Scene:
    buffer = numbered(location, strategy=strategy, **RATIO)
    add_rows(buffer, 5)
    batch = np.arange(2), np.zeros((2, 3), np.float32)
    if batched:
        call = lambda timeout: buffer.add_batch_async(*batch, timeout=timeout)  # noqa: E731
    else:
        call = lambda timeout: buffer.add_async(*row(7), timeout=timeout)  # noqa: E731
    return Scene(buffer, call, partial(soon, buffer.sample, 4), "rows_added", 2 if batched else 1)


def appends(strategy: str, location: str) -> Scene:
    buffer = steps(location, strategy=strategy, **RATIO)
    writer = buffer.writer()

    def append(timeout: float | None) -> Any:
        return writer.append_async(obs(0), 0, 1.0, False, False, timeout=timeout)

    for _ in range(5):
        writer.append(obs(0), 0, 1.0, False, False, timeout=0)
    return Scene(buffer, append, partial(soon, buffer.sample, 4), "rows_added", 1, writer)


def views(name: str, limited: bool, strategy: str, location: str) -> Scene:
    buffer = steps(location, strategy=strategy, **({"min_size": 12} if limited else {}))
    view = buffer.view(*VIEWS[name])
    if limited:
        add_episode(buffer, 6)
    call = lambda timeout: view.sample_async(BATCH, timeout=timeout or 60)  # noqa: E731
    return Scene(buffer, call, partial(soon, add_episode, buffer, 12), "rows_sampled", BATCH)


#: By name; each takes a location.
SCENES: dict[str, Callable[[str], Scene]] = {}
for _strategy in STRATEGIES:
    for _draws in (draws_for_rows, draws_for_min_size, draws_for_the_ratio):
        SCENES[f"{_draws.__name__}, {_strategy}"] = partial(_draws, _strategy)
    SCENES[f"add, {_strategy}"] = partial(adds, False, _strategy)
    SCENES[f"add_batch, {_strategy}"] = partial(adds, True, _strategy)
for _strategy in STEP_STRATEGIES:
    SCENES[f"append, {_strategy}"] = partial(appends, _strategy)
    for _view in VIEWS:
        SCENES[f"{_view} for rows, {_strategy}"] = partial(views, _view, False, _strategy)
    SCENES[f"{_view} for min_size, {_strategy}"] = partial(views, _view, True, _strategy)


async def until(true: Callable[[], bool]) -> None:
    """Waits for what tasks and threads do."""
    deadline = time.monotonic() + 60
    while not true():
        assert time.monotonic() < deadline
        await asyncio.sleep(0.001)


def facts(buffer: ReplayBuffer) -> dict[str, Any]:
    """What changes when a call takes anything."""
    stats = buffer.stats()
    names = ("size", "rows_added", "rows_sampled", "samples", "limiter")
    return {name: stats.get(name) for name in names}
