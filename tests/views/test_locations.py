"""Views are the same in every location, after reopening, and after checkpoint and restore."""

from __future__ import annotations

import tempfile
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from replay_buffer import ReplayBuffer
from views.compare import VIEWS, check
from views.scripts import ACTIONS, Action, Setting, play, settings_of
from views.world import World

SLOW = [HealthCheck.too_slow, HealthCheck.function_scoped_fixture]


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
@given(settings_of(), st.lists(ACTIONS, max_size=25), st.lists(ACTIONS, max_size=25))
def test_views_of_shared_memory(setting: Setting, one: list[Action], two: list[Action]) -> None:
    world = setting.world(location="shm:")
    for action in one + two:
        play(world, setting, action)
    check(world)
    world.buffer.close()


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
@given(settings_of(), st.lists(ACTIONS, max_size=25), st.lists(ACTIONS, max_size=25))
def test_views_of_a_file_that_is_opened_again_and_written_on(
    setting: Setting, one: list[Action], two: list[Action]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        location = f"file:{folder}/steps.rb"
        world = setting.world(location=location)
        for script in (one, two):
            for action in script:
                play(world, setting, action)
            check(world, VIEWS[::2])
            world.buffer.close()
            world.moved(ReplayBuffer.open(location))
            check(world)
        world.buffer.close()


@settings(max_examples=20, deadline=None, suppress_health_check=SLOW)
@given(settings_of(), st.lists(ACTIONS, max_size=25), st.lists(ACTIONS, max_size=25))
def test_views_of_a_restored_checkpoint_that_is_written_on(
    setting: Setting, one: list[Action], two: list[Action]
) -> None:
    with tempfile.TemporaryDirectory() as folder:
        world = setting.world()
        for script in (one, two):
            for action in script:
                play(world, setting, action)
            world.buffer.checkpoint(f"{folder}/saved")
            world.moved(ReplayBuffer.restore(f"{folder}/saved"))
            check(world)
        world.buffer.close()


@pytest.mark.parametrize("place", ["shm", "file"])
def test_a_second_handle_sees_the_same_views_and_writes_streams_of_its_own(
    place: str, tmp_path: Path
) -> None:
    location = f"file:{tmp_path}/a.rb" if place == "file" else f"shm:views-{tmp_path.name}"
    world = World(40, location=location, block_rows=4)
    first = world.open(2)
    world.run(first, 5, [3, 2])
    mine, other = world.buffer, ReplayBuffer.open(location)
    world.buffer = other
    second = world.open(3, "next_step")
    for i in range(20):
        world.run((first, second)[i % 2], 1, [4, 1, 3])
        world.buffer = (mine, other)[i // 2 % 2]
        check(world, VIEWS[i % 4 :: 4])
    other.close()
    world.buffer = mine
    check(world)
    mine.unlink()
    mine.close()


@pytest.mark.parametrize("steps", [3, 10, 31])
def test_no_block_of_a_restored_buffer_is_held_by_nobody(steps: int, tmp_path: Path) -> None:
    world = World(24, block_rows=4)
    world.run(world.open(1), steps)
    world.buffer.checkpoint(tmp_path / "saved")
    world.moved(ReplayBuffer.restore(tmp_path / "saved"))
    world.run(world.open(1), 48)
    ids = world.buffer.latest(24)["indices"]
    assert ids.tolist() == list(range(ids[-1] - 23, ids[-1] + 1)), "old rows are still there"


def _checkpointed(world: World, folder: Path) -> ReplayBuffer:
    world.buffer.checkpoint(folder / "saved")
    return ReplayBuffer.restore(folder / "saved", f"file:{folder}/restored.rb")


def _reopened(world: World, folder: Path) -> ReplayBuffer:
    world.buffer.close()
    return ReplayBuffer.open(f"file:{folder}/steps.rb")


@pytest.mark.parametrize("again", [_checkpointed, _reopened])
@pytest.mark.parametrize("steps", [1, 3, 6, 7, 13, 40])
def test_open_episodes_are_cut_and_nothing_goes_on_from_them(
    again: Callable[[World, Path], ReplayBuffer], steps: int, tmp_path: Path
) -> None:
    world = World(20, location=f"file:{tmp_path}/steps.rb", block_rows=3)
    world.run(world.open(1), steps)
    world.moved(again(world, tmp_path))
    check(world)
    to = world.open(1)
    for _ in range(25):
        world.run(to, 1)
        check(world, VIEWS[::3])
    world.buffer.close()
