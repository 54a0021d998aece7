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
from .inference import by_name, no_rows
from .settling import settle

if TYPE_CHECKING:
    from .buffer import Ids, ReplayBuffer


def add_rows(
    buffer: ReplayBuffer,
    values: tuple[Any, ...],
    columns: dict[str, Any],
    priority: Any,
    timeout: Any,
    *,
    batched: bool,
) -> Ids:
    """Adds transitions, settling the schema if they are the first."""
    buffer._check_open()
    if buffer.config.storage == "steps":
        raise InvalidArgument("this buffer stores steps: writer() has append for them")
    schema = buffer._schema
    row = by_name(schema, values, columns)
    if schema is None:
        if batched and all(no_rows(name, value) for name, value in row.items()):
            buffer._draft.check_names(row)
            raw_priorities(buffer, priority, 0, batched=batched)
            return np.empty(0, np.int64)  # nothing to settle the columns by
        schema = buffer._draft.settle(row, batched=batched)
    n, arrays = schema.arrays(row, -1 if batched else None)
    raws = raw_priorities(buffer, priority, n, batched=batched)
    if n == 0:
        return np.empty(0, np.int64)
    if settle(buffer, schema) is not schema:  # another thread's first row came first
        return add_rows(buffer, values, columns, priority, timeout, batched=batched)
    ids: Ids = buffer._write_rows(n, arrays, raws, timeout)
    return ids


def raw_priorities(
    buffer: ReplayBuffer, priority: Any, n: int, *, batched: bool
) -> npt.NDArray[np.float32] | None:
    """The priorities of n rows that are to be added; None where none were given."""
    if priority is None:
        return None
    buffer._check_weighted()
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


def update_priorities(buffer: ReplayBuffer, indices: Any, td_errors: Any) -> int:
    """Gives rows the sizes of their errors as priorities; says how many were still there."""
    buffer._check_weighted()
    wanted = arguments.row_ids(indices)
    raws = np.abs(arguments.numbers("td_errors", td_errors))
    if wanted.shape != raws.shape:
        raise InvalidArgument(f"{wanted.size} ids but {raws.size} td_errors were given")
    if not np.isfinite(raws).all():
        raise InvalidArgument("td_errors must be finite; nothing was changed")
    if not buffer._settled():
        if wanted.size == 0:
            return 0
        raise InvalidArgument(f"id {wanted[0]} was never given to a row; nothing was changed")
    return buffer.update_priorities(wanted, raws)
