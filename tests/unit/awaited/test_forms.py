"""The async calls do what sample, add and add_batch do, and never block the event loop."""

from __future__ import annotations

import asyncio
import threading
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, NotEnoughRows, ReplayBuffer, SchemaMismatch

pytestmark = pytest.mark.usefixtures("short_turns")
PATIENCE = 60  # seconds until a blocked loop is called a failure


def make(rows: int = 0, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(8, **options), schema={"k": Column((), "int64")}, seed=0)
    for k in range(rows):
        buffer.add(k)
    return buffer


def test_sample_async_gives_the_batch_that_sample_gives() -> None:
    expected = make(5).sample(16)
    got = asyncio.run(make(5).sample_async(16))
    assert got["k"].tolist() == expected["k"].tolist()
    assert got["indices"].tolist() == expected["indices"].tolist()


def test_sample_async_fills_the_arrays_of_the_caller() -> None:
    buffer = make(5)
    out = buffer.sample(4)
    assert asyncio.run(buffer.sample_async(4, out=out)) is out
    assert asyncio.run(buffer.sample_async(batch_size=3))["k"].shape == (3,)


def test_sample_async_takes_beta() -> None:
    buffer = make(5, strategy="prioritized")
    assert asyncio.run(buffer.sample_async(4, beta=0.5))["weights"].shape == (4,)


def test_add_async_adds_by_position_and_by_name() -> None:
    async def main() -> list[int]:
        return [await buffer.add_async(7), await buffer.add_async(k=8)]

    buffer = make()
    assert asyncio.run(main()) == [0, 1]
    assert buffer.latest(2)["k"].tolist() == [7, 8]


def test_add_batch_async_adds_by_position_and_by_name() -> None:
    async def main() -> list[list[int]]:
        first = await buffer.add_batch_async([7, 8])
        return [first.tolist(), (await buffer.add_batch_async(k=[9])).tolist()]

    buffer = make()
    assert asyncio.run(main()) == [[0, 1], [2]]
    assert buffer.latest(3)["k"].tolist() == [7, 8, 9]


def test_add_batch_async_takes_priorities() -> None:
    buffer = make(strategy="prioritized")
    ids = asyncio.run(buffer.add_batch_async([7, 8], priority=[0.5, 2.0]))
    assert buffer.priorities(ids).tolist() == [0.5, 2.0]


def test_add_async_settles_the_columns() -> None:
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    obs = np.zeros(2, np.uint8)
    asyncio.run(buffer.add_async(obs, 1, 0.0, obs, False))
    assert "obs uint8[2]" in str(buffer.schema)


def test_errors_travel_to_the_awaiter() -> None:
    buffer = make()
    with pytest.raises(NotEnoughRows):
        asyncio.run(buffer.sample_async(1))
    with pytest.raises(SchemaMismatch, match="'k'"):
        asyncio.run(buffer.add_async("text"))
    with pytest.raises(SchemaMismatch, match="'k'"):
        asyncio.run(buffer.add_batch_async(["text"]))
    assert len(buffer) == 0


def test_many_calls_at_once() -> None:
    async def main() -> None:
        ids = await asyncio.gather(*(buffer.add_async(k) for k in range(200)))
        assert sorted(ids) == list(range(200))
        for batch in await asyncio.gather(*(buffer.sample_async(32) for _ in range(50))):
            assert (batch["k"] < 200).all()

    buffer = ReplayBuffer(BufferConfig(500), schema={"k": Column((), "int64")}, seed=0)
    asyncio.run(main())
    assert sorted(buffer.latest(500)["k"].tolist()) == list(range(200))


def test_the_loop_goes_on_while_a_batch_is_drawn() -> None:
    """The draw waits for something that only the running loop does."""
    released = threading.Event()

    def beta(draws: int) -> float:
        assert released.wait(PATIENCE), "the loop stood still"
        return 0.4

    async def main() -> dict[str, Any]:
        task = asyncio.ensure_future(buffer.sample_async(4))
        await asyncio.sleep(0)
        assert not task.done()
        released.set()
        return await task

    buffer = make(3, strategy="prioritized", beta=beta)
    assert asyncio.run(main())["k"].shape == (4,)


@pytest.mark.parametrize("batched", [False, True])
def test_the_loop_goes_on_while_a_row_is_added(batched: bool) -> None:
    released = threading.Event()

    class Slow:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            assert released.wait(PATIENCE), "the loop stood still"
            return np.array([5] if batched else 5)

    async def main() -> Any:
        call = buffer.add_batch_async(Slow()) if batched else buffer.add_async(Slow())
        task = asyncio.ensure_future(call)
        await asyncio.sleep(0)
        assert not task.done()
        released.set()
        return await task

    buffer = make()
    assert asyncio.run(main()) == 0
    assert buffer.latest(1)["k"].tolist() == [5]
