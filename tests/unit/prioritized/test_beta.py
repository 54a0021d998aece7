"""Beta: a number in the config, a number of the call, a schedule, or any callable."""

import asyncio
import re
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    InvalidArgument,
    LinearSchedule,
    NotEnoughRows,
    ReplayBuffer,
)
from unit.prioritized.law import fill, make, masses

RAWS = [1.0, 2.0, 4.0, 8.0]


def buffer_with(beta: Any) -> ReplayBuffer:
    buffer = make(4, alpha=1.0, weights="none", beta=beta)
    fill(buffer, RAWS)
    return buffer


def beta_of(batch: dict[str, Any]) -> float:
    """The exponent that the weights of a batch were made with."""
    mass = masses(RAWS, 1.0)
    base = np.log(4 * mass / mass.sum())[batch["indices"]]
    betas = -np.log(batch["weights"]) / base
    assert betas == pytest.approx(betas[0], abs=1e-5)
    return float(betas.mean())


@pytest.mark.parametrize("beta", [0.0, 0.25, 0.4, 1, 1.5])
def test_beta_of_the_config(beta: float) -> None:
    assert beta_of(buffer_with(beta).sample(64)) == pytest.approx(beta, abs=1e-5)


@pytest.mark.parametrize("beta", [0.9, 1, np.float32(0.5), np.float64(0.5), 0.0])
def test_beta_of_the_call_goes_before_that_of_the_config(beta: Any) -> None:
    buffer = buffer_with(0.3)
    assert beta_of(buffer.sample(64, beta=beta)) == pytest.approx(beta, abs=1e-5)
    assert beta_of(buffer.sample(64)) == pytest.approx(0.3, abs=1e-5)
    assert beta_of(buffer.sample(64, beta=None)) == pytest.approx(0.3, abs=1e-5)


@pytest.mark.usefixtures("short_turns")
def test_beta_of_the_call_with_async_and_out() -> None:
    buffer = buffer_with(0.3)
    batch = asyncio.run(buffer.sample_async(64, beta=0.8))
    assert beta_of(batch) == pytest.approx(0.8, abs=1e-5)
    assert beta_of(buffer.sample(64, out=batch, beta=0.6)) == pytest.approx(0.6, abs=1e-5)


def test_a_linear_schedule_counts_batches() -> None:
    buffer = buffer_with(LinearSchedule(0.4, 1.0, 10))
    for step in range(15):
        expected = 0.4 + 0.6 * min(1, step / 10)
        assert beta_of(buffer.sample(64)) == pytest.approx(expected, abs=1e-5)


def test_a_linear_schedule_can_fall() -> None:
    schedule = LinearSchedule(1.0, 0.5, 2)
    assert [schedule(step) for step in range(4)] == [1.0, 0.75, 0.5, 0.5]


@pytest.mark.parametrize("steps", [0, -1])
def test_a_linear_schedule_needs_steps(steps: int) -> None:
    with pytest.raises(InvalidArgument, match="steps"):
        LinearSchedule(0.4, 1.0, steps)


def test_any_callable_is_a_schedule() -> None:
    steps: list[int] = []

    def schedule(step: int) -> float:
        steps.append(step)
        return 0.5 if step % 2 else 1.0

    buffer = buffer_with(schedule)
    betas = [beta_of(buffer.sample(64)) for _ in range(4)]
    assert steps == [0, 1, 2, 3]
    assert betas == pytest.approx([1.0, 0.5, 1.0, 0.5], abs=1e-5)
    assert beta_of(buffer.sample(64, beta=0.1)) == pytest.approx(0.1, abs=1e-5)
    assert steps == [0, 1, 2, 3]  # a call with its own beta does not ask
    buffer.sample(64)
    assert steps[-1] == 5  # but counts


def test_a_refused_call_is_not_a_step() -> None:
    steps: list[int] = []
    buffer = make(4, beta=lambda step: steps.append(step) or 0.5)
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
    buffer.add(0)
    buffer.sample(1)
    assert steps[-1] == 0
    assert buffer.stats()["samples"] == 1


def test_the_error_of_a_schedule_is_the_error_of_the_call() -> None:
    def broken(step: int) -> float:
        raise KeyError("no beta today")

    with pytest.raises(KeyError, match="no beta today"):
        buffer_with(broken).sample(1)


@pytest.mark.parametrize("bad", [-0.1, float("nan"), float("inf")])
def test_beta_must_be_finite_and_not_negative(bad: float) -> None:
    with pytest.raises(InvalidArgument, match="beta"):
        buffer_with(bad)
    with pytest.raises(InvalidArgument, match="beta"):
        buffer_with(0.5).sample(4, beta=bad)
    with pytest.raises(InvalidArgument, match="beta"):
        buffer_with(lambda step: bad).sample(4)


@pytest.mark.parametrize("bad", ["a lot", [0.5, 0.6], object()])
def test_beta_must_be_a_number(bad: Any) -> None:
    with pytest.raises((InvalidArgument, TypeError)):
        buffer_with(bad)
    with pytest.raises((InvalidArgument, TypeError)):
        buffer_with(0.5).sample(4, beta=bad)
    with pytest.raises((InvalidArgument, TypeError)):
        buffer_with(lambda step: bad).sample(4)


@pytest.mark.parametrize("strategy", ["uniform", "without_replacement", "fifo", "lifo"])
def test_beta_has_no_meaning_without_priorities(strategy: str) -> None:
    buffer = make(4, strategy)
    buffer.add(0)
    with pytest.raises(InvalidArgument, match="priorities"):
        buffer.sample(1, beta=0.5)


@pytest.mark.parametrize("bad", ["0.5", "high", b"1", [0.5], {}, 1j, 10**400, object])
def test_a_beta_that_is_no_number_is_named(bad: Any) -> None:
    said = rf"beta.*not {re.escape(repr(bad))}"
    given, scheduled = buffer_with(0.5), buffer_with(lambda step: bad)
    with pytest.raises(InvalidArgument, match=said):
        given.sample(4, beta=bad)
    with pytest.raises(InvalidArgument, match=said):
        given.sample(np.int64(4), beta=bad)
    with pytest.raises(InvalidArgument, match=said.replace("beta", "beta of the schedule")):
        scheduled.sample(4)
    assert given.stats()["samples"] == scheduled.stats()["samples"] == 0


def test_the_error_of_a_number_is_the_error_of_the_call() -> None:
    class Broken:
        def __float__(self) -> float:
            raise KeyError("no beta today")

    with pytest.raises(KeyError, match="no beta today"):
        buffer_with(0.5).sample(4, beta=Broken())


@pytest.mark.parametrize(
    ("argument", "bad"),
    [(name, bad) for name in ("start", "end") for bad in ("1", None, [1], 1j, float("nan"))]
    + [("steps", bad) for bad in ("9", None, 1.5, [9], True, 0, -1)],
)
def test_a_linear_schedule_names_the_argument_that_is_wrong(argument: str, bad: Any) -> None:
    arguments = {"start": 0.4, "end": 1.0, "steps": 10, argument: bad}
    with pytest.raises(InvalidArgument, match=rf"{argument} must be .*{re.escape(repr(bad))}"):
        LinearSchedule(**arguments)


def test_a_linear_schedule_takes_the_numbers_of_numpy() -> None:
    schedule = LinearSchedule(np.float64(0.5), np.float32(1.0), np.int64(2))
    assert schedule == LinearSchedule(0.5, 1.0, 2)
    assert type(schedule(1)) is float


@pytest.mark.parametrize(("start", "end", "wrong"), [(-0.4, 1.0, "-0.4"), (0.4, -1.0, "-1")])
def test_a_linear_schedule_of_beta_stays_above_zero(start: float, end: float, wrong: str) -> None:
    with pytest.raises(InvalidArgument, match=rf"beta's (start|end) must be .*{wrong}"):
        BufferConfig(10, "prioritized", beta=LinearSchedule(start, end, 10))
