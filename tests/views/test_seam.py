"""Wraps at every offset: small rings, every fill level, every block size."""

from __future__ import annotations

import pytest

from replay_buffer import FrameStack, NStep, Sequence, Trajectory
from views.compare import VIEWS, check
from views.world import World

SEAM: list[tuple[object, ...]] = [
    (NStep(3, 0.9), FrameStack(2)),
    (Sequence(4, burn_in=2, next_obs=True),),
    (Sequence(3, burn_in=2, cross_episodes=True),),
    (Trajectory(),),
]


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize(("width", "block_rows"), [(1, 1), (1, 3), (2, 3), (3, 4), (4, None)])
def test_views_are_exact_at_every_offset_of_the_seam(
    width: int, block_rows: int | None, autoreset: str
) -> None:
    world = World(4 * width + 1, block_rows=block_rows)
    to = world.open(width, autoreset)
    for _ in range(3 * world.buffer.capacity):
        world.run(to, 1, [3, 1, 5, 2])
        check(world, SEAM)


@pytest.mark.parametrize("width", [1, 2, 5, 9])
def test_the_smallest_ring_a_writer_may_have(width: int) -> None:
    world = World(2 * width)
    to = world.open(width)
    for _ in range(12):
        world.run(to, 1, [2, 1, 4])
        check(world, VIEWS)


@pytest.mark.parametrize("block_rows", [2, 3, 5])
def test_two_writers_at_different_speeds_leave_holes_that_end_items(block_rows: int) -> None:
    world = World(24, block_rows=block_rows)
    fast, slow = world.open(2), world.open(3, "next_step")
    for i in range(60):
        world.run(fast, 1, [7, 2])
        if i % 5 == 0:
            world.run(slow, 1, [2, 1])
        check(world, SEAM)
