"""One step of many environments, handed from workers to a learner through shared memory."""

from __future__ import annotations

import operator
from collections.abc import Iterable
from contextlib import ExitStack
from typing import Any

import numpy as np
import numpy.typing as npt

from .arguments import count, floats
from .errors import InvalidArgument, short, shown
from .shared_array import SharedArray


def shared_memory_rl_pipeline(
    num_envs: int, obs_dim: int, step_data: Iterable[tuple[int, Any, float, bool]]
) -> dict[str, Any]:
    """Write the steps of environments into shared memory, read them by name and sum them up.

    `step_data` has a tuple (env_id, obs, reward, done) for each step; a later one of the same
    environment replaces the earlier. Environments without a step are zero. The result has

        observations, rewards, dones   what was read back, as lists
        mean_obs                       over all environments, for each dimension
        mean_reward                    over all environments
        num_done                       how many are done
        active_mean_reward             over those that are not done; 0.0 when all are
        total_shared_bytes             of the three blocks

    with floats rounded to 4 decimals. InvalidArgument names the step that does not fit. The shared
    memory is gone when this returns or raises.
    """
    num_envs, obs_dim = count("num_envs", num_envs), count("obs_dim", obs_dim)
    with ExitStack() as blocks:
        shared = []
        for shape, dtype in (
            ((num_envs, obs_dim), "float64"),
            ((num_envs,), "float64"),
            ((num_envs,), "int8"),
        ):
            shared.append(blocks.enter_context(SharedArray.create(shape, dtype)))
            blocks.callback(shared[-1].unlink)
        _write_steps(step_data, *(block.array for block in shared))
        copies = [_read(block.name) for block in shared]
    return _summary(*copies)


def _read(name: str) -> npt.NDArray[Any]:
    """What another process does: open by name, copy, close."""
    with SharedArray.open(name) as block:
        return np.array(block.array)


def _write_steps(
    step_data: Any,
    observations: npt.NDArray[Any],
    rewards: npt.NDArray[Any],
    dones: npt.NDArray[Any],
) -> None:
    num_envs, obs_dim = observations.shape
    try:
        steps = enumerate(step_data)
    except TypeError:
        raise InvalidArgument(
            f"step_data must be a list of tuples, not {type(step_data).__name__}"
        ) from None
    for i, step in steps:
        where = f"step_data[{i}]"
        if not isinstance(step, (tuple, list)) or len(step) != 4:
            raise InvalidArgument(f"{where} must be (env_id, obs, reward, done), not {short(step)}")
        env = _env_id(where, step[0], num_envs)
        obs = floats(f"{where}: obs", step[1], (obs_dim,))
        reward = floats(f"{where}: reward", step[2], ())
        done = floats(f"{where}: done", step[3], ())
        if done not in (0, 1):
            raise InvalidArgument(f"{where}: done must be True or False, not {shown(step[3])}")
        observations[env], rewards[env], dones[env] = obs, reward, done


def _summary(
    observations: npt.NDArray[Any], rewards: npt.NDArray[Any], dones: npt.NDArray[Any]
) -> dict[str, Any]:
    active = rewards[dones == 0]
    with np.errstate(all="ignore"):  # infinite rewards have a mean that is infinite or not a number
        mean_obs, mean_reward = observations.mean(axis=0), rewards.mean()
        active_mean_reward = active.mean() if active.size else 0.0
    return {
        "observations": rounded(observations),
        "rewards": rounded(rewards),
        "dones": dones.tolist(),
        "mean_obs": rounded(mean_obs),
        "mean_reward": round(float(mean_reward), 4),
        "num_done": int(np.count_nonzero(dones)),
        "active_mean_reward": round(float(active_mean_reward), 4),
        "total_shared_bytes": observations.nbytes + rewards.nbytes + dones.nbytes,
    }


def rounded(values: npt.NDArray[Any]) -> list[Any]:
    """An array as lists, with 4 decimals."""
    if values.ndim > 1:
        return [rounded(row) for row in values]
    return [round(value, 4) for value in values.tolist()]


def _env_id(where: str, value: Any, num_envs: int) -> int:
    try:
        env = operator.index(value)
    except TypeError:
        env = -1
    if isinstance(value, bool) or not 0 <= env < num_envs:
        raise InvalidArgument(
            f"{where}: env_id must be a whole number from 0 to {num_envs - 1}, not {shown(value)}"
        )
    return env
