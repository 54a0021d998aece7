"""Where a stream is cut: by end(), by closing its writer, by clear()."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from crash.processes import in_child
from replay_buffer import FrameStack, NotEnoughRows, Sequence, Trajectory
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


AUTORESETS = ["same_step", "next_step"]


def finished(world: World) -> tuple[int, int, float, list[int]]:
    episodes = world.buffer.stats()["episodes"]
    return (
        episodes["finished"],
        episodes["steps"],
        episodes["return_sum"],
        episodes["latest_lengths"],
    )


@pytest.mark.parametrize("autoreset", AUTORESETS)
@pytest.mark.parametrize("before", [1, 2, 4])
@pytest.mark.parametrize("after", [1, 3])
def test_what_is_left_of_an_episode_after_a_clear_is_nobodys_trajectory(
    autoreset: str, before: int, after: int
) -> None:
    """It has no return, and does not count; the next episode does."""
    world = World(60, block_rows=8)
    to = world.open(2, autoreset)
    for _ in range(before):
        world.append(to)
    world.clear()
    for _ in range(after - 1):
        world.append(to)
    world.append(to, ["terminated", ""])
    if autoreset == "next_step":
        world.append(to)
    check(world)
    assert list(world.buffer.episodes()) == []
    assert world.buffer.view(Trajectory()).starts().size == 0
    assert finished(world) == (0, 0, 0.0, [])
    for end in ("", "terminated"):
        world.append(to, [end, ""])
    if autoreset == "next_step":
        world.append(to)
    check(world)
    (whole,) = world.buffer.episodes()
    assert finished(world) == (1, 2, pytest.approx(whole["reward"].sum()), [2])


@pytest.mark.parametrize("autoreset", AUTORESETS)
def test_an_episode_that_ended_when_the_buffer_was_cleared_has_nothing_left(autoreset: str) -> None:
    """Its last observation may come after the clear; the episode was whole, and was counted."""
    world = World(60, block_rows=8)
    to = world.open(1, autoreset)
    world.run(to, 3, [3])
    world.clear()
    if autoreset == "next_step":
        world.append(to)
    assert finished(world)[:2] == (1, 3)
    world.run(to, 4, [3, 4, 4])
    check(world)
    assert finished(world)[:2] == (2, 7)


def test_frames_that_were_cleared_are_not_made_up() -> None:
    """A stack is padded with the first frame of its episode, and with no other."""
    world = World(60, block_rows=8)
    to = world.open(1)
    world.run(to, 5)
    world.clear()
    ids = [world.append(to)[0] for _ in range(4)]
    check(world)
    assert world.buffer.view(FrameStack(3)).starts().tolist() == ids[2:3]
    with pytest.raises(NotEnoughRows):
        world.buffer.view(FrameStack(4)).sample(1)
    burnt = world.buffer.view(Sequence(2, burn_in=2))
    batch = burnt.get([ids[0]])
    assert batch["mask"].tolist() == [[False, False, True, True]]
    assert not batch["is_first"].any()


def test_a_clear_keeps_the_numbers_that_periods_go_by() -> None:
    world = World(60, block_rows=8)
    to = world.open(1)
    world.run(to, 5)
    world.clear()
    ids = [world.append(to)[0] for _ in range(7)]
    starts = world.buffer.view(Sequence(2, period=4)).starts().tolist()
    assert starts == [ids[3]]  # numbers 8 of the episode, of 5 to 11


@pytest.mark.parametrize("location", [None, "shm:"])
def test_what_is_left_of_an_episode_in_a_forked_child_is_nobodys_trajectory(
    location: Any,
) -> None:
    """The child's writer goes on in a block of its own; the start is in the parent's."""
    world = World(60, block_rows=8, location=location)
    to = world.open(1)
    world.run(to, 3)

    def go_on() -> None:
        ids = [world.append(to)[0] for _ in range(3)]
        ids += world.append(to, ["terminated"])
        assert list(world.buffer.episodes()) == []
        assert finished(world)[0] == 0
        assert set(ids[2:]) <= set(world.buffer.view(FrameStack(3)).starts().tolist())
        assert not set(ids[:2]) & set(world.buffer.view(FrameStack(3)).starts().tolist())
        world.run(to, 2, [1, 2])
        (whole,) = world.buffer.episodes()
        assert finished(world)[:2] == (1, 2)
        assert whole["reward"].size == 2

    assert in_child(go_on) == 0
    world.append(to, ["terminated"])
    lengths = [np.size(episode["reward"]) for episode in world.buffer.episodes()]
    assert lengths == ([4] if location is None else [2, 4] if lengths[0] == 2 else [4, 2])
    world.buffer.close()
