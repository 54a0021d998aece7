"""Steps whose observations have any length: through writers, and in every view."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    InvalidArgument,
    NStep,
    ReplayBuffer,
    SchemaMismatch,
    Sequence,
    Trajectory,
)

LENGTH = 4  # of episodes


def tokens(stream: int, number: int) -> list[int]:
    """The observation of a step: as many tokens as its number, all telling which it is."""
    return [stream * 100 + number] * number


def make(padded: bool = False, streams: int = 3, calls: int = 50) -> ReplayBuffer:
    buffer = ReplayBuffer(
        BufferConfig(60, storage="steps", strategy="prioritized"),
        schema={
            "obs": {"tokens": Column((None,), "int32", padded=padded), "id": Column((2,), "int64")},
            "action": Column((), "int64"),
            "reward": Column(),
            "terminated": Column((), "bool"),
            "truncated": Column((), "bool"),
        },
        seed=0,
    )

    def observe(number: int) -> dict[str, Any]:
        return {
            "tokens": [tokens(s, number) for s in range(streams)],
            "id": np.array([[s, number] for s in range(streams)]),
        }

    with buffer.writer(streams) as writer:
        for call in range(calls):
            number = call % LENGTH
            end = np.full(streams, number == LENGTH - 1)
            writer.append(
                observe(number),
                np.zeros(streams, int),
                np.ones(streams),
                end,
                np.zeros(streams, bool),
                final_obs=observe(number + 1),
            )
    return buffer


def rows(ragged: dict[str, Any]) -> list[list[int]]:
    return [
        ragged["values"][a:b].tolist()
        for a, b in zip(ragged["offsets"][:-1], ragged["offsets"][1:], strict=True)
    ]


@pytest.mark.parametrize("n", [1, 3])
def test_transitions_have_the_values_of_their_steps(n: int) -> None:
    batch = make().view(NStep(n)).sample(50)
    for part in ("obs", "next_obs"):
        told = [tokens(*map(int, at)) for at in batch[part]["id"]]
        assert rows(batch[part]["tokens"]) == told
    assert (batch["obs"]["id"][:, 1] + batch["k"] == batch["next_obs"]["id"][:, 1]).all()


def test_padded_values_come_with_a_mask() -> None:
    batch = make(padded=True).sample(50)
    mask = batch["next_obs"]["tokens_mask"]
    assert (mask.sum(axis=1) == batch["next_obs"]["id"][:, 1]).all()
    assert (batch["next_obs"]["tokens"][~mask] == 0).all()


def test_values_of_sequences_lie_step_after_step() -> None:
    batch = make().view(Sequence(length=3, burn_in=1)).sample(20)
    told = [
        tokens(*map(int, at)) if there else []
        for at, there in zip(
            batch["obs"]["id"].reshape(-1, 2), batch["mask"].reshape(-1), strict=True
        )
    ]
    assert rows(batch["obs"]["tokens"]) == told


def test_padded_values_of_sequences_have_a_time() -> None:
    batch = make(padded=True).view(Sequence(length=3)).sample(20)
    mask = batch["obs"]["tokens_mask"]
    assert mask.shape[:2] == batch["obs"]["tokens"].shape[:2] == (20, 3)
    assert (mask.sum(axis=2) == np.where(batch["mask"], batch["obs"]["id"][..., 1], 0)).all()


def test_episodes_keep_their_values() -> None:
    buffer = make(streams=1, calls=10)
    first = next(iter(buffer.episodes()))
    assert rows(first["obs"]["tokens"]) == [tokens(0, n) for n in range(LENGTH)]
    assert rows(first["final_obs"]["tokens"]) == [tokens(0, LENGTH)]
    assert buffer.view(Trajectory()).sample(2)["lengths"].tolist() == [LENGTH, LENGTH]


def test_frames_of_any_length_are_not_stacked() -> None:
    with pytest.raises(InvalidArgument, match="any length"):
        make().view(FrameStack(2))
    make().view(FrameStack(2, columns=("obs/id",))).sample(3)


def written(buffer: ReplayBuffer) -> list[int]:
    """The first token of every observation that is stored, in the order they came."""
    stored = buffer.latest(60)["obs"]["tokens"]
    starts = stored["offsets"][:-1][np.diff(stored["offsets"]) > 0]
    return [int(token) for token in stored["values"][starts]]


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_an_append_of_which_one_value_is_too_large_writes_nothing(autoreset: Any) -> None:
    buffer = ReplayBuffer(
        BufferConfig(60, storage="steps"),
        schema={
            "obs": {"tokens": Column((None,), "int32", expected=1)},
            "action": Column((), "int64"),
            "reward": Column(),
            "terminated": Column((), "bool"),
            "truncated": Column((), "bool"),
        },
    )
    huge = [5] * 10**6
    ended, not_yet = np.asarray([True, False]), np.zeros(2, bool)
    with buffer.writer(streams=2, autoreset=autoreset) as writer:

        def append(first: list[int], second: list[int], end: Any, final: Any = None) -> None:
            obs = {"tokens": [first, second]}
            last = None if final is None else {"tokens": [final, []]}
            writer.append(obs, [0, 0], [1.0, 1.0], end, not_yet, final_obs=last)

        append([1], [2], not_yet)
        final = [4] if autoreset == "same_step" else None
        with pytest.raises(SchemaMismatch, match="nothing was added"):
            append([3], huge, ended, final)
        if autoreset == "same_step":
            with pytest.raises(SchemaMismatch, match="nothing was added"):
                append([3], [6], ended, huge)
        assert written(buffer) == [1, 2]
        append([3], [6], ended, final)
        if autoreset == "next_step":
            with pytest.raises(SchemaMismatch, match="nothing was added"):
                append([4], huge, not_yet)
            append([4], [7], not_yet)
        episode = next(buffer.episodes())
        assert episode["obs"]["tokens"]["values"].tolist() == [1, 3]
        assert episode["final_obs"]["tokens"]["values"].tolist() == [4]
