"""Priorities of views: of sequences, of rows between their starts, and of last observations."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import InvalidArgument, NStep, RowGone, Sequence
from views.world import World


def filled(**options: Any) -> World:
    world = World(80, strategy="prioritized", **options)
    world.run(world.open(2), 20, [7, 5])
    world.sync()
    return world


def test_ids_of_last_observations_are_passed_over() -> None:
    world = filled()
    ids = np.asarray([row.id for row in world.stored_rows()])
    steps = np.asarray([row.id for row in world.stored_rows() if not row.final])
    assert steps.size < ids.size
    assert world.buffer.update_priorities(ids, np.ones(ids.size, np.float32)) == steps.size


@pytest.mark.parametrize("eta", [0.0, 0.9, 1.0])
@pytest.mark.parametrize("burned", [False, True])
def test_a_sequence_has_the_mix_of_maximum_and_mean(eta: float, burned: bool) -> None:
    world = filled()
    sequence = Sequence(3, burn_in=2, eta=eta)
    view = world.buffer.view(sequence)
    batch = view.sample(1)
    errors = np.asarray([[100.0, 100.0, -4.0, 1.0, 1.0]])[:, 0 if burned else 2 :]
    assert view.update_priorities(batch["indices"], errors) == 1
    wanted = eta * 4 + (1 - eta) * 2
    assert world.buffer.priorities(batch["indices"])[0] == pytest.approx(wanted)


def test_masked_steps_do_not_count() -> None:
    world = filled()
    view = world.buffer.view(Sequence(3, eta=0.5))
    ids = view.sample(1)["indices"]
    mask = [[True, True, False]]
    view.update_priorities(ids, [[2.0, 4.0, np.nan]], mask)
    assert world.buffer.priorities(ids)[0] == pytest.approx(0.5 * 4 + 0.5 * 3)


@pytest.mark.parametrize("shape", [(3,), (1, 4), (2, 3), (1, 3, 1)])
def test_errors_of_a_wrong_shape_change_nothing(shape: tuple[int, ...]) -> None:
    world = filled()
    view = world.buffer.view(Sequence(3))
    ids = view.sample(1)["indices"]
    before = world.buffer.priorities(ids)
    with pytest.raises(InvalidArgument):
        view.update_priorities(ids, np.ones(shape))
    with pytest.raises(InvalidArgument, match="finite"):
        view.update_priorities(ids, [[1.0, np.inf, 1.0]])
    with pytest.raises(InvalidArgument, match="mask"):
        view.update_priorities(ids, np.ones((1, 3)), np.ones((1, 2)))
    np.testing.assert_array_equal(world.buffer.priorities(ids), before)


@pytest.mark.parametrize(
    ("errors", "mask", "said"),
    [
        ([[1.0, 2.0, 3.0], [1.0]], None, "td_errors must be numbers of one shape, not"),
        (np.ones((2, 3)), [[True, True, False], [True]], "mask must be bools of the shape of td"),
        (
            np.ma.masked_array(np.ones((2, 3)), [[0, 0, 1]] * 2),
            None,
            "td_errors must not be masked",
        ),
        (
            np.ones((2, 3)),
            np.ma.masked_array(np.ones((2, 3), bool), [[0, 0, 1]] * 2),
            "mask must not be masked",
        ),
    ],
    ids=["ragged errors", "ragged mask", "masked errors", "masked mask"],
)
def test_ragged_and_masked_errors_of_a_sequence_change_nothing(
    errors: Any, mask: Any, said: str
) -> None:
    world = filled()
    view = world.buffer.view(Sequence(3))
    ids = view.sample(2)["indices"]
    before = world.buffer.priorities(ids)
    with pytest.raises(InvalidArgument, match=said):
        view.update_priorities(ids, errors, mask)
    with pytest.raises(InvalidArgument, match="row ids must be"):
        view.update_priorities([[1, 2], [3]], np.ones((2, 3)))
    np.testing.assert_array_equal(world.buffer.priorities(ids), before)


@pytest.mark.parametrize("strategy", ["prioritized", "rank"])
def test_a_view_writes_no_priority_but_those_it_was_given(strategy: Any) -> None:
    world = World(80, strategy=strategy)
    world.run(world.open(2), 30, [8, 8])
    world.sync()
    view = world.buffer.view(Sequence(4, period=4))
    starts = view.starts()
    ids = world.buffer.view().starts()
    between = np.setdiff1d(ids, starts)
    before = world.buffer.priorities(between)
    view.sample(64)
    view.update_priorities(starts, np.full((starts.size, 4), 0.25))
    np.testing.assert_array_equal(world.buffer.priorities(between), before)
    np.testing.assert_array_equal(world.buffer.priorities(starts), np.float32(0.25))
    drawn = world.buffer.sample(4000)["indices"]  # by others, they are drawn still
    assert np.isin(between, drawn).all()
    assert not world.buffer._engine.verify()


def test_priorities_of_steps_are_those_given_to_append() -> None:
    world = World(40, strategy="prioritized")
    to = world.open(3)
    for i in range(6):
        ends = ["terminated" if i == 3 else "", "", ""]
        ids = world.append(to, ends, priority=np.asarray([i + 1, 10 * i + 1, 0.5], np.float32))
        np.testing.assert_array_equal(world.buffer.priorities(ids), [i + 1, 10 * i + 1, 0.5])


@pytest.mark.parametrize("priority", [[1.0], [1.0, np.nan, 1.0], [1.0, -1.0, 1.0], 1.0, "abc"])
def test_wrong_priorities_write_nothing(priority: Any) -> None:
    world = World(40, strategy="prioritized")
    to = world.open(3)
    with pytest.raises(InvalidArgument):
        world.append(to, priority=priority)
    assert len(world.buffer) == 0


def test_n_step_priorities_are_those_of_the_start() -> None:
    world = filled()
    view = world.buffer.view(NStep(3))
    ids = view.starts()[:4]
    assert view.update_priorities(ids, [1.0, -2.0, 3.0, 0.0]) == 4
    np.testing.assert_array_equal(world.buffer.priorities(ids), [1, 2, 3, 0])


def test_a_last_observation_has_no_priority() -> None:
    world = filled()
    finals = [row.id for row in world.stored_rows() if row.final]
    assert world.buffer.priorities(finals).tolist() == [0.0] * len(finals)
    world.buffer.clear()
    with pytest.raises(RowGone):
        world.buffer.priorities(finals)


@pytest.mark.parametrize("mask", [[[1.0, 1.0, np.nan]], [[1, 1, 0]], [[False, False, False]]])
def test_a_mask_that_says_nothing_is_refused(mask: Any) -> None:
    world = filled()
    view = world.buffer.view(Sequence(3))
    ids = view.sample(1)["indices"]
    before = world.buffer.priorities(ids)
    with pytest.raises(InvalidArgument, match="mask"):
        view.update_priorities(ids, np.ones((1, 3)), mask)
    assert world.buffer.priorities(ids) == before
