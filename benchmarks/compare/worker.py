"""One peer under one workload: `python worker.py PEER WORKLOAD SHRINK`, in the peer's environment.

Fills the peer's buffer, prints one JSON line, then answers every line `SECONDS REPEATS` on its
input with one JSON line of numbers, until its input ends. The process keeps the buffer between
rounds, so that all peers can take turns in one run. Whatever the peer itself prints goes to the
error stream. `SHRINK` divides the capacity, for a quick look.
"""

from __future__ import annotations

import importlib
import json
import os
import sys
from dataclasses import replace
from typing import Any

import timing
from workload import Cell, UnsupportedError, Workload, load

MEASURES = {
    "loop": timing.measure,
    "alone": timing.alone,
    "beside": timing.beside,
    "thread": timing.thread,
}


def short(error: BaseException) -> str:
    """An error as one line of a table."""
    text = " ".join(f"{type(error).__name__}: {error}".replace(f"{sys.prefix}/", "").split())
    return text if len(text) <= 160 else text[:157] + "..."


def missing(can: frozenset[str], workload: Workload) -> list[str]:
    """The options of the workload that the peer does not have."""
    return [option for option in workload.options if option not in can]


def answer(buffer: Any, cells: list[Cell], seconds: float, repeats: int) -> dict[str, Any]:
    """The numbers of one round: cell name to microseconds, or to the reason of a failure."""
    numbers: dict[str, Any] = {}
    for cell in cells:
        try:
            call = getattr(buffer, cell.method)(*cell.arguments)
            numbers[cell.name] = MEASURES[cell.taken](call, seconds, repeats, cell.per)
        except Exception as error:
            numbers[cell.name] = short(error)
    return numbers


def main() -> None:
    """Fill, say so, and answer rounds."""
    replies = os.fdopen(os.dup(1), "w", buffering=1)
    os.dup2(2, 1)
    peer, name, shrink = sys.argv[1:]
    workload = load()[name]
    workload = replace(workload, capacity=workload.capacity // int(shrink))
    try:
        adapter = importlib.import_module(f"peers.{peer}")
        if lacks := missing(adapter.CAN, workload):
            raise UnsupportedError(f"no {', '.join(lacks)}")
        if "views" in workload.options and not peer.startswith("floor"):
            adapter = importlib.import_module(f"views.{peer}")
        buffer = adapter.make(workload)
    except UnsupportedError as lack:
        print(json.dumps({"lacks": str(lack)}), file=replies)
        return
    except BaseException as error:
        print(json.dumps({"failed": short(error)}), file=replies)
        raise
    cells = [c for c in getattr(buffer, "cells", workload.cells) if getattr(buffer, c.method, None)]
    rows = getattr(buffer, "rows", workload.capacity)
    print(json.dumps({"rows": rows, "cells": [c.name for c in cells]}), file=replies)
    for line in sys.stdin:
        seconds, repeats = line.split()
        print(json.dumps(answer(buffer, cells, float(seconds), int(repeats))), file=replies)


if __name__ == "__main__":
    main()
