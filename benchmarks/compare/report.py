"""The results as JSON, as Markdown and as one picture.

All ratios are of the best times, because the best is what the machine's noise touches least.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from workload import Cell, Workload

OWN = "replay_buffer"
Result = dict[str, Any]


def best(result: Result, peer: str, cell: str) -> float | None:
    """The best time of a cell, if it has one."""
    found: dict[str, float] = result["peers"].get(peer, {}).get("cells", {}).get(cell, {})
    return found.get("best")


def floor(result: Result, cell: Cell) -> float | None:
    """The cell's floor: the sum of the floors it names."""
    parts = [result["floors"].get(name, {}).get("best") for name in cell.floor]
    return sum(parts) if parts and None not in parts else None


def ratios(workload: Workload, result: Result) -> dict[str, Result]:
    """For each cell: the fastest peer, its time over this package's, and this one's over the floor.

    What cannot be told, because a number is missing, is left out.
    """
    told: dict[str, Result] = {}
    for cell in workload.cells:
        entry: Result = {}
        times = {p: best(result, p, cell.name) for p in result["peers"] if p != OWN}
        known = {p: t for p, t in times.items() if t is not None}
        own, low = best(result, OWN, cell.name), floor(result, cell)
        if known:
            entry["fastest_peer"] = min(known, key=lambda peer: known[peer])
        if low is not None:
            entry["floor"] = low
        if own is not None and known:
            entry["times_faster_than_fastest_peer"] = min(known.values()) / own
        if own is not None and low:
            entry["times_floor"] = own / low
        told[cell.name] = entry
    return told


def number(value: float | None) -> str:
    """Three digits, or a dash."""
    if value is None:
        return "-"
    return f"{value:.0f}" if value >= 100 else f"{value:.3g}"


def row(cells: Sequence[str]) -> str:
    """A line of a Markdown table."""
    return "| " + " | ".join(cells) + " |"


def peer_row(workload: Workload, peer: Result, rows: int) -> list[str]:
    """One peer's line: best and median, or why there is none."""
    title = peer["title"]
    if peer.get("rows") not in (None, rows):
        title += f" ({peer['rows']:,} rows)"
    if why := peer.get("failed"):
        return [title, f"failed: {why}".replace("|", "/"), *[""] * (len(workload.cells) - 1)]
    if why := peer.get("lacks"):
        return [title, why, *[""] * (len(workload.cells) - 1)]
    line = [title]
    for cell in workload.cells:
        found = peer["cells"].get(cell.name, {})
        if "failed" in found:
            line.append(f"failed: {found['failed']}".replace("|", "/"))
        elif found:
            line.append(f"{number(found['best'])} ({number(found['median'])})")
        else:
            line.append("-")
    return line


def table(workload: Workload, result: Result) -> list[str]:
    """One workload's section."""
    told = [result["ratios"][cell.name] for cell in workload.cells]
    lines = [f"## {result['title']}", ""]
    lines.append(row(["µs, best (median)", *[cell.name for cell in workload.cells]]))
    lines.append(row(["---"] * (len(workload.cells) + 1)))
    lines += [row(peer_row(workload, peer, result["rows"])) for peer in result["peers"].values()]
    lines.append(row(["floor", *[number(entry.get("floor")) for entry in told]]))
    for title, key in (
        ("fastest peer / replay_buffer", "times_faster_than_fastest_peer"),
        ("replay_buffer / floor", "times_floor"),
    ):
        lines.append(row([title, *[number(entry.get(key)) for entry in told]]))
    floors = ", ".join(f"{k} {number(v.get('best'))}" for k, v in result["floors"].items())
    named = "; ".join(f"{c.name}: {' + '.join(c.floor)}" for c in workload.cells if c.floor)
    return [*lines, "", f"Floors: {floors}.", f"Floor of {named}.", ""]


def markdown(workloads: Sequence[Workload], results: Result, notes: Sequence[str]) -> str:
    """The whole report."""
    run = results["run"]
    lines = [
        "# Comparison",
        "",
        f"{run['machine']}; {run['cores']} cores; Python {run['python']}. All in one run, taking "
        f"turns: {run['rounds']} rounds of {run['repeats']} x {run['seconds']} s for each number.",
        "",
    ]
    for workload in workloads:
        lines += table(workload, results["workloads"][workload.name])
    return "\n".join([*lines, *[f"- {note}" for note in notes], ""])
