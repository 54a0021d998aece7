"""What a buffer takes beyond its rows: over sizes of rows from 20 bytes to 100 KB, and over
capacities from a thousand to ten million.

The target is less than a tenth. Beside it stands the floor, what a row cannot do without: its word,
and with priorities the raw one, its leaf and its share of the tree's sums (decision 0021). What is
above the floor is padding, the table of blocks, and what every segment has once. Sizes are those of
segments of which nothing is written, and so need no memory; `resident` is measured on full buffers.
Writes `memory.json`, `memory_rows.png` and `memory_capacity.png` to `out/bench`.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from pathlib import Path
from typing import Any

from benchmarks.micro._measure import OUT, available_bytes, quick_asked, write
from benchmarks.micro._plot import percentages
from benchmarks.micro._rows import Strategy, full_buffer, workload

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema

LIMIT = 0.1
SCALARS = 8 + 4 + 1  # int64 action, float32 reward, bool done
SIZES = (20, 45, 77, 149, 300, 1_000, 10_000, 100_000)  # 45, 77, 149: 4, 8, 17 float32
CAPACITIES = tuple(10**n for n in range(3, 8))
MILLION = 1_000_000
#: Bytes that each row needs besides its data: its word; raw priority and lap, leaf, sums.
NEEDED: dict[Strategy, float] = {"uniform": 8, "prioritized": 8 + 8 + 4 + 8 / 15}
Overheads = dict[int, float]


def overhead(strategy: Strategy, row_bytes: int, capacity: int) -> float:
    """Of transitions of as many bytes, as a fraction of them; nothing is written."""
    first = (row_bytes - SCALARS) // 2
    schema = Schema(
        {
            "obs": Column((first,), "uint8"),
            "action": Column((), "int64"),
            "reward": Column((), "float32"),
            "next_obs": Column((row_bytes - SCALARS - first,), "uint8"),
            "done": Column((), "bool"),
        }
    )
    config = BufferConfig(capacity=capacity, strategy=strategy)
    with ReplayBuffer(config, schema=schema) as buffer:
        return float(buffer.stats()["overhead"])


def over_rows(strategy: Strategy, step: int) -> Overheads:
    """Of a million rows: every size up to a kilobyte, then each a hundredth larger."""
    sizes = list(range(SIZES[0], 1025, step))
    while sizes[-1] < SIZES[-1]:
        sizes.append(min(SIZES[-1], int(sizes[-1] * (1 + step / 100)) + 1))
    return {size: overhead(strategy, size, MILLION) for size in sizes}


def holds_from(found: Overheads, limit: float) -> int:
    """The size of rows from which on all are below the limit."""
    return 1 + max((size for size, above in found.items() if above >= limit), default=0)


def resident(strategy: Strategy, capacities: Iterable[int]) -> dict[int, dict[str, float]]:
    """Bytes of full buffers of 77-byte rows: of the rows, the segment, and in memory."""
    found = {}
    for capacity in capacities:
        rows = workload((8,), "float32", capacity)
        if 2 * rows.row_bytes * capacity > available_bytes():
            print(f"{capacity:,} rows are left out: they do not fit into memory")
            continue
        with full_buffer(rows, strategy) as buffer:
            stats = buffer.stats()
        found[capacity] = {k: stats[f"{k}_bytes"] for k in ("raw", "segment", "resident")}
    return found


def show(strategy: Strategy, table: dict[int, Overheads]) -> None:
    """A line a size of rows."""
    print(
        f"\n{strategy}: beyond the rows".ljust(30) + "".join(f"{c:>12,}" for c in CAPACITIES),
        end="",
    )
    print(f"{'floor':>9}{'bytes a row':>13}")
    for size, line in table.items():
        cells = "".join(f"{line[c]:>12.1%}" for c in CAPACITIES)
        above = line[CAPACITIES[-1]] * size
        word = "pass" if line[MILLION] < LIMIT else "MISS"
        floor = NEEDED[strategy] / size
        print(
            f"rows of {size:>9,} bytes     {cells}{floor:>9.1%}{above:>13.1f}  {word}", flush=True
        )


def show_resident(strategy: Strategy, found: dict[int, dict[str, float]]) -> None:
    """Megabytes of full buffers."""
    print(f"\n{strategy}, full, 77-byte rows: MB".ljust(40) + "      rows   segment  resident")
    for capacity, taken in found.items():
        numbers = "".join(f"{bytes_ / 1e6:>10.2f}" for bytes_ in taken.values())
        print(f"{capacity:>20,} rows               {numbers}", flush=True)


def worst_nearby(found: Overheads) -> Overheads:
    """The most of all sizes that are a twelfth apart or less: padding makes them go up and down."""
    worst: dict[int, tuple[float, int]] = {}
    for size, above in found.items():
        group = int(math.log(size) * 12)
        worst[group] = max(worst.get(group, (0.0, 0)), (above, size))
    return {size: above for above, size in worst.values()}


def plots(over: dict[Strategy, Overheads], uniform: dict[int, Overheads], folder: Path) -> None:
    """One over sizes of rows, one over capacities."""
    lines: dict[str, Overheads] = {}
    for strategy, found in over.items():
        lines[f"{strategy}, worst nearby"] = worst_nearby(found)
        lines[f"floor: {strategy}"] = {size: NEEDED[strategy] / size for size in found}
    title = "Memory beyond the rows over their size, one million rows"
    percentages(title, "bytes of a row", lines, LIMIT, folder / "memory_rows.png")
    title = "Memory beyond the rows over the size of the buffer"
    by_size = {f"rows of {size:,} bytes": found for size, found in uniform.items()}
    percentages(title, "capacity, rows", by_size, LIMIT, folder / "memory_capacity.png")


def main() -> None:
    """Both strategies: all sizes and capacities, and full buffers."""
    quick = quick_asked("What buffers take beyond their rows.")
    OUT.mkdir(parents=True, exist_ok=True)
    strategies: tuple[Strategy, ...] = ("uniform", "prioritized")
    tables = {s: {n: {c: overhead(s, n, c) for c in CAPACITIES} for n in SIZES} for s in strategies}
    over = {s: over_rows(s, 20 if quick else 1) for s in strategies}
    full = {s: resident(s, CAPACITIES[:2] if quick else CAPACITIES) for s in strategies}
    for strategy in strategies:
        show(strategy, tables[strategy])
        least = holds_from(over[strategy], LIMIT)
        looked_at = ", of the sizes looked at," if quick else ""
        print(f"of a million rows below {LIMIT:.0%} from{looked_at} {least} bytes a row on")
        show_resident(strategy, full[strategy])
    plots(over, tables["uniform"], OUT)
    results: dict[str, Any] = {"overhead": tables, "over_rows": over, "full": full}
    write("memory", results)


if __name__ == "__main__":
    main()
