"""The shared memory of the ring, as bytes: what layout.h declares, small enough to explore.

Every word that is one word there is one byte here, so that a compare-and-swap is one comparison.
"""

from __future__ import annotations

from dataclasses import dataclass

from model.machine import State, Words

SEALED, OPEN, REAPING = 0, 1, 2
EMPTY, WRITING, COMMITTED = 0, 1, 2
GONE = 15  # the lap of a priority word whose row is gone
MOST = 3  # the raw priority of a new row

# Places in a block. WAS is not in the segment: it remembers, for the rules, the fill at the claim.
WORD, BEFORE, TAKEN, OTHER_TAKEN, FILL, WAS, ROWS = 0, 1, 2, 3, 4, 5, 6
# Places in a row. ACKED is not in the segment: the id + 1 of an acknowledged row, 0 when its slot
# was written again since.
ROW_WORD, LEFT, RIGHT, ACKED, ROW_BYTES = 0, 1, 2, 3, 4


def block_word(lap: int, owner: int, state: int) -> int:
    return lap << 5 | owner << 2 | state


def lap_of(word: int) -> int:
    return word >> 5


def owner_of(word: int) -> int:
    return word >> 2 & 7


def fill_word(lap: int, written: int, committed: int) -> int:
    return (lap << 5 | written << 3 | committed) & 255


def lap_and_count(lap: int, count: int) -> int:
    """`before` and `taken`."""
    return lap << 4 | count


def row_word(row_id: int, state: int) -> int:
    return row_id << 2 | state


def payload(owner: int, row_id: int) -> int:
    """Half of what a writer writes: nobody else writes it, and not for another row."""
    return owner << 5 | row_id


def priority_word(raw: int, lap: int) -> int:
    return raw << 4 | lap


def weight(word: int) -> int:
    """The leaf that follows from a priority word: raw + 1, so that 0 is told from gone."""
    return 0 if word & 15 in (0, GONE) else (word >> 4) + 1


@dataclass(frozen=True)
class Shape:
    blocks: int
    rows: int  # in a block
    prioritized: bool = False
    full: bool = True  # lap 1 is there already, one draw of each block was given out; else empty

    @property
    def capacity(self) -> int:
        return self.blocks * self.rows


class Ring:
    """Where everything is."""

    def __init__(self, shape: Shape, owners: list[str], words: Words) -> None:
        self.shape = shape
        self.owners = owners
        full = int(shape.full)
        show_block, show_row = self.show_block, self.show_row
        self.head = words.add("head", first=full * shape.blocks)
        self.blocks = self.head + 1
        for b in range(shape.blocks):
            words.add(f"block {b}", show_block, block_word(full, 0, SEALED))
            words.add(f"before {b}", show_count)
            words.add(f"taken {b}.0", show_count, lap_and_count(full, full))
            words.add(f"taken {b}.1", show_count)
            words.add(f"fill {b}", show_fill, fill_word(full, full * shape.rows, full * shape.rows))
            words.add(f"(fill {b} at the claim)", show_fill)
            for row in range(shape.rows):
                slot = b * shape.rows + row
                words.add(f"row {slot}", show_row, row_word(slot, COMMITTED) if full else 0)
                words.add(f"left {slot}", first=payload(0, slot) if full else 0)
                words.add(f"right {slot}", first=payload(0, slot) if full else 0)
                words.add(f"(acknowledged {slot})", first=slot + 1 if full else 0)
        self.block_bytes = ROWS + shape.rows * ROW_BYTES
        self.end_of_blocks = len(words.names)
        self.priorities = self.leaves = self.nodes = self.root = 0
        if shape.prioritized:
            raw = weight(priority_word(0, 1)) if full else 0
            self.priorities = len(words.names)
            for slot in range(shape.capacity):
                words.add(f"priority {slot}", show_priority, priority_word(0, full))
            self.leaves = len(words.names)
            for slot in range(shape.capacity):
                words.add(f"leaf {slot}", first=raw)
            self.nodes = len(words.names)  # one over each block
            for b in range(shape.blocks):
                words.add(f"node {b}", first=raw * shape.rows)
            self.root = words.add("root", first=raw * shape.capacity)

    def block(self, b: int) -> int:
        return self.blocks + b * self.block_bytes

    def row(self, slot: int) -> int:
        b, row = divmod(slot, self.shape.rows)
        return self.block(b) + ROWS + row * ROW_BYTES

    def children(self, node: int) -> range:
        if node == self.root:
            return range(self.nodes, self.root)
        first = self.leaves + (node - self.nodes) * self.shape.rows
        return range(first, first + self.shape.rows)

    def row_words(self, memory: State | bytearray, b: int) -> list[int]:
        first = self.block(b) + ROWS
        return list(memory[first : first + self.shape.rows * ROW_BYTES : ROW_BYTES])

    def count(self, memory: State | bytearray, b: int) -> int:
        """The fill that follows from a block's rows."""
        lap = lap_of(memory[self.block(b)])
        first = (lap - 1) * self.shape.capacity + b * self.shape.rows
        written = committed = 0
        for row, word in enumerate(self.row_words(memory, b)):
            if word != 0 and word >> 2 == first + row:  # a row dropped in this lap took its place
                written = row + 1
            committed += word & 3 == COMMITTED
        return fill_word(lap, written, committed)

    def show_block(self, word: int) -> str:
        state = ("SEALED", "OPEN", "REAPING")[word & 3]
        owner = f" {self.owners[owner_of(word)]}" if word & 3 else ""
        return f"{{lap {lap_of(word)}{owner} {state}}}"

    def show_row(self, word: int) -> str:
        return f"{{id {word >> 2} {('EMPTY', 'WRITING', 'COMMITTED')[word & 3]}}}"


def show_count(word: int) -> str:
    return f"{{lap {word >> 4}, {word & 15}}}"


def show_fill(word: int) -> str:
    return f"{{lap {word >> 5}, {word >> 3 & 3} written, {word & 7} committed}}"


def show_priority(word: int) -> str:
    return "gone" if word & 15 == GONE else f"{{raw {word >> 4}, lap {word & 15}}}"
