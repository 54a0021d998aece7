"""The ring as lists and dicts: the oracle that the real buffer is compared with.

A row is a dict of numbers and lists, nested where the schema is. Rows live in slots, slot = id %
capacity, and the newest `capacity` of them are there. The buffer chooses the ids; here stands which
ids it may choose: each is one more than the last, except that a clear() may skip some.
"""

from __future__ import annotations

from typing import Any

Row = dict[str, Any]


class RowGoneError(Exception):
    """An id names a row that is not there."""


class ReferenceRing:
    def __init__(self, capacity: int) -> None:
        self.capacity = capacity
        self.slots: list[tuple[int, Row] | None] = [None] * capacity
        self.next_id = 0
        self.just_cleared = False

    # ---- writing

    def add(self, row_id: int, row: Row) -> None:
        if row_id < self.next_id or (row_id > self.next_id and not self.just_cleared):
            raise AssertionError(f"row {row_id} cannot follow row {self.next_id - 1}")
        self.slots[row_id % self.capacity] = (row_id, row)
        self.next_id = row_id + 1
        self.just_cleared = False

    def add_batch(self, row_ids: list[int], rows: list[Row]) -> None:
        assert len(row_ids) == len(rows), f"{len(row_ids)} ids for {len(rows)} rows"
        for row_id, row in zip(row_ids, rows, strict=True):
            self.add(row_id, row)

    def clear(self) -> None:
        self.slots = [None] * self.capacity
        self.just_cleared = True

    # ---- reading

    def __len__(self) -> int:
        return sum(slot is not None for slot in self.slots)

    @property
    def is_full(self) -> bool:
        return len(self) == self.capacity

    def ids(self) -> list[int]:
        """Of all rows, oldest first."""
        return sorted(slot[0] for slot in self.slots if slot is not None)

    def row(self, row_id: int) -> Row:
        slot = self.slots[row_id % self.capacity] if row_id >= 0 else None
        if slot is None or slot[0] != row_id:
            raise RowGoneError(row_id)
        return slot[1]

    def get(self, row_ids: list[int]) -> Row:
        return stack([self.row(row_id) for row_id in row_ids], row_ids)

    def latest(self, n: int) -> Row:
        return self.get(self.ids()[-n:])

    def is_sample(self, batch: Row) -> bool:
        """Whether every row of a batch is here, whole, under the id the batch gives it."""
        try:
            return self.get(batch["indices"]) == batch
        except RowGoneError:
            return False


def stack(rows: list[Row], row_ids: list[int]) -> Row:
    """The batch that rows make: a list for each column, and the ids."""
    return {**columns_of(rows), "indices": list(row_ids)}


def columns_of(rows: list[Row]) -> Row:
    columns: Row = {}
    for name, example in rows[0].items() if rows else ():
        values = [row[name] for row in rows]
        columns[name] = columns_of(values) if isinstance(example, dict) else values
    return columns
