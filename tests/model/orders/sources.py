"""The orders that stand in the C++: every place that names one, and every atomic operation that
names none."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

SOURCES = Path(__file__).parents[3] / "src" / "cpp"

NAMED = re.compile(r"\bmemory_order_(\w+)")
ATOMIC = re.compile(
    r"(?:\.|->)(load|store|exchange|fetch_(?:add|sub|and|or|xor)|compare_exchange_\w+)\(|\b(__atomic_\w+)\("
)


class Site(NamedTuple):
    file: str
    what: str  # "head.load": the last of what it is called on, and the call
    order: str  # "acquire relaxed" where success and failure have one each; "" where none is named


def sites() -> list[Site]:
    found = []
    for path in sorted(SOURCES.rglob("*")):
        if path.suffix in (".h", ".cc"):
            file = str(path.relative_to(SOURCES))
            found += [Site(file, what, order) for what, order in sites_in(path.read_text())]
    return found


def sites_in(text: str) -> Iterator[tuple[str, str]]:
    text = re.sub(r"//[^\n]*", "", text)
    text = re.sub(r'"(\\.|[^"\\\n])*"', '""', text)
    calls: dict[int, list[str]] = {}
    for match in NAMED.finditer(text):
        if (opening := opening_before(text, match.start())) >= 0:
            calls.setdefault(opening, []).append(match[1])
    for match in ATOMIC.finditer(text):
        calls.setdefault(match.end() - 1, [])
    for opening, orders in sorted(calls.items()):
        arguments = text[opening : closing_after(text, opening)]
        if orders or not re.search(r"\border\b", arguments):  # handed on by who is called
            yield called(text, opening), " ".join(orders)


def opening_before(text: str, at: int) -> int:
    """The bracket that is open here."""
    depth = 0
    for i in range(at - 1, -1, -1):
        depth += (text[i] in ")]") - (text[i] in "([")
        if depth < 0:
            return i
    return -1


def closing_after(text: str, opening: int) -> int:
    depth = 0
    for i in range(opening, len(text)):
        depth += (text[i] in "([") - (text[i] in ")]")
        if depth == 0:
            return i
    return len(text)


def called(text: str, opening: int) -> str:
    """The last three names of what is called, without what stands in brackets."""
    names: list[str] = []
    i = opening
    while i > 0:
        if text[i - 1] in ")]":
            i = opening_before(text, i - 1)
        elif match := re.search(r"(\w+)$", text[:i]):
            names.insert(0, match[1])
            i = match.start()
            link = re.search(r"(\.|->)$", text[:i])
            if link is None:
                break
            i = link.start()
        else:
            break
    return ".".join(names[-3:])
