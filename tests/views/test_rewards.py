"""Which rewards a view needs, and what the function of Hindsight is called with."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    Hindsight,
    InvalidArgument,
    NStep,
    ReplayBuffer,
    Sequence,
    Trajectory,
)
from views.goals import SCHEMA as GOALS
from views.goals import GoalWorld, distance
from views.world import FLAGS

ODD: dict[str, tuple[Column, Any, str]] = {
    "compressed": (Column((500,), compression="lz4"), np.ones(500), "not compressed"),
    "of any length": (Column((None,)), [0.5, 1.0], "float32 or float64, of one length"),
    "a whole number": (Column((), "int32"), 3, "float32 or float64, of one length"),
}


def buffer_with(reward: Column, value: Any) -> ReplayBuffer:
    fields = {"obs": Column((2,)), "action": Column(), "reward": reward, **FLAGS}
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"), schema=fields)
    with buffer.writer() as writer:
        for t in range(4):
            writer.append([t, t], 0.0, value, t == 3, False, final_obs=[9, 9])
    return buffer


@pytest.mark.parametrize("kind", ODD)
def test_views_that_add_no_rewards_take_any(kind: str) -> None:
    buffer = buffer_with(*ODD[kind][:2])
    given = np.asarray(ODD[kind][1])
    (episode,) = buffer.episodes()
    for batch in (
        buffer.sample(3),
        buffer.view(Sequence(2)).sample(3),
        buffer.view(Trajectory()).sample(2),
        buffer.view(FrameStack(2)).sample(3),
        episode,
    ):
        reward = batch["reward"]
        if isinstance(reward, dict):
            assert set(reward["values"].tolist()) == set(given.tolist())
        else:
            there = batch.get("mask", ...)
            assert (reward[there] == given).all()


@pytest.mark.parametrize("kind", ODD)
def test_n_step_says_what_reward_it_needs(kind: str) -> None:
    reward, value, said = ODD[kind]
    buffer = buffer_with(reward, value)
    with pytest.raises(InvalidArgument, match=said):
        buffer.view(NStep(2))


def test_n_step_takes_a_reward_that_is_too_small_to_be_compressed() -> None:
    buffer = buffer_with(Column((), compression="lz4"), 0.5)
    assert buffer.view(NStep(2, 1.0)).get([0])["reward"] == 1


@pytest.mark.parametrize(
    "reward", [Column((2,)), Column((1,)), Column((None,)), Column((), "int32")], ids=str
)
@pytest.mark.parametrize("parts", [(), (NStep(2),)], ids=["one step", "n steps"])
def test_hindsight_needs_a_reward_that_is_one_number(reward: Column, parts: Any) -> None:
    schema = {**GOALS.fields, "reward": reward}
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"), schema=schema)
    with pytest.raises(InvalidArgument, match="reward"):
        buffer.view(Hindsight(reward=distance), *parts)


@pytest.mark.parametrize("n", [1, 3, 5])
def test_rewards_are_asked_for_goals_that_were_reached_and_no_others(n: int) -> None:
    world = GoalWorld()
    for length in (2, 1, 4):
        world.episode(length)
    asked: list[int] = []

    def reward(achieved: Any, goals: Any, info: Any) -> Any:
        assert achieved.shape == goals.shape
        assert (achieved != 0).all()
        asked.append(len(achieved))
        return distance(achieved, goals, info)

    view = world.buffer.view(Hindsight("future", 4, reward), NStep(n, 0.5))
    batch = view.sample(64)
    assert asked == [batch["k"][batch["relabelled"]].sum()]


def test_what_is_wrong_with_a_column_for_goals_is_said() -> None:
    buffer = GoalWorld().buffer
    with pytest.raises(InvalidArgument, match="not stacked, 'obs/achieved_goal' is"):
        buffer.view(Hindsight(reward=distance), FrameStack(2))
    buffer.view(Hindsight(reward=distance), FrameStack(2, columns=("obs/observation",)))
    schema = {**GOALS.fields, "where": Column((2,)), "to": Column((2,))}
    other = ReplayBuffer(BufferConfig(20, storage="steps"), schema=schema)
    with pytest.raises(InvalidArgument, match="parts of obs: 'where' is not"):
        other.view(Hindsight(reward=distance, achieved="where", goal="to"))


@pytest.mark.parametrize("stack", [(), (FrameStack(2),)], ids=["plain", "stacked"])
def test_what_counts_for_nothing_may_be_infinite(stack: tuple[Any, ...]) -> None:
    buffer = ReplayBuffer(BufferConfig(100, storage="steps"), obs_shape=(4,), action_dim=4)
    writer = buffer.writer()
    for t in range(30):
        writer.append(np.zeros(4, np.float32), 0, np.inf if t % 3 == 2 else 1.0, False, False)
    view = buffer.view(*stack, NStep(3, gamma=0.0))
    assert set(view.get(view.starts())["reward"].tolist()) == {1.0, np.inf}


@pytest.mark.parametrize(
    "reward",
    [
        lambda n: np.array([None] * n),
        lambda n: np.ones(n) * 1j,
        lambda n: ["x"] * n,
        lambda n: np.ma.masked_all(n),
    ],
    ids=["None", "complex", "text", "masked"],
)
def test_a_reward_of_hindsight_is_a_number(reward: Any) -> None:
    world = GoalWorld()
    world.episode(6)
    view = world.buffer.view(Hindsight("future", 1e9, lambda a, goals, info: reward(len(a))))
    with pytest.raises(InvalidArgument, match="expected numbers"):
        view.sample(8)
