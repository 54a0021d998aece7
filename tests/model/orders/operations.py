"""What small programs do to memory: operations on atomic words, and what is asked of a protocol.

A program is a generator that yields operations and is sent what they read:

    def writer() -> Program:
        yield store("data", 7)
        yield store("ready", 1, "published")

The third argument names an order of the table (or is one): tests weaken orders by name.
"""

from __future__ import annotations

from collections.abc import Callable, Generator, Mapping
from dataclasses import dataclass
from enum import Enum
from typing import Any, NamedTuple

Value = Any  # hashable
Change = Callable[[Any], Any]


class Order(Enum):
    RELAXED = "relaxed"
    ACQUIRE = "acquire"
    RELEASE = "release"
    ACQ_REL = "acq_rel"
    SEQ_CST = "seq_cst"

    @property
    def acquires(self) -> bool:
        return self in (Order.ACQUIRE, Order.ACQ_REL, Order.SEQ_CST)

    @property
    def releases(self) -> bool:
        return self in (Order.RELEASE, Order.ACQ_REL, Order.SEQ_CST)

    @property
    def on_failure(self) -> Order:
        """Of a compare-and-swap that was given one order for both."""
        return {Order.ACQ_REL: Order.ACQUIRE, Order.RELEASE: Order.RELAXED}.get(self, self)


class Op(NamedTuple):
    """Reads when `change` is not a value; writes unless `change` makes None of what is read."""

    kind: str
    place: str
    value: Value
    change: Change | None
    order: str
    failure: str = ""  # the order of a compare-and-swap that fails; else that which C++ derives


Program = Generator[Op, Any, Value]


def load(place: str, order: str = "relaxed") -> Op:
    return Op("load", place, None, lambda _: None, order)


def store(place: str, value: Value, order: str = "relaxed") -> Op:
    return Op("store", place, value, None, order)


def cas(
    place: str, expected: Value, desired: Value, order: str = "relaxed", failure: str = ""
) -> Op:
    """Reads `expected` where it succeeds."""
    return Op(
        "cas", place, None, lambda seen: desired if seen == expected else None, order, failure
    )


def add(place: str, n: int, order: str = "relaxed") -> Op:
    return Op("add", place, None, lambda seen: seen + n, order)


def change(place: str, how: Change, order: str = "relaxed") -> Op:
    """Any other read-modify-write."""
    return Op("change", place, None, how, order)


def fence(order: str) -> Op:
    return Op("fence", "", None, None, order)


@dataclass(frozen=True)
class Outcome:
    """Of an execution: what the threads returned, and the last value of each place."""

    returned: Mapping[str, Any]
    last: Mapping[str, Any]


@dataclass(frozen=True)
class Protocol:
    """Programs that run beside each other, and the rule that holds for what comes of them."""

    first: Mapping[str, Value]  # the values of places before anybody starts
    threads: Mapping[str, Callable[[], Program]]
    broken: Callable[[Outcome], str | None]  # the rule that is broken


class Event(NamedTuple):
    """One operation that was executed. Stores are numbered; `source` is the one that was read."""

    kind: str
    place: str
    order: Order
    read: Value
    source: int  # -1: did not read
    wrote: Value
    number: int  # -1: did not write
