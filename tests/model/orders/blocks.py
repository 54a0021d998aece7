"""Blocks pass from one writer to the next, and only from the dead to those who mend: blocks.cc,
recovery.cc, owners.cc.

A block word is (lap, owner, epoch, state). What stands for the rows of a block is one word, `rows`,
that its holder stores without any order. Owners have one slot, that of owners.py: with epoch 1 it
belongs to a process that is dead, or to one that leaves.
"""

from __future__ import annotations

from model.orders.operations import Outcome, Program, Protocol, cas, fence, load, store
from model.orders.owners import DEAD, LIVING, dead, join, slot

SEALED, OPEN, REAPING = "sealed", "open", "reaping"
ROWS = 4  # of a block

Word = tuple[int, int, int, str]


def sealed(lap: int) -> Word:
    return (lap, 0, 0, SEALED)


def begin_lap(b: int, lap: int) -> Program:
    was_lap, written, committed = yield load(f"fill {b}")
    yield store(f"before {b}", (was_lap, written))
    yield store(f"fill {b}", (lap, 0, committed), "blocks.counted")


def claim(me: tuple[int, int], count: int = 1) -> Program:
    """Blocks::claim for whoever takes all owners for alive. The lap; 0: the head lies behind."""
    skipped = 0
    while True:
        head = yield load("head")
        lap, b = head // count + 1, head % count
        word = yield load(f"block {b}", "blocks.word")
        if word[0] < lap:
            if word[3] == SEALED:
                found = yield cas(f"block {b}", word, (lap, *me, OPEN), "blocks.taken")
                if found != word:
                    continue
                yield fence("blocks.claimed")
                yield from begin_lap(b, lap)
                yield cas("head", head, head + 1)
                return lap
            skipped += 1
            if skipped > count:
                return None  # all are held
        if word[0] > lap and (yield load("head")) == head:
            return 0
        yield cas("head", head, head + 1, "blocks.head_helped")


def count_rows(b: int, lap: int, rows: int, committed: int = 0) -> Program:
    yield store(f"fill {b}", (lap, rows, committed), "blocks.counted")


def seal(b: int, lap: int) -> Program:
    yield store(f"block {b}", sealed(lap), "blocks.sealed")


# ---- from one writer to the next


def holds_lap_1(rows: int) -> Program:
    yield store("rows", "first")
    yield from count_rows(0, 1, rows)
    yield from seal(0, 1)


def writes_lap_2() -> Program:
    lap = yield from claim((2, 1))
    if lap:
        yield store("rows", "last")
    return lap


def goes_on_in_lap_1() -> Program:
    """Blocks::reclaim: a block that has room left is taken once more."""
    lap, written, _ = yield load("fill 0", "blocks.fill")
    if (lap, written) != (1, 1):
        return 0
    if (yield cas("block 0", sealed(1), (1, 3, 1, OPEN), "blocks.taken")) != sealed(1):
        return 0
    _, written, _ = yield load("fill 0")
    yield store("rows", "between")
    yield from count_rows(0, 1, written + 1)
    yield from seal(0, 1)
    return written


def mends_lap_1() -> Program:
    """Recovery::alter, of a block that nobody has."""
    word = yield load("block 0", "blocks.word_after_era")
    if word != sealed(1):
        return 0
    if (yield cas("block 0", word, (1, 3, 1, REAPING), "blocks.taken")) != word:
        return 0
    yield store("rows", "mended")
    yield from count_rows(0, 1, 2)
    yield store("block 0", word, "blocks.mended")
    return 1


def passed_on(outcome: Outcome) -> str | None:
    returned, last = outcome.returned, outcome.last
    if returned["next"] is None:
        return None
    if last["rows"] != "last":
        return "the rows of the last owner overwrite those of the next"
    written = 2 if returned.get("between") else 1
    if last["before 0"] != (1, written):
        return "the lap before is not known"
    return None


def a_block(word: Word, head: int) -> dict[str, object]:
    return {
        "head": head,
        "block 0": word,
        "fill 0": (1, 1, 0),
        "before 0": (0, 0),
        "rows": "none",
    }


def a_writer_and_the_next() -> Protocol:
    threads = {"owner": lambda: holds_lap_1(1), "next": writes_lap_2}
    return Protocol(a_block((1, 1, 1, OPEN), 1), threads, passed_on)


def a_writer_who_goes_on_and_the_next() -> Protocol:
    threads = {"between": goes_on_in_lap_1, "next": writes_lap_2}
    return Protocol(a_block(sealed(1), 1), threads, passed_on)


def a_mender_and_the_next() -> Protocol:
    threads = {"between": mends_lap_1, "next": writes_lap_2}
    return Protocol(a_block(sealed(1), 1), threads, passed_on)


def two_laps_and_a_claim() -> Protocol:
    """Who sees a block that is ahead of the head it knows sees the head."""

    def two_laps() -> Program:
        for _ in range(2):
            lap = yield from claim((2, 1))
            if lap:
                yield from seal(0, lap)

    def broken(outcome: Outcome) -> str | None:
        behind = outcome.returned["other"] == 0
        return "the head seems to lie behind its blocks" if behind else None

    first = a_block(sealed(1), 1)
    return Protocol(first, {"owner": two_laps, "other": lambda: claim((3, 1))}, broken)


# ---- who lives


def reaps() -> Program:
    """Recovery::reap, for the block in somebody's hands."""
    word = yield load("block 0", "blocks.word")
    if word[3] == SEALED or not (yield from dead(word[2])):
        return False
    if (yield cas("block 0", word, (word[0], 9, 9, REAPING), "blocks.taken")) != word:
        return False
    yield store("block 0", sealed(word[0]), "blocks.mended")
    return True


def reaped(outcome: Outcome) -> str | None:
    return "the block of a live owner is reaped" if outcome.returned["reaper"] else None


def a_new_owner_and_a_reaper() -> Protocol:
    def joiner() -> Program:
        yield from join()
        yield cas("block 0", sealed(1), (2, 1, 2, OPEN), "blocks.taken")

    first = {"block 0": sealed(1)} | slot(1, 0, DEAD)
    return Protocol(first, {"joiner": joiner, "reaper": reaps}, reaped)


def an_owner_who_leaves_and_a_reaper() -> Protocol:
    def leaver() -> Program:
        yield from seal(0, 1)
        yield store("pid", 0, "owners.left")

    first = {"block 0": (1, 1, 1, OPEN)} | slot(1, 0, LIVING)
    return Protocol(first, {"leaver": leaver, "reaper": reaps}, reaped)


PROTOCOLS = (
    a_writer_and_the_next,
    a_writer_who_goes_on_and_the_next,
    a_mender_and_the_next,
    two_laps_and_a_claim,
    a_new_owner_and_a_reaper,
    an_owner_who_leaves_and_a_reaper,
)
