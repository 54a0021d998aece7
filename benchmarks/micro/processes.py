"""Shared memory and files against private memory, and several processes on one buffer.

Calls: the same on buffers of one million rows in each location, taken in turns; the target is 10 %
above private memory. Crowds: one, two and four processes writing or learning, or both; the target
is 1.6 times the rows of one for two that write; idlers, which share nothing, show what the machine
has to give. `open`: the target is a millisecond. Observations of 8 float32. Writes `processes.json`
and `processes.png` to `out/bench`.
"""

from __future__ import annotations

import gc
import itertools
import statistics
import tempfile
import time
from collections.abc import Iterator
from contextlib import ExitStack
from pathlib import Path
from typing import Any

from benchmarks.compare.timing import Call, Fresh
from benchmarks.compare.workload import Workload
from benchmarks.micro._crowd import Crowd
from benchmarks.micro._measure import (
    OUT,
    QUICK,
    ROOT,
    Cell,
    Pace,
    Times,
    in_turns,
    quick_asked,
    write,
)
from benchmarks.micro._rows import (
    Strategy,
    buffer_at,
    fill,
    one_row,
    priorities,
    workload,
)

from replay_buffer import ReplayBuffer

PLACES = ("heap", "shm", "file")
STRATEGIES: tuple[Strategy, ...] = ("uniform", "prioritized")
MOST_ABOVE_HEAP = 1.10
LEAST_OF_TWO_WRITERS = 1.6
MOST_OPEN_US = 1000.0
CROWDS: dict[str, tuple[str, ...]] = {
    "1 idler": ("idler",),
    "2 idlers": ("idler",) * 2,
    "4 idlers": ("idler",) * 4,
    "1 writer": ("writer",),
    "2 writers": ("writer",) * 2,
    "4 writers": ("writer",) * 4,
    "1 batch writer": ("batch writer",),
    "2 batch writers": ("batch writer",) * 2,
    "4 batch writers": ("batch writer",) * 4,
    "1 learner": ("learner",),
    "2 learners": ("learner",) * 2,
    "4 learners": ("learner",) * 4,
    "1 writer, 1 learner": ("writer", "learner"),
    "2 writers, 2 learners": ("writer", "writer", "learner", "learner"),
}
DOES = {"added": ("writer", "batch writer"), "sampled": ("learner",), "called": ("idler",)}
CPU = " a second of processors"
Rates = dict[str, dict[str, float]]  # by crowd: rows a second, added and sampled, also by CPU time


def create(
    where: str, rows: Workload, strategy: Strategy, folder: Path, name: str = "calls"
) -> ReplayBuffer:
    """A full buffer; files in `folder`."""
    path = folder / f"{name}-{strategy}.rb"
    location = {"heap": "heap:", "shm": "shm:", "file": f"file:{path}"}[where]
    return fill(buffer_at(location, rows, strategy), rows)


def calls(buffer: ReplayBuffer, rows: Workload) -> Iterator[tuple[str, Cell]]:
    """What a training loop calls."""
    yield "add", Cell(Call(buffer.add, one_row(rows)))
    yield "add_batch 64, per row", Cell(Call(buffer.add_batch, tuple(rows.rows(64).values())), 64)
    for n in (32, 256):
        yield f"sample {n}", Cell(Call(buffer.sample, (n,), {"out": buffer.sample(n)}))


def updates(buffer: ReplayBuffer) -> Cell:
    """Of rows that are there: nothing may be added to this buffer."""
    ids = itertools.cycle([buffer.sample(32)["indices"] for _ in range(256)])
    errors = itertools.cycle([priorities(32, seed) for seed in range(251)])
    return Cell(Call(buffer.update_priorities, (Fresh(ids.__next__), Fresh(errors.__next__))))


def time_calls(rows: Workload, strategy: Strategy, folder: Path, pace: Pace) -> Times:
    """By "call, place": each call in all places, one after the other."""
    with ExitStack() as stack:
        cells: dict[str, dict[str, Cell]] = {}
        for place in PLACES:
            buffer = stack.enter_context(create(place, rows, strategy, folder))
            for name, cell in calls(buffer, rows):
                cells.setdefault(name, {})[place] = cell
            if strategy == "prioritized":
                still = stack.enter_context(create(place, rows, strategy, folder, "still"))
                cells.setdefault("update 32", {})[place] = updates(still)
        flat = {f"{name}, {p}": cell for name, by in cells.items() for p, cell in by.items()}
        return in_turns(flat, (), pace)


def time_crowds(
    rows: Workload, strategy: Strategy, folder: Path, seconds: float, repeats: int
) -> Rates:
    """The best of all repeats, each of which has every crowd once."""
    found: Rates = {}
    with create("shm", rows, strategy, folder) as buffer, Crowd(buffer, rows, 4) as crowd:
        for _ in range(repeats):
            for name, roles in CROWDS.items():
                rates = crowd.rates(roles, seconds)
                best = found.setdefault(name, {})
                for what, roles_of_it in DOES.items():
                    own = [
                        rate for rate, role in zip(rates, roles, strict=True) if role in roles_of_it
                    ]
                    if own:
                        keep_most(best, what, sum(rate for rate, _ in own))
                        keep_most(best, what + CPU, sum(rate for _, rate in own))
    return found


def keep_most(numbers: dict[str, float], name: str, value: float) -> None:
    numbers[name] = max(numbers.get(name, 0.0), value)


def time_open(rows: Workload, folder: Path, repeats: int) -> Times:
    """Opening a full prioritized buffer that another handle has open."""
    found: Times = {}
    with create("file", rows, "prioritized", folder) as buffer:
        for readonly in (False, True):
            taken = []
            for _ in range(repeats):
                begin = time.perf_counter()
                handle = ReplayBuffer.open(buffer.location, readonly=readonly)
                taken.append((time.perf_counter() - begin) * 1e6)
                handle.close()
            name = "open, read-only" if readonly else "open"
            found[name] = {"best": min(taken), "median": statistics.median(taken)}
        buffer.unlink()
    return found


def verdict(holds: bool) -> str:
    return "pass" if holds else "MISS"


def show_calls(strategy: str, times: Times) -> None:
    """A line a call: microseconds in private memory, the others as multiples of it."""
    print(
        f"\n{strategy + ', us':28}{'heap':>9}{'shm':>9}{'file':>9}{'shm/heap':>10}{'file/heap':>11}"
    )
    for name in dict.fromkeys(key.rsplit(", ", 1)[0] for key in times):
        heap, shm, file = (times[f"{name}, {place}"]["best"] for place in PLACES)
        word = verdict(shm <= MOST_ABOVE_HEAP * heap)
        print(
            f"{name:28}{heap:9.3f}{shm:9.3f}{file:9.3f}"
            f"{shm / heap:10.2f}{file / heap:11.2f}  {word}",
            flush=True,
        )


def show_crowds(strategy: str, rates: Rates) -> None:
    """A line a crowd: thousands of rows a second; as multiples of one process alone, in time and in
    the time of processors.
    """
    print(f"\n{strategy}, thousands of rows a second; x one process, in time (and of processors)")
    for crowd, entry in rates.items():
        parts = []
        for what in DOES:
            if what not in entry:
                continue
            alone = rates[f"1 {'batch writer' if 'batch' in crowd else DOES[what][0]}"]
            times, cpu = entry[what] / alone[what], entry[what + CPU] / alone[what + CPU]
            target = crowd in ("2 writers", "2 batch writers")
            word = f" {verdict(times >= LEAST_OF_TWO_WRITERS)}" if target else ""
            parts.append(f"{what} {entry[what] / 1e3:9.1f}  {times:5.2f} x ({cpu:4.2f} x){word}")
        print(f"  {crowd:24}" + "   ".join(parts), flush=True)


def draw(times: dict[str, Times], rates: dict[str, Rates], path: Path) -> None:
    """Bars: calls as multiples of private memory; rows a second by processes."""
    try:
        import matplotlib
    except ImportError:
        print(f"no {path.name}: matplotlib is not installed")
        return
    matplotlib.use("Agg")
    from matplotlib import pyplot

    figure, axes = pyplot.subplots(1, 2, figsize=(13, 5), layout="constrained")
    bars = [
        (
            f"{name}\n{strategy}",
            [by[f"{name}, {p}"]["best"] / by[f"{name}, heap"]["best"] for p in PLACES[1:]],
        )
        for strategy, by in times.items()
        for name in dict.fromkeys(key.rsplit(", ", 1)[0] for key in by)
    ]
    for i, place in enumerate(PLACES[1:]):
        at = [k + (i - 0.5) * 0.38 for k in range(len(bars))]
        axes[0].bar(at, [values[i] for _, values in bars], 0.36, label=place)
    axes[0].set_xticks(range(len(bars)), [name for name, _ in bars], rotation=60, ha="right")
    axes[0].axhline(1.0, color="black", linewidth=0.8)
    axes[0].axhline(MOST_ABOVE_HEAP, color="red", linewidth=0.8, linestyle="--", label="target")
    axes[0].set_ylabel("time, in multiples of private memory (best)")
    axes[0].legend()
    for strategy, by in rates.items():
        for role, what in [(role, what) for what, roles in DOES.items() for role in roles]:
            crowds = [(1, f"1 {role}"), (2, f"2 {role}s"), (4, f"4 {role}s")]
            axes[1].plot(
                [n for n, _ in crowds],
                [by[name][what] / by[crowds[0][1]][what] for _, name in crowds],
                marker="o",
                label=f"{role}s, {strategy}",
            )
    axes[1].set_xticks([1, 2, 4])
    axes[1].set_xlabel("processes")
    axes[1].set_ylabel("rows a second, in multiples of one process")
    axes[1].grid(alpha=0.3)
    axes[1].legend()
    figure.savefig(path, dpi=110)
    pyplot.close(figure)
    print(f"written to {path.relative_to(ROOT)}")


def main() -> None:
    """Calls, crowds, open."""
    quick = quick_asked("Shared memory and files against private memory; several processes.")
    rows = workload((8,), "float32", 20_000 if quick else 1_000_000)
    pace, seconds, repeats = (QUICK, 0.02, 1) if quick else (Pace(), 0.25, 12)
    times: dict[str, Times] = {}
    rates: dict[str, Rates] = {}
    gc.disable()
    OUT.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=OUT) as name:
        folder = Path(name)
        opened = time_open(rows, folder, 20 if quick else 500)
        for strategy in STRATEGIES:
            times[strategy] = time_calls(rows, strategy, folder, pace)
            show_calls(strategy, times[strategy])
            rates[strategy] = time_crowds(rows, strategy, folder, seconds, repeats)
            show_crowds(strategy, rates[strategy])
    print(f"\n{'microseconds':28}{'best':>9}{'median':>9}")
    for name, taken in opened.items():
        word = verdict(taken["median"] <= MOST_OPEN_US)
        print(f"{name:28}{taken['best']:9.1f}{taken['median']:9.1f}  {word}")
    draw(times, rates, OUT / "processes.png")
    results: dict[str, Any] = {"calls": times, "crowds": rates, "open": opened}
    write("processes", results)


if __name__ == "__main__":
    main()
