"""Save, restore and go on writing: equal to never having saved, ids included.

Each case writes rows A, saves, and writes rows B twice: to the buffer that was saved and to the one
that was restored. Writers that were open at the checkpoint go on in the first; in the second others
stand for them, made in the same order. All episodes end with A, because restoring cuts those that
are open; where they do not, ids and rows are the same all the same.
"""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    NStep,
    ReplayBuffer,
    Sequence,
    StepWriter,
    Trajectory,
)
from views.world import flat

CAPACITY = 96
#: Rows of A: none, less than a block, blocks and a part, exactly full, more than two laps.
AMOUNTS = (1, 5, 40, CAPACITY, 2 * CAPACITY + 17)
TRANSITIONS = {
    "obs": Column((2,), "float32"),
    "action": Column((), "int64"),
    "reward": Column((), "float32"),
    "next_obs": Column((2,), "float32"),
    "done": Column((), "bool"),
}
STEPS = {
    "obs": Column((2,), "float32"),
    "action": Column((), "int64"),
    "reward": Column((), "float32"),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}
#: Values of any length: rows lie in arenas, some of which are full before their block is.
VARIED = {"words": Column((None,), "int32", expected=12)}
STEP_VIEWS = ((), (NStep(3),), (FrameStack(3),), (Sequence(4, burn_in=2),), (Trajectory(),))


def words(number: int) -> Any:
    return np.arange(number % 30, dtype=np.int32)


def config_of(strategy: str, storage: str, **options: Any) -> BufferConfig:
    return BufferConfig(
        CAPACITY,
        strategy=strategy,  # type: ignore[arg-type]
        storage=storage,  # type: ignore[arg-type]
        block_rows=16,
        max_times_sampled=3,
        **options,
    )


def draw(buffer: ReplayBuffer, batches: int) -> list[dict[str, Any]]:
    """Batches, and for a buffer that is weighted the priorities that follow from them."""
    drawn = []
    for i in range(batches):
        batch = buffer.sample(3)
        if buffer.config.weighted:
            buffer.update_priorities(batch["indices"], np.abs(batch["reward"]) + i)
        drawn.append(flat(batch))
    return drawn


def assert_equal(one: ReplayBuffer, other: ReplayBuffer, *, batches: bool = True) -> None:
    ours, theirs = flat(one.latest(CAPACITY)), flat(other.latest(CAPACITY))
    np.testing.assert_equal(ours, theirs)
    if one.config.weighted:
        ids = ours["indices"]
        np.testing.assert_array_equal(one.priorities(ids), other.priorities(ids))
    if not batches:
        return
    assert len(one) == len(other)
    np.testing.assert_equal(draw(one, 5), draw(other, 5))
    views = STEP_VIEWS if one.config.storage == "steps" else ((NStep(3),),)
    for parts in views if one.config.strategy != "fifo" else ():
        here, there = one.view(*parts), other.view(*parts)
        starts = here.starts()
        np.testing.assert_array_equal(starts, there.starts())
        if starts.size:
            np.testing.assert_equal(flat(here.sample(4)), flat(there.sample(4)))
    if one.config.storage == "steps":
        assert one.stats()["episodes"] == other.stats()["episodes"]
    assert one._engine.verify() == other._engine.verify() == []


@pytest.mark.parametrize(
    ("strategy", "amount", "varied"),
    list(product(("uniform", "prioritized", "rank", "fifo", "lifo"), AMOUNTS, (False, True))),
)
def test_transitions_go_on_as_if_nothing_had_been_saved(
    strategy: str, amount: int, varied: bool, tmp_path: Path
) -> None:
    schema = TRANSITIONS | (VARIED if varied else {})
    one = ReplayBuffer.create("heap:", config_of(strategy, "transitions"), schema=schema, seed=5)

    def add(buffer: ReplayBuffer, first: int, n: int) -> list[int]:
        ids = []
        for i in range(first, first + n):
            done = i % 7 == 6 or i == amount - 1
            more = (words(i),) if varied else ()
            ids.append(buffer.add(np.full(2, i), i, float(i), np.full(2, i + 1), done, *more))
        return ids

    add(one, 0, amount)
    if amount > 3:
        draw(one, 2)
    one.checkpoint(tmp_path / "saved")
    other = ReplayBuffer.restore(tmp_path / "saved")
    for first in (amount, amount + 30):
        assert add(one, first, 30) == add(other, first, 30)
        assert_equal(one, other)


class World:
    """Writers of one buffer, whose steps follow from their numbers alone."""

    def __init__(self, buffer: ReplayBuffer, varied: bool) -> None:
        self.buffer = buffer
        self.varied = varied
        self.writers: list[StepWriter | None] = []
        self.calls = 0

    def open(self, streams: int) -> None:
        self.writers.append(self.buffer.writer(streams))

    def close(self, which: int) -> None:
        writer = self.writers[which]
        assert writer is not None
        writer.close()
        self.writers[which] = None

    def step(self, calls: int, *, end: bool = False) -> list[list[int]]:
        """Steps of all writers that are open, one after the other; `end` ends all episodes."""
        ids = []
        for last in [False] * (calls - 1) + [True]:
            for number, writer in enumerate(self.writers):
                if writer is not None:
                    ids.append(self.append(writer, number, end and last))
            self.calls += 1
        return ids

    def append(self, writer: StepWriter, number: int, end: bool) -> list[int]:
        k = writer.streams
        value = 1000 * number + 10 * self.calls + np.arange(k)
        obs = np.stack([value, value], 1).astype(np.float32)
        over = np.full(k, end) | ((self.calls + np.arange(k)) % 9 == 8)
        values: list[Any] = [obs, value, value.astype(np.float32), over, np.zeros(k, bool)]
        if self.varied:
            ragged = [words(int(v)) for v in value]
            values.append(ragged)
        return list(map(int, writer.append(*values, final_obs=obs + 1)))


@pytest.mark.parametrize(
    ("strategy", "streams", "closed", "calls", "varied"),
    list(
        product(
            ("uniform", "prioritized", "rank"),
            (1, 3),
            (False, True),
            (1, 3, 12, 90),
            (False, True),
        )
    ),
)
def test_steps_go_on_as_if_nothing_had_been_saved(
    strategy: str, streams: int, closed: bool, calls: int, varied: bool, tmp_path: Path
) -> None:
    schema = STEPS | (VARIED if varied else {})
    buffer = ReplayBuffer.create("heap:", config_of(strategy, "steps"), schema=schema, seed=5)
    one = World(buffer, varied)
    one.open(streams)
    one.step(calls, end=True)
    draw(buffer, 2)
    if closed:
        one.close(0)
    buffer.checkpoint(tmp_path / "saved")
    other = World(ReplayBuffer.restore(tmp_path / "saved"), varied)
    if closed:
        one.open(streams)
        other.writers.append(None)
    other.open(streams)
    other.calls = one.calls
    for _ in range(2):
        assert one.step(11, end=True) == other.step(11, end=True)
        assert_equal(one.buffer, other.buffer)


@pytest.mark.parametrize("streams", [1, 3])
def test_a_restored_buffer_gives_the_same_ids_in_the_midst_of_episodes(
    streams: int, tmp_path: Path
) -> None:
    """What is cut is the way from the last steps of A on: they have no successor now."""
    buffer = ReplayBuffer.create("heap:", config_of("uniform", "steps"), schema=STEPS, seed=5)
    one = World(buffer, False)
    one.open(streams)
    one.step(5)
    buffer.checkpoint(tmp_path / "saved")
    other = World(ReplayBuffer.restore(tmp_path / "saved"), False)
    before = set(other.buffer.view().starts().tolist())
    other.open(streams)
    other.calls = one.calls
    assert one.step(10) == other.step(10)
    assert_equal(one.buffer, other.buffer, batches=False)
    cut = set(one.buffer.view().starts()) - set(other.buffer.view().starts())
    assert len(cut) == streams
    assert not cut & before


@pytest.mark.parametrize("order", [(0, 1, 2), (2, 0, 1), (1, 2, 0), (2, 1), (0,), ()])
@pytest.mark.parametrize("next_streams", [(1, 1, 1), (2, 2, 2), (3, 1, 2)])
@pytest.mark.parametrize("capacity", [CAPACITY, 1024])
def test_blocks_that_writers_left_are_taken_up_in_the_same_order(
    order: tuple[int, ...], next_streams: tuple[int, ...], capacity: int, tmp_path: Path
) -> None:
    """The last one closed comes first, and no block goes to a writer of too few streams."""
    config = BufferConfig(capacity, storage="steps", block_rows=16)
    buffer = ReplayBuffer.create("heap:", config, schema=STEPS, seed=5)
    one = World(buffer, False)
    for streams in (1, 3, 2):
        one.open(streams)
    one.step(5, end=True)
    for which in order:
        one.close(which)
    buffer.checkpoint(tmp_path / "saved")
    other = World(ReplayBuffer.restore(tmp_path / "saved"), False)
    other.calls = one.calls
    for streams, writer in zip((1, 3, 2), one.writers, strict=True):
        other.writers.append(None if writer is None else other.buffer.writer(streams))
    assert one.step(1, end=True) == other.step(1, end=True)
    for streams in next_streams:
        one.open(streams)
        other.open(streams)
    for _ in range(3):
        assert one.step(9, end=True) == other.step(9, end=True)
        assert_equal(one.buffer, other.buffer)


def test_a_checkpoint_of_a_restored_buffer_goes_on_too(tmp_path: Path) -> None:
    """Nothing was written between the two: what was left is still known."""
    buffer = ReplayBuffer.create("heap:", config_of("uniform", "steps"), schema=STEPS, seed=5)
    one = World(buffer, False)
    one.open(3)
    one.step(4, end=True)
    buffer.checkpoint(tmp_path / "first")
    ReplayBuffer.restore(tmp_path / "first").checkpoint(tmp_path / "second")
    other = World(ReplayBuffer.restore(tmp_path / "second"), False)
    other.open(3)
    other.calls = one.calls
    assert one.step(20, end=True) == other.step(20, end=True)
    assert_equal(one.buffer, other.buffer)


def test_who_only_reads_saves_where_others_write(tmp_path: Path) -> None:
    location = f"file:{tmp_path / 'ring'}"
    config = config_of("uniform", "steps")
    one = World(ReplayBuffer.create(location, config, schema=STEPS, seed=5), False)
    one.open(3)
    one.step(6, end=True)
    with ReplayBuffer.open(location, readonly=True) as reader:
        reader.checkpoint(tmp_path / "saved")
    other = World(ReplayBuffer.restore(tmp_path / "saved", f"file:{tmp_path / 'other'}"), False)
    other.open(3)
    other.calls = one.calls
    for _ in range(2):
        assert one.step(8, end=True) == other.step(8, end=True)
        assert_equal(one.buffer, other.buffer)
    one.buffer.close()
    other.buffer.close()


def test_transitions_go_on_in_the_block_of_the_handle_that_saved(tmp_path: Path) -> None:
    """Another handle's block is the newer one, and goes on as it was."""
    location = f"file:{tmp_path / 'ring'}"
    schema = {"x": Column((), "int64")}
    one = ReplayBuffer.create(location, BufferConfig(64, block_rows=8), schema=schema)
    beside = ReplayBuffer.open(location)
    for i in range(3):
        one.add(i)
        beside.add(100 + i)
    one.checkpoint(tmp_path / "saved")
    other = ReplayBuffer.restore(tmp_path / "saved")
    assert [one.add(i) for i in range(5)] == [other.add(i) for i in range(5)] == [3, 4, 5, 6, 7]
    one.close()
    beside.close()
