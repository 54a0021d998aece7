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
    from .buffer import Batch, ReplayBuffer
    from .view import View
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
    buffer: ReplayBuffer,
    source: ReplayBuffer | View,
    batch_size: Any,
    out: Any,
    beta: Any,
    timeout: Any,
) -> Batch:
    """See ReplayBuffer.sample; `source` is the buffer or a view."""
    wait = Wait(seconds(timeout), buffer._who)
    patience = shortage.Patience(buffer, 0, for_rows=False)

    def refused(error: Timeout | NotEnoughRows) -> str:
        if isinstance(error, Timeout):
            return wait.retold(error)
        if timeout is None:
            raise error
        shortage.check_possible(buffer, int(batch_size))
        return wait.told(f"sample({batch_size})", shortage.missing(error))

    return await buffer._async_calls.patiently(
        Call(
            attempt=functools.partial(source._draw, batch_size, out, beta, patience),
            is_long=functools.partial(_draw_is_long, buffer, source, batch_size),
            kind=(id(source), _number(batch_size), timeout is None),
            wait=wait,
            state=functools.partial(_state, buffer),
            refused=refused,
            tell=functools.partial(buffer._count_waits, False),
        )
    )


async def add(
    buffer: ReplayBuffer,
    call: Callable[..., T],
    values: tuple[Any, ...],
    columns: dict[str, Any],
    timeout: Any,
    writer: StepWriter | None = None,
) -> T:
    """See ReplayBuffer.add, add_batch and StepWriter.append: `call` is one of them."""
    wait = Wait(seconds(timeout), buffer._who)

    size = _size_of((*values, *columns.values()))
    return await buffer._async_calls.patiently(
        Call(
            attempt=functools.partial(call, *values, timeout=0, **columns),
            is_long=functools.partial(_is_long, buffer, size * _PACKING),
            kind=("append", id(writer)) if writer is not None else ("add", _rows(values, columns)),
            wait=wait,
            state=functools.partial(_state, buffer, writer),
            refused=wait.retold,
            tell=functools.partial(buffer._count_waits, True),
            ordered=writer is not None,
        )
    )


async def update_priorities(
    buffer: ReplayBuffer, call: Callable[..., int], indices: Any, *errors: Any
) -> int:
    """See ReplayBuffer and View: `call` is one of their update_priorities."""
    work = _size_of((indices, *errors)) / 8 * _FIND_WORK  # as if each took eight bytes
    update = functools.partial(call, indices, *errors)
    return await buffer._async_calls.run(update, _is_long(buffer, work))


# ------------------------------------------------------------------------------ what is waited for


def _rows(values: tuple[Any, ...], columns: dict[str, Any]) -> int | None:
    """How many rows, or how long its first value, a call adds has: more may have to wait longer."""
    first = next(iter((*values, *columns.values())), None)
    if type(first) is np.ndarray:
        return len(first) if first.ndim else 1
    return len(first) if isinstance(first, (list, tuple)) else None


def _number(batch_size: Any) -> int | None:
    return int(batch_size) if isinstance(batch_size, (int, np.integer)) else None


def _state(buffer: ReplayBuffer, writer: StepWriter | None = None) -> int:
    """Another number when rows were added or drawn, the columns settled, or something closed."""
    if buffer.closed or (writer is not None and writer.closed):
        return -2
    try:
        return buffer._rows_moved() if buffer._settled() else -1
    except Closed:  # just now
        return -2


# ------------------------------------------------------------------------------------ what is long


def _is_long(buffer: ReplayBuffer, work: float) -> bool:
    """`work` is in bytes that are copied."""
    unsettled = buffer.schema is None
    return unsettled or buffer.location.startswith("file:") or work > _core.long_work()


def _draw_is_long(buffer: ReplayBuffer, source: ReplayBuffer | View, batch_size: Any) -> bool:
    beta = buffer.config.beta
    if callable(beta) and not isinstance(beta, LinearSchedule):
        return True
    n = _number(batch_size)
    if buffer.schema is None or n is None:
        return False  # fails at once
    work = n * _item_work(buffer, source)
    if buffer.config.strategy in ("rank", "without_replacement"):
        work += buffer.size * _SORT_WORK
    return _is_long(buffer, work)


def _item_work(buffer: ReplayBuffer, source: ReplayBuffer | View) -> float:
    """The work of an item of a batch: a row, or what a view makes of some."""
    if source._work == 0:
        assert buffer.schema is not None
        work = _FIND_WORK + source._item_bytes()
        packed = any(column.compression for _, column in buffer.schema.columns)
        source._work = work * _PACKING if packed else work
    return source._work


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
