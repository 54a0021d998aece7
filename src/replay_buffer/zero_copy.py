"""What zero-copy environments do to observations that are kept: a small simulation of one."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from typing import Any

import numpy as np
import numpy.typing as npt

from .arguments import count, floats
from .errors import InvalidArgument, OutOfSpace, short, shown
from .pipeline import rounded

Floats = npt.NDArray[np.float64]
#: One step of all environments: observations, rewards, dones.
Step = tuple[Floats, Floats, Floats]


def zero_copy_env_simulation(
    num_envs: int,
    obs_dim: int,
    step_data: Iterable[tuple[Any, Any, Any]],
    commands: Iterable[tuple[str, ...]],
) -> dict[str, Any]:
    """Run commands on environments that write each step into the same memory.

    `step_data` has a tuple (obs, rewards, dones) for each step: `num_envs` rows of `obs_dim`
    numbers, and a number and a flag for each environment. The commands are tuples:

        ("step",)              the next entry of step_data is written into the buffers, in place
        ("store_view", name)   keep a view of the observations, which changes with them
        ("store_copy", name)   keep a copy of the observations
        ("read", name)         add what was kept to the reads
        ("read_buffer",)       add the observations to the reads
        ("check_alias", name)  whether what was kept shares memory with the observations
        ("auto_reset",)        zero the observation and reward of every environment that is done

    Underscores may be spaces. A name that is stored again is replaced. Before the first step
    everything is zero. The result has

        reads               nested lists, rounded to 4 decimals
        alias_checks        what the checks found
        total_copies        how many copies were stored
        total_views         how many views
        total_bytes_saved   what copies in the place of the views would have taken
        buffer_reallocs     how often a buffer was found elsewhere in memory after a command; 0

    InvalidArgument names the command or the step that is wrong. The arguments are not changed.
    """
    num_envs, obs_dim = count("num_envs", num_envs), count("obs_dim", obs_dim)
    simulation = _Simulation(num_envs, obs_dim, _steps(step_data, num_envs, obs_dim))
    for i, command in enumerate(_listed("commands", commands)):
        simulation.run(f"commands[{i}]", command)
    return simulation.result()


class _Simulation:
    """The buffers of the environments, and what was kept of them."""

    def __init__(self, num_envs: int, obs_dim: int, steps: list[Step]) -> None:
        try:
            self._observations = np.zeros((num_envs, obs_dim))
            self._rewards = np.zeros(num_envs)
            self._dones = np.zeros(num_envs, np.int8)
        except (MemoryError, ValueError, OverflowError):
            raise OutOfSpace(
                f"observations of {shown(num_envs)} x {shown(obs_dim)} do not fit in memory"
            ) from None
        self._addresses = self._addresses_now()
        self._steps = steps
        self._next = 0
        self._where = ""  # the command that is carried out
        self._kept: dict[str, Floats] = {}
        self._reads: list[Any] = []
        self._alias_checks: list[bool] = []
        self._copies = self._views = self._reallocs = 0

    def run(self, where: str, command: Any) -> None:
        if not isinstance(command, (tuple, list)) or not command:
            raise InvalidArgument(
                f"{where} must be a tuple such as ('step',), not {short(command)}"
            )
        verb = command[0].replace(" ", "_") if isinstance(command[0], str) else ""
        if verb not in _COMMANDS:
            known = ", ".join(_COMMANDS)
            raise InvalidArgument(f"{where}: {short(command[0])} is none of the commands {known}")
        carry_out, named = _COMMANDS[verb]
        if len(command) != 1 + named or (named and not isinstance(command[1], str)):
            wanted = f"({verb!r}, name)" if named else f"({verb!r},)"
            raise InvalidArgument(f"{where} must be {wanted}, not {short(command)}")
        self._where = where
        carry_out(self, *command[1:])
        addresses = self._addresses_now()
        self._reallocs += sum(a != b for a, b in zip(addresses, self._addresses, strict=True))
        self._addresses = addresses

    def result(self) -> dict[str, Any]:
        return {
            "reads": self._reads,
            "alias_checks": self._alias_checks,
            "total_copies": self._copies,
            "total_views": self._views,
            "total_bytes_saved": self._views * self._observations.nbytes,
            "buffer_reallocs": self._reallocs,
        }

    # ---------------------------------------------------------------------------------- commands

    def step(self) -> None:
        if self._next == len(self._steps):
            raise InvalidArgument(f"{self._where}: step_data has no step after its {self._next}")
        self._observations[:], self._rewards[:], self._dones[:] = self._steps[self._next]
        self._next += 1

    def store_view(self, name: str) -> None:
        self._kept[name] = self._observations.view()
        self._views += 1

    def store_copy(self, name: str) -> None:
        self._kept[name] = self._observations.copy()
        self._copies += 1

    def read(self, name: str) -> None:
        self._reads.append(rounded(self._found(name)))

    def read_buffer(self) -> None:
        self._reads.append(rounded(self._observations))

    def check_alias(self, name: str) -> None:
        kept = self._found(name)
        self._alias_checks.append(bool(np.shares_memory(kept, self._observations)))

    def auto_reset(self) -> None:
        done = self._dones != 0
        self._observations[done] = 0
        self._rewards[done] = 0

    # --------------------------------------------------------------------------------- internals

    def _found(self, name: str) -> Floats:
        if name not in self._kept:
            raise InvalidArgument(f"{self._where}: nothing was stored as {name!r}")
        return self._kept[name]

    def _addresses_now(self) -> list[int]:
        buffers = (self._observations, self._rewards, self._dones)
        return [buffer.__array_interface__["data"][0] for buffer in buffers]


#: The commands, and whether each is followed by a name.
_COMMANDS: dict[str, tuple[Callable[..., None], bool]] = {
    "step": (_Simulation.step, False),
    "store_view": (_Simulation.store_view, True),
    "store_copy": (_Simulation.store_copy, True),
    "read": (_Simulation.read, True),
    "read_buffer": (_Simulation.read_buffer, False),
    "check_alias": (_Simulation.check_alias, True),
    "auto_reset": (_Simulation.auto_reset, False),
}


def _steps(step_data: Any, num_envs: int, obs_dim: int) -> list[Step]:
    """Copies of all steps; raises what is wrong with one, whether or not it is ever reached."""
    steps: list[Step] = []
    for i, step in enumerate(_listed("step_data", step_data)):
        where = f"step_data[{i}]"
        if not isinstance(step, (tuple, list)) or len(step) != 3:
            raise InvalidArgument(f"{where} must be (obs, rewards, dones), not {short(step)}")
        obs = floats(f"{where}: obs", step[0], (num_envs, obs_dim))
        rewards = floats(f"{where}: rewards", step[1], (num_envs,))
        dones = floats(f"{where}: dones", step[2], (num_envs,))
        if not np.isin(dones, (0, 1)).all():
            raise InvalidArgument(f"{where}: dones must be True or False, not {short(step[2])}")
        steps.append((obs, rewards, dones))
    return steps


def _listed(name: str, values: Any) -> Iterator[Any]:
    try:
        return iter(values)
    except TypeError:
        kind = type(values).__name__
        raise InvalidArgument(f"{name} must be a list of tuples, not {kind}") from None
