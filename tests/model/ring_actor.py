"""What processes of the ring have in common: refreshing sums, beginning a lap, reaping, mending.

Steps of blocks.cc, recovery.cc, priorities.cc and tree.cc, in the same order.

A word that only the holder of a block may change is loaded in the same step as it is stored: no
other step could come between to any effect, and the rules check that nobody else does change it.

The version of a tree node is not counted: `link` says whether the node is still the one that was
loaded. That is what a version without end would say.
"""

from __future__ import annotations

from collections.abc import Callable

from model.machine import DEAD, Label, Memory, Program, Words
from model.ring_config import Config, Fault, Process
from model.ring_memory import (
    BEFORE,
    COMMITTED,
    EMPTY,
    FILL,
    MOST,
    OTHER_TAKEN,
    REAPING,
    SEALED,
    TAKEN,
    WRITING,
    Ring,
    block_word,
    fill_word,
    lap_and_count,
    lap_of,
    owner_of,
    priority_word,
    row_word,
    weight,
)

# What the word `wrong` says: bits.
TORN, OLDER, BUSY, AHEAD, HALF, NEWER = 1, 2, 4, 8, 16, 32

Then = Callable[[Memory], int]  # says where to go on, as the last thing of a step


class Shared:
    """What all processes share. The last actor is the janitor."""

    def __init__(self, config: Config, specs: tuple[Process, ...]) -> None:
        self.config = config
        self.words = Words()
        self.ring = Ring(config.shape, ["nobody", *(spec.name for spec in specs)], self.words)
        self.wrong = self.words.add("(wrong)")
        self.activities = len(self.words.names)  # one for each actor
        for spec in specs:
            self.words.add(f"activity of {spec.name}")
        self.actors: list[Actor] = []


class Actor(Program):
    """A process. Its steps are named by what they do to shared memory."""

    def __init__(self, spec: Process, shared: Shared) -> None:
        super().__init__(spec.name, shared.words)
        self.spec = spec
        self.shared = shared
        self.config = shared.config
        self.ring = shared.ring
        self.faults = shared.config.faults
        self.activity = shared.activities + len(shared.actors)
        shared.actors.append(self)
        self.me = len(shared.actors)  # in block words; 0 is nobody
        self.hold = self.register("holds")  # a block, + 1
        self.seen = self.sequence = self.register("seen")  # what was loaded
        prioritized = self.ring.shape.prioritized
        self.link = self.register("link") if prioritized else 0  # a node, + 1
        self.sum = self.register("sum") if prioritized else 0

    def build(self) -> None:
        """Adds the steps. REQUIRES: all actors are there."""
        raise NotImplementedError

    # ---- the tree

    def refresh(self, node: int, then: Then | None = None) -> None:
        link, total, seen, mark = self.link, self.sum, self.seen, node - self.ring.nodes + 1
        name = self.words.names[node]
        others = [actor.link for actor in self.shared.actors if actor is not self]
        stores = Fault.REFRESH_STORES in self.faults
        compares = Fault.REFRESH_COMPARES_VALUES in self.faults
        skips = Fault.REFRESH_SKIPS_EQUAL in self.faults
        done = Label()

        def look(m: Memory) -> None:
            m[link] = mark
            if compares or skips:
                m[seen] = m[node]

        self.step(f"load {name}")(look)
        again = self.here()
        for child in self.ring.children(node):

            @self.step(f"load {self.words.names[child]}")
            def _(m: Memory, child: int = child) -> None:
                m[total] += m[child]

        @self.step(f"CAS {name}")
        def _(m: Memory) -> int:
            value, m[total] = m[total], 0
            if not (skips and value == m[seen]):
                mine = m[node] == m[seen] if compares else m[link] == mark
                if not (mine or stores):
                    look(m)
                    return again.at
                m[node] = value
                for other in others:
                    if m[other] == mark:
                        m[other] = 0
            m[link] = m[seen] = 0
            return then(m) if then else done.at

        self.place(done)

    def refresh_block(self, b: int, then: Then | None = None) -> None:
        self.refresh(self.ring.nodes + b)
        self.refresh(self.ring.root, then)

    def refresh_leaf(self, slot: int, then: Then | None = None) -> None:
        seen, word, leaf = self.seen, self.ring.priorities + slot, self.ring.leaves + slot
        once = Fault.LEAF_NOT_READ_AGAIN in self.faults

        @self.step(f"load priority {slot}")
        def _(m: Memory) -> None:
            m[seen] = m[word]

        again = self.here()

        @self.step(f"store leaf {slot}")
        def _(m: Memory) -> None:
            m[leaf] = weight(m[seen])

        @self.step(f"load priority {slot} again")
        def _(m: Memory) -> int | None:
            if m[seen] != m[word] and not once:
                m[seen] = m[word]
                return again.at
            m[seen] = 0
            return then(m) if then else None

    def change_activity(self, by: int) -> None:
        activity = self.activity

        @self.step("raise activity" if by > 0 else "lower activity")
        def _(m: Memory) -> None:
            m[activity] += by

    # ---- blocks

    def begin_lap(self, b: int) -> None:
        base = self.ring.block(b)
        twice = Fault.TAKEN_TWICE in self.faults

        @self.step(f"store before {b}")
        def _(m: Memory) -> None:
            m[base + BEFORE] = lap_and_count(m[base + FILL] >> 5, m[base + FILL] >> 3 & 3)

        @self.step(f"store taken {b}")
        def _(m: Memory) -> None:
            older, newer = base + TAKEN, base + OTHER_TAKEN
            if m[older] > m[newer]:
                older, newer = newer, older
            if m[newer] >> 4 != lap_of(m[base]) or twice:
                m[older] = lap_and_count(lap_of(m[base]), 0)

        @self.step(f"add to fill {b}: the lap")
        def _(m: Memory) -> None:
            m[base + FILL] = fill_word(lap_of(m[base]), 0, m[base + FILL] & 7)

    def is_dead(self, m: Memory, owner: int) -> bool:
        if owner == 0:
            return False  # nobody to ask about
        return m[self.shared.actors[owner - 1].at] == DEAD or Fault.REAP_THE_LIVING in self.faults

    def reap(self, b: int, over: Label) -> None:
        """Takes the block whose word was m[seen], mends it, seals it and goes to `over`."""
        me, hold, seen, base = self.me, self.hold, self.seen, self.ring.block(b)
        sequence, rows = self.sequence, Label()

        @self.step(f"CAS block {b}: REAPING")
        def _(m: Memory) -> int | None:
            word, m[seen], m[sequence] = m[seen], 0, 0
            if m[base] != word:
                return over.at
            m[base] = block_word(lap_of(word), me, REAPING)
            m[hold] = b + 1
            began = m[base + FILL] >> 5 == lap_of(word) or Fault.REAP_WITHOUT_LAP in self.faults
            return rows.at if began else None

        self.begin_lap(b)
        self.place(rows)
        for slot in range(b * self.ring.shape.rows, (b + 1) * self.ring.shape.rows):
            self.reap_row(slot)

        @self.step(f"store fill {b}, counted")
        def _(m: Memory) -> None:
            m[base + FILL] = self.ring.count(m, b)

        if self.ring.shape.prioritized and Fault.REAP_WITHOUT_REFRESH not in self.faults:
            self.refresh_block(b)

        @self.step(f"store block {b}: SEALED")
        def _(m: Memory) -> int:
            m[base] = block_word(lap_of(m[base]), 0, SEALED)
            m[hold] = 0
            return over.at

    def reap_row(self, slot: int) -> None:
        ring, row = self.ring, self.ring.row(slot)
        base = ring.block(slot // ring.shape.rows)
        priority, capacity = ring.priorities + slot, ring.shape.capacity

        @self.step(f"store row {slot}: EMPTY, if it is WRITING")
        def _(m: Memory) -> None:
            if m[row] & 3 == WRITING:
                m[row] = row_word(m[row] >> 2, EMPTY)

        if not ring.shape.prioritized:
            return

        @self.step(f"store priority {slot}, if its row has none")
        def _(m: Memory) -> None:
            lap = (m[row] >> 2) // capacity + 1
            passed = Fault.REAP_THIS_LAP_ONLY in self.faults and lap != lap_of(m[base])
            if m[row] & 3 == COMMITTED and m[priority] & 15 != lap and not passed:
                m[priority] = priority_word(MOST, lap)

        self.refresh_leaf(slot)

    def reap_or_recount(self, b: int, free: bool) -> None:
        """A block of a dead owner is reaped; one that is free too, where asked for."""
        base, over = self.ring.block(b), Label()

        @self.step(f"load block {b}")
        def _(m: Memory) -> int | None:
            word = m[base]
            if not (free if word & 3 == SEALED else self.is_dead(m, owner_of(word))):
                return over.at
            m[self.seen] = word
            return None

        self.reap(b, over)
        self.place(over)

    # ---- the end

    def end_with(self, m: Memory, at: int) -> int:
        """Forgets the registers: nobody looks at them any more."""
        held = m[self.hold]
        m[self.at : self.end] = bytes(self.end - self.at)
        if at != DEAD:
            m[self.hold] = held
        return at
