"""Views of which no row is a start."""

from __future__ import annotations

from typing import Any

import pytest

from replay_buffer import FrameStack, NotEnoughRows, NStep, Sequence, Trajectory
from views.world import World

#: Views that make nothing of steps without a successor.
NEED_SUCCESSORS: list[tuple[Any, ...]] = [
    (),
    (NStep(3),),
    (FrameStack(2),),
    (Sequence(2, pad=False),),
    (Trajectory(),),
]


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
@pytest.mark.parametrize("parts", NEED_SUCCESSORS, ids=repr)
def test_a_view_without_starts_says_so(parts: tuple[Any, ...], strategy: str) -> None:
    world = World(500, strategy=strategy)
    view = world.buffer.view(*parts)
    with pytest.raises(NotEnoughRows):
        view.sample(4)
    to = world.open(9)
    for _ in range(40):  # many rows, none of them with a successor
        world.run(to, 1)
        for stream in range(9):
            world.end(to, stream)
    assert len(world.buffer) == 360
    assert view.starts().size == 0
    with pytest.raises(NotEnoughRows):
        view.sample(4)
