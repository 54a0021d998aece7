"""Compares this package with its peers: `python benchmarks/compare/run.py`, or `make compare`.

Installs every peer in its own environment, then for each workload fills one buffer in each and lets
all of them, and the floors, take turns for several rounds in the same run, so that the machine's
moods meet all alike. Writes `compare.json`, `compare.md` and `compare.png` to `out/compare`. A peer
that cannot be installed or loaded is shown as failed, with the reason; the run goes on.
"""

from __future__ import annotations

import argparse
import importlib
import json
import os
import platform
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType
from typing import Any

import plot
import report
from install import InstallError, install
from process import Worker
from timing import summary
from workload import Workload, load

HERE = Path(__file__).resolve().parent
ROOT = HERE.parents[1]
BUILD = ROOT / "build" / "compare"
OUT = ROOT / "out" / "compare"
FLOOR = "floor_python"
PEERS = (
    report.OWN,
    "cpprb",
    "rlox",
    "stable_baselines3",
    "tianshou",
    "torchrl",
    "flashbax",
    "reverb",
)


def options() -> argparse.Namespace:
    """The command line."""
    everything = load()
    parser = argparse.ArgumentParser(description="Compare replay buffers in one run.")
    parser.add_argument("--only", default=",".join(PEERS), help="peers, separated by commas")
    parser.add_argument("--workloads", default=",".join(everything), help="likewise")
    parser.add_argument("--rounds", type=int, default=0, help="turns of every peer (10)")
    parser.add_argument("--quick", action="store_true", help="few rows and rounds: does it run?")
    chosen = parser.parse_args()
    chosen.only = chosen.only.split(",")
    if unknown := set(chosen.only) - set(PEERS):
        parser.error(f"unknown peers {sorted(unknown)}; there are {', '.join(PEERS)}")
    if unknown := set(chosen.workloads.split(",")) - set(everything):
        parser.error(f"unknown workloads {sorted(unknown)}; there are {', '.join(everything)}")
    chosen.workloads = [everything[name] for name in chosen.workloads.split(",")]
    chosen.rounds = chosen.rounds or (2 if chosen.quick else 10)
    chosen.seconds, chosen.repeats = (0.01, 1) if chosen.quick else (0.03, 2)
    return chosen


def say(text: str) -> None:
    """Progress, at once."""
    print(text, flush=True)


def compile_floor() -> str:
    """The gather program; empty when there is no C++ compiler."""
    names = (os.environ.get("CXX", ""), "c++", "g++", "clang++")
    compiler = next((found for name in names if name and (found := shutil.which(name))), "")
    program = BUILD / "gather_floor"
    if not compiler:
        return ""
    source = str(HERE / "gather_floor.cc")
    BUILD.mkdir(parents=True, exist_ok=True)
    made = subprocess.run([compiler, "-O3", "-std=c++20", source, "-o", str(program)])
    return str(program) if made.returncode == 0 else ""


def available_bytes() -> int:
    """Memory that can be used now."""
    try:
        for line in Path("/proc/meminfo").read_text().splitlines():
            if line.startswith("MemAvailable:"):
                return int(line.split()[1]) * 1024
    except OSError:
        pass
    return os.sysconf("SC_PHYS_PAGES") * os.sysconf("SC_PAGE_SIZE") // 2


def shrink_for(workload: Workload, workers: int, quick: bool) -> int:
    """By what the capacity is divided, so that all buffers fit into memory together."""
    shrink = 20 if quick else 1
    while 1.5 * workers * workload.row_bytes * workload.capacity / shrink > available_bytes():
        shrink *= 2
    return shrink


def floor_command(program: str, workload: Workload, shrink: int) -> list[str]:
    """The gather program for the batches that the workload's floors name."""
    named = {name for cell in workload.cells for name in cell.floor if name.startswith("gather ")}
    batches = sorted((name.removeprefix("gather ") for name in named), key=int)
    return [program, str(workload.row_bytes), str(workload.capacity // shrink), *batches]


def entry(worker: Worker, title: str, rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One peer's part of the result."""
    cells: dict[str, Any] = {}
    for name in {name: None for answer in rounds for name in answer}:
        answers = [answer[name] for answer in rounds if name in answer]
        failures = [answer for answer in answers if isinstance(answer, str)]
        numbers = [n for answer in answers if not isinstance(answer, str) for n in answer]
        cells[name] = summary(numbers) if numbers else {"failed": failures[0]}
    found = {"title": title, "rows": worker.ready.get("rows"), "cells": cells}
    return found | {k: v for k in ("failed", "lacks") if (v := getattr(worker, k))}


def compare(
    workload: Workload,
    adapters: dict[str, ModuleType],
    pythons: dict[str, str],
    failures: dict[str, str],
    program: str,
    chosen: argparse.Namespace,
) -> dict[str, Any]:
    """One workload on all peers and floors, taking turns."""
    shrink = shrink_for(workload, len(pythons) + 1, chosen.quick)
    rows = workload.capacity // shrink
    say(f"{workload.title}" + (f", shrunk to {rows:,} rows" if shrink > 1 else ""))
    workers: dict[str, Worker] = {}
    answers: dict[str, list[dict[str, Any]]] = {}
    try:
        for name, python in pythons.items():
            start = time.monotonic()
            command = [python, str(HERE / "worker.py"), name, workload.name, str(shrink)]
            log = BUILD / "logs" / f"{workload.name}-{name}.log"
            workers[name] = worker = Worker(command, log, timeout=300)
            said = worker.failed or worker.lacks or "full"
            say(f"  {name}: {said} after {time.monotonic() - start:.1f} s")
        if program:
            command = floor_command(program, workload, shrink)
            log = BUILD / "logs" / f"{workload.name}-gather.log"
            workers["gather"] = Worker(command, log, timeout=300)
        answers = {name: [] for name in workers}
        order = list(workers)
        for number in range(chosen.rounds):
            start = time.monotonic()
            for name in order[number % len(order) :] + order[: number % len(order)]:
                answers[name].append(workers[name].round(chosen.seconds, chosen.repeats))
            say(f"  round {number + 1} of {chosen.rounds}: {time.monotonic() - start:.1f} s")
    finally:
        for worker in workers.values():
            worker.close()
    peers: dict[str, Any] = {}
    for name in chosen.only:
        title = adapters[name].TITLE
        if name in workers:
            peers[name] = entry(workers[name], title, answers[name])
        else:
            peers[name] = {"title": title, "cells": {}, "failed": failures[name]}
    floors: dict[str, Any] = {}
    for name in (FLOOR, "gather"):
        if name in workers:
            floors |= entry(workers[name], name, answers[name])["cells"]
    title = workload.title + (f", shrunk to {rows:,}" if shrink > 1 else "")
    result = {"title": title, "rows": rows, "peers": peers, "floors": floors}
    return result | {"ratios": report.ratios(workload, result)}


def main() -> None:
    """Install, compare, write."""
    chosen = options()
    start = time.monotonic()
    adapters = {name: importlib.import_module(f"peers.{name}") for name in (*chosen.only, FLOOR)}
    pythons: dict[str, str] = {}
    failures: dict[str, str] = {}
    for name, adapter in adapters.items():
        say(f"environment of {name}")
        try:
            pythons[name] = install(adapter, BUILD / name, BUILD / "logs" / f"install-{name}.log")
        except InstallError as error:
            failures[name] = str(error).replace(f"{ROOT}/", "")
            say(f"  failed: {failures[name]}")
    program = compile_floor()
    results: dict[str, Any] = {
        "run": {
            "machine": platform.platform(terse=True) + " " + platform.machine(),
            "cores": os.cpu_count(),
            "python": platform.python_version(),
            "rounds": chosen.rounds,
            "repeats": chosen.repeats,
            "seconds": chosen.seconds,
            "quick": chosen.quick,
        },
        "workloads": {},
    }
    notes = [
        f"{adapters[name].TITLE}: {note}"
        for name in chosen.only
        if (note := getattr(adapters[name], "NOTE", ""))
    ]
    OUT.mkdir(parents=True, exist_ok=True)
    for done, workload in enumerate(chosen.workloads, 1):
        found = compare(workload, adapters, pythons, failures, program, chosen)
        results["workloads"][workload.name] = found
        (OUT / "compare.json").write_text(json.dumps(results, indent=1) + "\n")
        text = report.markdown(chosen.workloads[:done], results, notes)
        (OUT / "compare.md").write_text(text)
        plot.draw(chosen.workloads[:done], results, OUT / "compare.png")
    say(f"\n{text}\nout/compare: compare.json compare.md compare.png; ", )
    say(f"{time.monotonic() - start:.0f} s")


if __name__ == "__main__":
    sys.exit(main())
