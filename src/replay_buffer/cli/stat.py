"""show counters, columns and owners of a buffer"""

from __future__ import annotations

import argparse
import dataclasses
import json
import time
from collections.abc import Iterator
from typing import Any

from .. import stats
from ..engines.local import LocalEngine
from .segments import Owner, location_of, opened, owners_of
from .text import bytes_text, table

#: Counters whose growth is shown while watching, and the heading of their rates.
RATES = {"rows_added": "added/s", "rows_sampled": "sampled/s", "updates_applied": "updated/s"}

#: What the rate limiter can make an owner wait for; see core/limiter.h.
WAITS = {1: "draw", 2: "add"}


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME")
    command.add_argument("--json", action="store_true", help="JSON; watching, one object a line")
    command.add_argument(
        "--watch",
        metavar="SECONDS",
        nargs="?",
        type=seconds,
        const=1.0,
        help="a line every so often (1) until Ctrl-C, or until the buffer is removed",
    )


def seconds(text: str) -> float:
    value = float(text)
    if not 0.01 <= value <= 1e6:
        raise argparse.ArgumentTypeError("between 0.01 and 1,000,000 seconds")
    return value


def run(given: argparse.Namespace) -> int:
    with opened(location_of(given.name)) as engine:
        if given.watch is None:
            facts = facts_of(engine)
            print(json.dumps(facts, indent=2) if given.json else describe(engine, facts))
            return 0
        try:
            watch(engine, given.watch, as_json=given.json)
        except KeyboardInterrupt:
            print()
    return 0


def facts_of(engine: LocalEngine) -> dict[str, Any]:
    columns = {
        name: {
            "shape": list(column.shape),
            "dtype": str(column.dtype),
            "limit": column.limit,
            "compression": column.compression,
        }
        for name, column in engine.schema.columns
    }
    owners = [dataclasses.asdict(owner) for owner in owners_of(engine)]
    return {
        "location": engine.location,
        **stats.of(engine),
        "columns": columns,
        "owners": owners,
    }


def describe(engine: LocalEngine, facts: dict[str, Any]) -> str:
    scalars = [
        (name, value_text(name, value))
        for name, value in facts.items()
        if name not in ("columns", "owners")
    ]
    columns = [("", name, str(column)) for name, column in engine.schema.columns]
    parts = [table(scalars), "columns", table(columns), "owners"]
    owners = owners_of(engine)
    parts.append(table([("", *owner_line(owner)) for owner in owners]) if owners else "  none")
    return "\n".join(parts)


def owner_line(owner: Owner) -> tuple[str, ...]:
    return (
        f"pid {owner}",
        "alive" if owner.alive else "dead",
        f"slot {owner.slot}",
        f"{owner.rows_added:,} rows",
        waits_text(owner.waits),
    )


def waits_text(waits: int) -> str:
    wanted = [word for bit, word in WAITS.items() if waits & bit]
    return f"waits to {' and '.join(wanted)}" if wanted else ""


def value_text(name: str, value: Any) -> str:
    if name == "episodes":
        return episodes_text(value)
    if name.endswith("_bytes") and isinstance(value, int):
        return f"{value:,} ({bytes_text(value)})"
    if isinstance(value, bool) or not isinstance(value, (int, float)):
        return str(value)
    return f"{value:,}" if isinstance(value, int) else f"{value:,.4g}"


def episodes_text(episodes: dict[str, Any]) -> str:
    """How many ended, and how the latest went."""
    said = f"{episodes['finished']:,} finished, {episodes['steps']:,} steps"
    latest = len(episodes["latest_returns"])
    if not latest:
        return said
    length, gained = (sum(episodes[f"latest_{of}"]) / latest for of in ("lengths", "returns"))
    return f"{said}; of the latest {latest} the mean length {length:.4g}, return {gained:.4g}"


def watch(engine: LocalEngine, interval: float, *, as_json: bool) -> None:
    """A line at every interval, until the segment has no name any more."""
    headings = ("rows", *RATES.values(), "owners")
    if not as_json:
        print("".join(f"{heading:>16}" for heading in headings), flush=True)
    for facts in changes(engine, interval):
        if as_json:
            print(json.dumps(facts), flush=True)
            continue
        alive = sum(owner["alive"] for owner in facts["owners"])
        dead = len(facts["owners"]) - alive
        cells = (
            f"{facts['size']:,}",
            *(f"{facts[name]:,.0f}" for name in RATES.values()),
            f"{alive} alive" + (f", {dead} dead" if dead else ""),
        )
        print("".join(f"{cell:>16}" for cell in cells), flush=True)
    if not as_json:
        print(f"{engine.location} was removed")


def changes(engine: LocalEngine, interval: float) -> Iterator[dict[str, Any]]:
    """The facts at every interval, with rates since the one before."""
    before, then = stats.of(engine), time.monotonic()
    while True:
        time.sleep(interval)
        if not engine.has_name():
            return
        facts, now = facts_of(engine), time.monotonic()
        rates = {
            heading: (facts[name] - before[name]) / (now - then) for name, heading in RATES.items()
        }
        yield {**facts, **rates}
        before, then = facts, now
