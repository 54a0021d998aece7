"""A draw that fails leaves no trace: no turn of the generator, no row of a queue."""

from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, LinearSchedule, NotEnoughRows, NStep, ReplayBuffer, Sequence
from unit.prioritized.law import make

STEPS: dict[str, Any] = {
    "obs_shape": (2,),
    "obs_dtype": "float32",
    "action_shape": (),
    "action_dtype": "int64",
}


def steps(strategy: Any, n: int, **options: Any) -> ReplayBuffer:
    """A buffer of steps, with an open episode of n of them."""
    config = BufferConfig(100, storage="steps", strategy=strategy, **options)
    buffer = ReplayBuffer(config, seed=3, **STEPS)
    writer = buffer.writer()
    for i in range(n):
        writer.append(np.full(2, i, np.float32), i, 1.0, False, False)
    writer.close()
    return buffer


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
def test_a_view_that_finds_no_start_takes_no_turn(strategy: Any) -> None:
    failing, quiet = (steps(strategy, 10) for _ in range(2))
    with pytest.raises(NotEnoughRows):
        failing.view(Sequence(50, pad=False)).sample(4)
    for _ in range(3):
        one, other = failing.view().sample(8), quiet.view().sample(8)
        assert np.array_equal(one["indices"], other["indices"])


def test_a_view_that_finds_no_start_leaves_a_schedule_where_it_was() -> None:
    buffer = steps("prioritized", 10, beta=LinearSchedule(0.0, 1.0, 4), weights="none")
    for _ in range(4):
        with pytest.raises(NotEnoughRows):
            buffer.view(Sequence(50, pad=False)).sample(4)
    assert np.array_equal(buffer.view().sample(8)["weights"], np.ones(8))  # beta is 0 still


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank", "fifo", "lifo"])
def test_an_empty_buffer_gives_no_turn_away(strategy: Any) -> None:
    failing, quiet = make(10, strategy), make(10, strategy)
    with pytest.raises(NotEnoughRows):
        failing.sample(2)
    for buffer in (failing, quiet):
        buffer.add_batch(np.arange(10))
    assert np.array_equal(failing.sample(4)["indices"], quiet.sample(4)["indices"])


def test_a_view_of_a_queue_takes_as_many_rows_as_it_gives() -> None:
    config = BufferConfig(100, strategy="fifo")
    buffer = ReplayBuffer(config, **STEPS)
    for i in range(20):
        buffer.add(np.full(2, i), i, 1.0, np.full(2, i + 1), False)
    view = buffer.view(NStep(3))
    assert view.sample(5)["indices"].tolist() == [0, 1, 2, 3, 4]
    with pytest.raises(NotEnoughRows):
        view.sample(16)
    assert view.sample(15)["indices"].tolist() == list(range(5, 20))


def test_a_view_of_an_epoch_gives_every_row_once() -> None:
    config = BufferConfig(100, strategy="without_replacement")
    buffer = ReplayBuffer(config, **STEPS)
    for i in range(60):
        buffer.add(np.full(2, i), i, 1.0, np.full(2, i + 1), i % 7 == 6)
    view = buffer.view(NStep(3))
    for _ in range(3):
        drawn = np.concatenate([view.sample(4)["indices"] for _ in range(15)])
        assert np.array_equal(np.sort(drawn), np.arange(60))
