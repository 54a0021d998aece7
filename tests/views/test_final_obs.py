"""Last observations: in every form that environments give them, and never missing."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    InvalidArgument,
    ReplayBuffer,
    Schema,
    SchemaMismatch,
)

FLAGS = {"terminated": Column((), "bool"), "truncated": Column((), "bool")}
REST = {"action": Column((), "int64"), "reward": Column((), "float32"), **FLAGS}
PLAIN = Schema({"obs": Column((2,), "float32"), **REST})
NESTED = Schema({"obs": {"a": Column((2,), "float32"), "b": {"c": Column((), "int32")}}, **REST})


def make(schema: Schema, streams: int) -> tuple[ReplayBuffer, Any]:
    buffer = ReplayBuffer(BufferConfig(40, storage="steps"), schema=schema)
    return buffer, buffer.writer(streams)


def step(writer: Any, obs: Any, terminated: list[bool], **options: Any) -> Any:
    k = len(terminated)
    return writer.append(obs, np.arange(k), np.ones(k), terminated, [False] * k, **options)


def objects(*values: Any) -> Any:
    array = np.full(len(values), None, object)
    for i, value in enumerate(values):
        array[i] = value
    return array


@pytest.mark.parametrize(
    "final_obs",
    [
        np.array([[0, 0], [7, 8], [0, 0]], np.float32),
        [[0, 0], [7, 8], [0, 0]],
        [None, [7, 8], None],
        objects(None, np.array([7, 8]), None),
        objects(None, [7.0, 8.0], np.array([1, 1])),
    ],
    ids=["array", "lists", "None", "objects", "more than needed"],
)
def test_final_obs_of_vectors(final_obs: Any) -> None:
    buffer, writer = make(PLAIN, 3)
    step(writer, np.zeros((3, 2), np.float32), [False, True, False], final_obs=final_obs)
    batch = buffer.sample(4)
    assert (batch["next_obs"] == [7, 8]).all()
    assert (batch["action"] == 1).all()


@pytest.mark.parametrize(
    "final_obs",
    [
        {"a": np.array([[0, 0], [7, 8]], np.float32), "b": {"c": np.array([0, 9], np.int32)}},
        {"a": objects(None, [7, 8]), "b": {"c": objects(None, 9)}},
        objects(None, {"a": np.array([7, 8]), "b": {"c": 9}}),
        [None, {"a": [7, 8], "b": {"c": 9}}],
    ],
    ids=["dict of arrays", "dict of objects", "objects", "list"],
)
def test_final_obs_of_dicts_in_both_forms(final_obs: Any) -> None:
    buffer, writer = make(NESTED, 2)
    obs = {"a": np.zeros((2, 2)), "b": {"c": np.zeros(2, np.int32)}}
    step(writer, obs, [False, True], final_obs=final_obs)
    batch = buffer.sample(4)
    assert (batch["next_obs"]["a"] == [7, 8]).all()
    assert (batch["next_obs"]["b"]["c"] == 9).all()


@pytest.mark.parametrize("batched", [False, True])
def test_final_obs_of_one_stream(batched: bool) -> None:
    buffer, writer = make(NESTED, 1)
    obs: Any = {"a": [1, 2], "b": {"c": 3}}
    final: Any = {"a": [7, 8], "b": {"c": 9}}
    if batched:
        obs, final = ({"a": [o["a"]], "b": {"c": [o["b"]["c"]]}} for o in (obs, final))
        ids = step(writer, obs, [True], final_obs=final)
        assert ids.shape == (1,)
    else:
        assert isinstance(writer.append(obs, 0, 1.0, True, False, final_obs=final), int)
    batch = buffer.sample(2)
    assert (batch["next_obs"]["a"] == [7, 8]).all()
    assert (batch["obs"]["b"]["c"] == 3).all()


WRONG: list[Any] = [
    None,
    objects(None, None, None),
    objects([1, 1], None, [1, 1]),
    [[0, 0]],
    np.zeros((3, 3)),
    objects(None, [1, 2, 3], None),
    objects(None, "ab", None),
    np.zeros(3),
    5.0,
    {"a": np.zeros((3, 2))},
]


@pytest.mark.parametrize("final_obs", WRONG, ids=repr)
@pytest.mark.parametrize("flag", ["terminated", "truncated"])
def test_a_missing_or_wrong_final_obs_writes_nothing(flag: str, final_obs: Any) -> None:
    buffer, writer = make(PLAIN, 3)
    obs = np.ones((3, 2), np.float32)
    step(writer, obs, [False] * 3)
    ends = {"terminated": [False] * 3, "truncated": [False] * 3, flag: [False, True, False]}
    with pytest.raises(ValueError, match=r".+"):
        writer.append(obs, np.arange(3), np.ones(3), **ends, final_obs=final_obs)
    assert len(buffer) == 3
    assert buffer.stats()["episodes"]["finished"] == 0
    step(writer, 2 * obs, [False] * 3)  # and the streams go on as if nothing had been said
    assert (buffer.sample(9)["next_obs"] == 2).all()


def test_final_obs_without_an_end_is_not_looked_at() -> None:
    buffer, writer = make(PLAIN, 2)
    for final_obs in (None, objects(None, None), np.zeros((2, 2), np.float32), [None, None]):
        step(writer, np.zeros((2, 2), np.float32), [False, False], final_obs=final_obs)
    assert len(buffer) == 8


def test_final_obs_has_no_place_in_next_step() -> None:
    buffer = ReplayBuffer(BufferConfig(40, storage="steps"), schema=PLAIN)
    writer = buffer.writer(2, "next_step")
    with pytest.raises(InvalidArgument, match="next append"):
        step(writer, np.zeros((2, 2)), [False, True], final_obs=np.zeros((2, 2)))
    assert len(buffer) == 0


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize(
    "wrong",
    [
        {"obs": np.zeros((2, 2))},
        {"obs": np.zeros((3, 3))},
        {"action": np.zeros(2, np.int64)},
        {"reward": np.zeros((3, 1))},
        {"terminated": np.full(3, 0.5)},
        {"truncated": [0, 2, 0]},
        {"obs": "abc"},
        {"extra": np.zeros(3)},
        {"priority": np.ones(3)},
    ],
    ids=repr,
)
def test_values_that_do_not_fit_write_nothing(wrong: dict[str, Any], autoreset: Any) -> None:
    buffer = ReplayBuffer(BufferConfig(40, storage="steps"), schema=PLAIN)
    writer = buffer.writer(3, autoreset)
    no = np.zeros(3, bool)
    right = {
        "obs": np.zeros((3, 2), np.float32),
        "action": np.zeros(3, np.int64),
        "reward": np.zeros(3, np.float32),
        "terminated": no,
        "truncated": no,
    }
    writer.append(**right)
    with pytest.raises(ValueError, match=r".+"):
        writer.append(**{**right, **wrong})
    assert len(buffer) == 3
    writer.append(**right)
    assert buffer.view().starts().size == 3


@pytest.mark.parametrize("streams", [1, 2])
def test_beside_a_last_observation_an_action_is_ignored_whatever_it_is(streams: int) -> None:
    buffer = ReplayBuffer(BufferConfig(50, storage="steps"), obs_shape=(1,), action_dim=3)
    writer = buffer.writer(streams=streams, autoreset="next_step")
    obs, rewards = np.zeros((streams, 1), np.float32), np.ones(streams)
    first = np.arange(streams) == 0
    never = np.zeros(streams, bool)
    writer.append(obs, np.zeros(streams, int), rewards, first, never)
    writer.append(obs, np.where(first, -1, 0), rewards, never, never)
    with pytest.raises(SchemaMismatch, match="expected 0 to 2, got -1"):
        writer.append(obs, np.where(first, -1, 0), rewards, never, never)
    writer.append(obs, np.zeros(streams, int), rewards, first, never)
    if streams > 1:
        with pytest.raises(SchemaMismatch, match="expected 0 to 2, got 7"):
            writer.append(obs, np.where(first, -1, 7), rewards, never, never)
    view = buffer.view()
    assert (view.get(view.starts())["action"] == 0).all()


@pytest.mark.parametrize("dtype", ["uint8", "int8", "int64"])
@pytest.mark.parametrize("value", [-1, 1000])
def test_beside_a_last_observation_values_need_not_fit_their_dtype(dtype: str, value: int) -> None:
    schema = Schema({**PLAIN.fields, "action": Column((2,), dtype)})
    buffer = ReplayBuffer(BufferConfig(50, storage="steps"), schema=schema)
    writer = buffer.writer(2, "next_step")
    obs, rewards = np.zeros((2, 2), np.float32), np.ones(2, np.float32)
    first, never = np.array([True, False]), np.zeros(2, bool)
    given = np.where(first[:, None], value, np.array([[0, 0], [3, 4]]))
    writer.append(obs, given * 0, rewards, first, never)
    writer.append(obs, given, rewards, never, never)
    writer.append(obs, given * 0, rewards, never, never)
    view = buffer.view()
    assert (view.get(view.starts())["action"] == [3, 4]).all(axis=1).sum() == 1
    assert given[0, 0] == value
