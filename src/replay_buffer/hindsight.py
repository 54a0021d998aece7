"""Views with goals that were reached in the place of those that were pursued."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import TYPE_CHECKING, Any

import numpy as np

from . import arguments
from .errors import InvalidArgument, SchemaMismatch
from .schema import Column, Schema
from .view import Output, Role, View, find

if TYPE_CHECKING:
    from .buffer import Batch

#: Arrays of a batch that are needed to relabel it, and taken out again.
GOAL, PATH = "~goal", "~path"


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
        if out is None:
            return self._relabel(super().sample(batch_size, beta=beta, timeout=timeout))
        n, seconds = self._await_columns(batch_size, beta, timeout)
        shown = {k: v for k, v in self._expected.items() if k not in (GOAL, PATH)}
        arguments.check_arrays(shown, out, n)
        whole = dict(out)
        for name in (GOAL, PATH):
            column = self._expected[name]
            whole[name] = np.empty((n, *column.shape), column.dtype)
        out.update(self._relabel(super().sample(n, out=whole, beta=beta, timeout=seconds)))
        return out

    def get(self, ids: Any) -> Batch:
        """What the view makes of these rows; the goals are chosen anew."""
        return self._relabel(super().get(ids))

    def _outputs(self, schema: Schema, steps: bool) -> Iterator[Output]:
        assert self._hindsight is not None
        yield from super()._outputs(schema, steps)
        achieved, column = find(schema, self._hindsight.achieved)
        _, goal = find(schema, self._hindsight.goal)
        if (column.shape, column.dtype) != (goal.shape, goal.dtype):
            raise SchemaMismatch(
                f"column {self._hindsight.achieved!r} is {column}, "
                f"but {self._hindsight.goal!r} is {goal}"
            )
        if column.variable:
            raise InvalidArgument(f"column {self._hindsight.achieved!r}: goals have one length")
        for path in (self._hindsight.achieved, self._hindsight.goal):
            if path.split("/")[0] != "obs":
                raise InvalidArgument(f"goals are parts of obs: {path!r} is not")
            if self._stacked(path, column)[0]:
                raise InvalidArgument(
                    f"goals are not stacked, {path!r} is; FrameStack(n, columns=...) "
                    "says which columns are"
                )
        _, reward = find(schema, "reward")
        if reward.shape != () or reward.dtype.name not in ("float32", "float64"):
            raise InvalidArgument(
                f"Hindsight needs a reward that is one float32 or float64, not {reward}"
            )
        yield GOAL, Role.GOAL, achieved, False, column
        yield "relabelled", Role.RELABELLED, -1, False, Column((), "bool")
        n = self._n_step.n if self._n_step else 1
        yield PATH, Role.PATH, achieved, False, Column((n, *column.shape), column.dtype)

    def _relabel(self, batch: Batch) -> Batch:
        """Puts the chosen goals, and the rewards for them, into a batch; or raises, and neither."""
        assert self._hindsight is not None
        goals, path = batch.pop(GOAL), batch.pop(PATH)
        where = batch["relabelled"]
        if not where.any():
            return batch
        chosen = goals[where]
        k = batch["k"][where] if self._n_step else np.ones(len(chosen), np.int32)
        rewards = self._rewards(path[where], chosen, k)
        for part in ("obs", "next_obs"):
            _leaf(batch, self._hindsight.goal.replace("obs", part, 1))[where] = chosen
        batch["reward"][where] = rewards.astype(batch["reward"].dtype)
        return batch

    def _rewards(self, path: Any, goals: Any, k: Any) -> Any:
        """What the steps of each transition earn for its goal: of n steps the discounted sum."""
        assert self._hindsight is not None
        assert self._hindsight.reward is not None
        steps = np.arange(path.shape[1])
        there = steps < k[:, None]  # beyond its k steps a transition has none
        reached = path[there]
        given = self._hindsight.reward(reached, np.repeat(goals, k, axis=0), {})
        given = np.asanyarray(given)
        if given.dtype.kind not in "biuf" or isinstance(given, np.ma.MaskedArray):
            raise InvalidArgument(f"reward gave {given.dtype} values, expected numbers")
        given = given.astype(np.float64, copy=False)
        if given.shape != (len(reached),):
            raise InvalidArgument(
                f"reward gave {given.shape} for {len(reached)} goals, expected one number for each"
            )
        rewards = np.zeros(there.shape)
        rewards[there] = given
        if self._n_step is not None:
            factors = self._n_step.gamma**steps
            rewards = np.where(factors != 0, rewards, 0.0) * factors
        return rewards.sum(axis=1)


def _leaf(batch: Mapping[str, Any], path: str) -> Any:
    value: Any = batch
    for part in path.split("/"):
        value = value[part]
    return value
