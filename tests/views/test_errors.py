"""What views and writers refuse, and that nothing is written when they do."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    FrameStack,
    Hindsight,
    InvalidArgument,
    NotEnoughRows,
    NStep,
    ReplayBuffer,
    RowGone,
    Schema,
    SchemaMismatch,
    Sequence,
    Trajectory,
)
from views.goals import GoalWorld, distance
from views.world import FLAGS, World


@pytest.mark.parametrize(
    "make",
    [
        lambda: NStep(0),
        lambda: NStep(True),
        lambda: NStep(2.0),  # type: ignore[arg-type]
        lambda: NStep(2**20 + 1),
        lambda: NStep(3, -0.1),
        lambda: NStep(3, 1.5),
        lambda: NStep(3, float("nan")),
        lambda: NStep(3, "0.5"),  # type: ignore[arg-type]
        lambda: NStep(3, one_stream=1),  # type: ignore[arg-type]
        lambda: FrameStack(0),
        lambda: FrameStack(2, 3),  # type: ignore[arg-type]
        lambda: FrameStack(2, (3,)),  # type: ignore[arg-type]
        lambda: Sequence(0),
        lambda: Sequence(3, burn_in=-1),
        lambda: Sequence(3, period=0),
        lambda: Sequence(3, pad=1),  # type: ignore[arg-type]
        lambda: Sequence(3, cross_episodes=None),  # type: ignore[arg-type]
        lambda: Sequence(3, eta=2),
        lambda: Trajectory(0),
        lambda: Trajectory(1.5),  # type: ignore[arg-type]
        lambda: Hindsight("past", reward=distance),  # type: ignore[arg-type]
        lambda: Hindsight("future", -1, distance),
        lambda: Hindsight("future", float("inf"), distance),
        lambda: Hindsight("future", 4),
        lambda: Hindsight("future", 4, "reward"),  # type: ignore[arg-type]
        lambda: Hindsight(np.array(["future", "final"]), reward=distance),  # type: ignore[arg-type]
        lambda: Hindsight(np.array(["future"]), reward=distance),  # type: ignore[arg-type]
        lambda: Hindsight({"future"}, reward=distance),  # type: ignore[arg-type]
        lambda: Hindsight(reward=distance, goal=np.array(["a", "b"])),  # type: ignore[arg-type]
        lambda: Hindsight(reward=distance, achieved=3),  # type: ignore[arg-type]
        lambda: NStep(10**5000),
        lambda: NStep(3, 10**5000),
    ],
)
def test_parts_that_make_no_sense_are_refused(make: Any) -> None:
    with pytest.raises(InvalidArgument):
        make()


@pytest.mark.parametrize(
    "parts",
    [
        (NStep(2), NStep(3)),
        (Sequence(2), Trajectory()),
        (Sequence(2), NStep(3)),
        (Trajectory(), NStep(3)),
        (Sequence(2), Hindsight(reward=distance)),
        (Trajectory(), Hindsight(reward=distance)),
        (FrameStack(2), FrameStack(2)),
        ("n_step",),
        (NStep,),
        (None,),
    ],
    ids=repr,
)
def test_combinations_that_make_no_sense_are_refused(parts: tuple[Any, ...]) -> None:
    with pytest.raises(InvalidArgument):
        GoalWorld().buffer.view(*parts)


@pytest.mark.parametrize("columns", [("obs/nothing",), ("action",), ("obs",), "obs/deep"])
def test_stacking_what_is_no_column_of_the_observation_is_refused(columns: Any) -> None:
    world = World(20, kind="nested")
    with pytest.raises((InvalidArgument, SchemaMismatch)):
        world.buffer.view(FrameStack(2, columns))


def test_goals_that_are_not_there_or_stacked_are_refused() -> None:
    buffer = GoalWorld().buffer
    with pytest.raises(SchemaMismatch, match="obs/nothing"):
        buffer.view(Hindsight(reward=distance, achieved="obs/nothing"))
    with pytest.raises(SchemaMismatch, match="obs/observation"):
        buffer.view(Hindsight(reward=distance, goal="obs/observation"))
    with pytest.raises(InvalidArgument):
        buffer.view(Hindsight(reward=distance), FrameStack(2))


@pytest.mark.parametrize("parts", [(), (Sequence(2),), (Trajectory(),), (FrameStack(2), NStep(2))])
def test_transitions_have_only_n_steps(parts: tuple[Any, ...]) -> None:
    buffer = ReplayBuffer(BufferConfig(20), obs_shape=(2,), action_dim=2)
    buffer.add([0.0, 0.0], 1, 0.5, [0.0, 0.0], False)
    with pytest.raises(InvalidArgument, match="steps"):
        buffer.view(*parts).sample(1)


def test_transitions_have_no_writer_and_steps_no_add() -> None:
    with pytest.raises(InvalidArgument, match="steps"):
        ReplayBuffer(BufferConfig(20)).writer()
    world = World(20)
    for call in (world.buffer.add, world.buffer.add_batch):
        with pytest.raises(InvalidArgument, match="writer"):
            call([1, 2], [0.0, 0.0], 1.0, False, False, 0)
    assert len(world.buffer) == 0


@pytest.mark.parametrize("streams", [0, -1, 11, 32_768, 1.5, True, "2", None])
def test_a_writer_of_a_wrong_number_of_streams_is_refused(streams: Any) -> None:
    with pytest.raises(InvalidArgument):
        World(20).buffer.writer(streams)


def test_more_streams_than_there_can_be_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="32,767"):
        World(100_000).buffer.writer(32_768)


@pytest.mark.parametrize(
    "autoreset", ["", "never", None, 1, {}, np.array(["same_step", "next_step"])]
)
def test_a_writer_of_an_unknown_autoreset_is_refused(autoreset: Any) -> None:
    with pytest.raises(InvalidArgument, match="autoreset"):
        World(20).buffer.writer(1, autoreset)


@pytest.mark.parametrize(
    "fields",
    [
        {"action": Column()},
        {"obs": Column(), "action": Column(), "reward": Column(), "terminated": Column((), "bool")},
        {"obs": Column(), "action": Column(), "reward": Column(), **FLAGS, "next_obs": Column()},
        {"obs": Column(), "action": Column(), "reward": Column(), **FLAGS, "mask": Column()},
        {
            "obs": Column(),
            "action": Column(),
            "reward": Column(),
            **FLAGS,
            "truncated": Column((), "int8"),
        },
    ],
    ids=lambda fields: ",".join(fields),
)
def test_columns_that_are_no_steps_are_refused(fields: Any) -> None:
    with pytest.raises(SchemaMismatch):
        ReplayBuffer(BufferConfig(20, storage="steps"), schema=Schema(fields))


@pytest.mark.parametrize("strategy", ["fifo", "lifo", "without_replacement"])
def test_queues_of_steps_are_refused(strategy: Any) -> None:
    with pytest.raises(InvalidArgument):
        BufferConfig(20, storage="steps", strategy=strategy)


def test_a_closed_buffer_says_so() -> None:
    world = World(20)
    to = world.open(1)
    world.run(to, 5, [2])
    for parts in ((), (NStep(2),), (Sequence(2),), (Trajectory(),)):
        view = world.buffer.view(*parts)
        view.sample(1)
        world_views.append(view)
    world.buffer.close()
    for view in world_views:
        for call in (lambda v=view: v.sample(1), view.starts, lambda v=view: v.get([0])):
            with pytest.raises(Closed):
                call()
    world_views.clear()
    for late in (world.buffer.view, world.buffer.writer, lambda: to.writer.end(0)):
        with pytest.raises(Closed):
            late()
    with pytest.raises(Closed):
        world.append(to)
    assert to.writer.closed


world_views: list[Any] = []


def test_a_closed_writer_says_so_and_the_buffer_lives_on() -> None:
    world = World(20)
    to = world.open(1)
    world.run(to, 5, [2])
    to.writer.close()
    to.writer.close()
    with pytest.raises(Closed):
        world.append(to)
    with pytest.raises(Closed):
        to.writer.end()
    assert len(world.buffer.sample(4)["indices"]) == 4


@pytest.mark.parametrize("stream", [-1, 3, 1.0, True, "0", None])
def test_ending_a_stream_that_is_not_there_is_refused(stream: Any) -> None:
    with pytest.raises(InvalidArgument):
        World(20).buffer.writer(3).end(stream)


def test_rows_that_are_no_starts_are_gone_for_a_view() -> None:
    world = World(20)
    to = world.open(1)
    world.run(to, 7, [3])
    world.sync()
    view = world.buffer.view(NStep(2))
    starts = set(view.starts().tolist())
    for row in world.stored_rows():
        if row.id not in starts:
            with pytest.raises(RowGone):
                view.get([row.id])
    for wrong in (-1, 10**6, 2**62):
        with pytest.raises(RowGone):
            view.get([wrong])
    for bad in ([[1]], [1.5], "1", [[1, 2], [3]]):
        with pytest.raises(InvalidArgument, match="row ids"):
            view.get(bad)
    assert view.get([])["indices"].shape == (0,)


@pytest.mark.parametrize("parts", [(), (NStep(2),), (Sequence(2),), (Trajectory(),)], ids=repr)
@pytest.mark.parametrize("size", [0, -1, 1.5, True, "3", None])
def test_batches_of_a_wrong_size_are_refused(parts: tuple[Any, ...], size: Any) -> None:
    world = World(20)
    world.run(world.open(1), 7, [3])
    with pytest.raises(InvalidArgument):
        world.buffer.view(*parts).sample(size)


@pytest.mark.parametrize("parts", [(), (NStep(2),), (Sequence(2),), (Trajectory(),)], ids=repr)
def test_beta_without_priorities_is_refused(parts: tuple[Any, ...]) -> None:
    world = World(20)
    world.run(world.open(1), 7, [3])
    with pytest.raises(InvalidArgument, match="prioritized"):
        world.buffer.view(*parts).sample(2, beta=0.5)


@pytest.mark.parametrize("parts", [(), (NStep(2),), (Sequence(2),), (Trajectory(),)], ids=repr)
def test_views_take_what_sample_takes(parts: tuple[Any, ...]) -> None:
    world = World(20, strategy="prioritized")
    world.run(world.open(1), 7, [3])
    view = world.buffer.view(*parts)
    assert view.sample(np.int64(2), beta=np.float64(0.5), timeout=1)["weights"].shape == (2,)  # type: ignore[arg-type]
    for beta in (-1.0, float("nan"), "1"):
        with pytest.raises(InvalidArgument):
            view.sample(2, beta=beta)  # type: ignore[arg-type]
    with pytest.raises(TypeError):
        view.sample(2, colour=1)  # type: ignore[call-arg]


def test_views_made_before_the_columns_are_known() -> None:
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"))
    views = [buffer.view(*parts) for parts in ((), (NStep(2),), (Sequence(2),), (Trajectory(),))]
    for view in views:
        assert view.starts().size == 0
        with pytest.raises(NotEnoughRows):
            view.sample(2)
    writer = buffer.writer()
    for i in range(4):
        writer.append([1.0, i], i, 0.5, i == 2, False, final_obs=[9, 9] if i == 2 else None)
    for view in views:
        assert len(view.sample(2)["indices"]) == 2


@pytest.mark.parametrize("parts", [(), (Sequence(3),), (Trajectory(),), (NStep(2), FrameStack(2))])
def test_of_transitions_a_view_is_refused_before_there_are_any(parts: tuple[Any, ...]) -> None:
    buffer = ReplayBuffer(BufferConfig(10))
    with pytest.raises(InvalidArgument, match="storage='steps'"):
        buffer.view(*parts)


@pytest.mark.parametrize("parts", [(), (NStep(2),), (Trajectory(),)], ids=repr)
def test_a_mask_for_what_is_no_sequence_is_refused(parts: tuple[Any, ...]) -> None:
    world = World(20, strategy="prioritized")
    world.run(world.open(1), 7, [3])
    view = world.buffer.view(*parts)
    ids = view.sample(2)["indices"]
    with pytest.raises(InvalidArgument, match="mask"):
        view.update_priorities(ids, np.ones(2), mask=np.ones(2, bool))
    assert view.update_priorities(ids, np.ones(2)) > 0
