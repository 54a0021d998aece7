"""Visits every state that a set of processes can reach, one atomic step at a time.

Breadth first, so that a counterexample is as short as can be. A state is a row of bytes, one for
each shared word and each register. What the processes are is up to the model; here stands only the
search, and what holds for any model:

- no state and no step breaks a rule of the model;
- no run goes on for ever: the graph of steps has no cycle, so whoever is scheduled gets done, alone
  or among others, and a retry happens only after somebody else got something done.
"""

from __future__ import annotations

from array import array
from collections.abc import Iterable
from dataclasses import dataclass
from typing import Protocol

State = bytes


class Model(Protocol):
    """What is explored. Actors are numbered; the first `actors` of them are processes, of which
    each has at most one step in a state. Higher numbers are what is done to processes, and cannot
    be undone."""

    actors: int

    def initial(self) -> Iterable[State]: ...

    def successors(self, state: State) -> list[tuple[int, State]]: ...

    def broken(self, state: State) -> str | None:
        """The rule that the state breaks."""

    def broken_at_end(self, state: State) -> str | None:
        """The rule that a state breaks in which nobody has a step left."""

    def broken_by_step(self, before: State, actor: int, after: State) -> str | None:
        """The rule that the step breaks."""

    def describe(self, before: State, actor: int, after: State) -> str:
        """The step in words."""

    def epilogue(self, state: State) -> list[str]:
        """What the model does after a state in which nobody has a step left, in words."""


class Counterexample(Exception):
    """A rule is broken. The message is the shortest way there."""

    def __init__(self, rule: str, lines: list[str]) -> None:
        numbered = [f"{i:3}. {line}" for i, line in enumerate(lines, start=1)]
        super().__init__("\n".join([rule, *numbered, f"  => {rule}"]))
        self.rule = rule
        self.steps = len(lines)


@dataclass(frozen=True)
class Explored:
    states: int
    steps: int
    last: int  # states in which nobody has a step left
    depth: int  # steps of the longest run that never comes by a state in a shorter way
    alone: int  # most steps that a process needs to get done, when all others pause


def explore(model: Model, most: int = 5_000_000) -> Explored:
    """Raises Counterexample. `most` states are a guard against a model that grew by mistake."""
    states: list[State] = []
    parents = array("i")
    number: dict[State, int] = {}
    for state in model.initial():
        if state not in number:
            number[state] = len(states)
            states.append(state)
            parents.append(-1)
            if rule := model.broken(state):
                raise Counterexample(rule, [])
    steps_of = [array("i") for _ in range(model.actors)]
    successors, broken, broken_by_step = model.successors, model.broken, model.broken_by_step
    none = [-1] * model.actors
    steps = last = depth = 0
    end_of_level = len(states)
    at = 0
    while at < len(states):
        if at == end_of_level:
            depth += 1
            end_of_level = len(states)
        state = states[at]
        row = none.copy()
        found = successors(state)
        for actor, after in found:
            to = number.get(after)
            if to is None:
                to = number[after] = len(states)
                states.append(after)
                parents.append(at)
                if rule := broken(after):
                    raise Counterexample(rule, trace(model, states, parents, to))
            if actor < model.actors:
                row[actor] = to
                if rule := broken_by_step(state, actor, after):
                    lines = trace(model, states, parents, at)
                    raise Counterexample(rule, [*lines, model.describe(state, actor, after)])
        for edges, to in zip(steps_of, row, strict=True):
            edges.append(to)
        steps += len(found)
        if not found:
            last += 1
            if rule := model.broken_at_end(state):
                raise Counterexample(rule, trace(model, states, parents, at))
        at += 1
        if at > most:
            raise AssertionError(f"more than {most} states")
    alone = longest_alone(model, states, parents, steps_of)
    return Explored(len(states), steps, last, depth, alone)


def longest_alone(
    model: Model, states: list[State], parents: array[int], steps_of: list[array[int]]
) -> int:
    """Orders the states so that all steps lead forward, or raises Counterexample."""
    waiting = array("i", bytes(4 * len(states)))  # steps that lead to a state not yet in order
    for edges in steps_of:
        for to in edges:
            if to >= 0:
                waiting[to] += 1
    order = array("i", (at for at, n in enumerate(waiting) if n == 0))
    for at in order:  # grows meanwhile
        for edges in steps_of:
            to = edges[at]
            if to >= 0:
                waiting[to] -= 1
                if waiting[to] == 0:
                    order.append(to)
    if len(order) < len(states):
        at = next(at for at, n in enumerate(waiting) if n > 0)
        raise Counterexample("a run goes on for ever", trace(model, states, parents, at))
    most = 0
    for edges in steps_of:
        left = array("i", bytes(4 * len(states)))
        for at in reversed(order):
            to = edges[at]
            if to >= 0:
                left[at] = left[to] + 1
        most = max(most, *left)
    return most


def trace(model: Model, states: list[State], parents: array[int], at: int) -> list[str]:
    """The steps from an initial state to this one, then the model's epilogue."""
    lines = model.epilogue(states[at])[::-1]
    while parents[at] >= 0:
        before, after = states[parents[at]], states[at]
        actor = next(a for a, reached in model.successors(before) if reached == after)
        lines.append(model.describe(before, actor, after))
        at = parents[at]
    return lines[::-1]
