"""Rows of a table in which every pair of values stands together somewhere."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Sequence
from itertools import combinations, product
from typing import Any

Row = tuple[Any, ...]
#: Values by axis, as far as they are chosen.
Partial = dict[int, Any]


def covering(
    axes: Sequence[Sequence[Any]], fit: Callable[[Any, Any], bool], strength: int = 2
) -> list[Row]:
    """Rows, one value of each axis, that hold every `strength` values that fit together.

    Greedy and always the same: each row begins with values that do not stand together yet, and the
    value that brings most others goes on; of equal ones the one that was used least.
    """
    left = {
        tuple(zip(chosen, values, strict=True)): None
        for chosen in combinations(range(len(axes)), strength)
        for values in product(*(axes[axis] for axis in chosen))
        if all(fit(a, b) for a, b in combinations(values, 2))
    }
    rows: list[Row] = []
    used: Counter[tuple[int, Any]] = Counter()
    while left:
        begin = next(iter(left))
        whole = _completed(axes, fit, left, used, dict(begin), strength)
        if whole is None:
            if strength == 2:
                raise ValueError(f"no row can hold {begin}: say why they do not fit together")
            del left[begin]
            continue
        for some in combinations(range(len(axes)), strength):
            left.pop(tuple((axis, whole[axis]) for axis in some), None)
        used.update(whole.items())
        rows.append(tuple(whole[axis] for axis in range(len(axes))))
    return rows


def _completed(
    axes: Sequence[Sequence[Any]],
    fit: Callable[[Any, Any], bool],
    left: dict[Any, None],
    used: Counter[tuple[int, Any]],
    row: Partial,
    strength: int,
) -> Partial | None:
    """A whole row that begins like this one, or None when there is none."""
    open_axes = [axis for axis in range(len(axes)) if axis not in row]
    if not open_axes:
        return row
    axis = max(open_axes, key=lambda one: len(axes[one]))
    values = [v for v in axes[axis] if all(fit(v, other) for other in row.values())]

    def gain(value: Any) -> tuple[int, int]:
        brought = 0
        for others in combinations(row, strength - 1):
            together = {**{other: row[other] for other in others}, axis: value}
            brought += tuple((at, together[at]) for at in sorted(together)) in left
        return brought, -used[axis, value]

    for value in sorted(values, key=gain, reverse=True):
        whole = _completed(axes, fit, left, used, {**row, axis: value}, strength)
        if whole is not None:
            return whole
    return None
