"""What the hot calls could not take as it was: converted where it keeps its meaning, else named.

Nothing is changed by a call that raises.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import arguments
from .config import not_negative
from .errors import InvalidArgument
from .inference import by_name, check_steps, no_rows
from .schema import Schema

if TYPE_CHECKING:
    from .client import Client
    from .engine import Batch, Ids


def add_rows(
    client: Client,
    values: tuple[Any, ...],
    columns: dict[str, Any],
    priority: Any,
    timeout: Any,
    *,
    batched: bool,
) -> Ids | None:
    """Adds transitions, settling the schema if they are the first."""
    client.check_open()
    if client.config.storage == "steps":
        raise InvalidArgument("this buffer stores steps: writer() has append for them")
    schema = client.schema
    row = by_name(schema, values, columns)
    if schema is None:
        if batched and all(no_rows(name, value) for name, value in row.items()):
            client.draft.check_names(row)
            raw_priorities(client, priority, 0, batched=batched)
            return np.empty(0, np.int64)  # nothing to settle the columns by
        schema = client.draft.settle(row, batched=batched)
    n, arrays = schema.arrays(row, -1 if batched else None)
    raws = raw_priorities(client, priority, n, batched=batched)
    if n == 0:
        return np.empty(0, np.int64)
    if client.settle(schema) is not schema:  # another thread's first row came first
        return add_rows(client, values, columns, priority, timeout, batched=batched)
    return client.engine.write(arrays, n, raws, timeout)


def raw_priorities(
    client: Client, priority: Any, n: int, *, batched: bool
) -> npt.NDArray[np.float32] | None:
    """The priorities of n rows that are to be added; None where none were given."""
    if priority is None:
        return None
    client.check_weighted()
    if not batched:
        if getattr(priority, "ndim", 0) != 0 or isinstance(priority, bool):
            raise InvalidArgument(f"priority must be a number, not {priority!r}")
        priority = [not_negative("priority", priority)]
    raws = arguments.numbers("priority", priority)
    if raws.shape != (n,):
        raise InvalidArgument(f"priority: expected {n} values, got shape {raws.shape}")
    if not (np.isfinite(raws).all() and (raws >= 0).all()):
        raise InvalidArgument("priority must be finite and >= 0; nothing was added")
    return raws


def update_priorities(client: Client, indices: Any, td_errors: Any) -> int | None:
    """Gives rows the sizes of their errors as priorities; says how many were still there."""
    client.check_weighted()
    wanted = arguments.row_ids(indices)
    raws = np.abs(arguments.numbers("td_errors", td_errors))
    if wanted.shape != raws.shape:
        raise InvalidArgument(f"{wanted.size} ids but {raws.size} td_errors were given")
    if not np.isfinite(raws).all():
        raise InvalidArgument("td_errors must be finite; nothing was changed")
    return client.engine.set_priorities(wanted, raws)


def schema_of_steps(client: Client, row: Batch, *, batched: bool) -> Schema:
    """The columns of steps: known, or what the values of the first will settle."""
    if client.schema is not None:
        return client.schema
    schema = client.draft.settle(row, batched=batched, steps=True)
    check_steps(schema)
    return schema
