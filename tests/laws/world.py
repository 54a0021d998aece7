"""What is stored when the laws are tested: rows whose ids and priorities are known."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np

from laws.laws import Ids, Rows, sequence_priority
from laws.table import Case
from replay_buffer import BufferConfig, Column, NotEnoughRows, ReplayBuffer, Schema
from views.compare import expected
from views.world import FLAGS, World, Writing

#: A transition. Each leads to the next one; episodes end now and then.
TRANSITION = Schema(
    {
        "obs": Column((), "int64"),
        "action": Column((), "int64"),
        "reward": Column(),
        "next_obs": Column((), "int64"),
        **FLAGS,
    }
)
LENGTHS = [4, 1, 6, 2]  # of episodes
LOW = 2.0**-20  # a priority below those of all other rows, so that their ranks stay


class Store:
    """A buffer, and what is known of it without asking how it draws."""

    buffer: ReplayBuffer

    def __init__(self, case: Case, seed: int) -> None:
        self.case = case
        self.random = np.random.default_rng(seed)
        self.raws: dict[int, float] = {}  # of rows that have a priority
        self.then: Rows | None = None
        self.turns = 0  # batches that were drawn through handles that can write
        self.options: dict[str, Any] = {
            "strategy": case.draw.strategy,
            "cer": case.draw.cer,
            "beta": case.draw.beta,
            "max_times_sampled": case.draw.times,
            "weights": case.weights,
            "alpha": case.content.alpha_before or case.content.alpha,
            "epsilon": case.content.epsilon,
            "block_rows": case.content.block_rows,
        }

    # ------------------------------------------------------------------------- what each kind says

    def write(self, rows: int, **priority: float) -> None:
        """Writes some rows more."""
        raise NotImplementedError

    def writing(self) -> Callable[[], object]:
        """A function that writes a row more, of which nothing is known but that it comes last."""
        raise NotImplementedError

    def weighed(self) -> list[int]:
        """The ids of all rows that have a priority, ascending."""
        raise NotImplementedError

    def starts_of(self, parts: tuple[Any, ...]) -> list[int]:
        """The ids of all rows that an item of a view starts with."""
        raise NotImplementedError

    def goals(self, strategy: str) -> dict[int, list[int]]:
        """The numbers of the goals that may be put in the place of the one pursued, by start."""
        raise NotImplementedError

    def moved(self, buffer: ReplayBuffer) -> None:
        """The buffer goes on as another one."""
        self.buffer = buffer

    # ------------------------------------------------------------------------------------- the same

    @property
    def parts(self) -> tuple[Any, ...]:
        return self.case.item.parts_in(self.case.content) or ()

    def source(self, buffer: ReplayBuffer) -> Any:
        """What batches are drawn from."""
        return buffer if self.case.item.parts is None else buffer.view(*self.parts)

    def fill(self) -> None:
        if self.case.content.failing:
            self._fail()
        self.write(self.case.content.rows)
        if self.case.content.cleared:
            self.source(self.buffer).sample(self.case.draw.batch)
            self.turns += 1
            self.clear()
            self.write(self.case.content.rows)
        if self.case.draw.weighted:
            self._prioritize()

    def clear(self) -> None:
        self.buffer.clear()

    def overwrite(self) -> None:
        """Some rows more, of the lowest priority."""
        self.then = self.rows()
        priority = {"priority": LOW} if self.case.draw.weighted else {}
        self.write(self.case.content.overwritten, **priority)
        self.raws = {row_id: self.raws.get(row_id, LOW) for row_id in self.weighed()}

    def rows(self) -> Rows:
        ids = self.ids()
        return Rows(
            ids,
            np.array([self.raws.get(row_id, np.nan) for row_id in ids.tolist()]),
            np.isin(ids, self.starts_of(self.parts)),
            self.buffer.capacity,
            self.case.content.alpha,
            self.case.content.epsilon,
            self.then,
        )

    def ids(self) -> Ids:
        """Of all rows that are stored, ascending."""
        ids: Ids = np.sort(self.buffer.latest(self.buffer.capacity)["indices"])
        return ids

    def _fail(self) -> None:
        """Draws of what is not there yet. They take no turn and give nothing out."""
        ordered = self.case.draw.strategy in ("fifo", "lifo")
        if ordered or self.case.item.storage == "steps":
            self.write(3 if ordered else 1)
        if ordered or not self.starts_of(self.parts):
            for _ in range(3):
                try:
                    self.source(self.buffer).sample(self.case.draw.batch)
                except NotEnoughRows:
                    continue
                raise AssertionError("there is a batch that cannot be made")
        turns = self.buffer.stats()["samples"]
        assert turns == 0, f"draws that failed took {turns} turns"

    def _prioritize(self) -> None:
        ids = np.asarray(self.weighed())
        starts = np.isin(ids, self.starts_of(self.parts))
        raws = self.case.content.priorities(self.random, starts).astype(np.float32)
        self.buffer.update_priorities(ids, raws)
        self._know(ids, raws)
        if self.case.content.alpha_before is not None:
            self.buffer.alpha = self.case.content.alpha
        if self.case.item.updated is not None:
            self._update(self.case.item.updated)

    def _update(self, sequence: Any) -> None:
        """Gives the starts of a view priorities by TD errors, as R2D2 does."""
        starts = np.asarray(self.starts_of((sequence,)))
        raws = np.array([self.raws[row_id] for row_id in starts.tolist()])
        errors = raws[:, None] * self.random.uniform(-1, 1, (len(starts), sequence.length))
        self.buffer.view(sequence).update_priorities(starts, errors)
        self._know(starts, sequence_priority(errors, sequence.eta).astype(np.float32))

    def _know(self, ids: Ids, raws: Any) -> None:
        self.raws.update(zip(ids.tolist(), np.asarray(raws, np.float64).tolist(), strict=True))


class Transitions(Store):
    """Rows that are transitions: each of them is a start."""

    def __init__(self, case: Case, location: str, seed: int) -> None:
        super().__init__(case, seed)
        config = BufferConfig(case.content.capacity, **self.options)
        self.buffer = ReplayBuffer.create(location, config, schema=TRANSITION, seed=seed)
        self._written = 0

    def write(self, rows: int, **priority: float) -> None:
        for _ in range(rows):
            number, ends = self._written, self._written % 5 == 4
            after = -number if ends else number + 1
            terminated = ends and number % 2 == 0
            self.buffer.add(number, 0, 1.0, after, terminated, ends and not terminated, **priority)
            self._written += 1

    def writing(self) -> Callable[[], object]:
        priority = {"priority": LOW} if self.case.draw.weighted else {}
        return lambda: self.write(1, **priority)

    def weighed(self) -> list[int]:
        return self.starts_of(())

    def starts_of(self, parts: tuple[Any, ...]) -> list[int]:
        ids: list[int] = self.ids().tolist() if len(self.buffer) else []
        return ids


class Steps(Store):
    """Rows that are steps, known to the oracle of views."""

    def __init__(self, case: Case, location: str, seed: int) -> None:
        super().__init__(case, seed)
        where: dict[str, Any] = {"location": location, "kind": "goals", "seed": seed}
        self.world = World(case.content.capacity, **where, **self.options)
        self.buffer = self.world.buffer
        self._to: Writing | None = None

    def write(self, rows: int, **priority: float) -> None:
        self._to = self._to or self.world.open(2)
        given = {name: np.full(2, raw, np.float32) for name, raw in priority.items()}
        self.world.run(self._to, -(-rows // 2), LENGTHS, **given)

    def clear(self) -> None:
        self.world.clear()

    def writing(self) -> Callable[[], object]:
        writer, goes_on = self.buffer.writer(), np.zeros(1, bool)
        given: dict[str, Any] = {}
        if self.case.draw.weighted:
            given = {"priority": np.full(1, LOW, np.float32)}
        return lambda: writer.append(*observed(1), goes_on, goes_on, [0], **given)

    def weighed(self) -> list[int]:
        self.world.sync()
        return [row.id for row in self.world.stored_rows() if not row.final]

    def starts_of(self, parts: tuple[Any, ...]) -> list[int]:
        self.world.sync()
        return sorted(expected(self.world, parts))

    def goals(self, strategy: str) -> dict[int, list[int]]:
        self.world.sync()
        return {
            row.id: [int(g[0]) for g in self.world.oracle.goals(row, strategy, "obs/achieved_goal")]
            for row in self.world.stored_rows()
        }

    def moved(self, buffer: ReplayBuffer) -> None:
        super().moved(buffer)
        self.world.moved(buffer)
        self._to = None


class RareSteps(Store):
    """Steps, most of which start nothing: an episode was cut after each, or they are not the first
    of their long episodes. Among them are a few episodes that have one start each."""

    FEW = 10

    def __init__(self, case: Case, location: str, seed: int) -> None:
        super().__init__(case, seed)
        config = BufferConfig(case.content.capacity, storage="steps", **self.options)
        schema = World(2, kind="goals").schema
        self.buffer = ReplayBuffer.create(location, config, schema=schema, seed=seed)
        self._starts: list[int] = []
        self._weighed: list[int] = []

    def write(self, rows: int, **priority: float) -> None:
        length = self.case.item.rare_length
        cut = rows - self.FEW * (length + 1)
        self._cut(cut // 2)
        step, never = observed(self.FEW), np.zeros(self.FEW, bool)
        with self.buffer.writer(self.FEW) as writer:
            for number in range(length):
                ends = np.full(self.FEW, number == length - 1)
                ids = writer.append(*step, ends, never, never, final_obs=step[0])
                self._weighed += ids.tolist()
                if number == self.case.item.rare_start:
                    self._starts = ids.tolist()
        self._cut(cut - cut // 2)

    def weighed(self) -> list[int]:
        return sorted(self._weighed)

    def starts_of(self, parts: tuple[Any, ...]) -> list[int]:
        return self._starts

    def goals(self, strategy: str) -> dict[int, list[int]]:
        return {row_id: [1] for row_id in self._starts}

    def _cut(self, rows: int) -> None:
        while rows > 0:
            streams = min(rows, 1000)
            rows -= streams
            with self.buffer.writer(streams) as writer:
                goes_on = np.zeros(streams, bool)
                ids = writer.append(*observed(streams), goes_on, goes_on, goes_on)
                self._weighed += np.atleast_1d(ids).tolist()


def observed(streams: int) -> list[Any]:
    """Observation, action and reward of a step, the same in all streams; it reaches goal 1."""
    obs = {
        "number": np.zeros(streams, np.int64),
        "achieved_goal": np.ones((streams, 2), np.float32),
        "desired_goal": -np.ones((streams, 2), np.float32),
    }
    return [obs, np.zeros((streams, 2), np.float32), np.zeros(streams, np.float32)]


def store(case: Case, location: str, seed: int) -> Store:
    if case.item.storage == "transitions":
        return Transitions(case, location, seed)
    return (RareSteps if case.content.rare else Steps)(case, location, seed)
