"""Rows that carry a checksum of (writer, sequence, payload)."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from replay_buffer import Column, Schema

POOL, MOST = 512, 256  # contents of a writer, rows of a batch
FRAME = 1032  # bytes: too many to be packed with the other columns
SCHEMA = Schema(
    {
        "writer": Column((), "int64"),
        "sequence": Column((), "int64"),
        "payload": Column((6,), "float64"),
        "frame": Column((FRAME,), "uint8"),
        "checksum": Column((), "uint64"),
    }
)
Words = npt.NDArray[np.uint64]
_FACTORS = np.random.default_rng(1).integers(1, 2**63, 2 + 6 + FRAME // 8, np.uint64) | np.uint64(1)


def content_sum(payload: Any, frame: Any) -> Words:
    words = np.concatenate([payload.view(np.uint64), frame.view(np.uint64)], axis=1)
    total: Words = (words * _FACTORS[2:]).sum(axis=1, dtype=np.uint64)
    return total


def name_sum(writer: Any, sequence: Any) -> Words:
    total: Words = (
        np.asarray(writer).astype(np.uint64) * _FACTORS[0]
        + np.asarray(sequence).astype(np.uint64) * _FACTORS[1]
    )
    return total


class Source:
    """The rows of one writer, in order."""

    def __init__(self, writer: int, seed: int) -> None:
        rng = np.random.default_rng(seed)
        again = np.arange(POOL + MOST) % POOL  # so that every batch is a slice
        self._payload = rng.random((POOL, 6))[again]
        self._frame = rng.integers(0, 256, (POOL, FRAME), np.uint8)[again]
        self._sum = content_sum(self._payload, self._frame)
        self._writer = writer
        self._sequence = 0

    def rows(self, n: int) -> tuple[Any, ...]:
        """The next n <= MOST rows, as arguments of add_batch."""
        sequence = np.arange(self._sequence, self._sequence + n)
        at = slice(self._sequence % POOL, self._sequence % POOL + n)
        self._sequence += n
        writer = np.full(n, self._writer)
        checksum = self._sum[at] + name_sum(writer, sequence)
        return writer, sequence, self._payload[at], self._frame[at], checksum


def torn(batch: dict[str, Any]) -> npt.NDArray[np.int64]:
    """The ids of rows that are not what a writer wrote."""
    expected = content_sum(batch["payload"], batch["frame"]) + name_sum(
        batch["writer"], batch["sequence"]
    )
    ids: npt.NDArray[np.int64] = batch["indices"][expected != batch["checksum"]]
    return ids


def misplaced(batch: dict[str, Any]) -> npt.NDArray[np.int64]:
    """The ids of rows that are not in the order in which their writer wrote them."""
    order = np.lexsort((batch["sequence"], batch["writer"]))
    ids, writer, sequence = (batch[name][order] for name in ("indices", "writer", "sequence"))
    same = writer[1:] == writer[:-1]
    wrong = same & ((ids[1:] > ids[:-1]) != (sequence[1:] > sequence[:-1]))
    found: npt.NDArray[np.int64] = ids[1:][wrong]
    return found
