"""A checkpoint beside writers: the steps of checkpoint_copy.cc and checkpoint_write.cc on blocks.

A row that is being written, or changes under the copy, is saved as empty: that is what the copier
does when it has run out of patience. The payload is left out; `Reading` is about torn rows.
"""

from __future__ import annotations

from collections.abc import Callable

from model.machine import DONE, Memory
from model.ring_actor import AHEAD, HALF, NEWER, Actor, Shared
from model.ring_config import Fault, Saver
from model.ring_memory import (
    BEFORE,
    FILL,
    OTHER_TAKEN,
    TAKEN,
    WAS,
    WRITING,
    lap_and_count,
    lap_of,
)


class Saving(Actor):
    def __init__(self, spec: Saver, shared: Shared) -> None:
        super().__init__(spec, shared)
        self.head = self.register("head")  # that is saved
        self.claims = self.register("claims")  # the head that the saved blocks need
        self.left = self.register("left")  # blocks to come
        self.block = self.register("block")
        self.newest = self.register("newest")  # lap of the rows copied of the block
        self.lap = self.register("lap")
        self.fill = self.register("fill")
        self.before = self.register("before")
        self.taken = self.register("taken")
        self.other = self.register("other taken")
        self.was = self.register("(was)")  # for the rules: the fill at the claim of this lap

    def build(self) -> None:
        ring, block = self.ring, self.block

        @self.step("load head")
        def _(m: Memory) -> None:
            m[self.head] = m[ring.head]
            m[block] = m[ring.head] % ring.shape.blocks
            m[self.left] = ring.shape.blocks

        begin = self.here()
        parts = [self.copy_rows, self.describe]
        if Fault.SAVE_THE_BLOCK_FIRST in self.faults:
            parts.reverse()
        for part in parts:
            part()

        @self.step("load head again: the head is saved, or there are more blocks")
        def _(m: Memory) -> int:
            self.check(m)
            claims = (m[self.lap] - 1) * ring.shape.blocks + m[block] + 1
            m[self.claims] = max(m[self.claims], claims if m[self.lap] else 0)
            m[self.newest : self.end] = bytes(self.end - self.newest)
            m[block] = (m[block] + 1) % ring.shape.blocks
            m[self.left] -= 1
            return begin.at if m[self.left] else self.finish(m)

    def finish(self, m: Memory) -> int:
        head = m[self.ring.head]
        if Fault.SAVE_THE_HEAD_ALONE not in self.faults or head != m[self.head]:
            m[self.head] = max(m[self.head], m[self.claims])
        # Of a head that is further on the copier says that the ring is damaged.
        if m[self.claims] > m[self.head] or m[self.head] > head + 1:
            m[self.shared.wrong] |= AHEAD
        return self.end_with(m, DONE)

    def base(self, m: Memory) -> int:
        return self.ring.block(m[self.block])

    def copy_rows(self) -> None:
        ring, seen = self.ring, self.seen
        for row in range(ring.shape.rows):

            def place(m: Memory, row: int = row) -> int:
                return ring.row(m[self.block] * ring.shape.rows + row)

            @self.step("load a row word")
            def _(m: Memory, place: Callable[[Memory], int] = place) -> None:
                m[seen] = m[place(m)]

            @self.step("load the row word again")
            def _(m: Memory, place: Callable[[Memory], int] = place) -> None:
                if m[seen] & 3 == WRITING or m[place(m)] != m[seen]:
                    m[seen] = m[place(m)]  # saved as empty
                if m[seen]:
                    m[self.newest] = max(m[self.newest], (m[seen] >> 2) // ring.shape.capacity + 1)
                m[seen] = 0

    def describe(self) -> None:
        """What a block says of its laps; again when it gets another one meanwhile."""
        again = self.here()

        @self.step("load block word")
        def _(m: Memory) -> None:
            m[self.lap] = lap_of(m[self.base(m)])

        for register, word, name in (
            (self.fill, FILL, "fill"),
            (self.before, BEFORE, "before"),
            (self.taken, TAKEN, "taken 0"),
            (self.other, OTHER_TAKEN, "taken 1"),
        ):

            @self.step(f"load {name}")
            def _(m: Memory, register: int = register, word: int = word) -> None:
                m[register] = m[self.base(m) + word]

        @self.step("load block word again")
        def _(m: Memory) -> int | None:
            once = Fault.SAVE_AT_ONE_LOOK in self.faults
            if lap_of(m[self.base(m)]) != m[self.lap] and not once:
                return again.at
            m[self.was] = m[self.base(m) + WAS]
            return None

        @self.step("load fill again")
        def _(m: Memory) -> int | None:
            if m[self.base(m) + FILL] >> 5 != m[self.fill] >> 5:
                return again.at
            self.complete(m)
            return None

    def complete(self, m: Memory) -> None:
        """Does what the claim of this lap has not done yet, on the copy."""
        lap, fill = m[self.lap], m[self.fill]
        if fill >> 5 == lap or Fault.SAVE_HALF_A_CLAIM in self.faults:
            return
        m[self.before] = lap_and_count(fill >> 5, fill >> 3 & 3)
        if lap not in (m[self.taken] >> 4, m[self.other] >> 4):
            older = self.taken if m[self.taken] < m[self.other] else self.other
            m[older] = lap_and_count(lap, 0)

    def check(self, m: Memory) -> None:
        lap, full = m[self.lap], int(self.ring.shape.full)
        if m[self.newest] > lap:
            m[self.shared.wrong] |= NEWER
        if lap == full:
            return  # never claimed in this run
        last, written = m[self.was] >> 5, m[self.was] >> 3 & 3
        taken = {lap_and_count(lap, 0), lap_and_count(last, int(last == 1 and full))}
        saved = {m[self.taken], m[self.other]}
        if m[self.before] != lap_and_count(last, written) or saved != taken:
            m[self.shared.wrong] |= HALF
