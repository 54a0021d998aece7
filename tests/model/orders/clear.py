"""clear() beside a writer: blocks.cc, recovery.cc, writer.cc."""

from __future__ import annotations

from model.orders.blocks import OPEN, REAPING, SEALED, begin_lap, sealed
from model.orders.operations import Outcome, Program, Protocol, cas, fence, load, store

WRITER, CLEARER = (1, 1), (2, 1)


def alter(me: tuple[int, int]) -> Program:
    """Recovery::alter, of a block with one row of era 0. Leaves it to whoever has it open."""
    while True:
        word = yield load("block 0", "blocks.word_after_era")
        if word[3] != SEALED:
            return
        if (yield cas("block 0", word, (word[0], *me, REAPING), "blocks.taken")) != word:
            continue
        yield store("row 0", "empty", "recovery.emptied")
        yield store("fill 0", (1, 1, 0), "blocks.counted")
        yield store("block 0", word, "blocks.mended")
        return


def begin_era(era: int) -> Program:
    head = yield load("head")
    while (found := (yield cas("head", head, era))) != head:
        head = found
    last = yield load("era")
    while last < era:
        found = yield cas("era", last, era, "blocks.era_begun")
        if found == last:
            return
        last = found


def clear() -> Program:
    yield from begin_era(1)
    yield from alter(CLEARER)


def seal() -> Program:
    """Writer::seal, of a block that was claimed in era 0."""
    yield store("block 0", sealed(1), "blocks.sealed")
    if (yield load("era", "blocks.latest_era")) != 0:
        yield from alter(WRITER)


def emptied(outcome: Outcome) -> str | None:
    last = outcome.last
    there = last["row 0"] != "empty" or last["fill 0"][2] != 0
    return "a row that was cleared is still counted" if there else None


def first() -> dict[str, object]:
    return {
        "head": 1,
        "era": 0,
        "block 0": (1, *WRITER, OPEN),
        "row 0": "committed",
        "fill 0": (1, 1, 1),
    }


def a_writer_who_seals() -> Protocol:
    return Protocol(first(), {"writer": seal, "clear": clear}, emptied)


def a_writer_who_seals_and_two_who_clear() -> Protocol:
    return Protocol(first(), {"writer": seal, "clear": clear, "other": clear}, emptied)


def a_writer_who_claims() -> Protocol:
    """Who knows an era claims in it: rows with older ids are gone for every reader."""

    def writer() -> Program:
        era = yield load("era", "blocks.era")
        head = yield load("head")
        if head != 1:
            return era, head
        if (yield cas("block 1", sealed(0), (1, *WRITER, OPEN), "blocks.taken")) != sealed(0):
            return None
        yield fence("blocks.claimed")
        yield from begin_lap(1, 1)
        yield cas("head", head, head + 1)
        return era, head

    def broken(outcome: Outcome) -> str | None:
        claim = outcome.returned["writer"]
        lost = claim is not None and claim[1] < claim[0]
        return "a writer of the new era writes rows of the old" if lost else None

    places = {"head": 1, "era": 0, "block 1": sealed(0), "fill 1": (0, 0, 0), "before 1": (0, 0)}
    return Protocol(places, {"writer": writer, "clear": lambda: begin_era(2)}, broken)


def a_writer_who_weighs() -> Protocol:
    """A row's priority, in a block that clear() leaves to its writer."""

    def take_away(look: str | None) -> Program:
        word = (yield load("word", look)) if look else (yield load("word"))
        if word == "weighed":
            yield cas("word", "weighed", "gone", "leaves.exchanged")

    def writer() -> Program:
        yield store("word", "weighed", "leaves.committed")
        if (yield load("era", "blocks.latest_era")) != 0:
            yield from take_away(None)

    def clearer() -> Program:
        yield from begin_era(1)
        yield from take_away("leaves.word_after_era")

    def broken(outcome: Outcome) -> str | None:
        there = outcome.last["word"] == "weighed"
        return "a row that was cleared is still counted" if there else None

    places = {"head": 1, "era": 0, "word": "gone"}
    return Protocol(places, {"writer": writer, "clear": clearer}, broken)


PROTOCOLS = (
    a_writer_who_seals,
    a_writer_who_seals_and_two_who_clear,
    a_writer_who_weighs,
    a_writer_who_claims,
)
