"""The protocol of the ring keeps its rules in every interleaving, with every death at every step;
and each way we know to get it wrong is found out.

docs/internals/model.md says what is modelled and how to read a counterexample.
"""

from __future__ import annotations

from dataclasses import replace

import pytest

from model.explore import Counterexample, Explored, explore
from model.ring_config import Config, Fault, Mender, Reader, Saver, Updater, Writer
from model.ring_memory import Shape
from model.ring_rules import RingModel

RING = Shape(blocks=2, rows=2)
TREE = Shape(blocks=1, rows=2, prioritized=True)  # two leaves, one node, the root
WIDE_TREE = Shape(blocks=2, rows=1, prioritized=True)  # two leaves, each with its node, the root

A = Writer("A", batches=(2, 1), mortal=True)
B = Writer("B", batches=(1, 2), mortal=True)
ONE_ROW = Writer("W", batches=(1,), mortal=True)

TWO_WRITERS = Config(RING, (A, B), crashes=1)
THREE_IN_A_BLOCK = Config(
    TREE,
    (
        Writer("A", (2,), mortal=True),
        Writer("B", (1,), mortal=True),
        Writer("C", (1,), mortal=True),
    ),
    crashes=2,
    payload=False,
    busy=True,
)
UPDATES = Config(
    TREE,
    (ONE_ROW, Updater("U", slot=0, raw=1, mortal=True), Updater("V", slot=1, raw=2, mortal=True)),
    crashes=1,
    payload=False,
)
UPDATES_OF_ONE_ROW = replace(
    UPDATES,
    processes=(
        ONE_ROW,
        Updater("U", slot=0, raw=1, mortal=True),
        Updater("V", slot=0, raw=2, mortal=True),
    ),
)
TWO_MENDERS = Config(
    Shape(blocks=1, rows=1, prioritized=True),
    (
        Updater("U", slot=0, raw=1, mortal=True),
        Updater("V", slot=0, raw=2, mortal=True),
        Mender("M", mortal=True),
        Mender("N", mortal=True),
    ),
    crashes=2,
    payload=False,
)
A_CHECKPOINT = Config(
    Shape(blocks=1, rows=2),
    (Writer("A", (1, 1), mortal=True), ONE_ROW, Saver("S")),
    crashes=1,
    payload=False,
    busy=True,
)

# What is explored, and about how many states that is: a model that explores nothing proves nothing.
CONFIGS = {
    "two writers and a reader, one killed": (
        Config(RING, (A, B, Reader("R", slots=(0, 3))), crashes=1),
        250_000,
    ),
    "the same in an empty ring": (
        Config(replace(RING, full=False), (A, B, Reader("R", slots=(0, 3))), crashes=1),
        118_000,
    ),
    "two writers and a reader of two rows, of which it looks at one again": (
        Config(RING, (A, B, Reader("R", slots=(0, 2), pairs=True)), crashes=1),
        500_000,
    ),
    "three writers in two blocks, one killed": (
        Config(
            Shape(blocks=2, rows=1),
            tuple(Writer(name, (1,), mortal=True) for name in "ABC"),
            crashes=1,
            payload=False,
            busy=True,
        ),
        42_000,
    ),
    "writer and reaper killed, a second reaper": (THREE_IN_A_BLOCK, 260_000),
    "updates of two rows and a writer, one killed": (UPDATES, 77_000),
    "updates of one row and a writer, one killed": (UPDATES_OF_ONE_ROW, 140_000),
    "updates below two nodes and a writer, one killed": (
        replace(UPDATES, shape=WIDE_TREE),
        43_000,
    ),
    "two menders, two killed of all": (TWO_MENDERS, 240_000),
    "a mender that counts again, beside a writer, two killed": (
        Config(
            WIDE_TREE,
            (
                ONE_ROW,
                Updater("U", slot=0, raw=1, mortal=True),
                Mender("M", recounts=True, mortal=True),
            ),
            crashes=2,
            payload=False,
        ),
        31_000,
    ),
    "a checkpoint of one block beside two writers, one killed": (A_CHECKPOINT, 400_000),
    "a checkpoint of two blocks beside two writers, one killed": (
        replace(
            A_CHECKPOINT,
            shape=Shape(blocks=2, rows=1),
            processes=(Writer("A", (1,), mortal=True), ONE_ROW, Saver("S")),
        ),
        210_000,
    ),
    "a writer stopped, another goes round": (
        Config(
            RING, (replace(A, mortal=False, stoppable=True), Writer("B", (2, 2, 2, 2))), stops=1
        ),
        41_000,
    ),
    "a writer killed, its reaper stopped": (
        Config(
            Shape(blocks=2, rows=1),
            (
                Writer("A", (1,), mortal=True),
                Writer("B", (1,), stoppable=True),
                Writer("C", (1, 1)),
            ),
            crashes=1,
            stops=1,
            payload=False,
            busy=True,
        ),
        180_000,
    ),
}


@pytest.mark.parametrize("name", CONFIGS)
def test_every_interleaving_keeps_the_rules(name: str) -> None:
    config, about = CONFIGS[name]
    explored = explore(RingModel(config))
    assert about * 0.8 < explored.states < about * 1.25
    assert explored.steps > explored.states
    assert explored.last > 0
    assert explored.alone < 100  # steps until a process is done, when all others pause


# For each fault a configuration that shows it, and the rule it breaks there.
FAULTS = {
    Fault.REFRESH_STORES: (UPDATES, "root is not the sum of its children"),
    Fault.REFRESH_SKIPS_EQUAL: (UPDATES, "node 0 is not the sum of its children"),
    Fault.REFRESH_COMPARES_VALUES: (UPDATES, "node 0 is not the sum of its children"),
    Fault.LEAF_NOT_READ_AGAIN: (UPDATES_OF_ONE_ROW, "leaf 0 does not follow from its priority"),
    Fault.UPDATE_UNMARKED: (UPDATES, "leaf 1 does not follow from its priority"),
    Fault.MEND_UNMARKED: (
        replace(
            TWO_MENDERS,
            processes=(
                Updater("U", slot=0, raw=1),
                Updater("V", slot=0, raw=2, mortal=True),
                Mender("M", mortal=True),
                Mender("N"),
            ),
        ),
        "leaf 0 does not follow from its priority",
    ),
    Fault.BURY_THE_UNMENDED: (TWO_MENDERS, "leaf 0 does not follow from its priority"),
    Fault.CLAIM_WITHOUT_NAME: (TWO_WRITERS, "block 0 is never given back"),
    Fault.REAP_THE_LIVING: (TWO_WRITERS, "block 0 is held by two live processes"),
    Fault.REAP_WITHOUT_REFRESH: (THREE_IN_A_BLOCK, "node 0 is not the sum of its children"),
    Fault.REAP_WITHOUT_LAP: (TWO_WRITERS, "before 0 is not about the lap before"),
    Fault.REAP_THIS_LAP_ONLY: (THREE_IN_A_BLOCK, "row 0 has no priority"),
    Fault.TAKEN_TWICE: (TWO_WRITERS, "taken 0 forgot the lap before"),
    Fault.READ_ONCE: (
        Config(RING, (A, Reader("R", slots=(0,)))),
        "a torn read is accepted",
    ),
    Fault.LOOK_AT_THE_LAST: (
        Config(RING, (A, Reader("R", slots=(0,), pairs=True))),
        "a torn read is accepted",
    ),
    Fault.SAVE_THE_HEAD_ALONE: (A_CHECKPOINT, "a checkpoint has a block that is ahead of its head"),
    Fault.SAVE_HALF_A_CLAIM: (A_CHECKPOINT, "a checkpoint has half a claim"),
    Fault.SAVE_THE_BLOCK_FIRST: (
        A_CHECKPOINT,
        "a checkpoint has a row that is newer than its block",
    ),
    Fault.SAVE_AT_ONE_LOOK: (A_CHECKPOINT, "a checkpoint has half a claim"),
}


@pytest.mark.parametrize("fault", Fault, ids=lambda fault: fault.name.lower())
def test_every_fault_is_found(fault: Fault) -> None:
    config, rule = FAULTS[fault]
    with pytest.raises(Counterexample) as found:
        explore(RingModel(replace(config, faults=frozenset({fault}))))
    assert found.value.rule == rule
    assert found.value.steps > 5


def test_a_counterexample_tells_the_way_there() -> None:
    config, rule = FAULTS[Fault.READ_ONCE]
    with pytest.raises(Counterexample) as found:
        explore(RingModel(replace(config, faults=frozenset({Fault.READ_ONCE}))))
    lines = str(found.value).splitlines()
    assert lines[0] == rule
    assert lines[-1] == f"  => {rule}"
    assert any("A:        exchange row 0: WRITING" in line for line in lines)
    assert any("row 0: {id 0 COMMITTED} -> {id 4 WRITING}" in line for line in lines)


# ---- the explorer itself


class Counting:
    """Processes that count to `to`, each in a byte of its own."""

    def __init__(self, actors: int, to: int) -> None:
        self.actors = actors
        self.to = to

    def initial(self) -> list[bytes]:
        return [bytes(self.actors)]

    def following(self, count: int) -> int | None:
        return count + 1 if count < self.to else None

    def successors(self, state: bytes) -> list[tuple[int, bytes]]:
        found = []
        for actor, count in enumerate(state):
            following = self.following(count)
            if following is not None:
                after = state[:actor] + bytes([following]) + state[actor + 1 :]
                found.append((actor, after))
        return found

    def broken(self, state: bytes) -> str | None:
        return None

    def broken_at_end(self, state: bytes) -> str | None:
        return None

    def broken_by_step(self, before: bytes, actor: int, after: bytes) -> str | None:
        return None

    def describe(self, before: bytes, actor: int, after: bytes) -> str:
        return f"{actor} counts to {after[actor]}"

    def epilogue(self, state: bytes) -> list[str]:
        return []


def test_the_explorer_visits_every_state_once() -> None:
    explored = explore(Counting(actors=3, to=4))
    assert explored == Explored(states=5**3, steps=3 * 4 * 5**2, last=1, depth=12, alone=4)


def test_the_explorer_finds_the_shortest_way_to_a_broken_state() -> None:
    class Meeting(Counting):
        def broken(self, state: bytes) -> str | None:
            return "both at two" if state == bytes([2, 2]) else None

    with pytest.raises(Counterexample) as found:
        explore(Meeting(actors=2, to=4))
    assert (found.value.rule, found.value.steps) == ("both at two", 4)


def test_the_explorer_finds_a_broken_step() -> None:
    class Together(Counting):
        def broken_by_step(self, before: bytes, actor: int, after: bytes) -> str | None:
            return "overtakes" if actor == 1 and after[1] > after[0] else None

    with pytest.raises(Counterexample, match="1 counts to 1") as found:
        explore(Together(actors=2, to=4))
    assert (found.value.rule, found.value.steps) == ("overtakes", 1)


def test_the_explorer_finds_a_run_that_goes_on_for_ever() -> None:
    class Circling(Counting):
        def following(self, count: int) -> int | None:
            return count + 1 if count < self.to else 1

    with pytest.raises(Counterexample, match="for ever"):
        explore(Circling(actors=2, to=3))


def test_the_explorer_refuses_a_model_that_is_too_large() -> None:
    with pytest.raises(AssertionError, match="more than 10 states"):
        explore(Counting(actors=2, to=9), most=10)
