"""How long single calls take, each timed by itself: p50 and p99 of every operation.

A mean over many calls hides the few that are slow. Here the clock is read before and after each
call; what that costs is the first line, and part of all the others. Percentiles are of all calls of
all rounds; the quiet ones are of the round in which they were lowest, because other programs of the
machine only ever add. Vectors: observations of 8 float32 in a million rows; frames: 84x84x4
uint8; steps: 8 float32, or frames of 84x84, in episodes of 500. Checkpoints are of 100,000 rows.
Writes `latency.json` and `latency.png` to `out/bench`.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import itertools
import tempfile
import time
import timeit
from collections.abc import Callable, Coroutine, Mapping
from dataclasses import asdict, dataclass
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.compare.timing import Call, Fresh
from benchmarks.compare.workload import Workload
from benchmarks.micro._cells import Cells, buffer_cells, prioritized_cells, update_cells
from benchmarks.micro._measure import OUT, Cell, quick_asked, write
from benchmarks.micro._plot import percentiles
from benchmarks.micro._rows import Strategy, buffer_at, fill, full_buffer, workload
from benchmarks.micro._steps import Steps

from replay_buffer import FrameStack, NStep, ReplayBuffer, Sequence, Trajectory
from replay_buffer.views import Part


@dataclass(frozen=True)
class Pace:
    """How long, and how often at most, a call is made in a round; and how many rounds there are."""

    seconds: float = 0.02
    most: int = 4_000
    rounds: int = 10


@dataclass(frozen=True)
class Sizes:
    """Rows of the buffers."""

    vectors: int = 1_000_000
    frames: int = 10_000
    small: int = 100_000


def nothing() -> None:
    """Stands in the place of a call when the clock itself is timed."""


def timed(call: Call, keep: Callable[[int], None]) -> timeit.Timer:
    """Makes the call between two readings of the clock, whose difference it keeps.

    What is fresh is fetched before the first, and the result is dropped before the second.
    """
    values: dict[str, Any] = {"function": call.function, "nanoseconds": time.perf_counter_ns}
    values["kept"] = keep
    setup, fetch, passed = ["f, clock, keep = function, nanoseconds, kept"], [], []
    named = [("", value) for value in call.arguments]
    named += [(f"{key}=", value) for key, value in call.keywords.items()]
    for i, (prefix, value) in enumerate(named):
        fresh = isinstance(value, Fresh)
        values[f"value{i}"] = value.next if fresh else value
        setup.append(f"v{i} = value{i}")
        fetch += [f"a{i} = v{i}()"] if fresh else []
        passed.append(f"{prefix}{'a' if fresh else 'v'}{i}")
    made = f"f({', '.join(passed)})" if call.function is not nothing else "pass"
    lines = [*fetch, "start = clock()", made, "keep(clock() - start)"]
    return timeit.Timer("\n".join(lines), "\n".join(setup), globals=values)


def one_by_one(call: Call, pace: Pace) -> list[int]:
    """Nanoseconds of each call of one round; the first two are not counted."""
    taken: list[int] = []
    loop = timed(call, taken.append)
    loop.timeit(2)
    taken.clear()
    start = time.perf_counter()
    left = pace.seconds
    while left > 0 and len(taken) < pace.most:
        each = (pace.seconds - left) / len(taken) if taken else pace.seconds
        loop.timeit(max(1, min(100, int(left / each))))
        left = pace.seconds - (time.perf_counter() - start)
    return taken


@dataclass(frozen=True)
class Latency:
    """Percentiles in microseconds."""

    calls: int
    p50: float
    p99: float
    quietest_p50: float
    quietest_p99: float


def in_turns(cells: Mapping[str, Cell], pace: Pace) -> dict[str, Latency]:
    """Of each cell, which take turns; shows them."""
    rounds: dict[str, list[list[int]]] = {}
    for _ in range(pace.rounds):
        for name, cell in cells.items():
            rounds.setdefault(name, []).append(one_by_one(cell.call, pace))
    found = {}
    for name, each in rounds.items():
        everything = np.concatenate(each) / 1e3
        p50, p99 = (float(np.percentile(everything, p)) for p in (50, 99))
        quiet50, quiet99 = (min(float(np.percentile(r, p)) / 1e3 for r in each) for p in (50, 99))
        found[name] = Latency(len(everything), p50, p99, quiet50, quiet99)
        numbers = "".join(f"{n:11.2f}" for n in (p50, p99, quiet50, quiet99))
        print(f"{name:48}{numbers}{len(everything):9,}", flush=True)
    return found


def whole(name: str, cells: Cells) -> dict[str, Cell]:
    """The same by another name: here the time is that of a call, not of a row."""
    return {f"{name}: {call.removesuffix(', per row')}": cell for call, cell in cells}


def reading(buffer: ReplayBuffer) -> Cells:
    """What reads without drawing, from a prioritized buffer to which nothing is added."""
    ids = itertools.cycle([buffer.sample(32)["indices"] for _ in range(256)])
    yield "latest 32", Cell(Call(buffer.latest, (32,)))
    yield "get 32", Cell(Call(buffer.get, (Fresh(ids.__next__),)))
    yield "len", Cell(Call(len, (buffer,)))
    yield "stats", Cell(Call(buffer.stats))
    yield "priorities of 32", Cell(Call(buffer.priorities, (Fresh(ids.__next__),)))
    yield "peek 32", Cell(Call(buffer.peek, (Fresh(ids.__next__),)))
    yield "peek_latest 32", Cell(Call(buffer.peek_latest, (32,)))


def awaited_cells(rows: Workload, loop: asyncio.AbstractEventLoop) -> Cells:
    """The async forms of the hot calls, each a task of its own."""
    buffer = full_buffer(rows, "prioritized")
    row = tuple(column[0] for column in rows.rows(1).values())
    batch = buffer.sample(32)
    calls: dict[str, Callable[[], Coroutine[Any, Any, Any]]] = {
        "a task that does nothing": partial(asyncio.sleep, 0),
        "add_async": partial(buffer.add_async, *row),
        "sample_async 32": partial(buffer.sample_async, 32),
        "update_priorities_async 32": partial(
            buffer.update_priorities_async, batch["indices"], np.abs(batch["weights"])
        ),
    }
    for name, call in calls.items():
        yield f"awaited: {name}", Cell(Call(loop.run_until_complete, (Fresh(call),)))


def strategy_cells(rows: Workload) -> Cells:
    """A batch by each of the other strategies."""
    some = tuple(rows.rows(32).values())
    others: tuple[Strategy, ...] = ("rank", "without_replacement", "fifo", "lifo")
    for strategy in others:
        buffer = full_buffer(rows, strategy)

        def refilled(buffer: ReplayBuffer = buffer) -> int:
            if buffer.config.strategy == "fifo":
                buffer.add_batch(*some)
            return 32

        yield f"{strategy}: sample 32", Cell(Call(buffer.sample, (Fresh(refilled),)))


def step_cells(sizes: Sizes) -> Cells:
    """Appending, and batches of views."""
    vectors = Steps((8,), "float32", sizes.vectors)
    frames = Steps((84, 84), "uint8", sizes.frames)
    for streams in (1, 64):
        said = f"steps of {streams} environment{'s' if streams > 1 else ''}"
        buffer = vectors.full(streams)
        step = (*vectors.one(streams), *(np.zeros(streams, bool),) * 2)
        writer = vectors.full(streams).writer(streams=streams)
        yield f"{said}: append", Cell(Call(writer.append, step))
        views: dict[str, Part] = {"3 steps": NStep(3, gamma=0.99), "sequences of 80": Sequence(80)}
        if streams == 1:
            views["episodes of 500"] = Trajectory(500)
        for what, view in views.items():
            sample = buffer.view(view).sample
            yield f"{said}: sample 32 {what}", Cell(Call(sample, (32,)))
    stacks = frames.full().view(FrameStack(4))
    yield "steps of frames: sample 32 stacks of 4 frames", Cell(Call(stacks.sample, (32,)))


def seldom_cells(sizes: Sizes, folder: Path) -> Cells:
    """What a program does now and then, on whole buffers."""
    rows = workload((8,), "float32", sizes.small)
    names = (f"{folder}/{n}" for n in itertools.count())
    stored = fill(buffer_at(f"file:{folder}/opened.rb", rows, "prioritized"), rows)
    saved = f"{folder}/saved"
    stored.checkpoint(saved)
    yield "open and close a file", Cell(Call(ReplayBuffer.open, (stored.location,)))
    yield "a new checkpoint", Cell(Call(stored.checkpoint, (Fresh(names.__next__),)))
    yield "a checkpoint where nothing changed", Cell(Call(stored.checkpoint, (saved,)))
    yield "restore", Cell(Call(ReplayBuffer.restore, (saved,)))
    exponents = itertools.cycle((0.5, 0.6))
    yield "alpha", Cell(Call(setattr, (stored, "alpha", Fresh(exponents.__next__))))
    cleared = full_buffer(rows, "prioritized")

    def refilled() -> ReplayBuffer:
        cleared.add_batch(*rows.rows(1000).values())
        return cleared

    yield "clear", Cell(Call(ReplayBuffer.clear, (Fresh(refilled),)))


def vector_cells(sizes: Sizes) -> dict[str, Cell]:
    """Rows of vectors, uniform and by priority."""
    rows = workload((8,), "float32", sizes.vectors)
    uniform, weighted = full_buffer(rows), full_buffer(rows, "prioritized")
    still = full_buffer(rows, "prioritized")
    return (
        {"the clock alone": Cell(Call(nothing))}
        | whole("uniform", buffer_cells(uniform, rows))
        | whole("prioritized", prioritized_cells(weighted, rows))
        | whole("prioritized", update_cells(still))
        | whole("prioritized", reading(still))
    )


def main() -> None:
    """Group after group, show, write."""
    quick = quick_asked("p50 and p99 of every operation.")
    pace, slow = (Pace(0.002, 50, 2),) * 2 if quick else (Pace(), Pace(seconds=0.1))
    sizes = Sizes(20_000, 500, 5_000) if quick else Sizes()
    gc.disable()
    OUT.mkdir(parents=True, exist_ok=True)
    columns = "".join(f"{name:>11}" for name in ("p50", "p99", "quiet p50", "quiet p99"))
    print(f"{'microseconds, call by call':48}{columns}{'calls':>9}")
    found = in_turns(vector_cells(sizes), pace)
    found |= in_turns(dict(strategy_cells(workload((8,), "float32", sizes.vectors))), pace)
    frames = workload((84, 84, 4), "uint8", sizes.frames)
    found |= in_turns(whole("frames", buffer_cells(full_buffer(frames), frames)), slow)
    found |= in_turns(dict(step_cells(sizes)), pace)
    with contextlib.closing(asyncio.new_event_loop()) as loop:
        vectors = workload((8,), "float32", sizes.vectors)
        found |= in_turns(dict(awaited_cells(vectors, loop)), pace)
    with tempfile.TemporaryDirectory(dir=OUT) as folder:
        found |= in_turns(dict(seldom_cells(sizes, Path(folder))), slow)
    drawn = {name: (latency.quietest_p50, latency.quietest_p99) for name, latency in found.items()}
    percentiles("How long calls take, in the quietest round", drawn, OUT / "latency.png")
    write("latency", {name: asdict(latency) for name, latency in found.items()})


if __name__ == "__main__":
    main()
