"""A column that is called like an array of a view is refused, in Python and by the core."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    Hindsight,
    InvalidArgument,
    NStep,
    ReplayBuffer,
    Sequence,
    Trajectory,
)
from replay_buffer.outputs import spec
from replay_buffer.plan import Plan
from views.goals import SCHEMA as GOALS
from views.goals import distance
from views.world import FLAGS

STEPS: dict[str, Any] = {
    "obs": Column((2,)),
    "action": Column((), "int64"),
    "reward": Column(),
    **FLAGS,
}
TRANSITIONS: dict[str, Any] = {
    "obs": Column((2,)),
    "reward": Column(),
    "done": Column((), "bool"),
}
PADDED = {**STEPS, "obs": Column((None,), padded=True)}
DEEP = {**STEPS, "obs": {"x": Column((None,), padded=True), "y": Column()}}
WIDE = Column((64,))


def buffer_of(fields: dict[str, Any], storage: Any = "steps") -> ReplayBuffer:
    return ReplayBuffer(BufferConfig(100, storage=storage), schema=fields)


@pytest.mark.parametrize("name", ["k", "discount"])
def test_a_column_of_transitions_has_no_name_that_n_step_gives(name: str) -> None:
    buffer = buffer_of({**TRANSITIONS, name: WIDE}, "transitions")
    with pytest.raises(InvalidArgument, match=f"column '{name}'.* array '{name}'"):
        buffer.view(NStep(3))


def test_a_group_of_columns_has_no_name_that_n_step_gives() -> None:
    buffer = buffer_of({**TRANSITIONS, "k": {"x": WIDE}}, "transitions")
    with pytest.raises(InvalidArgument, match=r"column 'k/x'.* array 'k'"):
        buffer.view(NStep(3))


def test_columns_settled_by_the_first_row_are_refused_when_they_are_known() -> None:
    buffer = ReplayBuffer(BufferConfig(100))
    view = buffer.view(NStep(3))
    row = {"obs": [0.0, 1.0], "k": np.zeros(64), "reward": 1.0, "done": False}
    for _ in range(8):
        buffer.add(**row)
    for call in (lambda: view.sample(256), view.starts, lambda: view.get([0])):
        with pytest.raises(InvalidArgument, match="column 'k'"):
            call()
    assert buffer.sample(4)["k"].shape == (4, 64)


@pytest.mark.parametrize("name", ["~goal", "~rows"])
def test_a_column_of_steps_has_no_name_that_hindsight_needs(name: str) -> None:
    buffer = buffer_of({**GOALS.fields, name: Column()})
    buffer.view(NStep(3))
    with pytest.raises(InvalidArgument, match=f"column '{name}'.* array '{name}"):
        buffer.view(Hindsight(reward=distance), NStep(3))


@pytest.mark.parametrize(
    ("fields", "name", "parts"),
    [
        (PADDED, "next_obs_mask", ()),
        (PADDED, "next_obs_mask", (NStep(2),)),
        (PADDED, "next_obs_mask", (Sequence(2, next_obs=True),)),
        (PADDED, "final_obs_mask", (Trajectory(),)),
    ],
)
def test_a_column_has_no_name_of_a_mask(fields: Any, name: str, parts: Any) -> None:
    buffer = buffer_of({**fields, name: WIDE})
    with pytest.raises(InvalidArgument, match=f"column '{name}'.* array '{name}'"):
        buffer.view(*parts)


def test_the_mask_of_a_column_has_no_name_that_a_sequence_gives() -> None:
    buffer = buffer_of({**STEPS, "next": Column((None,), padded=True)})
    buffer.view(Sequence(2))
    with pytest.raises(InvalidArgument, match=r"column 'next'.* array 'next_mask'"):
        buffer.view(Sequence(2, next_obs=True))


@pytest.mark.parametrize("name", ["next_obs_mask", "final_obs_mask", "k_", "kx", "~goal"])
@pytest.mark.parametrize("parts", [(NStep(2),), (Sequence(2, next_obs=True),), (Trajectory(),)])
def test_names_that_no_array_has_are_free(name: str, parts: Any) -> None:
    for fields in (STEPS, DEEP):
        buffer_of({**fields, name: Column()}).view(*parts)


@pytest.mark.parametrize("names", [("k", "k"), ("k", "k/x"), ("k/x", "k-a", "k"), ("indices",)])
def test_the_core_refuses_two_arrays_of_one_name(names: tuple[str, ...]) -> None:
    buffer = buffer_of(STEPS)
    assert buffer.schema is not None
    made = spec(Plan.of([NStep(2)]), buffer.schema, buffer.config)
    outputs = [(name, 4, -1, False, 4, []) for name in names]
    with pytest.raises(InvalidArgument, match="two arrays"):
        buffer._engine.target.recipe(made, outputs)


def test_the_core_refuses_an_array_of_the_name_of_a_mask() -> None:
    buffer = buffer_of(PADDED)
    assert buffer.schema is not None
    made = spec(Plan(), buffer.schema, buffer.config)
    outputs = [("obs", 0, 0, False, 11, []), ("obs_mask", 4, -1, False, 4, [])]
    with pytest.raises(InvalidArgument, match="'obs_mask'"):
        buffer._engine.target.recipe(made, outputs)
