"""Rows read where they lie, beside the same rows copied, and beside memcpy of as many bytes.

Random rows of twenty thousand transitions with two frames of 84x84x4, which no cache holds. A peek
costs the same whatever a row's size is, until its bytes are read.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
from benchmarks.compare.timing import Call, Fresh
from benchmarks.micro._measure import (
    QUICK,
    Cell,
    Pace,
    available_bytes,
    in_turns,
    quick_asked,
    write,
)
from benchmarks.micro._rows import full_buffer, workload
from benchmarks.micro._targets import show

from replay_buffer import ReplayBuffer

FRAMES = ("obs", "next_obs")
NEWEST = 1000


def cells_of(buffer: ReplayBuffer, n: int) -> Iterator[tuple[str, Cell]]:
    """n random rows: copied by the buffer, in place, and copied by NumPy."""
    rng = np.random.default_rng(n)
    stored = buffer.peek_latest(buffer.capacity).indices
    drawn = [rng.choice(stored, n) for _ in range(4096 // n)]
    frames = {name: np.empty((n, 84, 84, 4), np.uint8) for name in FRAMES}

    def look(ids: npt.NDArray[np.int64]) -> bool:
        rows = buffer.peek(ids)
        arrays = [list(rows[name]) for name in FRAMES]
        return rows.intact() and bool(arrays)

    def copy(ids: npt.NDArray[np.int64]) -> bool:
        rows = buffer.peek(ids)
        for name in FRAMES:
            for to, value in zip(frames[name], rows[name], strict=True):
                to[...] = value
        return rows.intact()

    ready = [[(frames[name], list(buffer.peek(ids)[name])) for name in FRAMES] for ids in drawn]

    def memcpy(both: Sequence[Any]) -> None:
        for to, values in both:
            for i, value in enumerate(values):
                to[i] = value

    def fresh(call: Callable[[Any], Any], each: Sequence[Any]) -> Cell:
        return Cell(Call(call, (Fresh(itertools.cycle(each).__next__),)))

    yield f"get {n}", fresh(buffer.get, drawn)
    yield f"peek {n}", fresh(buffer.peek, drawn)
    yield f"peek {n}, an array for each frame, intact", fresh(look, drawn)
    yield f"peek {n}, frames copied out, intact", fresh(copy, drawn)
    yield f"memcpy of the frames of {n} rows", fresh(memcpy, ready)


def newest_cells(buffer: ReplayBuffer) -> Iterator[tuple[str, Cell]]:
    """One small column of many rows."""

    def copied() -> float:
        return float(buffer.latest(NEWEST)["reward"].sum())

    def peeked() -> float:
        rows = buffer.peek_latest(NEWEST)
        found = sum(float(run.sum()) for run in rows["reward"].runs)
        return found if rows.intact() else np.nan

    yield f"the newest {NEWEST} rewards by latest", Cell(Call(copied))
    yield f"the newest {NEWEST} rewards by peek_latest", Cell(Call(peeked))


def main() -> None:
    """Measure, show, write."""
    quick = quick_asked(__doc__ or "")
    rows = workload((84, 84, 4), "uint8", 500 if quick else 20_000)
    if 1.5 * rows.row_bytes * rows.capacity > available_bytes():
        print(f"SKIPPED: {rows.capacity:,} rows of frames do not fit into memory")
        return
    buffer = full_buffer(rows)
    cells = {
        name: cell
        for found in (cells_of(buffer, 1), cells_of(buffer, 32), newest_cells(buffer))
        for name, cell in found
    }
    times = in_turns(cells, (), QUICK if quick else Pace())
    show(times, {})
    write("peek", {"times": times})


if __name__ == "__main__":
    main()
