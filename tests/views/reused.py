"""Batches in the arrays of earlier ones, compared with fresh batches."""

from __future__ import annotations

from typing import Any

import numpy as np

from views.world import flat, nested


def check_same(out: dict[str, Any], fresh: dict[str, Any]) -> None:
    """Fails unless `out` holds what a fresh batch does, in arrays that may have more room."""
    got, wanted = flat(out), flat(fresh)
    assert set(got) == set(wanted)
    for path, array in wanted.items():
        held = got[path]
        assert held.dtype == array.dtype, path
        assert held.ndim == array.ndim, path
        if path.endswith("/values"):
            np.testing.assert_array_equal(held[: len(array)], array, err_msg=path)
        elif path.endswith("/offsets"):  # of steps that are missing, when there is time for more
            steps = _steps(array, fresh), _steps(held, out)
            np.testing.assert_array_equal(_lengths(held, *steps), np.diff(array), err_msg=path)
        else:
            there = tuple(slice(n) for n in array.shape)
            np.testing.assert_array_equal(held[there], array, err_msg=path)
            assert np.count_nonzero(held) == np.count_nonzero(array), path  # zeros around it


def _steps(offsets: Any, batch: dict[str, Any]) -> int:
    """The values of an item."""
    return (len(offsets) - 1) // len(batch["indices"])


def _lengths(offsets: Any, wanted: int, steps: int) -> Any:
    """How long values are, of as many steps of each item as are wanted; the others are empty."""
    lengths = np.diff(offsets).reshape(-1, steps)
    assert not lengths[:, wanted:].any()
    return lengths[:, :wanted].reshape(-1)


def addresses(batch: dict[str, Any]) -> dict[str, int]:
    return {path: array.ctypes.data for path, array in flat(batch).items()}


def junk(batch: dict[str, Any], room: int | None = None) -> dict[str, Any]:
    """Arrays like those of a batch, full of something; values with `room` for so many items."""
    arrays = {path: np.full_like(array, 3) for path, array in flat(batch).items()}
    for path, array in arrays.items():
        if path.endswith("/values") and room is not None:
            arrays[path] = np.full((room, *array.shape[1:]), 3, array.dtype)
    return nested(arrays)
