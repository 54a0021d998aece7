"""A priority and the leaf that follows from it: priorities.cc. A leaf is the word and the exponent
it was computed from, so that one that is out of date is told from all others."""

from __future__ import annotations

from collections.abc import Callable

from model.orders.operations import Outcome, Program, Protocol, cas, fence, load, store

GONE, NEVER = "gone", "never"
STALE = "a leaf does not follow from its priority"


def weigh(word: object, alpha: int) -> object:
    return 0 if word in (GONE, NEVER) else (word, alpha)


def refresh_leaf() -> Program:
    seen = yield load("word")
    while True:
        exponent = yield load("alpha")
        yield store("leaf", weigh(seen, exponent), "leaves.stored")
        now = yield load("word", "leaves.word_again")
        if now == seen and (yield load("alpha", "leaves.alpha_again")) == exponent:
            return
        seen = now


def refresh_leaves() -> Program:
    """Of one row, though it is made for many."""
    exponent = yield load("alpha")
    yield fence("leaves.before_many")
    seen = yield load("word")
    yield store("leaf", weigh(seen, exponent))
    yield fence("leaves.after_many")
    same = (yield load("alpha")) == exponent
    if not same or (yield load("word")) != seen:
        yield from refresh_leaf()


def exchange(lap: int, desired: object) -> Program:
    seen = yield load("word")
    while seen != GONE and seen[1] == lap:
        found = yield cas("word", seen, desired, "leaves.exchanged")
        if found == seen:
            return True
        seen = found
    return False


def update(raw: int, lap: int = 1) -> Callable[[], Program]:
    def program() -> Program:
        if (yield from exchange(lap, (raw, lap))):
            yield from refresh_leaves()

    return program


def drop(lap: int = 1) -> Program:
    """Takes a row's priority away where no other comes."""
    if (yield from exchange(lap, GONE)):
        yield from refresh_leaf()


def retire() -> Program:
    """The same where another is on its way."""
    yield store("word", GONE)
    yield store("leaf", 0)


def commit(raw: int, lap: int) -> Program:
    yield store("word", (raw, lap), "leaves.committed")
    yield from refresh_leaf()


def overwrite() -> Program:
    yield from retire()
    yield from commit(9, 2)


def set_alpha(look: str = "leaves.word_looked_for") -> Program:
    """With Priorities::refresh_all, which passes by what never had a row."""
    yield store("alpha", 2, "leaves.alpha_set")
    if (yield load("word", look)) != NEVER:
        yield from refresh_leaf()


def follows(outcome: Outcome) -> str | None:
    last = outcome.last
    return None if last["leaf"] == weigh(last["word"], last["alpha"]) else STALE


def beside(word: object = (1, 1), **threads: Callable[[], Program]) -> Protocol:
    return Protocol({"word": word, "alpha": 1, "leaf": weigh(word, 1)}, threads, follows)


def two_updates() -> Protocol:
    return beside(one=update(2), other=update(3))


def an_update_and_a_new_row() -> Protocol:
    return beside(update=update(2), writer=overwrite)


def an_update_and_a_row_that_goes() -> Protocol:
    return beside(update=update(2), writer=drop)


def an_update_and_another_exponent() -> Protocol:
    return beside(update=update(2), alpha=set_alpha)


def a_new_row_and_another_exponent() -> Protocol:
    return beside(writer=overwrite, alpha=set_alpha)


def a_first_row_and_another_exponent() -> Protocol:
    return beside(NEVER, writer=lambda: commit(9, 1), alpha=set_alpha)


def an_update_and_a_row_that_goes_plainly() -> Protocol:
    """What was wrong: nobody looks again at a leaf that plain stores have set to 0."""
    return beside(update=update(2), writer=retire)


PROTOCOLS = (
    two_updates,
    an_update_and_a_new_row,
    an_update_and_a_row_that_goes,
    an_update_and_another_exponent,
    a_new_row_and_another_exponent,
    a_first_row_and_another_exponent,
)
