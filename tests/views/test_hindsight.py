"""Hindsight: goals that were reached, rewards of the function, and nothing else changed."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

from replay_buffer import FrameStack, Hindsight, NStep
from unit.prioritized.law import UNLIKELY
from views.compare import check_batch
from views.goals import GoalWorld, distance
from views.oracle import Values
from views.world import flat

STRATEGIES: list[Any] = ["future", "final", "episode"]


def world_of(*lengths: int, **options: Any) -> GoalWorld:
    world = GoalWorld(**options)
    for i, length in enumerate(lengths):
        world.episode(length, ("truncated", "terminated")[i % 2])
    world.sync()
    return world


def check(world: GoalWorld, batch: Values, strategy: str, n: int = 1, gamma: float = 1.0) -> None:
    """Fails unless every item is right, relabelled or not."""
    arrays = flat(batch)
    rows = {row.id: row for row in world.rows.values()}
    items: dict[int, Values] = {}
    for i, row_id in enumerate(arrays["indices"].tolist()):
        row = rows[row_id]
        item = world.oracle.transition(row, n, gamma)
        steps = world.oracle.steps(row, n)
        assert item is not None
        assert steps is not None
        goal = arrays["obs/desired_goal"][i].tolist()
        if arrays["relabelled"][i]:
            assert goal in world.oracle.goals(row, strategy, "obs/achieved_goal")
            reward = 0.0
            for power, step in enumerate(steps):
                after = world.oracle.after(step)
                assert after is not None
                reached = np.asarray([after.values["obs/achieved_goal"]])
                one = distance(reached, np.asarray([goal]), {})[0]
                reward += gamma**power * float(one)
            item |= {"reward": reward, "obs/desired_goal": goal, "next_obs/desired_goal": goal}
        item["relabelled"] = bool(arrays["relabelled"][i])
        if n == 1:
            del item["k"], item["discount"]
        items = {row_id: item}
        check_batch({k: v[i : i + 1] for k, v in arrays.items()}, items)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_goals_were_reached_and_rewards_are_those_of_the_function(strategy: Any) -> None:
    world = world_of(5, 1, 3, 8, 2)
    world.episode(4, "")  # goes on
    world.sync()
    view = world.buffer.view(Hindsight(strategy, reward=distance))
    check(world, view.sample(400), strategy)
    check(world, view.get(view.starts()), strategy)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_returns_of_several_steps_are_recomputed_with_the_new_goal(strategy: Any) -> None:
    world = world_of(5, 1, 3, 8, 2)
    view = world.buffer.view(Hindsight(strategy, reward=distance), NStep(3, 0.5))
    check(world, view.sample(400), strategy, 3, 0.5)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_goals_come_from_what_is_still_stored(strategy: Any) -> None:
    world = GoalWorld(24, block_rows=3)
    for i in range(12):
        world.episode(1 + i % 7, ("terminated", "truncated", "")[i % 3])
        if i % 3 == 2:
            world.writer.end(0)
            world.stream.cut()
        world.sync()
        check(world, world.buffer.view(Hindsight(strategy, reward=distance)).sample(60), strategy)


@pytest.mark.parametrize("k", [0, 0.5, 1, 4])
def test_k_of_k_plus_one_are_relabelled(k: float) -> None:
    world = world_of(6, 6, 6)
    batch = world.buffer.view(Hindsight("future", k, distance)).sample(8000)
    count = int(batch["relabelled"].sum())
    assert stats.binomtest(count, 8000, k / (k + 1)).pvalue > UNLIKELY


@pytest.mark.parametrize(("strategy", "first"), [("future", 1), ("episode", 0)])
def test_each_goal_that_may_be_chosen_is_chosen_equally_often(strategy: Any, first: int) -> None:
    world = world_of(6)
    start = int(world.buffer.view().starts().min())
    view = world.buffer.view(Hindsight(strategy, 1e9, distance))
    goals = np.concatenate(
        [view.get(np.full(50, start))["obs"]["desired_goal"][:, 0] for _ in range(40)]
    )
    reached = sorted(row.values["obs/achieved_goal"][0] for row in world.rows.values())
    counts = [int((goals == goal).sum()) for goal in reached]
    assert sum(counts) == 2000
    assert sum(counts[first:]) in (2000, 2000 - counts[0])
    assert stats.chisquare([c for c in counts if c]).pvalue > UNLIKELY
    assert sum(c > 0 for c in counts) >= len(reached) - 1


def test_the_final_goal_is_the_last_state_reached() -> None:
    world = world_of(4)
    batch = world.buffer.view(Hindsight("final", 1e9, distance)).sample(50)
    last = max(world.rows)
    assert set(batch["obs"]["desired_goal"][:, 0].tolist()) == {float(last)}


def test_the_reward_is_asked_once_for_a_batch() -> None:
    calls: list[int] = []

    def counted(achieved: Any, goals: Any, info: dict[str, Any]) -> Any:
        calls.append(len(achieved))
        return distance(achieved, goals, info)

    world = world_of(6, 3)
    batch = world.buffer.view(Hindsight("future", 4, counted)).sample(64)
    assert calls == [int(batch["relabelled"].sum())]


def test_storage_stays_as_it_is() -> None:
    world = world_of(6, 3, 9)
    before = flat(world.buffer.latest(100))
    for strategy in STRATEGIES:
        view = world.buffer.view(Hindsight(strategy, reward=distance), NStep(2))
        for _ in range(10):
            view.sample(64)
    after = flat(world.buffer.latest(100))
    for path, array in before.items():
        np.testing.assert_array_equal(array, after[path])


@pytest.mark.parametrize(
    "wrong", [lambda a, g, i: 1.0, lambda a, g, i: a, lambda a, g, i: a[:-1, 0]]
)
def test_a_reward_of_a_wrong_shape_is_refused(wrong: Any) -> None:
    world = world_of(6)
    with pytest.raises(ValueError, match="reward gave"):
        world.buffer.view(Hindsight("future", 1e9, wrong)).sample(8)


def test_what_the_reward_function_raises_comes_out() -> None:
    def broken(achieved: Any, goals: Any, info: dict[str, Any]) -> Any:
        raise KeyError("from the user")

    world = world_of(6)
    with pytest.raises(KeyError, match="from the user"):
        world.buffer.view(Hindsight("future", 1e9, broken)).sample(8)


def test_a_reward_function_that_raises_leaves_no_goal_without_its_reward() -> None:
    def fail(achieved: Any, goals: Any, info: Any) -> Any:
        raise RuntimeError("no reward today")

    world = world_of(5, 8)
    out = world.buffer.view(Hindsight(k=100, reward=distance)).sample(32)
    with pytest.raises(RuntimeError):
        world.buffer.view(Hindsight(k=100, reward=fail)).sample(32, out=out)
    out["relabelled"][:] = False  # as far as it came, it is what is stored
    check(world, out, "future")


def test_other_parts_of_the_observation_can_be_stacked() -> None:
    world = world_of(6, 4)
    stack = FrameStack(2, columns=("obs/observation",))
    batch = world.buffer.view(Hindsight("future", reward=distance), stack).sample(32)
    frames = batch["obs"]["observation"]
    assert frames.shape == (32, 2)
    assert (np.isin(frames[:, 1] - frames[:, 0], (0, 1))).all()
    assert batch["obs"]["desired_goal"].shape == (32, 2)
