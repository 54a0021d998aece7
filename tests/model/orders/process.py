"""Among the threads of a process, and other messages that are written once: the spin lock, the
helper threads, buffer.cc, process.cc."""

from __future__ import annotations

from model.orders.operations import Outcome, Program, Protocol, add, cas, change, load, store

# ---- a flag, and what it stands for


def a_message() -> Protocol:
    """What this process is; that a file was recovered; the seed of a handle for reading."""

    def writer() -> Program:
        yield store("data", 1)
        yield store("flag", 1, "published.set")

    def reader() -> Program:
        return (yield load("flag", "published.seen")) == 1 and (yield load("data")) == 0

    def broken(outcome: Outcome) -> str | None:
        return "a flag is seen without what it stands for" if outcome.returned["reader"] else None

    return Protocol({"data": 0, "flag": 0}, {"writer": writer, "reader": reader}, broken)


def two_who_make_the_same() -> Protocol:
    """pool_of_this_process(): who comes second takes what the first has made."""

    def maker(me: int) -> Program:
        found = yield load("current", "published.seen")
        if found == 0:
            yield store(f"made {me}", True)
            found = yield cas("current", 0, me, "published.made")
            if found == 0:
                return True
        return (yield load(f"made {found}"))

    def broken(outcome: Outcome) -> str | None:
        whole = all(outcome.returned.values())
        return None if whole else "a pool is used before it is made"

    first = {"current": 0, "made 1": False, "made 2": False}
    return Protocol(first, {"one": lambda: maker(1), "two": lambda: maker(2)}, broken)


# ---- the spin lock


def two_who_lock() -> Protocol:
    def locker() -> Program:
        for _ in range(2):
            if (yield cas("lock", 0, 1, "lock.taken")) == 0:
                count = yield load("count")
                yield store("count", count + 1)
                yield store("lock", 0, "lock.freed")
                return 1
        return 0

    def broken(outcome: Outcome) -> str | None:
        lost = outcome.last["count"] != sum(outcome.returned.values())
        return "two threads are inside of a lock" if lost else None

    return Protocol({"lock": 0, "count": 0}, {"one": locker, "other": locker}, broken)


# ---- the helper threads: a job of one task


def posts(job: str) -> Program:
    """parallel_for(), when the helper takes the task. What came of it."""
    if (yield change("busy", lambda _: True, "pool.busy_set")):
        return None
    yield store("task", job)
    yield store("finished", 0)
    number, _ = yield load("ticket")
    yield store("ticket", (number + 1, 1), "pool.ticket_given")
    yield add("posted", 1, "pool.posted")
    if (yield load("finished", "pool.finished")) != 1:
        return None  # it would wait for ever
    result = yield load("result")
    yield store("busy", False, "pool.busy_ended")
    return result


def helps() -> Program:
    """helper_main(), once. What it saw posted, if it then goes to sleep on that."""
    seen = yield load("posted", "pool.posted_seen")
    number, left = yield load("ticket")
    while left:
        fewer = (number, left - 1)
        found = yield cas("ticket", (number, left), fewer, "pool.ticket_taken", "relaxed")
        if found == (number, left):
            task = yield load("task")
            yield store("result", task)
            yield add("finished", 1, "pool.task_finished")
            return None
        number, left = found
    return seen


def results(outcome: Outcome) -> str | None:
    for job in ("first", "second"):
        if outcome.returned.get(job) not in (None, job):
            return "a job gets the result of another"
    left = outcome.last["ticket"][1]
    if left and outcome.last["posted"] in (outcome.returned["helper"], outcome.returned["other"]):
        return "a helper sleeps beside a task"
    return None


def two_jobs() -> Protocol:
    first = {
        "busy": False,
        "task": "none",
        "result": "none",
        "ticket": (0, 0),
        "posted": 0,
        "finished": 0,
    }
    threads = {
        "first": lambda: posts("first"),
        "second": lambda: posts("second"),
        "helper": helps,
        "other": helps,
    }
    return Protocol(first, threads, results)


PROTOCOLS = (a_message, two_who_make_the_same, two_who_lock, two_jobs)
