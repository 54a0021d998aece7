"""Draws that make no sense: sizes, ids, options, and arrays to sample into."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    InvalidArgument,
    NotEnoughRows,
    NStep,
    ReplayBuffer,
    ReplayBufferError,
    RowGone,
    Schema,
    SchemaMismatch,
)
from unit.bad_input.rows import SCHEMA, refused, row, rows

WRONG_SAMPLES: list[Any] = [
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
    pytest.param(10**5000, ["batch_size", "2^31"], id="huge"),
    pytest.param(-(10**5000), ["batch_size", "at least 1"], id="-huge"),
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


NO_IDS = [0, [[0]], [0.5], ["a"], "abc", None, [True], [2**70], [None], [[1, 2], [3]], [10**5000]]


@pytest.mark.parametrize("ids", NO_IDS, ids=range(len(NO_IDS)))
def test_get_and_peek_of_what_are_no_row_ids_are_refused(buffer: ReplayBuffer, ids: Any) -> None:
    refused(buffer, lambda: buffer.get(ids), InvalidArgument, "row ids")
    refused(buffer, lambda: buffer.peek(ids), InvalidArgument, "row ids")


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


def test_a_subclass_of_array_to_sample_into_is_told_from_a_plain_one(buffer: ReplayBuffer) -> None:
    out = buffer.sample(8)
    name = next(key for key, value in out.items() if isinstance(value, np.ndarray))
    out[name] = out[name].view(np.recarray)
    refused(buffer, lambda: buffer.sample(8, out=out), SchemaMismatch, name, "plain", "recarray")


def one_array(column: str, other: str) -> Callable[[dict[str, Any]], None]:
    def share(out: dict[str, Any]) -> None:
        out[other] = out[column]

    return share


def overlapping(out: dict[str, Any]) -> None:
    whole = np.zeros(15, np.float32)
    out["x"], out["y"] = whole[:12].reshape(3, 4), whole[11:14]


def as_weights(out: dict[str, Any]) -> None:
    out["weights"] = out["x"].reshape(-1)[:3]


@pytest.mark.parametrize(
    "share", [one_array("x", "z"), one_array("k", "indices"), overlapping, as_weights]
)
def test_arrays_to_sample_into_that_share_memory_are_refused(
    share: Callable[[dict[str, Any]], None],
) -> None:
    number = Column((), "int64")
    schema = {"k": number, "x": Column((4,)), "y": Column(), "z": Column((4,)), "in": {"k": number}}
    buffer = ReplayBuffer(BufferConfig(10, strategy="prioritized"), schema=schema, seed=0)
    for k in range(5):
        buffer.add(k, np.full(4, k), k, np.full(4, k), {"k": k})
    out = buffer.sample(3)
    share(out)
    before = {name: np.copy(array) for name, array in out.items() if name != "in"}
    with pytest.raises(SchemaMismatch, match="share their memory"):
        buffer.sample(3, out=out)
    for name, array in before.items():
        np.testing.assert_array_equal(out[name], array)


def test_arrays_that_a_view_fills_must_not_share_memory() -> None:
    buffer = ReplayBuffer(BufferConfig(10), obs_shape=(2,), action_dim=3)
    for k in range(5):
        buffer.add([k, k], 0, 0.0, [k + 1, k + 1], False)
    view = buffer.view(NStep(2))
    out = view.sample(3)
    out["next_obs"] = out["obs"]
    with pytest.raises(SchemaMismatch, match="share their memory"):
        view.sample(3, out=out)
