"""Every start of a view is drawn with its right probability, and nothing else is."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import FrameStack, NotEnoughRows, NStep, Sequence, Trajectory
from unit.prioritized.law import UNLIKELY, counts_of, g_test, masses, rank_masses
from views.compare import expected
from views.world import World

DRAWS = 6_000


def assert_law(world: World, parts: tuple[Any, ...], raws: dict[int, float] | None = None) -> None:
    """Fails unless starts are drawn in proportion to their priorities, or equally often."""
    world.sync()
    ids = np.asarray(sorted(expected(world, parts)))
    assert ids.size, "this test needs starts"
    view = world.buffer.view(*parts)
    law = np.ones(ids.size)
    if raws is not None:
        law = masses([raws[i] for i in ids.tolist()], world.buffer.alpha)
    for batch_size in (1, 50):
        draws = DRAWS if batch_size > 1 else DRAWS // 3
        drawn = [view.sample(batch_size)["indices"] for _ in range(draws // batch_size)]
        p = g_test(counts_of(np.concatenate(drawn), ids), law)
        assert p > UNLIKELY, f"batches of {batch_size} do not follow the law: p = {p:.2g}"


def prioritize(world: World) -> dict[int, float]:
    """Gives every row a priority of its own."""
    ids = world.buffer.latest(world.buffer.capacity)["indices"]
    raws = 0.1 + (ids * 7 % 10).astype(np.float32)
    world.buffer.update_priorities(ids, raws)
    return dict(zip(ids.tolist(), raws.tolist(), strict=True))


LAWS: list[tuple[Any, ...]] = [
    (),
    (NStep(3),),
    (FrameStack(3),),
    (Sequence(4, burn_in=2),),
    (Sequence(3, period=2),),
    (Sequence(3, burn_in=1, pad=False),),
    (Trajectory(),),
]


@pytest.mark.parametrize("parts", LAWS, ids=repr)
@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
def test_starts_follow_the_law_right_at_the_seam(strategy: str, parts: tuple[Any, ...]) -> None:
    world = World(40, strategy=strategy, block_rows=7)
    world.run(world.open(2), 53, [4, 1, 6, 2])
    assert_law(world, parts, prioritize(world) if strategy == "prioritized" else None)


@pytest.mark.parametrize("parts", LAWS, ids=repr)
@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
def test_starts_follow_the_law_before_the_first_wrap(strategy: str, parts: tuple[Any, ...]) -> None:
    world = World(1000, strategy=strategy, seed=5)
    world.run(world.open(3), 12, [4, 5])
    assert_law(world, parts, prioritize(world) if strategy == "prioritized" else None)


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
@pytest.mark.parametrize("parts", [(NStep(10),), (Sequence(10, burn_in=3),)], ids=repr)
def test_episodes_shorter_than_the_item_are_drawn_as_often_as_others(
    parts: tuple[Any, ...], strategy: str
) -> None:
    world = World(60, strategy=strategy)
    world.run(world.open(1), 45, [1, 2, 3, 12])
    assert_law(world, parts, prioritize(world) if strategy == "prioritized" else None)


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
@pytest.mark.parametrize("parts", [(Sequence(4, pad=False),), (Trajectory(),)], ids=repr)
def test_few_starts_among_many_rows_are_found(parts: tuple[Any, ...], strategy: str) -> None:
    world = World(4000, strategy=strategy)
    to = world.open(1)
    world.run(to, 5, [5])
    for _ in range(700):
        world.run(to, 2)
        world.end(to, 0)
    world.run(to, 4, [4])
    world.sync()
    starts = sorted(expected(world, parts))
    assert 2 <= len(starts) <= 3
    view = world.buffer.view(*parts)
    drawn = np.concatenate([view.sample(20)["indices"] for _ in range(20)])
    assert sorted(set(drawn.tolist())) == starts


def test_rank_draws_starts_by_their_rank_among_all_rows() -> None:
    world = World(30, strategy="rank", block_rows=4)
    world.run(world.open(2), 30, [4, 3])
    raws = {row_id: 1.0 + row_id * 13 % 31 for row_id in prioritize(world)}
    ids = np.asarray(list(raws))
    world.buffer.update_priorities(ids, np.asarray(list(raws.values()), np.float32))
    world.sync()
    law = rank_masses(list(raws.values()), world.buffer.alpha)
    starts = np.asarray(sorted(expected(world, (NStep(2),))))
    view = world.buffer.view(NStep(2))
    drawn = np.concatenate([view.sample(1)["indices"] for _ in range(DRAWS)])
    p = g_test(counts_of(drawn, starts), law[np.searchsorted(ids, starts)])
    assert p > UNLIKELY, f"p = {p:.2g}"


#: Views that make nothing of steps without a successor.
NEED_SUCCESSORS: list[tuple[Any, ...]] = [
    (),
    (NStep(3),),
    (FrameStack(2),),
    (Sequence(2, pad=False),),
    (Trajectory(),),
]


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
@pytest.mark.parametrize("parts", NEED_SUCCESSORS, ids=repr)
def test_a_view_without_starts_says_so(parts: tuple[Any, ...], strategy: str) -> None:
    world = World(500, strategy=strategy)
    view = world.buffer.view(*parts)
    with pytest.raises(NotEnoughRows):
        view.sample(4)
    to = world.open(9)
    for _ in range(40):  # many rows, none of them with a successor
        world.run(to, 1)
        for stream in range(9):
            world.end(to, stream)
    assert len(world.buffer) == 360
    assert view.starts().size == 0
    with pytest.raises(NotEnoughRows):
        view.sample(4)


def test_starts_without_priority_are_not_drawn_when_others_have_some() -> None:
    world = World(50, strategy="prioritized")
    world.run(world.open(1), 30, [5])
    world.sync()
    starts = np.asarray(sorted(expected(world, (NStep(3),))))
    raws = {row_id: float(i % 3 == 0) for i, row_id in enumerate(starts.tolist())}
    world.buffer.update_priorities(starts, np.asarray(list(raws.values()), np.float32))
    drawn = world.buffer.view(NStep(3)).sample(2000)["indices"]
    rare = [row_id for row_id in set(drawn.tolist()) if raws[row_id] == 0]
    assert len(rare) <= 2, "a priority of epsilon is all but never drawn"


def test_weights_undo_the_priorities() -> None:
    world = World(40, strategy="prioritized", beta=1.0, alpha=1.0, weights="none")
    world.run(world.open(2), 33, [4, 3])
    raws = prioritize(world)
    batch = world.buffer.view(NStep(2)).sample(64)
    mass = np.asarray([raws[i] for i in batch["indices"].tolist()]) + 1e-6
    products = batch["weights"] * mass
    np.testing.assert_allclose(products, products[0], rtol=1e-4)
