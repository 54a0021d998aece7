"""Tasks that add and draw and are cancelled at any moment; in this process or in others."""

from __future__ import annotations

import asyncio
import random
from collections.abc import Callable, Coroutine
from typing import Any

import numpy as np

from replay_buffer import ReplayBuffer, Timeout, _core
from replay_buffer.testing.crowd import short_turns


async def perhaps(chance: random.Random, call: Coroutine[Any, Any, Any]) -> Any:
    """What a call gives; None when it was cancelled, or its time was over."""
    task = asyncio.ensure_future(call)
    for _ in range(chance.choice((0, 1, 2, 4, 40))):
        await asyncio.sleep(0)
    if chance.random() < 0.3:
        await asyncio.sleep(chance.random() * 0.002)
    if chance.random() < 0.7:
        task.cancel()
    try:
        return await task
    except (asyncio.CancelledError, Timeout):
        return None


async def consume(
    buffer: ReplayBuffer, chance: random.Random, drawn: list[int], over: Callable[[], bool]
) -> None:
    """Draws, with all that was drawn in `drawn`, until it is over and there are no more rows."""
    while True:
        last = over()
        batch = await perhaps(chance, buffer.sample_async(chance.randint(1, 3), timeout=0.02))
        if batch is not None:
            drawn += batch["k"].tolist()
        elif last:
            return


async def produce(
    buffer: ReplayBuffer, chance: random.Random, numbers: range, added: list[int]
) -> None:
    """Adds rows one by one and in batches; which ones in the end, is in `added`."""
    left = list(numbers)
    while left:
        some = [left.pop() for _ in range(min(len(left), chance.randint(1, 3)))]
        if len(some) == 1:
            call: Any = buffer.add_async(some[0], np.full(3, some[0], np.float32))
        else:
            x = np.repeat(np.array(some, np.float32)[:, None], 3, axis=1)
            call = buffer.add_batch_async(np.array(some), x)
        if await perhaps(chance, call) is not None:
            added += some


def consume_in_a_process(
    buffer: ReplayBuffer, seed: int, threads: bool, done: Any, told: Any
) -> None:
    if threads:
        _core.set_long_work(0)
    drawn: list[int] = []

    async def main() -> None:
        chance = random.Random(seed)
        await asyncio.gather(*(consume(buffer, chance, drawn, done.is_set) for _ in range(4)))

    with short_turns():
        asyncio.run(main())
    told.put(drawn)


def assert_all_drawn_once(buffer: ReplayBuffer, added: list[int], drawn: list[int]) -> None:
    left = len(added) - len(drawn)
    if buffer.config.limited:
        assert buffer.stats()["limiter"]["balance"] == left
        assert buffer.stats()["limiter"]["waiting"] == 0
    assert buffer.stats()["rows_added"] == len(added)
    assert buffer.stats()["rows_sampled"] == len(drawn)
    rest = [buffer.sample(1, timeout=0)["k"][0] for _ in range(left)]
    assert sorted(drawn + rest) == sorted(added)
