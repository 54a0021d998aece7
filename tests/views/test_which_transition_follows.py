"""Of transitions, n steps go from one row to the next only where it is known to follow.

Observations are numbers that say of which environment, episode and step they are.
"""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, InvalidArgument, NStep, ReplayBuffer

FLAG = Column((), "bool")
REST = {"action": Column((), "int64"), "reward": Column((), "float64")}
PAIR = Column((2,), "float32")
#: What an observation may be stored as.
STORED: dict[str, Any] = {
    "scalar": Column((), "int16"),
    "three bytes": Column((3,), "uint8"),
    "four bytes": Column((), "int32"),
    "a few numbers": Column((5,), "float32"),
    "more than a line": Column((17,), "float32"),
    "frame": Column((84, 84), "uint8"),
    "compressed frame": Column((84, 84), "uint8", compression="lz4"),
    "any length": Column((None,), "int32"),
    "any length, compressed": Column((None,), "float64", compression="zstd"),
    "nested": {"frame": Column((84, 84), "uint8"), "in": {"speed": Column((2,), "float16")}},
}


def observation(column: Any, number: int) -> Any:
    """One that no other number has, in every column."""
    if isinstance(column, dict):
        return {name: observation(inner, number) for name, inner in column.items()}
    shape = (20 + number % 7, *column.item_shape) if column.variable else column.shape
    value = np.full(shape, 1, column.dtype)
    value[...] = number
    return value


def stack(values: list[Any]) -> Any:
    """A batch of values of one kind."""
    if isinstance(values[0], dict):
        return {name: stack([value[name] for value in values]) for name in values[0]}
    same = len({value.shape for value in values}) == 1
    return np.stack(values) if same else values


def make(obs: Any = PAIR, capacity: int = 400, **options: Any) -> ReplayBuffer:
    schema = {"obs": obs, **REST, "next_obs": obs, "done": FLAG}
    return ReplayBuffer(BufferConfig(capacity, **options), schema=schema, seed=3)


def fill(buffer: ReplayBuffer, obs: Any, envs: int, steps: int, length: int) -> None:
    """`envs` environments in batches; an episode is cut after `length` steps, without a flag."""
    for t in range(steps):
        episode, step = divmod(t, length)
        numbers = [(100 * env + 10 * episode + step) % 251 for env in range(envs)]
        buffer.add_batch(
            obs=stack([observation(obs, n) for n in numbers]),
            action=np.array(numbers),
            reward=np.full(envs, 1.0),
            next_obs=stack([observation(obs, n + 1) for n in numbers]),
            done=np.zeros(envs, bool),
        )


def numbers(value: Any) -> list[int]:
    """The number of each observation of a batch."""
    if isinstance(value, dict) and "offsets" in value:
        return [int(value["values"][at]) for at in value["offsets"][:-1]]
    if isinstance(value, dict):
        return numbers(next(iter(value.values())))
    return [int(one.flat[0]) for one in value]


@pytest.mark.parametrize("kind", STORED)
def test_n_steps_of_one_environment_end_where_its_episode_was_cut(kind: str) -> None:
    obs = STORED[kind]
    buffer = make(obs)
    fill(buffer, obs, 1, 60, length=6)
    batch = buffer.view(NStep(4, 1.0)).get(np.arange(60))
    ks = [min(4, 6 - t % 6) for t in range(60)]
    assert batch["k"].tolist() == ks
    assert batch["reward"].tolist() == ks
    assert numbers(batch["next_obs"]) == [
        n + k for n, k in zip(numbers(batch["obs"]), ks, strict=True)
    ]
    assert (batch["discount"] == 1).all()


@pytest.mark.parametrize("kind", STORED)
@pytest.mark.parametrize("envs", [2, 4])
def test_n_steps_never_run_from_one_environment_into_another(kind: str, envs: int) -> None:
    obs = STORED[kind]
    buffer = make(obs)
    fill(buffer, obs, envs, 30, length=6)
    view = buffer.view(NStep(3, 0.5))
    into = view.sample(64, out=view.sample(64))
    for batch in (view.get(np.arange(30 * envs)), view.sample(300), into):
        assert (batch["k"] == 1).all()
        assert (batch["reward"] == 1).all()
        assert (batch["discount"] == 0.5).all()
        assert numbers(batch["next_obs"]) == [n + 1 for n in numbers(batch["obs"])]


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
@pytest.mark.parametrize("n", [3, 100])
def test_whole_trajectories_in_batches_are_streams(strategy: str, n: int) -> None:
    buffer = make(strategy=strategy, cer=True)
    for start in range(0, 1000, 10):
        times = np.arange(start, start + 10)
        obs = np.stack([times, -times], 1).astype(np.float32)
        next_obs = np.concatenate([obs[1:], obs[:1] + 0.5])
        buffer.add_batch(obs, times, np.ones(10), next_obs, np.zeros(10, bool))
    batch = buffer.view(NStep(n, 1.0)).sample(300)
    assert (batch["k"] == np.minimum(n, 10 - batch["action"] % 10)).all()
    assert (batch["reward"] == batch["k"]).all()


def test_an_observation_that_stands_still_proves_nothing() -> None:
    buffer = make()
    still = np.zeros((4, 2))
    for _ in range(10):  # four environments, none of which has moved yet
        buffer.add_batch(still, np.arange(4), np.arange(4.0), still, np.zeros(4, bool))
    batch = buffer.view(NStep(3, 1.0)).get(np.arange(40))
    assert (batch["k"] == 1).all()
    assert (batch["reward"] == batch["action"]).all()
    told = buffer.view(NStep(3, 1.0, one_stream=True)).get(np.arange(38))
    assert (told["k"] == 3).all()


def test_one_column_that_moves_goes_on_and_one_that_differs_does_not() -> None:
    obs = {"still": PAIR, "clock": Column((), "int32")}
    buffer = make(obs)

    def at(t: int) -> dict[str, Any]:
        return {"still": [1.0, 2.0], "clock": t}

    for t in range(5):
        buffer.add(obs=at(t), action=t, reward=1, next_obs=at(t + 1), done=False)
    other = {"still": [1.0, 2.5], "clock": 5}
    buffer.add(obs=other, action=5, reward=1, next_obs=at(6), done=False)
    batch = buffer.view(NStep(9)).get(np.arange(6))
    assert batch["k"].tolist() == [5, 4, 3, 2, 1, 1]


def test_the_caller_may_say_that_it_is_one_stream() -> None:
    buffer = make()
    random = np.random.default_rng(0).random
    for t in range(20):
        buffer.add(random(2), t, 1.0, random(2), t == 9)
    ks = [min(3, 10 - t % 10) for t in range(20)]
    assert buffer.view(NStep(3, one_stream=True)).get(np.arange(20))["k"].tolist() == ks
    assert (buffer.view(NStep(3)).get(np.arange(20))["k"] == 1).all()


#: Schemas of which no two columns can be compared, by what is wrong.
WITHOUT_PAIRS: dict[str, dict[str, Any]] = {
    "neither": {"state": PAIR},
    "no next_obs": {"obs": PAIR},
    "no obs": {"next_obs": PAIR},
    "another dtype": {"obs": PAIR, "next_obs": Column((2,), "float64")},
    "another shape": {"obs": PAIR, "next_obs": Column((3,))},
    "one compressed": {"obs": PAIR, "next_obs": Column((2,), compression="lz4")},
    "a column missing": {"obs": {"a": PAIR, "b": PAIR}, "next_obs": {"a": PAIR}},
    "one nested": {"obs": {"a": PAIR}, "next_obs": PAIR},
}


@pytest.mark.parametrize("wrong", WITHOUT_PAIRS)
def test_where_nothing_can_be_compared_n_steps_are_refused(wrong: str) -> None:
    fields = {**WITHOUT_PAIRS[wrong], **REST, "done": FLAG}
    buffer = ReplayBuffer(BufferConfig(20), schema=fields)
    with pytest.raises(InvalidArgument, match=r"storage='steps'.*one_stream=True"):
        buffer.view(NStep(2))
    buffer.view(NStep(1))
    buffer.view(NStep(2, one_stream=True))


def test_they_are_refused_when_the_first_row_settles_the_columns_too() -> None:
    buffer = ReplayBuffer(BufferConfig(20))
    view = buffer.view(NStep(2))
    buffer.add(state=[1.0, 2.0], reward=1.0, done=False)
    with pytest.raises(InvalidArgument, match="storage='steps'"):
        view.sample(1)


def test_steps_know_their_streams() -> None:
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"))
    with pytest.raises(InvalidArgument, match="one_stream"):
        buffer.view(NStep(2, one_stream=True))
    buffer.view(NStep(2))


@pytest.mark.parametrize("place", ["file", "checkpoint", "readonly"])
def test_rows_follow_each_other_wherever_they_are_kept(place: str, tmp_path: Path) -> None:
    obs = STORED["nested"]
    location = f"file:{tmp_path}/a.rb"
    schema = {"obs": obs, **REST, "next_obs": obs, "done": FLAG}
    buffer = ReplayBuffer.create(location, BufferConfig(50, block_rows=7), schema=schema)
    fill(buffer, obs, 1, 80, length=6)
    wanted = buffer.view(NStep(3)).get(np.arange(30, 80))
    if place == "checkpoint":
        buffer.checkpoint(tmp_path / "saved")
        other = ReplayBuffer.restore(tmp_path / "saved")
    else:
        buffer.close()
        other = ReplayBuffer.open(location, readonly=place == "readonly")
    got = other.view(NStep(3)).get(np.arange(30, 80))
    assert (
        got["k"].tolist()
        == wanted["k"].tolist()
        == [min(3, 6 - t % 6, 80 - t) for t in range(30, 80)]
    )
    other.close()
    buffer.close()
