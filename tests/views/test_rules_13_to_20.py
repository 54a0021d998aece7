"""Rules 13 to 20 that other replay buffers broke; each test fails on the bug it is named after.

Observations are numbers written by hand, so that what must come out can be read off.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    NotEnoughRows,
    NStep,
    ReplayBuffer,
    Schema,
    Sequence,
)

SCHEMA = Schema(
    {
        "obs": Column((), "float32"),
        "action": Column((), "int64"),
        "reward": Column((), "float32"),
        "terminated": Column((), "bool"),
        "truncated": Column((), "bool"),
    }
)


def make(capacity: int, **options: Any) -> ReplayBuffer:
    return ReplayBuffer(BufferConfig(capacity, storage="steps", **options), schema=SCHEMA, seed=3)


def write(writer: Any, observations: list[float], end: str = "", final: float = -1.0) -> list[int]:
    """An episode of one stream; rewards are 1, actions count. Without `end` it goes on."""
    ids = []
    for i, obs in enumerate(observations):
        last = i == len(observations) - 1
        flags = (last and end == "terminated", last and end == "truncated")
        final_obs = final if any(flags) else None
        ids.append(int(writer.append(obs, i, 1.0, *flags, final_obs=final_obs)))
    return ids


def by_obs(batch: dict[str, Any], *names: str) -> dict[float, tuple[float, ...]]:
    """The values of some arrays for each observation of a batch."""
    rows = zip(*(batch[name].tolist() for name in names), strict=True)
    return dict(zip(batch["obs"].tolist(), rows, strict=True))


def all_of(buffer: ReplayBuffer, *parts: Any) -> dict[str, Any]:
    view = buffer.view(*parts)
    return view.get(view.starts())


def test_rule_13_steps_near_an_episodes_end_are_starts_with_their_true_k() -> None:
    buffer = make(50)
    write(buffer.writer(), [1, 2, 3, 4], "truncated", 5)
    made = by_obs(all_of(buffer, NStep(3, 0.5)), "reward", "k", "discount", "next_obs")
    assert made == {
        1: (1.75, 3, 0.125, 4),
        2: (1.75, 3, 0.125, 5),
        3: (1.5, 2, 0.25, 5),
        4: (1.0, 1, 0.5, 5),
    }


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
def test_rule_13_episodes_shorter_than_n_are_drawn(strategy: Any) -> None:
    buffer = make(50, strategy=strategy)
    writer = buffer.writer()
    for i in range(10):
        write(writer, [i], "terminated")
    batch = buffer.view(NStep(5, 0.9)).sample(500)
    assert set(batch["obs"]) == set(range(10))
    assert (batch["k"] == 1).all()


@pytest.mark.parametrize("autoreset", ["same_step", "next_step"])
def test_rule_14_the_tail_at_a_truncation_bootstraps_from_the_final_observation(
    autoreset: Any,
) -> None:
    buffer = make(50)
    writer = buffer.writer(1, autoreset)
    if autoreset == "same_step":
        write(writer, [1, 2, 3], "truncated", 99)
    else:
        for obs, truncated in ((1, False), (2, False), (3, True), (99, False)):
            writer.append(float(obs), 0, 1.0, False, truncated)
    write(writer, [10, 11])
    made = by_obs(all_of(buffer, NStep(5, 0.5)), "next_obs", "discount", "truncated")
    assert made[1] == (99, 0.125, True)
    assert made[2] == (99, 0.25, True)
    assert made[3] == (99, 0.5, True)
    assert 99 not in made


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_rule_15_returns_stop_at_either_end_and_only_terminated_removes_the_bootstrap(
    end: str,
) -> None:
    buffer = make(50)
    writer = buffer.writer()
    write(writer, [1, 2], end, 3)
    write(writer, [10, 11, 12])
    made = by_obs(all_of(buffer, NStep(4, 0.5)), "reward", "k", "discount", "next_obs")
    gone = end == "terminated"
    assert made[1] == (1.5, 2, 0 if gone else 0.25, 3)
    assert made[2] == (1.0, 1, 0 if gone else 0.5, 3)


def test_rule_15_returns_stop_at_the_write_cursor_with_a_bootstrap() -> None:
    buffer = make(50)
    write(buffer.writer(), [1, 2, 3])
    made = by_obs(all_of(buffer, NStep(9, 0.5)), "reward", "k", "discount", "next_obs")
    assert made == {1: (1.5, 2, 0.25, 3), 2: (1.0, 1, 0.5, 3)}


def test_rule_15_returns_stop_where_an_episode_was_cut() -> None:
    buffer = make(50)
    writer = buffer.writer()
    write(writer, [1, 2, 3])
    writer.end(0)
    write(writer, [10, 11])
    made = by_obs(all_of(buffer, NStep(9, 0.5)), "k", "next_obs")
    assert made == {1: (2, 3), 2: (1, 3), 10: (1, 11)}


@pytest.mark.parametrize("end", ["terminated", "truncated"])
def test_rule_16_the_last_next_obs_is_the_final_observation(end: str) -> None:
    buffer = make(50)
    writer = buffer.writer()
    for i in range(5):
        write(writer, [10 * i, 10 * i + 1], end, 10 * i + 9)
    made = by_obs(all_of(buffer), "next_obs")
    assert made == {10 * i + j: (10 * i + (1 if j == 0 else 9),) for i in range(5) for j in (0, 1)}
    assert set(buffer.sample(500)["next_obs"]) == {next_obs for (next_obs,) in made.values()}


@pytest.mark.parametrize("extra", range(20))
@pytest.mark.parametrize("parts", [(), (NStep(3),), (FrameStack(2),)])
def test_rule_17_the_newest_row_is_never_paired_with_the_oldest(
    parts: tuple[Any, ...], extra: int
) -> None:
    buffer = make(10)
    write(buffer.writer(), [float(i) for i in range(15 + extra)])
    batch = buffer.view(*parts).sample(300)
    obs, next_obs = batch["obs"], batch["next_obs"]
    if FrameStack(2) in parts:
        assert (obs[:, 1] == obs[:, 0] + 1).all()
        obs, next_obs = obs[:, 1], next_obs[:, 1]
    assert (next_obs == obs + batch.get("k", 1)).all()
    assert obs.max() == 13 + extra, "the newest row has no successor, the one before it has"


def test_rule_18_frame_stacks_never_mix_episodes_and_padding_is_the_first_frame() -> None:
    buffer = make(50)
    writer = buffer.writer()
    write(writer, [1, 2], "terminated", 3)
    write(writer, [10, 11, 12, 13])
    batch = all_of(buffer, FrameStack(3))
    stacks = {frames[-1]: frames for frames in batch["obs"].tolist()}
    assert stacks == {
        1: [1, 1, 1],
        2: [1, 1, 2],
        10: [10, 10, 10],
        11: [10, 10, 11],
        12: [10, 11, 12],
    }
    after = dict(zip(batch["obs"][:, -1].tolist(), batch["next_obs"].tolist(), strict=True))
    assert after[2] == [1, 2, 3]
    assert after[10] == [10, 10, 11]
    assert batch["terminated"][batch["obs"][:, -1] != 2].sum() == 0, "padding is no terminal"


def test_rule_18_padding_of_sequences_is_masked_and_no_first_step() -> None:
    buffer = make(50)
    write(buffer.writer(), [1, 2], "terminated", 3)
    batch = all_of(buffer, Sequence(3, burn_in=1))
    order = np.argsort(batch["indices"])
    assert batch["obs"][order].tolist() == [[0, 1, 2, 0], [1, 2, 0, 0]]
    assert batch["mask"][order].tolist() == [[0, 1, 1, 0], [1, 1, 0, 0]]
    assert batch["is_first"][order].tolist() == [[0, 1, 0, 0], [1, 0, 0, 0]]
    assert batch["terminated"][order].tolist() == [[0, 0, 1, 0], [0, 1, 0, 0]]


@pytest.mark.parametrize("cross", [False, True])
@pytest.mark.parametrize("extra", range(12))
def test_rule_19_sequences_never_span_the_write_head(extra: int, cross: bool) -> None:
    buffer = make(10)
    newest = 15 + extra
    write(buffer.writer(), [float(i) for i in range(newest + 1)])
    view = buffer.view(Sequence(6, burn_in=3, cross_episodes=cross))
    batch = view.sample(300)
    for obs, mask in zip(batch["obs"], batch["mask"], strict=True):
        steps = obs[mask]
        assert (np.diff(steps) == 1).all()
        assert newest - 10 < steps[0] <= steps[-1] <= newest


def test_rule_20_terminated_and_truncated_are_two_columns() -> None:
    buffer = make(50)
    writer = buffer.writer()
    write(writer, [1], "terminated")
    write(writer, [2], "truncated")
    writer.append(3.0, 0, 1.0, True, True, final_obs=0.0)
    made = by_obs(buffer.view(NStep(1, 0.5)).sample(100), "terminated", "truncated", "discount")
    assert made == {1: (True, False, 0), 2: (False, True, 0.5), 3: (True, True, 0)}


def test_rule_20_done_is_short_for_terminated() -> None:
    buffer = make(50)
    writer = buffer.writer()
    writer.append(obs=1.0, action=0, reward=1.0, done=True, final_obs=2.0)
    writer.append(obs=5.0, action=0, reward=1.0, done=False)
    made = by_obs(all_of(buffer), "terminated", "truncated", "next_obs")
    assert made == {1: (True, False, 2)}


def test_rule_20_an_info_dict_is_not_asked() -> None:
    buffer = make(50)
    writer = buffer.writer()
    with pytest.raises(ValueError, match="infos"):
        writer.append(1.0, 0, 1.0, False, False, infos={"TimeLimit.truncated": True})
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
