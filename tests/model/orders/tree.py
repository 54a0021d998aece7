"""The sums above the leaves: tree.cc. A node is (version, sum)."""

from __future__ import annotations

from collections.abc import Callable

from model.orders.operations import Outcome, Program, Protocol, cas, load, store

CHILDREN = {"node": ("leaf 0", "leaf 1"), "root": ("node", "beside")}
LOST = "the root is not the sum of the leaves"


def sum_below(node: str) -> Program:
    total = 0
    for child in CHILDREN[node]:
        value = yield load(child)
        total += value[1] if isinstance(value, tuple) else value
    return total


def renew(node: str) -> Program:
    seen = yield load(node, "tree.node")
    while True:
        total = yield from sum_below(node)
        found = yield cas(node, seen, (seen[0] + 1, total), "tree.renewed")
        if found == seen:
            return
        seen = found


def renew_with_others(node: str) -> Program:
    """Tree::refresh_nodes: many are read before any is exchanged."""
    seen = yield load(node, "tree.node")
    total = yield from sum_below(node)
    if (yield cas(node, seen, (seen[0] + 1, total), "tree.renewed_with_others")) != seen:
        yield from renew(node)


def changing(leaf: int, by: Callable[[str], Program]) -> Callable[[], Program]:
    def program() -> Program:
        yield store(f"leaf {leaf}", 10 + leaf)
        for node in CHILDREN:
            yield from by(node)

    return program


def summed(outcome: Outcome) -> str | None:
    last = outcome.last
    return None if last["root"][1] == last["leaf 0"] + last["leaf 1"] else LOST


def two_changes(one: Callable[[str], Program], other: Callable[[str], Program]) -> Protocol:
    first = {"leaf 0": 1, "leaf 1": 1, "beside": 0, "node": (1, 2), "root": (1, 2)}
    return Protocol(first, {"one": changing(0, one), "other": changing(1, other)}, summed)


def two_refreshes() -> Protocol:
    return two_changes(renew, renew)


def two_refreshes_of_many() -> Protocol:
    return two_changes(renew_with_others, renew_with_others)


def a_refresh_and_one_of_many() -> Protocol:
    return two_changes(renew, renew_with_others)


PROTOCOLS = (two_refreshes, two_refreshes_of_many, a_refresh_and_one_of_many)
