"""More writers than blocks: some calls are refused, and what is stored stays right."""

from __future__ import annotations

import os
import signal
import time

from conformance.children import in_fork, joined
from replay_buffer import Busy, NotEnoughRows, ReplayBuffer
from views.traffic import CHECKS, SCHEMA, Actor, config


def write_what_goes(buffer: ReplayBuffer, first: int) -> None:
    """Writes for ever; what was refused is written again. Gives its block back now and then."""
    while True:
        actor = Actor(buffer, first, 5, ("same_step", "next_step")[first % 2])
        first += 5
        for _ in range(40):
            try:
                actor.act()
            except Busy:
                continue
        actor.writer.close()


def test_steps_are_not_mixed_where_writers_are_refused() -> None:
    buffer = ReplayBuffer.create("shm:", config(16, block_rows=4), schema=SCHEMA)
    # A step that was refused half-way is written again: transitions stay checkable.
    views = [(buffer.view(*parts), check) for parts, check in CHECKS[:2]]
    children = [in_fork(write_what_goes, buffer, 1 + 1_000_000 * i) for i in range(6)]
    try:
        drawn, deadline = 0, time.monotonic() + 20
        while drawn < 300 and time.monotonic() < deadline:
            view, check = views[drawn % 2]
            try:
                batch = view.sample(8)
            except NotEnoughRows:
                continue
            check(batch)
            drawn += 1
    finally:
        for child in children:
            os.kill(child, signal.SIGKILL)
        for child in children:
            joined(child)
    for view, check in views:
        starts = view.starts()
        if starts.size:
            check(view.get(starts))
    buffer.close()
