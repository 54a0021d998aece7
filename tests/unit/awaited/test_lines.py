"""The lines in which async calls wait: who comes first, and what becomes of a line."""

from __future__ import annotations

import asyncio
import gc
import weakref
from typing import Any

import pytest

from replay_buffer import BufferConfig, Column, ReplayBuffer, SchemaMismatch, _core
from replay_buffer.testing.crowd import Crowd
from unit.awaited.scenes import obs, steps

pytestmark = pytest.mark.usefixtures("short_turns")
PATIENCE = 60
NUMBER = {"k": Column((), "int64")}


def test_adds_that_come_at_once_are_served_in_the_order_they_came(crowd: Crowd) -> None:
    """Also those that had not been tried when the first had to wait."""
    config = BufferConfig(1000, strategy="fifo", samples_per_insert=1, tolerance=8)
    buffer = ReplayBuffer(config, schema=NUMBER)

    def consume() -> list[int]:
        return [buffer.sample(1, timeout=PATIENCE)["k"].item() for _ in range(300)]

    async def main() -> None:
        await asyncio.gather(*(buffer.add_async(k) for k in range(300)))

    crowds_own = _core.set_long_work(2**25)  # adds run in the loop, as they do by themselves
    try:
        consumer = crowd.start(consume)
        asyncio.run(main())
        assert consumer.result() == list(range(300))
    finally:
        _core.set_long_work(crowds_own)


def test_appends_without_patience_wait_for_their_turn(where: str) -> None:
    async def main() -> None:
        appends = [writer.append_async(obs(k), k, 0.0, False, False, timeout=0) for k in range(4)]
        await asyncio.gather(*appends)

    buffer = steps("heap:")
    with buffer.writer() as writer:
        asyncio.run(main())
    assert buffer.latest(10)["action"].tolist() == [0, 1, 2, 3]


def stop(*_: object, **__: object) -> Any:
    raise StopIteration


class Stopping:
    __array__ = stop


@pytest.mark.parametrize("call", ["sample", "add"])
def test_an_exception_that_no_future_can_hold_ends_the_call(call: str) -> None:
    config = BufferConfig(10, "prioritized", beta=stop)
    buffer = ReplayBuffer(config, schema=NUMBER)
    buffer.add(1)

    async def main() -> None:
        made = buffer.sample_async(1) if call == "sample" else buffer.add_async(Stopping())
        await asyncio.wait_for(made, PATIENCE)

    with pytest.raises((RuntimeError, SchemaMismatch)):
        asyncio.run(main())


@pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning")
def test_a_loop_that_was_closed_with_calls_waiting_is_let_go() -> None:
    buffer = ReplayBuffer(BufferConfig(10), schema=NUMBER)

    def abandon() -> weakref.ref[asyncio.AbstractEventLoop]:
        loop = asyncio.new_event_loop()
        loop.set_exception_handler(lambda *_: None)  # a task is destroyed that is pending
        waiting = loop.create_task(buffer.sample_async(1, timeout=PATIENCE))
        loop.run_until_complete(asyncio.sleep(0.01))
        assert not waiting.done()
        loop.close()
        return weakref.ref(loop)

    abandoned = abandon()
    asyncio.run(buffer.add_async(1))
    gc.collect()
    assert abandoned() is None
