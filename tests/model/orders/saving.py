"""A checkpoint beside a writer: checkpoint_copy.cc, checkpoint_write.cc. And an update that finds
out whether an id was ever given: priorities.cc."""

from __future__ import annotations

from collections.abc import Callable

from model.orders.blocks import OPEN, claim, sealed
from model.orders.clear import CLEARER, alter, begin_era
from model.orders.operations import Outcome, Program, Protocol, cas, fence, load, store

ME = (1, 1)


# ---- the state of a block


def one_row() -> dict[str, object]:
    """A block of one row, full, which its writer is about to claim again."""
    return {
        "head": 1,
        "block 0": sealed(1),
        "fill 0": (1, 1, 1),
        "before 0": (0, 0),
        "row 0": (1, "committed"),
        "priority 0": 1,
    }


def claims_lap_2() -> Program:
    """Blocks::claim with all that Blocks::begin_lap stores: lap 0 is forgotten."""
    if (yield cas("block 0", sealed(1), (2, *ME, OPEN), "blocks.taken")) != sealed(1):
        return
    yield fence("blocks.claimed")
    yield store("before 0", (1, 2))
    yield store("back", 2)
    yield store("on", 2)
    yield store("taken", 2, "blocks.lap_remembered")
    yield store("fill 0", (2, 0, 2), "blocks.counted")


def describes() -> Program:
    """BlockCopier::describe: what a block says of itself, while both its laps stay the same."""
    for _ in range(3):
        lap = (yield load("block 0", "blocks.word"))[0]
        fill_lap = (yield load("fill 0", "blocks.fill"))[0]
        before = yield load("before 0")
        taken = yield load("taken", "saving.lap_remembered")
        back = yield load("back")
        on = yield load("on")
        yield fence("saving.described")
        lap_again = (yield load("block 0"))[0]
        if (lap_again, (yield load("fill 0"))[0]) == (lap, fill_lap):
            return (lap, fill_lap), before, (taken, back, on)
    return None


def described(outcome: Outcome) -> str | None:
    if outcome.returned["saver"] is None:
        return None
    laps, before, links = outcome.returned["saver"]
    if laps == (1, 1) and (before != (0, 0) or links != (0, 0, 0)):
        return "a block is saved with what a later lap says"
    if laps == (2, 2) and (before != (1, 2) or links != (2, 2, 2)):
        return "a block is saved with what an earlier lap says"
    if laps == (2, 1) and links[0] == 2 and links != (2, 2, 2):
        return "a block is saved with the links of another lap"
    return None


def a_claim_and_a_description() -> Protocol:
    first = {"block 0": sealed(1), "fill 0": (1, 2, 2), "before 0": (0, 0)}
    links = {"taken": 0, "back": 0, "on": 0}
    return Protocol(first | links, {"writer": claims_lap_2, "saver": describes}, described)


# ---- the rows of a block, and what is said of it afterwards


def a_first_row_and_a_copy() -> Protocol:
    """The rows are copied first. None of them is of a lap that the block has not come to."""

    def writer() -> Program:
        if (yield from claim(ME)):
            yield store("priority 0", "gone")
            yield store("row 0", (2, "writing"))

    def saver() -> Program:
        row = yield load("row 0", "rows.word")
        lap = (yield load("block 0", "blocks.word"))[0]
        head = yield load("head")
        return row[0], lap, head

    def broken(outcome: Outcome) -> str | None:
        row_lap, lap, head = outcome.returned["saver"]
        if row_lap > lap:
            return "a checkpoint is refused because of a row from the future"
        return "a checkpoint is refused because of the head" if lap > head + 1 else None

    return Protocol(one_row(), {"writer": writer, "saver": saver}, broken)


def a_claim_and_the_head() -> Protocol:
    """A block is at most one claim ahead of the head."""

    def writers() -> Program:
        for _ in range(2):
            lap = yield from claim(ME)
            if lap:
                yield store("block 0", sealed(lap), "blocks.sealed")

    def saver() -> Program:
        lap = (yield load("block 0", "blocks.word"))[0]
        return lap, (yield load("head"))

    def broken(outcome: Outcome) -> str | None:
        lap, head = outcome.returned["saver"]
        return "a checkpoint is refused because of the head" if lap > head + 1 else None

    first = {"head": 1, "block 0": sealed(1), "fill 0": (1, 1, 1), "before 0": (0, 0)}
    return Protocol(first, {"writer": writers, "saver": saver}, broken)


def a_clear_and_a_copy() -> Protocol:
    """Who copies a block that clear() has emptied saves its era too."""

    def clear() -> Program:
        yield from begin_era(1)
        yield from alter(CLEARER)

    def saver() -> Program:
        row = yield load("row 0", "rows.word")
        return row, (yield load("era"))

    def broken(outcome: Outcome) -> str | None:
        half = outcome.returned["saver"] == ("empty", 0)
        return "a checkpoint has one half of a clear()" if half else None

    first = {"head": 1, "era": 0, "block 0": sealed(1), "row 0": "there", "fill 0": (1, 1, 1)}
    return Protocol(first, {"clear": clear, "saver": saver}, broken)


# ---- whether an id was ever given


def was_given() -> Program:
    """Priorities::never_given, of the row of lap 1 in slot 0, whose priority is gone."""
    if (yield load("priority 0")) != "gone":
        return True
    if (yield load("row 0"))[0] == 1:
        return True
    lap, written, _ = yield load("fill 0", "blocks.fill")
    at = (yield load("block 0"))[0]
    return at > 1 or (lap == 1 and written > 0)


def was_given_asked_the_other_way_round() -> Program:
    """What was wrong: a claim comes between the two looks, also on x86."""
    if (yield load("priority 0")) != "gone":
        return True
    if (yield load("row 0"))[0] == 1:
        return True
    at = (yield load("block 0", "blocks.word"))[0]
    lap, written, _ = yield load("fill 0", "blocks.fill")
    return not (at < 1 or (at == 1 and (lap != at or written == 0)))


def overwriting_beside(update: Callable[[], Program]) -> Protocol:
    def writer() -> Program:
        if (yield from claim(ME)):
            yield store("priority 0", "gone")
            yield store("row 0", (2, "writing"))

    def broken(outcome: Outcome) -> str | None:
        unknown = not outcome.returned["update"]
        return "an id that was given is refused" if unknown else None

    return Protocol(one_row(), {"writer": writer, "update": update}, broken)


def a_row_that_is_overwritten_and_an_update() -> Protocol:
    return overwriting_beside(was_given)


def a_row_that_is_overwritten_and_an_update_the_other_way_round() -> Protocol:
    return overwriting_beside(was_given_asked_the_other_way_round)


PROTOCOLS = (
    a_claim_and_a_description,
    a_first_row_and_a_copy,
    a_claim_and_the_head,
    a_clear_and_a_copy,
    a_row_that_is_overwritten_and_an_update,
)
