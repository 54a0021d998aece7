"""Views against the oracle: the starts, every array of every item, and what is drawn."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from replay_buffer import FrameStack, NotEnoughRows, NStep, Sequence, Trajectory
from views.oracle import Row, Values
from views.world import World, flat

Items = dict[int, Values]

#: Views of every kind, for small episodes.
VIEWS: list[tuple[Any, ...]] = [
    (),
    (NStep(1, 0.5),),
    (NStep(3, 0.9),),
    (NStep(8, 1.0), FrameStack(2)),
    (FrameStack(3),),
    (Sequence(1),),
    (Sequence(3),),
    (Sequence(4, burn_in=2, next_obs=True),),
    (Sequence(3, burn_in=1, period=2),),
    (Sequence(2, burn_in=2, pad=False, next_obs=True),),
    (Sequence(5, burn_in=3, cross_episodes=True, next_obs=True),),
    (Sequence(3, burn_in=1, pad=False, cross_episodes=True),),
    (Sequence(3, burn_in=2, period=3, next_obs=True), FrameStack(2)),
    (Sequence(4, burn_in=4, cross_episodes=True, next_obs=True), FrameStack(3)),
    (Trajectory(),),
    (Trajectory(3),),
    (Trajectory(), FrameStack(2)),
]


def expected(world: World, parts: tuple[Any, ...]) -> Items:
    """Every item that starts now, by the id of its start."""
    stack = next((part for part in parts if isinstance(part, FrameStack)), FrameStack(1))
    frames = {"stack": stack.n, "stacked": stack.columns}
    rows = world.stored_rows()
    make = _maker(world, parts, frames, rows)
    items = {row.id: make(row) for row in rows}
    return {row_id: item for row_id, item in items.items() if item is not None}


def _maker(
    world: World, parts: tuple[Any, ...], frames: dict[str, Any], rows: list[Row]
) -> Callable[[Row], Values | None]:
    oracle = world.oracle
    for part in parts:
        if isinstance(part, Sequence):
            options = {k: v for k, v in vars(part).items() if k != "eta"}
            return lambda row: oracle.sequence(row, **options, **frames)
        if isinstance(part, Trajectory):
            found = [oracle.trajectory(row, 0, longest=part.length) for row in rows]
            longest = max((item["lengths"] for item in found if item is not None), default=1)
            time = part.length or longest
            return lambda row: oracle.trajectory(row, time, **frames, longest=part.length)
        if isinstance(part, NStep):
            return lambda row: oracle.transition(row, part.n, part.gamma, **frames)

    def one_step(row: Row) -> Values | None:
        item = oracle.transition(row, **frames)
        if item is not None:
            del item["k"], item["discount"]
        return item

    return one_step


def check_batch(batch: dict[str, Any], items: Items) -> None:
    """Fails unless each item of a batch is the one that belongs to its id."""
    arrays = flat(batch)
    ids = arrays.pop("indices").tolist()
    assert set(ids) <= set(items), f"no items start at {sorted(set(ids) - set(items))}"
    arrays.pop("weights", None)
    if not ids:
        return
    assert set(arrays) == set(items[ids[0]])
    for path, array in arrays.items():
        wanted = np.asarray([items[row_id][path] for row_id in ids], np.float64)
        assert array.shape == wanted.shape, f"{path}: {array.shape}, not {wanted.shape}"
        if path in ("reward", "discount"):
            np.testing.assert_allclose(array, wanted, rtol=1e-6, atol=1e-7, err_msg=path)
        else:
            np.testing.assert_array_equal(array, wanted, err_msg=path)


def check_view(world: World, parts: tuple[Any, ...], draws: int = 16) -> Items:
    """Fails unless a view is what the oracle says. REQUIRES: world.sync() after the last write."""
    view = world.buffer.view(*parts)
    items = expected(world, parts)
    starts = view.starts()
    assert sorted(starts.tolist()) == sorted(items), repr(view)
    check_batch(view.get(starts), items)
    if not items:
        with pytest.raises(NotEnoughRows):
            view.sample(1)
    elif draws:
        batch = view.sample(draws)
        assert len(batch["indices"]) == draws
        if any(isinstance(part, Trajectory) for part in parts):
            drawn = {row_id: items[row_id] for row_id in batch["indices"].tolist()}
            time = batch["mask"].shape[1]
            items = {row_id: shortened(item, time) for row_id, item in drawn.items()}
        check_batch(batch, items)
    return items


def shortened(item: Values, time: int) -> Values:
    """A whole episode without the padding beyond `time`."""
    assert not any(item["mask"][time:])
    always = ("lengths",)
    return {
        path: value if path in always or path.startswith("final_") else value[:time]
        for path, value in item.items()
    }


def check(world: World, views: list[tuple[Any, ...]] | None = None) -> None:
    world.sync()
    for parts in VIEWS if views is None else views:
        check_view(world, parts)
