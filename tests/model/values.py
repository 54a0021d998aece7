"""Schemas to try, values for their columns, and the many ways a caller can write a value down."""

from __future__ import annotations

import zlib
from collections.abc import Mapping
from typing import Any

import numpy as np
from hypothesis import strategies as st

from replay_buffer import Column, Schema
from replay_buffer.schema import DTYPES

# (300,) does not fit into a packed record; records of (129,) bytes have their row words apart.
SHAPES = [(), (1,), (3,), (2, 2), (129,), (300,)]
NAMES = ["obs", "action", "goal", "größe", "x"]

columns = st.builds(Column, st.sampled_from(SHAPES), st.sampled_from(DTYPES))
schemas = st.dictionaries(
    st.sampled_from(NAMES),
    columns | st.dictionaries(st.sampled_from(NAMES), columns, min_size=1, max_size=2),
    min_size=1,
    max_size=4,
).map(Schema)


def row_of(fields: Mapping[str, Any], k: int) -> dict[str, Any]:
    """The k-th row: arrays that fit the columns, different in every row and column."""
    return {
        name: row_of(spec, k * 31 + 1) if isinstance(spec, Mapping) else value_of(name, spec, k)
        for name, spec in fields.items()
    }


def value_of(name: str, column: Column, k: int) -> Any:
    rng = np.random.default_rng([zlib.crc32(name.encode()), k])
    kind = column.dtype.kind
    if kind == "b":
        return rng.integers(0, 2, column.shape).astype(bool).reshape(column.shape)
    if kind in "iu":
        limits = np.iinfo(column.dtype)
        top = limits.max if column.limit is None else column.limit - 1
        low = limits.min if column.limit is None else 0
        value = rng.integers(low, top, column.shape, dtype=column.dtype, endpoint=True)
        return np.asarray(value, column.dtype)
    value = np.asarray(rng.standard_normal(column.shape), column.dtype)
    if k % 7 == 0:
        value.flat[0] = np.inf
    return value


def plain(value: Any) -> Any:
    """Arrays as lists and numbers: what the reference ring keeps."""
    if isinstance(value, Mapping):
        return {name: plain(inner) for name, inner in value.items()}
    return np.asarray(value).tolist()


class OtherArray(np.ndarray):
    """A subclass of ndarray, as some libraries hand out."""


def _wider(array: np.ndarray) -> np.ndarray:
    wide = {"f": "float64", "i": "int64", "u": "uint64"}
    return array.astype(wide.get(array.dtype.kind, array.dtype))


def _listed(array: np.ndarray) -> Any:
    return array if array.dtype == np.uint64 else array.tolist()  # NumPy reads such lists as floats


def _strided(array: np.ndarray) -> np.ndarray:
    return np.repeat(array, 2, axis=0)[::2] if array.ndim else array


def _swapped(array: np.ndarray) -> np.ndarray:
    return array.astype(array.dtype.newbyteorder())


def _unaligned(array: np.ndarray) -> np.ndarray:
    room = np.empty(array.nbytes + 1, np.uint8)
    moved = room[1:].view(array.dtype).reshape(array.shape)
    moved[...] = array
    return moved


def _read_only(array: np.ndarray) -> np.ndarray:
    array = array.copy()
    array.flags.writeable = False
    return array


FORMS = {
    "as stored": lambda array: array,
    "list": _listed,
    "wider dtype": _wider,
    "strided": _strided,
    "column-major": lambda array: np.array(array, order="F"),
    "byte-swapped": _swapped,
    "unaligned": _unaligned,
    "read-only": _read_only,
    "subclass": lambda array: array.view(OtherArray),
    "scalar": lambda array: array[()],
}
forms = st.sampled_from(sorted(FORMS))


def written(value: Any, form: str) -> Any:
    """`value` in another form with the same meaning; nested dicts keep their structure."""
    if isinstance(value, Mapping):
        return {name: written(inner, form) for name, inner in value.items()}
    return FORMS[form](np.asarray(value))


def rows_of(fields: Mapping[str, Any], ks: list[int]) -> dict[str, Any]:
    """Several rows, with a leading dimension."""
    return _stacked(fields, [row_of(fields, k) for k in ks])


def _stacked(fields: Mapping[str, Any], rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {
        name: _stacked(spec, [row[name] for row in rows])
        if isinstance(spec, Mapping)
        else np.array([row[name] for row in rows], spec.dtype).reshape(len(rows), *spec.shape)
        for name, spec in fields.items()
    }
