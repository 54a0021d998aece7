"""A FIFO queue: sample_queue.cc beside blocks.cc. What was drawn, and given back."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

from model.orders.blocks import OPEN, begin_lap, claim, count_rows, seal, sealed
from model.orders.operations import Outcome, Program, Protocol, add, cas, change, load, store

Take = Callable[[], Program]

A, B = (1, 1), (2, 1)


def write_row(slot: int, row_id: int) -> Program:
    yield store(f"row {slot}", row_id, "rows.committed")


def rows_of(b: int, lap: int, capacity: int, rows: int) -> Program:
    """FifoSampler::rows_of: the rows of a block, in a lap, that are there, as [first, last)."""
    first_id = (lap - 1) * capacity + b * rows
    fill_lap, written, _ = yield load(f"fill {b}", "blocks.fill")
    if fill_lap == lap:
        while written < rows and (yield load(f"row {b * rows + written}")) == first_id + written:
            written += 1
        return 0, written
    before_lap, last = yield load(f"before {b}")
    if before_lap != lap:
        return 0, 0
    while written < last and (yield load(f"row {b * rows + written}")) != first_id + written:
        written += 1
    return written, last


# ---- the order in which rows are given out


def takes_first() -> Program:
    """The first row that a draw finds, of two blocks with one row each."""
    head = yield load("head", "blocks.head")
    for b in range(min(head, 2)):
        first, last = yield from rows_of(b, 1, capacity=2, rows=1)
        if first < last:
            return b
    return None


def fills_two_blocks() -> Program:
    yield from write_row(0, 0)
    yield from count_rows(0, 1, 1)
    yield from seal(0, 1)
    if (yield from claim(A, count=2)) == 1:
        yield from write_row(1, 1)
        yield from count_rows(1, 1, 1)


def in_order(outcome: Outcome) -> str | None:
    passed = outcome.returned["consumer"] == 1
    return "a row is given out before an older one of the same writer" if passed else None


def two_blocks() -> dict[str, object]:
    return {
        "head": 1,
        "block 0": (1, *A, OPEN),
        "block 1": sealed(0),
        "fill 0": (1, 0, 0),
        "fill 1": (0, 0, 0),
        "before 0": (0, 0),
        "before 1": (0, 0),
        "row 0": -1,
        "row 1": -1,
    }


def a_writer_and_a_consumer() -> Protocol:
    return Protocol(two_blocks(), {"writer": fills_two_blocks, "consumer": takes_first}, in_order)


def helps() -> Program:
    """A claim that finds the block taken, and moves the head for who took it."""
    word = yield load("block 1", "blocks.word")
    if word[0] == 1:
        yield cas("head", 1, 2, "blocks.head_helped")


def a_writer_a_helper_and_a_consumer() -> Protocol:
    threads = {"writer": fills_two_blocks, "helper": helps, "consumer": takes_first}
    return Protocol(two_blocks(), threads, in_order)


# ---- rows that are there


def a_row_is_there(slot: int, row_id: int) -> Program:
    return (yield load(f"row {slot}", "rows.word")) == row_id


def a_draw_of_a_row_that_was_counted() -> Protocol:
    def writer() -> Program:
        yield from write_row(0, 0)
        yield from count_rows(0, 1, 1)

    def consumer() -> Program:
        _, last = yield from rows_of(0, 1, capacity=2, rows=1)
        return last == 1 and not (yield from a_row_is_there(0, 0))

    def broken(outcome: Outcome) -> str | None:
        return "a row is taken that is not there yet" if outcome.returned["consumer"] else None

    first = {"row 0": -1, "fill 0": (1, 0, 0), "before 0": (0, 0)}
    return Protocol(first, {"writer": writer, "consumer": consumer}, broken)


def a_block_that_is_overwritten() -> Protocol:
    """Two rows of lap 1, of which lap 2 takes the first. The other one is still in the queue."""

    def writer() -> Program:
        yield from begin_lap(0, 2)
        yield from write_row(0, 2)
        yield from count_rows(0, 2, 1)

    def consumer() -> Program:
        return (yield from rows_of(0, 1, capacity=2, rows=2))

    def broken(outcome: Outcome) -> str | None:
        gone = outcome.returned["consumer"] == (0, 0)
        return "rows of the lap before are passed over" if gone else None

    first = {"row 0": 0, "row 1": 1, "fill 0": (1, 2, 2), "before 0": (0, 0)}
    return Protocol(first, {"writer": writer, "consumer": consumer}, broken)


# ---- draws that are given back: `total` is (times, draws)


def gives_back(row: int) -> Program:
    yield add(f"given back {row}", 1)
    yield change("total", lambda seen: (seen[0] + 1, seen[1] + 1), "queue.given_back")


def takes_rows(most: int) -> Program:
    got = 0
    for row in (0, 1):
        draws = yield load(f"given back {row}", "queue.row")
        while draws and got < most:
            found = yield cas(f"given back {row}", draws, draws - 1, "queue.row_taken")
            if found == draws:
                got, draws = got + 1, draws - 1
            else:
                draws = found
    return got


def takes_given_back() -> Program:
    """FifoSampler::take_given_back: takes its share off the count, then takes the draws."""
    seen = yield load("total")
    while True:
        share = min(seen[1], 2)
        if share == 0:
            return
        found = yield cas("total", seen, (seen[0], seen[1] - share), "queue.share_taken")
        if found == seen:
            break
        seen = found
    got = yield from takes_rows(share)
    if got < share and (yield load("total"))[0] != seen[0]:
        yield change("total", lambda now: (now[0], now[1] + share - got))


def counts_what_it_took() -> Program:
    """What was wrong: takes the draws, then takes them off a count that another has corrected."""
    before = yield load("total", "queue.share_taken")
    if before[1] == 0:
        return
    got = yield from takes_rows(2)
    after = before
    if got:
        seen = yield change("total", lambda now: (now[0], now[1] - got), "queue.share_taken")
        after = (seen[0], seen[1] - got)
    if got < 2 and after == (before[0], before[1] - got) and after[1]:
        yield cas("total", after, (after[0], 0), "queue.share_taken")


def counted(outcome: Outcome) -> str | None:
    last = outcome.last
    forgotten = last["total"][1] < last["given back 0"] + last["given back 1"]
    return "a draw that was given back is forgotten" if forgotten else None


def giving_and_taking(
    givers: tuple[int, ...], takers: int, total: int, row_0: int, how: Take = takes_given_back
) -> Protocol:
    first = {"given back 0": row_0, "given back 1": 0, "total": (5, total)}
    threads: dict[str, Take] = {}
    for row in givers:
        threads[f"giver_{row}"] = partial(gives_back, row)
    for i in range(takers):
        threads[f"taker_{i}"] = how
    return Protocol(first, threads, counted)


def a_draw_given_back_and_one_counted_too_many() -> Protocol:
    """The row of a draw that was given back is gone."""
    return giving_and_taking((0,), takers=1, total=1, row_0=0)


def two_draws_given_back_and_one_who_takes() -> Protocol:
    return giving_and_taking((0, 1), takers=1, total=0, row_0=0)


def a_draw_given_back_and_two_who_take() -> Protocol:
    return giving_and_taking((1,), takers=2, total=1, row_0=1)


def a_draw_given_back_and_two_who_count_afterwards() -> Protocol:
    return giving_and_taking((1,), takers=2, total=1, row_0=1, how=counts_what_it_took)


PROTOCOLS = (
    a_writer_and_a_consumer,
    a_writer_a_helper_and_a_consumer,
    a_draw_of_a_row_that_was_counted,
    a_block_that_is_overwritten,
    a_draw_given_back_and_one_counted_too_many,
    two_draws_given_back_and_one_who_takes,
    a_draw_given_back_and_two_who_take,
)
