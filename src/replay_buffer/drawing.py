"""Batches of one kind: of the rows as they are stored, or of what a plan makes of them."""

from __future__ import annotations

import functools
import math
from typing import Any

import numpy as np

from . import _core, arguments, outputs, shortage
from .client import Client
from .engine import Batch, Ids
from .errors import RowGone
from .plan import Plan
from .schema import Schema
from .shortage import Patience


class Source:
    """Draws and makes batches.

    client  goes to the engine
    plan    None: the rows as they are stored
    """

    def __init__(self, client: Client, plan: Plan | None) -> None:
        self.client = client
        self.plan = plan
        self.item_work = 0.0  # for an item of a batch, when it is known: see async_calls
        self._arrays: dict[str, Any] = {}

    def arrays(self, schema: Schema) -> dict[str, Any]:
        """A batch as a tree of columns. Raises what is wrong with the plan for these columns."""
        if not self._arrays:
            self._arrays = outputs.batch_of(self.plan, schema, self.client.config)
        return self._arrays

    def recipe(self) -> _core.Recipe | None:
        """What fast calls go to, when the columns are known. Raises what arrays() does."""
        schema = self.client.schema
        if schema is None or self.plan is None:
            return None
        self.arrays(schema)
        return self.client.engine.recipe(self.plan)

    def draw(self, batch_size: Any, out: Any, beta: Any, patience: Patience) -> Batch:
        """A batch of what was asked for, however long `patience` waits for it."""
        client = self.client
        n = shortage.check(client, batch_size, beta, patience)
        arrays = self._known_arrays()
        if out is not None:
            arguments.check_arrays(arrays, out, n, self._time_of(out))
        attempt = functools.partial(self._attempt, n, out, beta)
        return shortage.draw(client, n, attempt, patience)

    def get(self, ids: Ids) -> Batch:
        """What is made of these rows. Raises RowGone when one of them is gone, or no start."""
        self.client.check_open()
        batch, missing = self.client.engine.make(self.plan, ids)
        if missing is not None:
            what = "gone" if self.plan is None else "gone or no start for this view"
            raise RowGone(
                f"{missing.sum()} of {ids.size} rows are {what}, the first is {ids[missing][0]}"
            )
        return batch

    def starts(self) -> Ids:
        """The ids of all rows that can be drawn now."""
        self.client.check_open()
        assert self.plan is not None
        return self.client.engine.find(self.plan)

    def item_bytes(self) -> float:
        """The bytes of an item of a batch; infinite where they vary."""
        if self.plan is None:
            assert self.client.schema is not None
            return arguments.bytes_of(self.client.schema.fields, None)
        if self.plan.trajectory is not None:
            return math.inf  # what the longest of a batch has
        return arguments.bytes_of(self._known_arrays(), self.plan.time)

    def _attempt(self, n: int, out: Any, beta: Any, timeout: float | None) -> Batch:
        exponent = self.client.exponent(beta)
        return self.client.engine.draw(self.plan, n, exponent, out, timeout)

    def _known_arrays(self) -> dict[str, Any]:
        schema = self.client.schema
        assert schema is not None
        return self.arrays(schema)

    def _time_of(self, out: Any) -> int | None:
        """The steps of an item of a batch that is drawn into `out`."""
        plan = self.plan
        if plan is None or plan.trajectory is None or plan.trajectory.length is not None:
            return 0 if plan is None else plan.time
        mask = out.get("mask") if isinstance(out, dict) else None
        if isinstance(mask, np.ndarray) and mask.ndim == 2:
            return int(mask.shape[1])  # one for all of them
        return None
