"""Values as arrays of numbers, and of a dtype: nothing that would change their meaning."""

from __future__ import annotations

import sys
from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SchemaMismatch, shown

Array = npt.NDArray[Any]


def is_masked_array(value: Any) -> bool:
    """Whether a value is an array with a mask.

    Without importing numpy.ma, which NumPy does not load by itself: in the child of a fork an
    import may wait for ever. Where nobody has loaded it there are no such arrays.
    """
    return isinstance(value, getattr(sys.modules.get("numpy.ma"), "MaskedArray", ()))


def is_masked(value: Any) -> bool:
    return is_masked_array(value) and bool(np.any(value.mask))


def plain_array(path: str, value: Any) -> Array:
    """`value` as an array of numbers."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise SchemaMismatch(f"column {path!r}: not an array of numbers ({error})") from None
    if isinstance(value, (list, tuple)) and array.dtype == np.float64:
        array = _unrounded(path, value, array)
    if is_masked(value):
        raise SchemaMismatch(f"column {path!r}: masked values cannot be stored")
    if array.dtype == object and isinstance(value, int):
        raise SchemaMismatch(f"column {path!r}: {shown(value)} does not fit into 64 bits")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise SchemaMismatch(
            f"column {path!r}: expected numbers, got {type(value).__name__} of dtype {array.dtype}"
        )
    return array


def _unrounded(path: str, value: Any, array: Array) -> Array:
    """What NumPy made floats of: whole numbers stay whole where they are among themselves; beside
    floats they must not have been rounded."""
    large = np.abs(array) >= 2**53
    if not large.any():
        return array
    given = np.asarray(value, object)
    whole = all(isinstance(number, (int, np.integer)) for number in given.flat)
    if whole and given.min() >= 0:
        return given.astype(np.uint64)
    for number, rounded in zip(given[large], array[large], strict=True):
        if isinstance(number, (int, np.integer)) and int(number) != int(rounded):
            raise SchemaMismatch(f"column {path!r}: {number} does not fit into float64")
    return array


def cast(path: str, to: np.dtype[Any], array: Array) -> Array:
    """Casts only where no value changes its meaning: whole numbers stay exactly what they are, and
    rounding of floats to floats is all that is allowed."""
    if array.dtype == to:
        return array
    if to.kind in "iu" and array.dtype.kind == "f":
        raise SchemaMismatch(f"column {path!r}: expected {to}, got {array.dtype}")
    with np.errstate(all="ignore"):
        out = array.astype(to)
        wrong = _changed(array, out)
    if np.any(wrong):
        raise SchemaMismatch(f"column {path!r}: {array[wrong].flat[0]} does not fit into {to}")
    return out


def _changed(array: Array, out: Array) -> Any:
    """Which numbers a cast has made others of."""
    given, to = array.dtype.kind, out.dtype.kind
    if given == "b":
        return False
    if given == "f" and to == "f":
        return np.isinf(out) & np.isfinite(array)
    changed = out.astype(array.dtype) != array
    if to == "f":  # back from beyond the whole numbers it may have become any of them
        end = 2.0 ** (np.iinfo(array.dtype).bits - (given == "i"))
        return changed | np.isinf(out) | (out.astype(np.float64) >= end)
    return changed if to == "b" else changed | ((out < 0) != (array < 0))
