"""Rate limits count the steps that learners can draw."""

from __future__ import annotations

import time
from pathlib import Path
from typing import Any

import pytest

from replay_buffer import NStep, Sequence, Timeout, Trajectory
from replay_buffer.testing.crowd import Crowd
from views.compare import VIEWS, check
from views.world import World


@pytest.mark.parametrize("parts", [(), (NStep(3),), (Sequence(3),), (Trajectory(),)], ids=repr)
def test_views_wait_for_min_size(parts: tuple[Any, ...]) -> None:
    world = World(100, min_size=20)
    to = world.open(2)
    world.run(to, 5, [3, 2])
    view = world.buffer.view(*parts)
    with pytest.raises(Timeout):
        view.sample(4, timeout=0)

    def write() -> None:
        time.sleep(0.05)
        world.run(to, 30, [3, 2])

    with Crowd() as crowd:
        crowd.start(write)
        assert len(view.sample(4, timeout=60)["indices"]) == 4


def test_limits_change_nothing_of_what_views_make() -> None:
    world = World(60, samples_per_insert=1000.0, tolerance=1e9, min_size=4)
    world.run(world.open(3, "next_step"), 40, [4, 1, 3])
    check(world, VIEWS)


def test_a_file_with_checksums_has_the_same_views(tmp_path: Path) -> None:
    world = World(60, location=f"file:{tmp_path}/durable.rb", durable=True, block_rows=7)
    world.run(world.open(3), 40, [4, 1, 3])
    check(world, VIEWS)
    world.buffer.close()
