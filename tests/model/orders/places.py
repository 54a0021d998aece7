"""Reads places.txt: where the orders of the table stand in the C++, and why the rest needs none.

It lists the functions of each file, and what stands in them in the order of the source:

    core/priorities.cc
      Priorities::commit: raise_max; words_.store leaves.committed; refresh_leaf

The word after an operation is the name of its order in the table, or a reason. An entry without
one copies bytes or calls a function with operations of its own: orders stand before and behind it.
When the source changes, the test prints the lines to put here.
"""

from __future__ import annotations

import re
import textwrap
from collections.abc import Iterable
from pathlib import Path

from model.orders.sources import Place, Site
from model.orders.table import ORDERS

FILE = Path(__file__).with_name("places.txt")

# Why an operation is relaxed.
RELAXED = {
    "step": "a step of a protocol beside ordered ones; the programs have it as it is",
    "own": "of what the holder of the block or the lock, or the one before it, has stored",
    "count": "one number by itself, changed by read-modify-write; it leads to nothing else",
    "hint": "a guess or a first look: whoever goes by it looks again, finds in it the lap it is "
    "of, or only loses a turn",
    "statistic": "for statistics and messages",
    "alone": "nobody else is there: a new segment, mending, restoring; or one number",
}
# Why something has no order.
NONE = {
    "plain": "no atomic, or a build for ThreadSanitizer that uses relaxed ones in place of memcpy",
    "handed": "a reference that is handed on",
}

# Named in the source with an order for failure too.
SPELLED = {"lock.taken": "acquire relaxed", "pool.ticket_taken": "acquire relaxed"}

Entry = tuple[str, str]  # what stands there; the name of its order, a reason, or ""


def order_of(name: str) -> str:
    if name in ORDERS:
        return SPELLED.get(name, ORDERS[name].value)
    if name in RELAXED:
        return "relaxed"
    if name in NONE:
        return "none"
    return "" if name == "" else "?"


def read(text: str) -> dict[Place, list[Entry]]:
    places: dict[Place, list[Entry]] = {}
    file = ""
    for line in re.sub(r"\n {4,}", " ", text).splitlines():
        if line.startswith("  "):
            function, _, entries = line.strip().partition(": ")
            function = "" if function == "(outside)" else function
            places[file, function] = [
                (what, name) for what, _, name in (e.partition(" ") for e in entries.split("; "))
            ]
        else:
            file = line
    return places


def write(function: str, entries: Iterable[Entry]) -> str:
    line = "; ".join(f"{what} {name}".strip() for what, name in entries)
    return textwrap.fill(
        f"  {function or '(outside)'}: {line}",
        width=108,
        subsequent_indent="    ",
        break_long_words=False,
        break_on_hyphens=False,
    )


def suggest(known: list[Entry], found: list[Site]) -> list[Entry]:
    """The names of sites: those they have, "?" where they are new."""
    left = list(known)
    entries: list[Entry] = []
    for site in found:
        same = [e for e in left if (e[0], order_of(e[1])) == site]
        if same:
            left.remove(same[0])
        name = same[0][1] if same else site.order and f"?{site.order}"
        entries.append((site.what, name))
    return entries
