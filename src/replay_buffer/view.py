"""Views: batches made of the steps of a buffer.

A view is light: it holds no rows and can be made at any time, also before the first step. `sample`
is a method of the C++ class; what it does not take as it is comes to `_slow_sample`.

Thread safety: every method may be called by any number of threads at once.
"""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import _core, arguments, async_calls, shortage
from .awaiting import alone
from .errors import InvalidArgument, NotEnoughRows, RowGone, SchemaMismatch
from .schema import DTYPES, Column, Schema
from .shortage import Patience
from .views import FrameStack, Hindsight, NStep, Part, Sequence, Trajectory

if TYPE_CHECKING:
    from .buffer import Batch, Ids, ReplayBuffer

OnePart = TypeVar("OnePart")


class Role(IntEnum):
    """What an array of a batch holds: Role in src/cpp/core/view.h."""

    START = 0
    NEXT = 1
    LAST = 2
    RETURN = 3
    COUNT = 4
    DISCOUNT = 5
    ROWS = 6
    GOAL = 7
    RELABELLED = 8
    STEP = 9
    STEP_NEXT = 10
    MASK = 11
    FIRST = 12
    NEXT_MASK = 13
    IDS = 14
    LENGTH = 15


#: name, role, column, stacked, what one item of the array is (without the time)
Output = tuple[str, Role, int, bool, Column]


class View(_core.View):
    """What `ReplayBuffer.view` returns."""

    def __init__(self, buffer: ReplayBuffer, parts: tuple[Part, ...]) -> None:
        super().__init__()
        self._buffer = buffer
        self._parts = parts
        self._expected: dict[str, Any] = {}  # the arrays of a batch
        self._work = 0.0  # for an item of a batch, when it is known: see async_calls
        for part in parts:
            if not isinstance(part, Part):
                raise InvalidArgument(f"{part!r} is not a part of a view")
        kinds = [type(part) for part in parts]
        twice = [kind for kind in kinds if kinds.count(kind) > 1]
        if twice:
            raise InvalidArgument(f"a view has at most one {twice[0].__name__}")
        self._stack = one(parts, FrameStack) or FrameStack(1)
        self._n_step = one(parts, NStep)
        self._sequence = one(parts, Sequence)
        self._trajectory = one(parts, Trajectory)
        self._hindsight = one(parts, Hindsight)
        runs = [part for part in (self._sequence, self._trajectory) if part is not None]
        others = [part for part in (self._n_step, self._hindsight) if part is not None]
        if len(runs) > 1 or (runs and others):
            names = " and ".join(type(part).__name__ for part in [*runs, *others])
            raise InvalidArgument(f"{names} do not go together: each makes a batch of its own kind")
        if buffer.config.storage != "steps" and (self._n_step is None or len(parts) > 1):
            raise InvalidArgument(
                "of transitions a view can make NStep; everything else needs storage='steps'"
            )
        if buffer.config.storage == "steps" and self._n_step and self._n_step.one_stream:
            raise InvalidArgument("one_stream is for transitions: steps know their streams")
        if buffer.schema is not None:
            self._prepare()

    def __repr__(self) -> str:
        parts = ", ".join(map(repr, self._parts))
        return f"<View of {parts or 'transitions'} on {self._buffer!r}>"

    @property
    def buffer(self) -> ReplayBuffer:
        return self._buffer

    def get(self, ids: Any) -> Batch:
        """What the view makes of these rows. Raises RowGone when one of them is no start now."""
        wanted = arguments.row_ids(ids)
        if not self._ready():
            raise NotEnoughRows("the buffer is empty and its columns are not settled yet")
        return self._get(wanted, self._time())

    def starts(self) -> Ids:
        """The ids of all rows that can be drawn now. Looks at every row."""
        return self._starts() if self._ready() else np.empty(0, np.int64)

    def update_priorities(self, indices: Any, td_errors: Any, mask: Any = None) -> int:
        """Set the priorities of starts from TD errors. Returns how many were still there.

        For a Sequence `td_errors` is [batch, time], with or without the burn-in, which does not
        count; nor does a step where `mask`, of the same shape or of the batch, is False. The
        priority is eta * max + (1 - eta) * mean of the magnitudes. Other rows keep theirs.
        """
        if self._sequence is None:
            if mask is not None:
                raise InvalidArgument("mask is for the TD errors of a Sequence")
            return self._buffer.update_priorities(indices, td_errors)
        wanted = arguments.row_ids(indices)
        raws = _sequence_priorities(self._sequence, wanted.size, td_errors, mask)
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
        return await async_calls.sample(self._buffer, self, batch_size, out, beta, timeout)

    async def starts_async(self) -> Ids:
        """`starts`, awaited."""
        return await alone(self.starts)

    async def update_priorities_async(self, indices: Any, td_errors: Any, mask: Any = None) -> int:
        """`update_priorities`, awaited."""
        return await async_calls.update_priorities(
            self._buffer, self.update_priorities, indices, td_errors, mask
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
        return self._draw(batch_size, out, beta, Patience(self._buffer, timeout))

    def _draw(self, batch_size: Any, out: Any, beta: Any, patience: Patience) -> Batch:
        n = self._check(batch_size, beta, patience)
        if out is not None:
            arguments.check_arrays(self._expected, out, n, self._time())
        return shortage.draw(
            self._buffer,
            n,
            lambda left: self._sample_prepared(n, out=out, beta=beta, timeout=left),
            patience,
        )

    def _check(self, batch_size: Any, beta: Any, patience: Patience) -> int:
        """See shortage.check; the view is then open."""
        n = shortage.check(self._buffer, batch_size, beta, patience)
        self._ready()
        return n

    def _ready(self) -> bool:
        """Whether the columns are known, so that the view is open."""
        self._buffer._check_open()
        if not self._is_open() and self._buffer.schema is not None:
            self._prepare()
        return self._is_open()

    def _get(self, wanted: Ids, time: int) -> Batch:
        batch, not_made, count = self._make(wanted, time)
        if count > 0:
            raise RowGone(
                f"{count} of {wanted.size} rows are gone or no start for this view, "
                f"the first is {wanted[not_made][0]}"
            )
        batch["indices"] = wanted.copy()
        made: Batch = batch
        return made

    def _item_bytes(self) -> float:
        return arguments.bytes_of(self._expected, self._time()) if self._ready() else 0

    def _time(self) -> int:
        return self._sequence.burn_in + self._sequence.length if self._sequence else 0

    def _longest(self) -> int:
        """Steps of the longest episodes that are drawn whole; 0: of any."""
        return (self._trajectory.length or 0) if self._trajectory else 0

    def _prepare(self) -> None:
        schema = self._buffer.schema
        assert schema is not None
        steps = self._buffer.config.storage == "steps"
        self._check_stacked(schema)
        outputs = list(self._outputs(schema, steps))
        _check_names(schema, outputs)
        self._expected = self._arrays(outputs)
        self._open(self._buffer, self._spec(schema), _described(outputs))

    def _spec(self, schema: Schema) -> dict[str, Any]:
        paths = [path for path, _ in schema.columns]
        n_step = self._n_step or NStep(1, 1.0)
        sequence = self._sequence
        strategies = ("none", "future", "final", "episode")
        terminated = "terminated" if "terminated" in paths else "done"
        return {
            "stack": self._stack.n,
            "sequence": sequence is not None or self._trajectory is not None,
            "steps": n_step.n,
            "gamma": n_step.gamma,
            "length": sequence.length if sequence else self._longest(),
            "burn_in": sequence.burn_in if sequence else 0,
            "period": sequence.period if sequence else 1,
            "pad": sequence.pad if sequence else True,
            "cross": sequence.cross_episodes if sequence else False,
            "whole": self._trajectory is not None,
            "goal": strategies.index(self._hindsight.strategy if self._hindsight else "none"),
            "goal_k": self._hindsight.k if self._hindsight else 0.0,
            "reward": _position(paths, "reward") if self._n_step else -1,
            "terminated": _position(paths, terminated),
            "truncated": _position(paths, "truncated"),
            "follows": self._follows(schema),
        }

    def _follows(self, schema: Schema) -> list[tuple[int, int]]:
        """Pairs of columns, obs and next_obs, that show which transition goes on in the next."""
        n_step = self._n_step
        steps = self._buffer.config.storage == "steps"
        return [] if steps or n_step is None else follows(schema, n_step)

    def _outputs(self, schema: Schema, steps: bool) -> Iterator[Output]:
        if self._n_step is not None:
            check_reward(schema)
        if self._sequence is not None or self._trajectory is not None:
            yield from self._run_outputs(schema)
        else:
            yield from self._transition_outputs(schema, steps)

    def _transition_outputs(self, schema: Schema, steps: bool) -> Iterator[Output]:
        for i, (path, column) in enumerate(schema.columns):
            field = path.split("/")[0]
            if field == "obs" and steps:
                stacked, frames = self._stacked(path, column)
                yield path, Role.START, i, stacked, frames
                yield "next_" + path, Role.NEXT, i, stacked, frames
            elif field in ("next_obs", "done", "terminated", "truncated"):
                yield path, Role.LAST, i, False, column
            elif field == "reward" and self._n_step is not None:
                yield path, Role.RETURN, i, False, column
            else:
                yield path, Role.START, i, False, column
        if self._n_step is not None or self._hindsight is not None:
            yield "k", Role.COUNT, -1, False, Column((), "int32")
            yield "discount", Role.DISCOUNT, -1, False, Column((), "float32")

    def _run_outputs(self, schema: Schema) -> Iterator[Output]:
        flag = Column((), "bool")
        for i, (path, column) in enumerate(schema.columns):
            obs = path.split("/")[0] == "obs"
            stacked, shown = self._stacked(path, column) if obs else (False, column)
            yield path, Role.STEP, i, stacked, shown
            if obs and self._sequence is not None and self._sequence.next_obs:
                yield "next_" + path, Role.STEP_NEXT, i, stacked, shown
            if obs and self._trajectory is not None:
                yield "final_" + path, Role.NEXT, i, stacked, shown
        yield "mask", Role.MASK, -1, False, flag
        yield "is_first", Role.FIRST, -1, False, flag
        if self._sequence is not None and self._sequence.next_obs:
            yield "next_mask", Role.NEXT_MASK, -1, False, flag
        if self._trajectory is not None:
            yield "lengths", Role.LENGTH, -1, False, Column((), "int32")

    def _check_stacked(self, schema: Schema) -> None:
        for path in self._stack.columns or ():
            find(schema, path)
            if path.split("/")[0] != "obs":
                raise InvalidArgument(f"frames are parts of obs: {path!r} is not")

    def _stacked(self, path: str, column: Column) -> tuple[bool, Column]:
        """Whether frames of a column are stacked, and what then stands in a batch."""
        chosen = self._stack.columns
        if self._stack.n == 1 or not (chosen is None or path in chosen):
            return False, column
        if column.variable:
            raise InvalidArgument(f"column {path!r}: frames of any length cannot be stacked")
        if len(column.shape) > 6:
            raise InvalidArgument(f"column {path!r} has too many dimensions to be stacked")
        return True, Column((self._stack.n, *column.shape), column.dtype)

    def _arrays(self, outputs: list[Output]) -> dict[str, Any]:
        """The arrays of a batch as a tree of columns."""
        tree: dict[str, Any] = {}
        for name, role, _, _, column in outputs:
            timed = Role.STEP <= role <= Role.IDS
            _put(tree, name, arguments.Timed(column) if timed else column)
        tree["indices"] = Column((), "int64")
        tree["weights"] = Column((), "float32")
        return tree

    def _beside(self, spec: dict[str, Any], outputs: list[Output]) -> _core.View:
        """Another view of the same buffer."""
        view = _core.View()
        view._open(self._buffer, spec, _described(outputs))
        return view


# What Python says of wrong arguments names the call the user made.
View._slow_sample.__qualname__ = "View.sample"


def _described(outputs: list[Output]) -> list[tuple[str, int, int, bool, int, list[int]]]:
    """Outputs as the core takes them."""
    return [
        (name, int(role), column, stacked, DTYPES.index(c.dtype.name) + 1, list(c.item_shape))
        for name, role, column, stacked, c in outputs
    ]


def _check_names(schema: Schema, outputs: list[Output]) -> None:
    """Raises InvalidArgument where a column has the name of an array that the view makes."""
    paths = [path for path, _ in schema.columns]
    made: list[tuple[str, str]] = []  # arrays, and the columns they are of, if they are of any
    for name, _, column, _, shown in outputs:
        of = paths[column] if column >= 0 else ""
        made.append((name, of))
        if shown.padded:
            made.append((name + "_mask", of))
    made += [("indices", ""), ("weights", "")]
    made.sort(key=lambda array: array[0] != array[1])  # columns under their own names first
    taken: dict[str, str] = {}
    groups: dict[str, str] = {}  # the dicts that arrays are in
    for name, of in made:
        parts = name.split("/")
        outer = ["/".join(parts[:i]) for i in range(1, len(parts))]
        for found in (taken.get(name), groups.get(name), *map(taken.get, outer)):
            if found is not None:
                raise InvalidArgument(
                    f"column {found or of!r}: this view makes an array {name!r}; "
                    "the column needs another name"
                )
        taken[name] = of
        for group in outer:
            groups.setdefault(group, of)


def one(parts: tuple[Any, ...], kind: type[OnePart]) -> OnePart | None:
    return next((part for part in parts if isinstance(part, kind)), None)


def _position(paths: list[str], name: str) -> int:
    return paths.index(name) if name in paths else -1


def find(schema: Schema, path: str) -> tuple[int, Column]:
    for i, (name, column) in enumerate(schema.columns):
        if name == path:
            return i, column
    raise SchemaMismatch(f"there is no column {path!r} among {schema}")


def check_reward(schema: Schema) -> None:
    """Raises InvalidArgument unless rewards can be added up; compressed ones the core refuses."""
    _, reward = find(schema, "reward")
    if reward.dtype.name not in ("float32", "float64") or reward.variable:
        raise InvalidArgument(
            f"NStep needs a reward of float32 or float64, of one length, not {reward}"
        )


def follows(schema: Schema, n_step: NStep) -> list[tuple[int, int]]:
    """What n steps of transitions compare: each column of obs, and that of next_obs."""
    if n_step.n == 1 or n_step.one_stream:
        return []
    columns = {path: (i, column) for i, (path, column) in enumerate(schema.columns)}
    pairs: list[tuple[int, int]] = []
    for path, (i, column) in columns.items():
        if path.split("/")[0] != "obs":
            continue
        j, other = columns.get("next_" + path, (-1, None))
        if other is None or not _stored_alike(column, other):
            pairs = []
            break
        pairs.append((i, j))
    if not pairs:
        raise InvalidArgument(
            f"{n_step}: which transition follows which is known by comparing next_obs with obs, "
            f"and {schema} has no such pair. Store steps, with storage='steps'; or, if all that "
            "a handle adds is of one environment, in order, say NStep(..., one_stream=True)"
        )
    return pairs


def _stored_alike(one: Column, other: Column) -> bool:
    """Whether equal values are stored as equal bytes."""
    alike = one.shape == other.shape and one.dtype == other.dtype
    return alike and one.compression == other.compression


def _put(tree: dict[str, Any], path: str, column: Any) -> None:
    *outer, name = path.split("/")
    for part in outer:
        tree = tree.setdefault(part, {})
    tree[name] = column


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
