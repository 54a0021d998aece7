"""list buffers in shared memory: size, fill, owners, and whether anybody uses them"""

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
    if given.json:
        print(json.dumps([summary.as_json() for summary in segments], indent=2))
    elif segments:
        print(table([HEADINGS, *map(line, segments)]))
    arrays = [] if given.json else _core.list_shared_arrays()
    if arrays:
        rows = [(n, bytes_text(size), "in use" if used else "stale") for n, size, used in arrays]
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
