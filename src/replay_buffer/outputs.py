"""The arrays that a plan makes of columns."""

from __future__ import annotations

from collections.abc import Iterator
from enum import IntEnum
from typing import Any, NamedTuple

from .arguments import Timed
from .config import BufferConfig
from .errors import InvalidArgument, SchemaMismatch
from .plan import Goals, Plan
from .schema import DTYPES, Column, Schema
from .views import NStep


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


class Output(NamedTuple):
    """An array of a batch: of a column, if of any, and what one item is (without the time)."""

    name: str
    role: Role
    column: int
    stacked: bool
    shown: Column


#: Arrays that are needed to put goals into a batch, and taken out again: the goals, and of several
#: steps the columns of all rows.
GOAL, ROWS = HIDDEN = "~goal", "~rows"

#: What the core takes: see `described`.
Described = tuple[str, int, int, bool, int, list[int]]


def outputs(plan: Plan, schema: Schema, config: BufferConfig) -> list[Output]:
    """The arrays of a batch. Raises InvalidArgument or SchemaMismatch where a plan cannot be
    carried out with these columns."""
    _check_stacked(plan, schema)
    if plan.n_step is not None:
        _check_reward(schema)
    steps = config.storage == "steps"
    made = list(_runs(plan, schema) if plan.runs else _transitions(plan, schema, steps))
    if plan.goals is not None:
        made += _goals(plan, plan.goals, schema)
    _check_names(schema, made)
    _follows(plan, schema, config)
    return made


def batch_of(plan: Plan | None, schema: Schema, config: BufferConfig) -> dict[str, Any]:
    """A batch as a tree of columns. Without a plan it is of the rows as they are stored."""
    indices, weights = Column((), "int64"), Column((), "float32")
    if plan is None:
        extra = {"weights": weights} if config.weighted else {}
        return {**schema.fields, "indices": indices, **extra}
    tree: dict[str, Any] = {}
    for name, role, _, _, shown in outputs(plan, schema, config):
        timed = Role.STEP <= role <= Role.IDS
        _put(tree, name, Timed(shown) if timed else shown)
    tree["indices"], tree["weights"] = indices, weights
    return tree


def lengths() -> Output:
    """How many steps the episode has that begins at a row."""
    return Output("lengths", Role.LENGTH, -1, False, Column((), "int32"))


def described(made: list[Output]) -> list[Described]:
    """The same as the core takes it."""
    return [
        (name, int(role), column, stacked, DTYPES.index(c.dtype.name) + 1, list(c.item_shape))
        for name, role, column, stacked, c in made
    ]


def spec(plan: Plan, schema: Schema, config: BufferConfig) -> dict[str, Any]:
    """How items are made, as the core takes it."""
    paths = [path for path, _ in schema.columns]
    n_step = plan.n_step or NStep(1, 1.0)
    sequence = plan.sequence
    strategies = ("none", "future", "final", "episode")
    terminated = "terminated" if "terminated" in paths else "done"
    return {
        "stack": plan.stack.n if plan.stack else 1,
        "sequence": plan.runs,
        "steps": n_step.n,
        "gamma": n_step.gamma,
        "length": sequence.length if sequence else plan.time,
        "burn_in": sequence.burn_in if sequence else 0,
        "period": sequence.period if sequence else 1,
        "pad": sequence.pad if sequence else True,
        "cross": sequence.cross_episodes if sequence else False,
        "whole": plan.trajectory is not None,
        "goal": strategies.index(plan.goals.strategy if plan.goals else "none"),
        "goal_k": plan.goals.k if plan.goals else 0.0,
        "reward": _position(paths, "reward") if plan.n_step else -1,
        "terminated": _position(paths, terminated),
        "truncated": _position(paths, "truncated"),
        "follows": _follows(plan, schema, config),
    }


# ------------------------------------------------------------------------------------- the arrays


def _transitions(plan: Plan, schema: Schema, steps: bool) -> Iterator[Output]:
    for i, (path, column) in enumerate(schema.columns):
        field = path.split("/")[0]
        if field == "obs" and steps:
            stacked, frames = _stacked(plan, path, column)
            yield Output(path, Role.START, i, stacked, frames)
            yield Output("next_" + path, Role.NEXT, i, stacked, frames)
        elif field in ("next_obs", "done", "terminated", "truncated"):
            yield Output(path, Role.LAST, i, False, column)
        elif field == "reward" and plan.n_step is not None:
            yield Output(path, Role.RETURN, i, False, column)
        else:
            yield Output(path, Role.START, i, False, column)
    if plan.n_step is not None or plan.goals is not None:
        yield Output("k", Role.COUNT, -1, False, Column((), "int32"))
        yield Output("discount", Role.DISCOUNT, -1, False, Column((), "float32"))


def _runs(plan: Plan, schema: Schema) -> Iterator[Output]:
    flag = Column((), "bool")
    next_obs = plan.sequence is not None and plan.sequence.next_obs
    for i, (path, column) in enumerate(schema.columns):
        obs = path.split("/")[0] == "obs"
        stacked, shown = _stacked(plan, path, column) if obs else (False, column)
        yield Output(path, Role.STEP, i, stacked, shown)
        if obs and next_obs:
            yield Output("next_" + path, Role.STEP_NEXT, i, stacked, shown)
        if obs and plan.trajectory is not None:
            yield Output("final_" + path, Role.NEXT, i, stacked, shown)
    yield Output("mask", Role.MASK, -1, False, flag)
    yield Output("is_first", Role.FIRST, -1, False, flag)
    if next_obs:
        yield Output("next_mask", Role.NEXT_MASK, -1, False, flag)
    if plan.trajectory is not None:
        yield lengths()


def _goals(plan: Plan, goals: Goals, schema: Schema) -> Iterator[Output]:
    achieved, column = _find(schema, goals.achieved)
    _, goal = _find(schema, goals.goal)
    if (column.shape, column.dtype) != (goal.shape, goal.dtype):
        raise SchemaMismatch(f"column {goals.achieved!r} is {column}, but {goals.goal!r} is {goal}")
    if column.variable:
        raise InvalidArgument(f"column {goals.achieved!r}: goals have one length")
    for path in (goals.achieved, goals.goal):
        if path.split("/")[0] != "obs":
            raise InvalidArgument(f"goals are parts of obs: {path!r} is not")
        if _stacked(plan, path, column)[0]:
            raise InvalidArgument(
                f"goals are not stacked, {path!r} is; FrameStack(n, columns=...) "
                "says which columns are"
            )
    _, reward = _find(schema, "reward")
    if reward.shape != () or reward.dtype.name not in ("float32", "float64"):
        raise InvalidArgument(
            f"Hindsight needs a reward that is one float32 or float64, not {reward}"
        )
    yield Output(GOAL, Role.GOAL, achieved, False, column)
    yield Output("relabelled", Role.RELABELLED, -1, False, Column((), "bool"))
    if plan.n_step is not None and plan.n_step.n > 1:
        yield from _all_rows(plan, goals, schema, plan.n_step.n + 1)


def _all_rows(plan: Plan, goals: Goals, schema: Schema, rows: int) -> Iterator[Output]:
    for i, (path, column) in enumerate(schema.columns):
        obs = path.split("/")[0] == "obs"
        if obs and column.variable and goals.ends:
            raise InvalidArgument(
                f"column {path!r}: with terminated=, n steps need observations of one length"
            )
        if column.variable:
            continue
        stacked, shown = _stacked(plan, path, column) if obs else (False, column)
        of_all = Column((rows, *shown.shape), shown.dtype)
        yield Output(f"{ROWS}/{path}", Role.ROWS, i, stacked, of_all)


def _stacked(plan: Plan, path: str, column: Column) -> tuple[bool, Column]:
    """Whether frames of a column are stacked, and what then stands in a batch."""
    stack = plan.stack
    if stack is None or stack.n == 1 or not (stack.columns is None or path in stack.columns):
        return False, column
    if column.variable:
        raise InvalidArgument(f"column {path!r}: frames of any length cannot be stacked")
    if len(column.shape) > 6:
        raise InvalidArgument(f"column {path!r} has too many dimensions to be stacked")
    return True, Column((stack.n, *column.shape), column.dtype)


def _put(tree: dict[str, Any], path: str, column: Any) -> None:
    *outer, name = path.split("/")
    for part in outer:
        tree = tree.setdefault(part, {})
    tree[name] = column


# ---------------------------------------------------------------------------- what can be made


def _check_stacked(plan: Plan, schema: Schema) -> None:
    for path in (plan.stack and plan.stack.columns) or ():
        _find(schema, path)
        if path.split("/")[0] != "obs":
            raise InvalidArgument(f"frames are parts of obs: {path!r} is not")


def _check_reward(schema: Schema) -> None:
    """Raises InvalidArgument unless rewards can be added up; compressed ones the core refuses."""
    _, reward = _find(schema, "reward")
    if reward.dtype.name not in ("float32", "float64") or reward.variable:
        raise InvalidArgument(
            f"NStep needs a reward of float32 or float64, of one length, not {reward}"
        )


def _check_names(schema: Schema, made_of: list[Output]) -> None:
    """Raises InvalidArgument where a column has the name of an array that the view makes."""
    paths = [path for path, _ in schema.columns]
    made: list[tuple[str, str]] = []  # arrays, and the columns they are of, if they are of any
    for name, _, column, _, shown in made_of:
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


def _follows(plan: Plan, schema: Schema, config: BufferConfig) -> list[tuple[int, int]]:
    """What n steps of transitions compare: each column of obs, and that of next_obs."""
    n_step = plan.n_step
    if n_step is None or n_step.n == 1 or n_step.one_stream or config.storage == "steps":
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


def _find(schema: Schema, path: str) -> tuple[int, Column]:
    for i, (name, column) in enumerate(schema.columns):
        if name == path:
            return i, column
    raise SchemaMismatch(f"there is no column {path!r} among {schema}")


def _position(paths: list[str], name: str) -> int:
    return paths.index(name) if name in paths else -1
