"""Hindsight: goals that were reached, rewards of the function, and nothing else changed."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest
from scipy import stats

from replay_buffer import FrameStack, Hindsight, NStep
from unit.prioritized.law import UNLIKELY
from views.compare import check_batch
from views.goals import GoalWorld, arrived, distance
from views.oracle import Row, Values
from views.world import flat

STRATEGIES: list[Any] = ["future", "final", "episode"]


def world_of(*lengths: int, **options: Any) -> GoalWorld:
    world = GoalWorld(**options)
    for i, length in enumerate(lengths):
        world.episode(length, ("truncated", "terminated")[i % 2])
    world.sync()
    return world


def relabelled(
    world: GoalWorld, row: Row, goal: list[float], part: Hindsight, n: NStep, stack: Any
) -> Values:
    """What a view makes of a row and the steps behind it when they pursue another goal."""
    steps = world.oracle.steps(row, n.n)
    assert steps is not None
    reward, ended, k = 0.0, False, 0
    while k < len(steps) and not ended:
        step = steps[k]
        after = world.oracle.after(step)
        assert after is not None
        reached = np.asarray([after.values["obs/achieved_goal"]])
        info = {"action": step.values["action"], "next_obs": {"achieved_goal": reached}}
        reward += n.gamma**k * float(distance(reached, np.asarray([goal]), info)[0])
        ended = part.terminated is not None and bool(arrived(reached, np.asarray([goal]), info)[0])
        k += 1
    item = world.oracle.transition(row, k, n.gamma, *stack)
    assert item is not None
    if part.terminated is not None:
        item |= {"terminated": ended, "discount": 0.0 if ended else n.gamma**k}
    return item | {"reward": reward, "obs/desired_goal": goal, "next_obs/desired_goal": goal}


def check(world: GoalWorld, batch: Values, *parts: Any) -> None:
    """Fails unless every item of a view of these parts is right, relabelled or not."""
    part = next(p for p in parts if isinstance(p, Hindsight))
    n = next((p for p in parts if isinstance(p, NStep)), NStep(1, 1.0))
    stack = next(((p.n, p.columns) for p in parts if isinstance(p, FrameStack)), ())
    arrays = flat(batch)
    rows = {row.id: row for row in world.rows.values()}
    for i, row_id in enumerate(arrays["indices"].tolist()):
        row = rows[row_id]
        item = world.oracle.transition(row, n.n, n.gamma, *stack)
        goal = arrays["obs/desired_goal"][i].tolist()
        if arrays["relabelled"][i]:
            assert goal in world.oracle.goals(row, part.strategy, "obs/achieved_goal")
            item = relabelled(world, row, goal, part, n, stack)
        assert item is not None
        item["relabelled"] = bool(arrays["relabelled"][i])
        check_batch({k: v[i : i + 1] for k, v in arrays.items()}, {row_id: item})


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_goals_were_reached_and_rewards_are_those_of_the_function(strategy: Any) -> None:
    world = world_of(5, 1, 3, 8, 2)
    world.episode(4, "")  # goes on
    world.sync()
    part = Hindsight(strategy, reward=distance)
    view = world.buffer.view(part)
    check(world, view.sample(400), part)
    check(world, view.get(view.starts()), part)


STACK = FrameStack(3, columns=("obs/observation",))
#: Options of a buffer, and what else is in the view.
AROUND: dict[str, tuple[dict[str, Any], list[Any]]] = {
    "uniform": ({}, []),
    "prioritized, stacked": ({"strategy": "prioritized", "block_rows": 4}, [STACK]),
    "rank": ({"strategy": "rank"}, []),
    "small blocks, stacked": ({"block_rows": 3}, [STACK]),
}


@pytest.mark.parametrize("around", AROUND)
@pytest.mark.parametrize("n", [None, 1, 3, 9])
@pytest.mark.parametrize("ends", [None, arrived], ids=["flags as stored", "ends at the goal"])
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_what_depends_on_the_goal_is_computed_again_together(
    strategy: Any, ends: Any, n: int | None, around: str
) -> None:
    options, others = AROUND[around]
    world = world_of(5, 1, 3, 8, 2, 12, **options)
    world.episode(4, "")  # is cut
    world.writer.end(0)
    world.stream.cut()
    world.episode(6, "")  # goes on
    world.sync()
    parts: list[Any] = [Hindsight(strategy, reward=distance, terminated=ends)]
    parts += [*others, NStep(n, 0.5)] if n else others
    view = world.buffer.view(*parts)
    out = view.sample(60)
    check(world, out, *parts)
    again = view.sample(60, out=out)
    assert again is out
    check(world, out, *parts)
    check(world, view.get(view.starts()), *parts)
    if ends is not None:
        met = out["relabelled"] & out["terminated"]
        assert met.any()
        assert (out["discount"][met] == 0).all()
    if "strategy" in options:
        assert view.update_priorities(out["indices"], np.ones(60)) == 60


def test_a_step_that_ended_its_episode_goes_on_when_the_new_goal_is_not_met() -> None:
    """It led to another goal's end; under the new one its observation is worth bootstrapping."""
    world = GoalWorld()
    for _ in range(9):
        world.episode(1, "terminated")
    never = Hindsight("future", 1e9, distance, lambda a, g, i: np.zeros(len(a), bool))
    batch = world.buffer.view(never).sample(50)
    assert batch["relabelled"].all()
    assert not batch["terminated"].any()
    assert (batch["discount"] == 1).all()


@pytest.mark.parametrize("n", [None, 4])
def test_the_functions_get_the_columns_of_each_step(n: int | None) -> None:
    world = world_of(5, 1, 3, 8, 2, 12)
    seen: list[int] = []

    def look(achieved: Any, goals: Any, info: Mapping[str, Any]) -> Any:
        assert list(info) == ["obs", "action", "reward", "terminated", "truncated", "next_obs"]
        assert (
            list(info["obs"]) == list(info["next_obs"]) == list(world.buffer.schema.fields["obs"])
        )
        numbers = info["obs"]["observation"]
        assert len(numbers) == len(achieved) == len(goals)
        assert (info["next_obs"]["observation"] == numbers + 1).all()
        assert (info["next_obs"]["achieved_goal"] == achieved).all()
        assert (info["obs"]["desired_goal"] != goals).any(axis=1).all()  # as it is stored
        assert (info["reward"] == -1).all()
        rows = [world.rows[number] for number in numbers.tolist()]
        for name in ("action", "terminated", "truncated"):
            assert info[name].tolist() == [row.values[name] for row in rows]
        seen.append(len(numbers))
        return np.zeros(len(achieved), bool)

    part = Hindsight("future", 1e9, look, look)
    batch = world.buffer.view(part, *([NStep(n)] if n else [])).sample(60)
    assert seen == [batch["k"].sum()] * 2


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_goals_come_from_what_is_still_stored(strategy: Any) -> None:
    world = GoalWorld(24, block_rows=3)
    for i in range(12):
        world.episode(1 + i % 7, ("terminated", "truncated", "")[i % 3])
        if i % 3 == 2:
            world.writer.end(0)
            world.stream.cut()
        world.sync()
        parts = Hindsight(strategy, reward=distance, terminated=arrived), NStep(1 + i % 4)
        check(world, world.buffer.view(*parts).sample(60), *parts)


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


@pytest.mark.parametrize(
    "wrong",
    [
        lambda a, g, i: False,
        lambda a, g, i: a == g,
        lambda a, g, i: np.zeros(len(a), np.float32),
        lambda a, g, i: np.ma.masked_equal(np.zeros(len(a), bool), False),
    ],
)
def test_ends_that_are_not_one_bool_for_each_step_are_refused(wrong: Any) -> None:
    world = world_of(6)
    with pytest.raises(ValueError, match="terminated gave"):
        world.buffer.view(Hindsight("future", 1e9, distance, wrong)).sample(8)


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
    for functions in ({"reward": fail}, {"reward": distance, "terminated": fail}):
        with pytest.raises(RuntimeError):
            world.buffer.view(Hindsight(k=100, **functions)).sample(32, out=out)
    out["relabelled"][:] = False  # as far as it came, it is what is stored
    check(world, out, Hindsight(k=100, reward=distance))


def test_other_parts_of_the_observation_can_be_stacked() -> None:
    world = world_of(6, 4)
    stack = FrameStack(2, columns=("obs/observation",))
    batch = world.buffer.view(Hindsight("future", reward=distance), stack).sample(32)
    frames = batch["obs"]["observation"]
    assert frames.shape == (32, 2)
    assert (np.isin(frames[:, 1] - frames[:, 0], (0, 1))).all()
    assert batch["obs"]["desired_goal"].shape == (32, 2)
