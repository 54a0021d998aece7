"""Reading what is there: rows and priorities by their ids, views, and whole episodes."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import arguments, ragged
from .errors import NotEnoughRows, RowGone
from .hindsight import HindsightView
from .peeking import Ids, PeekedRows
from .schema import Column
from .trajectories import TrajectoryView, only_item
from .view import View
from .views import Hindsight, Part, Trajectory

if TYPE_CHECKING:
    from .buffer import Batch, ReplayBuffer


def latest(buffer: ReplayBuffer, n: int) -> Batch:
    """See ReplayBuffer.latest."""
    n = arguments.count("n", n)
    if not buffer._settled():
        return get(buffer, np.empty(0, np.int64))
    for _ in range(16):
        ids = buffer._latest_ids(min(n, buffer.capacity))
        batch, gone, count = buffer._get_rows(ids)
        if count == 0:
            return batch
    # Writers are so fast that some rows are always overwritten between the two calls.
    assert buffer.schema is not None
    kept: Batch = ragged.select(~gone, batch, buffer.schema.fields)
    return kept


def get(buffer: ReplayBuffer, ids: Any) -> Batch:
    """See ReplayBuffer.get."""
    wanted = _settled_ids(buffer, ids)
    batch, gone, count = buffer._get_rows(wanted)
    if count > 0:
        raise _rows_gone(wanted, gone)
    return batch


def peek(buffer: ReplayBuffer, ids: Any) -> PeekedRows:
    """See ReplayBuffer.peek."""
    rows = _peeked(buffer, _settled_ids(buffer, ids).copy())
    if not rows.intact():
        raise _rows_gone(rows.indices, rows.gone())
    return rows


def peek_latest(buffer: ReplayBuffer, n: int) -> PeekedRows:
    """See ReplayBuffer.peek_latest."""
    n = arguments.count("n", n)
    if not buffer._settled():
        return peek(buffer, ())
    for _ in range(16):
        rows = _peeked(buffer, buffer._latest_ids(min(n, buffer.capacity)))
        if rows.intact():
            return rows
    # As in latest().
    return _peeked(buffer, rows.indices[~rows.gone()])


def _peeked(buffer: ReplayBuffer, ids: Ids) -> PeekedRows:
    assert buffer.schema is not None
    ids.flags.writeable = False
    return PeekedRows(buffer._in_place(), ids, buffer.schema)


def _settled_ids(buffer: ReplayBuffer, ids: Any) -> Ids:
    """Ids of rows that may be there. Raises what is to be said where there are no columns yet."""
    wanted = arguments.row_ids(ids)
    if not buffer._settled():
        buffer._check_open()
        if wanted.size == 0:
            raise NotEnoughRows("the buffer is empty and its columns are not settled yet")
        raise RowGone(f"row {wanted.flat[0]} is not in the buffer")
    return wanted


def _rows_gone(ids: Ids, gone: npt.NDArray[np.bool_]) -> RowGone:
    return RowGone(f"{gone.sum()} of {ids.size} rows are gone, the first is {ids[gone][0]}")


def check_out(buffer: ReplayBuffer, out: Any, n: int) -> None:
    """Raises what is wrong with a caller's arrays for n rows."""
    assert buffer.schema is not None
    extra: dict[str, Any] = {"indices": Column((), "int64")}
    if buffer.config.weighted:
        extra["weights"] = Column((), "float32")
    arguments.check_arrays({**buffer.schema.fields, **extra}, out, n)


def priorities(buffer: ReplayBuffer, ids: Any) -> npt.NDArray[np.float32]:
    """See ReplayBuffer.priorities."""
    buffer._check_weighted()
    wanted = arguments.row_ids(ids)
    raws: npt.NDArray[np.float32]
    raws, gone = buffer._raw_priorities(wanted)
    if gone > 0:
        raise RowGone(f"{gone} of {wanted.size} rows are gone")
    return raws


def view_of(buffer: ReplayBuffer, parts: tuple[Part, ...]) -> View:
    """The kind of view that these parts ask for."""
    if any(isinstance(part, Trajectory) for part in parts):
        return TrajectoryView(buffer, parts)
    if any(isinstance(part, Hindsight) for part in parts):
        return HindsightView(buffer, parts)
    return View(buffer, parts)


def episodes(view: View) -> Iterator[Batch]:
    """What a view of whole trajectories has now; see ReplayBuffer.episodes."""
    for start in np.sort(view.starts()):
        try:
            episode = _episode(view, start)
        except RowGone:
            continue
        yield episode


async def episodes_async(view: View) -> AsyncIterator[Batch]:
    """The same, awaited."""
    calls = view.buffer._async_calls
    for start in np.sort(await view.starts_async()):
        try:
            episode = await calls.run(functools.partial(_episode, view, start))
        except RowGone:
            continue
        yield episode


def _episode(view: View, start: Any) -> Batch:
    return only_item(view.get([start]), view._expected)
