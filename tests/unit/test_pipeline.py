"""shared_memory_rl_pipeline: what it returns; and that it leaves nothing behind, come what may."""

from __future__ import annotations

import json
import math
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import InvalidArgument, OutOfSpace, shared_memory_rl_pipeline

SHARED_MEMORY = Path("/dev/shm")


@pytest.fixture(autouse=True)
def _nothing_is_left(shm_dir: Path) -> Iterator[None]:
    yield
    assert list(shm_dir.iterdir()) == []


def test_the_whole_result() -> None:
    steps = [
        (0, [1.0, 2.0, 3.0], 0.5, False),
        (2, [4.00004, 5.00006, -6.0], 1.0, True),
    ]
    assert shared_memory_rl_pipeline(4, 3, steps) == {
        "observations": [[1.0, 2.0, 3.0], [0.0] * 3, [4.0, 5.0001, -6.0], [0.0] * 3],
        "rewards": [0.5, 0.0, 1.0, 0.0],
        "dones": [0, 0, 1, 0],
        "mean_obs": [1.25, 1.75, -0.75],
        "mean_reward": 0.375,
        "num_done": 1,
        "active_mean_reward": 0.1667,
        "total_shared_bytes": 4 * 3 * 8 + 4 * 8 + 4,
    }


def test_no_step_at_all_gives_zeros() -> None:
    assert shared_memory_rl_pipeline(2, 1, []) == {
        "observations": [[0.0], [0.0]],
        "rewards": [0.0, 0.0],
        "dones": [0, 0],
        "mean_obs": [0.0],
        "mean_reward": 0.0,
        "num_done": 0,
        "active_mean_reward": 0.0,
        "total_shared_bytes": 34,
    }


def test_a_later_step_replaces_an_earlier_one() -> None:
    result = shared_memory_rl_pipeline(1, 2, [(0, [1, 2], 3, True), (0, [4, 5], 6, False)])
    assert result["observations"] == [[4.0, 5.0]]
    assert (result["rewards"], result["dones"]) == ([6.0], [0])


def test_the_mean_over_active_environments_is_zero_when_all_are_done() -> None:
    result = shared_memory_rl_pipeline(2, 1, [(0, [1], 3.0, True), (1, [1], 5.0, True)])
    assert (result["num_done"], result["mean_reward"]) == (2, 4.0)
    assert result["active_mean_reward"] == 0.0


def test_means_are_of_the_values_before_rounding() -> None:
    result = shared_memory_rl_pipeline(2, 1, [(0, [0.00006], 0.00006, False)])
    assert (result["observations"], result["mean_obs"]) == ([[0.0001], [0.0]], [0.0])
    assert (result["rewards"], result["mean_reward"]) == ([0.0001, 0.0], 0.0)


def test_the_result_is_made_of_plain_python_values() -> None:
    steps = [(np.int64(1), np.array([1, 2], np.float32), np.float32(0.5), np.bool_(True))]
    result = shared_memory_rl_pipeline(np.int32(2), 2, iter(steps))  # type: ignore[arg-type]
    assert json.loads(json.dumps(result)) == result
    assert result["observations"][1] == [1.0, 2.0]
    assert [type(value) for value in result["dones"]] == [int, int]


def test_values_that_are_not_finite_pass_through() -> None:
    steps = [(0, [math.inf], math.nan, False), (1, [-math.inf], 1e308, False)]
    result = shared_memory_rl_pipeline(2, 1, steps)
    assert result["observations"] == [[math.inf], [-math.inf]]
    assert math.isnan(result["mean_obs"][0])
    assert math.isnan(result["mean_reward"])


@pytest.mark.parametrize("bad", [0, -1, 1.5, "3", None, True])
@pytest.mark.parametrize("argument", ["num_envs", "obs_dim"])
def test_sizes_are_positive_whole_numbers(argument: str, bad: Any) -> None:
    sizes = {"num_envs": 2, "obs_dim": 2, argument: bad}
    with pytest.raises(InvalidArgument, match=argument):
        shared_memory_rl_pipeline(**sizes, step_data=[])


GOOD = (0, [1.0, 2.0], 0.5, False)


@pytest.mark.parametrize(
    ("step", "message"),
    [
        ((-1, [1.0, 2.0], 0.5, False), r"step_data\[1\]: env_id .* from 0 to 2, not -1"),
        ((3, [1.0, 2.0], 0.5, False), r"env_id .* not 3"),
        ((1.0, [1.0, 2.0], 0.5, False), r"env_id .* not 1\.0"),
        (("1", [1.0, 2.0], 0.5, False), "env_id .* not '1'"),
        ((True, [1.0, 2.0], 0.5, False), "env_id .* not True"),
        ((None, [1.0, 2.0], 0.5, False), "env_id .* not None"),
        ((0, [1.0], 0.5, False), r"obs must be 2 numbers, not of shape \(1,\)"),
        ((0, [1.0, 2.0, 3.0], 0.5, False), "obs must be 2 numbers"),
        ((0, 1.0, 0.5, False), "obs must be 2 numbers"),
        ((0, [[1.0, 2.0]], 0.5, False), "obs must be 2 numbers"),
        ((0, [[1.0], 2.0], 0.5, False), "obs must be made of numbers"),
        ((0, ["1", "2"], 0.5, False), "obs must be made of numbers"),
        ((0, [None, 2.0], 0.5, False), "obs must be made of numbers"),
        ((0, None, 0.5, False), "obs must be made of numbers"),
        ((0, [1j, 2.0], 0.5, False), "obs must be made of numbers"),
        ((0, [1.0, 2.0], "0.5", False), "reward must be made of numbers"),
        ((0, [1.0, 2.0], [0.5], False), "reward must be one number"),
        ((0, [1.0, 2.0], None, False), "reward must be made of numbers"),
        ((0, [1.0, 2.0], 0.5, "no"), "done must be made of numbers"),
        ((0, [1.0, 2.0], 0.5, None), "done must be made of numbers"),
        ((0, [1.0, 2.0], 0.5, 2), "done must be True or False"),
        ((0, [1.0, 2.0], 0.5, math.nan), "done must be True or False"),
        ((0, [1.0, 2.0], 0.5), r"must be \(env_id, obs, reward, done\)"),
        ((0, [1.0, 2.0], 0.5, False, {}), r"must be \(env_id, obs, reward, done\)"),
        ((), r"must be \(env_id, obs, reward, done\)"),
        (7, r"must be \(env_id, obs, reward, done\)"),
        ("0123", r"must be \(env_id, obs, reward, done\)"),
    ],
)
def test_a_step_that_does_not_fit_is_named(step: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        shared_memory_rl_pipeline(3, 2, [GOOD, step, GOOD])


@pytest.mark.parametrize("steps", [None, 3])
def test_steps_must_be_a_list(steps: Any) -> None:
    with pytest.raises(InvalidArgument, match="step_data"):
        shared_memory_rl_pipeline(3, 2, steps)


def test_an_error_of_the_callers_own_passes_through() -> None:
    def steps() -> Iterator[Any]:
        yield GOOD
        raise KeyError("mine")

    with pytest.raises(KeyError, match="mine"):
        shared_memory_rl_pipeline(3, 2, steps())


def test_sizes_that_do_not_fit_into_memory_are_an_error() -> None:
    with pytest.raises((OutOfSpace, InvalidArgument)):
        shared_memory_rl_pipeline(2**39, 2**12, [])


def test_the_directory_of_the_system_is_left_clean(monkeypatch: pytest.MonkeyPatch) -> None:
    if not SHARED_MEMORY.is_dir():
        pytest.skip("there is no /dev/shm")
    monkeypatch.delenv("REPLAY_BUFFER_SHM_DIR")
    before = set(SHARED_MEMORY.glob("replay_buffer_array.*"))
    shared_memory_rl_pipeline(3, 2, [GOOD])
    with pytest.raises(InvalidArgument):
        shared_memory_rl_pipeline(3, 2, [GOOD, ()])  # type: ignore[list-item]
    assert set(SHARED_MEMORY.glob("replay_buffer_array.*")) <= before
