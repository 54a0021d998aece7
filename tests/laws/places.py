"""Where batches are drawn: in this process or in others, from what was filled in this one."""

from __future__ import annotations

import contextlib
import itertools
import multiprocessing
import os
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field
from multiprocessing.connection import Connection
from pathlib import Path
from typing import Any

import numpy as np

from laws.laws import Floats, Ids
from laws.table import Case
from laws.world import Store, store
from replay_buffer import NotEnoughRows, ReplayBuffer
from replay_buffer.testing.crowd import Crowd

PATIENCE = 60  # seconds that a process may take
BEFORE = 3  # batches that were drawn before those that count

numbers = itertools.count()


@dataclass
class Drawn:
    """The batches of one handle."""

    ids: list[Ids] = field(default_factory=list)
    weights: list[Floats] = field(default_factory=list)
    goals: list[Ids] = field(default_factory=list)  # of hindsight: that reached, or below 0

    @property
    def all_ids(self) -> Ids:
        return np.concatenate([np.empty(0, np.int64), *self.ids])


def draw(source: Any, batches: int, size: int) -> Drawn:
    drawn = Drawn()
    for _ in range(batches):
        batch = source.sample(size)
        drawn.ids.append(batch["indices"])
        if "weights" in batch:
            drawn.weights.append(batch["weights"].astype(np.float64))
        if "relabelled" in batch:
            drawn.goals.append(batch["obs"]["desired_goal"][:, 0].astype(np.int64))
    return drawn


def draw_all(source: Any, size: int) -> Drawn:
    """All that a queue has to give: in batches, and what is left of one in smaller ones."""
    drawn = Drawn()
    while size:
        try:
            while True:
                drawn.ids.append(source.sample(size)["indices"])
        except NotEnoughRows:
            size //= 2
    return drawn


class Here:
    """A handle of this process."""

    def __init__(self, source: Any) -> None:
        self.source = source

    def ask(self, call: Any, *args: Any) -> None:
        self.drawn: Drawn = call(self.source, *args)

    def answer(self) -> Drawn:
        return self.drawn


class Child:
    """A handle of another process."""

    def __init__(self, of: Store, readonly: bool) -> None:
        self.connection, theirs = multiprocessing.Pipe()
        fork = multiprocessing.get_context("fork")
        self.process = fork.Process(target=serve, args=(theirs, of, readonly), daemon=True)
        self.process.start()
        theirs.close()

    def ask(self, call: Any, *args: Any) -> None:
        self.connection.send((call, args))

    def answer(self) -> Drawn:
        assert self.connection.poll(PATIENCE), "a process does not answer"
        answer: Drawn | Exception = self.connection.recv()
        if isinstance(answer, Exception):
            raise answer
        return answer

    def close(self) -> None:
        self.connection.send(None)
        self.process.join(5)  # else it still draws, or waits for its answer to be taken
        if self.process.exitcode is None:
            self.process.kill()
            self.process.join()


def serve(connection: Connection, of: Store, readonly: bool) -> None:
    buffer = ReplayBuffer.open(of.buffer.location, readonly=readonly)
    source = of.source(buffer)
    while (asked := connection.recv()) is not None:
        call, args = asked
        try:
            connection.send(call(source, *args))
        except Exception as error:
            connection.send(error)


@dataclass
class Scene:
    """What is stored, and the handles that draw from it."""

    case: Case
    store: Store
    handles: Sequence[Here | Child]

    def draw(self, call: Any, *args: Any) -> list[Drawn]:
        """By all handles at once."""
        for handle in self.handles:
            handle.ask(call, *args)
        return [handle.answer() for handle in self.handles]


@contextlib.contextmanager
def scene(case: Case, seed: int, folder: Path) -> Iterator[Scene]:
    """A case as far as nothing was drawn that counts."""
    names = {"heap:": "", "shm:": f"laws-{os.getpid()}-{next(numbers)}", "file:": f"{folder}/rows"}
    location = case.place.location + names[case.place.location]
    with contextlib.ExitStack() as leaving:
        of = store(case, location, seed)
        leaving.callback(lambda: of.buffer.close())
        if location != "heap:":
            leaving.callback(lambda: of.buffer.unlink())
        of.fill()
        if case.draw.mass is not None:
            draw(of.source(of.buffer), BEFORE, case.draw.batch)
            of.turns += BEFORE
        if case.place.moved == "reopened":
            of.buffer.close()
            of.moved(ReplayBuffer.open(location))
        elif case.place.moved == "restored":
            of.buffer.checkpoint(folder / "saved")
            of.buffer.close()
            of.moved(ReplayBuffer.restore(folder / "saved"))
        children = []
        for _ in range(case.place.children):
            children.append(Child(of, case.place.readonly))
            leaving.callback(children[-1].close)
        yield Scene(case, of, children or [Here(of.source(of.buffer))])


@contextlib.contextmanager
def writing(of: Store) -> Iterator[None]:
    """Another thread writes rows meanwhile, as many as do not overwrite any."""
    room = of.buffer.capacity - of.buffer.size - 500
    write = of.writing()

    def work() -> None:
        for _ in range(room):
            write()
            if crowd.over.wait(1e-4):
                return

    with Crowd() as crowd:
        crowd.start(work)
        yield
