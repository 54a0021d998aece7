"""Any number of threads add and sample at once.

Rows carry checksums of themselves: a row that was mixed from two, or read before it was written,
does not add up. Short rows are copied with the GIL held by their writer while large batches are
drawn without it; long rows are copied without it on both sides.
"""

from __future__ import annotations

import functools
import itertools
import threading
import time
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    NotEnoughRows,
    ReplayBuffer,
    RowGone,
    Schema,
    SharedCircularBuffer,
)
from replay_buffer.testing.crowd import together

SHORT, LONG, BOTH = 4, 40_000, 2_000  # numbers in each of the two vectors of a row
MASK = np.uint32(0xDEADBEEF)


def checked_schema(width: int) -> Schema:
    return Schema(
        {
            "k": Column((), "int64"),
            "front": Column((width,), "uint32"),
            "back": Column((width,), "uint32"),
            "check": Column((), "uint64"),
        }
    )


def checked_row(k: int, width: int) -> tuple[Any, ...]:
    """Row k; numbers start at 1, so that memory never written does not look like a row."""
    front = np.full(width, k, np.uint32)
    return k, front, front ^ MASK, np.uint64(k * 0x9E3779B9)


def assert_whole(batch: dict[str, Any]) -> None:
    k = batch["k"]
    assert (k > 0).all(), "a row was read before it was written"
    assert (batch["front"] == k[:, None].astype(np.uint32)).all(), "a torn row"
    assert (batch["back"] == k[:, None].astype(np.uint32) ^ MASK).all(), "a torn row"
    assert (batch["check"] == k.astype(np.uint64) * np.uint64(0x9E3779B9)).all(), "a torn row"


class Race:
    """Writers that end by themselves, and readers that read until all writers have ended."""

    def __init__(self, writers: int) -> None:
        self.left = writers
        self.lock = threading.Lock()

    def writer(self, write: Callable[[], None]) -> Callable[[], None]:
        def job() -> None:
            try:
                write()
            finally:
                with self.lock:
                    self.left -= 1

        return job

    def reader(self, read: Callable[[], None]) -> Callable[[], int]:
        def job() -> int:
            times = 0
            while self.left > 0 or times == 0:
                read()
                times += 1
            return times

        return job


def add_rows(buffer: ReplayBuffer, first: int, n: int, width: int) -> None:
    for k in range(first, first + n):
        buffer.add(*checked_row(k, width))


@pytest.mark.parametrize(
    ("width", "rows", "batch_size"),
    [(SHORT, 8_000, 2_000), (BOTH, 3_000, 64), (LONG, 600, 3)],
    ids=["short rows", "medium rows", "long rows"],
)
@pytest.mark.parametrize("capacity", [1, 3, 64])
def test_rule_23_no_row_is_torn_under_concurrent_add_and_sample(
    capacity: int, width: int, rows: int, batch_size: int
) -> None:
    buffer = ReplayBuffer(BufferConfig(capacity), schema=checked_schema(width), seed=0)
    buffer.add(*checked_row(1, width))
    race = Race(writers=2)
    together(
        race.writer(lambda: add_rows(buffer, 2, rows, width)),
        race.writer(lambda: add_rows(buffer, 10**6, rows, width)),
        race.reader(lambda: assert_whole(buffer.sample(batch_size))),
        race.reader(lambda: assert_whole(buffer.sample(batch_size))),
    )
    assert len(buffer) == capacity
    assert buffer.stats()["rows_added"] == 2 * rows + 1
    assert_whole(buffer.latest(capacity))


def test_rule_23_no_row_is_torn_when_row_words_lie_apart_from_their_records() -> None:
    """130 bytes: with the word inside, padding would be more than a tenth of the row."""
    buffer = ReplayBuffer(BufferConfig(5), schema={"x": Column((65,), "uint16")}, seed=0)
    buffer.add(np.full(65, 1, np.uint16))

    def write() -> None:
        for k in range(2, 12_000):
            buffer.add(np.full(65, k, np.uint16))

    def read() -> None:
        x = buffer.sample(2_000)["x"]
        assert (x[:, :1] > 0).all(), "a row was read before it was written"
        assert (x == x[:, :1]).all(), "a torn row"

    race = Race(writers=1)
    together(race.writer(write), race.reader(read), race.reader(read))
    assert buffer.latest(1)["x"].tolist() == [[11_999] * 65]


@pytest.mark.parametrize("width", [SHORT, LONG])
def test_rule_23_no_row_that_is_intact_was_torn_while_it_was_peeked_at(width: int) -> None:
    buffer = ReplayBuffer(BufferConfig(40, block_rows=4), schema=checked_schema(width), seed=0)
    add_rows(buffer, 1, 40, width)
    seen = {True: 0, False: 0}

    def read() -> None:
        rows = buffer.peek_latest(20)
        batch = {name: np.stack(rows[name]) for name in rows}
        intact = rows.intact()
        seen[intact] += 1
        if intact:
            assert_whole(batch)

    def write() -> None:
        first = 41
        while min(seen.values()) < 20:
            add_rows(buffer, first, 50, width)
            first += 50
            time.sleep(0.001)

    race = Race(writers=1)
    together(race.writer(write), race.reader(read), race.reader(read))


def test_a_buffer_that_is_closed_while_threads_peek_leaves_them_what_they_hold() -> None:
    for _ in range(20):
        buffer = ReplayBuffer(BufferConfig(40), schema=checked_schema(BOTH), seed=0)
        add_rows(buffer, 1, 40, BOTH)
        begun = threading.Semaphore(0)

        def read(buffer: ReplayBuffer = buffer, begun: threading.Semaphore = begun) -> int:
            for times in itertools.count():
                try:
                    rows = buffer.peek_latest(40)
                except Closed:
                    return times
                begun.release()
                assert_whole({name: np.concatenate(rows[name].runs) for name in rows})
                assert rows.intact()
            raise AssertionError

        def close(buffer: ReplayBuffer = buffer, begun: threading.Semaphore = begun) -> None:
            begun.acquire()
            buffer.close()

        assert sum(filter(None, together(read, read, close))) > 0


def test_rule_23_no_row_is_torn_when_batches_are_added() -> None:
    width = BOTH
    columns = zip(*(checked_row(k, width) for k in range(1, 41)), strict=True)
    rows = [np.stack(column) for column in columns]
    buffer = ReplayBuffer(BufferConfig(53), schema=checked_schema(width), seed=0)
    buffer.add_batch(*rows)

    def write() -> None:
        for _ in range(150):
            buffer.add_batch(*rows)

    race = Race(writers=2)
    out = buffer.sample(40)
    together(
        race.writer(write),
        race.writer(write),
        race.reader(lambda: assert_whole(buffer.sample(40))),
        race.reader(lambda: assert_whole(buffer.sample(40, out=out))),
    )
    assert len(buffer) == 53


@pytest.mark.parametrize(("width", "trials"), [(SHORT, 300), (LONG, 40)])
def test_rule_21_a_row_that_is_not_written_yet_is_never_drawn(width: int, trials: int) -> None:
    for _ in range(trials):
        buffer = ReplayBuffer(BufferConfig(8), schema=checked_schema(width), seed=0)

        def read(buffer: ReplayBuffer = buffer) -> None:
            with suppress(NotEnoughRows):
                assert_whole(buffer.sample(16))
            assert_whole(buffer.latest(8))

        race = Race(writers=1)
        together(
            race.writer(functools.partial(add_rows, buffer, 1, 6, width)),
            race.reader(read),
        )
        assert buffer.latest(8)["k"].tolist() == [1, 2, 3, 4, 5, 6]


def test_every_row_added_by_a_thread_is_there_once() -> None:
    threads, each = 4, 3_000
    buffer = ReplayBuffer(BufferConfig(threads * each), schema=checked_schema(SHORT))

    def write(which: int) -> list[int]:
        first = which * each + 1
        return [buffer.add(*checked_row(k, SHORT)) for k in range(first, first + each)]

    ids = together(*(functools.partial(write, which) for which in range(threads)))
    assert sorted(itertools.chain(*ids)) == list(range(threads * each))
    for which, own in enumerate(ids):
        assert own == sorted(own), "rows of one thread changed their order"
        assert buffer.get(own)["k"].tolist() == list(
            range(which * each + 1, (which + 1) * each + 1)
        )
    assert buffer.is_full


def test_rows_of_one_batch_stay_together() -> None:
    buffer = ReplayBuffer(BufferConfig(10_000), schema={"k": Column((), "int64")})

    def write(which: int) -> list[list[int]]:
        return [buffer.add_batch(np.arange(5) + 10 * which).tolist() for _ in range(300)]

    for batches in together(*(functools.partial(write, which) for which in range(4))):
        for ids in batches:
            assert ids == list(range(ids[0], ids[0] + 5))
    assert len(buffer) == 6_000


@pytest.mark.parametrize("trial", range(40))
def test_first_rows_from_several_threads_are_all_kept(trial: int) -> None:
    buffer = ReplayBuffer(BufferConfig(64), obs_shape=(2,), action_dim=4)
    obs = np.zeros(2, np.float32)
    ids = together(*(lambda k=k: buffer.add(obs, k, 0.0, obs, False) for k in range(4)))
    assert sorted(ids) == [0, 1, 2, 3]
    assert sorted(buffer.latest(64)["action"].tolist()) == [0, 1, 2, 3]


def test_first_rows_that_disagree_are_refused_whoever_is_later() -> None:
    for _ in range(50):
        buffer = ReplayBuffer(BufferConfig(64))

        def write(width: int, buffer: ReplayBuffer = buffer) -> bool:
            try:
                buffer.add(x=np.zeros(width, np.float32))
            except ValueError:
                return False
            return True

        stored = together(*(functools.partial(write, width) for width in (2, 3, 4)))
        assert sorted(stored) == [False, False, True]
        assert len(buffer) == 1


def test_latest_and_get_give_whole_rows_while_others_write() -> None:
    buffer = ReplayBuffer(BufferConfig(16), schema=checked_schema(BOTH), seed=0)
    add_rows(buffer, 1, 16, BOTH)

    def read() -> None:
        batch = buffer.latest(9)
        assert_whole(batch)
        assert len(batch["k"]) == 9
        assert (np.diff(batch["indices"]) > 0).all()
        with suppress(RowGone):
            assert_whole(buffer.get(batch["indices"]))

    race = Race(writers=2)
    together(
        race.writer(lambda: add_rows(buffer, 100, 3_000, BOTH)),
        race.writer(lambda: add_rows(buffer, 10_000, 3_000, BOTH)),
        race.reader(read),
        race.reader(read),
    )


def test_clear_while_others_add_and_sample() -> None:
    buffer = ReplayBuffer(BufferConfig(16), schema=checked_schema(BOTH), seed=0)

    def read() -> None:
        with suppress(NotEnoughRows):
            assert_whole(buffer.sample(32))
        assert 0 <= len(buffer) <= 16

    race = Race(writers=1)
    together(
        race.writer(lambda: add_rows(buffer, 1, 3_000, BOTH)),
        race.reader(buffer.clear),
        race.reader(read),
        race.reader(read),
    )
    buffer.clear()
    assert len(buffer) == 0
    add_rows(buffer, 1, 40, BOTH)
    assert buffer.latest(99)["k"].tolist() == list(range(25, 41))


@pytest.mark.parametrize("width", [SHORT, LONG])
def test_close_while_others_work_ends_them_with_closed(width: int) -> None:
    for _ in range(20):
        buffer = ReplayBuffer(BufferConfig(16), schema=checked_schema(width), seed=0)
        buffer.add(*checked_row(1, width))

        def until_closed(call: Callable[[], Any]) -> None:
            try:
                while True:
                    call()
            except Closed:
                return

        calls: list[Callable[[], Any]] = [
            functools.partial(add_rows, buffer, 2, 3, width),
            functools.partial(buffer.sample, 32),
            functools.partial(buffer.latest, 4),
        ]
        jobs = [functools.partial(until_closed, call) for call in calls]
        together(*jobs, lambda buffer=buffer: (buffer.sample(64), buffer.close()))


def test_arrays_taken_out_of_a_batch_while_it_is_filled_stay_alive() -> None:
    buffer = ReplayBuffer(BufferConfig(8), schema={"x": Column((1_000_000,), "uint8")}, seed=0)
    buffer.add(np.full(1_000_000, 7, np.uint8))
    out: dict[str, Any] = {}

    def fill() -> None:
        for _ in range(30):
            out.update(x=np.empty((8, 1_000_000), np.uint8), indices=np.empty(8, np.int64))
            with suppress(ValueError):  # taken out before the call looked
                buffer.sample(8, out=out)

    def take() -> None:
        out.clear()

    race = Race(writers=1)
    together(race.writer(fill), race.reader(take))


def test_the_circular_buffer_can_be_read_while_it_is_written() -> None:
    circular = SharedCircularBuffer(4, 2)
    circular.push([1, 1], 1, 1.0, [1, 1], True)

    def write() -> None:
        for k in range(2, 6_000):
            circular.push([k, k], k, float(k), [k, k], True)

    def read() -> None:
        for batch in (circular.sample(8), circular.latest(3)):
            for state, action, reward in zip(
                batch["states"], batch["actions"], batch["rewards"], strict=True
            ):
                assert state == [action, action] == [reward, reward]
                assert action > 0

    race = Race(writers=1)
    together(race.writer(write), race.reader(read))
