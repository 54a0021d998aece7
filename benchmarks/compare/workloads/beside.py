"""Larger calls alone and beside a thread that runs plain Python, and what that thread keeps."""

from __future__ import annotations

from workload import Cell, Workload

POSITION = 5


def cells(name: str, method: str, n: int) -> tuple[Cell, ...]:
    """A call alone, beside the thread, and the thread beside 50 such calls a second."""
    return (
        Cell(name, method, (n,), taken="alone"),
        Cell(f"{name}, beside", method, (n,), taken="beside"),
        Cell(f"{name}: 1000 loops of the thread", method, (n,), taken="thread"),
    )


WORKLOADS = [
    Workload(
        "beside8",
        "beside a Python thread: prioritized, 8 float32, 100k rows",
        (8,),
        "float32",
        100_000,
        (
            *cells("sample 2048", "sample", 2048),
            *cells("add 4096", "add_batch", 4096),
            *cells("update 1024", "update", 1024),
        ),
        {"prioritized": {"alpha": 0.6, "beta": 0.4}},
    ),
    Workload(
        "beside_frames",
        "beside a Python thread: 84x84x4 uint8 frames, 2k rows",
        (84, 84, 4),
        "uint8",
        2000,
        (
            *cells("sample 16", "sample", 16),
            *cells("sample 124", "sample", 124),
            *cells("add 64", "add_batch", 64),
        ),
    ),
]
