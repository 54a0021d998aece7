"""The laws of drawing: how likely every item is and what it weighs, or the order in which it comes.

Everything here follows from raw priorities, row ids and options, in double precision. Nothing of
the product is used, so that it can be wrong without the law being wrong as well.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from scipy import stats

Floats = npt.NDArray[np.float64]
Ids = npt.NDArray[np.int64]
Bools = npt.NDArray[np.bool_]


@dataclass(frozen=True)
class Rows:
    """What is stored while batches are drawn; arrays have a value for each row, by ascending id."""

    ids: Ids
    raws: Floats  # raw priorities; NaN for the last observation of an episode, which has none
    starts: Bools  # whether an item of the view starts here
    capacity: int
    alpha: float
    epsilon: float
    #: What was there when ranks were sorted or an epoch began, if that was not just now.
    then: Rows | None = None

    def at(self, ids: Any) -> Ids:
        """Places of row ids. Fails for a row that is not stored."""
        places: Ids = np.searchsorted(self.ids, ids).clip(max=len(self.ids) - 1)
        foreign = ids[self.ids[places] != ids]
        assert foreign.size == 0, f"rows were drawn that are not there: {foreign[:5]}"
        return places


# ------------------------------------------------------------------------------------------- masses


def equal(rows: Rows) -> Floats:
    """Every row alike."""
    return np.ones(len(rows.ids))


def proportional(rows: Rows) -> Floats:
    """(priority + epsilon)^alpha; all of them zero: every row alike."""
    return of_last_observations_nothing(rows, masses(rows.raws, rows.alpha, rows.epsilon))


def by_rank(rows: Rows) -> Floats:
    """1 / rank^alpha by the last sort. Rows of equal priority rank in the order of their slots.

    A row that came later has no rank yet: it does not inherit that of the row it overwrote.
    """
    if rows.then is not None:
        ranked = dict(zip(rows.then.ids.tolist(), by_rank(rows.then).tolist(), strict=True))
        return np.array([ranked.get(row_id, 0.0) for row_id in rows.ids.tolist()])
    mass = np.zeros(len(rows.ids))
    weighed = np.flatnonzero(~np.isnan(rows.raws))
    weighed = weighed[np.argsort(rows.ids[weighed] % rows.capacity)]
    mass[weighed] = rank_masses(rows.raws[weighed], rows.alpha)
    return mass


def masses(raws: Any, alpha: float, epsilon: float = 1e-6) -> Floats:
    """(p + epsilon)^alpha; all zero: equal."""
    base = np.asarray(raws, np.float64) + float(np.float32(epsilon))
    mass: Floats = base ** float(np.float32(alpha))
    mass[base == 0] = 0
    return mass if np.nansum(mass) > 0 else np.ones(len(base))


def rank_masses(raws: Any, alpha: float) -> Floats:
    """1 / rank^alpha, rank 1 the largest; equal priorities in the order given; all zero: equal."""
    if not np.any(raws):
        return np.ones(len(raws))
    order = np.argsort(-np.asarray(raws, np.float64), kind="stable")
    mass = np.empty(len(order))
    mass[order] = np.arange(1, len(order) + 1, dtype=np.float64) ** -float(np.float32(alpha))
    return mass


def of_last_observations_nothing(rows: Rows, mass: Floats) -> Floats:
    return np.where(np.isnan(rows.raws), 0.0, mass)


def sequence_priority(errors: Any, eta: float) -> Floats:
    """R2D2: eta * max + (1 - eta) * mean of |TD error| over time."""
    size = np.abs(np.asarray(errors, np.float64))
    priority: Floats = eta * size.max(axis=1) + (1 - eta) * size.mean(axis=1)
    return priority


# ------------------------------------------------------------------------------------ probabilities


def among(mass: Floats, starts: Bools) -> Floats:
    """The probability of each start: its share of the mass of all starts; none has any: equal."""
    share: Floats = np.where(starts, mass, 0.0)
    if not share.sum() > 0:
        share = starts.astype(np.float64)
    share /= share.sum()
    return share


def share(law: Callable[[Rows], Floats], rows: Rows) -> Floats:
    """The probability that weights are made with: a row's share of the mass of all rows, starts or
    not; of ranks, of all that there were at the last sort."""
    total = law(rows if rows.then is None or law is not by_rank else rows.then).sum()
    probability: Floats = law(rows) / total
    return probability


def with_newest(probability: Floats, newest: int, batch: int) -> Floats:
    """The expected number of times that a row stands in a batch, over its size, where the newest
    has a place of its own beside those that are drawn."""
    own = np.zeros(len(probability))
    own[newest] = 1
    return ((batch - 1) * probability + own) / batch


def weights(
    probability: Floats, least: float, rows: int, beta: Any, scale: str, drawn: Ids
) -> Floats:
    """(N P)^-beta for places `drawn`, [batch, row]; scaled by the largest of each batch, or by that
    of the `least` probability, or not at all. `beta` is a number or one for each batch."""
    logs = np.full(len(probability), np.inf)
    possible = probability > 0
    logs[possible] = -np.log(rows * probability[possible])
    beta = np.broadcast_to(np.float32(beta).astype(np.float64), len(drawn))[:, None]
    own = beta * logs[drawn]
    most = {
        "batch": own.max(axis=1, keepdims=True),
        "global": -beta * np.log(rows * least),
        "none": 0.0,
    }[scale]
    weight: Floats = np.exp(own - most)
    return weight


def goal(k: float, choices: int) -> tuple[float, float]:
    """Hindsight: the probability that the goal stays, and that it becomes a certain other one."""
    return 1 / (k + 1), k / (k + 1) / choices


# ------------------------------------------------------------------------------------------- orders
# These say what is wrong with the ids that were drawn, or None.


def newest_first(before: Rows, after: Rows, batches: Sequence[Ids]) -> str | None:
    """Each batch is the newest starts, the newest first, at some time between these two."""
    newest = after.ids[after.starts][::-1]
    came = len(newest) - np.searchsorted(newest[::-1], before.ids[before.starts][-1]) - 1
    for batch in batches:
        first = np.flatnonzero(newest[: came + 1] == batch[0])
        if not first.size or not np.array_equal(batch, newest[first[0] :][: len(batch)]):
            return f"not the newest, the newest first: {batch[:9]}"
    return None


def queue(rows: Rows, taken: Ids, times: int, handles: Sequence[Ids]) -> str | None:
    """By all handles together each start `times` times, less those that were `taken` before. One
    handle alone gets them in their order; of several, one may give rows back after another has
    taken later ones."""
    wanted = np.repeat(rows.ids[rows.starts], times)
    for row_id in taken.tolist():
        wanted = np.delete(wanted, np.flatnonzero(wanted == row_id)[:1])
    if len(handles) == 1 and (np.diff(handles[0]) < 0).any():
        return "rows were not given out in the order they came"
    together = np.sort(np.concatenate(handles))
    if np.array_equal(together, wanted):
        return None
    lost = np.setdiff1d(wanted, together)
    return f"{len(together)} rows were given out, not {len(wanted)}; {len(lost)} were never"


def epochs(rows: Rows, begun: Ids, drawn: Ids) -> tuple[str | None, Ids]:
    """In an epoch every start is drawn once. The one that had `begun` when rows were overwritten
    ends with the slots that were still to come, whatever row is in them now.

    Returns what is wrong, and the rows that the other epochs began with.
    """
    ids = rows.ids[rows.starts]
    if rows.then is not None:
        gone = set((begun % rows.capacity).tolist())
        slots = set((rows.then.ids[rows.then.starts] % rows.capacity).tolist()) - gone
        left = [i for i in ids.tolist() if i % rows.capacity in slots]
        rest, drawn = drawn[: len(left)], drawn[len(left) :]
        if not np.array_equal(np.sort(rest), left):
            return "the epoch that had begun did not end with the rows still to come", rest[:0]
    whole = drawn[: len(drawn) // len(ids) * len(ids)].reshape(-1, len(ids))
    assert len(whole), "this law needs whole epochs"
    if not (np.sort(whole, axis=1) == ids).all():
        return "an epoch did not hold every row once", whole[:, 0]
    return None, whole[:, 0]


# -------------------------------------------------------------------------------------------- tests


def g_test(counts: Any, law: Any) -> float:
    """The p-value of counts against a law given up to a factor. Rare cells are merged.

    The draws of a stratified batch scatter less than independent ones, so for them the p-value
    is too large, never too small.
    """
    counts = np.asarray(counts, np.float64)
    expected = np.asarray(law, np.float64) / np.sum(law) * counts.sum()
    assert (counts[expected == 0] == 0).all(), "a row without priority was drawn"
    order = np.argsort(expected)
    group = np.floor(np.cumsum(expected[order]) / 8)
    group[expected[order] >= 8] = -1 - np.arange(np.count_nonzero(expected >= 8))
    _, cell = np.unique(group, return_inverse=True)
    expected = np.bincount(cell, expected[order])
    counts = np.bincount(cell, counts[order])
    counts, expected = counts[expected > 0], expected[expected > 0]
    if len(counts) == 1:
        return 1.0
    expected *= counts.sum() / expected.sum()
    return float(stats.power_divergence(counts, expected, lambda_="log-likelihood").pvalue)
