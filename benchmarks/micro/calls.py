"""Every target for calls from Python in one table, beside floors measured in the same run.

Targets against peers are `make compare`'s. Vectors: observations of 8 float32 in one million rows.
Frames: 84x84x4 uint8.
"""

from __future__ import annotations

import itertools
from dataclasses import asdict

import numpy as np
from benchmarks.compare.timing import Call, Fresh
from benchmarks.compare.workload import Workload
from benchmarks.micro import _beside
from benchmarks.micro._cells import (
    Cells,
    buffer_cells,
    floor_cells,
    prioritized_cells,
    update_cells,
)
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
from benchmarks.micro._rows import full_buffer, workload
from benchmarks.micro._targets import Target, show, verdicts

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


def frame_cells(rows: Workload) -> Cells:
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
    company = _beside.measure(quick)
    _beside.show(company)
    results = {
        "times": times,
        "targets": {name: asdict(verdict) for name, verdict in found.items()},
        "beside": _beside.as_json(company),
    }
    write("calls", results)


if __name__ == "__main__":
    main()
