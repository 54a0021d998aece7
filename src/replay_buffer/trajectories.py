"""Views of whole episodes."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core, arguments, ragged
from .errors import NotEnoughRows
from .schema import Column
from .view import Role, View, filled

if TYPE_CHECKING:
    from .buffer import Batch


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
        assert self._trajectory is not None
        n, seconds = self._await_columns(batch_size, beta, timeout)
        lengths = self._measure()
        for _ in range(100):
            drawn = lengths._sample_prepared(n, beta=beta, timeout=seconds)
            time = self._trajectory.length or int(drawn["lengths"].max())
            batch, not_made = self._make(drawn["indices"], time)
            if not not_made.any():
                batch.update({k: v for k, v in drawn.items() if k != "lengths"})
                return filled(out, batch)
        raise NotEnoughRows("episodes are overwritten faster than they can be read")

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
            batch, not_made = self._measure()._make(wanted, 0)
            made = batch["lengths"][~not_made]
            time = int(made.max()) if made.size else 1
        return self._get(wanted, time)


def only_item(batch: Batch) -> Batch:
    """A batch of one item without its leading dimension, and without what is the same in all."""
    return {
        name: value
        if ragged.held(value)
        else only_item(value)
        if isinstance(value, dict)
        else value[0]
        for name, value in batch.items()
        if name not in ("mask", "is_first", "lengths")
    }
