"""Batches of many sizes: items are made some at a time, and each lands in its own place."""

from __future__ import annotations

from typing import Any

import pytest

from replay_buffer import FrameStack, NStep, Sequence
from views.compare import check_view
from views.world import World

SIZES = (1, 2, 63, 64, 65, 127, 128, 129, 257, 1000)
VIEWS: list[tuple[Any, ...]] = [
    (),
    (NStep(3, gamma=0.9),),
    (NStep(9, gamma=0.9),),
    (NStep(64, gamma=0.9),),
    (NStep(65, gamma=0.9),),
    (FrameStack(3), NStep(2)),
    (Sequence(5, burn_in=2),),
]


@pytest.mark.parametrize("parts", VIEWS, ids=repr)
@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
def test_batches_of_any_size_match_the_oracle(strategy: str, parts: tuple[Any, ...]) -> None:
    world = World(400, strategy=strategy, block_rows=64)
    world.run(world.open(3), 190, [70, 1, 6, 2, 30])
    world.run(world.open(1), 75, [75, 3])
    world.sync()
    for size in SIZES:
        check_view(world, parts, draws=size)
