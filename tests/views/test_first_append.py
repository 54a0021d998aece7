"""An append that raises settles no columns, and final_obs is checked as obs is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, InvalidArgument, ReplayBuffer, SchemaMismatch
from views.world import FLAGS

NO = np.zeros(2, bool)
END = np.array([False, True])
RIGHT: dict[str, Any] = {
    "obs": np.zeros((2, 3)),
    "action": np.zeros(2),
    "reward": np.zeros(2),
    "terminated": END,
    "truncated": NO,
    "final_obs": np.ones((2, 3)),
}
REST = {"action": Column(), "reward": Column(), **FLAGS}


def cut(rows: int) -> dict[str, Any]:
    return {name: np.resize(value, (rows, *value.shape[1:])) for name, value in RIGHT.items()}


@pytest.mark.parametrize(
    "wrong",
    [
        cut(1),
        cut(3),
        {**RIGHT, "final_obs": None},
        {**RIGHT, "final_obs": [None, None]},
        {**RIGHT, "final_obs": np.ones((2, 4))},
        {**RIGHT, "final_obs": np.ones((3, 3))},
        {**RIGHT, "final_obs": {"a": np.ones((2, 3))}},
        {**RIGHT, "priority": np.ones(2)},
        {**RIGHT, "timeout": -1},
        {**RIGHT, "mask": np.ones(2)},
        {**RIGHT, "terminated": np.zeros((2, 1), bool)},
    ],
    ids=range(11),
)
def test_a_first_append_that_raises_settles_nothing(wrong: dict[str, Any]) -> None:
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"))
    writer = buffer.writer(2)
    with pytest.raises((InvalidArgument, SchemaMismatch)):
        writer.append(**wrong)
    assert buffer.schema is None
    other = {**RIGHT, "obs": np.zeros((2, 5), np.uint8), "final_obs": np.ones((2, 5), np.uint8)}
    writer.append(**other)
    assert buffer.sample(2)["next_obs"].shape == (2, 5)


def test_a_first_append_of_one_stream_that_raises_settles_nothing() -> None:
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"))
    writer = buffer.writer()
    for final_obs in (None, [1.0], [1.0, 2.0, 3.0, 4.0], {"a": 1.0}):
        with pytest.raises((InvalidArgument, SchemaMismatch)):
            writer.append([0.0, 0.0, 0.0], 0, 1.0, True, False, final_obs=final_obs)
        assert buffer.schema is None
    writer.append([0.0, 0.0], 0, 1.0, True, False, final_obs=[1.0, 2.0])
    assert len(buffer) == 2


NESTED = {"a": Column((2,)), "b": {"c": Column()}}


def nested(rows: int, **more: Any) -> dict[str, Any]:
    return {"a": np.ones((rows, 2)), "b": {"c": np.ones(rows)}, **more}


@pytest.mark.parametrize(
    "final_obs",
    [
        nested(3),
        nested(1),
        {"a": np.ones((2, 2)), "b": {"c": np.ones(3)}},
        nested(2, extra=np.ones(2)),
        {"a": np.ones((2, 2)), "b": {"c": np.ones(2), "d": np.ones(2)}},
        {"a": np.ones((2, 2))},
        {"a": np.ones((2, 2)), "b": np.ones(2)},
        [None, {"a": [1, 1], "b": {"c": 1}}, None],
        [None, {"a": [1, 1], "b": {"c": 1, "d": 1}}],
        [None, {"a": [1, 1], "b": {"c": 1}, "extra": 1}],
        [None, [1, 1]],
    ],
    ids=range(11),
)
def test_last_observations_of_other_columns_or_rows_are_refused(final_obs: Any) -> None:
    schema = {"obs": NESTED, **REST}
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"), schema=schema)
    writer = buffer.writer(2)
    with pytest.raises(SchemaMismatch):
        writer.append(nested(2), np.zeros(2), np.zeros(2), END, NO, final_obs=final_obs)
    assert len(buffer) == 0
    writer.append(nested(2), np.zeros(2), np.zeros(2), END, NO, final_obs=nested(2))
    assert len(buffer) == 3


@pytest.mark.parametrize("kind", [np.float32, np.float64, list])
@pytest.mark.parametrize("rows", [1, 3])
def test_last_observations_of_more_or_fewer_streams_are_refused(rows: int, kind: Any) -> None:
    schema = {"obs": Column((2,)), **REST}
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"), schema=schema)
    final: Any = [[1.0, 1.0]] * rows if kind is list else np.ones((rows, 2), kind)
    with pytest.raises(SchemaMismatch, match="rows"):
        buffer.writer(2).append(
            np.zeros((2, 2)), np.zeros(2), np.zeros(2), END, NO, final_obs=final
        )


def test_of_one_stream_last_observations_have_no_other_columns() -> None:
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"), schema={"obs": NESTED, **REST})
    obs = {"a": [1, 1], "b": {"c": 1}}
    with pytest.raises(SchemaMismatch, match="extra"):
        buffer.writer().append(obs, 0, 1.0, True, False, final_obs={**obs, "extra": 1})
