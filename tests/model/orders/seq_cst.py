"""Whether an execution has one order of its seq_cst operations: the relation `psc` of RC11."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

from model.orders.operations import Event, Order


class SeqCst:
    """Whether there is one order of all seq_cst operations and fences of an execution that agrees
    with what was read: the relation `psc` of RC11 has no cycle. Everything else was seen to while
    the execution grew, and a cycle does not go away by going on: so this is asked at the end, and
    only of executions that break a rule."""

    def __init__(
        self,
        threads: Sequence[Sequence[Event]],
        modifications: Mapping[str, Sequence[int]],  # of each place, the numbers of its stores
    ) -> None:
        self.events = [event for events in threads for event in events]
        self.thread_of = [i for i, events in enumerate(threads) for _ in events]
        self.place_in_order = {
            number: i for numbers in modifications.values() for i, number in enumerate(numbers)
        }
        self.count = len(self.events)
        self.before = self.happens_before()

    def possible(self) -> bool:
        n = self.count
        strong = [i for i in range(n) if self.events[i].order is Order.SEQ_CST]
        if len(strong) < 2:
            return True
        follows = {i: {j for j in strong if i != j and self.psc(i, j)} for i in strong}
        while follows:
            free = [i for i, after in follows.items() if not after & follows.keys()]
            if not free:
                return False
            for i in free:
                del follows[i]
        return True

    def happens_before(self) -> list[int]:
        """For each event those that happen before it, as bits."""
        writer = {e.number: i for i, e in enumerate(self.events) if e.number >= 0}
        before = [0] * self.count
        edges = [0] * self.count
        for i, event in enumerate(self.events):
            for j in range(i):
                if self.thread_of[j] == self.thread_of[i]:
                    edges[i] |= 1 << j
            if event.source in writer:
                for acquirer in self.acquirers(i):
                    for releaser in self.releasers(writer[event.source], writer):
                        edges[acquirer] |= 1 << releaser
        changed = True
        while changed:
            changed = False
            for i in range(self.count):
                mask = edges[i]
                for j in range(self.count):
                    if edges[i] >> j & 1:
                        mask |= before[j]
                if mask != before[i]:
                    before[i] = mask
                    changed = True
        return before

    def acquirers(self, i: int) -> list[int]:
        """The read, and the fences behind it."""
        found = [i] if self.events[i].order.acquires else []
        for j in range(i + 1, self.count):
            if self.thread_of[j] == self.thread_of[i] and self.events[j].kind == "fence":
                found += [j] if self.events[j].order.acquires else []
        return found

    def releasers(self, i: int, writer: Mapping[int, int]) -> list[int]:
        """The store, the fences before it, and the same of the store it exchanged."""
        found = [i] if self.events[i].order.releases else []
        for j in range(i):
            if self.thread_of[j] == self.thread_of[i] and self.events[j].kind == "fence":
                found += [j] if self.events[j].order.releases else []
        if self.events[i].source in writer:
            found += self.releasers(writer[self.events[i].source], writer)
        return found

    def hb(self, a: int, b: int) -> bool:
        return self.before[b] >> a & 1 == 1

    def sb(self, a: int, b: int) -> bool:
        return self.thread_of[a] == self.thread_of[b] and a < b

    def position(self, e: Event) -> int:
        return self.place_in_order[e.number if e.number >= 0 else e.source]

    def eco(self, a: int, b: int, reads_count: bool = True) -> bool:
        """One comes before the other in the history of their place. Without `reads_count` only
        where the other is a store: mo or fr."""
        x, y = self.events[a], self.events[b]
        if a == b or x.kind == "fence" or x.place != y.place:
            return False
        if y.number < 0 and not reads_count:
            return False
        if y.number < 0 and x.number >= 0:
            return self.position(x) <= self.position(y)
        return self.position(x) < self.position(y)

    def scb(self, a: int, b: int) -> bool:
        if self.sb(a, b) or self.eco(a, b, reads_count=False):
            return True
        x, y = self.events[a].place, self.events[b].place
        if x == y and x and self.hb(a, b):
            return True
        events = range(self.count)
        leaving = [c for c in events if self.sb(a, c) and self.elsewhere(a, c)]
        coming = [d for d in events if self.sb(d, b) and self.elsewhere(d, b)]
        return any(self.hb(c, d) for c in leaving for d in coming)

    def elsewhere(self, a: int, b: int) -> bool:
        x, y = self.events[a].place, self.events[b].place
        return x != y or not x

    def psc(self, a: int, b: int) -> bool:
        events = range(self.count)
        fences = self.events[a].kind == "fence", self.events[b].kind == "fence"
        froms = [a, *(c for c in events if fences[0] and self.hb(a, c))]
        tos = [b, *(d for d in events if fences[1] and self.hb(d, b))]
        if any(self.scb(c, d) for c in froms for d in tos):
            return True
        if not all(fences):
            return False
        return self.hb(a, b) or any(self.eco(c, d) for c in froms for d in tos)
