"""Views of whole episodes."""

from __future__ import annotations

import math
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import _core, arguments, shortage
from .errors import NotEnoughRows
from .schema import Column
from .shortage import Patience
from .view import Role, View

if TYPE_CHECKING:
    from .buffer import Batch

#: The arrays that are filled when episodes are drawn, before their steps are read.
COUNTS = ("lengths", "indices", "weights")


class TrajectoryView(View):
    """A view whose time is that of the longest episode in the batch."""

    def sample(
        self,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Draw a batch of whole episodes; see ReplayBuffer.sample."""
        return self._draw(batch_size, out, beta, Patience(self._buffer, timeout))

    def _draw(self, batch_size: Any, out: Any, beta: Any, patience: Patience) -> Batch:
        n = self._check(batch_size, beta, patience)
        return shortage.draw(
            self._buffer, n, lambda left: self._try_to_draw(n, out, beta, left), patience
        )

    def _try_to_draw(self, n: int, out: Any, beta: Any, timeout: float | None) -> Batch:
        assert self._trajectory is not None
        room = 0 if out is None else self._check_out(out, n)
        counts = None if out is None else {name: out[name] for name in COUNTS}
        measure = self._measure()
        for _ in range(100):
            drawn = measure._sample_prepared(n, out=counts, beta=beta, timeout=timeout)
            time = self._trajectory.length or max(room, int(drawn["lengths"].max()))
            if out is not None and time > room:
                self._grow(out, n, time)
                room = time
            batch, _, count = self._make(drawn["indices"], time, out)
            if count == 0:
                batch.update(drawn)
                made: Batch = batch
                return made
        raise NotEnoughRows("episodes are overwritten faster than they can be read")

    def _check_out(self, out: Any, n: int) -> int:
        """Raises what is wrong with the caller's arrays; the steps that they have room for."""
        assert self._trajectory is not None
        time = self._trajectory.length
        mask = out.get("mask") if isinstance(out, dict) else None
        if time is None and isinstance(mask, np.ndarray) and mask.ndim == 2:
            time = mask.shape[1]  # one for all of them
        arguments.check_arrays(self._expected, out, n, time)
        return int(out["mask"].shape[1])

    def _grow(self, out: Batch, n: int, time: int) -> None:
        """Puts larger arrays in the place of those that have room for fewer steps."""
        larger = []
        for form in arguments.arrays_of(self._expected, n, time):
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

    def _item_bytes(self) -> float:
        return math.inf  # what the longest of a batch has

    def _measure(self) -> _core.View:
        """A view of the same starts that only says how long they are."""
        assert self._buffer.schema is not None
        length = ("lengths", Role.LENGTH, -1, False, Column((), "int32"))
        return self._beside(self._spec(self._buffer.schema), [length])

    def get(self, ids: Any) -> Batch:
        """Whole episodes by the ids of their first steps."""
        assert self._trajectory is not None
        wanted = arguments.row_ids(ids)
        if not self._ready():
            raise NotEnoughRows("the buffer is empty and its columns are not settled yet")
        time = self._trajectory.length
        if time is None:
            batch, not_made, _ = self._measure()._make(wanted, 0)
            made = batch["lengths"][~not_made]
            time = int(made.max()) if made.size else 1
        return self._get(wanted, time)


def only_item(batch: Batch, fields: Mapping[str, Any]) -> Batch:
    """A batch of one item without its leading dimension, and without what is the same in all."""
    return {
        name: _only(value, fields.get(name))
        for name, value in batch.items()
        if name not in ("mask", "is_first", "lengths")
    }


def _only(value: Any, field: Any) -> Any:
    if isinstance(field, Mapping):
        return {name: _only(inner, field.get(name)) for name, inner in value.items()}
    return value if isinstance(value, dict) else value[0]  # a dict: values of any length
