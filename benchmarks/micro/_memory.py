"""What a buffer takes beyond its rows, in the worst case of many row sizes."""

from __future__ import annotations

from dataclasses import dataclass

from benchmarks.micro._rows import Strategy

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema

ROWS = 1_000_000
LIMIT = 0.1
SCALARS = 8 + 4 + 1  # int64 action, float32 reward, bool done


@dataclass(frozen=True)
class Overhead:
    """The largest overhead of rows from `least_bytes` to `most_bytes`, and where it was."""

    strategy: Strategy
    least_bytes: int
    most_bytes: int
    worst: float
    worst_bytes: int
    limit: float = LIMIT

    def __str__(self) -> str:
        verdict = "pass" if self.worst < self.limit else "MISS"
        sizes = f"rows of {self.least_bytes} to {self.most_bytes} bytes"
        worst = f"at most {self.worst:.1%} (at {self.worst_bytes})"
        return f"{self.strategy + ', ' + sizes:50} {worst}, below {self.limit:.0%}: {verdict}"


def overhead(strategy: Strategy, row_bytes: int) -> float:
    """Of one million transitions of as many bytes; nothing is written, so it takes no memory."""
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
    with ReplayBuffer(BufferConfig(capacity=ROWS, strategy=strategy), schema=schema) as buffer:
        return float(buffer.stats()["overhead"])


def overheads() -> list[Overhead]:
    """Every size up to a kilobyte, from the least for which the target holds."""
    found = []
    targets: tuple[tuple[Strategy, int], ...] = (("uniform", 128), ("prioritized", 256))
    for strategy, least in targets:
        sizes = range(least, 1025)
        worst, at = max((overhead(strategy, size), size) for size in sizes)
        found.append(Overhead(strategy, least, sizes[-1], worst, at))
    return found
