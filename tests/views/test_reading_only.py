"""Views never write: not to the segment, and a read-only handle is enough for them."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Hindsight, NStep, ReadOnly, ReplayBuffer
from views.compare import VIEWS, check, check_view
from views.goals import GoalWorld, distance
from views.world import World, flat

#: Counters of what was drawn are at the front of a segment; rows are behind them.
FRONT = 64 * 1024


def bytes_of(path: Path) -> np.ndarray[Any, Any]:
    return np.frombuffer(path.read_bytes(), np.uint8)


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
def test_sampling_changes_nothing_but_counters(strategy: str, tmp_path: Path) -> None:
    path = tmp_path / "a.rb"
    world = World(2000, location=f"file:{path}", strategy=strategy)
    world.run(world.open(3), 900, [4, 9, 1])
    world.buffer.flush()
    rows = flat(world.buffer.latest(2000))
    before = bytes_of(path)
    for parts in VIEWS:
        view = world.buffer.view(*parts)
        view.starts()
        for _ in range(5):
            view.get(view.sample(32)["indices"])
    list(world.buffer.episodes())
    world.buffer.flush()
    after = bytes_of(path)
    changed = np.flatnonzero(before != after)
    assert changed.size <= 64, "more than counters changed"
    assert changed.size == 0 or changed.max() < FRONT
    for name, array in flat(world.buffer.latest(2000)).items():
        np.testing.assert_array_equal(array, rows[name])
    world.buffer.close()


def test_relabelling_changes_nothing_but_counters(tmp_path: Path) -> None:
    path = tmp_path / "a.rb"
    world = GoalWorld(2000, f"file:{path}")
    for _ in range(100):
        world.episode(9)
    world.buffer.flush()
    before = bytes_of(path)
    for strategy in ("future", "final", "episode"):
        world.buffer.view(Hindsight(strategy, reward=distance)).sample(500)  # type: ignore[arg-type]
    world.buffer.flush()
    changed = np.flatnonzero(before != bytes_of(path))
    assert changed.size <= 64
    assert changed.size == 0 or changed.max() < FRONT
    world.buffer.close()


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
@pytest.mark.parametrize("place", ["file", "shm"])
def test_a_read_only_handle_has_all_views(place: str, strategy: str, tmp_path: Path) -> None:
    location = f"file:{tmp_path}/a.rb" if place == "file" else f"shm:views-{tmp_path.name}"
    world = World(50, location=location, strategy=strategy, kind="nested")
    to = world.open(3)
    world.run(to, 20, [4, 1, 3])
    with ReplayBuffer.open(location, readonly=True) as reader:
        mine, world.buffer = world.buffer, reader
        check(world)
        world.run(to, 9, [4, 1, 3])  # another handle's writer goes on
        check(world)
        with pytest.raises(ReadOnly):
            reader.writer(1).append([0, 0], [0, 0], 0.0, False, False)
        world.buffer = mine
    mine.unlink()
    mine.close()


def test_a_file_that_may_not_be_written_has_all_views(tmp_path: Path) -> None:
    location = f"file:{tmp_path}/a.rb"
    world = World(50, location=location)
    world.run(world.open(2), 40, [5, 2])
    world.sync()
    world.buffer.close()
    (tmp_path / "a.rb").chmod(0o400)
    before = bytes_of(tmp_path / "a.rb")
    with ReplayBuffer.open(location, readonly=True) as reader:
        world.buffer = reader
        for parts in VIEWS:
            check_view(world, parts)
    assert (bytes_of(tmp_path / "a.rb") == before).all()


def test_a_queue_gives_nothing_out_to_a_read_only_handle(tmp_path: Path) -> None:
    """What it gives out is counted in the segment, also when a view makes the batch."""
    config = BufferConfig(8, strategy="fifo")
    location = f"file:{tmp_path / 'a.rb'}"
    dtypes = {"obs_dtype": "float32", "action_dtype": "int64"}
    with ReplayBuffer.create(location, config, (1,), action_dim=2, **dtypes) as buffer:
        for i in range(6):
            buffer.add([i], 0, 1.0, [i + 1], False)
        with ReplayBuffer.open(location, readonly=True) as reader:
            with pytest.raises(ReadOnly):
                reader.sample(1)
            with pytest.raises(ReadOnly):
                reader.view(NStep(2)).sample(1)
        assert buffer.view(NStep(2)).sample(6)["obs"][:, 0].tolist() == [0, 1, 2, 3, 4, 5]
