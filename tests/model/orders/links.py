"""Where a writer of steps went on: blocks.cc, streams.cc. Block 0 has four rows, of which its
writer left two unused because the arena was full; then it claimed block 1."""

from __future__ import annotations

from model.orders.operations import Outcome, Program, Protocol, cas, load, store


def writer() -> Program:
    yield store("taken 0", (1, 2))
    yield store("back 1", (1, 1))
    yield cas("on 0", (1, 0), (1, 1), "links.linked")
    yield store("row 4", "committed", "rows.committed")


def looks_ahead() -> Program:
    """Streams::far_across: the block and the place of the row behind the last of block 0."""
    offset = 2
    on = yield load("on 0", "links.on")
    if on[1] == 0:
        return None
    _, left_after = yield load("taken 0")
    rows = left_after or 4
    return (0, offset) if offset < rows else (on[1], offset - rows)


def looks_back() -> Program:
    """Streams::previous_block: the same of the row before the first of block 1."""
    if (yield load("row 4", "rows.word")) != "committed":
        return None
    back = yield load("back 1")
    _, left_after = yield load("taken 0")
    return (1 - back[1], (left_after or 4) - 1)


def misplaced(outcome: Outcome) -> str | None:
    ahead, back = outcome.returned["ahead"], outcome.returned["back"]
    wrong = ahead not in (None, (1, 0)) or back not in (None, (0, 1))
    return "a neighbour is looked for where it cannot be" if wrong else None


def a_writer_who_goes_on_early() -> Protocol:
    first = {"taken 0": (1, 0), "on 0": (1, 0), "back 1": (1, 0), "row 4": "empty"}
    threads = {"writer": writer, "ahead": looks_ahead, "back": looks_back}
    return Protocol(first, threads, misplaced)


PROTOCOLS = (a_writer_who_goes_on_early,)
