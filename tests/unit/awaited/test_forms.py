"""Every async form does what its call does, and long ones do not block the event loop."""

from __future__ import annotations

import asyncio
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    InvalidArgument,
    NotEnoughRows,
    NotFound,
    ReadOnly,
    ReplayBuffer,
    SchemaMismatch,
    Sequence,
    Timeout,
)
from replay_buffer.testing.content import NUMBERED, add_numbers
from unit.awaited.scenes import VIEWS, add_episode, obs, steps

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


# ---- views, updates, writers


def assert_same(one: Any, other: Any) -> None:
    assert list(one) == list(other)
    for name, value in one.items():
        if isinstance(value, dict):
            assert_same(value, other[name])
        else:
            assert np.array_equal(value, other[name]), name


@pytest.mark.parametrize("view", VIEWS)
def test_a_view_gives_the_batch_that_sample_gives(where: str, view: str) -> None:
    def view_of_two_episodes() -> Any:
        buffer = steps("heap:", strategy="prioritized")
        add_episode(buffer, 9)
        add_episode(buffer, 6)
        return buffer.view(*VIEWS[view])

    one, other = view_of_two_episodes(), view_of_two_episodes()
    for beta in (None, 0.7):
        expected = one.sample(5, beta=beta)
        batch = asyncio.run(other.sample_async(5, beta=beta))
        assert_same(batch, expected)
    again = asyncio.run(other.sample_async(5, out=batch))
    assert again is batch
    assert_same(again, one.sample(5))
    assert other.buffer.stats()["samples"] == 3


def test_starts_and_episodes_are_the_same(where: str) -> None:
    async def episodes() -> list[Any]:
        return [episode async for episode in buffer.episodes_async()]

    buffer = steps("heap:")
    for length in (5, 9, 3):
        add_episode(buffer, length)
    view = buffer.view(Sequence(2))
    assert np.array_equal(asyncio.run(view.starts_async()), view.starts())
    expected = list(buffer.episodes())
    got = asyncio.run(episodes())
    assert [len(episode["action"]) for episode in got] == [5, 9, 3]
    for one, other in zip(got, expected, strict=True):
        assert_same(one, other)


def test_episodes_that_are_overwritten_meanwhile_are_left_out() -> None:
    async def lengths() -> list[int]:
        found = []
        async for episode in buffer.episodes_async():
            found.append(len(episode["action"]))
            buffer.clear()
        return found

    buffer = steps("heap:")
    for length in (5, 9, 3):
        add_episode(buffer, length)
    assert asyncio.run(lengths()) == [5]


def test_updates_set_priorities_and_say_how_many(where: str) -> None:
    buffer = make(5, strategy="prioritized")
    assert asyncio.run(buffer.update_priorities_async([0, 4], [-0.5, 2.0])) == 2
    assert asyncio.run(buffer.update_priorities_async(np.array([1]), np.array([3.0]))) == 1
    assert buffer.priorities([0, 1, 4]).tolist() == [0.5, 3.0, 2.0]
    with pytest.raises(InvalidArgument, match="finite"):
        asyncio.run(buffer.update_priorities_async([0], [float("nan")]))
    with pytest.raises(InvalidArgument, match="keeps no priorities"):
        asyncio.run(make(5).update_priorities_async([0], [1.0]))


def test_a_view_of_sequences_updates_with_a_mask(where: str) -> None:
    buffer = steps("heap:", strategy="prioritized")
    add_episode(buffer, 9)
    view = buffer.view(Sequence(2, eta=1.0))
    errors, mask = np.array([[3.0, 5.0]]), np.array([[True, False]])
    assert asyncio.run(view.update_priorities_async([0], errors, mask)) == 1
    assert buffer.priorities([0]).tolist() == [3.0]
    assert asyncio.run(view.update_priorities_async([0], td_errors=errors)) == 1
    assert buffer.priorities([0]).tolist() == [5.0]


def test_append_writes_what_append_writes(where: str) -> None:
    def values(k: int) -> tuple[Any, ...]:
        pair = {name: np.stack([value, value]) for name, value in obs(k).items()}
        return pair, np.array([k, k]), np.ones(2), np.array([k == 2, False]), np.zeros(2, bool)

    async def append(writer: Any) -> Any:
        ids = []
        for k in range(4):
            last = values(k + 1)[0] if k == 2 else None
            ids.append((await writer.append_async(*values(k), final_obs=last)).tolist())
        return ids

    one, other = steps("heap:"), steps("heap:")
    with one.writer(2) as writer:
        ids = asyncio.run(append(writer))
    with other.writer(2) as writer:
        expected = [
            writer.append(*values(k), final_obs=values(k + 1)[0] if k == 2 else None).tolist()
            for k in range(4)
        ]
    assert ids == expected
    assert_same(one.latest(50), other.latest(50))


def test_append_takes_values_by_name_and_priorities(where: str) -> None:
    async def append() -> Any:
        named = {"obs": obs(1), "action": 3, "reward": 0.5}
        return await writer.append_async(
            **named, terminated=False, truncated=False, priority=0.25, timeout=1
        )

    buffer = steps("heap:", strategy="prioritized")
    with buffer.writer() as writer:
        assert asyncio.run(append()) == 0
        assert buffer.priorities([0]).tolist() == [0.25]
        assert buffer.latest(1)["action"].tolist() == [3]
    with pytest.raises(Closed):
        asyncio.run(append())


# ---- what takes long


def test_a_checkpoint_is_saved_and_restored(where: str, tmp_path: Path) -> None:
    async def main() -> ReplayBuffer:
        saved = await buffer.checkpoint_async(tmp_path / "saved")
        assert saved["rows"] == 5
        return await ReplayBuffer.restore_async(str(tmp_path / "saved"), "shm:", limiter=True)

    buffer = make(5)
    with asyncio.run(main()) as restored:
        assert restored.location == "shm:"
        assert restored.latest(5)["k"].tolist() == list(range(5))
    with pytest.raises(NotFound):
        asyncio.run(ReplayBuffer.restore_async(tmp_path / "nothing"))
    with pytest.raises(NotEnoughRows):
        asyncio.run(ReplayBuffer(BufferConfig(5)).checkpoint_async(tmp_path / "empty"))


def test_a_file_is_flushed_and_opened(tmp_path: Path) -> None:
    async def main() -> None:
        await buffer.flush_async()
        with await ReplayBuffer.open_async(location, readonly=True) as watcher:
            assert watcher.readonly
            assert len(watcher) == 5
            with pytest.raises(ReadOnly):
                await watcher.add_async(1, [0, 0, 0])

    location = f"file:{tmp_path / 'rows'}"
    with ReplayBuffer.create(location, BufferConfig(50), schema=NUMBERED) as buffer:
        add_numbers(buffer, 5)
        asyncio.run(main())


def test_opening_waits_for_who_creates(tmp_path: Path) -> None:
    async def main() -> None:
        with pytest.raises(NotFound):
            await ReplayBuffer.open_async(location)
        with pytest.raises(Timeout, match=r"^open\('file:.*'\) waited 0\.1 s: there is no buffer"):
            await ReplayBuffer.open_async(location, wait=0.1)
        with pytest.raises(InvalidArgument, match="wait must be a number of seconds"):
            await ReplayBuffer.open_async(location, wait="soon")  # type: ignore[arg-type]
        cancelled, opening = (
            asyncio.create_task(ReplayBuffer.open_async(location, wait=PATIENCE)) for _ in range(2)
        )
        await asyncio.sleep(0.05)
        assert not opening.done()
        cancelled.cancel()
        with ReplayBuffer.create(location, BufferConfig(50), schema=NUMBERED):
            other = await opening
            assert other.location == location
            other.close()
        assert cancelled.cancelled()

    location = f"file:{tmp_path / 'rows'}"
    asyncio.run(main())
