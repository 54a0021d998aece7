"""Proportional prioritized drawing over one million rows of 8 float32, random priorities."""

from __future__ import annotations

from workload import Cell, Workload

POSITION = 3
CELLS = (
    Cell("add 1", "add_one", floor=("empty call",)),
    Cell("add 1 with a priority", "add_one_with_priority", floor=("empty call",)),
    Cell("add, per row of 64", "add_batch", (64,), per=64),
    Cell("sample 32", "sample", (32,), floor=("six arrays of 32", "gather 32")),
    Cell("sample 256", "sample", (256,), floor=("six arrays of 256", "gather 256")),
    Cell("sample 32 into arrays", "sample_into", (32,), floor=("gather 32",)),
    Cell("update 32", "update", (32,)),
)

WORKLOADS = [
    Workload(
        "prioritized8",
        "prioritized, 8 float32, 1M rows",
        (8,),
        "float32",
        1_000_000,
        CELLS,
        {"prioritized": {"alpha": 0.6, "beta": 0.4}},
    )
]
