"""Rows read where they lie: arrays over the memory of a buffer, without a copy.

Writers go on meanwhile, and overwrite a row when its turn comes. So what was read counts only if
the rows, asked afterwards, are still intact.

Thread safety: every method may be called by any number of threads at once.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping
from typing import Any, overload

import numpy as np
import numpy.typing as npt

from . import _core
from .schema import Array, Column, Schema

Ids = npt.NDArray[np.int64]


class PeekedRows(Mapping[str, Any]):
    """Rows of a buffer, not copied: a mapping of names to columns, nested where the schema is.

    `rows["obs"][i]` is a read-only array over the memory of row `rows.indices[i]`. Read, then ask
    `intact()`: if it is false, some of what was read is of a later row, or half of it is.

    The arrays keep the memory mapped, even after the buffer was closed or removed.
    """

    __slots__ = ("_fields", "_ids", "_memory", "_path", "_schema")

    def __init__(
        self,
        memory: _core.InPlace,
        ids: Ids,
        schema: Schema,
        fields: Mapping[str, Any] | None = None,
        path: str = "",
    ) -> None:
        self._memory = memory
        self._ids = ids
        self._schema = schema
        self._fields = schema.fields if fields is None else fields
        self._path = path

    @property
    def indices(self) -> Ids:
        """The ids of the rows."""
        return self._ids

    def intact(self) -> bool:
        """Whether all rows are still there. Then what was read of them before is whole."""
        return self._memory.intact(self._ids)

    def gone(self) -> npt.NDArray[np.bool_]:
        """Which rows are no longer there: they were overwritten or cleared."""
        return self._memory.gone(self._ids)

    def __getitem__(self, name: str) -> Any:
        field, path = self._fields[name], self._path + name
        if not isinstance(field, Column):
            return PeekedRows(self._memory, self._ids, self._schema, field, path + "/")
        place = [known for known, _ in self._schema.columns].index(path)
        return PeekedColumn(self._memory, self._ids, self._schema, place)

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)

    def __repr__(self) -> str:
        return f"<PeekedRows: {', '.join(self)} of {len(self._ids)} rows>"


class PeekedColumn:
    """One column of peeked rows: a read-only array for each row, made when it is asked for.

    A value of any length gives an array of that length. A compressed column has no arrays:
    InvalidArgument.
    """

    __slots__ = ("_ids", "_memory", "_place", "_schema")

    def __init__(self, memory: _core.InPlace, ids: Ids, schema: Schema, place: int) -> None:
        self._memory = memory
        self._ids = ids
        self._schema = schema
        self._place = place

    @property
    def runs(self) -> list[Array]:
        """The same rows in fewer arrays, [rows, ...]: one for each run of neighbours in memory.

        Of the newest rows there are one or two runs, or some more where several writers took turns.
        Raises InvalidArgument for values of any length.
        """
        breaks = np.flatnonzero(np.diff(self._ids % self._memory.capacity) != 1) + 1
        ends = [0, *breaks.tolist(), len(self._ids)]
        return [
            self._memory.run(self._place, self._ids.item(start), end - start)
            for start, end in itertools.pairwise(ends)
            if start < end
        ]

    @overload
    def __getitem__(self, i: int) -> Array: ...
    @overload
    def __getitem__(self, i: slice) -> list[Array]: ...
    def __getitem__(self, i: int | slice) -> Array | list[Array]:
        if isinstance(i, slice):
            return list(self._rows(self._ids[i]))
        return self._memory.row(self._place, self._ids.item(i))

    def __iter__(self) -> Iterator[Array]:
        return self._rows(self._ids)

    def __len__(self) -> int:
        return len(self._ids)

    def _rows(self, ids: Ids) -> Iterator[Array]:
        return map(self._memory.row, itertools.repeat(self._place), ids.tolist())

    def __repr__(self) -> str:
        path, column = self._schema.columns[self._place]
        return f"<PeekedColumn: {path} {column} of {len(self)} rows>"
