"""Every target for calls from Python in one table, beside floors measured in the same run.

Targets against peers are `make compare`'s. Vectors: observations of 8 float32 in one million rows.
Frames: 84x84x4 uint8.
"""

from __future__ import annotations

import gc
import itertools
from collections.abc import Callable, Iterator
from dataclasses import asdict

import numpy as np
from benchmarks.compare.timing import Call, Fresh
from benchmarks.compare.workload import Workload
from benchmarks.micro import _beside
from benchmarks.micro._measure import (
    QUICK,
    Cell,
    Pace,
    Times,
    available_bytes,
    in_turns,
    quick_asked,
    start_gather,
    write,
)
from benchmarks.micro._memory import overheads
from benchmarks.micro._rows import full_buffer, one_row, priorities, workload
from benchmarks.micro._targets import Target, show, verdicts

from replay_buffer import ReplayBuffer

TARGETS = (
    Target("add", "6 x empty call", lambda best: 6 * best("empty call")),
    Target("add_batch 64, per row", "25 ns", lambda _: 0.025),
    Target(
        "sample 32",
        "2 x (six arrays + gather)",
        lambda best: 2 * (best("six arrays of 32") + best("gather 32")),
    ),
    Target("sample 32 into arrays", "1 us", lambda _: 1.0),
    Target("sample 256", "2 x gather + 1 us", lambda best: 2 * best("gather 256") + 1),
    Target("frames: sample 32", "np.take", lambda best: best("np.take of 32 frames")),
    Target("prioritized: sample 32", "4 us", lambda _: 4.0),
    Target("prioritized: add with priority", "3 x add", lambda best: 3 * best("add")),
    Target("prioritized: add_batch 64, per row", "80 ns", lambda _: 0.08),
    Target("prioritized: add_batch 64 with priorities, per row", "80 ns", lambda _: 0.08),
)


def floor_cells(rows: Workload) -> Iterator[tuple[str, Cell]]:
    """An empty builtin call; the arrays of a batch, uninitialised, in a dict."""
    yield "empty call", Cell(Call(gc.isenabled))
    for n in (32, 256):
        yield f"six arrays of {n}", Cell(Call(arrays_of(rows, n)))
    yield "seven arrays of 32", Cell(Call(arrays_of(rows, 32, weights=True)))


def arrays_of(rows: Workload, n: int, weights: bool = False) -> Callable[[], object]:
    """A function that makes what a batch consists of."""
    shape, dtype = (n, *rows.obs_shape), np.dtype(rows.obs_dtype)
    empty, int64, float32, flag = np.empty, np.dtype("i8"), np.dtype("f4"), np.dtype("?")

    def six() -> dict[str, object]:
        return {
            "obs": empty(shape, dtype),
            "action": empty(n, int64),
            "reward": empty(n, float32),
            "next_obs": empty(shape, dtype),
            "done": empty(n, flag),
            "indices": empty(n, int64),
        }

    def seven() -> dict[str, object]:
        return {**six(), "weights": empty(n, float32)}

    return seven if weights else six


def buffer_cells(buffer: ReplayBuffer, rows: Workload) -> Iterator[tuple[str, Cell]]:
    """Adding and drawing by position, as in a training loop."""
    batch = tuple(rows.rows(64).values())
    yield "add", Cell(Call(buffer.add, one_row(rows)))
    yield "add_batch 64, per row", Cell(Call(buffer.add_batch, batch), per=64)
    for n in (32, 256):
        yield f"sample {n}", Cell(Call(buffer.sample, (n,)))
        yield f"sample {n} into arrays", Cell(Call(buffer.sample, (n,), {"out": buffer.sample(n)}))


def prioritized_cells(buffer: ReplayBuffer, rows: Workload) -> Iterator[tuple[str, Cell]]:
    """The same with priorities, and what only a prioritized buffer has."""
    batch, given = tuple(rows.rows(64).values()), {"priority": priorities(64)}
    yield from buffer_cells(buffer, rows)
    yield "add with priority", Cell(Call(buffer.add, one_row(rows), {"priority": 0.5}))
    yield (
        "add_batch 64 with priorities, per row",
        Cell(Call(buffer.add_batch, batch, given), per=64),
    )


def update_cells(buffer: ReplayBuffer) -> Iterator[tuple[str, Cell]]:
    """Updates of rows that are there: to be timed when nothing is added any more."""
    # 251 is no divisor of 256: ids that come again bring other errors.
    ids = itertools.cycle([buffer.sample(32)["indices"] for _ in range(256)])
    errors = itertools.cycle([priorities(32, seed) for seed in range(251)])
    update = Call(buffer.update_priorities, (Fresh(ids.__next__), Fresh(errors.__next__)))
    yield "update_priorities 32", Cell(update)


def frame_cells(rows: Workload) -> Iterator[tuple[str, Cell]]:
    """Batches of frames, and `np.take` of the two observations of as many random rows."""
    if 2.5 * rows.row_bytes * rows.capacity > available_bytes():
        print(f"frames are left out: {rows.capacity:,} rows twice do not fit into memory")
        return
    buffer = full_buffer(rows)
    for name, cell in buffer_cells(buffer, rows):
        if "256" not in name:
            yield f"frames: {name}", cell
    shape, take = (rows.capacity, *rows.obs_shape), np.take
    first, second = np.ones(shape, rows.obs_dtype), np.ones(shape, rows.obs_dtype)
    drawn = np.random.default_rng(0).integers(0, rows.capacity, (4096, 32))

    def both(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        return take(first, ids, 0), take(second, ids, 0)

    yield "np.take of 32 frames", Cell(Call(both, (Fresh(itertools.cycle(drawn).__next__),)))


def measure_all(quick: bool) -> Times:
    """Every cell and floor, in turns."""
    vectors = workload((8,), "float32", 50_000 if quick else 1_000_000)
    frames = workload((84, 84, 4), "uint8", 500 if quick else 20_000)
    cells = dict(floor_cells(vectors))
    cells |= buffer_cells(full_buffer(vectors), vectors)
    weighted = full_buffer(vectors, "prioritized")
    cells |= {f"prioritized: {name}": cell for name, cell in prioritized_cells(weighted, vectors)}
    cells |= frame_cells(frames)
    gathers = start_gather(vectors.row_bytes, vectors.capacity, (32, 256))
    pace = QUICK if quick else Pace()
    try:
        times = in_turns(cells, gathers, pace)
        updates = {f"prioritized: {name}": cell for name, cell in update_cells(weighted)}
        return times | in_turns(updates, (), pace)
    finally:
        for gather in gathers:
            gather.close()


def main() -> None:
    """Measure, show, write."""
    quick = quick_asked("Times calls from Python against targets and floors.")
    times = measure_all(quick)
    found = verdicts(times, TARGETS)
    show(times, found)
    memory = overheads()
    print("\nmemory beyond the rows themselves")
    for entry in memory:
        print(entry)
    company = _beside.measure(quick)
    _beside.show(company)
    results = {
        "times": times,
        "targets": {name: asdict(verdict) for name, verdict in found.items()},
        "memory": [asdict(m) for m in memory],
        "beside": _beside.as_json(company),
    }
    write("calls", results)


if __name__ == "__main__":
    main()
