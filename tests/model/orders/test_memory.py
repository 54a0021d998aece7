"""The machine of the orders allows what C++ and ARM allow, and no more: known small programs."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from model.orders.memory import Broken, Explorer
from model.orders.operations import Order, Outcome, Program, Protocol, add, cas, fence, load, store


def seen(wanted: dict[str, object]) -> Callable[[Outcome], str | None]:
    def broken(outcome: Outcome) -> str | None:
        found = all(outcome.returned.get(k, outcome.last.get(k)) == v for k, v in wanted.items())
        return "seen" if found else None

    return broken


def possible(wanted: dict[str, object], *threads: Callable[[], Program], **first: int) -> bool:
    """Whether an execution ends like this. Threads are named by their functions."""
    named = {thread.__name__: thread for thread in threads}
    protocol = Protocol(first or {"x": 0, "y": 0}, named, seen(wanted))
    try:
        Explorer(protocol).explore()
    except Broken:
        return True
    return False


ORDERS = ["relaxed", "acquire", "release", "acq_rel", "seq_cst"]


# ---- messages: data, then a flag


def message(data: str, flag: str, look: str, between: str = "") -> bool:
    """Whether the flag can be seen without the data."""

    def writer() -> Program:
        yield store("x", 1, data)
        if between == "writer":
            yield fence("release")
        yield store("y", 1, flag)

    def reader() -> Program:
        flag = yield load("y", look)
        if between == "reader":
            yield fence("acquire")
        data = yield load("x")
        return flag, data

    return possible({"reader": (1, 0)}, writer, reader)


def test_an_acquire_sees_what_was_released() -> None:
    assert not message("relaxed", "release", "acquire")
    assert not message("relaxed", "seq_cst", "seq_cst")
    assert not message("relaxed", "relaxed", "acquire", between="writer")
    assert not message("relaxed", "release", "relaxed", between="reader")


def test_a_message_needs_both_ends() -> None:
    assert message("relaxed", "relaxed", "acquire")
    assert message("relaxed", "release", "relaxed")
    assert message("release", "relaxed", "acquire")  # orders what is before it, not behind it
    assert message("seq_cst", "relaxed", "seq_cst")
    assert message("relaxed", "relaxed", "relaxed", between="writer")
    assert message("relaxed", "relaxed", "relaxed", between="reader")


def test_an_exchange_hands_on_what_it_found() -> None:
    def writer() -> Program:
        yield store("x", 1)
        yield store("y", 1, "release")

    def helper() -> Program:
        yield add("y", 1)

    def overwriter() -> Program:
        if (yield load("y")) == 1:
            yield store("y", 2)

    def reader() -> Program:
        flag = yield load("y", "acquire")
        return flag, (yield load("x"))

    assert not possible({"reader": (2, 0)}, writer, helper, reader)
    assert possible({"reader": (2, 0)}, writer, overwriter, reader)


def test_who_acquires_hands_on() -> None:
    def first() -> Program:
        yield store("x", 1, "release")

    def second() -> Program:
        seen = yield load("x", "acquire")
        yield store("y", 1, "release")
        return seen

    def third() -> Program:
        seen = yield load("y", "acquire")
        return seen, (yield load("x"))

    assert not possible({"second": 1, "third": (1, 0)}, first, second, third)


# ---- store, then look at what the other stored


def both_miss(write: str, look: str, between: str = "") -> bool:
    def side(mine: str, other: str) -> Callable[[], Program]:
        def thread() -> Program:
            yield store(mine, 1, write)
            if between:
                yield fence(between)
            return (yield load(other, look))

        thread.__name__ = f"of_{mine}"
        return thread

    return possible({"of_x": 0, "of_y": 0}, side("x", "y"), side("y", "x"))


def test_only_seq_cst_keeps_both_from_missing_each_other() -> None:
    assert both_miss("relaxed", "relaxed")
    assert both_miss("release", "acquire")
    assert both_miss("seq_cst", "acquire")
    assert both_miss("release", "seq_cst")
    assert both_miss("relaxed", "relaxed", between="acq_rel")
    assert not both_miss("seq_cst", "seq_cst")
    assert not both_miss("relaxed", "relaxed", between="seq_cst")


def test_a_fence_on_one_side_is_not_enough() -> None:
    def fenced() -> Program:
        yield store("x", 1)
        yield fence("seq_cst")
        return (yield load("y"))

    def ordered() -> Program:
        yield store("y", 1, "seq_cst")
        return (yield load("x", "seq_cst"))

    def plain() -> Program:
        yield store("y", 1)
        return (yield load("x"))

    assert not possible({"fenced": 0, "ordered": 0}, fenced, ordered)
    assert possible({"fenced": 0, "plain": 0}, fenced, plain)


@pytest.mark.parametrize("order", ["relaxed", "acquire", "seq_cst"])
def test_two_readers_agree_on_two_writers_only_by_seq_cst(order: str) -> None:
    def writes_x() -> Program:
        yield store("x", 1, "seq_cst")

    def writes_y() -> Program:
        yield store("y", 1, "seq_cst")

    def reads_x() -> Program:
        x = yield load("x", order)
        return x, (yield load("y", order))

    def reads_y() -> Program:
        y = yield load("y", order)
        return y, (yield load("x", order))

    threads = (writes_x, writes_y, reads_x, reads_y)
    assert possible({"reads_x": (1, 0), "reads_y": (1, 0)}, *threads) is (order != "seq_cst")


def test_seq_cst_is_weaker_where_it_meets_other_orders() -> None:
    """Z6.U of the paper: what compilers make of seq_cst on POWER, and what C++20 allows."""

    def first() -> Program:
        yield store("x", 1, "seq_cst")
        yield store("y", 1, "release")

    def second() -> Program:
        before = yield add("y", 1, "seq_cst")
        return before, (yield load("y"))

    def third() -> Program:
        yield store("y", 3, "seq_cst")
        return (yield load("x", "seq_cst"))

    assert possible({"second": (1, 3), "third": 0}, first, second, third)


# ---- one place


def test_nobody_sees_the_stores_to_a_place_in_two_orders() -> None:
    def one() -> Program:
        yield store("x", 1)

    def two() -> Program:
        yield store("x", 2)

    def looks() -> Program:
        return (yield load("x")), (yield load("x"))

    def looks_too() -> Program:
        return (yield load("x")), (yield load("x"))

    assert possible({"looks": (1, 2)}, one, two, looks)
    assert not possible({"looks": (1, 0)}, one, two, looks)
    assert not possible({"looks": (1, 2), "looks_too": (2, 1)}, one, two, looks, looks_too)


def test_stores_to_two_places_can_be_in_two_orders() -> None:
    def one() -> Program:
        yield store("x", 1)
        yield store("y", 2)

    def two() -> Program:
        yield store("y", 1)
        yield store("x", 2)

    assert possible({"x": 1, "y": 1}, one, two)


def test_nothing_comes_between_an_exchange_and_what_it_read() -> None:
    def one() -> Program:
        return (yield add("x", 1))

    def two() -> Program:
        return (yield add("x", 1))

    def three() -> Program:
        yield store("x", 10)

    assert not possible({"one": 0, "two": 0}, one, two)
    assert possible({"x": 10}, one, three)
    assert possible({"x": 11}, one, three)
    assert not possible({"x": 1}, one, three)


def test_a_compare_and_swap_that_fails_is_a_load() -> None:
    def writer() -> Program:
        yield store("x", 1)
        yield store("y", 1, "release")

    def swaps() -> Program:
        found = yield cas("y", 0, 5, "acq_rel")
        return found, (yield load("x"))

    def releases() -> Program:
        found = yield cas("y", 0, 5, "release")
        return found, (yield load("x"))

    assert not possible({"swaps": (1, 0)}, writer, swaps)
    assert possible({"releases": (1, 0)}, writer, releases)
    assert possible({"swaps": (0, 0), "y": 1}, writer, swaps)


# ---- what is left out


def test_no_load_takes_what_is_stored_later() -> None:
    """Load buffering: ARM allows it for relaxed operations, the machine does not."""

    def one() -> Program:
        seen = yield load("x")
        yield store("y", 1)
        return seen

    def two() -> Program:
        seen = yield load("y")
        yield store("x", 1)
        return seen

    assert not possible({"one": 1, "two": 1}, one, two)


# ---- the explorer itself


def test_executions_are_counted_once() -> None:
    def writer() -> Program:
        yield store("x", 1)
        yield store("x", 2)

    def reader() -> Program:
        return (yield load("x"))

    protocol = Protocol({"x": 0}, {"w": writer, "r": reader}, lambda _: None)
    assert Explorer(protocol).explore().executions == 3


def test_a_counterexample_tells_who_read_what_of_whom() -> None:
    def writer() -> Program:
        yield store("x", 1)
        yield store("y", 1, "published")

    def reader() -> Program:
        flag = yield load("y", "acquire")
        return flag, (yield load("x"))

    def broken(outcome: Outcome) -> str | None:
        return "the data are old" if outcome.returned["reader"] == (1, 0) else None

    protocol = Protocol({"x": 0, "y": 0}, {"writer": writer, "reader": reader}, broken)
    assert Explorer(protocol, {"published": Order.RELEASE}).explore().executions == 3
    with pytest.raises(Broken) as found:
        Explorer(protocol, {"published": Order.RELAXED}).explore()
    assert found.value.rule == "the data are old"
    lines = [" ".join(line.split()) for line in str(found.value).splitlines()]
    assert lines[0] == "the data are old"
    assert "writer store y relaxed writes 1" in lines
    assert "reader load y acquire reads 1 of writer" in lines
    assert "reader load x relaxed reads 0 of the start" in lines


def test_the_explorer_refuses_a_program_that_is_too_large() -> None:
    def counts() -> Program:
        for _ in range(4):
            yield add("x", 1)

    protocol = Protocol({"x": 0}, dict.fromkeys("abc", counts), lambda _: None)
    with pytest.raises(AssertionError, match="more than 100 states"):
        Explorer(protocol).explore(most=100)
