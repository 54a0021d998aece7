"""What a workload is: the rows, how many, and the cells (timed operations) of its table.

A file of `workloads/` holds a list `WORKLOADS`; adding a file there adds tables, shown in the order
of the files' `POSITION`. What a workload
asks beyond plain adding and uniform drawing stands in `options`; a peer that does not name all of
them in its `CAN` is shown as lacking them.
"""

from __future__ import annotations

import importlib
import pkgutil
from collections.abc import Iterator
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt

ACTIONS = 4
Rows = dict[str, npt.NDArray[Any]]


class UnsupportedError(Exception):
    """The peer has no such thing; the message says what is missing."""


@dataclass(frozen=True)
class Cell:
    """One timed operation: `method(*arguments)` of the adapter gives the call; `per` rows a call.

    `taken` is how: in a loop; or alone, beside a Python thread, or that thread itself (timing.py).
    `floor` tells which numbers are shown as this cell's floor: names of cells of the floor
    processes, added up.
    """

    name: str
    method: str
    arguments: tuple[int, ...] = ()
    per: int = 1
    floor: tuple[str, ...] = ()
    taken: str = "loop"


@dataclass(frozen=True)
class Workload:
    """Transitions (obs, action, reward, next_obs, done) of one shape, and what is timed on them."""

    name: str
    title: str
    obs_shape: tuple[int, ...]
    obs_dtype: str
    capacity: int
    cells: tuple[Cell, ...]
    options: dict[str, Any] = field(default_factory=dict)

    @property
    def row_bytes(self) -> int:
        """Bytes of one transition: two observations, int64 action, float32 reward, bool done."""
        obs = int(np.prod(self.obs_shape)) * np.dtype(self.obs_dtype).itemsize
        return 2 * obs + 8 + 4 + 1

    def rows(self, n: int, seed: int = 0) -> Rows:
        """`n` random transitions."""
        random = np.random.default_rng(seed)
        shape = (2, n, *self.obs_shape)
        if np.dtype(self.obs_dtype).kind == "u":
            obs = random.integers(0, 256, shape, dtype=self.obs_dtype)
        else:
            obs = random.standard_normal(shape).astype(self.obs_dtype)
        return {
            "obs": obs[0],
            "action": random.integers(0, ACTIONS, n),
            "reward": random.standard_normal(n).astype(np.float32),
            "next_obs": obs[1],
            "done": random.random(n) < 0.01,
        }

    def chunks(self, rows: int | None = None, size: int | None = None) -> Iterator[Rows]:
        """Rows that fill a buffer exactly, a chunk at a time; chunks repeat the same content."""
        left = self.capacity if rows is None else rows
        size = min(size or max(64, 2**24 // self.row_bytes), left)
        chunk = self.rows(size)
        while left > 0:
            n = min(size, left)
            yield {name: column[:n] for name, column in chunk.items()}
            left -= n


def load() -> dict[str, Workload]:
    """All workloads by name, in the order they are shown."""
    folder = Path(__file__).parent / "workloads"
    names = [module.name for module in pkgutil.iter_modules([str(folder)])]
    modules = [importlib.import_module(f"workloads.{name}") for name in names]
    modules.sort(key=lambda module: module.POSITION)
    return {workload.name: workload for module in modules for workload in module.WORKLOADS}
