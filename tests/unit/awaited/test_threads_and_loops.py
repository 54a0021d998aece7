"""Which threads async calls take, and for how long; the loops of several threads; forks; exits."""

from __future__ import annotations

import asyncio
import gc
import os
import random
import signal
import subprocess
import sys
import threading
import time
import weakref
from pathlib import Path
from typing import Any

import pytest

from replay_buffer import BufferConfig, Closed, NotEnoughRows, ReplayBuffer, Timeout
from replay_buffer.testing.content import NUMBERED, add_numbers
from replay_buffer.testing.crowd import Crowd
from unit.awaited import children
from unit.awaited.scenes import RATIO, obs, row, steps, until

pytestmark = pytest.mark.usefixtures("short_turns")
PATIENCE = 60


def make(location: str = "heap:", **options: Any) -> ReplayBuffer:
    return ReplayBuffer.create(location, BufferConfig(1000, **options), schema=NUMBERED, seed=0)


def threads() -> list[threading.Thread]:
    return [one for one in threading.enumerate() if one.name.startswith("replay_buffer")]


def eventually_no_threads() -> None:
    gc.collect()
    deadline = time.monotonic() + PATIENCE
    while threads():
        assert time.monotonic() < deadline
        time.sleep(0.001)


def in_line(buffer: ReplayBuffer) -> int:
    """The calls of the running loop that were tried once, and wait."""
    line = buffer._client.async_calls._line()
    return sum(len(places) for places in line._places.values())


# ---- who waits holds up nobody


@pytest.mark.parametrize("waiting", [64, 1000])
def test_draws_that_wait_hold_up_no_add(where: str, waiting: int) -> None:
    async def main() -> None:
        draws = [
            asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE)) for _ in range(waiting)
        ]
        await asyncio.sleep(0.05)
        assert not any(draw.done() for draw in draws)
        for k in range(2):
            assert await asyncio.wait_for(buffer.add_async(*row(k)), PATIENCE) == k
        done, rest = await asyncio.wait(draws, return_when=asyncio.FIRST_COMPLETED)
        assert [draw.result()["k"].tolist() for draw in done] == [[0, 1]]
        for draw in rest:
            draw.cancel()
        await asyncio.gather(*rest, return_exceptions=True)

    buffer = make(strategy="fifo")
    asyncio.run(main())


def test_waiting_takes_no_thread() -> None:
    async def main() -> None:
        before = threading.active_count()
        draws = [asyncio.create_task(buffer.sample_async(2)) for _ in range(64)]
        await asyncio.sleep(0.05)
        assert threading.active_count() <= before
        for draw in draws:
            draw.cancel()

    buffer = make(min_size=5)
    asyncio.run(main())


def test_the_event_loops_own_executor_is_left_alone(where: str, tmp_path: Path) -> None:
    """Whatever the program has it do, calls go on."""

    async def main() -> None:
        assert await buffer.add_async(*row(5)) == 5
        assert (await buffer.sample_async(4))["k"].shape == (4,)
        assert (await buffer.checkpoint_async(tmp_path / "saved"))["rows"] == 6
        loop: Any = asyncio.get_running_loop()
        assert loop._default_executor is None

    buffer = make()
    add_numbers(buffer, 5)
    asyncio.run(main())


def test_a_task_that_only_adds_lets_others_have_their_turns() -> None:
    """Where each add is done at once, nothing else would have the loop go on."""

    async def add() -> None:
        while not over:
            await buffer.add_async(*row(1))

    async def main() -> None:
        adding = asyncio.create_task(add())
        for _ in range(20):
            await asyncio.sleep(0.001)
        over.append(True)
        await adding

    over: list[bool] = []
    buffer = make()
    begin = time.monotonic()
    asyncio.run(main())
    assert buffer.stats()["rows_added"] > 20
    assert time.monotonic() - begin < PATIENCE


# ---- in line


def test_draws_of_one_size_are_served_in_the_order_they_came(where: str) -> None:
    async def main() -> None:
        draws = [asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE)) for _ in range(20)]
        await until(lambda: in_line(buffer) == 20)
        draws[3].cancel()
        for k in range(38):
            buffer.add(*row(k))
            if k % 7 == 0:
                late = asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE))
                await asyncio.sleep(0.003)
                late.cancel()  # behind all the others, it has got nothing yet
                await asyncio.gather(late, return_exceptions=True)
                assert late.cancelled()
        batches = await asyncio.gather(*draws[:3], *draws[4:])
        assert [k for batch in batches for k in batch["k"].tolist()] == list(range(38))

    buffer = make(strategy="fifo")
    asyncio.run(main())


def test_a_draw_of_many_rows_holds_up_no_draw_of_few(where: str) -> None:
    async def main() -> None:
        many = asyncio.create_task(buffer.sample_async(50, timeout=PATIENCE))
        await asyncio.sleep(0.01)
        few = asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE))
        await asyncio.sleep(0.01)
        add_numbers(buffer, 2)
        assert (await asyncio.wait_for(few, PATIENCE))["k"].tolist() == [0, 1]
        assert not many.done()
        add_numbers(buffer, 50)
        assert len((await asyncio.wait_for(many, PATIENCE))["k"]) == 50

    buffer = make(strategy="fifo")
    asyncio.run(main())


def test_a_timeout_of_zero_tries_once_though_others_wait(where: str) -> None:
    async def main() -> None:
        draws = [asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE)) for _ in range(3)]
        await asyncio.sleep(0.01)
        with pytest.raises(Timeout, match=r"^sample\(2\) would have to wait: "):
            await buffer.sample_async(2, timeout=0)
        with pytest.raises(NotEnoughRows):
            await asyncio.wait_for(buffer.sample_async(2), PATIENCE / 2)
        add_numbers(buffer, 8)
        assert len((await buffer.sample_async(2, timeout=0))["k"]) == 2
        await asyncio.gather(*draws)

    buffer = make(strategy="fifo")
    asyncio.run(main())


def test_a_second_in_line_times_out_by_itself(where: str) -> None:
    async def main() -> None:
        first = asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE))
        await asyncio.sleep(0.01)
        with pytest.raises(Timeout, match=r"^sample\(2\) waited 0\.1 s: .*1 left"):
            await buffer.sample_async(2, timeout=0.1)
        assert not first.done()
        first.cancel()

    buffer = make(strategy="fifo")
    add_numbers(buffer, 1)
    asyncio.run(main())


def test_who_waits_in_line_is_named_to_others() -> None:
    async def main() -> None:
        draws = [asyncio.create_task(buffer.sample_async(4)) for _ in range(3)]
        await until(lambda: buffer.stats()["limiter"]["waiting"] == 1)
        add_numbers(other, 54)
        with pytest.raises(Timeout, match=rf"process {os.getpid()} waits to sample"):
            other.add(*row(0), timeout=0)
        for draw in draws:
            draw.cancel()
        await asyncio.gather(*draws, return_exceptions=True)
        assert buffer.stats()["limiter"]["waiting"] == 0

    buffer = make(f"shm:named-{os.getpid()}", min_size=50, samples_per_insert=1.0, tolerance=4.0)
    other = ReplayBuffer.open(buffer.location)
    buffer.unlink()
    asyncio.run(main())
    other.close()


def test_ctrl_c_ends_what_waits(where: str) -> None:
    async def main() -> None:
        loop = asyncio.get_running_loop()
        loop.call_later(0.05, os.kill, os.getpid(), signal.SIGINT)
        await buffer.sample_async(2)

    buffer = make(min_size=5)
    with pytest.raises(KeyboardInterrupt):
        asyncio.run(main())


# ---- threads end, loops are forgotten


@pytest.mark.usefixtures("long_calls")
def test_the_threads_of_a_buffer_end_when_it_is_closed() -> None:
    eventually_no_threads()
    buffer = make()
    asyncio.run(buffer.add_async(*row(1)))
    assert threads()
    buffer.close()
    eventually_no_threads()
    with pytest.raises(Closed):
        asyncio.run(buffer.add_async(*row(1)))
    with pytest.raises(Closed):
        asyncio.run(buffer.sample_async(1))
    assert not threads()


@pytest.mark.usefixtures("long_calls")
def test_the_threads_of_a_buffer_end_when_nobody_has_it_any_more() -> None:
    eventually_no_threads()
    buffer = make()
    asyncio.run(buffer.add_async(*row(1)))
    gone = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert gone() is None
    eventually_no_threads()


def test_a_loop_that_is_over_is_forgotten(where: str) -> None:
    loops: list[Any] = []

    async def main() -> None:
        loops.append(weakref.ref(asyncio.get_running_loop()))
        draw = asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE))
        await asyncio.sleep(0.01)
        draw.cancel()

    buffer = make(strategy="fifo")
    for _ in range(3):
        asyncio.run(main())
    gc.collect()
    assert [loop() for loop in loops] == [None] * 3


def test_a_loop_that_is_closed_under_a_waiting_call_does_no_harm() -> None:
    loop = asyncio.new_event_loop()
    loop.set_exception_handler(lambda loop, context: None)  # it says that a task was destroyed
    buffer = make(strategy="fifo")
    draws = [loop.create_task(buffer.sample_async(2, timeout=PATIENCE)) for _ in range(3)]
    loop.run_until_complete(asyncio.sleep(0.01))
    loop.close()
    add_numbers(buffer, 6)
    assert asyncio.run(buffer.sample_async(2))["k"].tolist() == [0, 1]
    buffer.close()
    del draws
    gc.collect()


def test_closing_in_another_thread_ends_what_waits(where: str) -> None:
    async def main() -> None:
        draws = [asyncio.create_task(buffer.sample_async(2)) for _ in range(20)]
        await asyncio.sleep(0.01)
        crowd.start(buffer.close)
        for draw in draws:
            with pytest.raises(Closed):
                await asyncio.wait_for(draw, PATIENCE)

    buffer = make(min_size=5)
    with Crowd(race=False) as crowd:
        asyncio.run(main())


# ---- loops of several threads


@pytest.mark.parametrize("limit", [{}, RATIO], ids=["free", "limited"])
def test_tasks_of_several_loops_add_and_draw_each_row_once(
    where: str, limit: dict[str, Any]
) -> None:
    def consume(seed: int) -> list[int]:
        drawn: list[int] = []
        chance = random.Random(seed)
        asyncio.run(gathered(children.consume, buffer, chance, drawn, over.is_set))
        return drawn

    def produce(seed: int) -> list[int]:
        added: list[int] = []
        numbers = range(1000 * seed, 1000 * seed + 150)
        asyncio.run(children.produce(buffer, random.Random(seed), numbers, added))
        return added

    async def gathered(work: Any, *args: Any) -> None:
        await asyncio.gather(*(work(*args) for _ in range(3)))

    over = threading.Event()
    buffer = make(strategy="fifo", **limit)
    with Crowd(race=False) as crowd:
        consumers = [crowd.start(consume, seed) for seed in range(3)]
        producers = [crowd.start(produce, seed) for seed in range(3)]
        added = [k for producer in producers for k in producer.result()]
        over.set()
        drawn = [k for consumer in consumers for k in consumer.result()]
    children.assert_all_drawn_once(buffer, added, drawn)


# ---- writers


def test_steps_are_written_in_the_order_of_the_calls(where: str) -> None:
    async def main() -> None:
        appends = [asyncio.create_task(append(k)) for k in range(12)]
        await until(lambda: appends[4].done())
        assert [task.done() for task in appends] == [True] * 5 + [False] * 7
        appends[6].cancel()
        with pytest.raises(Timeout, match=r"would have to wait: an earlier append of this writer"):
            await append(99, timeout=0)
        with pytest.raises(Timeout, match=r"waited 0\.0 s: an earlier append of this writer"):
            await append(99, timeout=0.01)
        for _ in range(2):
            await buffer.sample_async(3, timeout=PATIENCE)
        await asyncio.gather(*appends[:6], *appends[7:])

    def append(k: int, **options: Any) -> Any:
        return writer.append_async(obs(k), k, 0.0, False, False, **options)

    buffer = steps("heap:", **RATIO)
    writer = buffer.writer()
    asyncio.run(main())
    assert buffer.latest(50)["action"].tolist() == [k for k in range(12) if k != 6]


def test_closing_a_writer_ends_its_calls_that_wait(where: str) -> None:
    async def main() -> None:
        appends = [asyncio.create_task(append(k)) for k in range(12)]
        await until(lambda: appends[4].done())
        writer.close()
        for task in appends[5:]:
            with pytest.raises(Closed):
                await asyncio.wait_for(task, PATIENCE)

    def append(k: int, **options: Any) -> Any:
        return writer.append_async(obs(k), k, 0.0, False, False, **options)

    buffer = steps("heap:", **RATIO)
    writer = buffer.writer()
    asyncio.run(main())
    assert buffer.stats()["rows_added"] == 5


# ---- forks and exits


FORKED = """
import asyncio, os, signal, sys, threading
from replay_buffer import BufferConfig, Column, ReplayBuffer, _core

sys.setswitchinterval(1e-5)
_core.set_long_work(0)  # calls run in threads
config = BufferConfig(100, strategy="fifo")
buffer = ReplayBuffer.create("shm:", config, schema={"k": Column((), "int64")})
asyncio.run(buffer.add_async(1))
asyncio.run(buffer.sample_async(1))
started = threading.Event()

async def wait():
    waiting = [asyncio.create_task(buffer.sample_async(2, timeout=60)) for _ in range(5)]
    await asyncio.sleep(0.05)
    started.set()
    done, rest = await asyncio.wait(waiting, return_when=asyncio.FIRST_COMPLETED)
    for task in rest:
        task.cancel()
    return [task.result()["k"].tolist() for task in done]

got = []
thread = threading.Thread(target=lambda: got.append(asyncio.run(wait())))
thread.start()
started.wait()
pid = os.fork()
if pid == 0:
    signal.alarm(60)  # ends a child that hangs
    async def child():
        assert await buffer.add_async(2) == 1
        try:
            await buffer.sample_async(5, timeout=0.05)
            raise AssertionError("there are not so many rows")
        except Exception as error:
            assert "waited 0.1 s" in str(error) or "waited 0.0 s" in str(error), error
        await buffer.add_async(3)
    asyncio.run(child())
    buffer.close()
    os._exit(0)
_, status = os.waitpid(pid, 0)
assert status == 0, status
thread.join(60)
assert got == [[[2, 3]]], got
"""

PENDING = """
import asyncio, sys
from replay_buffer import BufferConfig, Column, ReplayBuffer, _core

if sys.argv[1] == "threads":
    _core.set_long_work(0)
buffer = ReplayBuffer(BufferConfig(100, min_size=5), schema={"k": Column((), "int64")})
loop = asyncio.new_event_loop()
loop.set_exception_handler(lambda loop, context: None)
kept = [loop.create_task(buffer.sample_async(2)) for _ in range(64)]
loop.run_until_complete(asyncio.sleep(0.05))
print("ends")
"""


def ends_well(script: str, *arguments: str) -> str:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", script, *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


def test_a_child_of_a_fork_awaits_calls_of_its_own() -> None:
    ends_well(FORKED)


@pytest.mark.parametrize("threads", ["loop", "threads"])
def test_a_process_ends_while_calls_wait(threads: str) -> None:
    assert ends_well(PENDING, threads) == "ends\n"
