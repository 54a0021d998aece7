"""The buffer does what the reference ring does, whatever is done to it in whatever order."""

from __future__ import annotations

import contextlib
from typing import Any

import numpy as np
import pytest
from hypothesis import HealthCheck, settings
from hypothesis import strategies as st
from hypothesis.stateful import (
    RuleBasedStateMachine,
    initialize,
    invariant,
    precondition,
    rule,
)

from model.reference import ReferenceRing, RowGoneError
from model.values import forms, plain, row_of, rows_of, schemas, written
from replay_buffer import BufferConfig, Column, NotEnoughRows, ReplayBuffer, RowGone, Schema
from replay_buffer.errors import SchemaMismatch


class RingMachine(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.k = 0  # rows made so far: no two rows are alike

    @initialize(schema=schemas, capacity=st.integers(1, 20), data=st.data())
    def create(self, schema: Schema, capacity: int, data: Any) -> None:
        block_rows = data.draw(st.none() | st.integers(1, capacity), label="block_rows")
        config = BufferConfig(capacity, block_rows=block_rows)
        self.buffer = ReplayBuffer(config, schema=schema, seed=0)
        self.ring = ReferenceRing(capacity)
        self.fields = schema.fields
        self.out: dict[str, Any] | None = None

    def teardown(self) -> None:
        with contextlib.suppress(AttributeError):  # create() itself failed
            self.buffer.close()

    def next_rows(self, n: int) -> tuple[list[dict[str, Any]], list[int]]:
        ks = list(range(self.k, self.k + n))
        self.k += n
        return [plain(row_of(self.fields, k)) for k in ks], ks

    # ---- writing

    @rule(form=forms)
    def add_by_position(self, form: str) -> None:
        (expected,), (k,) = self.next_rows(1)
        row = written(row_of(self.fields, k), form)
        self.ring.add(self.buffer.add(*row.values()), expected)

    @rule(form=forms)
    def add_by_name(self, form: str) -> None:
        (expected,), (k,) = self.next_rows(1)
        row = written(row_of(self.fields, k), form)
        row = dict(reversed(row.items()))
        self.ring.add(self.buffer.add(**row), expected)

    @rule(form=forms, n=st.integers(1, 45), by_name=st.booleans())
    def add_batch(self, form: str, n: int, by_name: bool) -> None:
        expected, ks = self.next_rows(n)
        rows = written(rows_of(self.fields, ks), form)
        ids = self.buffer.add_batch(**rows) if by_name else self.buffer.add_batch(*rows.values())
        assert ids.dtype == np.int64
        self.ring.add_batch(ids.tolist(), expected)

    @rule()
    def add_no_rows(self) -> None:
        assert self.buffer.add_batch(*rows_of(self.fields, []).values()).tolist() == []

    @rule(n=st.integers(1, 5), data=st.data())
    def add_what_does_not_fit(self, n: int, data: Any) -> None:
        rows = rows_of(self.fields, list(range(n)))
        name = data.draw(st.sampled_from(list(rows)), label="column")
        rows[name] = "nonsense"
        with pytest.raises(SchemaMismatch, match=name):
            self.buffer.add_batch(**rows)

    @rule()
    def clear(self) -> None:
        self.buffer.clear()
        self.ring.clear()

    # ---- reading

    @rule(n=st.integers(1, 45))
    def latest(self, n: int) -> None:
        batch = self.buffer.latest(n)
        assert batch["indices"].tolist() == self.ring.ids()[-n:]
        if len(self.ring):
            assert plain(batch) == self.ring.latest(n)

    @rule(data=st.data())
    def get(self, data: Any) -> None:
        near = st.integers(self.ring.next_id - self.ring.capacity - 2, self.ring.next_id + 1)
        live = self.ring.ids()
        one = near | st.sampled_from(live) if live else near
        ids = data.draw(st.lists(one, min_size=1, max_size=6), label="ids")
        try:
            expected = self.ring.get(ids)
        except RowGoneError:
            with pytest.raises(RowGone):
                self.buffer.get(ids)
        else:
            assert plain(self.buffer.get(ids)) == expected

    @precondition(lambda self: len(self.ring) > 0)
    @rule(n=st.integers(1, 40))
    def sample(self, n: int) -> None:
        batch = self.buffer.sample(n)
        assert len(batch["indices"]) == n
        assert self.ring.is_sample(plain(batch))
        self.out = batch

    @precondition(lambda self: len(self.ring) > 0 and self.out is not None)
    @rule()
    def sample_into_the_last_batch(self) -> None:
        assert self.out is not None
        batch = self.buffer.sample(len(self.out["indices"]), out=self.out)
        assert batch is self.out
        assert self.ring.is_sample(plain(batch))

    @precondition(lambda self: len(self.ring) == 0)
    @rule(n=st.integers(1, 5))
    def sample_nothing(self, n: int) -> None:
        with pytest.raises(NotEnoughRows):
            self.buffer.sample(n)

    # ---- always

    @invariant()
    def counts_agree(self) -> None:
        if not hasattr(self, "buffer"):
            return
        assert len(self.buffer) == self.buffer.size == len(self.ring)
        assert self.buffer.capacity == self.ring.capacity
        assert self.buffer.is_full == self.ring.is_full


TestRing = pytest.mark.timeout(900)(RingMachine.TestCase)  # room to shrink what failed
TestRing.settings = settings(
    max_examples=60,
    stateful_step_count=40,
    deadline=None,
    derandomize=True,
    suppress_health_check=[HealthCheck.too_slow],
)


# ---- the same, exhaustively, for small rings of one column

SCHEMA = Schema({"k": Column((), "int64"), "pair": Column((2,), "float32")})


def filled(capacity: int, n: int, block_rows: int | None = None) -> ReplayBuffer:
    config = BufferConfig(capacity, block_rows=block_rows)
    buffer = ReplayBuffer(config, schema=SCHEMA, seed=0)
    for k in range(n):
        assert buffer.add(k, [k, -k]) == k
    return buffer


def assert_holds(buffer: ReplayBuffer, ks: list[int]) -> None:
    """Exactly the rows `ks`, oldest first, by every way of reading."""
    assert len(buffer) == len(ks)
    newest = buffer.latest(buffer.capacity + 1)
    assert newest["k"].tolist() == ks
    assert newest["pair"].tolist() == [[k, -k] for k in ks]
    if ks:
        assert buffer.get(newest["indices"])["k"].tolist() == ks
        assert set(buffer.sample(40 * len(ks))["k"].tolist()) == set(ks)


@pytest.mark.parametrize("capacity", range(1, 14))
def test_every_number_of_rows_wraps_right_in_every_capacity(capacity: int) -> None:
    for n in range(3 * capacity + 2):
        assert_holds(filled(capacity, n), list(range(n))[-capacity:])


@pytest.mark.parametrize("capacity", range(1, 9))
def test_a_batch_wraps_right_from_every_offset(capacity: int) -> None:
    for before in range(2 * capacity):
        for n in range(1, 2 * capacity + 2):
            buffer = filled(capacity, before)
            ks = np.arange(before, before + n)
            ids = buffer.add_batch(ks, np.stack([ks, -ks], 1).astype(np.float32))
            assert ids.tolist() == ks.tolist()
            assert_holds(buffer, list(range(before + n))[-capacity:])


@pytest.mark.parametrize("block_rows", [1, 2, 3, 4, 5, 7])
def test_blocks_of_any_size_hold_the_same_rows(block_rows: int) -> None:
    for n in range(23):
        assert_holds(filled(7, n, block_rows), list(range(n))[-7:])


@pytest.mark.parametrize("capacity", range(1, 8))
def test_clear_at_every_offset_leaves_an_empty_ring_that_fills_again(capacity: int) -> None:
    for before in range(2 * capacity + 1):
        buffer = filled(capacity, before)
        buffer.clear()
        assert_holds(buffer, [])
        for k in range(capacity + 2):
            assert buffer.add(100 + k, [100 + k, -100 - k]) >= before
            assert_holds(buffer, list(range(100, 101 + k))[-capacity:])


@pytest.mark.parametrize(("capacity", "block_rows"), [(1, None), (2, 1), (3, 2), (3, 3)])
def test_laps_beyond_sixteen_bits_are_told_apart(capacity: int, block_rows: int | None) -> None:
    buffer = ReplayBuffer(BufferConfig(capacity, block_rows=block_rows), schema=SCHEMA, seed=0)
    added = 0
    for n in (65_535 * capacity, 1, 1, 1, 65_536 * capacity - 2, 1, 1, 1, 131_072 * capacity + 1):
        ks = np.arange(added, added + n)
        buffer.add_batch(ks, np.stack([ks, -ks], 1).astype(np.float32))
        added += n
        assert_holds(buffer, list(range(added - capacity, added)))
