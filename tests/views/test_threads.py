"""While others write: no torn row, no mixture, and nothing across the cursor."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import Any

import pytest

from replay_buffer import NotEnoughRows, ReplayBuffer
from replay_buffer.testing.crowd import PATIENCE, Crowd
from views.traffic import CHECKS, SCHEMA, Actor, Relay, config

BATCHES = 150


def sample_and_check(buffer: ReplayBuffer, batches: int = BATCHES) -> int:
    """Draws from every view; how many batches there were."""
    views = [(buffer.view(*parts), check) for parts, check in CHECKS]
    drawn = 0
    for i in range(batches):
        view, check = views[i % len(views)]
        try:
            batch = view.sample(16)
        except NotEnoughRows:
            continue  # no such item just now: episodes are overwritten quickly
        drawn += 1
        check(batch)
    return drawn


def write(crowd: Crowd, actor: Actor | Relay) -> None:
    count = 0
    while not crowd.over.is_set():
        actor.act()
        count += 1
        if count % 97 == 0:
            actor.end(count % len(actor.streams))


def drawn_beside(
    buffer: ReplayBuffer,
    actors: Sequence[Actor | Relay],
    learners: int,
    batches: int = BATCHES,
    patience: float = PATIENCE,
) -> int:
    """How many batches learners draw while actors write."""
    with Crowd(patience) as crowd:
        for actor in actors:
            crowd.start(write, crowd, actor)
        crowd.until(lambda: buffer.stats()["rows_added"] > buffer.capacity)
        readers = [crowd.start(sample_and_check, buffer, batches) for _ in range(learners)]
        return sum(reader.result() for reader in readers)


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
@pytest.mark.parametrize(("capacity", "block_rows"), [(48, 4), (150, 9), (1000, None)])
def test_views_while_two_writers_lap_the_ring(
    capacity: int, block_rows: int | None, strategy: Any
) -> None:
    buffer = ReplayBuffer(config(capacity, strategy, block_rows), schema=SCHEMA, seed=1)
    actors = [Actor(buffer, 1, 2, "same_step"), Actor(buffer, 11, 3, "next_step")]
    assert drawn_beside(buffer, actors, 2) > 0
    for parts, check in CHECKS:
        view = buffer.view(*parts)
        starts = view.starts()
        if starts.size:
            check(view.get(starts))


def test_views_while_rows_are_cleared() -> None:
    buffer = ReplayBuffer(config(200, block_rows=8), schema=SCHEMA, seed=1)
    # After a clear a stream goes on in the middle of an episode: transitions stay checkable.
    views = [(buffer.view(*parts), check) for parts, check in CHECKS[:2]]
    actor = Actor(buffer, 1, 3, "same_step")

    def clear() -> None:
        time.sleep(0.003)
        buffer.clear()

    with Crowd() as crowd:
        crowd.repeat(clear)
        for i in range(600):
            for _ in range(5):
                actor.act()
            view, check = views[i % len(views)]
            try:
                check(view.sample(8))
            except NotEnoughRows:
                continue


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
def test_views_while_writers_come_and_go(strategy: str) -> None:
    buffer = ReplayBuffer(config(300, strategy, block_rows=16), schema=SCHEMA, seed=1)
    assert drawn_beside(buffer, [Relay(buffer, 0), Relay(buffer, 10**9)], 2) > 100


@pytest.mark.soak
def test_views_while_two_writers_lap_the_ring_for_long() -> None:
    buffer = ReplayBuffer(config(64, block_rows=5), schema=SCHEMA, seed=1)
    actors = [Actor(buffer, 1, 2, "same_step"), Actor(buffer, 11, 3, "next_step")]
    assert drawn_beside(buffer, actors, 3, 20_000, patience=3600) > 1000
