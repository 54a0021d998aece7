"""Many short repeats of many calls, taken in turns; the floors in C++; where results go.

The machine's noise comes in bursts and only ever adds time: repeats of a millisecond or two, spread
over the whole run, often fall between bursts, and the best of them is what is compared.
"""

from __future__ import annotations

import argparse
import json
import os
import shutil
import subprocess
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from benchmarks.compare.process import Worker
from benchmarks.compare.timing import Call, measure, summary

ROOT = Path(__file__).resolve().parents[2]
BUILD = ROOT / "out" / "release"
#: The C++ benchmarks, as scripts/bench.sh builds them.
PROGRAM = BUILD / "benchmarks" / "replay_buffer_benchmarks"
OUT = ROOT / "out" / "bench"
Times = dict[str, dict[str, float]]  # name: best and median, in microseconds


@dataclass(frozen=True)
class Pace:
    """How long a repeat is, how many come in a row, and how often it is everybody's turn."""

    seconds: float = 0.0015
    repeats: int = 20
    rounds: int = 20


QUICK = Pace(0.0003, 2, 2)


@dataclass(frozen=True)
class Cell:
    """What is timed, and the rows of a call that its time is divided by."""

    call: Call
    per: int = 1


def in_turns(cells: Mapping[str, Cell], gathers: Iterable[Worker], pace: Pace) -> Times:
    """Times of the cells, and of what the gather floors answer (`gather 32`, ...)."""
    numbers: dict[str, list[float]] = {}
    for _ in range(pace.rounds):
        for name, cell in cells.items():
            taken = measure(cell.call, pace.seconds, pace.repeats, cell.per)
            numbers.setdefault(name, []).extend(taken)
        for gather in gathers:
            for name, taken in gather.round(pace.seconds, pace.repeats).items():
                numbers.setdefault(name, []).extend(taken)
    return {name: summary(taken) for name, taken in numbers.items()}


def start_gather(row_bytes: int, rows: int, batches: Iterable[int]) -> list[Worker]:
    """The gather floor of the comparison, as a process; none when it cannot be compiled."""
    names = (os.environ.get("CXX"), "c++", "g++", "clang++")
    compiler = next((found for name in names if name and (found := shutil.which(name))), None)
    if compiler is None:
        print("the gather floor is left out: there is no C++ compiler")
        return []
    BUILD.mkdir(parents=True, exist_ok=True)
    source, program = ROOT / "benchmarks/compare/gather_floor.cc", BUILD / "gather_floor"
    if not program.exists() or program.stat().st_mtime < source.stat().st_mtime:
        subprocess.run([compiler, "-O3", "-std=c++20", str(source), "-o", str(program)], check=True)
    command = [str(program), str(row_bytes), str(rows), *map(str, batches)]
    return [Worker(command, BUILD / "gather_floor.log", timeout=120)]


def available_bytes() -> int:
    """Memory that can be used now; half of all there is where the system does not say."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def quick_asked(description: str) -> bool:
    """The command line of every benchmark: `--quick` and nothing else."""
    parser = argparse.ArgumentParser(description=description)
    parser.add_argument("--quick", action="store_true", help="few rows and repeats: does it run?")
    return bool(parser.parse_args().quick)


def write(name: str, results: Any) -> None:
    """`out/bench/<name>.json`."""
    OUT.mkdir(parents=True, exist_ok=True)
    (OUT / f"{name}.json").write_text(json.dumps(results, indent=1) + "\n")
    print(f"written to {OUT.relative_to(ROOT)}/{name}.json")
