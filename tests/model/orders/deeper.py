"""The same protocols with more threads and longer programs, for `make soak`."""

from __future__ import annotations

from model.orders import leaves, queue, rows, tree, waits
from model.orders.operations import Program, Protocol


def two_updates_and_a_new_row() -> Protocol:
    return leaves.beside(
        one=leaves.update(2), two=leaves.update(3), writer=lambda: leaves.commit(9, 2)
    )


def an_update_another_look_and_a_row_that_goes() -> Protocol:
    return leaves.beside(one=leaves.refresh_leaves, two=leaves.update(3), writer=leaves.drop)


def two_changes_and_a_refresh() -> Protocol:
    changes = tree.two_changes(tree.renew, tree.renew_with_others)
    refresh = {"refresh": lambda: tree.renew("node")}
    return Protocol(changes.first, {**changes.threads, **refresh}, changes.broken)


def a_stretch_twice() -> Protocol:
    def writer() -> Program:
        for row_id in (2, 3, 4, 5):
            yield from rows.write(row_id % 2, row_id, ("left",))

    threads = {"writer": writer, "reader": lambda: rows.read((0, 1), ("left",))}
    return Protocol(rows.rows(2, ("left",)), threads, rows.torn)


def two_changes_and_two_who_wait() -> Protocol:
    threads = {
        "changer": lambda: waits.changes(1),
        "other": lambda: waits.changes(1),
        "waiter": lambda: waits.waits(1),
        "next": lambda: waits.waits(1),
    }
    return Protocol({"there": 0, "waiting": 0, "bell": 0}, threads, waits.overslept)


def two_draws_given_back_and_two_who_take() -> Protocol:
    return queue.giving_and_taking((0, 1), takers=2, total=1, row_0=1)


PROTOCOLS = (
    two_updates_and_a_new_row,
    an_update_another_look_and_a_row_that_goes,
    two_changes_and_a_refresh,
    a_stretch_twice,
    two_changes_and_two_who_wait,
    two_draws_given_back_and_two_who_take,
)
