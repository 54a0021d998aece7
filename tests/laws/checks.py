"""What was drawn against what the laws say. Each check gives what is wrong, in words."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np

from laws import laws
from laws.laws import Floats, Ids, Rows
from laws.places import Drawn, Scene, draw, draw_all, writing
from laws.table import SCHEDULE
from replay_buffer import Hindsight

#: Seeds are fixed: a p-value below this is a wrong law.
UNLIKELY = 1e-6
DRAWS = 20_000  # rows drawn for a case


def check(scene: Scene, more: int) -> Iterator[str]:
    """Draws `more` times as much as usual."""
    first = first_draws(scene)
    by_strategy = {"fifo": check_queue, "lifo": check_newest, "without_replacement": check_epochs}
    strategy = scene.case.draw.strategy
    if strategy in by_strategy:
        yield from by_strategy[strategy](scene, more, first)
    else:
        yield from check_probabilities(scene, more)


def first_draws(scene: Scene) -> list[Ids]:
    """Where rows are to be overwritten: a batch of each handle before that."""
    if not scene.case.content.overwritten:
        return [np.empty(0, np.int64) for _ in scene.handles]
    first = scene.draw(draw, 1, scene.case.draw.batch)
    scene.store.turns += 1 if scene.case.place.readonly else len(first)
    scene.store.overwrite()
    return [handle.all_ids for handle in first]


def drawn_by(scene: Scene, call: Any, *args: Any) -> list[Drawn]:
    if not scene.case.content.busy:
        return scene.draw(call, *args)
    with writing(scene.store):
        return scene.draw(call, *args)


def known(scene: Scene, rows: Rows, ids: Ids) -> Any:
    """Which of the rows drawn are not of those that were written meanwhile."""
    return ids <= rows.ids[-1] if scene.case.content.busy else np.ones(ids.shape, bool)


# ------------------------------------------------------------------------------------ probabilities


def check_probabilities(scene: Scene, more: int) -> Iterator[str]:
    case, rows = scene.case, scene.store.rows()
    hindsight = next((part for part in scene.store.parts if isinstance(part, Hindsight)), None)
    goals = scene.store.goals(hindsight.strategy) if hindsight else {}
    size = case.draw.batch
    draws = DRAWS * more * case.content.draws / len(scene.handles) / (2 if size == 1 else 1)
    seen = drawn_by(scene, draw, max(1, int(draws) // size), size)
    law = case.draw.mass
    assert law is not None
    probability = laws.among(law(rows), rows.starts)
    for handle in seen:
        ids = np.stack(handle.ids)
        if case.draw.cer:
            yield from wrong_newest(scene, rows, ids[:, 0])
            ids = ids[:, 1:]
        if ids.size:
            drawn = rows.at(ids[known(scene, rows, ids)])
            counts = np.bincount(drawn, minlength=len(rows.ids))
            yield from wrong_counts("row", counts, probability, rows.ids)
        if handle.weights:
            yield from wrong_weights(scene, rows, law, handle)
        elif case.draw.weighted:
            yield "batches have no weights"
    if hindsight:
        yield from wrong_goals(scene, rows, probability, hindsight.k, goals, seen)
    alike = len(seen) - len({handle.all_ids.tobytes() for handle in seen})
    if alike and not (case.draw.cer and size == 1):
        yield "several handles drew the same batches"


def wrong_newest(scene: Scene, rows: Rows, first: Ids) -> Iterator[str]:
    newest = rows.ids[-1]
    if not ((first >= newest) if scene.case.content.busy else (first == newest)).all():
        yield f"the newest row is not the first of each batch: {first[:9]}, not {newest}"


def wrong_counts(what: str, counts: Any, law: Any, names: Any) -> Iterator[str]:
    never = np.flatnonzero((counts > 0) & (law == 0))
    if never.size:
        yield f"{what} {names[never[0]]} is never drawn, but was"
        return
    p = laws.g_test(counts, law)
    if p < UNLIKELY:
        expected = law / law.sum() * counts.sum()
        worst = np.argmax(np.abs(counts - expected) / np.sqrt(expected + 1))
        yield (
            f"the frequencies do not follow the law, p = {p:.2g}: {what} {names[worst]} was drawn "
            f"{counts[worst]} times, not {expected[worst]:.1f}"
        )


def wrong_weights(
    scene: Scene, rows: Rows, law: Callable[[Rows], Floats], handle: Drawn
) -> Iterator[str]:
    case, n = scene.case, len(rows.ids)
    probability, newest = laws.share(law, rows), n - 1
    # Where the total changes, or no start has a part of it, weights are right up to a factor.
    relative = case.content.busy
    if case.draw.strategy == "prioritized" and not rows.raws[rows.starts].any():
        probability, relative = np.full(n, 1 / n), True
    least = probability[probability > 0].min()
    if case.draw.cer and case.draw.weighted:
        probability = laws.with_newest(probability, newest, case.draw.batch)
        # The largest weight is that of a row that is not the newest, where there is place for one.
        least = least * (case.draw.batch - 1) / case.draw.batch if case.draw.batch > 1 else 1.0
    ids, weights, beta = np.stack(handle.ids), np.stack(handle.weights), case.draw.beta
    if beta is SCHEDULE:
        beta = np.vectorize(beta)(scene.store.turns + np.arange(len(ids)))
    there = known(scene, rows, ids)
    at = rows.at(np.where(there, ids, rows.ids[0]))
    there &= (probability[at] > 0) & ~(case.content.busy & case.draw.cer & (at == newest))
    if not there.any():
        return
    at[~there] = at[there][0]
    expected = laws.weights(probability, least, n, beta, case.weights, at)
    if relative:
        expected, weights = (relative_to_largest(of, there) for of in (expected, weights))
    representable = (expected > 2.0**-126) & (expected < 2.0**127)
    right = np.isclose(weights, expected, rtol=1e-5, atol=0)
    off = there & representable & ~right
    if off.any():
        batch, place = np.argwhere(off)[0]
        yield (
            f"row {ids[batch, place]} in batch {batch} weighs {weights[batch, place]:.7g}, "
            f"not {expected[batch, place]:.7g}"
        )


def relative_to_largest(weights: Floats, there: Any) -> Floats:
    with np.errstate(invalid="ignore"):
        relative: Floats = weights / np.where(there, weights, 1e-99).max(axis=1, keepdims=True)
    return relative


def wrong_goals(
    scene: Scene,
    rows: Rows,
    probability: Floats,
    k: float,
    goals: dict[int, list[int]],
    seen: Sequence[Drawn],
) -> Iterator[str]:
    names, law = [], []
    for place in np.flatnonzero(rows.starts):
        row_id = int(rows.ids[place])
        stays, becomes = laws.goal(k, len(goals[row_id]))
        names += [(row_id, -1), *((row_id, goal) for goal in goals[row_id])]
        law += [probability[place] * p for p in (stays, *[becomes] * len(goals[row_id]))]
    places = {name: place for place, name in enumerate(names)}
    for handle in seen:
        counts = np.zeros(len(names), np.int64)
        ids, drawn = handle.all_ids, np.concatenate(handle.goals).clip(min=-1)
        there = known(scene, rows, ids)
        for name in zip(ids[there].tolist(), drawn[there].tolist(), strict=True):
            if name not in places:
                yield f"start {name[0]} got goal {name[1]}, which its episode did not reach"
                return
            counts[places[name]] += 1
        yield from wrong_counts("start and goal", counts, np.array(law), names)


# ------------------------------------------------------------------------------------------- orders


def check_queue(scene: Scene, more: int, first: Sequence[Ids]) -> Iterator[str]:
    rows = scene.store.rows()
    seen = [handle.all_ids for handle in drawn_by(scene, draw_all, scene.case.draw.batch)]
    seen = [ids[known(scene, rows, ids)] for ids in seen]
    yield from said(laws.queue(rows, np.concatenate(first), scene.case.draw.times, seen))


def check_newest(scene: Scene, more: int, first: Sequence[Ids]) -> Iterator[str]:
    before = scene.store.rows()
    seen = drawn_by(scene, draw, 300 * more, scene.case.draw.batch)
    after = scene.store.rows()
    for handle in seen:
        yield from said(laws.newest_first(before, after, handle.ids))


def check_epochs(scene: Scene, more: int, first: Sequence[Ids]) -> Iterator[str]:
    rows = scene.store.rows()
    size, n = scene.case.draw.batch, np.count_nonzero(rows.starts)
    epochs = more * max(60, DRAWS // n // len(scene.handles))
    seen = drawn_by(scene, draw, epochs * n // size, size)
    counts = np.zeros(len(rows.ids), np.int64)
    for handle, begun in zip(seen, first, strict=True):
        ids = handle.all_ids
        wrong, begins = laws.epochs(rows, begun, ids[known(scene, rows, ids)])
        counts += np.bincount(rows.at(begins), minlength=len(rows.ids))
        yield from said(wrong)
    yield from wrong_counts("the first row of an epoch", counts, rows.starts * 1.0, rows.ids)


def said(wrong: str | None) -> Iterator[str]:
    if wrong is not None:
        yield wrong
