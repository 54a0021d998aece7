"""What Python adds to the C++ API: the same calls on the same rows from both, in one run, in turns.

In each round the C++ benchmarks fill their buffers and measure, then Python does. Numbers are the
best of all rounds. The target is a tenth above C++. Beside each call that misses it stands a floor:
what C++ takes and, on top, a builtin function that does nothing, or the arrays of a batch, made by
NumPy and not filled. C++ is the typed API, whose batches are vectors or spans of rows, with their
priorities where there are any; Python's are arrays in a dict. Where the typed API has no such
benchmark, C++ is the core below it, which fills arrays. Vectors: observations of 8 float32 in a
million rows; frames: 84x84x4 uint8 in ten thousand. Writes `overhead.json` to `out/bench`.
"""

from __future__ import annotations

import gc
import json
import os
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.micro._cells import buffer_cells, floor_cells, prioritized_cells, update_cells
from benchmarks.micro._measure import (
    PROGRAM,
    QUICK,
    ROOT,
    Cell,
    Pace,
    in_turns,
    quick_asked,
    write,
)
from benchmarks.micro._rows import full_buffer, workload

MOST = 1.10
UNITS = {"ns": 1e-3, "us": 1.0, "ms": 1e3}
Best = dict[str, float]  # microseconds


@dataclass(frozen=True)
class Pair:
    """A call from Python and the C++ benchmark of it, which adds `per` rows; and what Python cannot
    do without.
    """

    call: str
    cpp: str
    floor: str = "empty call"
    per: int = 1


PAIRS = (
    Pair("add", "ReplayBuffer/Uniform/Add"),
    Pair("add_batch 64, per row", "Core/Uniform/Add/64", per=64),
    Pair("sample 32", "ReplayBuffer/Uniform/Sample/32", "six arrays of 32"),
    Pair("sample 256", "ReplayBuffer/Uniform/Sample/256", "six arrays of 256"),
    Pair("sample 32 into arrays", "ReplayBuffer/Uniform/SampleInto/32"),
    Pair("sample 256 into arrays", "ReplayBuffer/Uniform/SampleInto/256"),
    Pair("prioritized: add with priority", "ReplayBuffer/Prioritized/Add"),
    Pair("prioritized: add_batch 64, per row", "Core/Prioritized/Add/64", per=64),
    Pair("prioritized: sample 32", "ReplayBuffer/Prioritized/SampleBatch/32", "seven arrays of 32"),
    Pair(
        "prioritized: sample 256", "ReplayBuffer/Prioritized/SampleBatch/256", "seven arrays of 256"
    ),
    Pair("prioritized: sample 32 into arrays", "ReplayBuffer/Prioritized/SampleInto/32"),
    Pair("prioritized: sample 256 into arrays", "Core/Prioritized/Sample/256"),
    Pair(
        "prioritized: update_priorities 32",
        "ReplayBuffer/Prioritized/UpdatePriorities/32",
        "two fetched arguments",
    ),
    Pair("frames: sample 32 into arrays", "Core/Uniform/Sample/32_frames"),
)


def cells(rows: int, frames: int) -> dict[str, Cell]:
    """What Python calls, and its floors."""
    vectors, images = workload((8,), "float32", rows), workload((84, 84, 4), "uint8", frames)
    weighted, still = (full_buffer(vectors, "prioritized") for _ in range(2))
    found = dict(floor_cells(vectors)) | dict(buffer_cells(full_buffer(vectors), vectors))
    for name, some in (
        ("prioritized", prioritized_cells(weighted, vectors)),
        ("prioritized", update_cells(still)),
        ("frames", buffer_cells(full_buffer(images), images)),
    ):
        found |= {f"{name}: {call}": cell for call, cell in some}
    wanted = {name for pair in PAIRS for name in (pair.call, pair.floor)}
    return {name: cell for name, cell in found.items() if name in wanted}


def from_cpp(names: Iterable[str], seconds: float, repeats: int) -> Best:
    """The best of a run of the C++ benchmarks of these names."""
    found: Best = {}
    with tempfile.TemporaryDirectory() as folder:
        out = Path(folder) / "cpp.json"
        command = [
            str(PROGRAM),
            f"--benchmark_filter=^({'|'.join(names)})(/real_time)?$",
            f"--benchmark_min_time={seconds}",
            f"--benchmark_repetitions={repeats}",
            f"--benchmark_out={out}",
            "--benchmark_out_format=json",
        ]
        everything = {**os.environ, "REPLAY_BENCHMARKS": "all"}
        quiet = subprocess.DEVNULL
        subprocess.run(command, check=True, env=everything, stdout=quiet, stderr=quiet)
        for run in json.loads(out.read_text())["benchmarks"]:
            if run["run_type"] == "iteration":
                name = run["run_name"].removesuffix("/real_time")
                keep_best(found, name, run["real_time"] * UNITS[run["time_unit"]])
    return found


def keep_best(found: Best, name: str, microseconds: float) -> None:
    found[name] = min(microseconds, found.get(name, microseconds))


def in_rounds(called: dict[str, Cell], pace: Pace) -> Best:
    """The best of both sides, which take turns."""
    found: Best = {}
    quiet = Pace(pace.seconds, pace.repeats, 1)
    for _ in range(pace.rounds):
        for name, best in from_cpp({p.cpp for p in PAIRS}, pace.seconds, pace.repeats).items():
            keep_best(found, name, best)
        for name, taken in in_turns(called, (), quiet).items():
            keep_best(found, name, taken["best"])
    return found


@dataclass(frozen=True)
class Overhead:
    """A call from both sides and its floor from Python, in microseconds."""

    call: str
    cpp: float
    python: float
    floor: float
    floor_of: str

    @property
    def holds(self) -> bool:
        return self.python <= MOST * self.cpp

    def __str__(self) -> str:
        ratio, least = self.python / self.cpp, self.floor / self.cpp
        word = "pass" if self.holds else f"MISS  (floor {least:.2f}: {self.floor_of})"
        return f"{self.call:44}{self.cpp:9.3f}{self.python:9.3f}{ratio:7.2f}  {word}"


def overheads(best: Best) -> list[Overhead]:
    """Of all pairs of which both sides were measured."""
    found = []
    for pair in PAIRS:
        if pair.cpp not in best:
            print(f"{pair.call} is left out: C++ has no benchmark {pair.cpp!r}")
            continue
        cpp = best[pair.cpp] / pair.per
        floor = cpp + best[pair.floor] / pair.per
        found.append(Overhead(pair.call, cpp, best[pair.call], floor, f"C++ and {pair.floor}"))
    return found


def main() -> None:
    """Measure, show, write."""
    quick = quick_asked("Calls from Python against the same calls from C++.")
    if not PROGRAM.exists():
        print(f"left out: there are no C++ benchmarks ({PROGRAM.relative_to(ROOT)})")
        return
    pace = QUICK if quick else Pace(rounds=8)
    gc.disable()
    # As many rows as the C++ benchmarks have.
    found = overheads(in_rounds(cells(1_000_000, 10_000), pace))
    print(f"{'microseconds, best':44}{'C++':>9}{'Python':>9}{'ratio':>7}  at most {MOST:.2f}")
    for entry in found:
        print(entry)
    write("overhead", [asdict(entry) for entry in found])


if __name__ == "__main__":
    main()
