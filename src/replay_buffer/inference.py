"""What the constructor leaves open is settled by the first row."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, fields
from typing import Any

import numpy as np

from .errors import InvalidArgument, SchemaMismatch, shown
from .schema import EMPTY_DICT, Column, Schema, as_dtype, as_shape, plain_array

DONE = ("obs", "action", "reward", "next_obs", "done")
ENDS = ("obs", "action", "reward", "next_obs", "terminated", "truncated")
STEP = ("obs", "action", "reward", "terminated", "truncated")
#: Names of arrays that views make, which a column of steps cannot have.
MADE_BY_VIEWS = (
    "next_obs",
    "final_obs",
    "done",
    "k",
    "discount",
    "mask",
    "is_first",
    "next_mask",
    "lengths",
    "relabelled",
)
FLAGS = ("done", "terminated", "truncated")


@dataclass(frozen=True)
class Draft:
    """The part of a schema that the constructor was told."""

    obs_shape: Any = None
    obs_dtype: Any = None
    action_dim: int | None = None
    action_shape: Any = None
    action_dtype: Any = None
    reward_dtype: Any = None

    def __post_init__(self) -> None:
        if self.action_dim is not None:
            if isinstance(self.action_dim, bool) or not isinstance(
                self.action_dim, (int, np.integer)
            ):
                raise InvalidArgument(
                    f"action_dim must be a whole number, not {shown(self.action_dim)}"
                )
            if self.action_dim < 1:
                raise InvalidArgument(
                    f"action_dim must be at least 1, not {shown(self.action_dim)}"
                )
        if isinstance(self.obs_shape, Mapping):
            _check_shapes("obs_shape", self.obs_shape)
        elif self.obs_shape is not None:
            object.__setattr__(self, "obs_shape", as_shape("obs_shape", self.obs_shape))
        if self.obs_dtype is not None and not isinstance(self.obs_dtype, Mapping):
            object.__setattr__(self, "obs_dtype", as_dtype("obs_dtype", self.obs_dtype))
        if self.action_shape is not None:
            object.__setattr__(self, "action_shape", as_shape("action_shape", self.action_shape))
        for name in ("action_dtype", "reward_dtype"):
            if getattr(self, name) is not None:
                object.__setattr__(self, name, as_dtype(name, getattr(self, name)))

    @property
    def empty(self) -> bool:
        """Whether the constructor was told nothing."""
        return all(getattr(self, f.name) is None for f in fields(self))

    def given(self, schema: Schema | Mapping[str, Any]) -> Schema:
        """The schema that was given instead of shapes and dtypes."""
        if not self.empty:
            raise InvalidArgument("a schema says everything: no shape or dtype beside it")
        return schema if isinstance(schema, Schema) else Schema(schema)

    def settle(self, values: Mapping[str, Any], *, batched: bool, steps: bool = False) -> Schema:
        """The schema that this draft and the values of a first row give."""
        # Whatever order the names of a row came in, positions mean what they always do.
        if steps:
            missing = [name for name in STEP if name not in values]
            if missing:
                raise SchemaMismatch(f"column {missing[0]!r} is missing in the first step")
            order = (*STEP, *(name for name in values if name not in STEP))
        else:
            self.check_names(values)
            order = next((o for o in (DONE, ENDS) if set(o) == set(values)), tuple(values))
        found = {name: self._field(name, values[name], batched) for name in order}
        if "obs" in found and "next_obs" in found and found["obs"] != found["next_obs"]:
            raise SchemaMismatch(
                f"column 'next_obs' is {_said(found['next_obs'])}, "
                f"but 'obs' is {_said(found['obs'])}"
            )
        return Schema(found)

    def explicit(self, *, steps: bool = False) -> Schema:
        """The schema without a first row. Raises InvalidArgument with what is missing."""
        missing = [name for name in ("obs_shape", "obs_dtype") if getattr(self, name) is None]
        if self.action_dtype is None:
            missing.append("action_dtype")
        if self.action_shape is None and self.action_dim is None:
            missing.append("action_shape (or action_dim)")
        if missing:
            raise InvalidArgument(
                f"the layout of a segment is fixed when it is created: {', '.join(missing)} "
                "must be given, or a schema"
            )
        assert self.action_dtype is not None
        discrete = self.action_dtype.kind in "iu" and self.action_shape in (None, ())
        shape = self.action_shape
        if shape is None:
            shape = () if discrete else (self.action_dim,)
        obs = _explicit_obs("obs", self.obs_shape, self.obs_dtype)
        action = Column(shape, self.action_dtype, self.action_dim if discrete else None)
        return _row_of(obs, action, Column((), self.reward_dtype or "float32"), steps)

    def guess(self, *, steps: bool = False) -> Schema | None:
        """The schema to estimate memory with before the first row; None when there is no shape."""
        if self.obs_shape is None or isinstance(self.obs_shape, Mapping):
            return None
        obs = Column(self.obs_shape, self.obs_dtype or "float32")
        action = Column(self.action_shape or (), self.action_dtype or "int64")
        return _row_of(obs, action, Column((), self.reward_dtype or "float32"), steps)

    def check_names(self, values: Mapping[str, Any]) -> None:
        """Raises SchemaMismatch when a first row lacks a column that the constructor spoke of."""
        if self.empty:
            return
        order = ENDS if "terminated" in values or "truncated" in values else DONE
        missing = [name for name in order if name not in values]
        if missing:
            raise SchemaMismatch(f"column {missing[0]!r} is missing in the first row")

    def _field(self, name: str, value: Any, batched: bool) -> Any:
        if name in ("obs", "next_obs"):
            return _observation(name, self.obs_shape, self.obs_dtype, value, batched)
        array = _example(name, value, batched) if not isinstance(value, Mapping) else None
        if array is None:
            return _observation(name, None, None, value, batched)
        if name == "action":
            return self._action(array, _by_hand(value))
        if name == "reward":
            return Column(array.shape, self.reward_dtype or "float32")
        if name in FLAGS:
            return Column(array.shape, "bool")
        return Column(array.shape, _stored_dtype(array))

    def _action(self, array: Any, by_hand: bool) -> Column:
        if self.action_shape is not None:
            dtype = self.action_dtype or _stored_dtype(array)
            discrete = self.action_shape == () and dtype.kind in "iu"
            return Column(self.action_shape, dtype, self.action_dim if discrete else None)
        if array.shape == () and array.dtype.kind in "iu":
            return Column((), self.action_dtype or "int64", self.action_dim)
        if self.action_dim is not None and array.shape == (self.action_dim,):
            dtype = "float32" if by_hand else _stored_dtype(array)
            return Column(array.shape, self.action_dtype or dtype)
        if self.action_dim is not None:
            if array.shape == () and self.action_dim == 1:
                return Column((), self.action_dtype or _stored_dtype(array))
            raise SchemaMismatch(
                f"column 'action': action_dim={self.action_dim} means a whole number below "
                f"{self.action_dim} or a vector of {self.action_dim}, got shape {array.shape} "
                f"of {array.dtype}"
            )
        return Column(array.shape, self.action_dtype or _stored_dtype(array))


def _row_of(obs: Any, action: Column, reward: Column, steps: bool) -> Schema:
    flag = Column((), "bool")
    row = {"obs": obs, "action": action, "reward": reward}
    if steps:
        return Schema({**row, "terminated": flag, "truncated": flag})
    return Schema({**row, "next_obs": obs, "done": flag})


def _explicit_obs(path: str, shape: Any, dtype: Any) -> Any:
    if not isinstance(shape, Mapping):
        return Column(shape, as_dtype(path, dtype))
    if isinstance(dtype, Mapping) and set(dtype) != set(shape):
        odd = sorted(set(shape) ^ set(dtype), key=str)[0]
        raise InvalidArgument(f"'{path}/{odd}' is in only one of obs_shape and obs_dtype")
    return {
        key: _explicit_obs(
            f"{path}/{key}", inner, dtype[key] if isinstance(dtype, Mapping) else dtype
        )
        for key, inner in shape.items()
    }


def _observation(path: str, shape: Any, dtype: Any, value: Any, batched: bool) -> Any:
    if isinstance(value, Mapping) or isinstance(shape, Mapping):
        if not isinstance(value, Mapping):
            raise SchemaMismatch(f"column {path!r}: expected a dict, got {type(value).__name__}")
        if not value:
            raise SchemaMismatch(f"column {path!r}: {EMPTY_DICT}")
        if isinstance(shape, Mapping) and set(shape) != set(value):
            odd = sorted(set(shape) ^ set(value), key=str)[0]
            state = "missing" if odd in shape else "not in obs_shape"
            raise SchemaMismatch(f"column '{path}/{odd}' is {state}")
        shapes = shape if isinstance(shape, Mapping) else dict.fromkeys(value, shape)
        dtypes = dtype if isinstance(dtype, Mapping) else dict.fromkeys(value, dtype)
        return {
            key: _observation(f"{path}/{key}", shapes.get(key), dtypes.get(key), inner, batched)
            for key, inner in value.items()
        }
    array = _example(path, value, batched)
    if shape is not None and array.shape != as_shape(path, shape):
        raise SchemaMismatch(f"column {path!r}: expected shape {shape}, got {array.shape}")
    if dtype is not None:
        return Column(array.shape, as_dtype(path, dtype))
    return Column(array.shape, "float32" if _by_hand(value) else _stored_dtype(array))


def _by_hand(value: Any) -> bool:
    """Whether these are whole numbers written out by hand, which are not a choice of dtype."""
    if not isinstance(value, (list, tuple)):
        return False
    while isinstance(value, (list, tuple)) and value:
        value = value[0]
    return isinstance(value, int) and not isinstance(value, bool)


def _check_shapes(path: str, shapes: Mapping[Any, Any]) -> None:
    if not shapes:
        raise InvalidArgument(f"{path}: {EMPTY_DICT}")
    for key, shape in shapes.items():
        if isinstance(shape, Mapping):
            _check_shapes(f"{path}/{key}", shape)
        elif shape is not None:
            as_shape(f"{path}/{key}", shape)


def _example(path: str, value: Any, batched: bool) -> Any:
    """One row's value, as an array."""
    array = plain_array(path, value)
    if not batched:
        return array
    if array.ndim == 0:
        raise SchemaMismatch(f"column {path!r}: expected a batch, got shape {array.shape}")
    if array.shape[0] == 0:
        raise SchemaMismatch(f"column {path!r}: 0 rows were given, some in other columns")
    return array[0]


def no_rows(path: str, value: Any) -> bool:
    """Whether a batch, an array or a dict of them, has a leading dimension of 0 throughout."""
    if isinstance(value, Mapping):
        return bool(value) and all(no_rows(f"{path}/{key}", v) for key, v in value.items())
    return plain_array(path, value).shape[:1] == (0,)


def _said(column: Any) -> str:
    if isinstance(column, Column):
        return str(column)
    return "{" + ", ".join(f"{name} {_said(inner)}" for name, inner in column.items()) + "}"


def _stored_dtype(array: Any) -> np.dtype[Any]:
    """float64 becomes float32; everything else stays what it is."""
    dtype = array.dtype.newbyteorder("=")
    return np.dtype("float32") if dtype == np.float64 else as_dtype("dtype", dtype)


def by_name(
    schema: Schema | None, values: tuple[Any, ...], columns: dict[str, Any]
) -> dict[str, Any]:
    """Positional values get the names of the fields; `done` is shorthand for terminated."""
    if "done" in columns and "terminated" in columns:
        raise SchemaMismatch("'done' is short for 'terminated': give one of them")
    if schema is not None:
        order = tuple(schema.fields)
        short_end = "terminated" in order and "truncated" in order
        if short_end and len(values) == len(order) - 1 and not columns and order[-2:] == ENDS[-2:]:
            values = (*values, np.zeros_like(values[-1], dtype=bool))
        if "done" in columns and "terminated" in order and "done" not in order:
            columns = dict(columns)
            columns["terminated"] = columns.pop("done")
            if "truncated" in order and "truncated" not in columns:
                columns["truncated"] = np.zeros_like(columns["terminated"], dtype=bool)
    else:
        ends = len(values) == len(ENDS) or "terminated" in columns or "truncated" in columns
        order = ENDS if ends else DONE
        if ends and "done" in columns:
            columns = {("terminated" if k == "done" else k): v for k, v in columns.items()}
    if len(values) > len(order):
        raise SchemaMismatch(f"{len(values)} values were given, the columns are {', '.join(order)}")
    row = dict(zip(order, values, strict=False))
    twice = [name for name in columns if name in row]
    if twice:
        raise SchemaMismatch(f"column {twice[0]!r} was given by position and by name")
    row.update(columns)
    if schema is None and not row:
        raise SchemaMismatch("a row needs a value for each column")
    if schema is None and values:
        missing = [name for name in order if name not in row]
        if missing:
            raise SchemaMismatch(f"column {missing[0]!r} is missing in the first row")
    return row


def check_steps(schema: Schema) -> None:
    """Raises SchemaMismatch unless the columns are those of steps."""
    for name in STEP:
        if name not in schema.fields:
            raise SchemaMismatch(f"steps have a column {name!r}, this schema has none")
    for name in ("terminated", "truncated"):
        if schema.fields[name] != Column((), "bool"):
            raise SchemaMismatch(f"column {name!r} of steps is a bool, not {schema.fields[name]}")
    for name in MADE_BY_VIEWS:
        if name in schema.fields:
            raise SchemaMismatch(f"column {name!r}: views give that name to what they make")
