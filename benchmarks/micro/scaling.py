"""What a call costs in small and in huge buffers: from a thousand rows to a hundred million.

Uniform: `add` and `sample`, which should be flat but for cache misses; the floor beside them is a
C++ gather of as many bytes out of as many rows. Prioritized: the same with a tree, which grows with
the logarithm. Observations of 4 float32. Sizes that do not fit into memory are left out. Writes
`scaling.json`, `scaling_uniform.png` and `scaling_prioritized.png` to `out/bench`.
"""

from __future__ import annotations

from benchmarks.compare.timing import Call
from benchmarks.compare.workload import Workload
from benchmarks.micro._cells import Cells, update_cells
from benchmarks.micro._measure import (
    OUT,
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
from benchmarks.micro._plot import Series, draw
from benchmarks.micro._rows import Strategy, empty_buffer, fill, one_row, workload

from replay_buffer import ReplayBuffer

SIZES = [10**n for n in range(3, 9)]
QUICK_SIZES = SIZES[:3]
PACE = Pace(0.0015, 20, 15)


def cells(buffer: ReplayBuffer, rows: Workload) -> Cells:
    """Adding a row, drawing into arrays of the caller."""
    yield "add", Cell(Call(buffer.add, one_row(rows)))
    for n in (32, 256):
        yield f"sample {n}", Cell(Call(buffer.sample, (n,), {"out": buffer.sample(n)}))


def fits(what: str, size: int, needed: int) -> bool:
    """Whether there is memory for it, with some to spare; says so when there is not."""
    free = available_bytes()
    if 1.1 * needed + 2**29 <= free:
        return True
    why = f"needs {needed / 1e9:.1f} GB, {free / 1e9:.1f} GB are free"
    print(f"{what}, {size:,} rows: left out, {why}", flush=True)
    return False


def one_size(strategy: Strategy, size: int, pace: Pace) -> Times:
    """The times of a full buffer of `size` rows, and of its floor; empty if it does not fit."""
    rows = workload((4,), "float32", size)
    with empty_buffer(rows, strategy) as buffer:
        buffer.add(*one_row(rows))  # settles the columns, and with them the size
        if not fits(strategy, size, buffer.stats()["segment_bytes"]):
            return {}
        fill(buffer, rows)
        times = in_turns(dict(cells(buffer, rows)), (), pace)
        if strategy == "prioritized":
            ((_, update),) = update_cells(buffer)
            times |= in_turns({"update 32": update}, (), pace)
    if strategy == "uniform" and fits("gather floor", size, rows.row_bytes * size):
        for gather in start_gather(rows.row_bytes, size, (32, 256)):
            times |= in_turns({}, (gather,), pace)
            gather.close()
    return times


def show(strategy: str, series: Series) -> None:
    """A line a size."""
    names = list(dict.fromkeys(name for times in series.values() for name in times))
    print(f"\n{strategy}, best, us".ljust(28) + "".join(f"{name:>12}" for name in names))
    for size, times in series.items():
        numbers = (f"{times[name]['best']:12.3f}" if name in times else " " * 12 for name in names)
        print(f"{size:>15,} rows      " + "".join(numbers), flush=True)


def main() -> None:
    """Both strategies, all sizes."""
    quick = quick_asked("Times calls on buffers from a thousand rows to a hundred million.")
    pace = QUICK if quick else PACE
    results: dict[str, Series] = {}
    OUT.mkdir(parents=True, exist_ok=True)
    strategies: tuple[Strategy, ...] = ("uniform", "prioritized")
    for strategy in strategies:
        series: Series = {}
        for size in QUICK_SIZES if quick else SIZES:
            if times := one_size(strategy, size, pace):
                series[size] = times
        show(strategy, series)
        draw(
            f"Cost of calls from Python, {strategy}, 4 float32 an observation",
            series,
            OUT / f"scaling_{strategy}.png",
        )
        results[strategy] = series
    write("scaling", results)


if __name__ == "__main__":
    main()
