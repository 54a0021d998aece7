"""Arguments of calls, checked: what is wrong is said with the name the caller knows."""

from __future__ import annotations

import itertools
import math
import operator
import os
from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from .casting import is_masked
from .errors import InvalidArgument, SchemaMismatch, short, shown
from .schema import Array, Column


@dataclass(frozen=True)
class Timed:
    """A column of which an item of a batch has a value for each of its steps."""

    column: Column


class Form(NamedTuple):
    """What an array of a batch is like; None in its shape is a length that batches differ in.

    A mask is as long as the array whose mask it is. What varies is of values of any length.
    """

    path: str
    dtype: np.dtype[Any]
    shape: tuple[int | None, ...]
    mask_of: str | None = None
    varies: bool = False


def arrays_of(
    fields: Mapping[str, Any], n: int, time: int | None = None, prefix: str = ""
) -> Iterator[Form]:
    """The arrays of a batch of n rows of `fields`: columns, or dicts of them.

    `time` is how many steps there are of what is Timed, None any number.
    """
    for name, field in fields.items():
        path = prefix + name
        if isinstance(field, Mapping):
            yield from arrays_of(field, n, time, path + "/")
            continue
        lead: tuple[int | None, ...] = (n,)
        column = field
        if isinstance(field, Timed):
            column, lead = field.column, (n, time)
        if not column.variable:
            yield Form(path, column.dtype, (*lead, *column.shape))
        elif column.padded:
            shape = (*lead, None, *column.item_shape)
            yield Form(path, column.dtype, shape, varies=True)
            masked = (*lead, None)
            yield Form(path + "_mask", np.dtype(bool), masked, mask_of=path, varies=True)
        else:
            shape = (None, *column.item_shape)
            yield Form(path + "/values", column.dtype, shape, varies=True)
            values = n if len(lead) == 1 else None if time is None else n * time
            ends = None if values is None else values + 1
            yield Form(path + "/offsets", np.dtype(np.int64), (ends,), varies=True)


def bytes_of(fields: Any, time: int | None) -> float:
    """The bytes of an item of a batch of `fields`; infinite where they vary."""
    size = 0.0
    for form in arrays_of(fields, 1, time):
        lengths = [math.inf if n is None else n for n in form.shape]
        size += form.dtype.itemsize * math.prod(lengths)
    return size


def check_arrays(fields: Mapping[str, Any], out: Any, n: int, time: int | None = None) -> None:
    """Raises what is wrong with a caller's arrays for n rows of `fields`: see arrays_of.

    Those of values of any length may have any room: what is too small is no mistake.
    """
    found: dict[str, Array] = {}
    for form in arrays_of(fields, n, time):
        shape = form.shape
        if form.mask_of is not None:
            shape = found[form.mask_of].shape[: len(shape)]
        found[form.path] = _checked(form.path, _at(out, form.path), form.dtype, shape)
    for one, other in itertools.combinations(found, 2):
        if np.may_share_memory(found[one], found[other]):
            raise SchemaMismatch(f"out: columns {one!r} and {other!r} share their memory")


def _at(out: Any, path: str) -> Any:
    """What a caller's dict has at a path."""
    seen = ""
    for name in path.split("/"):
        if not isinstance(out, dict):
            raise InvalidArgument(f"out{f'[{seen!r}]' if seen else ''} must be a dict of arrays")
        seen = f"{seen}/{name}" if seen else name
        if name not in out:
            raise SchemaMismatch(f"out has no array for column {seen!r}")
        out = out[name]
    return out


def _checked(path: str, array: Any, dtype: np.dtype[Any], shape: tuple[int | None, ...]) -> Array:
    if (
        type(array) is not np.ndarray
        or array.dtype != dtype
        or array.ndim != len(shape)
        or any(wanted not in (None, n) for wanted, n in zip(shape, array.shape, strict=True))
    ):
        got = f"{array.dtype} {array.shape}" if isinstance(array, np.ndarray) else type(array)
        wanted = str(shape).replace("None", "any")
        if isinstance(array, np.ndarray) and type(array) is not np.ndarray:
            raise SchemaMismatch(
                f"out: column {path!r} needs a plain NumPy array of {dtype} {wanted}, "
                f"got a {type(array).__name__}"
            )
        raise SchemaMismatch(
            f"out: column {path!r} needs a NumPy array of {dtype} {wanted}, got {got}"
        )
    if not (array.flags.carray and array.dtype.isnative):
        raise SchemaMismatch(
            f"out: column {path!r} must be C-contiguous, aligned, writable and in native order"
        )
    return array


def count(name: str, value: Any, least: int = 1) -> int:
    try:
        n = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be a whole number, not {shown(value)}") from None
    if isinstance(value, bool) or n < least:
        raise InvalidArgument(f"{name} must be at least {least}, not {shown(value)}")
    return n


def index(name: str, value: Any, end: int) -> int:
    """A whole number in [0, end)."""
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be a whole number, not {shown(value)}") from None
    if isinstance(value, bool) or not 0 <= number < end:
        raise InvalidArgument(f"{name} must be between 0 and {end - 1}, not {shown(value)}")
    return number


def exponent(name: str, value: Any) -> float:
    """A number that can be the exponent of weights."""
    try:
        number = math.ldexp(value, 0)  # refuses what only looks like a number
    except (TypeError, OverflowError):
        number = math.nan
    with np.errstate(over="ignore"):
        if not (number >= 0 and np.isfinite(np.float32(number))):
            raise InvalidArgument(f"{name} must be a finite number >= 0, not {shown(value)}")
    return number


def path(name: str, value: Any) -> str:
    try:
        text = os.fsdecode(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be a path, not {shown(value)}") from None
    if not text or "\0" in text:
        raise InvalidArgument(f"{name} must be the path of a directory, not {shown(value)}")
    return text


def generator_seed(value: Any) -> int:
    try:
        seed = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"seed must be a whole number, not {shown(value)}") from None
    if isinstance(value, bool) or not 0 <= seed < 2**64:
        raise InvalidArgument(f"seed must be between 0 and 2^64 - 1, not {shown(value)}")
    return seed


def unmasked(name: str, values: Any, wanted: str) -> Array:
    """`values` as an array; what it may hold, the caller checks."""
    try:
        array: Array = np.asarray(values)
    except (TypeError, ValueError):  # lists of different lengths
        raise InvalidArgument(f"{name} must be {wanted}, not {short(values)}") from None
    if is_masked(values):
        raise InvalidArgument(f"{name} must not be masked")
    return array


def row_ids(ids: Any) -> npt.NDArray[np.int64]:
    array = unmasked("row ids", ids, "a vector of whole numbers")
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
    array = unmasked(name, values, "a vector of numbers")
    if array.size == 0:
        array = array.astype(np.float32)
    if array.ndim != 1 or array.dtype.kind not in "iuf":
        raise InvalidArgument(
            f"{name} must be a vector of numbers, not {array.dtype} {array.shape}"
        )
    with np.errstate(over="ignore"):
        return np.ascontiguousarray(array, dtype=np.float32)


def floats(name: str, value: Any, shape: tuple[int, ...]) -> npt.NDArray[np.float64]:
    """`value` as a float64 array of that shape. Strings that look like numbers are not numbers."""
    try:
        array: Array = np.asarray(value)
    except (TypeError, ValueError):
        array = np.asarray(None)
    if array.dtype.kind not in "biuf" or is_masked(value):
        raise InvalidArgument(f"{name} must be made of numbers, not {short(value)}")
    if array.shape != shape:
        wanted = " x ".join(map(shown, shape)) + " numbers" if shape else "one number"
        raise InvalidArgument(f"{name} must be {wanted}, not of shape {array.shape}")
    return array.astype(np.float64)
