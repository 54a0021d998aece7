"""What must hold of the ring, in every state, at every step and at the end of every run.

Always:
- an accepted read is whole, and no row is put over a newer one;
- a committed row is whole; one whose append has returned stays until its slot is written again;
- a block is held by at most one live process, and by the one its word names;
- nobody but its holder changes a block, unless it is sealed or its holder is dead;
- a claim finds a block, unless the configuration has more writers than blocks;
- a checkpoint can be restored: no block is ahead of its head, no row newer than its block, and each
  block says of this lap and the one before what it would say once its claim is done.

When all others are dead, stopped or done, the janitor runs. After it:
- no block is held but by a live process that was stopped, no row is half written;
- the fill of a block counts its rows; `before` and `taken` speak of this lap and the one before;
- a row has a priority if and only if it is there; every leaf follows from its priority, every node
  from its children; nobody dead is in the middle of a change.
"""

from __future__ import annotations

from collections.abc import Iterable
from itertools import pairwise, product

from model.machine import DEAD, DONE, STOPPED, State
from model.ring_actor import AHEAD, BUSY, HALF, NEWER, OLDER, TORN
from model.ring_config import Config
from model.ring_memory import (
    BEFORE,
    COMMITTED,
    FILL,
    GONE,
    OTHER_TAKEN,
    SEALED,
    TAKEN,
    WAS,
    WRITING,
    lap_and_count,
    lap_of,
    owner_of,
    row_word,
    weight,
)
from model.ring_protocol import Reading, all_processes

WRONG = {
    TORN: "a torn read is accepted",
    OLDER: "a row is put over one that is not older",
    BUSY: "a claim finds all blocks held, which are more than the writers",
    AHEAD: "a checkpoint has a block that is ahead of its head",
    HALF: "a checkpoint has half a claim",
    NEWER: "a checkpoint has a row that is newer than its block",
}
KILL, STOP = 1, 2  # times the number of actors: what is done to one of them
MOST_STEPS_OF_THE_JANITOR = 500


class RingModel:
    """For `explore`."""

    def __init__(self, config: Config) -> None:
        self.config = config
        self.shared = all_processes(config)
        self.ring = self.shared.ring
        *self.processes, self.janitor = self.shared.actors
        self.actors = len(self.processes)
        words = self.shared.words
        self.crashes = words.add("crashes left", first=config.crashes)
        self.stops = words.add("stops left", first=config.stops)
        self.programs = [(p.at, p.steps, len(p.steps)) for p in self.processes]
        self.mortal = [i for i, p in enumerate(self.processes) if p.spec.mortal]
        self.stoppable = [i for i, p in enumerate(self.processes) if p.spec.stoppable]
        self.sound: set[bytes] = set()  # contents of the blocks that break no rule

    def initial(self) -> Iterable[State]:
        readers = [process for process in self.processes if isinstance(process, Reading)]
        for slots in product(*(reader.slots for reader in readers)):
            memory = bytearray(self.shared.words.first)
            for reader, slot in zip(readers, slots, strict=True):
                memory[reader.slot] = slot
            yield bytes(memory)

    def successors(self, state: State) -> list[tuple[int, State]]:
        found = []
        for actor, (pc, steps, end) in enumerate(self.programs):
            at = state[pc]
            if at < DONE:
                memory = bytearray(state)
                to = steps[at](memory)
                if to is None:
                    to = at + 1
                memory[pc] = to if to != end else DONE
                found.append((actor, bytes(memory)))
        if state[self.crashes]:
            found += self.ended(state, self.mortal, KILL, DEAD, self.crashes)
        if state[self.stops]:
            found += self.ended(state, self.stoppable, STOP, STOPPED, self.stops)
        return found

    def ended(
        self, state: State, actors: list[int], how: int, at: int, budget: int
    ) -> Iterable[tuple[int, State]]:
        for actor in actors:
            process = self.processes[actor]
            if state[process.at] < DONE:
                memory = bytearray(state)
                memory[process.at] = process.end_with(memory, at)
                memory[budget] -= 1
                yield how * self.actors + actor, bytes(memory)

    # ---- rules

    def broken(self, state: State) -> str | None:
        if bits := state[self.shared.wrong]:
            return next(text for bit, text in WRONG.items() if bits & bit)
        blocks = state[self.ring.blocks : self.ring.end_of_blocks]
        if blocks not in self.sound:
            if rule := self.broken_rows(state):
                return rule
            self.sound.add(blocks)
        return None

    def broken_rows(self, state: State) -> str | None:
        for slot in range(self.ring.shape.capacity):
            row = self.ring.row(slot)
            word, left, right, acked = state[row : row + 4]
            whole = left == right and (left & 31 == word >> 2 or not self.config.payload)
            if word & 3 == COMMITTED and not whole:
                return f"row {slot} is committed and not whole"
            if acked and word != row_word(acked - 1, COMMITTED):
                return f"the acknowledged row {acked - 1} is not there"
        return None

    def broken_holds(self, state: State) -> str | None:
        held = set()
        for process in self.processes:
            hold = state[process.hold]
            if hold == 0 or state[process.at] == DEAD:
                continue
            if hold in held:
                return f"block {hold - 1} is held by two live processes"
            held.add(hold)
            word = state[self.ring.block(hold - 1)]
            if word & 3 == SEALED or owner_of(word) not in (0, process.me):
                return f"block {hold - 1} is held by {process.name}, and its word says otherwise"
        for b in range(self.ring.shape.blocks):
            word = state[self.ring.block(b)]
            if word & 3 and owner_of(word):
                owner = self.shared.actors[owner_of(word) - 1]
                if state[owner.at] != DEAD and state[owner.hold] != b + 1:
                    return f"block {b} names {owner.name}, which does not hold it"
        return None

    def broken_by_step(self, before: State, actor: int, after: State) -> str | None:
        ring = self.ring
        if before[ring.blocks : ring.end_of_blocks] == after[ring.blocks : ring.end_of_blocks]:
            return None
        if rule := self.broken_holds(after):  # holds change together with block words
            return rule
        for b in range(ring.shape.blocks):
            base = ring.block(b)
            if before[base : base + ring.block_bytes] != after[base : base + ring.block_bytes]:
                owner = owner_of(before[base])
                if before[base] & 3 == SEALED or owner in (0, actor + 1):
                    continue
                if before[self.shared.actors[owner - 1].at] != DEAD:
                    name = self.processes[actor].name
                    return f"{name} changes block {b}, which a live process holds"
        return None

    # ---- the end

    def settled(self, state: State) -> Iterable[State]:
        """What the janitor makes of a state in which nobody has a step left, step by step."""
        for _ in range(MOST_STEPS_OF_THE_JANITOR):
            if state[self.janitor.at] == DONE:
                return
            state = self.janitor.run(state)
            yield state
        raise AssertionError("the janitor goes on for ever")

    def broken_at_end(self, state: State) -> str | None:
        *_, state = self.settled(state)
        for b in range(self.ring.shape.blocks):
            word = state[self.ring.block(b)]
            if word & 3 == SEALED:
                if rule := self.broken_block(state, b):
                    return rule
            elif owner_of(word) == 0 or (
                state[self.shared.actors[owner_of(word) - 1].at] != STOPPED
            ):
                return f"block {b} is never given back"
        if not self.ring.shape.prioritized:
            return None
        return self.broken_priorities(state) or self.broken_tree(state)

    def broken_block(self, state: State, b: int) -> str | None:
        base = self.ring.block(b)
        if any(word & 3 == WRITING for word in self.ring.row_words(state, b)):
            return f"block {b} is sealed with a row half written"
        if state[base + FILL] != self.ring.count(state, b):
            return f"fill {b} does not count the rows"
        if lap_of(state[base]) == int(self.ring.shape.full):
            return None  # never claimed in this run
        last, written = state[base + WAS] >> 5, state[base + WAS] >> 3 & 3
        if state[base + BEFORE] != lap_and_count(last, written):
            return f"before {b} is not about the lap before"
        drawn = int(last == 1 and self.ring.shape.full)
        expected = {lap_and_count(lap_of(state[base]), 0), lap_and_count(last, drawn)}
        if {state[base + TAKEN], state[base + OTHER_TAKEN]} != expected:
            return f"taken {b} forgot the lap before"
        return None

    def broken_priorities(self, state: State) -> str | None:
        for slot in range(self.ring.shape.capacity):
            if state[self.ring.block(slot // self.ring.shape.rows)] & 3 != SEALED:
                continue
            row, lap = state[self.ring.row(slot)], state[self.ring.priorities + slot] & 15
            if row & 3 != COMMITTED:
                if lap not in (0, GONE):
                    return f"slot {slot} has a priority and no row"
            elif lap != (row >> 2) // self.ring.shape.capacity + 1:
                return f"row {row >> 2} has no priority"
        return None

    def broken_tree(self, state: State) -> str | None:
        if any(state[p.activity] for p in self.processes if state[p.at] != STOPPED):
            return "an activity stays raised"
        if any(state[p.at] == STOPPED for p in self.processes):
            return None  # sums are behind while somebody is in the middle of a change
        for slot in range(self.ring.shape.capacity):
            if state[self.ring.leaves + slot] != weight(state[self.ring.priorities + slot]):
                return f"leaf {slot} does not follow from its priority"
        for node in range(self.ring.nodes, self.ring.root + 1):
            if state[node] != sum(state[child] for child in self.ring.children(node)):
                return f"{self.shared.words.names[node]} is not the sum of its children"
        return None

    # ---- words

    def describe(self, before: State, actor: int, after: State) -> str:
        how, actor = divmod(actor, self.actors)
        name = self.processes[actor].name
        if how == KILL:
            return f"{name} is killed"
        if how == STOP:
            return f"{name} is stopped"
        return self.say(actor, before, after)

    def say(self, actor: int, before: State, after: State) -> str:
        program = self.shared.actors[actor]
        says = program.says[before[program.at]]
        changes = self.shared.words.changes(before, after)
        return f"{program.name + ':':9} {says:38} {changes}".rstrip()

    def epilogue(self, state: State) -> list[str]:
        if any(state[pc] < DONE for pc, _, _ in self.programs):
            return []
        states = [state, *self.settled(state)]
        return [self.say(self.actors, before, after) for before, after in pairwise(states)]
