"""The async forms of calls: what each of them waits for, and which of them are long.

A call is long when it may run code of the user's, wait for a disk, or take about as long as Python
lets a thread keep the interpreter's lock: shorter ones keep it, in whatever thread they run.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from . import _core, shortage
from .awaiting import Call
from .config import LinearSchedule
from .errors import Closed, NotEnoughRows, Timeout
from .waiting import Wait, seconds

if TYPE_CHECKING:
    from .client import Client
    from .drawing import Source
    from .engine import Batch
    from .schema import Schema
    from .writer import StepWriter

T = TypeVar("T")

#: The work of finding a row, in bytes that are copied: kFindWork in src/cpp/os/let_go.h.
_FIND_WORK = 256
#: The work of putting a row in order, where all of them are put in order now and then.
_SORT_WORK = 1024
#: How much longer it takes to pack or unpack a value than to copy it.
_PACKING = 4
#: So many values of a list or dict are looked at one by one.
_MANY = 1000


async def sample(
    source: Source,
    batch_size: Any,
    out: Any,
    beta: Any,
    timeout: Any,
) -> Batch:
    """See ReplayBuffer.sample."""
    client = source.client
    wait = Wait(seconds(timeout), client.who)
    patience = shortage.Patience(client, 0, for_rows=False)

    def refused(error: Timeout | NotEnoughRows) -> str:
        if isinstance(error, Timeout):
            return wait.retold(error)
        if timeout is None:
            raise error
        shortage.check_possible(client, int(batch_size))
        return wait.told(f"sample({batch_size})", shortage.missing(error))

    return await client.async_calls.patiently(
        Call(
            attempt=functools.partial(source.draw, batch_size, out, beta, patience),
            is_long=functools.partial(_draw_is_long, source, batch_size),
            kind=(id(source), _number(batch_size), timeout is None),
            wait=wait,
            state=functools.partial(_state, client),
            refused=refused,
            tell=functools.partial(client.count_waits, False),
        )
    )


async def add(
    client: Client,
    call: Callable[..., T],
    values: tuple[Any, ...],
    columns: dict[str, Any],
    timeout: Any,
    writer: StepWriter | None = None,
) -> T:
    """See ReplayBuffer.add, add_batch and StepWriter.append: `call` is one of them."""
    wait = Wait(seconds(timeout), client.who)

    size = _size_of((*values, *columns.values()))
    return await client.async_calls.patiently(
        Call(
            attempt=functools.partial(call, *values, timeout=0, **columns),
            is_long=functools.partial(_is_long, client, size * _PACKING),
            kind=("append", id(writer)) if writer is not None else ("add", _rows(values, columns)),
            wait=wait,
            state=functools.partial(_state, client, writer),
            refused=wait.retold,
            tell=functools.partial(client.count_waits, True),
            ordered=writer is not None,
        )
    )


async def update_priorities(
    client: Client, call: Callable[..., int], indices: Any, *errors: Any
) -> int:
    """See ReplayBuffer and View: `call` is one of their update_priorities."""
    work = _size_of((indices, *errors)) / 8 * _FIND_WORK  # as if each took eight bytes
    update = functools.partial(call, indices, *errors)
    return await client.async_calls.run(update, _is_long(client, work))


# ------------------------------------------------------------------------------ what is waited for


def _rows(values: tuple[Any, ...], columns: dict[str, Any]) -> int | None:
    """How many rows, or how long its first value, a call adds has: more may have to wait longer."""
    first = next(iter((*values, *columns.values())), None)
    if type(first) is np.ndarray:
        return len(first) if first.ndim else 1
    return len(first) if isinstance(first, (list, tuple)) else None


def _number(batch_size: Any) -> int | None:
    return int(batch_size) if isinstance(batch_size, (int, np.integer)) else None


def _state(client: Client, writer: StepWriter | None = None) -> object:
    """Something else when rows were added or drawn, the columns settled, or something closed."""
    if client.closed or (writer is not None and writer.closed):
        return "closed"
    engine = client.engine
    try:
        return engine.schema is None, engine.progress()
    except Closed:  # just now
        return "closed"


# ------------------------------------------------------------------------------------ what is long


def _is_long(client: Client, work: float) -> bool:
    """`work` is in bytes that are copied."""
    unsettled = client.schema is None
    return unsettled or client.engine.location.startswith("file:") or work > _core.long_work()


def _draw_is_long(source: Source, batch_size: Any) -> bool:
    client = source.client
    beta = client.config.beta
    if callable(beta) and not isinstance(beta, LinearSchedule):
        return True
    n = _number(batch_size)
    if client.schema is None or n is None:
        return False  # fails at once
    work = n * _item_work(source, client.schema)
    if client.config.strategy in ("rank", "without_replacement"):
        work += client.engine.size() * _SORT_WORK
    return _is_long(client, work)


def _item_work(source: Source, schema: Schema) -> float:
    """The work of an item of a batch: a row, or what a view makes of some."""
    if source.item_work == 0:
        work = _FIND_WORK + source.item_bytes()
        packed = any(column.compression for _, column in schema.columns)
        source.item_work = work * _PACKING if packed else work
    return source.item_work


def _size_of(value: Any, depth: int = 8) -> float:
    """The bytes of values; infinite where finding that out takes long or may run code of the
    user's."""
    kind = type(value)
    if kind is np.ndarray:
        return math.inf if value.dtype == object else value.nbytes
    if kind in (int, float, bool, type(None)) or isinstance(value, np.generic):
        return 8
    if kind in (tuple, list, dict) and len(value) <= _MANY and depth > 0:
        inner = value.values() if kind is dict else value
        return sum(_size_of(one, depth - 1) for one in inner)
    return math.inf
