"""One slot of the owner table changes hands: what owners.cc does, step by step, for `explore`.

P has the slot and is killed, perhaps in the middle of an update. J takes the slot over, mends what
P left, holds a block and lets it go. M, at the same time, lists who is dead in the middle of an
update, mends, strikes them out, and reaps the block if its owner is dead. Each may be killed.

The slot is three words: `activity` = {epoch, calls under way}, `pid`, and the lock, which the
kernel frees when its holder dies. What an update that is cut short leaves is one bit, `stale`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from enum import Enum, auto

from model.machine import DEAD, DONE, Label, Memory, Program, State, Words

P, J, M = 1, 2, 3


class SlotFault(Enum):
    """Ways to get it wrong."""

    EPOCH_FIRST = auto()  # the joiner stores the epoch, then the pid
    NO_EPOCH = auto()  # strikes out whoever has the slot by now
    FORGETS = auto()  # the joiner starts with no calls under way, whatever was left
    LISTS_ANOTHER = auto()  # strikes out who has the slot after its last owner was found dead


class OwnerSlot:
    actors = 3

    def __init__(self, crashes: int, fault: SlotFault | None = None) -> None:
        self.fault = fault
        self.words = Words()
        add = self.words.add
        self.activity = add("activity", lambda w: f"{{epoch {w >> 4}, {w & 15} calls}}", 1 << 4)
        self.pid = add("pid", "-PJM".__getitem__, P)
        self.lock = add("lock", "-PJM".__getitem__, P)
        self.block = add("epoch of the block's owner")
        self.stale = add("stale")
        self.crashes = add("crashes left", first=crashes)
        self.programs = [Program("P", self.words)]
        self.build_p(self.programs[0])
        for name, build in (("J", self.build_j), ("M", self.build_m)):
            program = Program(name, self.words)
            self.programs.append(program)
            build(program, program.register("seen"))

    # ---- the processes

    def build_p(self, p: Program) -> None:
        p.step("raise activity")(self.add_calls(1))
        p.step("store a priority")(self.set(self.stale, 1))
        p.step("refresh the sums")(self.set(self.stale, 0))
        p.step("lower activity")(self.add_calls(-1))

    def build_j(self, p: Program, seen: int) -> None:
        mend, claim = Label(), Label()

        @p.step("try the lock")
        def _(m: Memory) -> int | None:
            if m[self.lock] and not self.killed(m, m[self.lock]):
                return DONE
            m[self.lock] = J
            return None

        @p.step("load activity")
        def _(m: Memory) -> None:
            m[seen] = m[self.activity]

        def store_epoch() -> None:
            @p.step("store activity: a new epoch")
            def _(m: Memory) -> None:
                left = self.fault is not SlotFault.FORGETS and m[seen] & 15 != 0
                m[self.activity] = (m[seen] >> 4) + 1 << 4 | left
                m[seen] = 0

        if self.fault is SlotFault.EPOCH_FIRST:
            store_epoch()
        p.step("store pid")(self.set(self.pid, J))
        if self.fault is not SlotFault.EPOCH_FIRST:
            store_epoch()

        @p.step("look for calls left by the one before")
        def _(m: Memory) -> int:
            return mend.at if m[self.activity] & 15 else claim.at

        p.place(mend)
        p.step("refresh the sums")(self.set(self.stale, 0))
        p.step("lower activity")(self.add_calls(-1))
        p.place(claim)

        @p.step("take the block")
        def _(m: Memory) -> None:
            m[self.block] = m[self.activity] >> 4

        p.step("give the block back")(self.set(self.block, 0))

    def build_m(self, p: Program, seen: int) -> None:
        reap = Label()

        @p.step("load activity")
        def _(m: Memory) -> int | None:
            m[seen] = m[self.activity]
            return None if m[seen] & 15 else self.clear(m, seen, reap.at)

        @p.step("ask whether the owner is dead")
        def _(m: Memory) -> int | None:
            return None if self.dead(m, m[seen] >> 4) else self.clear(m, seen, reap.at)

        if self.fault is SlotFault.LISTS_ANOTHER:

            @p.step("load activity again")
            def _(m: Memory) -> None:
                m[seen] = m[self.activity]

        p.step("refresh the sums")(self.set(self.stale, 0))

        @p.step("CAS activity: no calls, if it is the same epoch")
        def _(m: Memory) -> None:
            if m[self.activity] >> 4 == m[seen] >> 4 or self.fault is SlotFault.NO_EPOCH:
                m[self.activity] &= ~15
            m[seen] = 0

        p.place(reap)

        @p.step("load the block's owner")
        def _(m: Memory) -> int | None:
            m[seen] = m[self.block]
            return None if m[seen] else DONE

        @p.step("reap the block, if its owner is dead")
        def _(m: Memory) -> None:
            if m[self.block] == m[seen] and self.dead(m, m[seen]):
                m[self.block] = 0
            m[seen] = 0

    # ---- what they have in common

    def killed(self, m: Memory | State, who: int) -> bool:
        return m[self.programs[who - 1].at] == DEAD

    def dead(self, m: Memory, epoch: int) -> bool:
        """By the table, as it is now."""
        same = m[self.activity] >> 4 == epoch
        return not same or m[self.pid] == 0 or self.killed(m, m[self.pid])

    def add_calls(self, n: int) -> Callable[[Memory], None]:
        def step(m: Memory) -> None:
            m[self.activity] = (m[self.activity] + n) & 255

        return step

    @staticmethod
    def set(place: int, value: int) -> Callable[[Memory], None]:
        def step(m: Memory) -> None:
            m[place] = value

        return step

    @staticmethod
    def clear(m: Memory, seen: int, to: int) -> int:
        m[seen] = 0
        return to

    # ---- for explore

    def initial(self) -> Iterable[State]:
        yield bytes(self.words.first)

    def successors(self, state: State) -> list[tuple[int, State]]:
        found = []
        for actor, program in enumerate(self.programs):
            if state[program.at] < DONE:
                found.append((actor, program.run(state)))
                if state[self.crashes]:
                    memory = bytearray(state)
                    memory[program.at : program.end] = bytes(program.end - program.at)
                    memory[program.at] = DEAD
                    memory[self.crashes] -= 1
                    found.append((self.actors + actor, bytes(memory)))
        return found

    def broken(self, state: State) -> str | None:
        return None

    def broken_by_step(self, before: State, actor: int, after: State) -> str | None:
        if after[self.activity] >> 4 < before[self.activity] >> 4:
            return "the epoch went back"
        if after[self.block] == 0 and before[self.block] and actor + 1 == M:
            holding = before[self.programs[J - 1].at] < DONE
            return "the block of a live owner is reaped" if holding else None
        return None

    def broken_at_end(self, state: State) -> str | None:
        owner = state[self.pid]
        calls = state[self.activity] & 15
        if owner and not self.killed(state, owner) and calls:
            return "calls are left under way of an owner that has none"
        if state[self.stale] and not calls:
            return "sums stay stale, and nobody knows"
        return None

    def describe(self, before: State, actor: int, after: State) -> str:
        how, actor = divmod(actor, self.actors)
        program = self.programs[actor]
        if how:
            return f"{program.name} is killed"
        says = program.says[before[program.at]]
        return f"{program.name}: {says:38} {self.words.changes(before, after)}".rstrip()

    def epilogue(self, state: State) -> list[str]:
        return []
