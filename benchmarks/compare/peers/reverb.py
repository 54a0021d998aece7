"""Reverb: a server in the same process, spoken to over loopback as its users do."""

from __future__ import annotations

import os
from typing import Any

from draws import priorities, updates
from timing import Call
from workload import Workload

TITLE = "Reverb 0.14.0"
INSTALL = (("dm-reverb[tensorflow]==0.14.0",),)
PYTHONS = ("3.11", "3.10", "3.9")
CAN = frozenset({"prioritized"})
NOTE = (
    "Holds at most 100,000 rows here, because filling a million takes minutes. Adds through one "
    "open writer; draws through `TimestepDataset`, which reads ahead in threads of its own; "
    "prioritized draws bring probabilities, no weights."
)
MAX_ROWS = 100_000
TABLE = "rows"


class Buffer:
    """A table of single transitions."""

    def __init__(self, workload: Workload) -> None:
        os.environ.setdefault("TF_CPP_MIN_LOG_LEVEL", "3")
        import reverb
        import tensorflow as tf

        self._reverb = reverb
        self._workload = workload
        self.rows = min(workload.capacity, MAX_ROWS)
        first = {name: column[0] for name, column in workload.rows(1).items()}
        signature = {name: tf.TensorSpec(v.shape, v.dtype) for name, v in first.items()}
        prioritized = workload.options.get("prioritized")
        sampler = reverb.selectors.Uniform()
        if prioritized:
            sampler = reverb.selectors.Prioritized(prioritized["alpha"])
        table = reverb.Table(
            TABLE,
            sampler,
            reverb.selectors.Fifo(),
            self.rows,
            reverb.rate_limiters.MinSize(1),
            signature=signature,
        )
        self._server = reverb.Server([table], port=None)
        self._address = f"localhost:{self._server.port}"
        self._client = reverb.Client(self._address)
        self._writer = self._client.writer(1)
        self._datasets: dict[int, Any] = {}
        self._row = first
        weights = priorities(self.rows).tolist() if prioritized else [1.0] * self.rows
        for priority in weights:
            self._write(first, priority)
        self._writer.flush()

    def _write(self, row: dict[str, Any], priority: float) -> None:
        self._writer.append(row)
        self._writer.create_item(TABLE, 1, priority)

    def _dataset(self, n: int) -> Any:
        if n not in self._datasets:
            dataset = self._reverb.TimestepDataset.from_table_signature(
                self._address, TABLE, max_in_flight_samples_per_worker=2 * n
            )
            self._datasets[n] = dataset.batch(n).as_numpy_iterator()
        return self._datasets[n]

    def add_one(self) -> Call:
        return Call(self._write, (self._row, 1.0))

    def sample(self, n: int) -> Call:
        return Call(self._dataset(n).__next__)


class Prioritized(Buffer):
    """With priorities."""

    def update(self, n: int) -> Call:
        def change(keys: list[int], new: list[float]) -> None:
            self._client.mutate_priorities(TABLE, dict(zip(keys, new, strict=True)))

        def draw() -> list[int]:
            keys: list[int] = next(self._dataset(n)).info.key.tolist()
            return keys

        return Call(change, updates(draw, n, lambda errors: errors.tolist()))


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return (Prioritized if "prioritized" in workload.options else Buffer)(workload)
