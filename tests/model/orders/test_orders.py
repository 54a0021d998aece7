"""Every protocol holds with its orders as they are, and each order is needed: weakened by one step,
it lets a rule be broken."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache

import pytest

from model.orders import (
    blocks,
    clear,
    deeper,
    leaves,
    links,
    owners,
    process,
    queue,
    rows,
    saving,
    tree,
    waits,
)
from model.orders.memory import Broken, Explored, Explorer
from model.orders.operations import Order, Protocol
from model.orders.table import ORDERS, TABLE, weaker

MODULES = (rows, blocks, clear, owners, leaves, tree, queue, links, saving, waits, process)
Make = Callable[[], Protocol]
PROTOCOLS: list[Make] = [make for module in MODULES for make in module.PROTOCOLS]


@cache
def explored(make: Make) -> tuple[Explored, frozenset[str]]:
    """With orders as they are; and the names of those that it has."""
    explorer = Explorer(make(), ORDERS)
    return explorer.explore(), frozenset(explorer.used)


@pytest.mark.parametrize("make", PROTOCOLS, ids=lambda make: make.__name__)
def test_every_execution_keeps_the_rule(make: Make) -> None:
    found, _ = explored(make)
    assert found.executions > 1


WEAKENED = [
    pytest.param(name, order, rule, id=f"{name}-{order.value}")
    for name, named in TABLE.items()
    for order, rule in zip(weaker(named), named.breaks, strict=True)
]


@pytest.mark.parametrize(("name", "order", "rule"), WEAKENED)
def test_every_order_is_needed(name: str, order: Order, rule: str) -> None:
    rules = set()
    for make in PROTOCOLS:
        if name in explored(make)[1]:
            try:
                Explorer(make(), ORDERS | {name: order}).explore()
            except Broken as found:
                rules.add(found.rule)
                if found.rule == rule:
                    return
    pytest.fail(f"{rule!r} is not broken, only {rules}")


WRONG = {
    leaves.an_update_and_a_row_that_goes_plainly: leaves.STALE,
    owners.a_new_owner_and_who_looks_twice: "a live owner is taken for dead",
    queue.a_draw_given_back_and_two_who_count_afterwards: "a draw that was given back is forgotten",
    saving.a_row_that_is_overwritten_and_an_update_the_other_way_round: (
        "an id that was given is refused"
    ),
}


@pytest.mark.parametrize("make", WRONG, ids=lambda make: make.__name__)
def test_what_was_wrong_is_found(make: Make) -> None:
    with pytest.raises(Broken) as found:
        Explorer(make(), ORDERS).explore()
    assert found.value.rule == WRONG[make]


def test_a_guess_at_another_order_is_refused() -> None:
    with pytest.raises(KeyError, match=r"rows\.writing"):
        Explorer(rows.a_row(), {}).explore()


@pytest.mark.soak
@pytest.mark.parametrize("make", deeper.PROTOCOLS, ids=lambda make: make.__name__)
def test_more_threads_keep_the_rule(make: Make) -> None:
    assert Explorer(make(), ORDERS).explore().executions > 50
