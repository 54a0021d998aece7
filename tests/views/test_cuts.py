"""Where a stream is cut: by end(), by closing its writer, by clear()."""

from __future__ import annotations

import pytest

from views.compare import VIEWS, check
from views.world import World


def test_the_last_observation_after_a_clear_is_still_one() -> None:
    world = World(30)
    to = world.open(2, "next_step")
    world.append(to, ["", ""])
    world.append(to, ["truncated", ""])
    world.clear()
    ids = world.append(to, ["", ""])  # of stream 0 the last observation, of nothing now
    assert ids[0] not in world.buffer.view().starts()
    check(world, VIEWS)
    for _ in range(3):
        world.append(to, ["", ""])
        check(world, VIEWS)
    assert ids[0] not in world.buffer.view().starts()
    assert ids[1] in world.buffer.view().starts()


def test_after_end_the_next_step_is_the_first_of_an_episode() -> None:
    world = World(30)
    to = world.open(1, "next_step")
    world.append(to, [""])
    world.append(to, ["terminated"])
    world.end(to, 0)  # its last observation never comes
    first = world.append(to, [""])
    world.append(to, [""])
    check(world, VIEWS)
    assert first[0] in world.buffer.view().starts()


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("how", ["end", "close", "clear"])
def test_nothing_goes_over_a_cut(how: str, autoreset: str) -> None:
    world = World(50, block_rows=6)
    to = world.open(2, autoreset)
    for i in range(40):
        world.run(to, 1, [9, 4])
        if i % 7 == 6 and how == "end":
            world.end(to, i % 2)
        elif i % 7 == 6 and how == "close":
            world.close(to)
            to = world.open(2, autoreset)
        elif i % 7 == 6:
            world.clear()
        if len(world.buffer):
            check(world, VIEWS[i % 3 :: 3])
