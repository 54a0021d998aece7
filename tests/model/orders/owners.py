"""The owner table: who has a slot, and who left something half done. owners.cc, recovery.cc.

`activity` is (epoch, calls under way). The owner of epoch 1 is dead, its lock free.
"""

from __future__ import annotations

from collections.abc import Callable

from model.orders.operations import Outcome, Program, Protocol, cas, change, load, store

LIVING = (7, 7)  # the pid and start time of the only process that lives
DEAD = (5, 5)


def dead(epoch: int) -> Program:
    """Owners::dead, of whoever had the slot in this epoch."""
    if (yield load("activity", "owners.epoch"))[0] != epoch:
        return True
    pid = yield load("pid", "owners.pid")
    start = yield load("start")
    if (yield load("activity", "owners.epoch"))[0] != epoch:
        return True
    return pid == 0 or (pid, start) != LIVING


def join() -> Program:
    """Owners::join, with the lock of the slot. The calls that its last owner left."""
    yield store("start", LIVING[1])
    yield store("pid", LIVING[0])
    epoch, calls = yield load("activity")
    left = 1 if calls else 0
    yield store("activity", (epoch + 1, left), "owners.joined")
    return left


def slot(epoch: int, calls: int, process: tuple[int, int]) -> dict[str, object]:
    return {"activity": (epoch, calls), "pid": process[0], "start": process[1]}


def lists_the_dead() -> Program:
    """Owners::dead_in_a_change."""
    epoch, calls = yield load("activity", "owners.epoch")
    return epoch if calls and (yield from dead(epoch)) else 0


def looks_twice() -> Program:
    """What was wrong: lists who has the slot when the one before it was found dead."""
    epoch, calls = yield load("activity", "owners.epoch")
    if not calls or not (yield from dead(epoch)):
        return 0
    return (yield load("activity", "owners.epoch"))[0]


def joining_beside(mender: Callable[[], Program]) -> Protocol:
    def broken(outcome: Outcome) -> str | None:
        return "a live owner is taken for dead" if outcome.returned["mender"] == 2 else None

    return Protocol(slot(1, 1, DEAD), {"joiner": join, "mender": mender}, broken)


def a_new_owner_and_who_looks_for_the_dead() -> Protocol:
    return joining_beside(lists_the_dead)


def a_new_owner_and_who_looks_twice() -> Protocol:
    return joining_beside(looks_twice)


def a_slot_without_a_file() -> Protocol:
    """Private memory: the pid is the lock. An epoch names one owner."""

    def owner() -> Program:
        epoch, _ = yield load("activity")
        yield store("activity", (epoch + 1, 0), "owners.joined")
        yield store("pid", 0, "owners.left")

    def next_owner() -> Program:
        if (yield cas("pid", 0, LIVING[0], "owners.slot_taken")) != 0:
            return 0
        epoch, _ = yield load("activity")
        yield store("activity", (epoch + 1, 0), "owners.joined")
        return epoch + 1

    def broken(outcome: Outcome) -> str | None:
        same = outcome.returned["next_owner"] == 2
        return "two owners have the same name" if same else None

    first = slot(1, 0, LIVING)
    return Protocol(first, {"owner": owner, "next_owner": next_owner}, broken)


def nobody_under_way(what: str) -> Program:
    """A look at the table that finds nothing to mend, then at what was to be mended."""
    _, calls = yield load("activity", "owners.epoch")
    return calls == 0 and (yield load(what)) != "mended"


def unmended(outcome: Outcome) -> str | None:
    return (
        "sums are stale, and nobody is known to be at work" if outcome.returned["other"] else None
    )


def a_mender_and_a_look() -> Protocol:
    """Owners::bury."""

    def mender() -> Program:
        yield store("sums", "mended")
        seen = yield load("activity")
        while seen[0] == 1:
            found = yield cas("activity", seen, (1, 0), "owners.buried")
            if found == seen:
                return
            seen = found

    first = slot(1, 1, DEAD) | {"sums": "stale"}
    threads = {"mender": mender, "other": lambda: nobody_under_way("sums")}
    return Protocol(first, threads, unmended)


def a_call_and_a_look() -> Protocol:
    """Change: a call that ends, beside another of the same owner."""

    def call() -> Program:
        yield store("sums", "mended")
        yield change("activity", lambda seen: (seen[0], seen[1] - 1), "owners.call_ends")

    first = slot(1, 1, LIVING) | {"sums": "stale"}
    threads = {"call": call, "other": lambda: nobody_under_way("sums")}
    return Protocol(first, threads, unmended)


def a_mender_and_a_reaper() -> Protocol:
    """The mender hears of the death from the kernel, the reaper from the table."""

    def dies() -> Program:
        yield store("row 0", "writing")
        yield store("exit", True, "release")  # by the kernel, as what follows

    def mender() -> Program:
        if (yield load("exit", "acquire")):
            yield store("pid", 0, "owners.left")

    def broken(outcome: Outcome) -> str | None:
        last = outcome.last
        left = last["pid"] == 0 and last["row 0"] == "writing" and outcome.returned["reaper"]
        return "a row half written is left in a block that was mended" if left else None

    def reaps() -> Program:
        if (yield load("pid", "owners.pid")) != 0:
            return False
        if (yield load("row 0")) == "writing":
            yield store("row 0", "empty")
        return True

    first = {"row 0": "there", "exit": False} | slot(1, 0, DEAD)
    return Protocol(first, {"owner": dies, "mender": mender, "reaper": reaps}, broken)


PROTOCOLS = (
    a_new_owner_and_who_looks_for_the_dead,
    a_slot_without_a_file,
    a_mender_and_a_look,
    a_call_and_a_look,
    a_mender_and_a_reaper,
)
