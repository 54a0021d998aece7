"""One, two and four Python threads on one buffer: rows a second of all of them together.

Calls hold the GIL, so more threads cannot be faster, but they must not bring each other down. A
batch of frames (84x84x4 uint8) is copied by several threads even when one asks for it.
"""

from __future__ import annotations

import gc
import statistics
from collections.abc import Callable

from benchmarks.compare.workload import Workload
from benchmarks.micro._crowd import together
from benchmarks.micro._measure import available_bytes, quick_asked, write
from benchmarks.micro._rows import Strategy, full_buffer, one_row, workload

from replay_buffer import ReplayBuffer

BATCH = 32
CROWDS = ((1, 0), (2, 0), (4, 0), (0, 1), (0, 2), (0, 4), (1, 1), (2, 2))  # writers, learners
Rates = dict[str, float]


def learner(buffer: ReplayBuffer) -> Callable[[], object]:
    """Draws into arrays of its own."""
    sample, out = buffer.sample, buffer.sample(BATCH)
    return lambda: sample(BATCH, out=out)


def writer(buffer: ReplayBuffer, rows: Workload) -> Callable[[], object]:
    """Adds one row after the other."""
    add, row = buffer.add, one_row(rows)
    return lambda: add(*row)


def rates(buffer: ReplayBuffer, rows: Workload, seconds: float, repeats: int) -> dict[str, Rates]:
    """For each crowd the median rows a second, added and sampled."""
    found: dict[str, Rates] = {}
    for writers, learners in CROWDS:
        works = [writer(buffer, rows) for _ in range(writers)]
        works += [learner(buffer) for _ in range(learners)]
        runs = [together(works, seconds) for _ in range(repeats)]
        entry: Rates = {}
        if writers:
            entry["added"] = statistics.median(sum(run[:writers]) for run in runs)
        if learners:
            entry["sampled"] = BATCH * statistics.median(sum(run[writers:]) for run in runs)
        found[f"{writers} writers, {learners} learners"] = entry
    return found


def show(name: str, found: dict[str, Rates]) -> None:
    """A line a crowd, beside the same with one thread alone."""
    alone = found["1 writers, 0 learners"] | found["0 writers, 1 learners"]
    print(f"\n{name}: thousands of rows a second (and of one thread alone)")
    for crowd, entry in found.items():
        parts = (f"{k} {v / 1e3:9.1f} ({v / alone[k]:4.0%})" for k, v in entry.items())
        print(f"  {crowd:24}" + "   ".join(parts), flush=True)


def main() -> None:
    """Vectors and frames, uniform and prioritized."""
    quick = quick_asked("Several Python threads on one buffer.")
    seconds, repeats = (0.02, 1) if quick else (0.2, 5)
    vectors = workload((8,), "float32", 10_000 if quick else 1_000_000)
    frames = workload((84, 84, 4), "uint8", 200 if quick else 10_000)
    strategies: tuple[Strategy, ...] = ("uniform", "prioritized")
    results: dict[str, dict[str, Rates]] = {}
    gc.disable()
    for name, rows in (("vectors", vectors), ("frames", frames)):
        if 1.5 * rows.row_bytes * rows.capacity > available_bytes():
            print(f"{name} are left out: {rows.capacity:,} rows do not fit into memory")
            continue
        for strategy in strategies:
            with full_buffer(rows, strategy) as buffer:
                found = rates(buffer, rows, seconds, repeats)
            show(f"{name}, {strategy}", found)
            results[f"{name}, {strategy}"] = found
    write("threads", results)


if __name__ == "__main__":
    main()
