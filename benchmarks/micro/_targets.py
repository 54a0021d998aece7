"""Targets: what a cell may cost, given floors of the same run, and whether it does."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass

from benchmarks.micro._measure import Times

Best = Callable[[str], float]


@dataclass(frozen=True)
class Target:
    """The most a cell's best may be, in microseconds, and how that is said."""

    cell: str
    text: str
    limit: Callable[[Best], float]


@dataclass(frozen=True)
class Verdict:
    """What a target came to in this run."""

    limit: float
    text: str
    holds: bool


def verdicts(times: Times, targets: Sequence[Target]) -> dict[str, Verdict]:
    """For each target whose cell and floors were measured: the limit, and whether it holds."""
    found = {}
    for target in targets:
        try:
            limit = target.limit(lambda name: times[name]["best"])
            found[target.cell] = Verdict(limit, target.text, times[target.cell]["best"] <= limit)
        except KeyError as missing:
            print(f"{target.cell}: no verdict, {missing} was not measured")
    return found


def show(times: Times, found: dict[str, Verdict]) -> None:
    """The table."""
    print(f"{'microseconds a call':50} {'best':>9} {'median':>9} {'at most':>9}")
    for name, taken in times.items():
        line = f"{name:50} {taken['best']:9.3f} {taken['median']:9.3f}"
        if verdict := found.get(name):
            word = "pass" if verdict.holds else "MISS"
            line += f" {verdict.limit:9.3f}  {word}  ({verdict.text})"
        print(line)
