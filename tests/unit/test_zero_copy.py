"""zero_copy_env_simulation, sentence by sentence, and beside the same thing in plain lists."""

from __future__ import annotations

import copy
import json
import math
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import replay_buffer.zero_copy
from replay_buffer import InvalidArgument, OutOfSpace, ReplayBufferError, zero_copy_env_simulation

ONE = ([[1.0, 2.0], [3.0, 4.0]], [0.5, 1.5], [False, True])
TWO = ([[5.0, 6.0], [7.0, 8.00006]], [2.5, 3.5], [True, False])
ZEROS = [[0.0, 0.0], [0.0, 0.0]]
HUGE = 10**5000  # of more digits than Python prints


def simulate(*commands: Any, steps: Any = (ONE, TWO)) -> dict[str, Any]:
    return zero_copy_env_simulation(2, 2, list(steps), list(commands))


# ---- what it returns


def test_the_whole_result() -> None:
    assert simulate(
        ("step",),
        ("store_view", "view"),
        ("store_copy", "copy"),
        ("step",),
        ("read", "view"),
        ("read", "copy"),
        ("read_buffer",),
        ("check_alias", "view"),
        ("check_alias", "copy"),
    ) == {
        "reads": [
            [[5.0, 6.0], [7.0, 8.0001]],
            [[1.0, 2.0], [3.0, 4.0]],
            [[5.0, 6.0], [7.0, 8.0001]],
        ],
        "alias_checks": [True, False],
        "total_copies": 1,
        "total_views": 1,
        "total_bytes_saved": 2 * 2 * 8,
        "buffer_reallocs": 0,
    }


def test_no_command_at_all() -> None:
    assert simulate() == {
        "reads": [],
        "alias_checks": [],
        "total_copies": 0,
        "total_views": 0,
        "total_bytes_saved": 0,
        "buffer_reallocs": 0,
    }


def test_everything_is_zero_before_the_first_step() -> None:
    commands = [("store_copy", "c"), ("read", "c"), ("auto_reset",), ("read_buffer",)]
    assert simulate(*commands)["reads"] == [ZEROS, ZEROS]


def test_a_view_that_is_stored_before_a_step_shows_the_step() -> None:
    assert simulate(("store_view", "v"), ("step",), ("read", "v"))["reads"] == [ONE[0]]


def test_environments_that_are_done_are_zeroed_in_place() -> None:
    result = simulate(
        ("step",), ("store_view", "v"), ("store_copy", "c"), ("auto_reset",), ("read", "v"),
        ("read", "c"), ("check_alias", "v"), ("step",), ("auto_reset",), ("read", "v"),
    )  # fmt: skip
    assert result["reads"] == [[[1.0, 2.0], [0.0, 0.0]], ONE[0], [[0.0, 0.0], [7.0, 8.0001]]]
    assert result["alias_checks"] == [True]


def test_a_name_that_is_stored_again_is_replaced_and_counted_again() -> None:
    result = simulate(
        ("store_view", "x"), ("check_alias", "x"), ("store_copy", "x"), ("check_alias", "x"),
        ("store_view", "x"), ("step",), ("read", "x"),
    )  # fmt: skip
    assert (result["alias_checks"], result["reads"]) == ([True, False], [ONE[0]])
    assert (result["total_copies"], result["total_views"]) == (1, 2)
    assert result["total_bytes_saved"] == 2 * 2 * 2 * 8


def test_commands_may_be_spelled_with_spaces() -> None:
    spelled = [
        ("step",), ("store_view", "a b"), ("store_copy", "c_d"), ("read", "a b"), ("read_buffer",),
        ("check_alias", "a b"), ("check_alias", "c_d"), ("auto_reset",), ("read", "a b"),
    ]  # fmt: skip
    spaced = [(command[0].replace("_", " "), *command[1:]) for command in spelled]
    assert simulate(*spaced) == simulate(*spelled)


def test_reads_stay_as_they_were_read() -> None:
    result = simulate(("read_buffer",), ("step",), ("read_buffer",), ("step",), ("read_buffer",))
    assert result["reads"] == [ZEROS, ONE[0], [[5.0, 6.0], [7.0, 8.0001]]]


def test_the_result_is_made_of_plain_python_values() -> None:
    step = (np.ones((2, 2), np.float32), np.array([1, 2]), np.array([True, False]))
    result = zero_copy_env_simulation(
        np.int64(2),  # type: ignore[arg-type]
        2,
        iter([step]),
        iter([("step",), ("store_view", "v"), ("read", "v"), ("check_alias", "v")]),
    )
    assert json.loads(json.dumps(result)) == result
    assert result["alias_checks"] == [True]
    assert result["alias_checks"][0] is True


def test_values_that_are_not_finite_pass_through() -> None:
    step = ([[math.inf, -math.inf], [math.nan, 1e308]], [math.nan, 0.0], [0, 1])
    (read,) = simulate(("step",), ("read_buffer",), steps=[step])["reads"]
    assert read[0] == [math.inf, -math.inf]
    assert math.isnan(read[1][0])


def test_the_arguments_stay_as_they_were() -> None:
    steps = [copy.deepcopy(ONE), tuple(np.array(part) for part in TWO)]
    commands = [("step",), ("store view", "v"), ("auto_reset",), ("step",), ("auto_reset",)]
    before = copy.deepcopy((steps, commands))
    zero_copy_env_simulation(2, 2, steps, commands)
    with pytest.raises(InvalidArgument):
        zero_copy_env_simulation(2, 2, steps, [*commands, ("step",)])
    assert commands == before[1]
    for step, was in zip(steps, before[0], strict=True):
        for part, old in zip(step, was, strict=True):
            assert np.array_equal(part, old)
            assert type(part) is type(old)


# ---- what is real about it


def test_aliases_are_found_by_asking_numpy(monkeypatch: pytest.MonkeyPatch) -> None:
    """A view that is secretly a copy is reported as no alias."""
    commands = [("store_view", "v"), ("check_alias", "v")]
    assert simulate(*commands)["alias_checks"] == [True]

    def secretly_copy(self: Any, name: str) -> None:
        self._kept[name] = self._observations.copy()

    table = {**replay_buffer.zero_copy._COMMANDS, "store_view": (secretly_copy, True)}
    monkeypatch.setattr(replay_buffer.zero_copy, "_COMMANDS", table)
    assert simulate(*commands)["alias_checks"] == [False]


def test_a_step_that_replaces_a_buffer_is_counted(monkeypatch: pytest.MonkeyPatch) -> None:
    kept = []

    def replace(self: Any) -> None:
        kept.append(self._rewards)  # so that its memory is not given out again
        self._rewards = self._rewards.copy()

    assert simulate(("step",), ("step",))["buffer_reallocs"] == 0
    table = {**replay_buffer.zero_copy._COMMANDS, "step": (replace, False)}
    monkeypatch.setattr(replay_buffer.zero_copy, "_COMMANDS", table)
    assert simulate(("step",), ("step",))["buffer_reallocs"] == 2


# ---- beside plain lists


class PlainLists:
    """What is kept is the same list, or another one."""

    def __init__(self, num_envs: int, obs_dim: int, steps: Any) -> None:
        self.size = num_envs * obs_dim * 8
        self.obs = [[0.0] * obs_dim for _ in range(num_envs)]
        self.dones = [0] * num_envs
        self.steps = iter(steps)
        self.kept: dict[str, Any] = {}

    def run(self, commands: Any) -> dict[str, Any]:
        reads: list[Any] = []
        checks: list[bool] = []
        verbs = [command[0].replace(" ", "_") for command in commands]
        for verb, name in zip(verbs, [(*c, None)[1] for c in commands], strict=True):
            if verb == "step":
                obs, _, dones = next(self.steps)
                for row, values in zip(self.obs, obs, strict=True):
                    row[:] = [float(value) for value in values]
                self.dones = list(dones)
            elif verb == "auto_reset":
                for row, done in zip(self.obs, self.dones, strict=True):
                    row[:] = [0.0 if done else value for value in row]
            elif verb == "store_view":
                self.kept[name] = self.obs
            elif verb == "store_copy":
                self.kept[name] = copy.deepcopy(self.obs)
            elif verb == "check_alias":
                checks.append(self.kept[name] is self.obs)
            else:
                read = self.obs if verb == "read_buffer" else self.kept[name]
                reads.append([[round(value, 4) for value in row] for row in read])
        views = verbs.count("store_view")
        return {
            "reads": reads,
            "alias_checks": checks,
            "total_copies": verbs.count("store_copy"),
            "total_views": views,
            "total_bytes_saved": views * self.size,
            "buffer_reallocs": 0,
        }


NUMBERS = st.floats(-1e6, 1e6) | st.integers(-1000, 1000)
NAMES = st.sampled_from(["a", "b", "c c"])


@st.composite
def simulations(draw: st.DrawFn) -> tuple[int, int, list[Any], list[Any]]:
    num_envs, obs_dim = draw(st.integers(1, 4)), draw(st.integers(1, 3))
    row = st.lists(NUMBERS, min_size=obs_dim, max_size=obs_dim)

    def each(of: st.SearchStrategy[Any]) -> st.SearchStrategy[list[Any]]:
        return st.lists(of, min_size=num_envs, max_size=num_envs)

    flags = each(st.booleans() | st.integers(0, 1))
    steps = draw(st.lists(st.tuples(each(row), each(NUMBERS), flags), max_size=6))
    commands: list[Any] = []
    stored: set[str] = set()
    left = len(steps)
    for _ in range(draw(st.integers(0, 25))):
        verbs = ["store_view", "store_copy", "read_buffer", "auto_reset"]
        verbs += ["step"] * bool(left) + ["read", "check_alias"] * bool(stored)
        verb = draw(st.sampled_from(verbs))
        left -= verb == "step"
        said = draw(st.sampled_from([verb, verb.replace("_", " ")]))
        if verb.startswith("store"):
            commands.append((said, draw(NAMES)))
            stored.add(commands[-1][1])
        elif verb in ("read", "check_alias"):
            commands.append((said, draw(st.sampled_from(sorted(stored)))))
        else:
            commands.append((said,))
    return num_envs, obs_dim, steps, commands


@settings(max_examples=200, deadline=None)
@given(simulations())
def test_it_does_what_plain_lists_do(simulation: Any) -> None:
    num_envs, obs_dim, steps, commands = simulation
    expected = PlainLists(num_envs, obs_dim, steps).run(commands)
    assert zero_copy_env_simulation(num_envs, obs_dim, steps, commands) == expected


# ---- errors


@pytest.mark.parametrize("bad", [0, -1, 1.5, "3", None, True, pytest.param(-HUGE, id="huge")])
@pytest.mark.parametrize("argument", ["num_envs", "obs_dim"])
def test_sizes_are_positive_whole_numbers(argument: str, bad: Any) -> None:
    sizes = {"num_envs": 2, "obs_dim": 2, argument: bad}
    with pytest.raises(InvalidArgument, match=argument):
        zero_copy_env_simulation(**sizes, step_data=[], commands=[])


@pytest.mark.parametrize(
    "sizes", [(2**39, 2**12), (2**62, 2**62), (2**80, 1), (HUGE, 1), (1, HUGE)], ids=range(5)
)
def test_sizes_that_do_not_fit_in_memory_are_an_error(sizes: Any) -> None:
    with pytest.raises(OutOfSpace, match="do not fit in memory"):
        zero_copy_env_simulation(*sizes, step_data=[], commands=[])


@pytest.mark.parametrize(
    ("command", "message"),
    [
        ("step", r"commands\[1\] must be a tuple such as \('step',\), not 'step'"),
        ((), r"must be a tuple such as"),
        (None, r"must be a tuple such as"),
        (7, r"must be a tuple such as"),
        (("jump",), r"commands\[1\]: 'jump' is none of the commands step, store_view"),
        (("_step",), r"'_step' is none of the commands"),
        (("result",), r"'result' is none of the commands"),
        (("Step",), r"'Step' is none of the commands"),
        ((3,), r"3 is none of the commands"),
        ((None,), r"None is none of the commands"),
        ((HUGE,), r"a whole number of 16610 bits is none of the commands"),
        pytest.param(HUGE, r"must be a tuple such as", id="huge"),
        (("read", HUGE), r"must be \('read', name\)"),
        (([],), r"\[\] is none of the commands"),
        (("step", "x"), r"commands\[1\] must be \('step',\), not \('step', 'x'\)"),
        (("read_buffer", "x"), r"must be \('read_buffer',\)"),
        (("auto reset", "x"), r"must be \('auto_reset',\)"),
        (("read",), r"must be \('read', name\), not \('read',\)"),
        (("store view",), r"must be \('store_view', name\)"),
        (("store_copy", "a", "b"), r"must be \('store_copy', name\)"),
        (("store_view", 3), r"must be \('store_view', name\)"),
        (("check_alias", None), r"must be \('check_alias', name\)"),
        (("read", "nobody"), r"commands\[1\]: nothing was stored as 'nobody'"),
        (("check alias", "nobody"), r"commands\[1\]: nothing was stored as 'nobody'"),
    ],
)
def test_a_bad_command_is_named(command: Any, message: str) -> None:
    with pytest.raises(InvalidArgument, match=message):
        simulate(("step",), command, ("step",))


def test_a_step_past_the_data_is_an_error() -> None:
    with pytest.raises(InvalidArgument, match=r"commands\[2\]: step_data has no step after its 2"):
        simulate(("step",), ("step",), ("step",))
    with pytest.raises(InvalidArgument, match=r"commands\[0\]: step_data has no step after its 0"):
        simulate(("step",), steps=[])


@pytest.mark.parametrize(
    ("step", "message"),
    [
        (7, r"step_data\[1\] must be \(obs, rewards, dones\)"),
        ((), r"must be \(obs, rewards, dones\)"),
        (ONE[:2], r"must be \(obs, rewards, dones\)"),
        ((*ONE, {}), r"must be \(obs, rewards, dones\)"),
        (([[1.0, 2.0]], [0, 0], [0, 0]), r"step_data\[1\]: obs must be 2 x 2 numbers, not .*1, 2"),
        (([1.0, 2.0], [0, 0], [0, 0]), "obs must be 2 x 2 numbers"),
        (([[[1.0, 2.0], [1.0, 2.0]]], [0, 0], [0, 0]), "obs must be 2 x 2 numbers"),
        (([[1.0, 2.0], [1.0]], [0, 0], [0, 0]), "obs must be made of numbers"),
        (([["1", "2"], ["3", "4"]], [0, 0], [0, 0]), "obs must be made of numbers"),
        ((None, [0, 0], [0, 0]), "obs must be made of numbers"),
        (([[1j, 0], [0, 0]], [0, 0], [0, 0]), "obs must be made of numbers"),
        ((ZEROS, [0], [0, 0]), r"rewards must be 2 numbers, not of shape \(1,\)"),
        ((ZEROS, 0.0, [0, 0]), "rewards must be 2 numbers"),
        ((ZEROS, ["a", "b"], [0, 0]), "rewards must be made of numbers"),
        ((ZEROS, [0, 0], [0, 0, 0]), "dones must be 2 numbers"),
        ((ZEROS, [0, 0], False), "dones must be 2 numbers"),
        ((ZEROS, [0, 0], [0, 2]), "dones must be True or False, not"),
        ((ZEROS, [0, 0], [0, math.nan]), "dones must be True or False"),
        ((np.ma.masked_array(ZEROS, [[0, 1], [0, 0]]), [0, 0], [0, 0]), "obs must be made of"),
        (([[HUGE, 0], [0, 0]], [0, 0], [0, 0]), "obs must be made of"),
        ((ZEROS, [0, 0], [0, HUGE]), "dones must be made of"),
    ],
)  # fmt: skip
def test_a_step_that_does_not_fit_is_named_even_when_it_is_not_reached(
    step: Any, message: str
) -> None:
    for commands in ([], [("step",), ("step",)]):
        with pytest.raises(InvalidArgument, match=message):
            simulate(*commands, steps=[ONE, step])


@pytest.mark.parametrize("argument", ["step_data", "commands"])
@pytest.mark.parametrize("bad", [None, 3])
def test_lists_must_be_lists(argument: str, bad: Any) -> None:
    lists: dict[str, Any] = {"step_data": [], "commands": [], argument: bad}
    with pytest.raises(InvalidArgument, match=f"{argument} must be a list of tuples"):
        zero_copy_env_simulation(2, 2, **lists)


class Failing:
    """Fails while it is converted to an array."""

    def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
        raise ZeroDivisionError("mine")


class FailingName(str):
    def replace(self, *_: Any) -> Any:
        raise ZeroDivisionError("mine")


class FailingTuple(tuple[Any, ...]):
    def __getitem__(self, i: Any) -> Any:
        raise ZeroDivisionError("mine")


@pytest.mark.parametrize("place", ["obs", "rewards", "dones", "step", "name", "command"])
def test_a_value_that_fails_lets_its_error_through_and_the_arguments_stay(place: str) -> None:
    obs, rewards, dones = np.array(ONE[0]), np.array(ONE[1]), np.array(ONE[2])
    good = (obs, rewards, dones)
    parts = {"obs": obs, "rewards": rewards, "dones": dones}
    bad: Any = tuple({**parts, place: Failing()}[name] for name in parts)
    steps = [good, FailingTuple(bad) if place == "step" else bad if place in parts else good]
    commands: list[Any] = [("step",), ("store_view", "a"), ("auto_reset",)]
    if place == "name":
        commands.append((FailingName("step"),))
    elif place == "command":
        commands.append(FailingTuple(("step",)))
    values, held = [array.tolist() for array in good], [*map(id, steps), *map(id, commands)]
    with pytest.raises(ZeroDivisionError, match="mine"):
        zero_copy_env_simulation(2, 2, steps, commands)
    assert [array.tolist() for array in good] == values
    assert [*map(id, steps), *map(id, commands)] == held


def test_an_error_of_the_callers_own_passes_through() -> None:
    def mine() -> Iterator[Any]:
        yield ONE
        raise TypeError("mine")

    with pytest.raises(TypeError, match="mine") as caught:
        zero_copy_env_simulation(2, 2, mine(), [])
    assert not isinstance(caught.value, ReplayBufferError)
