"""Async calls against the plain ones and against the loop's executor; how soon a wait ends.

Costs: one call after the other, of small rows. Wakes: how long after another process has added it a
row is in the hands of a learner that waits for it; and what processor time 64 draws take that wait.
Writes `awaited.json` to `out/bench`.
"""

from __future__ import annotations

import asyncio
import itertools
import multiprocessing
import statistics
import time
from collections.abc import Awaitable, Callable
from typing import Any

import numpy as np
from benchmarks.micro._measure import quick_asked, write

from replay_buffer import BufferConfig, Column, ReplayBuffer, _core

ROW = 7, np.zeros(4, np.float32)
SCHEMA = {"k": Column((), "int64"), "x": Column((4,))}
RATIO = {"min_size": 1, "samples_per_insert": 1.0, "tolerance": 1.0}


async def microseconds(call: Callable[[], Awaitable[Any]], n: int, repeats: int) -> float:
    """The best of some repeats of n calls."""
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(n):
            await call()
        times.append(time.perf_counter() - begin)
    return min(times) / n * 1e6


def plain(call: Callable[[], Any], n: int, repeats: int) -> float:
    times = []
    for _ in range(repeats):
        begin = time.perf_counter()
        for _ in range(n):
            call()
        times.append(time.perf_counter() - begin)
    return min(times) / n * 1e6


def costs(n: int, repeats: int) -> dict[str, dict[str, float]]:
    buffer = ReplayBuffer(BufferConfig(10_000, strategy="prioritized"), schema=SCHEMA, seed=0)
    for _ in range(1000):
        buffer.add(*ROW)
    ids, errors = np.arange(32), np.ones(32)
    calls: dict[str, tuple[str, tuple[Any, ...]]] = {
        "add": ("add", ROW),
        "sample(32)": ("sample", (32,)),
        "update of 32": ("update_priorities", (ids, errors)),
    }

    async def one(name: str, arguments: tuple[Any, ...]) -> dict[str, float]:
        loop, call = asyncio.get_running_loop(), getattr(buffer, name)
        form = getattr(buffer, name + "_async")
        found = {
            "plain": plain(lambda: call(*arguments), n, repeats),
            "async": await microseconds(lambda: form(*arguments), n, repeats),
            "run_in_executor": await microseconds(
                lambda: loop.run_in_executor(None, call, *arguments), n // 10, repeats
            ),
        }
        before = _core.set_long_work(0)
        found["async, in a thread"] = await microseconds(lambda: form(*arguments), n // 10, repeats)
        _core.set_long_work(before)
        return found

    return {what: asyncio.run(one(*call)) for what, call in calls.items()}


def act(buffer: ReplayBuffer, rows: int, gap: float) -> None:
    for _ in range(rows):
        time.sleep(gap)
        buffer.add(time.perf_counter())


def wakes(awaited: bool, limit: dict[str, Any], gap: float, rows: int) -> dict[str, float]:
    """Milliseconds from the add in one process to the batch in another."""
    config = BufferConfig(1000, strategy="fifo", **limit)
    buffer = ReplayBuffer.create("shm:", config, schema={"t": Column((), "float64")}, seed=0)
    actor = multiprocessing.get_context("fork").Process(target=act, args=(buffer, rows, gap))
    actor.start()
    late: list[float] = []

    async def learn() -> None:
        for _ in range(rows):
            batch = await buffer.sample_async(1, timeout=60)
            late.append(1e3 * (time.perf_counter() - batch["t"][0]))

    if awaited:
        asyncio.run(learn())
    else:
        for _ in range(rows):
            late.append(-1e3 * (buffer.sample(1, timeout=60)["t"][0] - time.perf_counter()))
    actor.join()
    buffer.close()
    deciles = statistics.quantiles(late, n=10)
    return {"median": statistics.median(late), "ninth decile": deciles[-1]}


def processor_share(seconds: float) -> float:
    """Of one processor, while 64 draws wait."""

    async def wait() -> float:
        draws = [asyncio.create_task(buffer.sample_async(2)) for _ in range(64)]
        await asyncio.sleep(0.1)
        begin = time.process_time()
        await asyncio.sleep(seconds)
        used = time.process_time() - begin
        for draw in draws:
            draw.cancel()
        return used / seconds

    buffer = ReplayBuffer(BufferConfig(100, min_size=5), schema=SCHEMA, seed=0)
    return asyncio.run(wait())


def main() -> None:
    quick = quick_asked(__doc__ or "")
    n, repeats, rows = (200, 2, 10) if quick else (10_000, 10, 200)
    results: dict[str, Any] = {"microseconds": costs(n, repeats), "milliseconds to wake": {}}
    for what, times in results["microseconds"].items():
        print(f"{what:14}", *(f"{name} {taken:.1f} µs;" for name, taken in times.items()))
    gaps = (0.002, 0.02)
    limits = {"rows": {}, "the limiter": RATIO}
    for gap, (what, limit), awaited in itertools.product(gaps, limits.items(), (False, True)):
        name = f"{'async' if awaited else 'plain'}, for {what}, every {1e3 * gap:.0f} ms"
        found = wakes(awaited, limit, gap, rows)
        results["milliseconds to wake"][name] = found
        print(f"{name}: {found['median']:.2f} ms, ninth decile {found['ninth decile']:.2f}")
    results["processor"] = processor_share(0.2 if quick else 3)
    print(f"64 draws that wait take {100 * results['processor']:.1f} % of a processor")
    write("awaited", results)


if __name__ == "__main__":
    main()
