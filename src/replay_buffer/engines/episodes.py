"""Batches of whole episodes, whose time is known when the rows are: drawn first, and made then."""

from __future__ import annotations

from typing import Any

import numpy as np

from .. import _core, arguments
from ..engine import Batch, Ids, Mask
from ..errors import NotEnoughRows

#: The arrays that are filled when episodes are drawn, before their steps are read.
_COUNTS = ("lengths", "indices", "weights")


class Episodes:
    """Has the calls of a recipe.

    whole    makes episodes, with room for a number of steps
    measure  draws the same rows and says only how long the episodes are
    length   the time of all batches; None: that of the longest episode in each
    arrays   those of a batch
    """

    def __init__(
        self,
        whole: _core.Recipe,
        measure: _core.Recipe,
        length: int | None,
        arrays: dict[str, Any],
    ) -> None:
        self._whole = whole
        self._measure = measure
        self._length = length
        self._arrays = arrays

    def draw(self, n: int, beta: float, out: Batch | None, timeout: float | None) -> Batch:
        room = 0 if out is None else int(out["mask"].shape[1])
        counts = None if out is None else {name: out[name] for name in _COUNTS}
        for _ in range(100):
            drawn = self._measure.draw(n, beta, counts, timeout)
            time = self._length or max(room, int(drawn["lengths"].max()))
            if out is not None and time > room:
                self._grow(out, n, time)
                room = time
            batch, _, count = self._whole.make(drawn["indices"], time, out)
            if count == 0:
                batch.update(drawn)
                return batch
        raise NotEnoughRows("episodes are overwritten faster than they can be read")

    def make(self, ids: Ids, time: int, out: None) -> tuple[Batch, Mask, int]:
        if self._length is None:
            batch, not_made, _ = self._measure.make(ids, 0, None)
            made = batch["lengths"][~not_made]
            time = int(made.max()) if made.size else 1
        return self._whole.make(ids, time, out)

    def starts(self) -> Ids:
        return self._whole.starts()

    def _grow(self, out: Batch, n: int, time: int) -> None:
        """Puts larger arrays in the place of those that have room for fewer steps."""
        larger = []
        for form in arguments.arrays_of(self._arrays, n, time):
            *outer, name = form.path.split("/")
            inner = out
            for part in outer:
                inner = inner[part]
            there = inner[name].shape
            shape = tuple(a if b is None else b for a, b in zip(there, form.shape, strict=True))
            if shape != there:
                larger.append((inner, name, np.empty(shape, form.dtype)))
        for inner, name, array in larger:
            inner[name] = array
