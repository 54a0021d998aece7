"""An async call that is cancelled takes nothing; or it had begun, and what it took is returned."""

from __future__ import annotations

import asyncio
import multiprocessing
import random
import sys
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, ReplayBuffer, Sequence, awaiting
from replay_buffer.testing.content import NUMBERED, STRATEGIES, add_numbers
from unit.awaited import children
from unit.awaited.scenes import facts, obs, row, steps, until

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("short_turns"),
]
PATIENCE = 60
COUNTED = pytest.mark.skipif(sys.version_info < (3, 11), reason="cancelling is counted from 3.11")
RATIO = {"min_size": 1, "samples_per_insert": 1.0, "tolerance": 12.0}


def make(capacity: int = 10_000, location: str = "heap:", **options: Any) -> ReplayBuffer:
    return ReplayBuffer.create(location, BufferConfig(capacity, **options), schema=NUMBERED, seed=0)


# ---- many cancels: nothing is lost, nothing is there twice


@pytest.mark.parametrize("limit", [{}, RATIO], ids=["free", "limited"])
def test_rows_are_added_and_drawn_once_however_many_calls_are_cancelled(
    where: str, limit: dict[str, Any]
) -> None:
    async def main() -> None:
        produced = asyncio.Event()
        consumers = [
            asyncio.create_task(children.consume(buffer, chance, drawn, produced.is_set))
            for _ in range(6)
        ]
        numbers = [range(k, k + 200) for k in range(0, 600, 200)]
        await asyncio.gather(*(children.produce(buffer, chance, some, added) for some in numbers))
        produced.set()
        await asyncio.gather(*consumers)

    chance, added, drawn = random.Random(7), [], []
    buffer = make(strategy="fifo", **limit)
    asyncio.run(main())
    assert 0 < len(added) < 600
    children.assert_all_drawn_once(buffer, added, drawn)


@pytest.mark.parametrize("limit", [{}, RATIO], ids=["free", "limited"])
@pytest.mark.parametrize("threads", [False, True], ids=["loop", "threads"])
def test_rows_are_drawn_once_by_processes_whose_draws_are_cancelled(
    threads: bool, limit: dict[str, Any]
) -> None:
    context = multiprocessing.get_context("fork")
    buffer = make(location="shm:", strategy="fifo", **limit)
    done, told = context.Event(), context.Queue()
    consumers = [
        context.Process(
            target=children.consume_in_a_process, args=(buffer, seed, threads, done, told)
        )
        for seed in range(3)
    ]
    try:
        for consumer in consumers:
            consumer.start()
        for k in range(600):
            buffer.add(*row(k), timeout=PATIENCE)
        done.set()
        drawn = [k for _ in consumers for k in told.get(timeout=PATIENCE)]
        for consumer in consumers:
            consumer.join(PATIENCE)
    finally:
        for consumer in consumers:
            consumer.kill()
            consumer.join()
    assert len(drawn) > 0
    children.assert_all_drawn_once(buffer, list(range(600)), drawn)


@pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s not in ("fifo", "lifo")])
def test_a_cancelled_draw_takes_no_turn_of_the_generator(where: str, strategy: str) -> None:
    def batches(cancels: bool) -> list[Any]:
        async def main() -> None:
            if cancels:
                waiting = [
                    asyncio.create_task(source.sample_async(4, timeout=PATIENCE)) for _ in range(8)
                ]
                await asyncio.sleep(0.01)
                for task in waiting:
                    task.cancel()
                await asyncio.gather(*waiting, return_exceptions=True)

        buffer = make(strategy=strategy)
        source = buffer
        asyncio.run(main())
        add_numbers(buffer, 50)
        return [buffer.sample(4)["indices"].tolist() for _ in range(5)]

    assert batches(cancels=True) == batches(cancels=False)


def test_a_cancelled_sequence_draw_takes_no_turn(where: str) -> None:
    def batches(cancels: int) -> list[Any]:
        async def main() -> None:
            for _ in range(cancels):
                task = asyncio.create_task(view.sample_async(4, timeout=PATIENCE))
                await asyncio.sleep(0.005)
                task.cancel()
                await asyncio.gather(task, return_exceptions=True)

        buffer = steps("heap:")
        view = buffer.view(Sequence(3))
        asyncio.run(main())
        with buffer.writer() as writer:
            for k in range(40):
                writer.append(obs(k), 0, 1.0, False, False)
        return [view.sample(4)["indices"].tolist() for _ in range(5)]

    assert batches(cancels=3) == batches(cancels=0)


# ---- cancelled between the beginning and the end of a call in a thread


class Gate:
    """A schedule of beta that holds a draw in its thread until the gate is opened."""

    def __init__(self) -> None:
        self.entered, self.opened = threading.Event(), threading.Event()

    def __call__(self, draws: int) -> float:
        self.entered.set()
        assert self.opened.wait(PATIENCE)
        return 0.5

    def open_soon(self) -> None:
        asyncio.get_running_loop().call_later(0.1, self.opened.set)

    async def reached(self) -> None:
        await until(self.entered.is_set)

    def buffer(self) -> ReplayBuffer:
        config = BufferConfig(100, strategy="prioritized", beta=self)
        buffer = ReplayBuffer(config, schema=NUMBERED, seed=0)
        add_numbers(buffer, 10)
        return buffer


def test_a_draw_that_has_begun_is_returned_to_who_cancelled_it() -> None:
    async def main() -> None:
        draw = asyncio.create_task(buffer.sample_async(4))
        await gate.reached()
        draw.cancel()
        await asyncio.sleep(0.01)
        assert not draw.done()
        gate.opened.set()
        assert (await draw)["k"].shape == (4,)

    gate = Gate()
    buffer = gate.buffer()
    asyncio.run(main())
    assert buffer.stats()["rows_sampled"] == 4


def test_the_task_is_cancelled_when_it_awaits_the_next_thing() -> None:
    batches: list[Any] = []
    awaited = threading.Event()

    async def learn() -> None:
        batches.append(await buffer.sample_async(4))
        batches.append("worked on")
        await asyncio.sleep(PATIENCE)
        awaited.set()

    async def main() -> None:
        learner = asyncio.create_task(learn())
        await gate.reached()
        learner.cancel("enough")
        gate.opened.set()
        with pytest.raises(asyncio.CancelledError, match="enough"):
            await learner
        assert learner.cancelled()

    gate = Gate()
    buffer = gate.buffer()
    begin = time.monotonic()
    asyncio.run(main())
    assert time.monotonic() - begin < PATIENCE
    assert len(batches) == 2
    assert batches[1] == "worked on"
    assert not awaited.is_set()


@pytest.mark.parametrize("call", ["add", "alone"])
def test_nothing_is_begun_after_a_draw_whose_cancelling_was_put_off(
    call: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def learn() -> None:
        await buffer.sample_async(4)
        if call == "add":
            await buffer.add_async(*row(1))
        else:
            await awaiting.alone((tmp_path / "saved").mkdir)

    async def main() -> None:
        learner = asyncio.create_task(learn())
        await gate.reached()
        learner.cancel()
        gate.opened.set()
        await asyncio.wait([learner])
        assert learner.cancelled()

    monkeypatch.setattr(
        "replay_buffer.awaiting._TURN", PATIENCE
    )  # so that no call yields by itself
    gate = Gate()
    buffer = gate.buffer()
    asyncio.run(main())
    assert len(buffer) == 10
    assert not (tmp_path / "saved").exists()


@pytest.mark.parametrize("call", ["sample", "update", "add", "checkpoint"])
def test_a_loop_of_calls_ends_when_it_is_cancelled_at_any_moment(
    where: str, call: str, tmp_path: Path
) -> None:
    """Also where each cancelling comes while a thread is at work, and is put off."""

    async def forever() -> None:
        while True:
            if call == "sample":
                await buffer.sample_async(4)
            elif call == "update":
                await buffer.update_priorities_async([0, 1], [0.5, 0.5])
            elif call == "add":
                await buffer.add_async(*row(1))
            else:
                await buffer.checkpoint_async(tmp_path / "saved")

    async def main() -> None:
        for k in range(3 if call == "checkpoint" else 20):
            task = asyncio.create_task(forever())
            await asyncio.sleep(0.0003 * k)
            task.cancel()
            done, _ = await asyncio.wait([task], timeout=PATIENCE)
            assert done
            assert task.cancelled()

    buffer = make(strategy="prioritized")
    add_numbers(buffer, 10)
    asyncio.run(main())


@COUNTED
def test_a_timeout_that_comes_too_late_cancels_nothing_afterwards() -> None:
    """asyncio.timeout takes its cancelling back when its block ends."""

    async def main() -> None:
        async with asyncio.timeout(0.02) as limit:  # type: ignore[attr-defined]
            gate.open_soon()
            batch = await buffer.sample_async(4)
        assert limit.expired()
        assert batch["k"].shape == (4,)
        for _ in range(5):
            await asyncio.sleep(0.001)
        task = asyncio.current_task()
        assert task is not None
        assert task.cancelling() == 0  # type: ignore[attr-defined]

    gate = Gate()
    buffer = gate.buffer()
    asyncio.run(main())


@COUNTED
def test_a_timeout_ends_its_block_at_the_await_after_a_draw_that_had_begun() -> None:
    drawn: list[Any] = []

    async def draw_and_wait() -> None:
        async with asyncio.timeout(0.02):  # type: ignore[attr-defined]
            gate.open_soon()
            drawn.append(await buffer.sample_async(4))
            await asyncio.sleep(PATIENCE)

    async def main() -> None:
        with pytest.raises(TimeoutError):
            await draw_and_wait()

    gate = Gate()
    buffer = gate.buffer()
    asyncio.run(main())
    assert len(drawn) == 1


@COUNTED
def test_a_group_that_fails_gets_the_draw_of_a_task_that_had_begun() -> None:
    async def fail() -> None:
        await gate.reached()
        raise KeyError("mine")

    async def both() -> None:
        async with asyncio.TaskGroup() as group:  # type: ignore[attr-defined]
            draws.append(group.create_task(buffer.sample_async(4)))
            group.create_task(fail())
            gate.open_soon()

    async def main() -> Any:
        with pytest.raises(Exception, match="unhandled errors in a TaskGroup"):
            await both()
        return draws[0].result()

    draws: list[Any] = []

    gate = Gate()
    buffer = gate.buffer()
    assert asyncio.run(main())["k"].shape == (4,)


def test_a_call_that_has_begun_and_fails_is_cancelled() -> None:
    class Slow:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            entered.set()
            assert opened.wait(PATIENCE)
            return np.array("text")

    async def main() -> None:
        add = asyncio.create_task(buffer.add_async(Slow(), np.zeros(3)))
        await until(entered.is_set)
        add.cancel()
        opened.set()
        with pytest.raises(asyncio.CancelledError):
            await add

    entered, opened = threading.Event(), threading.Event()
    buffer = make()
    before = facts(buffer)
    asyncio.run(main())
    assert facts(buffer) == before


def test_a_call_whose_thread_has_not_begun_is_dropped() -> None:
    """All threads are busy; what waits for one is cancelled."""

    class Slow:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            entered.release()
            assert opened.wait(PATIENCE)
            return np.array(5)

    async def main() -> None:
        def add() -> Any:
            return asyncio.create_task(buffer.add_async(Slow(), np.zeros(3, np.float32)))

        tasks = [add() for _ in range(10)]
        for _ in range(4):
            await until(lambda: entered.acquire(blocking=False))
        for task in tasks:
            task.cancel()
        await until(lambda: sum(task.done() for task in tasks) >= 6)
        dropped = [task for task in tasks if task.done()]
        assert len(dropped) == 6
        assert all(task.cancelled() for task in dropped)
        opened.set()
        added = await asyncio.gather(*(task for task in tasks if not task.cancelled()))
        assert sorted(added) == list(range(4))

    entered, opened = threading.Semaphore(0), threading.Event()
    buffer = make()
    asyncio.run(main())
    assert len(buffer) == 4
