"""Views with goals that were reached in the place of those that were pursued."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np

from . import arguments, outputs
from .casting import is_masked_array
from .client import Client
from .drawing import Source
from .engine import Batch, Ids
from .errors import InvalidArgument
from .outputs import GOAL, HIDDEN, ROWS, Role
from .plan import Plan
from .schema import Column, Schema
from .shortage import Patience, check
from .view import View
from .views import GoalFunction, Hindsight


class HindsightView(View):
    """A view that puts goals in the place of others, after the batch was drawn."""

    def sample(
        self,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """Draw a batch with relabelled goals; see ReplayBuffer.sample."""
        source = self._source
        assert isinstance(source, GoalSource)
        if out is None:
            return source.relabel(super().sample(batch_size, beta=beta, timeout=timeout))
        return source.draw(batch_size, out, beta, Patience(source.client, timeout))

    def _slow_sample(
        self,
        /,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """What `sample` relabels."""
        source = self._source
        assert isinstance(source, GoalSource)
        batch = source.draw_hidden(batch_size, out, beta, Patience(source.client, timeout))
        self._reach()
        return batch


class GoalSource(Source):
    """Relabels what it draws and makes, with the functions of the user's."""

    def __init__(self, client: Client, plan: Plan, hindsight: Hindsight) -> None:
        super().__init__(client, plan)
        self._hindsight = hindsight
        self._n_step = plan.n_step
        self._last: list[tuple[str, Role]] = []  # arrays of the last step, and of the row after it

    def arrays(self, schema: Schema) -> dict[str, Any]:
        if not self._last:
            assert self.plan is not None
            made = outputs.outputs(self.plan, schema, self.client.config)
            self._last = [output[:2] for output in made if output.role in (Role.LAST, Role.NEXT)]
        return super().arrays(schema)

    def draw_hidden(self, batch_size: Any, out: Any, beta: Any, patience: Patience) -> Batch:
        """A batch with what is needed to relabel it."""
        return super().draw(batch_size, out, beta, patience)

    def draw(self, batch_size: Any, out: Any, beta: Any, patience: Patience) -> Batch:
        if out is None:
            return self.relabel(super().draw(batch_size, None, beta, patience))
        n = check(self.client, batch_size, beta, patience)
        assert self.client.schema is not None
        arrays = self.arrays(self.client.schema)
        arguments.check_arrays({k: v for k, v in arrays.items() if k not in HIDDEN}, out, n, 0)
        hidden = {k: v for k, v in arrays.items() if k in HIDDEN}
        out.update(self.relabel(super().draw(n, {**out, **_empty(hidden, n)}, beta, patience)))
        given: Batch = out
        return given

    def get(self, ids: Ids) -> Batch:
        """What is made of these rows; the goals are chosen anew."""
        return self.relabel(super().get(ids))

    def item_bytes(self) -> float:
        return math.inf  # its functions are the user's

    def relabel(self, batch: Batch) -> Batch:
        """Puts the chosen goals and what follows from them into a batch; or raises, and nothing."""
        hidden = {name: batch.pop(name) for name in HIDDEN if name in batch}
        where = np.flatnonzero(batch["relabelled"])
        if where.size == 0:
            return batch
        hindsight, gamma = self._hindsight, self._n_step.gamma if self._n_step else 1.0
        goals, k = hidden[GOAL][where], batch["k"][where]
        steps = np.arange(self._n_step.n if self._n_step else 1)
        there = steps < k[:, None]  # beyond its k steps a transition has none
        info = self._info(batch, hidden.get(ROWS), where, there)
        reached, wanted = _leaf(info, "next_" + hindsight.achieved), np.repeat(goals, k, axis=0)
        rewards = _spread(there, _rewards(hindsight, reached, wanted, info))
        if hindsight.terminated is not None:
            ends = _spread(there, _ends(hindsight.terminated, reached, wanted, info))
            ended = ends.any(axis=1)
            k = np.where(ended, ends.argmax(axis=1) + 1, k)
            self._shorten(batch, hidden.get(ROWS), where, k)
            batch["terminated"][where] = ended
            batch["k"][where] = k
            batch["discount"][where] = np.where(ended, 0.0, gamma**k)
        factors = gamma**steps
        counted = (steps < k[:, None]) & (factors != 0)  # nothing times inf is nothing
        batch["reward"][where] = (np.where(counted, rewards, 0.0) * factors).sum(axis=1)
        for part in ("obs", "next_obs"):
            _leaf(batch, hindsight.goal.replace("obs", part, 1))[where] = goals
        return batch

    def _info(self, batch: Batch, rows: Any, where: Any, there: Any) -> StepColumns:
        """The columns of the steps of some items that are `there`, one after the other."""

        def take(path: str) -> Any:
            if rows is None:
                return _leaf(batch, path)[where]
            if path.split("/")[0] == "next_obs":
                return _leaf(rows, path.removeprefix("next_"))[where, 1:][there]
            return _leaf(rows, path)[where, :-1][there]

        schema = self.client.schema
        assert schema is not None
        fields = {name: _fixed(field) for name, field in schema.fields.items()}
        return StepColumns({**fields, "next_obs": fields["obs"]}, take)

    def _shorten(self, batch: Batch, rows: Any, where: Any, k: Any) -> None:
        """Has items end after k steps: what a batch has of the last step, and of the row after."""
        cut = k < batch["k"][where]
        if not cut.any():
            return
        items, k = where[cut], k[cut]
        for path, role in self._last:
            last, stored = (k, path.removeprefix("next_")) if role is Role.NEXT else (k - 1, path)
            _leaf(batch, path)[items] = _leaf(rows, stored)[items, last]


class StepColumns(Mapping[str, Any]):
    """Columns of steps, nested as they are; each is copied out when it is asked for."""

    def __init__(
        self, fields: Mapping[str, Any], take: Callable[[str], Any], prefix: str = ""
    ) -> None:
        self._fields = fields
        self._take = take
        self._prefix = prefix
        self._taken: dict[str, Any] = {}

    def __getitem__(self, name: str) -> Any:
        if name not in self._taken:
            field, path = self._fields[name], self._prefix + name
            nested = isinstance(field, Mapping)
            self._taken[name] = (
                StepColumns(field, self._take, path + "/") if nested else self._take(path)
            )
        return self._taken[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._fields)

    def __len__(self) -> int:
        return len(self._fields)


def _fixed(field: Any) -> Any:
    """A field without columns of any length."""
    if not isinstance(field, Mapping):
        return field
    inner = {name: _fixed(column) for name, column in field.items()}
    return {n: c for n, c in inner.items() if not (isinstance(c, Column) and c.variable)}


def _spread(there: Any, values: Any) -> Any:
    """Values of the steps of items, as they are one after the other, at [item, step]."""
    spread = np.zeros(there.shape, values.dtype)
    spread[there] = values
    return spread


def _rewards(hindsight: Hindsight, reached: Any, goals: Any, info: StepColumns) -> Any:
    assert hindsight.reward is not None
    given = np.asanyarray(hindsight.reward(reached, goals, info))
    if given.dtype.kind not in "biuf" or is_masked_array(given):
        raise InvalidArgument(f"reward gave {given.dtype} values, expected numbers")
    _check_count("reward", given, len(reached))
    return given.astype(np.float64, copy=False)


def _ends(terminated: GoalFunction, reached: Any, goals: Any, info: StepColumns) -> Any:
    given = np.asanyarray(terminated(reached, goals, info))
    if given.dtype != bool or is_masked_array(given):
        raise InvalidArgument(f"terminated gave {given.dtype} values, expected bools")
    _check_count("terminated", given, len(reached))
    return given


def _check_count(name: str, given: Any, n: int) -> None:
    if given.shape != (n,):
        raise InvalidArgument(f"{name} gave {given.shape} for {n} goals, expected one for each")


def _empty(fields: Mapping[str, Any], n: int) -> Batch:
    """Arrays for a batch of n rows."""
    return {
        name: _empty(field, n)
        if isinstance(field, Mapping)
        else np.empty((n, *field.shape), field.dtype)
        for name, field in fields.items()
    }


def _leaf(batch: Mapping[str, Any], path: str) -> Any:
    value: Any = batch
    for part in path.split("/"):
        value = value[part]
    return value
