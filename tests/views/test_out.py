"""`out=`: the same batch in the caller's arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import Hindsight, NStep, Sequence, Trajectory
from views.compare import VIEWS
from views.goals import GoalWorld, distance
from views.world import World, flat, nested

LONGEST = 4


def filled(strategy: str) -> World:
    world = World(60, kind="nested", strategy=strategy, seed=11)
    world.run(world.open(3), 40, [4, 1, 3])
    return world


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
@pytest.mark.parametrize("parts", [p for p in VIEWS if Trajectory() not in p], ids=repr)
def test_out_gets_the_batch_of_the_same_seed(parts: tuple[Any, ...], strategy: str) -> None:
    one, two = filled(strategy).buffer.view(*parts), filled(strategy).buffer.view(*parts)
    out = None
    for _ in range(3):
        batch = one.sample(16)
        if out is None:
            out = nested({k: np.full_like(v, 3) for k, v in flat(batch).items()})
        again = two.sample(16, out=out)
        assert again is out
        for path, array in flat(batch).items():
            np.testing.assert_array_equal(flat(out)[path], array, err_msg=path)


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


@pytest.mark.parametrize("parts", [(), (NStep(3),), (Sequence(3),), (Trajectory(3),)], ids=repr)
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
    world = GoalWorld()
    world.episode(5)
    view = world.buffer.view(Hindsight("future", reward=distance))
    batch = flat(view.sample(8))
    for path, array in batch.items():
        with pytest.raises(ValueError, match="out"):
            view.sample(8, out=nested({**batch, path: array[:-1]}))
