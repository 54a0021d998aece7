"""Waiting for rows that are not there yet.

A call with a timeout waits for whatever keeps it from drawing; one without waits for the rate
limiter only. Draws that fail leave no trace, so they are simply tried again, whenever rows were
added and ten times a second: no writer has to know who waits.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from . import arguments
from .errors import InvalidArgument, NotEnoughRows, Timeout, shown
from .waiting import Wait, seconds

if TYPE_CHECKING:
    from .buffer import Batch, ReplayBuffer

_EMPTY = "the buffer is empty"

#: Seconds after which a draw is tried again although no rows were added.
_TRY = 0.1


class Patience:
    """How long one call of `sample` waits, and whether for rows too or for the limiter only."""

    def __init__(self, buffer: ReplayBuffer, timeout: Any, for_rows: bool | None = None) -> None:
        self.wait = Wait(seconds(timeout), lambda: writers(buffer))
        self.for_rows = timeout is not None if for_rows is None else for_rows

    @property
    def left(self) -> float | None:
        """Seconds, as the core takes them."""
        return None if self.wait.left == math.inf else self.wait.left


def check(buffer: ReplayBuffer, batch_size: Any, beta: Any, patience: Patience) -> int:
    """Checks what `sample` was given, and returns the batch size as soon as the columns are known:
    another thread may be about to add the first row. Raises NotEnoughRows, or Timeout."""
    n = arguments.count("batch_size", batch_size)
    buffer._check_open()
    if beta is not None:
        buffer._check_weighted()
    if buffer.schema is None and (patience.for_rows or buffer.config.limited):
        least = max(1, buffer.config.min_size)
        told = f"0 of {least} rows are there (min_size)" if buffer.config.limited else _EMPTY
        patience.wait.until(
            lambda: buffer.closed or buffer.schema is not None, f"sample({n})", told
        )
        buffer._check_open()
    if buffer.schema is None:
        raise NotEnoughRows(f"cannot sample {n} rows: {_EMPTY}")
    if n > 2**31 - 1:
        raise InvalidArgument(f"batch_size must be below 2^31, not {shown(n)}")
    return n


def draw(
    buffer: ReplayBuffer, n: int, attempt: Callable[[float | None], Batch], patience: Patience
) -> Batch:
    """What `attempt`, which is told how long it may wait for the limiter, draws at last."""
    if not patience.for_rows:
        return attempt(patience.left)
    check_possible(buffer, n)
    while True:
        before = buffer._rows_added()
        try:
            return attempt(patience.left)
        except NotEnoughRows as error:
            told = missing(error)
        except Timeout as error:
            raise Timeout(patience.wait.retold(error)) from None
        changed = functools.partial(_changed, buffer, before)
        patience.wait.until(changed, f"sample({n})", told, longest=_TRY)


def missing(error: NotEnoughRows) -> str:
    """What an error says that was missing."""
    return str(error).partition(": ")[2] or str(error)


def _changed(buffer: ReplayBuffer, rows_added: int) -> bool:
    return buffer.closed or buffer._rows_added() != rows_added


def check_possible(buffer: ReplayBuffer, n: int) -> None:
    """Raises InvalidArgument for a batch that no number of rows could fill."""
    config = buffer.config
    most = {
        "fifo": config.capacity * config.max_times_sampled,
        "lifo": config.capacity,
    }.get(config.strategy)
    if most is not None and n > most:
        raise InvalidArgument(
            f"sample({n}) could wait for ever: with strategy={config.strategy!r} a buffer of "
            f"{config.capacity} rows has at most {most} for a batch"
        )


def writers(buffer: ReplayBuffer) -> str:
    """Which processes have the buffer open for writing, and what each of them has added."""
    if buffer.closed or not buffer._settled():
        return "nobody has added a row"
    added: dict[int, int] = {}
    for _, pid, alive, _, rows, _ in buffer._owners():
        if alive:
            added[pid] = added.get(pid, 0) + rows
    if not added:
        return "no process has it open for writing"
    said = ", ".join(f"{pid} ({rows} rows added)" for pid, rows in sorted(added.items()))
    return f"open for writing in process {said}"
