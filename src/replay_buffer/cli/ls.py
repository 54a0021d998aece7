"""list what is in shared memory: buffers and arrays, their size, and whether anybody uses them"""

from __future__ import annotations

import argparse
import json

from .. import _core
from .segments import Summary, summary_of
from .text import bytes_text, table

HEADINGS = ("NAME", "SIZE", "ROWS", "STRATEGY", "OWNERS", "USER", "STATE")


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("--json", action="store_true", help="one JSON array")


def run(given: argparse.Namespace) -> int:
    found = [summary_of(f"shm:{name}") for name in _core.list_shared_memory()]
    segments = [summary for summary in found if summary is not None]
    arrays = [
        (name, size, "in use" if used else "stale")
        for name, size, used in _core.list_shared_arrays()
    ]
    if given.json:
        of_arrays = [dict(zip(("array", "bytes", "state"), a, strict=True)) for a in arrays]
        print(json.dumps([*(summary.as_json() for summary in segments), *of_arrays], indent=2))
        return 0
    if segments:
        print(table([HEADINGS, *map(line, segments)]))
    if arrays:
        rows = [(name, bytes_text(size), state) for name, size, state in arrays]
        print(table([("ARRAY", "SIZE", "STATE"), *rows]))
    return 0


def line(summary: Summary) -> tuple[str, ...]:
    rows = "-" if summary.size is None else f"{summary.size:,}/{summary.capacity:,}"
    size = "-" if summary.bytes is None else bytes_text(summary.bytes)
    return (
        summary.location.removeprefix("shm:"),
        size,
        rows,
        summary.strategy or "-",
        owners_text(summary),
        summary.user or "-",
        summary.state,
    )


def owners_text(summary: Summary) -> str:
    groups = []
    for word, alive in (("alive", True), ("dead", False)):
        pids = [str(owner) for owner in summary.owners if owner.alive is alive]
        if pids:
            groups.append(f"{len(pids)} {word} ({', '.join(pids)})")
    return ", ".join(groups) or "-"
