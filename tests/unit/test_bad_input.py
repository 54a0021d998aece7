"""Odd input: accepted with its meaning, or refused by one clear error with the buffer unchanged.

A clear error names the column, what was given and what is expected.
"""

from __future__ import annotations

import gc
import itertools
import resource
import subprocess
import sys
import weakref
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    InvalidArgument,
    NotEnoughRows,
    ReplayBuffer,
    ReplayBufferError,
    RowGone,
    Schema,
    SchemaMismatch,
)

SCHEMA = Schema(
    {
        "obs": Column((2, 3), "float32"),
        "goal": {"x": Column((2,), "int16"), "lit": Column((), "bool")},
        "action": Column((), "int64", limit=4),
        "reward": Column((), "float32"),
    }
)


def row(**changes: Any) -> dict[str, Any]:
    values: dict[str, Any] = {
        "obs": np.arange(6, dtype=np.float32).reshape(2, 3),
        "goal": {"x": np.array([1, 2], np.int16), "lit": True},
        "action": 1,
        "reward": 0.5,
    }
    return {**values, **changes}


def rows(n: int, **changes: Any) -> dict[str, Any]:
    def many(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: many(inner) for name, inner in value.items()}
        return np.stack([value] * n)

    return {**{name: many(value) for name, value in row().items()}, **changes}


@pytest.fixture
def buffer() -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(5), schema=SCHEMA, seed=0)
    for k in range(7):
        buffer.add(**row(reward=float(k), action=k % 4))
    return buffer


def state(buffer: ReplayBuffer) -> Any:
    """All that a caller can see of a buffer."""

    def seen(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: seen(inner) for name, inner in value.items()}
        return value.tolist()

    stats = {name: value for name, value in buffer.stats().items() if name != "resident_bytes"}
    return len(buffer), str(buffer.schema), seen(buffer.latest(99)), stats


def refused(
    buffer: ReplayBuffer, call: Callable[[], Any], error: type[ReplayBufferError], *said: str
) -> None:
    """`call` raises `error` saying all of `said`, and the buffer is as it was."""
    before = state(buffer)
    with pytest.raises(error) as caught:
        call()
    assert type(caught.value) is error
    for part in said:
        assert part in str(caught.value)
    assert state(buffer) == before
    assert buffer.add(**row(reward=9)) == before[2]["indices"][-1] + 1  # no id was lost either


def numbered(cases: list[tuple[str, Any, Any]]) -> list[str]:
    """Names of cases: the column and which case of it."""
    return [f"{case[0]}-{number}" for number, case in enumerate(cases)]


# ---- rows that do not fit: column, what is wrong, what the error has to say

WRONG_VALUES: list[tuple[str, Any, list[str]]] = [
    # shapes
    ("obs", np.zeros((2, 4), np.float32), ["'obs'", "(2, 3)", "(2, 4)"]),
    ("obs", np.zeros((3, 2), np.float32), ["'obs'", "(2, 3)", "(3, 2)"]),
    ("obs", np.zeros(6, np.float32), ["'obs'", "(2, 3)", "(6,)"]),
    ("obs", np.zeros((1, 2, 3), np.float32), ["'obs'", "(2, 3)", "(1, 2, 3)"]),
    ("obs", np.zeros((2, 0), np.float32), ["'obs'", "(2, 3)", "(2, 0)"]),
    ("obs", 5.0, ["'obs'", "(2, 3)", "()"]),
    ("obs", [], ["'obs'", "(2, 3)", "(0,)"]),
    ("obs", [[1, 2, 3], [4, 5]], ["'obs'"]),
    ("action", [1], ["'action'", "()", "(1,)"]),
    ("action", np.array([1]), ["'action'", "()", "(1,)"]),
    ("reward", [0.5, 0.5], ["'reward'", "()", "(2,)"]),
    # dtypes
    ("obs", np.zeros((2, 3), complex), ["'obs'", "complex128"]),
    ("obs", np.zeros((2, 3), object), ["'obs'", "object"]),
    ("obs", np.full((2, 3), "a"), ["'obs'", "<U1"]),
    ("obs", np.zeros((2, 3), "M8[s]"), ["'obs'", "datetime64"]),
    ("obs", np.zeros((2, 3), "f4,f4"), ["'obs'"]),
    ("obs", "text", ["'obs'", "str"]),
    ("obs", b"bytes", ["'obs'", "bytes"]),
    ("obs", None, ["'obs'", "NoneType"]),
    ("obs", object(), ["'obs'", "object"]),
    ("obs", {"x": 1}, ["'obs'", "dict"]),
    ("obs", {1, 2}, ["'obs'", "set"]),
    ("obs", lambda: 1, ["'obs'", "function"]),
    ("action", 1.0, ["'action'", "int64", "float"]),
    ("action", np.float32(1), ["'action'", "int64", "float32"]),
    ("action", "1", ["'action'", "str"]),
    # values
    ("action", 4, ["'action'", "0 to 3", "4"]),
    ("action", -1, ["'action'", "0 to 3", "-1"]),
    ("action", np.int64(4), ["'action'", "0 to 3", "4"]),
    ("action", np.array(-2), ["'action'", "0 to 3", "-2"]),
    ("action", np.uint64(2**63 + 1), ["'action'"]),
    ("action", 2**63, ["'action'"]),
    ("action", 2**80, ["'action'"]),
    ("action", True + 3, ["'action'", "0 to 3", "4"]),
    ("reward", 1e300, ["'reward'", "1e+300", "float32"]),
    ("reward", -(2**200), ["'reward'"]),
    ("reward", np.float64(1e39), ["'reward'", "float32"]),
    ("obs", np.full((2, 3), 1e39), ["'obs'", "float32"]),
    # nested columns
    ("goal", {"x": [1, 2]}, ["'goal/lit'", "missing"]),
    ("goal", {"x": [1, 2], "lit": True, "z": 1}, ["'goal/z'", "unknown"]),
    ("goal", {}, ["'goal/x'", "missing"]),
    ("goal", [1, 2], ["'goal'", "dict", "list"]),
    ("goal", np.zeros(3), ["'goal'", "dict", "ndarray"]),
    ("goal", None, ["'goal'", "dict", "NoneType"]),
    ("goal", {"x": [1, 2, 3], "lit": True}, ["'goal/x'", "(2,)", "(3,)"]),
    ("goal", {"x": [1, 40000], "lit": True}, ["'goal/x'", "40000", "int16"]),
    ("goal", {"x": [0.5, 1], "lit": True}, ["'goal/x'", "int16", "float64"]),
    ("goal", {"x": [1, 2], "lit": 2}, ["'goal/lit'", "2", "bool"]),
    ("goal", {"x": [1, 2], "lit": float("nan")}, ["'goal/lit'", "nan", "bool"]),
]


@pytest.mark.parametrize(("column", "value", "said"), WRONG_VALUES, ids=numbered(WRONG_VALUES))
@pytest.mark.parametrize("by_name", [False, True], ids=["by position", "by name"])
def test_a_value_that_does_not_fit_is_refused_by_add(
    buffer: ReplayBuffer, column: str, value: Any, said: list[str], by_name: bool
) -> None:
    values = row(**{column: value})
    call = (lambda: buffer.add(**values)) if by_name else (lambda: buffer.add(*values.values()))
    refused(buffer, call, SchemaMismatch, *said)


WRONG_BATCHES: list[tuple[str, Any, list[str]]] = [
    ("obs", np.zeros((3, 2, 4), np.float32), ["'obs'", "(n, 2, 3)", "(3, 2, 4)"]),
    ("obs", np.zeros((2, 3), np.float32), ["'obs'", "(n, 2, 3)", "(2, 3)"]),
    ("obs", 1.0, ["'obs'", "(n, 2, 3)", "()"]),
    ("obs", np.zeros((3, 2, 3), complex), ["'obs'", "complex128"]),
    ("obs", None, ["'obs'", "NoneType"]),
    ("action", np.zeros((3, 1), np.int64), ["'action'", "(n,)", "(3, 1)"]),
    ("action", 1, ["'action'", "(n,)", "()"]),
    ("action", np.zeros(2, np.int64), ["'action'", "2 rows", "3"]),
    ("action", np.zeros(4, np.int64), ["'action'", "4 rows", "3"]),
    ("action", np.zeros(0, np.int64), ["'action'", "0 rows", "3"]),
    ("action", np.array([0, 4, 1]), ["'action'", "0 to 3", "4"]),
    ("action", np.array([0, 1, -1]), ["'action'", "0 to 3", "-1"]),
    ("action", [0, 1.5, 2], ["'action'", "int64", "float64"]),
    ("reward", [0.0, 1e300, 0.0], ["'reward'", "1e+300", "float32"]),
    ("reward", [0.0, "1", 0.0], ["'reward'"]),
    ("goal", {"x": np.zeros((3, 2), np.int16)}, ["'goal/lit'", "missing"]),
    ("goal", {"x": np.zeros((2, 2), np.int16), "lit": [True] * 3}, ["'goal/x'", "2 rows", "3"]),
    ("goal", [{"x": [1, 2], "lit": True}] * 3, ["'goal'", "dict", "list"]),
]


@pytest.mark.parametrize(("column", "value", "said"), WRONG_BATCHES, ids=numbered(WRONG_BATCHES))
@pytest.mark.parametrize("by_name", [False, True], ids=["by position", "by name"])
def test_a_value_that_does_not_fit_is_refused_by_add_batch(
    buffer: ReplayBuffer, column: str, value: Any, said: list[str], by_name: bool
) -> None:
    values = rows(3, **{column: value})
    if by_name:
        refused(buffer, lambda: buffer.add_batch(**values), SchemaMismatch, *said)
    else:
        refused(buffer, lambda: buffer.add_batch(*values.values()), SchemaMismatch, *said)


def test_a_batch_is_added_whole_or_not_at_all(buffer: ReplayBuffer) -> None:
    bad = rows(1000, action=np.r_[np.zeros(999, np.int64), 4])
    refused(buffer, lambda: buffer.add_batch(**bad), SchemaMismatch, "'action'")


# ---- names

WRONG_CALLS: list[tuple[Callable[[ReplayBuffer], Any], list[str]]] = [
    (lambda b: b.add(), ["'obs'", "missing"]),
    (lambda b: b.add_batch(), ["'obs'", "missing"]),
    (lambda b: b.add(row()["obs"]), ["'goal'", "missing"]),
    (lambda b: b.add(*list(row().values())[:3]), ["'reward'", "missing"]),
    (lambda b: b.add(*row().values(), 1), ["5 values", "obs, goal, action, reward"]),
    (lambda b: b.add(**row(), foo=1), ["'foo'", "obs, goal, action, reward"]),
    (lambda b: b.add(*row().values(), foo=1), ["'foo'", "obs, goal, action, reward"]),
    (lambda b: b.add(*row().values(), obs=1), ["'obs'", "by position and by name"]),
    (lambda b: b.add(Reward=1.0, **row()), ["'Reward'", "obs, goal, action, reward"]),
    (lambda b: b.add_batch(**rows(2), foo=[1, 1]), ["'foo'", "obs, goal, action, reward"]),
    (lambda b: b.add(**row(), done=False), ["'done'", "obs, goal, action, reward"]),
]


@pytest.mark.parametrize(("call", "said"), WRONG_CALLS)
def test_missing_and_unknown_columns_are_named(
    buffer: ReplayBuffer, call: Callable[[ReplayBuffer], Any], said: list[str]
) -> None:
    refused(buffer, lambda: call(buffer), SchemaMismatch, *said)


# ---- values that mean what the column stores, written down in another way


def other_forms() -> list[tuple[str, Any, Any]]:
    obs = np.array([[1.5, 2.5, 3.5], [4.5, 5.5, 6.5]], np.float32)
    unaligned = np.empty(obs.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(2, 3)
    unaligned[...] = obs
    locked = obs.copy()
    locked.flags.writeable = False

    class Sub(np.ndarray):
        pass

    class Lazy:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return obs

    return [
        ("obs", obs.tolist(), obs),
        ("obs", tuple(map(tuple, obs.tolist())), obs),
        ("obs", list(obs), obs),
        ("obs", np.asfortranarray(obs), obs),
        ("obs", np.repeat(obs, 2, axis=1)[:, ::2], obs),
        ("obs", obs[::-1, ::-1][::-1, ::-1], obs),
        ("obs", obs.T.copy().T, obs),
        ("obs", obs.astype(">f4"), obs),
        ("obs", obs.astype(np.float64), obs),
        ("obs", obs.astype(">f8"), obs),
        ("obs", obs.astype(np.float16), obs),
        ("obs", unaligned, obs),
        ("obs", locked, obs),
        ("obs", obs.view(Sub), obs),
        ("obs", memoryview(obs), obs),
        ("obs", Lazy(), obs),
        ("obs", np.broadcast_to(np.float32(1.5), (2, 3)), np.full((2, 3), 1.5)),
        ("obs", np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(6).reshape(2, 3)),
        ("obs", np.eye(2, 3, dtype=bool), np.eye(2, 3)),
        ("obs", np.full((2, 3), np.inf), np.full((2, 3), np.inf)),
        ("action", np.int8(3), 3),
        ("action", np.uint64(3), 3),
        ("action", np.array(3, ">i4"), 3),
        ("action", np.array(3, np.longlong), 3),
        ("action", np.array(3, np.ulonglong), 3),
        ("action", True, 1),
        ("action", np.True_, 1),
        ("reward", 3, 3.0),
        ("reward", True, 1.0),
        ("reward", np.float16(0.5), 0.5),
        ("reward", np.float64(0.5), 0.5),
        ("reward", np.int8(-3), -3.0),
        ("reward", np.array(0.5), 0.5),
        ("reward", -np.inf, -np.inf),
    ]


FORMS = other_forms()


@pytest.mark.parametrize(("column", "value", "stored"), FORMS, ids=numbered(FORMS))
@pytest.mark.parametrize("by_name", [False, True], ids=["by position", "by name"])
def test_another_form_of_the_same_value_is_stored_as_that_value(
    buffer: ReplayBuffer, column: str, value: Any, stored: Any, by_name: bool
) -> None:
    values = row(**{column: value})
    row_id = buffer.add(**values) if by_name else buffer.add(*values.values())
    assert (buffer.get([row_id])[column][0] == np.asarray(stored)).all()


@pytest.mark.parametrize(("column", "value", "stored"), FORMS, ids=numbered(FORMS))
def test_a_batch_in_another_form_is_stored_as_that_batch(
    buffer: ReplayBuffer, column: str, value: Any, stored: Any
) -> None:
    ids = buffer.add_batch(**rows(3, **{column: [value] * 3}))
    for got in buffer.get(ids)[column]:
        assert (got == np.asarray(stored)).all()


@pytest.mark.parametrize("dtype", [np.longlong, np.ulonglong, ">i8", np.int32, np.uint8])
def test_a_batch_of_another_whole_dtype_is_stored_by_value(
    buffer: ReplayBuffer, dtype: Any
) -> None:
    ids = buffer.add_batch(**rows(3, action=np.array([3, 0, 2], dtype)))
    assert buffer.get(ids)["action"].tolist() == [3, 0, 2]


def test_a_batch_of_strided_swapped_and_unaligned_columns(buffer: ReplayBuffer) -> None:
    good = rows(4, reward=np.arange(4, dtype=np.float32))
    odd = {
        "obs": np.asfortranarray(good["obs"]),
        "goal": {"x": good["goal"]["x"].astype(">i2"), "lit": [1, 1, 1, 1]},
        "action": np.repeat(good["action"], 3)[::3],
        "reward": np.empty(17, np.uint8)[1:].view(np.float32),
    }
    odd["reward"][:] = good["reward"]
    expected = buffer.get(buffer.add_batch(**good))
    got = buffer.get(buffer.add_batch(**odd))
    assert (got["obs"] == expected["obs"]).all()
    assert (got["goal"]["x"] == expected["goal"]["x"]).all()
    assert got["goal"]["lit"].all()
    assert got["reward"].tolist() == [0, 1, 2, 3]


def test_a_batch_of_no_rows_adds_nothing(buffer: ReplayBuffer) -> None:
    before = state(buffer)
    empty = {
        "obs": np.zeros((0, 2, 3), np.float32),
        "goal": {"x": np.zeros((0, 2), np.int16), "lit": []},
        "action": [],
        "reward": np.zeros(0),
    }
    ids = buffer.add_batch(**empty)
    assert ids.dtype == np.int64
    assert ids.shape == (0,)
    assert state(buffer) == before


# ---- sampling

WRONG_SAMPLES: list[tuple[Any, list[str]]] = [
    (0, ["batch_size", "at least 1", "0"]),
    (-1, ["batch_size", "at least 1", "-1"]),
    (-(2**70), ["batch_size", "at least 1"]),
    (True, ["batch_size", "True"]),
    (2.0, ["batch_size", "whole number", "2.0"]),
    ("3", ["batch_size", "whole number", "'3'"]),
    (None, ["batch_size", "whole number", "None"]),
    ([3], ["batch_size", "whole number"]),
    (2**31, ["batch_size", "2^31"]),
    (2**70, ["batch_size", "2^31"]),
]


@pytest.mark.parametrize(("batch_size", "said"), WRONG_SAMPLES)
def test_a_batch_size_that_makes_no_sense_is_refused(
    buffer: ReplayBuffer, batch_size: Any, said: list[str]
) -> None:
    refused(buffer, lambda: buffer.sample(batch_size), InvalidArgument, *said)
    refused(buffer, lambda: buffer.sample(batch_size=batch_size), InvalidArgument, *said)


@pytest.mark.parametrize("n", [0, -1, 1.5, "3", None, True])
def test_latest_of_a_number_that_makes_no_sense_is_refused(buffer: ReplayBuffer, n: Any) -> None:
    refused(buffer, lambda: buffer.latest(n), InvalidArgument, "n must be")


@pytest.mark.parametrize("ids", [0, [[0]], [0.5], ["a"], "abc", None, [True], [2**70], [None]])
def test_get_of_what_are_no_row_ids_is_refused(buffer: ReplayBuffer, ids: Any) -> None:
    refused(buffer, lambda: buffer.get(ids), InvalidArgument, "row ids")


def test_get_of_ids_beyond_63_bits_is_refused(buffer: ReplayBuffer) -> None:
    refused(buffer, lambda: buffer.get(np.array([2**64 - 1], np.uint64)), InvalidArgument)


@pytest.mark.parametrize("schema", [None, SCHEMA])
def test_a_batch_from_an_empty_buffer_is_refused(schema: Schema | None) -> None:
    buffer = ReplayBuffer(BufferConfig(4), schema=schema)
    for _ in range(2):
        with pytest.raises(NotEnoughRows, match=r"32.*empty"):
            buffer.sample(32)
    with pytest.raises(RowGone):
        buffer.get([0])
    assert len(buffer) == 0


def test_beta_is_refused_where_there_are_no_weights(buffer: ReplayBuffer) -> None:
    refused(buffer, lambda: buffer.sample(3, beta=0.5), InvalidArgument, "uniform")


def test_a_priority_is_refused_where_none_is_kept(buffer: ReplayBuffer) -> None:
    refused(buffer, lambda: buffer.add(**row(), priority=1.0), InvalidArgument, "uniform")
    refused(
        buffer, lambda: buffer.add_batch(**rows(2), priority=[1.0, 1.0]), InvalidArgument, "uniform"
    )


def test_a_refused_priority_of_a_first_row_settles_nothing() -> None:
    buffer = ReplayBuffer(BufferConfig(4))
    with pytest.raises(InvalidArgument):
        buffer.add(x=1.0, priority=1.0)
    assert buffer.schema is None


# ---- arrays to sample into


def odd_outs() -> dict[str, tuple[Callable[[dict[str, Any]], Any], type[ReplayBufferError], str]]:
    def changed(name: str, value: Callable[[Any], Any]) -> Callable[[dict[str, Any]], Any]:
        return lambda out: {**out, name: value(out[name])}

    def without(name: str) -> Callable[[dict[str, Any]], Any]:
        return lambda out: {key: value for key, value in out.items() if key != name}

    def locked(array: Any) -> Any:
        array = array.copy()
        array.flags.writeable = False
        return array

    def unaligned(array: Any) -> Any:
        return np.empty(array.nbytes + 1, np.uint8)[1:].view(array.dtype).reshape(array.shape)

    mismatch = SchemaMismatch
    return {
        "missing column": (without("reward"), mismatch, "'reward'"),
        "missing indices": (without("indices"), mismatch, "'indices'"),
        "missing nested": (changed("goal", lambda g: {"x": g["x"]}), mismatch, "'goal/lit'"),
        "nested not a dict": (changed("goal", lambda g: g["x"]), InvalidArgument, "goal"),
        "too short": (changed("reward", lambda a: a[:-1].copy()), mismatch, "'reward'"),
        "too long": (changed("reward", lambda a: np.r_[a, a]), mismatch, "'reward'"),
        "other dtype": (changed("reward", lambda a: a.astype("f8")), mismatch, "'reward'"),
        "other shape": (changed("obs", lambda a: a.reshape(4, 6)), mismatch, "'obs'"),
        "list": (changed("reward", lambda a: a.tolist()), mismatch, "'reward'"),
        "None": (changed("reward", lambda a: None), mismatch, "'reward'"),
        "read-only": (changed("obs", locked), mismatch, "'obs'"),
        "column-major": (changed("obs", np.asfortranarray), mismatch, "'obs'"),
        "strided": (changed("reward", lambda a: np.repeat(a, 2)[::2]), mismatch, "'reward'"),
        "byte-swapped": (changed("obs", lambda a: a.astype(">f4")), mismatch, "'obs'"),
        "unaligned": (changed("obs", unaligned), mismatch, "'obs'"),
        "indices of int32": (changed("indices", lambda a: a.astype("i4")), mismatch, "'indices'"),
        "list of arrays": (lambda out: list(out.values()), InvalidArgument, "dict"),
        "a number": (lambda out: 5, InvalidArgument, "dict"),
    }


@pytest.mark.parametrize("odd", odd_outs())
def test_arrays_that_cannot_be_sampled_into_are_refused_untouched(
    buffer: ReplayBuffer, odd: str
) -> None:
    change, error, said = odd_outs()[odd]
    good = buffer.sample(4)
    expected = {name: repr(value) for name, value in good.items()}
    out = change(good)
    refused(buffer, lambda: buffer.sample(4, out=out), error, said, "out")
    assert {name: repr(value) for name, value in good.items()} == expected


# ---- configurations


@pytest.mark.parametrize("capacity", [0, -1, -(2**70), 2**41, 2**70, 1.5, "8", None, True, [8]])
def test_a_capacity_that_makes_no_sense_is_refused(capacity: Any) -> None:
    with pytest.raises(InvalidArgument, match="capacity"):
        BufferConfig(capacity)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("strategy", "best"),
        ("strategy", None),
        ("strategy", 0),
        ("alpha", -0.1),
        ("alpha", float("nan")),
        ("alpha", "a"),
        ("beta", float("inf")),
        ("beta", None),
        ("epsilon", -1e-9),
        ("weights", "max"),
        ("cer", "yes"),
        ("cer", 1),
        ("cer", None),
        ("max_times_sampled", 0),
        ("block_rows", 0),
        ("block_rows", 9),
        ("block_rows", 1.5),
    ],
)
def test_an_option_that_makes_no_sense_is_named(option: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=option):
        BufferConfig(8, **{option: value})


def test_a_capacity_of_numpy_is_a_capacity() -> None:
    assert BufferConfig(np.int32(5)).capacity == 5


@pytest.mark.parametrize("cer", [True, np.True_])
def test_cer_is_true_or_false(cer: Any) -> None:
    assert BufferConfig(4, cer=cer).core_options(0)["cer"] is True


NO_MEMORY = """
import resource
import numpy as np
from replay_buffer import BufferConfig, OutOfSpace, ReplayBuffer

buffer = ReplayBuffer(BufferConfig(1_000_000), obs_shape=(84, 84, 4), action_dim=6)
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
frame = np.zeros((84, 84, 4), np.uint8)
for _ in range(2):
    try:
        buffer.add(frame, 1, 0.0, frame, False)
    except OutOfSpace as error:
        assert isinstance(error, MemoryError)
        assert "5647" in str(error) or "56.4" in str(error) or "52.5" in str(error), error
    else:
        raise SystemExit("was not refused")
assert buffer.schema is None and len(buffer) == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds on Linux only")
def test_memory_that_cannot_be_reserved_is_a_clear_error_with_its_size() -> None:
    assert resource.RLIMIT_AS is not None
    done = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


# ---- objects that misbehave


class Meddling:
    """Runs something while it is converted to an array."""

    def __init__(self, meddle: Callable[[], Any]) -> None:
        self.meddle = meddle

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        self.meddle()
        return np.array(1, np.float32)


def test_a_value_whose_conversion_fails_lets_its_error_through(buffer: ReplayBuffer) -> None:
    def fail() -> None:
        raise ZeroDivisionError("mine")

    before = state(buffer)
    with pytest.raises(ZeroDivisionError, match="mine"):
        buffer.add(**row(reward=Meddling(fail)))
    assert state(buffer) == before


class MeddlingKey:
    """Runs something while it is compared with the name of a column."""

    def __init__(self, name: str, meddle: Callable[[], Any]) -> None:
        self.name, self.meddle = name, meddle

    def __hash__(self) -> int:
        return hash(self.name)

    def __eq__(self, other: object) -> bool:
        self.meddle()
        return self.name == other


def test_a_key_whose_comparison_fails_lets_its_error_through(buffer: ReplayBuffer) -> None:
    def failing_once(x: Any, lit: Any) -> dict[Any, Any]:
        times = itertools.count()
        return {MeddlingKey("x", lambda: 1 // next(times)): x, "lit": lit}

    def goal() -> dict[Any, Any]:
        return failing_once(row()["goal"]["x"], True)

    def goals() -> dict[Any, Any]:
        return failing_once(rows(3)["goal"]["x"], np.ones(3, bool))

    out = buffer.sample(3)
    before = state(buffer)
    calls: list[Callable[[], Any]] = [
        lambda: buffer.add(**row(goal=goal())),
        lambda: buffer.add(*row(goal=goal()).values()),
        lambda: buffer.add_batch(**rows(3, goal=goals())),
        lambda: buffer.sample(3, out={**out, "goal": goals()}),
    ]
    for call in calls:
        with pytest.raises(ZeroDivisionError):
            call()
    assert state(buffer) == before


def test_values_live_through_a_call_whose_keys_drop_them(buffer: ReplayBuffer) -> None:
    """`x` is found before `lit` is compared; then nobody but the call knows its array."""
    dropped: list[bool] = []

    def dropping(x: Any, lit: Any) -> dict[Any, Any]:
        goal: dict[Any, Any] = {"x": x}
        seen = weakref.ref(x)

        def drop() -> None:
            goal.clear()
            dropped.append(seen() is None)

        goal[MeddlingKey("lit", drop)] = lit
        return goal

    calls: list[Callable[[], Any]] = [
        lambda: buffer.add(**row(goal=dropping(np.zeros(2, np.int16), True))),
        lambda: buffer.add_batch(
            **rows(3, goal=dropping(np.zeros((3, 2), np.int16), np.ones(3, bool)))
        ),
        lambda: buffer.sample(
            3,
            out={
                **buffer.sample(3),
                "goal": dropping(np.zeros((3, 2), np.int16), np.ones(3, bool)),
            },
        ),
    ]
    for call in calls:
        with pytest.raises(SchemaMismatch, match="'goal/x'"):
            call()
    assert dropped == [False] * 3


def test_a_value_may_use_the_buffer_while_it_is_converted(buffer: ReplayBuffer) -> None:
    buffer.add(**row(reward=Meddling(lambda: buffer.add(**row(reward=41.0)))))
    assert buffer.latest(2)["reward"].tolist() == [41.0, 1.0]


def test_a_value_may_close_the_buffer_while_it_is_converted(buffer: ReplayBuffer) -> None:
    with pytest.raises(Closed):
        buffer.add(**row(reward=Meddling(buffer.close)))


def test_a_first_value_may_settle_the_columns_while_it_is_converted() -> None:
    buffer = ReplayBuffer(BufferConfig(8))
    buffer.add(x=Meddling(lambda: buffer.add(x=5.0) if buffer.schema is None else None))
    assert buffer.latest(8)["x"].tolist() == [5.0, 1.0]


def test_a_schedule_may_close_the_buffer_while_it_is_asked() -> None:
    def close(draws: int) -> float:
        buffer.close()
        return 0.4

    buffer = ReplayBuffer(
        BufferConfig(4, strategy="prioritized", beta=close), schema={"x": Column()}
    )
    buffer.add(1.0)
    assert buffer.sample(1)["x"].tolist() == [1.0]  # a call that has begun may end
    with pytest.raises(Closed):
        buffer.sample(1)


def test_an_object_whose_init_did_not_run_raises_and_does_not_crash() -> None:
    empty = ReplayBuffer.__new__(ReplayBuffer)
    for call in (lambda: empty.add(1), lambda: empty.add_batch(1), lambda: empty.sample(1)):
        with pytest.raises((AttributeError, TypeError, ReplayBufferError)):
            call()


def test_errors_leave_no_memory_behind(buffer: ReplayBuffer) -> None:
    """Arrays of refused calls are let go of: each is freed when its caller forgets it."""

    class Counted(np.ndarray):
        alive = 0

        def __del__(self) -> None:
            Counted.alive -= 1

    def counted() -> Any:
        Counted.alive += 1
        return np.zeros((2, 4), np.float32).view(Counted)

    for _, by_name in itertools.product(range(20), (False, True)):
        values = row(obs=counted())
        with pytest.raises(SchemaMismatch):
            buffer.add(**values) if by_name else buffer.add(*values.values())
        del values
    gc.collect()
    assert Counted.alive == 0


@pytest.mark.parametrize("huge", [2**64, -(2**63) - 1, 10**30])
def test_a_number_of_more_than_64_bits_is_named(buffer: ReplayBuffer, huge: int) -> None:
    for column in ("action", "reward"):
        message = f"'{column}': {huge} does not fit into 64 bits"
        refused(buffer, lambda c=column: buffer.add(**row(**{c: huge})), SchemaMismatch, message)


def test_switches_of_numpy_become_those_of_python() -> None:
    config = BufferConfig(10, cer=np.True_, durable=np.False_)
    assert config.cer is True
    assert config.durable is False
    assert repr(config) == "BufferConfig(capacity=10, cer=True)"
