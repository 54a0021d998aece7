"""The rate limiter: limiter.cc. Who waits for a share, where `there` counts what is waited for; and
what a queue forgives."""

from __future__ import annotations

from model.orders.operations import Outcome, Program, Protocol, add, cas, fence, load, store


def changes(to: int) -> Program:
    """A change, and Limiter::changed."""
    yield store("there", to)
    yield fence("waits.changed")
    if (yield load("waiting")) != 0:
        yield store("waiting", 0)
        yield add("bell", 1, "waits.bell_rung")


def waits(needs: int) -> Program:
    """Wait::sleep: the bell that it sleeps on, or None, and what was there when it had rung."""
    bell = yield load("bell", "waits.bell")
    yield store("waiting", 1)
    yield fence("waits.before_sleep")
    if (yield load("there")) >= needs:
        return None, None
    if (yield load("bell", "waits.bell_again")) != bell:  # by os::futex::wait
        return None, (yield load("there"))
    return bell, None


def overslept(outcome: Outcome) -> str | None:
    asleep, found = outcome.returned["waiter"]
    if found == 0:
        return "somebody is woken and does not find the change"
    for_ever = asleep is not None and asleep == outcome.last["bell"]
    return "somebody sleeps through the change it waits for" if for_ever else None


def a_change() -> Protocol:
    first = {"there": 0, "waiting": 0, "bell": 0}
    return Protocol(first, {"changer": lambda: changes(1), "waiter": lambda: waits(1)}, overslept)


def a_change_after_another_was_woken() -> Protocol:
    """`waiting` is up for somebody else, whom the first change wakes."""

    def changer() -> Program:
        yield from changes(1)

    def second() -> Program:
        while (yield load("there")) != 1:
            return
        yield from changes(2)

    def broken(outcome: Outcome) -> str | None:
        return overslept(outcome) if outcome.last["there"] == 2 else None

    first = {"there": 0, "waiting": 1, "bell": 0}
    threads = {"changer": changer, "second": second, "waiter": lambda: waits(2)}
    return Protocol(first, threads, broken)


# ---- what a queue forgives


def adds() -> Program:
    """A call that adds a row, worth one draw."""
    yield add("announced", 1)
    yield add("balance", 1, "limiter.share_taken")
    yield store("rows", 1, "blocks.counted")
    yield add("announced", -1, "limiter.withdrawn")


def forgives() -> Program:
    """Limiter::forgive."""
    balance = yield load("balance", "limiter.balance")
    announced = yield load("announced", "limiter.announced")
    left = yield load("rows", "blocks.fill")
    if balance > left + announced:
        yield cas("balance", balance, left + announced)


def an_add_beside_one_that_forgives() -> Protocol:
    def broken(outcome: Outcome) -> str | None:
        short = outcome.last["balance"] < outcome.last["rows"]
        return "a row is forgiven that is being added" if short else None

    first = {"announced": 0, "balance": 0, "rows": 0}
    return Protocol(first, {"adder": adds, "other": forgives}, broken)


PROTOCOLS = (a_change, a_change_after_another_was_woken, an_add_beside_one_that_forgives)
