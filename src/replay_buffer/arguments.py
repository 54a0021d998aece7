"""Arguments of calls, checked: what is wrong is said with the name the caller knows."""

from __future__ import annotations

import operator
from collections.abc import Mapping
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import InvalidArgument, SchemaMismatch
from .schema import Array, Column


def check_arrays(fields: Mapping[str, Any], out: Any, n: int, prefix: str = "") -> None:
    """Raises what is wrong with a caller's arrays for n rows of `fields`."""
    if not isinstance(out, dict):
        raise InvalidArgument(
            f"out{f'[{prefix[:-1]!r}]' if prefix else ''} must be a dict of arrays"
        )
    for name, column in fields.items():
        path = prefix + name
        if name not in out:
            raise SchemaMismatch(f"out has no array for column {path!r}")
        if not isinstance(column, Column):
            check_arrays(column, out[name], n, path + "/")
            continue
        if column.variable:
            raise InvalidArgument(
                f"out: column {path!r} has values of any length, which no array fits: "
                "sample without out"
            )
        array, shape = out[name], (n, *column.shape)
        if type(array) is not np.ndarray or array.dtype != column.dtype or array.shape != shape:
            got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
            raise SchemaMismatch(
                f"out: column {path!r} needs a NumPy array of {column.dtype} {shape}, got {got}"
            )
        if not (array.flags.carray and array.dtype.isnative):
            raise SchemaMismatch(
                f"out: column {path!r} must be C-contiguous, aligned, writable and in native order"
            )


def count(name: str, value: Any) -> int:
    try:
        n = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool) or n < 1:
        raise InvalidArgument(f"{name} must be at least 1, not {value!r}")
    return n


def index(name: str, value: Any, end: int) -> int:
    """A whole number in [0, end)."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be a whole number, not {value!r}") from None
    if isinstance(value, bool) or not 0 <= number < end:
        raise InvalidArgument(f"{name} must be between 0 and {end - 1}, not {value!r}")
    return number


def generator_seed(value: Any) -> int:
    try:
        seed = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"seed must be a whole number, not {value!r}") from None
    if isinstance(value, bool) or not 0 <= seed < 2**64:
        raise InvalidArgument(f"seed must be between 0 and 2^64 - 1, not {value!r}")
    return seed


def row_ids(ids: Any) -> npt.NDArray[np.int64]:
    array: Array = np.asarray(ids)
    if np.ma.is_masked(ids):
        raise InvalidArgument("row ids must not be masked")
    if array.size == 0:
        array = array.astype(np.int64)
    if array.dtype.kind == "u" and (array > np.iinfo(np.int64).max).any():
        raise InvalidArgument(f"row ids must be below 2^63, not {array.max()}")
    if array.ndim != 1 or array.dtype.kind not in "iu":
        raise InvalidArgument(
            f"row ids must be a vector of whole numbers, not {array.dtype} {array.shape}"
        )
    return np.ascontiguousarray(array, dtype=np.int64)


def numbers(name: str, values: Any) -> npt.NDArray[np.float32]:
    array: Array = np.asarray(values)
    if np.ma.is_masked(values):
        raise InvalidArgument(f"{name} must not be masked")
    if array.size == 0:
        array = array.astype(np.float32)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise InvalidArgument(
            f"{name} must be a vector of numbers, not {array.dtype} {array.shape}"
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)
