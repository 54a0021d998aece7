"""Whole episodes: iterated, counted, and what stats say of them."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

from replay_buffer import BufferConfig, ReplayBuffer, Trajectory
from views.compare import expected
from views.oracle import Episode
from views.world import World, flat


def check_episodes(world: World) -> int:
    """Fails unless episodes() gives what the oracle has, the oldest first."""
    world.sync()
    items = expected(world, (Trajectory(),))
    found = list(world.buffer.episodes())
    assert [int(episode["indices"]) for episode in found] == sorted(items)
    for episode in found:
        item = items[int(episode["indices"])]
        length = item["lengths"]
        arrays = flat(episode)
        del arrays["indices"]
        for path, array in arrays.items():
            final = path.startswith("final_")
            wanted = item[path] if final else item[path][:length]
            np.testing.assert_array_equal(array, np.asarray(wanted, array.dtype), err_msg=path)
        assert set(arrays) == set(item) - {"mask", "is_first", "lengths"}
    return len(found)


@pytest.mark.parametrize("kind", ["vector", "nested"])
@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_episodes_are_whole_and_in_order(kind: str, autoreset: str) -> None:
    world = World(60, kind=kind, block_rows=7)
    to = world.open(3, autoreset)
    most = 0
    for _ in range(80):
        world.run(to, 1, [4, 1, 6])
        most = max(most, check_episodes(world))
    assert most > 5


def test_cut_episodes_are_not_whole() -> None:
    world = World(60)
    to = world.open(1)
    world.run(to, 4)
    world.end(to, 0)
    world.run(to, 3)
    world.close(to)
    assert check_episodes(world) == 0


def test_a_buffer_without_steps_has_no_episodes() -> None:
    world = World(10)
    assert list(world.buffer.episodes()) == []


def finished(world: World) -> list[Episode]:
    """The episodes that ended, in no order."""
    found = [e for stream in world.oracle.streams for e in stream.episodes]
    return [episode for episode in found if episode.final and episode.steps]


def return_of(episode: Episode) -> float:
    return float(sum(step.values["reward"] for step in episode.steps))


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
@pytest.mark.parametrize("steps", [1, 30, 400])
def test_stats_tell_lengths_and_returns_of_the_episodes_that_ended(
    steps: int, autoreset: str
) -> None:
    world = World(40, reward="float64")
    to = world.open(3, autoreset)
    world.run(to, steps, [4, 1, 6])
    world.append(to, [""] * 3)  # last observations that are still to come
    ended = finished(world)
    told = world.buffer.stats()["episodes"]
    assert told["finished"] == len(ended)
    assert told["steps"] == sum(len(episode.steps) for episode in ended)
    assert told["return_sum"] == pytest.approx(sum(map(return_of, ended)), abs=1e-9)
    assert len(told["latest_lengths"]) == len(told["latest_returns"]) == min(128, len(ended))
    known = {(len(e.steps), round(return_of(e), 9)) for e in ended}
    latest = zip(told["latest_lengths"], told["latest_returns"], strict=True)
    assert {(length, round(total, 9)) for length, total in latest} <= known


def test_cut_episodes_are_not_counted_as_ended() -> None:
    world = World(40)
    to = world.open(2)
    world.run(to, 5)
    world.end(to, 0)
    world.close(to)
    assert world.buffer.stats()["episodes"]["finished"] == 0


def test_before_the_first_row_stats_tell_of_no_episodes_in_the_same_words() -> None:
    empty = ReplayBuffer(BufferConfig(20, storage="steps")).stats()["episodes"]
    assert empty == World(20).buffer.stats()["episodes"]
    assert empty["finished"] == empty["steps"] == empty["return_sum"] == 0
    assert "episodes" not in ReplayBuffer(BufferConfig(20)).stats()


def test_lengths_and_returns_are_in_a_checkpoint(tmp_path: Path) -> None:
    world = World(200)
    world.run(world.open(2), 40, [7, 5, 3])
    world.buffer.checkpoint(tmp_path / "c")
    told = world.buffer.stats()["episodes"]
    assert told["latest_lengths"]
    assert ReplayBuffer.restore(tmp_path / "c").stats()["episodes"] == told
