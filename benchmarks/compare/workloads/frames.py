"""Stacked 84x84x4 uint8 frames, twenty thousand rows, uniform drawing."""

from __future__ import annotations

from workload import Cell, Workload

POSITION = 2
CELLS = (
    Cell("add 1", "add_one"),
    Cell("add, per row of 64", "add_batch", (64,), per=64),
    Cell("sample 32", "sample", (32,), floor=("np.take 32",)),
    Cell("sample 256", "sample", (256,), floor=("np.take 256",)),
    Cell("sample 32 into arrays", "sample_into", (32,), floor=("gather 32",)),
)

WORKLOADS = [
    Workload("frames", "84x84x4 uint8 frames, 20k rows", (84, 84, 4), "uint8", 20_000, CELLS)
]
