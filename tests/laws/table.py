"""The table of laws: how rows are drawn, what is made of them, what is stored, and where.

A new draw, item, content or place joins by one line. What cannot stand together is said in
`why_not`.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from laws import laws
from laws.cover import covering
from laws.laws import Bools, Floats, Rows
from replay_buffer import FrameStack, Hindsight, LinearSchedule, NStep, Sequence, Trajectory

# -------------------------------------------------------------------------------------------- draws


@dataclass(frozen=True)
class Draw:
    name: str
    strategy: str
    mass: Callable[[Rows], Floats] | None = None  # P is proportional to it; None: rows in an order
    batch: int = 1
    cer: bool = False
    beta: Any = 0.4
    times: int = 1  # that a queue gives each row out

    @property
    def weighted(self) -> bool:
        return self.strategy in ("prioritized", "rank")


SCHEDULE = LinearSchedule(0.4, 1.0, 200)

DRAWS = [
    Draw("uniform", "uniform", laws.equal),
    Draw("uniform 32", "uniform", laws.equal, batch=32),
    Draw("uniform cer 8", "uniform", laws.equal, batch=8, cer=True),
    Draw("prioritized", "prioritized", laws.proportional),
    Draw("prioritized 32", "prioritized", laws.proportional, batch=32),
    Draw("prioritized schedule", "prioritized", laws.proportional, batch=32, beta=SCHEDULE),
    Draw("prioritized cer 1", "prioritized", laws.proportional, cer=True),
    Draw("prioritized cer 8", "prioritized", laws.proportional, batch=8, cer=True),
    Draw("rank", "rank", laws.by_rank),
    Draw("rank 32", "rank", laws.by_rank, batch=32),
    Draw("rank cer 8", "rank", laws.by_rank, batch=8, cer=True),
    Draw("fifo", "fifo", batch=7),
    Draw("fifo twice", "fifo", batch=7, times=2),
    Draw("newest", "lifo", batch=7),
    Draw("without replacement", "without_replacement"),
    Draw("without replacement 7", "without_replacement", batch=7),
]

#: What scales the weights.
SCALES = ["batch", "global", "none"]

# -------------------------------------------------------------------------------------------- items


def reward(achieved: Any, goals: Any, info: Mapping[str, Any]) -> Any:
    return achieved[:, 0] - goals[:, 0]


@dataclass(frozen=True)
class Item:
    name: str
    parts: tuple[Any, ...] | None = ()  # of the view; None: `sample` of the buffer
    storage: str = "steps"
    #: The same where few of 40,000 rows are starts, and the length of the episodes that have one
    #: each; among them are rows that start nothing. None: every row is a start.
    rare: tuple[Any, ...] | None = None
    rare_length: int = 1
    rare_start: int = 0  # its step of theirs
    #: A view whose priorities are updated from TD errors before this one is drawn.
    updated: Sequence | None = None

    def parts_in(self, content: Content) -> tuple[Any, ...] | None:
        return self.rare if content.rare else self.parts


STACK, LAST, GOALS = FrameStack(3), Sequence(3, burn_in=1, pad=False), Hindsight(reward=reward)
PERIOD, RARE_PERIOD = Sequence(4, period=2), Sequence(4, period=4000)
R2D2, R2D2_PERIOD = Sequence(4, burn_in=2), Sequence(4, burn_in=1, period=2)
LONG = 3999  # steps of the rare episodes that are long; a row more ends them

ITEMS = [
    Item("row", None, "transitions"),
    Item("n-step of transitions", (NStep(3),), "transitions"),
    Item("transition", None, rare=()),
    Item("n-step of steps", (NStep(3),), rare=(NStep(3),)),
    Item("frame stack", (STACK,), rare=(STACK,)),
    Item("sequence", (Sequence(4),)),
    Item("sequence with burn-in", (Sequence(4, burn_in=2),)),
    Item("sequence without padding", (LAST,), rare=(LAST,), rare_length=4, rare_start=1),
    Item("sequence with period", (PERIOD,), rare=(RARE_PERIOD,), rare_length=LONG),
    Item("trajectory", (Trajectory(),), rare=(Trajectory(),), rare_length=LONG),
    Item("hindsight", (GOALS,), rare=(GOALS,)),
    Item("R2D2", (R2D2,), updated=R2D2),
    Item("R2D2 with period", (R2D2_PERIOD,), updated=R2D2_PERIOD),
    Item("transition beside R2D2", None, updated=R2D2_PERIOD),
]

# ------------------------------------------------------------------------------------------ content


def uneven(random: np.random.Generator, starts: Bools) -> Floats:
    return random.lognormal(0, 1, len(starts))


def falling(random: np.random.Generator, starts: Bools) -> Floats:
    """The oldest rows have the highest rank."""
    return 2.0 - np.arange(len(starts)) / len(starts)


def decades(random: np.random.Generator, starts: Bools) -> Floats:
    return random.permutation(np.logspace(-30, 30, len(starts)))


def tiny_starts(random: np.random.Generator, starts: Bools) -> Floats:
    """Rows that are no starts have all the mass there is."""
    return np.where(starts, random.uniform(1, 9, len(starts)) * 1e-30, 1e30)


def some_zero(random: np.random.Generator, starts: Bools) -> Floats:
    return np.where(np.arange(len(starts)) % 3 == 0, 0, random.lognormal(0, 1, len(starts)))


def all_zero(random: np.random.Generator, starts: Bools) -> Floats:
    """All starts; rows that are none have some."""
    return np.where(starts, 0.0, 1.0)


def rare_ranks(random: np.random.Generator, starts: Bools) -> Floats:
    """1 / rank, so that "prioritized" and "rank" have the same law; starts among the low ones."""
    n, few = len(starts), np.count_nonzero(starts)
    of_starts = np.geomspace(n / 8, n - 1, few).astype(int)
    ranks = np.zeros(n)
    ranks[starts] = random.permutation(of_starts)
    ranks[~starts] = random.permutation(np.setdiff1d(np.arange(1, n + 1), of_starts))
    return 1 / ranks


@dataclass(frozen=True)
class Content:
    name: str
    capacity: int = 400
    rows: int = 150  # that are written
    priorities: Callable[[np.random.Generator, Bools], Floats] = uneven
    alpha: float = 0.6
    alpha_before: float | None = None  # until all priorities are set
    epsilon: float = 1e-6
    block_rows: int | None = None
    overwritten: int = 0  # rows that come after a first draw; few, so that ranks stay as they are
    rare: bool = False
    failing: bool = False  # a draw fails before there is enough
    busy: bool = False  # rows are being written while batches are drawn
    cleared: bool = False  # of as many rows, between which batches were drawn
    draws: float = 1.0  # where starts are hard to find: fewer times

    @property
    def of_priorities(self) -> bool:
        """Whether it is nothing new for a buffer that keeps none."""
        special = self.priorities in (decades, tiny_starts, some_zero, all_zero)
        return special or self.alpha_before is not None


CONTENTS = [
    Content("fresh"),
    Content("wrapped", 60, 200, block_rows=7),
    Content("overwritten since", 1200, 1300, falling, block_rows=8, overwritten=3),
    Content("rare starts", 40_000, 40_000, rare_ranks, alpha=1.0, rare=True, draws=0.03),
    Content("from 1e-30 to 1e30", priorities=decades, alpha=1.0, epsilon=0.0),
    Content(
        "starts of 1e-30 beside 1e30", priorities=tiny_starts, alpha=1.0, epsilon=0.0, draws=0.1
    ),
    Content("some zero", priorities=some_zero, epsilon=0.0),
    Content("all zero", priorities=all_zero, epsilon=0.0, draws=0.1),
    Content("another alpha", alpha=0.9, alpha_before=0.3),
    Content("alpha 0, some zero", alpha=0.0, priorities=some_zero, epsilon=0.0),
    Content("cleared", cleared=True),
    Content("a draw that failed", failing=True),
    Content("being written", 2000, 300, busy=True),
]

# ------------------------------------------------------------------------------------------- places


@dataclass(frozen=True)
class Place:
    name: str
    location: str = "heap:"
    moved: str = ""  # before it is drawn from: "reopened" or "restored"
    children: int = 0  # processes that draw; 0: this one does
    readonly: bool = False


PLACES = [
    Place("heap"),
    Place("shm from another process", "shm:", children=1),
    Place("reopened file", "file:", moved="reopened"),
    Place("restored checkpoint", moved="restored"),
    Place("read-only handles", "file:", children=2, readonly=True),
    Place("several consumers", "shm:", children=3),
]

# -------------------------------------------------------------------------------------------- cases


@dataclass(frozen=True)
class Case:
    draw: Draw
    item: Item
    content: Content
    place: Place
    weights: str = "batch"

    def __str__(self) -> str:
        axes = (self.draw, self.item, self.content, self.place)
        return " - ".join([axis.name for axis in axes] + [self.weights])


def why_not(one: Any, other: Any) -> str | None:
    """Why two values of different axes are not in one row of the table; None: they are."""
    for a, b in ((one, other), (other, one)):
        reason = _why_not(a, b)
        if reason:
            return reason
    return None


def _why_not(a: Any, b: Any) -> str | None:
    if isinstance(a, Draw):
        if isinstance(b, Item):
            if b.storage == "steps" and a.cer:
                return "the newest step has no successor"
            if b.storage == "steps" and (a.mass is None):
                return "steps are drawn uniformly, by priority or by rank"
            if b.updated and not a.weighted:
                return "there are no priorities to update"
        if isinstance(b, Content):
            if b.of_priorities and not a.weighted:
                return "there are no priorities"
            if b.rare and (a.cer or a.mass is None):
                return "every transition is a start"
        if b in SCALES and b != "batch" and not a.weighted:
            return "there are no weights"
        if isinstance(b, Place):
            if a.strategy == "fifo" and b.readonly:
                return "a queue writes down what it gave out"
            if a.beta is SCHEDULE and b.children > 1 and not b.readonly:
                return "which consumer has which turn is not known"
    if isinstance(a, Content) and isinstance(b, Item) and a.rare and b.rare is None:
        return "every step is a start"
    return None


def fit(one: Any, other: Any) -> bool:
    return why_not(one, other) is None


AXES: list[list[Any]] = [DRAWS, ITEMS, CONTENTS, PLACES, SCALES]


def cases(strength: int = 2) -> list[Case]:
    """Cases in which every pair of values stands together, or every three."""
    return [Case(*row) for row in covering(AXES, fit, strength)]


def named(draw: str, item: str, content: str, place: str = "heap", weights: str = "batch") -> Case:
    return Case(
        next(one for one in DRAWS if one.name == draw),
        next(one for one in ITEMS if one.name == item),
        next(one for one in CONTENTS if one.name == content),
        next(one for one in PLACES if one.name == place),
        weights,
    )


#: What only three values together show, where it once was wrong.
THREES = [
    named("rank 32", "trajectory", "rare starts"),
    named("rank 32", "n-step of steps", "rare starts", weights="none"),
    named("rank cer 8", "row", "overwritten since"),
    named("prioritized schedule", "n-step of steps", "a draw that failed", weights="none"),
    named("prioritized 32", "row", "from 1e-30 to 1e30", weights="global"),
    named("prioritized 32", "n-step of steps", "starts of 1e-30 beside 1e30", weights="none"),
]

#: Many small blocks take long to look through: time for others to take what was seen.
RACE = replace(
    named("fifo", "row", "fresh", "several consumers"),
    draw=Draw("fifo 70", "fifo", batch=70),
    content=Content("many blocks", 2000, 2000, block_rows=1),
)
