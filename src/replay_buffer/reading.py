"""Reading what is there: rows and priorities by their ids, and whole episodes."""

from __future__ import annotations

import functools
from collections.abc import AsyncIterator, Iterator, Mapping
from typing import Any

import numpy as np

from . import arguments, ragged
from .awaiting import alone
from .client import Client
from .drawing import Source
from .engine import Batch, Ids, Priorities
from .errors import RowGone
from .peeking import PeekedRows


def latest(client: Client, n: Any) -> Batch:
    """See ReplayBuffer.latest."""
    n = arguments.count("n", n)
    for _ in range(16):
        batch, gone = client.engine.make(None, _newest(client, n))
        if gone is None:
            return batch
    # Writers are so fast that some rows are always overwritten between the two calls.
    assert gone is not None
    assert client.schema is not None
    kept: Batch = ragged.select(~gone, batch, client.schema.fields)
    return kept


def peek(client: Client, ids: Any) -> PeekedRows:
    """See ReplayBuffer.peek."""
    rows = _peeked(client, arguments.row_ids(ids).copy())
    if not rows.intact():
        gone = rows.gone()
        raise RowGone(
            f"{gone.sum()} of {gone.size} rows are gone, the first is {rows.indices[gone][0]}"
        )
    return rows


def peek_latest(client: Client, n: Any) -> PeekedRows:
    """See ReplayBuffer.peek_latest."""
    n = arguments.count("n", n)
    for _ in range(16):
        rows = _peeked(client, _newest(client, n))
        if rows.intact():
            return rows
    # As in latest().
    return _peeked(client, rows.indices[~rows.gone()])


def _newest(client: Client, n: int) -> Ids:
    return client.engine.find(min(n, client.config.capacity))


def _peeked(client: Client, ids: Ids) -> PeekedRows:
    memory = client.engine.peek(ids)
    assert client.schema is not None
    ids.flags.writeable = False
    return PeekedRows(memory, ids, client.schema)


def priorities(client: Client, ids: Any) -> Priorities:
    """See ReplayBuffer.priorities."""
    client.check_weighted()
    wanted = arguments.row_ids(ids)
    raws = client.engine.priorities(wanted)
    gone = np.isnan(raws).sum()
    if gone > 0:
        raise RowGone(f"{gone} of {wanted.size} rows are gone")
    return raws


def episodes(source: Source) -> Iterator[Batch]:
    """What there is now of whole trajectories; see ReplayBuffer.episodes."""
    for start in np.sort(source.starts()):
        try:
            episode = _episode(source, start)
        except RowGone:
            continue
        yield episode


async def episodes_async(source: Source) -> AsyncIterator[Batch]:
    """The same, awaited."""
    for start in np.sort(await alone(source.starts)):
        try:
            call = functools.partial(_episode, source, start)
            episode = await source.client.async_calls.run(call)
        except RowGone:
            continue
        yield episode


def _episode(source: Source, start: Any) -> Batch:
    """A batch of one item without its leading dimension, and without what is the same in all."""
    batch = source.get(np.array([start]))
    schema = source.client.schema
    assert schema is not None
    fields = source.arrays(schema)
    return {
        name: _only(value, fields.get(name))
        for name, value in batch.items()
        if name not in ("mask", "is_first", "lengths")
    }


def _only(value: Any, field: Any) -> Any:
    if isinstance(field, Mapping):
        return {name: _only(inner, field.get(name)) for name, inner in value.items()}
    return value if isinstance(value, dict) else value[0]  # a dict: values of any length
