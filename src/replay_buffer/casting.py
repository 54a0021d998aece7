"""Values as arrays of numbers, and of a dtype: nothing that would change their meaning."""

from __future__ import annotations

from typing import Any

import numpy as np
import numpy.typing as npt

from .errors import SchemaMismatch

Array = npt.NDArray[Any]


def plain_array(path: str, value: Any) -> Array:
    """`value` as an array of numbers."""
    try:
        array = np.asarray(value)
    except (TypeError, ValueError) as error:
        raise SchemaMismatch(f"column {path!r}: not an array of numbers ({error})") from None
    if np.ma.is_masked(value):
        raise SchemaMismatch(f"column {path!r}: masked values cannot be stored")
    if array.dtype == object and isinstance(value, int):
        raise SchemaMismatch(f"column {path!r}: {value} does not fit into 64 bits")
    if array.dtype.kind not in "biuf" or array.dtype.itemsize > 8:
        raise SchemaMismatch(
            f"column {path!r}: expected numbers, got {type(value).__name__} of dtype {array.dtype}"
        )
    return array


def cast(path: str, to: np.dtype[Any], array: Array) -> Array:
    """Casts only where no value changes its meaning: rounding of floats is all that is allowed."""
    if array.dtype == to:
        return array
    if to.kind != "f" and array.dtype.kind == "f" and to.kind != "b":
        raise SchemaMismatch(f"column {path!r}: expected {to}, got {array.dtype}")
    with np.errstate(all="ignore"):
        out = array.astype(to)
        back = out.astype(array.dtype)
    if to.kind == "f":
        wrong = np.isinf(out) & np.isfinite(array)
    else:
        wrong = (back != array) | ((out < 0) != (array < 0)) if to.kind != "b" else back != array
    if np.any(wrong):
        raise SchemaMismatch(f"column {path!r}: {array[wrong].flat[0]} does not fit into {to}")
    return out
