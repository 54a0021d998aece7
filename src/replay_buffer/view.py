"""Views: batches made of the steps of a buffer.

A view is light: it holds no rows and can be made at any time, also before the first step. `sample`
is a method of the C++ class; what it does not take as it is comes to `_slow_sample`.

Thread safety: every method may be called by any number of threads at once.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from . import _core, arguments, async_calls
from .awaiting import alone
from .drawing import Source
from .errors import InvalidArgument
from .shortage import Patience
from .views import Part, Sequence

if TYPE_CHECKING:
    from .buffer import ReplayBuffer
    from .engine import Batch, Ids


class View(_core.View):
    """What `ReplayBuffer.view` returns."""

    def __init__(self, buffer: ReplayBuffer, source: Source, parts: tuple[Part, ...]) -> None:
        super().__init__()
        self._buffer = buffer
        self._source = source
        self._parts = parts
        self._aimed = False
        self._reach()

    def __repr__(self) -> str:
        parts = ", ".join(map(repr, self._parts))
        return f"<View of {parts or 'transitions'} on {self._buffer!r}>"

    @property
    def buffer(self) -> ReplayBuffer:
        return self._buffer

    def get(self, ids: Any) -> Batch:
        """What the view makes of these rows. Raises RowGone when one of them is no start now."""
        return self._source.get(arguments.row_ids(ids))

    def starts(self) -> Ids:
        """The ids of all rows that can be drawn now. Looks at every row."""
        return self._source.starts()

    def update_priorities(self, indices: Any, td_errors: Any, mask: Any = None) -> int:
        """Set the priorities of starts from TD errors. Returns how many were still there.

        For a Sequence `td_errors` is [batch, time], with or without the burn-in, which does not
        count; nor does a step where `mask`, of the same shape or of the batch, is False. The
        priority is eta * max + (1 - eta) * mean of the magnitudes. Other rows keep theirs.
        """
        sequence = self._source.plan.sequence if self._source.plan is not None else None
        if sequence is None:
            if mask is not None:
                raise InvalidArgument("mask is for the TD errors of a Sequence")
            return self._buffer.update_priorities(indices, td_errors)
        wanted = arguments.row_ids(indices)
        raws = _sequence_priorities(sequence, wanted.size, td_errors, mask)
        return self._buffer.update_priorities(wanted, raws)

    async def sample_async(
        self,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """`sample`, awaited."""
        return await async_calls.sample(self._source, batch_size, out, beta, timeout)

    async def starts_async(self) -> Ids:
        """`starts`, awaited."""
        return await alone(self.starts)

    async def update_priorities_async(self, indices: Any, td_errors: Any, mask: Any = None) -> int:
        """`update_priorities`, awaited."""
        return await async_calls.update_priorities(
            self._source.client, self.update_priorities, indices, td_errors, mask
        )

    # --------------------------------------------------------------------------------- internals

    def _slow_sample(
        self,
        /,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        batch = self._source.draw(batch_size, out, beta, Patience(self._source.client, timeout))
        self._reach()
        return batch

    def _reach(self) -> None:
        """Aims fast calls as soon as the columns are known."""
        if self._aimed:
            return
        recipe = self._source.recipe()
        if recipe is not None:
            self._aim(self._buffer, recipe)
            self._aimed = True


# What Python says of wrong arguments names the call the user made.
View._slow_sample.__qualname__ = "View.sample"


def _sequence_priorities(
    sequence: Sequence, n: int, td_errors: Any, mask: Any
) -> npt.NDArray[np.float32]:
    given = arguments.unmasked("td_errors", td_errors, "numbers of one shape")
    if given.dtype.kind not in "biuf":
        raise InvalidArgument(f"td_errors must be numbers, not {given.dtype}")
    errors = np.abs(given.astype(np.float64))
    full = sequence.burn_in + sequence.length
    if errors.ndim != 2 or errors.shape[0] != n or errors.shape[1] not in (sequence.length, full):
        raise InvalidArgument(
            f"td_errors must be [{n}, {full}] or, without the burn-in, [{n}, {sequence.length}], "
            f"not {list(errors.shape)}"
        )
    there: npt.NDArray[Any] = np.ones(errors.shape, bool)
    if mask is not None:
        there = arguments.unmasked("mask", mask, "bools of the shape of td_errors")
    if there.dtype != bool:
        raise InvalidArgument(f"mask must be of bools, not {there.dtype}")
    if there.ndim != 2 or there.shape[0] != n or there.shape[1] not in (sequence.length, full):
        raise InvalidArgument(f"mask must be of the shape of td_errors, not {list(there.shape)}")
    errors, there = errors[:, -sequence.length :], there[:, -sequence.length :]
    none = np.flatnonzero(~there.any(axis=1))
    if none.size:
        raise InvalidArgument(f"by the mask no step of sequence {none[0]} counts")
    if not np.isfinite(errors[there]).all():
        raise InvalidArgument("td_errors must be finite; nothing was changed")
    errors = np.where(there, errors, 0.0)
    steps = np.maximum(1, there.sum(axis=1))
    mean = errors.sum(axis=1) / steps
    raws = sequence.eta * errors.max(axis=1) + (1 - sequence.eta) * mean
    with np.errstate(over="ignore"):  # what becomes infinite is refused by update_priorities
        return np.asarray(raws, np.float32)
