"""Values whose length varies: as columns store them, and as batches hold them."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt

from .casting import Array, cast, plain_array
from .errors import SchemaMismatch

#: Items of rows one after the other, and where each row begins; one offset more than rows.
Ragged = tuple[Array, npt.NDArray[np.int64]]
#: The shape of an item.
Shape = tuple[Any, ...]

KEYS = {"values", "offsets"}


def as_ragged(
    path: str, shape: Shape, dtype: np.dtype[Any], value: Any, *, batched: bool
) -> Ragged:
    """The values of a column of any length: of one row, or of a batch of them.

    A batch is a sequence of arrays, one for each row, or {"values": ..., "offsets": ...}.
    """
    if not batched:
        items = _items(path, shape, dtype, value)
        return items, np.array([0, len(items)], np.int64)
    if isinstance(value, Mapping):
        return _given(path, shape, dtype, value)
    if not isinstance(value, (Sequence, np.ndarray)) or isinstance(value, (str, bytes)):
        raise SchemaMismatch(
            f"column {path!r}: expected a list of arrays or a dict with values and offsets, "
            f"got {type(value).__name__}"
        )
    if isinstance(value, np.ndarray) and value.ndim == 0:
        raise SchemaMismatch(f"column {path!r}: expected a batch, got shape ()")
    rows = [_items(f"{path}[{i}]", shape, dtype, row) for i, row in enumerate(value)]
    offsets = np.zeros(len(rows) + 1, np.int64)
    np.cumsum([len(row) for row in rows], out=offsets[1:])
    return np.concatenate(rows) if rows else _items(path, shape, dtype, ()), offsets


def _items(path: str, shape: Shape, dtype: np.dtype[Any], value: Any) -> Array:
    """One row's items: an array of the column's dtype with a leading dimension."""
    array = plain_array(path, value)
    if array.shape == (0,):
        return np.empty((0, *shape), dtype)
    if array.ndim != len(shape) + 1 or array.shape[1:] != shape:
        wanted = str((0, *shape)).replace("0", "any", 1)
        raise SchemaMismatch(f"column {path!r}: expected shape {wanted}, got {array.shape}")
    return np.require(cast(path, dtype, array), requirements=["C", "A"])


def _given(path: str, shape: Shape, dtype: np.dtype[Any], value: Mapping[str, Any]) -> Ragged:
    if set(value) != KEYS:
        raise SchemaMismatch(
            f"column {path!r}: expected a dict with values and offsets, "
            f"got {', '.join(map(str, value))}"
        )
    items = _items(path, shape, dtype, value["values"])
    offsets = np.asarray(value["offsets"])
    if offsets.ndim != 1 or offsets.dtype.kind not in "iu" or offsets.size == 0:
        raise SchemaMismatch(
            f"column {path!r}: offsets must be a vector of whole numbers, one more than rows"
        )
    offsets = np.ascontiguousarray(offsets, np.int64)
    if offsets[0] < 0 or offsets[-1] > len(items) or np.any(np.diff(offsets) < 0):
        raise SchemaMismatch(
            f"column {path!r}: offsets must grow from 0 to at most the {len(items)} values"
        )
    return items, offsets


def select(keep: npt.NDArray[np.bool_], batch: dict[str, Any], fields: Mapping[str, Any]) -> Any:
    """The rows of a batch that are to be kept."""
    out: dict[str, Any] = {}
    for name, value in batch.items():
        field = fields.get(name)
        if isinstance(field, Mapping):
            out[name] = select(keep, value, field)
        elif isinstance(value, dict):
            lengths = np.diff(value["offsets"])
            offsets = np.zeros(int(keep.sum()) + 1, np.int64)
            np.cumsum(lengths[keep], out=offsets[1:])
            out[name] = {"values": value["values"][np.repeat(keep, lengths)], "offsets": offsets}
        else:
            out[name] = value[keep]
    return out
