"""What is explored: how large the ring is, who works in it, and what may go wrong."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum, auto

from model.ring_memory import Shape


class Fault(Enum):
    """Ways to get the protocol wrong."""

    REFRESH_STORES = auto()  # a plain store where the compare-and-swap should be
    REFRESH_COMPARES_VALUES = auto()  # a compare-and-swap without a version
    REFRESH_SKIPS_EQUAL = auto()  # no compare-and-swap when the sum is what it was
    LEAF_NOT_READ_AGAIN = auto()
    UPDATE_UNMARKED = auto()  # no activity around an update
    MEND_UNMARKED = auto()  # no activity of the mender's own around mending
    BURY_THE_UNMENDED = auto()  # the dead are listed anew after mending, and struck out
    CLAIM_WITHOUT_NAME = auto()  # the name follows the compare-and-swap in a store of its own
    REAP_THE_LIVING = auto()
    REAP_WITHOUT_REFRESH = auto()
    REAP_WITHOUT_LAP = auto()  # begin_lap is not done again
    REAP_THIS_LAP_ONLY = auto()  # rows of the lap before do not get their priority back
    TAKEN_TWICE = auto()  # begin_lap, done again, makes room once more
    READ_ONCE = auto()  # the reader does not look at the word again
    LOOK_AT_THE_LAST = auto()  # of two rows it looks at the second again, not at the first
    SAVE_THE_HEAD_ALONE = auto()  # whatever claims a checkpoint has seen beyond it
    SAVE_HALF_A_CLAIM = auto()  # a checkpoint does not complete a claim that is under way
    SAVE_THE_BLOCK_FIRST = auto()  # a checkpoint copies the rows of a block after what it says
    SAVE_AT_ONE_LOOK = auto()  # a checkpoint does not look at the lap of a block again


@dataclass(frozen=True)
class Writer:
    name: str
    batches: tuple[int, ...]  # rows of each append
    mortal: bool = False
    stoppable: bool = False


@dataclass(frozen=True)
class Updater:
    """Updates the priority of the row that was in the slot at lap 1."""

    name: str
    slot: int
    raw: int
    mortal: bool = False
    stoppable: bool = False


@dataclass(frozen=True)
class Mender:
    """Mends what the dead among the others left in the middle of an update."""

    name: str
    recounts: bool = False  # takes every block that is free, and mends it too
    mortal: bool = False
    stoppable: bool = False


@dataclass(frozen=True)
class Reader:
    name: str
    slots: tuple[int, ...]  # one of them is drawn
    pairs: bool = False  # and read with the row behind it in its block, as views read their rows
    mortal: bool = False
    stoppable: bool = False


@dataclass(frozen=True)
class Saver:
    """Makes a checkpoint, once."""

    name: str
    mortal: bool = False
    stoppable: bool = False


@dataclass(frozen=True)
class Janitor:
    """Runs alone, when all others are dead, stopped or done, and mends everything."""

    name: str = "janitor"
    mortal: bool = False
    stoppable: bool = False


Process = Writer | Updater | Mender | Reader | Saver | Janitor


@dataclass(frozen=True)
class Config:
    shape: Shape
    processes: tuple[Process, ...]
    crashes: int = 0  # of those that are mortal, so many may be killed
    stops: int = 0  # of those that are stoppable, so many may stop for ever, alive
    payload: bool = True  # copying a row is two steps; without, it is none
    busy: bool = False  # more writers than blocks: a claim may find all of them held
    faults: frozenset[Fault] = frozenset()
