"""The floors of the interpreter: an empty call, fresh arrays, `np.take` of rows and of runs.

Which of them are timed follows from the floors that the workload's cells name.
"""

from __future__ import annotations

import gc
import itertools

import numpy as np
from timing import Call, Fresh
from workload import Cell, Workload

TITLE = "floor, Python"
INSTALL: tuple[tuple[str, ...], ...] = ()
CAN = frozenset({"prioritized", "views"})
METHODS = {
    "empty call": "empty_call",
    "six arrays of": "six_arrays",
    "np.take": "take",
    "runs of 80:": "runs",
}


class Floor:
    """The floors that the workload asks for, as cells."""

    def __init__(self, workload: Workload) -> None:
        self.cells: list[Cell] = []
        for name in sorted({name for cell in workload.cells for name in cell.floor}):
            for start, method in METHODS.items():
                if name.startswith(start):
                    n = name.removeprefix(start)
                    self.cells.append(Cell(name, method, (int(n),) if n else ()))
        self._workload = workload
        self._random = np.random.default_rng(0)
        self._obs: list[np.ndarray] = []
        if any(cell.method == "take" for cell in self.cells):
            stack = workload.options.get("views", {}).get("stack")
            shape = (workload.capacity, *workload.obs_shape, *([stack] if stack else []))
            self._obs = [np.ones(shape, workload.obs_dtype) for _ in range(2)]

    def empty_call(self) -> Call:
        """A builtin without arguments that only returns a constant."""
        return Call(gc.isenabled)

    def six_arrays(self, n: int) -> Call:
        """What a uniform batch consists of, uninitialised."""
        shape = (n, *self._workload.obs_shape)
        dtype = np.dtype(self._workload.obs_dtype)
        empty, int64, float32, flag = np.empty, np.dtype("i8"), np.dtype("f4"), np.dtype("?")

        def arrays() -> dict[str, np.ndarray]:
            return {
                "obs": empty(shape, dtype),
                "action": empty(n, int64),
                "reward": empty(n, float32),
                "next_obs": empty(shape, dtype),
                "done": empty(n, flag),
                "indices": empty(n, int64),
            }

        return Call(arrays)

    def take(self, n: int) -> Call:
        """`np.take` of the two observations of a batch, from ids drawn beforehand."""
        first, second = self._obs
        batches = self._random.integers(0, self._workload.capacity, (4096, n))
        take = np.take

        def both(ids: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
            return take(first, ids, 0), take(second, ids, 0)

        return Call(both, (Fresh(itertools.cycle(batches).__next__),))

    def runs(self, n: int) -> Call:
        """`np.take` of whole runs of steps out of each column."""
        length = self._workload.options["views"]["length"]
        rows = self._workload.capacity // length * length
        columns = self._workload.rows(rows)
        columns["truncated"] = columns["done"].copy()
        del columns["next_obs"]
        named = {k: c.reshape(-1, length, *c.shape[1:]) for k, c in columns.items()}
        batches = self._random.integers(0, rows // length, (4096, n))
        take = np.take

        def every(ids: np.ndarray) -> dict[str, np.ndarray]:
            return {name: take(column, ids, 0) for name, column in named.items()}

        return Call(every, (Fresh(itertools.cycle(batches).__next__),))


def make(workload: Workload) -> Floor:
    """The floors of `workload`."""
    return Floor(workload)
