"""Steps that say what they are, so that a reader can check a batch while others write.

An observation is (stream, episode, step, and numbers that follow from these): a torn row, or one of
another stream or episode, shows.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt

from replay_buffer import BufferConfig, Column, FrameStack, NStep, Schema, Sequence, Trajectory

Numbers = npt.NDArray[np.int64]
WIDTH = 24
GAMMA = 0.5

SCHEMA = Schema(
    {
        "obs": Column((WIDTH,), "int64"),
        "action": Column((2,), "int64"),
        "reward": Column((), "float64"),
        "terminated": Column((), "bool"),
        "truncated": Column((), "bool"),
    }
)


def config(capacity: int, strategy: Any = "uniform", block_rows: int | None = None) -> BufferConfig:
    return BufferConfig(capacity, storage="steps", strategy=strategy, block_rows=block_rows)


def observation(stream: Any, episode: Any, step: Any) -> Numbers:
    stream, episode, step = (np.asarray(part, np.int64) for part in (stream, episode, step))
    mixed = stream * 1_000_003 + episode * 8_191 + step * 127
    more = [mixed * i + (mixed >> 3) for i in range(1, WIDTH - 2)]
    return np.stack([stream, episode, step, *more], axis=-1)


def length_of(stream: Any, episode: Any) -> Any:
    return 1 + (stream * 7 + episode * 5) % 11


def reward_of(stream: Any, episode: Any, step: Any) -> Any:
    return ((stream + 3 * episode + 5 * step) % 17 - 8).astype(np.float64)


def terminates(stream: Any, episode: Any) -> Any:
    return (stream + episode) % 2 == 0


class Actor:
    """Environments whose episodes have known lengths, numbered from `first` on."""

    def __init__(self, buffer: Any, first: int, width: int, autoreset: str) -> None:
        self.writer = buffer.writer(width, autoreset)
        self.streams = np.arange(first, first + width)
        self.episode = np.zeros(width, np.int64)
        self.step = np.zeros(width, np.int64)

    def act(self) -> None:
        length = length_of(self.streams, self.episode)
        last = self.step == length  # next_step: this call carries the last observation
        ended = self.step == length - 1
        terminated = ended & terminates(self.streams, self.episode)
        same_step = self.writer.autoreset == "same_step"
        final = observation(self.streams, self.episode, self.step + 1)
        self.writer.append(
            observation(self.streams, self.episode, self.step),
            np.stack([self.step, self.streams], axis=1),
            reward_of(self.streams, self.episode, self.step),
            terminated,
            ended & ~terminated,
            **({"final_obs": final} if same_step and ended.any() else {}),
        )
        over = ended if same_step else last
        self.episode = self.episode + over
        self.step = np.where(over, 0, self.step + 1)

    def end(self, stream: int) -> None:
        if self.step[stream] == 0:
            return  # nothing of this episode is written yet
        self.writer.end(stream)
        self.episode[stream] += 1
        self.step[stream] = 0


class Relay:
    """Actors one after the other, of other streams and widths: each writes little and is closed."""

    def __init__(self, buffer: Any, first: int) -> None:
        self.buffer = buffer
        self.first = first
        self.count = 0
        self.relieve()

    def relieve(self) -> None:
        self.count += 1
        width = (3, 1, 2, 5, 5, 2)[self.count % 6]
        autoreset = ("same_step", "next_step")[self.count // 2 % 2]
        self.actor = Actor(self.buffer, self.first + 10 * self.count, width, autoreset)
        self.left = 1 + self.count * 7 % 13

    def act(self) -> None:
        if self.left == 0:
            self.actor.writer.close()
            self.relieve()
        self.actor.act()
        self.left -= 1

    @property
    def streams(self) -> Numbers:
        return self.actor.streams

    def end(self, stream: int) -> None:
        self.actor.end(stream)


def check_rows(obs: Numbers) -> tuple[Numbers, Numbers, Numbers]:
    """The stream, episode and step of observations. Fails when one of them is torn."""
    stream, episode, step = obs[..., 0], obs[..., 1], obs[..., 2]
    assert (obs == observation(stream, episode, step)).all(), "a row is torn"
    return stream, episode, step


def check_ends(batch: dict[str, Any], stream: Any, episode: Any, step: Any, where: Any) -> None:
    """Flags of steps, where there are some."""
    ended = step == length_of(stream, episode) - 1
    gone = ended & terminates(stream, episode)
    assert (batch["terminated"] == (gone & where)).all()
    assert (batch["truncated"] == (ended & ~gone & where)).all()


def check_transitions(batch: dict[str, Any], stack: int = 1) -> None:
    frames, after = batch["obs"], batch["next_obs"]
    if stack > 1:
        check_frames(frames)
        check_frames(after)
        frames, after = frames[:, -1], after[:, -1]
    stream, episode, step = check_rows(frames)
    next_stream, next_episode, next_step = check_rows(after)
    k = batch.get("k", np.ones(len(step), np.int64))
    assert (stream == next_stream).all(), "streams are mixed"
    assert (episode == next_episode).all(), "episodes are mixed"
    assert (next_step == step + k).all(), "steps do not follow each other"
    assert (next_step <= length_of(stream, episode)).all()
    assert (batch["action"] == np.stack([step, stream], axis=1)).all()
    check_ends(batch, stream, episode, next_step - 1, np.True_)
    steps = np.arange(k.max())
    rewards = reward_of(stream[:, None], episode[:, None], step[:, None] + steps)
    sums = (rewards * GAMMA**steps * (steps < k[:, None])).sum(axis=1)
    assert np.allclose(batch["reward"], sums)
    if "discount" in batch:
        assert np.allclose(batch["discount"], np.where(batch["terminated"], 0, GAMMA**k))


def check_frames(frames: Numbers) -> None:
    """Frames of one episode each, up to the last, padded with the first."""
    stream, episode, step = check_rows(frames)
    n = frames.shape[-2]
    assert (stream == stream[..., -1:]).all()
    assert (episode == episode[..., -1:]).all()
    assert (step == np.maximum(0, step[..., -1:] - np.arange(n - 1, -1, -1))).all()


def check_sequences(batch: dict[str, Any], burn_in: int = 0, cross: bool = False) -> None:
    mask = batch["mask"]
    obs = batch["obs"]
    assert (obs[~mask] == 0).all()
    assert (batch["reward"][~mask] == 0).all()
    assert mask[:, burn_in].all(), "the start is there"
    stream, episode, step = (obs[..., i] for i in range(3))
    assert (obs == observation(stream, episode, step) * mask[..., None]).all(), "a row is torn"
    assert (batch["is_first"] == (mask & (step == 0))).all()
    check_ends(batch, stream, episode, step, mask)
    assert (np.where(mask, reward_of(stream, episode, step), 0) == batch["reward"]).all()
    both = mask[:, 1:] & mask[:, :-1]
    assert (both | ~mask[:, 1:] | (np.arange(1, mask.shape[1]) <= burn_in)).all(), "a gap"
    same = (stream[:, 1:] == stream[:, :-1]) | ~both
    assert same.all(), "streams are mixed"
    onward = (episode[:, 1:] == episode[:, :-1]) & (step[:, 1:] == step[:, :-1] + 1)
    if cross:
        onward |= (episode[:, 1:] == episode[:, :-1] + 1) & (step[:, 1:] == 0)
    assert (onward | ~both).all(), "steps do not follow each other"
    if "next_mask" in batch:
        there, after = batch["next_mask"], batch["next_obs"]
        assert (after == observation(stream, episode, step + 1) * there[..., None]).all()
        assert (there <= mask).all()
        assert (there[:, :-1] | ~both | cross).all(), "a step is followed, but has no next_obs"


def check_trajectories(batch: dict[str, Any]) -> None:
    lengths, mask = batch["lengths"], batch["mask"]
    assert (mask == (np.arange(mask.shape[1]) < lengths[:, None])).all()
    check_sequences(batch)
    assert batch["is_first"][:, 0].all()
    stream, episode, step = check_rows(batch["final_obs"])
    assert (step == lengths).all()
    assert (lengths == length_of(stream, episode)).all()
    assert (batch["obs"][:, 0] == observation(stream, episode, 0 * step)).all()


#: Views of every kind, and what can be said of their batches at any time.
CHECKS: list[tuple[tuple[Any, ...], Callable[[dict[str, Any]], None]]] = [
    ((), check_transitions),
    ((NStep(4, GAMMA),), check_transitions),
    ((FrameStack(3), NStep(2, GAMMA)), lambda batch: check_transitions(batch, 3)),
    ((Sequence(4, burn_in=2, next_obs=True),), lambda batch: check_sequences(batch, 2)),
    ((Sequence(6, burn_in=1, cross_episodes=True),), lambda b: check_sequences(b, 1, True)),
    ((Sequence(3, pad=False, period=2),), check_sequences),
    ((Trajectory(),), check_trajectories),
]
