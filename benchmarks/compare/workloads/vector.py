"""Vector observations of 8 and of 64 float32, one million rows, uniform drawing."""

from __future__ import annotations

from workload import Cell, Workload

POSITION = 1
CELLS = (
    Cell("add 1", "add_one", floor=("empty call",)),
    Cell("add, per row of 64", "add_batch", (64,), per=64),
    Cell("sample 32", "sample", (32,), floor=("six arrays of 32", "gather 32")),
    Cell("sample 256", "sample", (256,), floor=("six arrays of 256", "gather 256")),
    Cell("sample 32 into arrays", "sample_into", (32,), floor=("gather 32",)),
    Cell("sample 256 into arrays", "sample_into", (256,), floor=("gather 256",)),
)

WORKLOADS = [
    Workload(f"vector{n}", f"{n} float32, 1M rows", (n,), "float32", 1_000_000, CELLS)
    for n in (8, 64)
]
