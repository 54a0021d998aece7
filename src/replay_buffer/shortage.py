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
    from .client import Client
    from .engine import Batch

_EMPTY = "the buffer is empty"

#: Seconds after which a draw is tried again although no rows were added.
_TRY = 0.1


class Patience:
    """How long one call of `sample` waits, and whether for rows too or for the limiter only."""

    def __init__(self, client: Client, timeout: Any, for_rows: bool | None = None) -> None:
        self.wait = Wait(seconds(timeout), client.who)
        self.for_rows = timeout is not None if for_rows is None else for_rows

    @property
    def left(self) -> float | None:
        """Seconds, as the core takes them."""
        return None if self.wait.left == math.inf else self.wait.left


def check(client: Client, batch_size: Any, beta: Any, patience: Patience) -> int:
    """Checks what `sample` was given, and returns the batch size as soon as the columns are known:
    another thread may be about to add the first row. Raises NotEnoughRows, or Timeout."""
    n = arguments.count("batch_size", batch_size)
    client.check_open()
    if beta is not None:
        client.check_weighted()
    if client.schema is None and (patience.for_rows or client.config.limited):
        least = max(1, client.config.min_size)
        told = f"0 of {least} rows are there (min_size)" if client.config.limited else _EMPTY
        patience.wait.until(
            lambda: client.closed or client.schema is not None, f"sample({n})", told
        )
        client.check_open()
    if client.schema is None:
        raise NotEnoughRows(f"cannot sample {n} rows: {_EMPTY}")
    if n > 2**31 - 1:
        raise InvalidArgument(f"batch_size must be below 2^31, not {shown(n)}")
    return n


def draw(
    client: Client, n: int, attempt: Callable[[float | None], Batch], patience: Patience
) -> Batch:
    """What `attempt`, which is told how long it may wait for the limiter, draws at last."""
    if not patience.for_rows:
        return attempt(patience.left)
    check_possible(client, n)
    while True:
        before = client.engine.progress()[0]
        try:
            return attempt(patience.left)
        except NotEnoughRows as error:
            told = missing(error)
        except Timeout as error:
            raise Timeout(patience.wait.retold(error)) from None
        changed = functools.partial(_changed, client, before)
        patience.wait.until(changed, f"sample({n})", told, longest=_TRY)


def missing(error: NotEnoughRows) -> str:
    """What an error says that was missing."""
    return str(error).partition(": ")[2] or str(error)


def _changed(client: Client, rows_added: int) -> bool:
    return client.closed or client.engine.progress()[0] != rows_added


def check_possible(client: Client, n: int) -> None:
    """Raises InvalidArgument for a batch that no number of rows could fill."""
    config = client.config
    most = {
        "fifo": config.capacity * config.max_times_sampled,
        "lifo": config.capacity,
    }.get(config.strategy)
    if most is not None and n > most:
        raise InvalidArgument(
            f"sample({n}) could wait for ever: with strategy={config.strategy!r} a buffer of "
            f"{config.capacity} rows has at most {most} for a batch"
        )
