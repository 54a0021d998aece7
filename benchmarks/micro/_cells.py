"""The calls of a training loop, as cells to be timed, and what no call from Python goes below."""

from __future__ import annotations

import gc
import itertools
import operator
from collections.abc import Callable, Iterator

import numpy as np
from benchmarks.compare.timing import Call, Fresh
from benchmarks.compare.workload import Workload
from benchmarks.micro._measure import Cell
from benchmarks.micro._rows import one_row, priorities

from replay_buffer import ReplayBuffer

Cells = Iterator[tuple[str, Cell]]


def floor_cells(rows: Workload) -> Cells:
    """An empty builtin call, alone and with what other cells do to get new arguments for each call;
    the arrays of a batch, uninitialised, in a dict.
    """
    yield "empty call", Cell(Call(gc.isenabled))
    fetched = Fresh(itertools.cycle([rows]).__next__)
    yield "two fetched arguments", Cell(Call(operator.is_, (fetched, fetched)))
    for n in (32, 256):
        yield f"six arrays of {n}", Cell(Call(arrays_of(rows, n)))
        yield f"seven arrays of {n}", Cell(Call(arrays_of(rows, n, weights=True)))


def arrays_of(rows: Workload, n: int, weights: bool = False) -> Callable[[], object]:
    """A function that makes what a batch consists of."""
    shape, dtype = (n, *rows.obs_shape), np.dtype(rows.obs_dtype)
    empty, int64, float32, flag = np.empty, np.dtype("i8"), np.dtype("f4"), np.dtype("?")

    def six() -> dict[str, object]:
        return {
            "obs": empty(shape, dtype),
            "action": empty(n, int64),
            "reward": empty(n, float32),
            "next_obs": empty(shape, dtype),
            "done": empty(n, flag),
            "indices": empty(n, int64),
        }

    def seven() -> dict[str, object]:
        return {**six(), "weights": empty(n, float32)}

    return seven if weights else six


def buffer_cells(buffer: ReplayBuffer, rows: Workload) -> Cells:
    """Adding and drawing by position, as in a training loop."""
    batch = tuple(rows.rows(64).values())
    yield "add", Cell(Call(buffer.add, one_row(rows)))
    yield "add_batch 64, per row", Cell(Call(buffer.add_batch, batch), per=64)
    for n in (32, 256):
        yield f"sample {n}", Cell(Call(buffer.sample, (n,)))
        yield f"sample {n} into arrays", Cell(Call(buffer.sample, (n,), {"out": buffer.sample(n)}))


def prioritized_cells(buffer: ReplayBuffer, rows: Workload) -> Cells:
    """The same with priorities, and what only a prioritized buffer has."""
    batch, given = tuple(rows.rows(64).values()), {"priority": priorities(64)}
    yield from buffer_cells(buffer, rows)
    yield "add with priority", Cell(Call(buffer.add, one_row(rows), {"priority": 0.5}))
    yield (
        "add_batch 64 with priorities, per row",
        Cell(Call(buffer.add_batch, batch, given), per=64),
    )


def update_cells(buffer: ReplayBuffer) -> Cells:
    """Updates of rows that are there: to be timed when nothing is added any more."""
    # 251 is no divisor of 256: ids that come again bring other errors.
    ids = itertools.cycle([buffer.sample(32)["indices"] for _ in range(256)])
    errors = itertools.cycle([priorities(32, seed) for seed in range(251)])
    update = Call(buffer.update_priorities, (Fresh(ids.__next__), Fresh(errors.__next__)))
    yield "update_priorities 32", Cell(update)
