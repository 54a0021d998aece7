"""What a row is made of: named, typed columns; and bringing values into their shape.

A schema maps names to columns, or to dicts of columns (nested observations). Inside, a nested
column is known by its path: "obs/pixels".
"""

from __future__ import annotations

import operator
from collections.abc import Iterable, Iterator, Mapping
from dataclasses import dataclass, field
from typing import Any

import numpy as np

from . import ragged
from .casting import Array as Array
from .casting import cast
from .casting import plain_array as plain_array
from .errors import Corrupt, InvalidArgument, SchemaMismatch, shown

#: dtype names in the order of DType in include/replay_buffer/schema.h, which counts from 1.
DTYPES = (
    "bool",
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)
#: Names of codecs in the order of Codec in the same file, which counts from 1.
CODECS = ("lz4", "zstd")
#: Items that a value of any length is expected to have unless a column says otherwise.
LONGEST_NAME = 95  # bytes of a column's name, with those of the dicts around it

EXPECTED = 64
#: Keys of a batch, and keywords of add, that a column cannot be called.
RESERVED = ("indices", "weights", "priority", "timeout")

EMPTY_DICT = "a dict needs at least one column, this one is empty"


@dataclass(frozen=True)
class Column:
    """One field of a row.

    limit        integer scalars must lie in [0, limit)
    compression  "lz4" (fast) or "zstd" (smaller): how values are stored
    ratio        how many times smaller compression is expected to make them; what memory is
                 planned by, where it is taken at once: in shared memory and files

    A shape whose first dimension is None has values of any length: (None,) for sequences of
    tokens, (None, 3) for sets of points. Of these,

    expected     is their mean length, by which memory is planned
    padded       has batches hold them in one array as long as the longest, with a mask beside it
                 called "<name>_mask", instead of {"values": ..., "offsets": ...}; the arrays of
                 `out` may be larger than that
    """

    shape: tuple[int | None, ...] = ()
    dtype: Any = "float32"
    limit: int | None = None
    compression: str | None = None
    ratio: float = 1.0
    expected: int | None = None
    padded: bool = False

    def __post_init__(self) -> None:
        object.__setattr__(self, "shape", _column_shape(self.shape))
        object.__setattr__(self, "dtype", as_dtype("dtype", self.dtype))
        self._check_storage()
        if self.limit is not None:
            if self.shape != () or self.dtype.kind not in "iu":
                raise InvalidArgument("limit is for integer scalars")
            if isinstance(self.limit, bool) or not isinstance(self.limit, (int, np.integer)):
                raise InvalidArgument(f"limit must be a whole number, not {shown(self.limit)}")
            if not 1 <= self.limit < 2**63:
                raise InvalidArgument(
                    f"limit must be between 1 and 2^63 - 1, not {shown(self.limit)}"
                )

    @property
    def variable(self) -> bool:
        """Whether values have any length."""
        return self.shape[:1] == (None,)

    @property
    def item_shape(self) -> tuple[int, ...]:
        """The dimensions that all values have."""
        return tuple(d for d in self.shape if d is not None)

    def _check_storage(self) -> None:
        if self.compression is not None and not (
            isinstance(self.compression, str) and self.compression in CODECS
        ):
            raise InvalidArgument(
                f"compression must be None, 'lz4' or 'zstd', not {shown(self.compression)}"
            )
        number = isinstance(self.ratio, (int, float)) and not isinstance(self.ratio, bool)
        if not number or not 1 <= self.ratio <= 1000:
            raise InvalidArgument(f"ratio must be a number from 1 to 1000, not {shown(self.ratio)}")
        if self.compression is None and self.ratio != 1:
            raise InvalidArgument("ratio is for columns with compression")
        object.__setattr__(self, "ratio", float(self.ratio))
        object.__setattr__(self, "padded", bool(self.padded))
        if not self.variable:
            if self.expected is not None or self.padded:
                raise InvalidArgument("expected and padded are for shapes that begin with None")
            return
        if self.expected is None:
            object.__setattr__(self, "expected", EXPECTED)
        try:
            expected = _dimension(self.expected)
        except TypeError:
            raise InvalidArgument(
                f"expected must be a whole number, not {shown(self.expected)}"
            ) from None
        if not 1 <= expected < 2**32:
            raise InvalidArgument(f"expected must be between 1 and 2^32 - 1, not {expected}")
        object.__setattr__(self, "expected", expected)

    def __str__(self) -> str:
        dims = ",".join("any" if d is None else str(d) for d in self.shape)
        below = f" < {self.limit}" if self.limit is not None else ""
        packed = f" {self.compression}" if self.compression is not None else ""
        return f"{self.dtype}{f'[{dims}]' if dims else ''}{below}{packed}"


#: A column as the core takes it: name, dtype, shape (0: any length), limit, codec, ratio, expected,
#: padded.
CoreColumn = tuple[str, int, list[int], int, int, float, int, bool]

Tree = Mapping[str, "Column | Tree"]


@dataclass(frozen=True)
class Schema:
    """An ordered mapping of names to columns or nested mappings of them."""

    fields: Mapping[str, Any]
    columns: tuple[tuple[str, Column], ...] = field(init=False, repr=False, compare=False)

    def __post_init__(self) -> None:
        if not isinstance(self.fields, Mapping):
            raise InvalidArgument(f"a schema is made from a dict, not {self.fields!r}")
        columns = tuple(_flatten(self.fields, ""))
        object.__setattr__(self, "fields", _copied(self.fields))
        if not columns:
            raise InvalidArgument("a schema needs at least one column")
        for name in RESERVED:
            if name in self.fields:
                raise InvalidArgument(f"column {name!r}: the name is reserved")
        object.__setattr__(self, "columns", columns)

    def core_columns(self) -> list[CoreColumn]:
        """The same as the core takes it."""
        return [
            (
                path,
                DTYPES.index(c.dtype.name) + 1,
                [d or 0 for d in c.shape],
                c.limit or 0,
                0 if c.compression is None else CODECS.index(c.compression) + 1,
                c.ratio,
                c.expected or 0,
                c.padded,
            )
            for path, c in self.columns
        ]

    @classmethod
    def from_core(cls, columns: Iterable[CoreColumn]) -> Schema:
        """The schema of a segment, from what core_columns() gave. Raises Corrupt for any other."""
        given = list(columns)
        fields: dict[str, Any] = {}
        try:
            for path, dtype, shape, limit, codec, ratio, expected, padded in given:
                *outer, name = path.split("/")
                inner = fields
                for part in outer:
                    inner = inner.setdefault(part, {})
                inner[name] = Column(
                    tuple(d or None for d in shape),
                    DTYPES[dtype - 1],
                    limit or None,
                    CODECS[codec - 1] if codec else None,
                    ratio,
                    expected or None,
                    padded,
                )
            schema = cls(fields)
        except (InvalidArgument, AttributeError, TypeError, IndexError) as error:
            raise Corrupt(f"the columns of the segment make no sense: {error}") from None
        if schema.core_columns() != given:
            raise Corrupt("the columns of the segment are not in the order of their groups")
        return schema

    def __str__(self) -> str:
        return ", ".join(f"{path} {column}" for path, column in self.columns)

    def arrays(
        self, values: Mapping[str, Any], rows: int | None, finals: Array | None = None
    ) -> tuple[int, list[Any]]:
        """One array per column, with a leading dimension, from values per field; where the length
        varies, values and offsets.

        `rows` is None for the values of one row, else unknown (-1): found in the values. Of rows
        that are last observations, as `finals` says, other values are ignored.
        Raises SchemaMismatch before anything is stored.
        """
        lead = 1 if rows is None else -1
        out: list[Any] = []
        for (path, column), value in zip(
            self.columns, leaves(self.fields, values, ""), strict=True
        ):
            ignored = None if path.split("/")[0] == "obs" else finals
            given, array = self._column(path, column, value, ignored, batched=rows is not None)
            if lead < 0:
                lead = given
            elif given != lead:
                raise SchemaMismatch(
                    f"column {path!r}: {given} rows were given, {lead} in the columns before it"
                )
            out.append(array)
        return lead, out

    @staticmethod
    def _column(
        path: str, column: Column, value: Any, ignored: Array | None, *, batched: bool
    ) -> tuple[int, Any]:
        """How many rows were given, and their values as the core takes them."""
        if column.variable:
            pair = ragged.as_ragged(path, column.shape[1:], column.dtype, value, batched=batched)
            return len(pair[1]) - 1, pair
        array = as_column(path, column, value, batched=batched, ignored=ignored)
        return array.shape[0], array


def as_shape(name: str, shape: Any) -> tuple[int, ...]:
    if isinstance(shape, (int, np.integer)) and not isinstance(shape, bool):
        shape = (shape,)
    try:
        dims = tuple(map(_dimension, shape))
    except TypeError:
        raise InvalidArgument(
            f"{name} must be a tuple of whole numbers, not {shown(shape)}"
        ) from None
    if any(not 1 <= d < 2**40 for d in dims) or len(dims) > 8:
        raise InvalidArgument(
            f"{name} has 0 to 8 dimensions, each from 1 to 2^40 - 1, not {shown(shape)}"
        )
    return dims


def _column_shape(shape: Any) -> tuple[int | None, ...]:
    """A shape whose first dimension may be None."""
    if isinstance(shape, (tuple, list)) and shape and shape[0] is None:
        if len(shape) > 1 and None in shape[1:]:
            raise InvalidArgument(
                f"shape: only the first dimension can be None, not {shown(shape)}"
            )
        return (None, *as_shape("shape", (1, *shape[1:]))[1:])
    return as_shape("shape", shape)


def _dimension(value: Any) -> int:
    if isinstance(value, bool):
        raise TypeError
    return operator.index(value)


def as_dtype(name: str, dtype: Any) -> np.dtype[Any]:
    try:
        found: np.dtype[Any] = np.dtype(dtype)
    except (TypeError, ValueError, SyntaxError):
        found = np.dtype(object)
    if dtype is None or found.kind == "O":
        raise InvalidArgument(f"{name}: {dtype!r} is not a dtype of numbers")
    if found.name not in DTYPES:
        raise InvalidArgument(f"{name} must be one of {', '.join(DTYPES)}, not {found.name}")
    native: np.dtype[Any] = found.newbyteorder("=")
    return native


def _copied(fields: Mapping[str, Any]) -> dict[str, Any]:
    return {name: _copied(v) if isinstance(v, Mapping) else v for name, v in fields.items()}


def _flatten(fields: Any, prefix: str) -> Iterator[tuple[str, Column]]:
    for name, value in fields.items():
        if not isinstance(name, str) or not name or not name.isprintable() or "/" in name:
            raise InvalidArgument(f"a column's name is printable and without '/', not {name!r}")
        path = prefix + name
        if isinstance(value, Column):
            if len(path.encode()) > LONGEST_NAME:
                raise InvalidArgument(f"column {path!r}: a name has at most {LONGEST_NAME} bytes")
            if value.padded and f"{name}_mask" in fields:
                raise InvalidArgument(f"column {path!r}: '{name}_mask' is the name of its mask")
            yield path, value
        elif isinstance(value, Mapping):
            if not value:
                raise InvalidArgument(f"column {path!r}: {EMPTY_DICT}")
            if len(path.encode()) > LONGEST_NAME:
                raise InvalidArgument(
                    f"column {path[:20]!r}...: a name has at most {LONGEST_NAME} bytes; "
                    "does the schema contain itself?"
                )
            yield from _flatten(value, path + "/")
        else:
            raise InvalidArgument(f"column {path!r}: expected a Column or a dict of them")


def leaves(fields: Any, values: Any, prefix: str) -> Iterator[Any]:
    """The values of the columns in `fields`. Raises SchemaMismatch when some are not there, or
    there are others."""
    if not isinstance(values, Mapping):
        raise SchemaMismatch(
            f"column {prefix[:-1]!r}: expected a dict with {', '.join(fields)}, "
            f"got {type(values).__name__}"
        )
    unknown = [name for name in values if name not in fields]
    missing = [name for name in fields if name not in values]
    if unknown:
        raise SchemaMismatch(
            f"unknown column {prefix + str(unknown[0])!r}; the columns are {', '.join(fields)}"
        )
    if missing:
        raise SchemaMismatch(f"column {prefix + missing[0]!r} is missing")
    for name, spec in fields.items():
        if isinstance(spec, Column):
            yield values[name]
        else:
            yield from leaves(spec, values[name], f"{prefix}{name}/")


def as_column(
    path: str, column: Column, value: Any, *, batched: bool, ignored: Array | None = None
) -> Array:
    """`value` with a leading dimension and the column's dtype, C-contiguous. Rows that are
    `ignored` may be anything, and are 0 then."""
    array = plain_array(path, value)
    if batched and array.shape == (0,):
        shape: tuple[Any, ...] = (0, *column.shape)
        return np.empty(shape, column.dtype)
    rows = array.shape[:1] if batched else ()
    if array.shape != rows + column.shape or (batched and array.ndim == 0):
        wanted = str((0, *column.shape)).replace("0", "n", 1) if batched else str(column.shape)
        raise SchemaMismatch(f"column {path!r}: expected shape {wanted}, got {array.shape}")
    if ignored is not None and ignored.shape == (rows or (1,)) and ignored.any():
        array = array.copy()
        array[ignored if batched else ...] = 0
    out = np.require(cast(path, column.dtype, array), requirements=["C", "A"])
    if column.limit is not None and out.size and (out.min() < 0 or out.max() >= column.limit):
        bad = out.min() if out.min() < 0 else out.max()
        raise SchemaMismatch(f"column {path!r}: expected 0 to {column.limit - 1}, got {bad}")
    return out if batched else out.reshape((1, *column.shape))
