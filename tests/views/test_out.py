"""`out=`: the same batch in the caller's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    Hindsight,
    InvalidArgument,
    NStep,
    SchemaMismatch,
    Sequence,
    Trajectory,
)
from views.compare import VIEWS
from views.goals import GoalWorld, distance
from views.reused import check_same
from views.world import World, flat, nested

LONGEST = 4


def filled(strategy: str) -> World:
    world = World(60, kind="nested", strategy=strategy, seed=11)
    world.run(world.open(3), 40, [4, 1, 3])
    return world


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
@pytest.mark.parametrize("parts", VIEWS, ids=repr)
def test_out_gets_the_batch_of_the_same_seed(parts: tuple[Any, ...], strategy: str) -> None:
    one, two = filled(strategy).buffer.view(*parts), filled(strategy).buffer.view(*parts)
    out = None
    for _ in range(3):
        batch = one.sample(16)
        if out is None:
            out = nested({k: np.full_like(v, 3) for k, v in flat(batch).items()})
        again = two.sample(16, out=out)
        assert again is out
        check_same(out, batch)


def test_out_of_whole_episodes_has_their_time() -> None:
    parts = (Trajectory(LONGEST),)
    one, two = filled("uniform").buffer.view(*parts), filled("uniform").buffer.view(*parts)
    batch = one.sample(8)
    assert batch["mask"].shape == (8, LONGEST)
    out = nested({k: np.empty_like(v) for k, v in flat(batch).items()})
    two.sample(8, out=out)
    for path, array in flat(batch).items():
        np.testing.assert_array_equal(flat(out)[path], array, err_msg=path)


@pytest.mark.parametrize("parts", [(), (NStep(3, 0.5),)])
def test_out_of_relabelled_goals(parts: tuple[Any, ...]) -> None:
    views = []
    for _ in range(2):
        world = GoalWorld()
        for length in (5, 3, 8):
            world.episode(length)
        views.append(world.buffer.view(Hindsight("future", reward=distance), *parts))
    batch = views[0].sample(32)
    out = nested({k: np.empty_like(v) for k, v in flat(batch).items()})
    assert views[1].sample(32, out=out) is out
    for path, array in flat(batch).items():
        np.testing.assert_array_equal(flat(out)[path], array, err_msg=path)


@pytest.mark.parametrize(
    "parts", [(), (NStep(3),), (Sequence(3),), (Trajectory(3),), (Trajectory(),)], ids=repr
)
def test_out_of_a_wrong_shape_or_dtype_is_refused(parts: tuple[Any, ...]) -> None:
    view = filled("uniform").buffer.view(*parts)
    batch = flat(view.sample(8))
    for path, array in batch.items():
        for wrong in (array[:-1], array.astype("complex64"), array.tolist(), None):
            with pytest.raises(ValueError, match="out"):
                view.sample(8, out=nested({**batch, path: wrong}))
        missing = {k: v for k, v in batch.items() if k != path}
        with pytest.raises(ValueError, match="out"):
            view.sample(8, out=nested(missing))


def test_hindsight_refuses_out_before_the_reward_is_asked() -> None:
    asked = []

    def reward(achieved: Any, goals: Any, info: dict[str, Any]) -> Any:
        asked.append(len(goals))
        return distance(achieved, goals, info)

    world = GoalWorld()
    world.episode(5)
    view = world.buffer.view(Hindsight("future", reward=reward))
    batch = flat(view.sample(8))
    asked.clear()
    for path, array in batch.items():
        with pytest.raises(ValueError, match="out"):
            view.sample(8, out=nested({**batch, path: array[:-1]}))
    assert not asked


def goals() -> GoalWorld:
    world = GoalWorld()
    world.episode(3)
    return world


@pytest.mark.parametrize(
    "view",
    [
        filled("uniform").buffer.view(Trajectory(3)),
        filled("uniform").buffer.view(Trajectory()),
        goals().buffer.view(Hindsight("future", reward=distance)),
    ],
    ids=["Trajectory of a length", "Trajectory", "Hindsight"],
)
def test_out_that_is_refused_is_left_as_it_was(view: Any) -> None:
    with pytest.raises(InvalidArgument, match="out must be a dict"):
        view.sample(8, out=[])
    out = {k: np.full_like(v, 3) for k, v in flat(view.sample(8)).items()}
    out["reward"].flags.writeable = False
    with pytest.raises(SchemaMismatch, match="writable"):
        view.sample(8, out=nested(out))
    assert all((array == np.full_like(array, 3)).all() for array in out.values())
