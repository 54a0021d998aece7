"""Everything is drawn as often as its law says, and weighs what it says: one test for the table."""

from __future__ import annotations

import zlib
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.shared import MARKS
from laws import laws
from laws.laws import Floats, Ids, Rows
from laws.places import Drawn, Scene, draw, draw_all, scene, writing
from laws.table import CONTENTS, DRAWS, ITEMS, PLACES, SCHEDULE, Case, cases

pytestmark = MARKS

#: Seeds are fixed: a p-value below this is a wrong law.
UNLIKELY = 1e-6
ITEMS_DRAWN, SINGLY, OF_RARE = 8000, 4000, 640


@pytest.mark.parametrize("case", cases(), ids=str)
def test_draws_and_weights_follow_the_law(case: Case, tmp_path: Path) -> None:
    check(case, tmp_path)


def check(case: Case, folder: Path, seed: int = 0) -> None:
    with scene(case, zlib.crc32(str(case).encode()) + seed, folder) as made:
        wrong = list((check_order if case.draw.mass is None else check_law)(made))
    if wrong:
        pytest.fail("\n".join(wrong), pytrace=False)


def first_draw(made: Scene) -> list[Drawn]:
    """Draws before rows are overwritten, and overwrites them."""
    if not made.case.content.overwritten:
        return []
    first = made.draw(draw, 1, made.case.draw.batch)
    made.turns += 0 if made.case.place.readonly else len(made.handles)
    made.store.overwrite()
    return first


def drawn_by(made: Scene, call: Any, *args: Any) -> list[Drawn]:
    if not made.case.content.busy:
        return made.draw(call, *args)
    with writing(made.store):
        return made.draw(call, *args)


# ----------------------------------------------------------------------------------- random draws


def check_law(made: Scene) -> Iterator[str]:
    case = made.case
    assert case.draw.mass is not None
    first_draw(made)
    rows = made.store.rows()
    size = case.draw.batch
    items = OF_RARE if case.content.rare else SINGLY if size == 1 else ITEMS_DRAWN
    seen = drawn_by(made, draw, items // size, size)
    mass = case.draw.mass(rows)
    probability = laws.among(mass, rows.starts)
    for handle in seen:
        yield from wrong_frequencies(made, rows, probability, handle)
        if handle.weights:
            yield from wrong_weights(made, rows, mass, handle)
    goals = [handle for handle in seen if handle.goals]
    if goals:
        yield from wrong_goals(made, rows, probability, goals)
    if len({handle.all_ids.tobytes() for handle in seen}) < len(seen) and not (
        case.draw.cer and size == 1
    ):
        yield "several handles drew the same batches"


def known(made: Scene, rows: Rows, ids: Ids) -> Any:
    """Which of the rows drawn are not of those that were written meanwhile."""
    return ids <= rows.ids[-1] if made.case.content.busy else np.ones(ids.shape, bool)


def wrong_frequencies(
    made: Scene, rows: Rows, probability: Floats, handle: Drawn
) -> Iterator[str]:
    ids = np.stack(handle.ids)
    if made.case.draw.cer:
        first, ids = ids[:, 0], ids[:, 1:]
        newest = rows.ids[-1]
        if not ((first >= newest) if made.case.content.busy else (first == newest)).all():
            yield f"the newest row is not the first of each batch: {first[:9]}, not {newest}"
        if not ids.size:
            return
    ids = ids[known(made, rows, ids)]
    counts = np.bincount(rows.at(ids), minlength=len(rows.ids))
    yield from unlikely("what was drawn", counts, probability, rows.ids)


def unlikely(what: str, counts: Any, law: Any, names: Any) -> Iterator[str]:
    foreign = np.flatnonzero((counts > 0) & (law == 0))
    if foreign.size:
        yield f"{what}: {counts[foreign].sum()} times what is never drawn, as {names[foreign[0]]}"
        return
    p = laws.g_test(counts, law)
    if p < UNLIKELY:
        expected = law / law.sum() * counts.sum()
        worst = np.argmax(np.abs(counts - expected) / np.sqrt(expected + 1))
        yield (
            f"{what} does not follow the law: p = {p:.2g}; {names[worst]} was drawn "
            f"{counts[worst]} times, not {expected[worst]:.1f}"
        )


def wrong_weights(made: Scene, rows: Rows, mass: Floats, handle: Drawn) -> Iterator[str]:
    case = made.case
    scale: str = case.weights
    probability = mass / mass.sum()
    relative = case.content.busy or rows.then is not None
    if not case.draw.weighted:
        probability, scale = np.full(len(mass), 1 / len(mass)), "batch"
    elif not mass[rows.starts].any():
        probability, relative = np.full(len(mass), 1 / len(mass)), True
    if case.draw.cer:
        probability = laws.with_newest(probability, len(mass) - 1, case.draw.batch)
    for turn, (ids, weights) in enumerate(zip(handle.ids, handle.weights, strict=True)):
        there = known(made, rows, ids)
        if not there.any():
            continue
        at = rows.at(ids[there])
        beta = case.draw.beta
        if beta is SCHEDULE:
            beta = beta(made.turns + (0 if case.place.readonly else turn))
        expected = laws.weights(probability, len(rows.ids), beta, scale, at)
        found = weights[there]
        if relative:
            expected, found = expected / expected.max(), found / found.max()
        representable = (expected > 2.0**-126) & (expected < 2.0**127)
        off = np.abs(found - expected) > 1e-5 * expected
        if (off & representable).any():
            one = np.flatnonzero(off & representable)[0]
            yield f"batch {turn}: row {ids[there][one]} weighs {found[one]}, not {expected[one]}"
            return


def wrong_goals(
    made: Scene, rows: Rows, probability: Floats, seen: list[Drawn]
) -> Iterator[str]:
    part = made.store.parts[0]
    choices = made.store.goals(part.strategy)
    names, law = [], []
    for place in np.flatnonzero(rows.starts):
        row_id = int(rows.ids[place])
        stays, becomes = laws.goal(part.k, len(choices[row_id]))
        names += [(row_id, -1), *((row_id, goal) for goal in choices[row_id])]
        law += [probability[place] * p for p in (stays, *[becomes] * len(choices[row_id]))]
    places = {name: place for place, name in enumerate(names)}
    counts = np.zeros(len(names), np.int64)
    for handle in seen:
        ids, goals = handle.all_ids, np.concatenate(handle.goals).clip(min=-1)
        there = known(made, rows, ids)
        for name in zip(ids[there].tolist(), goals[there].tolist(), strict=True):
            if name not in places:
                yield f"start {name[0]} got goal {name[1]}, which its episode did not reach"
                return
            counts[places[name]] += 1
    yield from unlikely("the goals", counts, np.array(law), names)


# ------------------------------------------------------------------------------- draws in an order


def check_order(made: Scene) -> Iterator[str]:
    checks: dict[str, Callable[[Scene], Iterator[str]]] = {
        "fifo": check_queue,
        "lifo": check_newest,
        "without_replacement": check_epochs,
    }
    yield from checks[made.case.draw.strategy](made)


def check_queue(made: Scene) -> Iterator[str]:
    first = first_draw(made)
    taken = np.concatenate([handle.all_ids for handle in first]) if first else np.empty(0, np.int64)
    rows = made.store.rows()
    seen = [handle.all_ids for handle in drawn_by(made, draw_all, made.case.draw.batch)]
    seen = [ids[known(made, rows, ids)] for ids in seen]
    yield from filter(None, [laws.queue(taken, made.case.draw.times)(rows, seen)])


def check_newest(made: Scene) -> Iterator[str]:
    first_draw(made)
    before = made.store.rows()
    seen = drawn_by(made, draw, 300, made.case.draw.batch)
    rows = made.store.rows()
    for handle in seen:
        yield from filter(None, [laws.newest_first(before, rows, handle.ids)])


def check_epochs(made: Scene) -> Iterator[str]:
    first = first_draw(made)
    rows = made.store.rows()
    size, n = made.case.draw.batch, int(rows.starts.sum())
    epochs = max(60, ITEMS_DRAWN // n)
    seen = drawn_by(made, draw, epochs * n // size, size)
    begins = []
    for number, handle in enumerate(seen):
        ids = handle.all_ids
        begun = first[number].all_ids if first else ids[:0]
        wrong, firsts = laws.epochs(rows, ids[known(made, rows, ids)], begun)
        begins.append(firsts)
        yield from filter(None, [wrong])
    counts = np.bincount(rows.at(np.concatenate(begins)), minlength=len(rows.ids))
    yield from unlikely("the first of an epoch", counts, rows.starts.astype(float), rows.ids)
