"""A small machine for the explorer: words of one byte, and programs of atomic steps.

A step is a function that changes the memory and says where to go on. What it does to shared memory
is atomic, and so it does one thing there: a load, a store or a compare-and-swap. What it does to
its own registers, and where it goes next, is nobody else's business and belongs to the same step.
Registers that are not needed any more are set to 0, so that states that differ in nothing of
consequence are one.
"""

from __future__ import annotations

from collections.abc import Callable

State = bytes
Memory = bytearray
Step = Callable[[Memory], "int | None"]  # where to go on; None: at the next step

DONE, STOPPED, DEAD = 253, 254, 255  # the values of `at` that are not the number of a step


class Words:
    """Names the bytes of a state."""

    def __init__(self) -> None:
        self.names: list[str] = []
        self.shows: list[Callable[[int], str]] = []
        self.first: list[int] = []

    def add(self, name: str, show: Callable[[int], str] = str, first: int = 0) -> int:
        """A word that starts as `first`; returns its place."""
        self.names.append(name)
        self.shows.append(show)
        self.first.append(first)
        return len(self.names) - 1

    def changes(self, before: State, after: State) -> str:
        return ", ".join(
            f"{name}: {show(x)} -> {show(y)}"
            for name, show, x, y in zip(self.names, self.shows, before, after, strict=True)
            if x != y and not name.endswith(".at")
        )


class Label:
    """A place in a program that may be named before it is known."""

    def __init__(self) -> None:
        self.at = DONE


class Program:
    """The steps of one process, and its registers: `at`, then those asked for."""

    def __init__(self, name: str, words: Words) -> None:
        self.name = name
        self.words = words
        self.steps: list[Step] = []
        self.says: list[str] = []
        self.at = words.add(f"{name}.at")
        self.end = self.at + 1  # registers are [at, end)

    def register(self, name: str, first: int = 0) -> int:
        place = self.words.add(f"{self.name}.{name}", first=first)
        assert place == self.end, "registers of a process lie together"
        self.end += 1
        return place

    def step(self, says: str) -> Callable[[Step], None]:
        def add(step: Step) -> None:
            assert len(self.steps) < DONE, "too long for one byte"
            self.steps.append(step)
            self.says.append(says)

        return add

    def place(self, label: Label) -> Label:
        label.at = len(self.steps)
        return label

    def here(self) -> Label:
        return self.place(Label())

    def run(self, state: State) -> State:
        """One step. REQUIRES: it has one."""
        at = state[self.at]
        memory = bytearray(state)
        to = self.steps[at](memory)
        if to is None:
            to = at + 1
        memory[self.at] = to if to != len(self.steps) else DONE
        return bytes(memory)
