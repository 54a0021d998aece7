"""Steps, their writers, and what views make of them."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..buffer import ReplayBuffer
from ..config import BufferConfig
from ..errors import InvalidArgument, NotEnoughRows
from ..schema import Column
from ..views import FrameStack, NStep, Part, Sequence, Trajectory
from .content import MakeBuffer

STRATEGIES = ("uniform", "prioritized", "rank")
#: A step's observation is its stream, its episode and its number in it.
STEPS = {
    "obs": {"where": Column((3,), "int64"), "pixels": Column((2, 2), "uint8")},
    "action": Column((), "int64", 4),
    "reward": Column(),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}
LENGTH = 5  # of episodes; odd ones are truncated, the others terminate


def observation(stream: int, episode: int, number: int) -> dict[str, Any]:
    pixels = np.full((2, 2), (stream * 50 + episode * 10 + number) % 256, np.uint8)
    return {"where": np.array([stream, episode, number]), "pixels": pixels}


def stacked(rows: list[dict[str, Any]]) -> dict[str, Any]:
    return {key: np.stack([row[key] for row in rows]) for key in rows[0]}


def stepped(
    make_buffer: MakeBuffer,
    calls: int,
    strategy: Any = "uniform",
    *,
    streams: int = 3,
    capacity: int = 64,
) -> ReplayBuffer:
    """A buffer in which every stream has taken `calls` steps, with reward number + 1."""
    buffer = make_buffer(
        BufferConfig(capacity, strategy=strategy, storage="steps"), schema=STEPS, seed=0
    )
    with buffer.writer(streams=streams) as writer:
        for call in range(calls):
            episode, number = divmod(call, LENGTH)
            end = number == LENGTH - 1
            writer.append(
                stacked([observation(s, episode, number) for s in range(streams)]),
                np.full(streams, number % 4),
                np.full(streams, number + 1, np.float32),
                np.full(streams, end and episode % 2 == 0),
                np.full(streams, end and episode % 2 == 1),
                final_obs=stacked([observation(s, episode, LENGTH) for s in range(streams)]),
            )
    return buffer


class Steps:
    @pytest.mark.parametrize("strategy", STRATEGIES)
    @pytest.mark.parametrize("calls", [2, 7, 30, 200])
    def test_a_step_is_paired_with_what_came_after_it(
        self, make_buffer: MakeBuffer, strategy: str, calls: int
    ) -> None:
        buffer = stepped(make_buffer, calls, strategy)
        batch = buffer.sample(200)
        here, there = batch["obs"]["where"], batch["next_obs"]["where"]
        assert (here[:, :2] == there[:, :2]).all()
        assert (here[:, 2] + 1 == there[:, 2]).all()
        assert (batch["reward"] == here[:, 2] + 1).all()
        end = there[:, 2] == LENGTH
        assert (batch["terminated"] == (end & (here[:, 1] % 2 == 0))).all()
        assert (batch["truncated"] == (end & (here[:, 1] % 2 == 1))).all()
        assert (batch["next_obs"]["pixels"][:, 0, 0] == (there @ [50, 10, 1]) % 256).all()

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_n_steps_stop_where_the_episode_does(
        self, make_buffer: MakeBuffer, strategy: str
    ) -> None:
        batch = stepped(make_buffer, 40, strategy).view(NStep(3, gamma=0.5)).sample(300)
        here, there, k = batch["obs"]["where"], batch["next_obs"]["where"], batch["k"]
        assert (here[:, 2] + k == there[:, 2]).all()
        left = LENGTH - here[:, 2]
        assert ((k == np.minimum(3, left)) | (there[:, 2] < LENGTH)).all()
        rewards = [
            sum(0.5**t * (number + t + 1) for t in range(steps))
            for number, steps in zip(here[:, 2], k, strict=True)
        ]
        np.testing.assert_allclose(batch["reward"], rewards, rtol=1e-6)
        np.testing.assert_allclose(
            batch["discount"], np.where(batch["terminated"], 0, 0.5**k), rtol=1e-6
        )

    def test_stacks_begin_with_the_episode(self, make_buffer: MakeBuffer) -> None:
        batch = stepped(make_buffer, 12, capacity=200).view(FrameStack(3)).sample(100)
        frames = batch["obs"]["where"][:, :, 2]
        now = frames[:, -1:]
        assert (frames == np.maximum(now - [2, 1, 0], 0)).all()
        assert (batch["next_obs"]["where"][:, :, 2] == np.maximum(now - [1, 0, -1], 0)).all()

    @pytest.mark.parametrize("strategy", STRATEGIES)
    def test_the_mask_of_a_sequence_says_what_is_there(
        self, make_buffer: MakeBuffer, strategy: str
    ) -> None:
        view = stepped(make_buffer, 40, strategy).view(Sequence(length=4, burn_in=2, period=2))
        batch = view.sample(100)
        where, mask = batch["obs"]["where"], batch["mask"]
        assert mask[:, 2].all()
        assert (where[:, 2, 2] % 2 == 0).all()
        assert (where[~mask] == 0).all()
        assert (batch["is_first"] == (mask & (where[:, :, 2] == 0))).all()
        numbers = where[:, 2, 2][:, None] + np.arange(-2, 4)
        assert (where[:, :, 2] == np.where(mask, numbers, 0)).all()
        assert not mask[(numbers < 0) | (numbers >= LENGTH)].any()

    def test_episodes_are_whole(self, make_buffer: MakeBuffer) -> None:
        buffer = stepped(make_buffer, 33, streams=2, capacity=50)
        episodes = list(buffer.episodes())
        assert episodes
        for episode in episodes:
            assert (episode["obs"]["where"][:, 2] == np.arange(LENGTH)).all()
            assert episode["final_obs"]["where"][2] == LENGTH
            assert episode["reward"].sum() == 15
        batch = buffer.view(Trajectory()).sample(20)
        assert (batch["lengths"] == LENGTH).all()
        assert batch["mask"].all()
        assert buffer.stats()["episodes"]["finished"] == 12

    def test_a_batch_goes_into_the_arrays_of_another(self, make_buffer: MakeBuffer) -> None:
        parts: list[Part] = [NStep(2), FrameStack(2), Sequence(3), Trajectory(5), Trajectory()]
        for part in parts:
            view = stepped(make_buffer, 20).view(part)
            out = view.sample(8)
            again = view.sample(8, out=out)
            assert again is out
            assert (again["indices"] >= 0).all()

    def test_without_a_successor_nothing_is_drawn(self, make_buffer: MakeBuffer) -> None:
        buffer = stepped(make_buffer, 1)
        with pytest.raises(NotEnoughRows):
            buffer.sample(1)
        assert len(buffer) == 3

    def test_rows_of_steps_are_not_added_one_by_one(self, make_buffer: MakeBuffer) -> None:
        with pytest.raises(InvalidArgument, match="writer"):
            stepped(make_buffer, 1).add(0)
