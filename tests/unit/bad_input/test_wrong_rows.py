"""Rows that do not fit: values, batches and names of columns."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from replay_buffer import ReplayBuffer, SchemaMismatch
from unit.bad_input.rows import numbered, refused, row, rows

# Column, what is wrong, what the error has to say.
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


@pytest.mark.parametrize("huge", [2**64, -(2**63) - 1, 10**30])
def test_a_number_of_more_than_64_bits_is_named(buffer: ReplayBuffer, huge: int) -> None:
    for column in ("action", "reward"):
        message = f"'{column}': {huge} does not fit into 64 bits"
        refused(buffer, lambda c=column: buffer.add(**row(**{c: huge})), SchemaMismatch, message)


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
