"""The processes of the ring as programs of atomic steps: what writer.cc, blocks.cc, priorities.cc
and recovery.cc do to shared memory, in the same order.
"""

from __future__ import annotations

from functools import partial

from model.machine import DEAD, DONE, Label, Memory
from model.ring_actor import BUSY, OLDER, TORN, Actor, Shared, Then
from model.ring_config import (
    Config,
    Fault,
    Janitor,
    Mender,
    Process,
    Reader,
    Saver,
    Updater,
    Writer,
)
from model.ring_memory import (
    ACKED,
    COMMITTED,
    FILL,
    GONE,
    LEFT,
    MOST,
    OPEN,
    RIGHT,
    SEALED,
    WAS,
    WRITING,
    block_word,
    fill_word,
    lap_of,
    owner_of,
    payload,
    priority_word,
    row_word,
)
from model.ring_saving import Saving


def all_processes(config: Config) -> Shared:
    """Memory and programs of a configuration."""
    specs: tuple[Process, ...] = (*config.processes, Janitor())
    shared = Shared(config, specs)
    for spec in specs:
        match spec:
            case Writer():
                Writing(spec, shared)
            case Updater():
                Updating(spec, shared)
            case Mender():
                Mending(spec, shared)
            case Reader():
                Reading(spec, shared)
            case Saver():
                Saving(spec, shared)
            case Janitor():
                Cleaning(spec, shared)
    for actor in shared.actors:
        actor.build()
    return shared


class Writing(Actor):
    def __init__(self, spec: Writer, shared: Shared) -> None:
        super().__init__(spec, shared)
        self.batches = spec.batches
        self.sequence = self.register("head")
        self.skipped = self.register("skipped")
        self.batch = self.register("batch")
        self.todo = self.register("todo", spec.batches[0])  # rows left of the batch
        self.run_rows = self.register("run")  # rows not yet counted
        self.fresh = self.register("fresh")  # of them, those that took the place of none

    def build(self) -> None:
        claim = self.here()
        blocks = range(self.ring.shape.blocks)
        takes, reaps = [Label() for _ in blocks], [Label() for _ in blocks]
        self.claim(claim, takes, reaps)
        for b in blocks:
            self.place(reaps[b])
            self.reap(b, claim)
            self.place(takes[b])
            self.take(b, claim)
            self.fill_block(b, claim)

    def claim(self, claim: Label, takes: list[Label], reaps: list[Label]) -> None:
        """Looks at the block at the head: takes it, reaps it, or helps the head past it."""
        ring, head, count = self.ring, self.ring.head, self.ring.shape.blocks
        sequence, seen, skipped = self.sequence, self.seen, self.skipped
        ask, past = Label(), Label()

        @self.step("load head")
        def _(m: Memory) -> None:
            m[sequence] = m[head]

        @self.step("load block word")
        def _(m: Memory) -> int:
            lap, b = divmod(m[sequence], count)
            word = m[ring.block(b)]
            if lap_of(word) > lap:  # laps count from 1
                return past.at
            m[seen] = word
            return takes[b].at if word & 3 == SEALED else ask.at

        self.place(ask)

        @self.step("ask whether the owner is dead")
        def _(m: Memory) -> int:
            if self.is_dead(m, owner_of(m[seen])):
                return reaps[m[sequence] % count].at
            m[seen] = 0
            m[skipped] += 1
            if m[skipped] > count:
                m[self.shared.wrong] |= 0 if self.config.busy else BUSY
                return self.end_with(m, DONE)
            return past.at

        self.place(past)
        self.help_head(claim)

    def help_head(self, to: Label) -> None:
        head, sequence = self.ring.head, self.sequence

        @self.step("CAS head")
        def _(m: Memory) -> int:
            if m[head] == m[sequence]:
                m[head] += 1
            m[sequence] = 0
            return to.at

    def take(self, b: int, claim: Label) -> None:
        me, base, count = self.me, self.ring.block(b), self.ring.shape.blocks
        sequence, seen, hold, skipped = self.sequence, self.seen, self.hold, self.skipped
        nameless = Fault.CLAIM_WITHOUT_NAME in self.faults
        held = Label()

        @self.step(f"CAS block {b}: OPEN")
        def _(m: Memory) -> int | None:
            word, m[seen] = m[seen], 0
            if m[base] != word:
                m[sequence] = 0
                return claim.at
            m[base] = block_word(m[sequence] // count + 1, 0 if nameless else me, OPEN)
            m[base + WAS] = m[base + FILL] & ~7
            m[hold] = b + 1
            m[skipped] = 0
            return None

        if nameless:

            @self.step(f"store block {b}: its owner")
            def _(m: Memory) -> None:
                m[base] = block_word(lap_of(m[base]), me, OPEN)

        self.begin_lap(b)
        self.help_head(held)
        self.place(held)

    def fill_block(self, b: int, claim: Label) -> None:
        """Writes rows until the block or the work is at its end, then seals."""
        ring, rows, base = self.ring, self.ring.shape.rows, self.ring.block(b)
        batch, todo, run, fresh = self.batch, self.todo, self.run_rows, self.fresh
        batches = self.batches
        starts = [Label() for _ in range(rows)]
        counts = [Label() for _ in range(rows)]
        seal = Label()

        def acknowledge(m: Memory, row: int) -> int:
            """The rows up to this one are published. Where to go on."""
            for done in range(row - m[run] + 1, row + 1):
                place = ring.row(b * rows + done)
                m[place + ACKED] = (m[place] >> 2) + 1
            m[run] = 0
            if m[todo] == 0:
                m[batch] += 1
                if m[batch] == len(batches):
                    return seal.at
                m[todo] = batches[m[batch]]
            return seal.at if row + 1 == rows else starts[row + 1].at

        for row in range(rows):

            def written(m: Memory, row: int = row) -> int:
                m[todo] -= 1
                m[run] += 1
                more = m[todo] > 0 and row + 1 < rows
                return starts[row + 1].at if more else counts[row].at

            self.place(starts[row])
            self.write_row(b * rows + row, written)
        for row in range(rows):
            self.place(counts[row])

            @self.step(f"add to fill {b}")
            def _(m: Memory, row: int = row) -> int | None:
                lap, n = m[base + FILL] >> 5, m[base + FILL] >> 3 & 3
                m[base + FILL] = fill_word(lap, n + m[run], (m[base + FILL] & 7) + m[fresh])
                m[fresh] = 0
                return None if ring.shape.prioritized else acknowledge(m, row)

            if ring.shape.prioritized:
                self.refresh_block(b, partial(acknowledge, row=row))
        self.place(seal)

        @self.step(f"store block {b}: SEALED")
        def _(m: Memory) -> int:
            m[base] = block_word(lap_of(m[base]), 0, SEALED)
            m[self.hold] = 0
            return self.end_with(m, DONE) if m[batch] == len(batches) else claim.at

    def write_row(self, slot: int, then: Then) -> None:
        ring, me, fresh = self.ring, self.me, self.fresh
        row, base = ring.row(slot), ring.block(slot // ring.shape.rows)
        priority, leaf = ring.priorities + slot, ring.leaves + slot
        retired = Label()

        def new_id(m: Memory) -> int:
            return (lap_of(m[base]) - 1) * ring.shape.capacity + slot

        if ring.shape.prioritized:

            @self.step(f"store priority {slot}: gone")
            def _(m: Memory) -> int | None:
                if m[priority] & 15 in (0, GONE):
                    return retired.at
                m[priority] = priority_word(0, GONE)
                return None

            @self.step(f"store leaf {slot}")
            def _(m: Memory) -> None:
                m[leaf] = 0

        self.place(retired)

        @self.step(f"exchange row {slot}: WRITING")
        def _(m: Memory) -> None:
            if m[row] != 0 and m[row] >> 2 >= new_id(m):
                m[self.shared.wrong] |= OLDER
            m[fresh] += m[row] & 3 != COMMITTED
            m[row] = row_word(new_id(m), WRITING)
            m[row + ACKED] = 0

        for half in (row + LEFT, row + RIGHT) if self.config.payload else ():

            @self.step(f"copy to {self.words.names[half]}")
            def _(m: Memory, half: int = half) -> None:
                m[half] = payload(me, new_id(m))

        @self.step(f"store row {slot}: COMMITTED")
        def _(m: Memory) -> int | None:
            m[row] = row_word(m[row] >> 2, COMMITTED)
            return None if ring.shape.prioritized else then(m)

        if ring.shape.prioritized:

            @self.step(f"store priority {slot}")
            def _(m: Memory) -> None:
                m[priority] = priority_word(MOST, lap_of(m[base]))

            self.refresh_leaf(slot, then)


class Updating(Actor):
    def __init__(self, spec: Updater, shared: Shared) -> None:
        super().__init__(spec, shared)
        self.slot, self.raw = spec.slot, spec.raw

    def build(self) -> None:
        slot, raw, seen, word = self.slot, self.raw, self.seen, self.ring.priorities + self.slot
        marked = Fault.UPDATE_UNMARKED not in self.faults
        over, changed = Label(), Label()

        if marked:
            self.change_activity(1)

        def stale(m: Memory) -> bool:
            if m[seen] & 15 == 1:
                return False
            m[seen] = 0
            return True

        @self.step(f"load priority {slot}")
        def _(m: Memory) -> int | None:
            m[seen] = m[word]
            return over.at if stale(m) else None

        again = self.here()

        @self.step(f"CAS priority {slot}")
        def _(m: Memory) -> int:
            if m[word] == m[seen]:
                m[word] = priority_word(raw, 1)
                m[seen] = 0
                return changed.at
            m[seen] = m[word]
            return over.at if stale(m) else again.at

        self.place(changed)
        self.refresh_leaf(slot)
        self.refresh_block(slot // self.ring.shape.rows)
        self.place(over)
        if marked:
            self.change_activity(-1)


class Mending(Actor):
    def __init__(self, spec: Mender | Janitor, shared: Shared) -> None:
        super().__init__(spec, shared)
        self.recounts = isinstance(spec, Mender) and spec.recounts
        self.dead = self.register("dead")  # those in the middle of an update: a bit for each

    def list_the_dead(self, m: Memory) -> None:
        m[self.dead] = sum(
            1 << i
            for i, other in enumerate(self.shared.actors)
            if m[other.at] == DEAD and m[other.activity] != 0
        )

    def refresh_all(self) -> None:
        for slot in range(self.ring.shape.capacity):
            self.refresh_leaf(slot)
        for node in range(self.ring.nodes, self.ring.root + 1):
            self.refresh(node)

    def bury(self) -> None:
        for i, other in enumerate(self.shared.actors[:-1]):
            if other is not self:

                @self.step(f"CAS activity of {other.name}: 0, if it is listed")
                def _(m: Memory, bit: int = 1 << i, other: Actor = other) -> None:
                    if m[self.dead] & bit:
                        m[other.activity] = 0
                        m[self.dead] &= ~bit

    def build(self) -> None:
        marked = Fault.MEND_UNMARKED not in self.faults

        @self.step("list the dead")
        def _(m: Memory) -> int | None:
            self.list_the_dead(m)
            return None if m[self.dead] else DONE

        if marked:
            self.change_activity(1)
        for b in range(self.ring.shape.blocks) if self.recounts else ():
            self.reap_or_recount(b, free=True)
        self.refresh_all()
        if Fault.BURY_THE_UNMENDED in self.faults:
            self.step("list the dead")(self.list_the_dead)
        self.bury()
        if marked:
            self.change_activity(-1)


class Cleaning(Mending):
    """The janitor."""

    def build(self) -> None:
        for b in range(self.ring.shape.blocks):
            self.reap_or_recount(b, free=False)
        if self.ring.shape.prioritized:

            @self.step("list the dead")
            def _(m: Memory) -> int | None:
                self.list_the_dead(m)
                return None if m[self.dead] else DONE

            self.refresh_all()
            self.bury()


class Reading(Actor):
    def __init__(self, spec: Reader, shared: Shared) -> None:
        super().__init__(spec, shared)
        self.slots, self.pairs = spec.slots, spec.pairs
        self.slot = self.register("slot")
        self.half = self.register("half")
        self.torn = self.register("torn")

    def build(self) -> None:
        seen, torn = self.seen, self.torn
        again = int(Fault.LOOK_AT_THE_LAST in self.faults)
        self.copy(0)
        if self.pairs:
            self.copy(1)
        if Fault.READ_ONCE not in self.faults:

            @self.step("load the row word again")
            def _(m: Memory) -> int | None:
                if m[self.row(m, again)] != m[seen] + row_word(again, 0):
                    return self.end_with(m, DONE)
                return None

        @self.step("accept")
        def _(m: Memory) -> int:
            m[self.shared.wrong] |= TORN if m[torn] else 0
            return self.end_with(m, DONE)

    def row(self, m: Memory, behind: int) -> int:
        return self.ring.row(m[self.slot] + behind)

    def copy(self, behind: int) -> None:
        """Copies the row in the slot, or one behind it, if it is there."""
        seen, half = self.seen, self.half

        @self.step("load the row word" if behind == 0 else "load the word of the row behind it")
        def _(m: Memory) -> int | None:
            word = m[self.row(m, behind)]
            if behind == 0:
                m[seen] = word
            there = word & 3 == COMMITTED and word == m[seen] + row_word(behind, 0)
            return None if there else self.end_with(m, DONE)

        @self.step("copy from the left half")
        def _(m: Memory) -> None:
            m[half] = m[self.row(m, behind) + LEFT]

        @self.step("copy from the right half")
        def _(m: Memory) -> None:
            right = m[self.row(m, behind) + RIGHT]
            m[self.torn] |= m[half] != right or m[half] & 31 != (m[seen] >> 2) + behind
            m[half] = 0
