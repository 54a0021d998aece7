"""One workload on all peers and floors, taking turns in the same minutes."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import report
from process import Worker
from timing import summary
from workload import Workload

HERE = Path(__file__).resolve().parent
FLOOR = "floor_python"
GATHER = "gather"
QUICK_SHRINK = 20
PATIENCE = 300.0  # seconds, for filling or for one round


@dataclass(frozen=True)
class Turns:
    """Who takes part, and for how long.

    `pythons` maps each peer that could be installed, and the Python floor, to its interpreter;
    `failures` maps the others to the reason. `gather` is the compiled floor, or empty.
    """

    titles: dict[str, str]
    pythons: dict[str, str]
    failures: dict[str, str]
    gather: str
    rounds: int
    repeats: int
    seconds: float
    quick: bool
    logs: Path
    say: Callable[[str], None]

    def compare(self, workload: Workload) -> dict[str, Any]:
        """The workload's part of the result: numbers of peers and floors, and ratios."""
        shrink = shrink_for(workload, len(self.pythons) + 1, self.quick)
        rows = workload.capacity // shrink
        title = workload.title + (f", shrunk to {rows:,} rows" if shrink > 1 else "")
        self.say(title)
        workers: dict[str, Worker] = {}
        try:
            for name, command in self._commands(workload, shrink).items():
                start = time.monotonic()
                log = self.logs / f"{workload.name}-{name}.log"
                workers[name] = worker = Worker(command, log, PATIENCE)
                said = worker.failed or worker.lacks or "full"
                self.say(f"  {name}: {said} after {time.monotonic() - start:.1f} s")
            answers = self._take_turns(workers)
        finally:
            for worker in workers.values():
                worker.close()
        found = {name: entry(workers[name], answers[name]) for name in workers}
        floors: dict[str, Any] = {}
        for name in (FLOOR, GATHER):
            floors |= found.pop(name, {}).get("cells", {})
        for name, why in self.failures.items():
            found[name] = {"cells": {}, "failed": why}
        peers = {name: {"title": self.titles[name]} | found[name] for name in self.titles}
        result = {"title": title, "rows": rows, "peers": peers, "floors": floors}
        return result | {"ratios": report.ratios(workload, result)}

    def _commands(self, workload: Workload, shrink: int) -> dict[str, list[str]]:
        worker = str(HERE / "worker.py")
        commands = {
            name: [python, worker, name, workload.name, str(shrink)]
            for name, python in self.pythons.items()
        }
        named = {name for cell in workload.cells for name in cell.floor if name.startswith(GATHER)}
        batches = sorted((name.removeprefix(f"{GATHER} ") for name in named), key=int)
        if self.gather and batches:
            rows = workload.capacity // shrink
            commands[GATHER] = [self.gather, str(workload.row_bytes), str(rows), *batches]
        return commands

    def _take_turns(self, workers: dict[str, Worker]) -> dict[str, list[dict[str, Any]]]:
        """Every round begins with another worker."""
        answers: dict[str, list[dict[str, Any]]] = {name: [] for name in workers}
        order = list(workers)
        for number in range(self.rounds):
            start = time.monotonic()
            for name in order:
                answers[name].append(workers[name].round(self.seconds, self.repeats))
            order.append(order.pop(0))
            self.say(f"  round {number + 1} of {self.rounds}: {time.monotonic() - start:.1f} s")
        return answers


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
    shrink = QUICK_SHRINK if quick else 1
    while 1.5 * workers * workload.row_bytes * workload.capacity / shrink > available_bytes():
        shrink *= 2
    return shrink


def entry(worker: Worker, rounds: Sequence[dict[str, Any]]) -> dict[str, Any]:
    """One worker's part of the result, over all rounds."""
    cells: dict[str, Any] = {}
    for name in {name: None for answer in rounds for name in answer}:
        answers = [answer[name] for answer in rounds if name in answer]
        failures = [answer for answer in answers if isinstance(answer, str)]
        numbers = [n for answer in answers if not isinstance(answer, str) for n in answer]
        cells[name] = summary(numbers) if numbers else {"failed": failures[0]}
    found: dict[str, Any] = {"rows": worker.ready.get("rows"), "cells": cells}
    return found | {k: v for k in ("failed", "lacks") if (v := getattr(worker, k))}
