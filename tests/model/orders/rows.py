"""The row: rows.h, and writer.cc where a row is taken out for its bytes."""

from __future__ import annotations

from collections.abc import Callable

from model.orders.operations import Outcome, Program, Protocol, fence, load, store

WRITING, COMMITTED, EMPTY = "writing", "committed", "empty"
TORN = "a torn row is accepted"


def write(slot: int, row_id: int, halves: tuple[str, ...] = ("left", "right")) -> Program:
    """Rows::write. What is copied is the id, half by half."""
    yield store(f"row {slot}", (row_id, WRITING))
    yield fence("rows.writing")
    for half in halves:
        yield store(f"{half} {slot}", row_id)
    yield store(f"row {slot}", (row_id, COMMITTED), "rows.committed")


def copy(slot: int, word: tuple[int, str], halves: tuple[str, ...]) -> Program:
    """Whether what is copied is not all of the row with this word."""
    torn = False
    for half in halves:
        torn |= (yield load(f"{half} {slot}")) != word[0]
    return torn


def read(slots: tuple[int, ...], halves: tuple[str, ...] = ("left", "right")) -> Program:
    """Rows one after the other, of which the first is looked at again. True: torn and accepted."""
    words: list[tuple[int, str]] = []
    torn = False
    for slot in slots:
        word = yield load(f"row {slot}", "rows.word")
        if word[1] != COMMITTED or (words and word[0] != words[0][0] + slot - slots[0]):
            return False
        words.append(word)
        torn |= yield from copy(slot, word, halves)
    yield fence("rows.copied")
    again = yield load(f"row {slots[0]}")
    return torn and again == words[0]


def torn(outcome: Outcome) -> str | None:
    return TORN if outcome.returned["reader"] else None


def rows(n: int, halves: tuple[str, ...] = ("left", "right")) -> dict[str, object]:
    """Rows 0 to n - 1, committed."""
    return {f"row {slot}": (slot, COMMITTED) for slot in range(n)} | {
        f"{half} {slot}": slot for slot in range(n) for half in halves
    }


def overwriting(ids: tuple[int, ...]) -> Callable[[], Program]:
    def writer() -> Program:
        for row_id in ids:
            yield from write(0, row_id)

    return writer


def a_row() -> Protocol:
    threads = {"writer": overwriting((1,)), "reader": lambda: read((0,))}
    return Protocol(rows(1), threads, torn)


def a_row_twice() -> Protocol:
    threads = {"writer": overwriting((1, 2)), "reader": lambda: read((0,))}
    return Protocol(rows(1), threads, torn)


def a_stretch() -> Protocol:
    """A view looks again at the first row of a stretch only."""

    def writer() -> Program:
        yield from write(0, 2, ("left",))
        yield from write(1, 3, ("left",))

    threads = {"writer": writer, "reader": lambda: read((0, 1), ("left",))}
    return Protocol(rows(2, ("left",)), threads, torn)


def a_row_taken_out() -> Protocol:
    """Row 1 goes because row 0 gets its bytes of the arena: Writer::make_room."""

    def writer() -> Program:
        yield store("row 1", (1, EMPTY))
        yield store("row 0", (2, WRITING))
        yield fence("rows.writing")
        yield store("left 1", 2)
        yield store("row 0", (2, COMMITTED), "rows.committed")

    threads = {"writer": writer, "reader": lambda: read((1,), ("left",))}
    return Protocol(rows(2, ("left",)), threads, torn)


PROTOCOLS = (a_row, a_row_twice, a_stretch, a_row_taken_out)
