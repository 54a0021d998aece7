"""What C++ lets small programs see: every execution of a few threads on atomic words.

Memory is not one value for each place but all the stores that were made to it, in an order of its
own (the modification order). A thread knows some of these stores: a load gives it any one that is
not older than what it knows. So loads read old values, and stores become visible in any order,
unless an acquire reads what a release left: then the reader knows what the writer knew.

These are the rules of C++20 as "Repairing Sequential Consistency in C/C++11" (RC11) words them,
down to the order of seq_cst operations and fences. They allow all that 64-bit ARM does, and more
(two readers may see two stores in different orders), except one thing: a load never takes a value
that is stored later in the order of execution. ARM may put a relaxed store before a relaxed load
that stands before it; here it may not.

What is explored are executions, not interleavings: which store each load read, and how the stores
to a place follow each other. Threads that do not meet are not tried in every order.
"""

from __future__ import annotations

from collections.abc import Hashable, Iterator, Mapping
from dataclasses import dataclass
from typing import NamedTuple

from model.orders.operations import Event, Op, Order, Outcome, Protocol, Value
from model.orders.seq_cst import SeqCst


class Progress(NamedTuple):
    """How far a thread is. What it knows and hands on are sets of stores, as bits."""

    events: tuple[Event, ...] = ()
    results: tuple[Value, ...] = ()  # of all that was yielded: what it read, or None
    knows: int = 0
    to_acquire: int = 0  # what a fence would make known of what was read
    released: int = 0  # what it knew at its last fence that releases


class Store(NamedTuple):
    value: Value
    carries: int  # what who acquires it will know
    exchanged: bool  # follows the store before it with none between


class Execution(NamedTuple):
    threads: tuple[Progress, ...]
    stores: dict[int, Store]
    modifications: dict[str, tuple[int, ...]]  # of each place, in their order

    def key(self) -> Hashable:
        return (
            tuple((len(t.events), tuple(e.source for e in t.events)) for t in self.threads),
            tuple(self.modifications.values()),
        )


class Broken(Exception):
    """A rule is broken. The message is what every thread read and wrote."""

    def __init__(self, rule: str, story: str) -> None:
        super().__init__(f"{rule}\n{story}\n  => {rule}")
        self.rule = rule


@dataclass(frozen=True)
class Explored:
    executions: int  # complete ones
    states: int


MOST_STORES = 32  # of one thread


class Explorer:
    """All executions of a protocol, with orders as named. Raises Broken."""

    def __init__(self, protocol: Protocol, orders: Mapping[str, Order] | None = None) -> None:
        self.protocol = protocol
        self.orders = {order.value: order for order in Order} | dict(orders or {})
        self.names = list(protocol.threads)
        self.programs = list(protocol.threads.values())
        self.used: set[str] = set()  # names of orders
        self.next_ops: dict[tuple[int, tuple[Value, ...]], Op | tuple[Value]] = {}

    def explore(self, most: int = 500_000) -> Explored:
        """`most` states are a guard against a program that grew by mistake."""
        first = self.first()
        waiting = [first]
        found = {first.key()}
        complete = 0
        while waiting:
            execution = waiting.pop()
            successors = list(self.successors(execution))
            if not successors:
                complete += 1
                self.judge(execution)
            for after in successors:
                key = after.key()
                if key not in found:
                    found.add(key)
                    waiting.append(after)
            assert len(found) <= most, f"more than {most} states"
        return Explored(complete, len(found))

    def first(self) -> Execution:
        known = 0
        stores: dict[int, Store] = {}
        modifications: dict[str, tuple[int, ...]] = {}
        for i, (place, value) in enumerate(self.protocol.first.items()):
            number = len(self.names) * MOST_STORES + i
            known |= 1 << number
            stores[number] = Store(value, 0, False)
            modifications[place] = (number,)
        return Execution(tuple(Progress(knows=known) for _ in self.names), stores, modifications)

    def next_op(self, at: int, results: tuple[Value, ...]) -> Op | tuple[Value]:
        """What thread `at` does after it read these; at its end, what it returns."""
        if (op := self.next_ops.get((at, results))) is not None:
            return op
        program = self.programs[at]()
        try:
            op = next(program)
            for result in results:
                op = program.send(result)
            self.used.add(op.order)
        except StopIteration as end:
            self.next_ops[at, results] = returned = (end.value,)
            return returned
        self.next_ops[at, results] = op
        return op

    def successors(self, execution: Execution) -> Iterator[Execution]:
        """What does not read is done first: nothing that others do changes it. So a step is one
        way to do that, or one load that could be next."""
        reads = []
        for at, thread in enumerate(execution.threads):
            op = self.next_op(at, thread.results)
            if not isinstance(op, Op):
                continue
            if op.kind == "fence":
                yield self.fenced(execution, at, self.orders[op.order])
                return
            if op.change is None:
                yield from self.stored(execution, at, op)
                return
            reads.append((at, op))
        for at, op in reads:
            yield from self.loaded(execution, at, op)

    def fenced(self, execution: Execution, at: int, order: Order) -> Execution:
        thread = execution.threads[at]
        knows = thread.knows | thread.to_acquire if order.acquires else thread.knows
        after = thread._replace(
            events=(*thread.events, Event("fence", "", order, None, -1, None, -1)),
            results=(*thread.results, None),
            knows=knows,
            released=knows if order.releases else thread.released,
        )
        return with_thread(execution, at, after)

    def oldest_known(self, thread: Progress, modifications: tuple[int, ...]) -> int:
        return max(i for i, number in enumerate(modifications) if thread.knows >> number & 1)

    def stored(self, execution: Execution, at: int, op: Op) -> Iterator[Execution]:
        """Anywhere behind what the thread knows, but between a store and its exchange."""
        thread, order = execution.threads[at], self.orders[op.order]
        modifications = execution.modifications[op.place]
        for to in range(self.oldest_known(thread, modifications) + 1, len(modifications) + 1):
            if to == len(modifications) or not execution.stores[modifications[to]].exchanged:
                yield self.write(execution, at, op, order, to, op.value, None, -1)

    def loaded(self, execution: Execution, at: int, op: Op) -> Iterator[Execution]:
        """Any store that is not older than what the thread knows."""
        thread, order = execution.threads[at], self.orders[op.order]
        modifications = execution.modifications[op.place]
        assert op.change is not None
        for i in range(self.oldest_known(thread, modifications), len(modifications)):
            source = modifications[i]
            value, carries, _ = execution.stores[source]
            desired = op.change(value)
            if desired is None:
                how = self.orders[op.failure] if op.failure else order.on_failure
                event = Event(op.kind, op.place, how, value, source, None, -1)
                after = reading(thread, source, carries, how)._replace(
                    events=(*thread.events, event), results=(*thread.results, value)
                )
                yield with_thread(execution, at, after)
            elif (
                i + 1 == len(modifications) or not execution.stores[modifications[i + 1]].exchanged
            ):
                yield self.write(execution, at, op, order, i + 1, desired, value, source)

    def write(
        self,
        execution: Execution,
        at: int,
        op: Op,
        order: Order,
        to: int,
        value: Value,
        read: Value,
        source: int,
    ) -> Execution:
        thread = execution.threads[at]
        number = at * MOST_STORES + sum(event.number >= 0 for event in thread.events)
        assert number < (at + 1) * MOST_STORES, f"{self.names[at]} stores too often"
        if source >= 0:
            thread = reading(thread, source, execution.stores[source].carries, order)
        knows = thread.knows | 1 << number
        carries = knows if order.releases else thread.released
        if source >= 0:  # an exchange hands on what the store before it does
            carries |= execution.stores[source].carries
        event = Event(op.kind, op.place, order, read, source, value, number)
        after = thread._replace(
            events=(*thread.events, event), results=(*thread.results, read), knows=knows
        )
        modifications = execution.modifications[op.place]
        return with_thread(
            Execution(
                execution.threads,
                execution.stores | {number: Store(value, carries, source >= 0)},
                execution.modifications
                | {op.place: (*modifications[:to], number, *modifications[to:])},
            ),
            at,
            after,
        )

    # ---- complete executions

    def judge(self, execution: Execution) -> None:
        returned = {}
        for at, (name, thread) in enumerate(zip(self.names, execution.threads, strict=True)):
            end = self.next_op(at, thread.results)
            assert not isinstance(end, Op), f"{name} cannot go on"
            returned[name] = end[0]
        last = {
            place: execution.stores[numbers[-1]].value
            for place, numbers in execution.modifications.items()
        }
        rule = self.protocol.broken(Outcome(returned, last))
        if (
            rule is not None
            and SeqCst(
                [thread.events for thread in execution.threads], execution.modifications
            ).possible()
        ):
            raise Broken(rule, self.story(execution))

    def story(self, execution: Execution) -> str:
        writers = {
            event.number: name
            for name, thread in zip(self.names, execution.threads, strict=True)
            for event in thread.events
            if event.number >= 0
        }
        lines = []
        for name, thread in zip(self.names, execution.threads, strict=True):
            for event in thread.events:
                says = [f"{name:10} {event.kind:6} {event.place:14} {event.order.value:8}"]
                if event.source >= 0:
                    says.append(f"reads {event.read} of {writers.get(event.source, 'the start')}")
                if event.number >= 0:
                    says.append(f"writes {event.wrote}")
                lines.append(" ".join(says).rstrip())
        for place, numbers in execution.modifications.items():
            if len(numbers) > 2:
                values = " -> ".join(str(execution.stores[number].value) for number in numbers)
                lines.append(f"{place} is {values}")
        return "\n".join(lines)


def with_thread(execution: Execution, at: int, thread: Progress) -> Execution:
    threads = execution.threads
    return execution._replace(threads=(*threads[:at], thread, *threads[at + 1 :]))


def reading(thread: Progress, source: int, carries: int, order: Order) -> Progress:
    knows = thread.knows | 1 << source
    if order.acquires:
        return thread._replace(knows=knows | carries)
    return thread._replace(knows=knows, to_acquire=thread.to_acquire | carries)
