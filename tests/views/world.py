"""A buffer of steps together with its oracle: whatever is written goes to both.

Every observation carries a number of its own, by which rows are known again.
"""

from __future__ import annotations

import random
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema
from views.oracle import Oracle, Row, Stream, Values

FLAGS = {"terminated": Column((), "bool"), "truncated": Column((), "bool")}

#: Kinds of observation: their columns, and the path that carries the number.
OBSERVATIONS: dict[str, tuple[Any, str]] = {
    "vector": (Column((2,), "int64"), "obs"),
    "scalar": (Column((), "float64"), "obs"),
    "nested": (
        {
            "frame": Column((2, 3), "uint8"),
            "deep": {"number": Column((), "int32"), "half": Column((1,), "float16")},
        },
        "obs/deep/number",
    ),
    "goals": (
        {
            "number": Column((), "int64"),
            "achieved_goal": Column((2,), "float32"),
            "desired_goal": Column((2,), "float32"),
        },
        "obs/number",
    ),
}


def observation(kind: str, number: int) -> Values:
    """The values of an observation, by path."""
    if kind == "vector":
        return {"obs": [number, 3 * number + 1]}
    if kind == "scalar":
        return {"obs": float(number)}
    if kind == "goals":
        reached = {"obs/achieved_goal": [float(number), 0.0]}
        return {"obs/number": number, **reached, "obs/desired_goal": [-float(number), 0.0]}
    frame = [[(number + 7 * i + 50 * j) % 256 for i in range(3)] for j in range(2)]
    half = [float(number % 512)]
    return {"obs/frame": frame, "obs/deep/number": number, "obs/deep/half": half}


def nested(values: Mapping[str, Any]) -> dict[str, Any]:
    """Values by path as a tree."""
    tree: dict[str, Any] = {}
    for path, value in values.items():
        *outer, name = path.split("/")
        inner = tree
        for part in outer:
            inner = inner.setdefault(part, {})
        inner[name] = value
    return tree


def flat(tree: Mapping[str, Any], prefix: str = "") -> Values:
    """A batch by path."""
    found: Values = {}
    for name, value in tree.items():
        if isinstance(value, dict):
            found.update(flat(value, f"{prefix}{name}/"))
        else:
            found[prefix + name] = value
    return found


@dataclass
class Writing:
    """An open writer and its streams."""

    writer: Any
    streams: list[Stream]
    unbatched: bool


class World:
    def __init__(
        self,
        capacity: int,
        *,
        kind: str = "vector",
        location: str | None = None,
        reward: str = "float32",
        seed: int = 0,
        **options: Any,
    ) -> None:
        obs, self.key = OBSERVATIONS[kind]
        self.kind = kind
        self.schema = Schema(
            {
                "obs": obs,
                "action": Column((2,), "float32"),
                "reward": Column((), reward),
                **FLAGS,
                "tag": Column((), "int64"),
            }
        )
        config = BufferConfig(capacity, storage="steps", **options)
        if location is None:
            self.buffer = ReplayBuffer(config, schema=self.schema, seed=seed)
        else:
            self.buffer = ReplayBuffer.create(location, config, schema=self.schema, seed=seed)
        self.oracle = Oracle(list(observation(kind, 0)))
        self.writers: list[Writing] = []
        self.by_place: dict[int, Writing] = {}  # those that a script opened
        self.random = random.Random(seed)
        self._numbers = 0
        self._rows: dict[int, Row] = {}  # by number

    # ------------------------------------------------------------------------------------- writing

    def open(self, width: int, autoreset: Any = "same_step", *, unbatched: bool = False) -> Writing:
        writer = self.buffer.writer(width, autoreset)
        streams = [self.oracle.stream() for _ in range(width)]
        self.writers.append(Writing(writer, streams, unbatched and width == 1))
        return self.writers[-1]

    def append(self, to: Writing, ends: list[str] | None = None, **options: Any) -> list[int]:
        """One step of each stream; `ends` says for each "", "terminated", "truncated" or "both"."""
        ends = ends or [""] * len(to.streams)
        same_step = to.writer.autoreset == "same_step"
        steps = [self._step(end) for end in ends]
        finals: list[Values | None] = []
        for stream, step in zip(to.streams, steps, strict=True):
            last = same_step and (step["terminated"] or step["truncated"]) and not stream.ending
            finals.append({**step, **observation(self.kind, self._number())} if last else None)
        ids = to.writer.append(**self._values(steps, to, finals), **options)
        ids = [int(ids)] if to.unbatched else [int(i) for i in ids]
        for stream, step, last, row_id in zip(to.streams, steps, finals, ids, strict=True):
            row = self._known(stream.finish(step) if stream.ending else stream.step(step))
            row.id = row_id
            stream.ending = not row.final and row.ended
            if last is not None:
                self._known(stream.finish(last))
        return ids

    def run(
        self, to: Writing, steps: int, lengths: list[int] | None = None, **options: Any
    ) -> None:
        """Steps whose episodes have these lengths, over and over; without them none ends."""
        for _ in range(steps):
            self.append(to, [self._end_of(stream, lengths) for stream in to.streams], **options)

    def end(self, of: Writing, stream: int) -> None:
        of.writer.end(stream)
        of.streams[stream].cut()

    def close(self, of: Writing) -> None:
        of.writer.close()
        self.writers.remove(of)

    def clear(self) -> None:
        self.buffer.clear()
        for stream in self.oracle.streams:
            stream.forget()

    def moved(self, buffer: ReplayBuffer) -> None:
        """The buffer goes on as another one; its writers are closed."""
        self.buffer.close()
        self.buffer, self.writers = buffer, []

    # ------------------------------------------------------------------------------------- reading

    def sync(self) -> None:
        """Asks the buffer which rows are stored, and checks that they are what was written."""
        batch = flat(self.buffer.latest(self.buffer.capacity))
        self.oracle.ids = set()
        for i, row_id in enumerate(batch["indices"].tolist()):
            row = self._rows[int(_first(batch[self.key][i].tolist()))]
            assert row.id in (-1, row_id), f"row {row.id} is stored as {row_id}"
            row.id = row_id
            self.oracle.ids.add(row_id)
        assert len(self.oracle.ids) == len(self.buffer)

    def stored_rows(self) -> list[Row]:
        return sorted(
            (row for row in self._rows.values() if row.id in self.oracle.ids),
            key=lambda row: row.id,
        )

    # ----------------------------------------------------------------------------------- internals

    def _number(self) -> int:
        self._numbers += 1
        return self._numbers

    def _known(self, row: Row) -> Row:
        self._rows[int(_first(row.values[self.key]))] = row
        return row

    def _step(self, end: str) -> Values:
        number = self._number()
        dtype = self.schema.fields["reward"].dtype
        return {
            **observation(self.kind, number),
            "action": [number / 2, -float(number)],
            "reward": float(dtype.type(self.random.uniform(-1, 1))),
            "terminated": end in ("terminated", "both"),
            "truncated": end in ("truncated", "both"),
            "tag": 7 * number,
        }

    def _values(
        self, steps: list[Values], to: Writing, finals: list[Values | None]
    ) -> dict[str, Any]:
        columns = {path: [step[path] for step in steps] for path in steps[0]}
        if to.unbatched:
            columns = {path: values[0] for path, values in columns.items()}
        row = nested({p: np.asarray(v, self._dtype(p)) for p, v in columns.items()})
        if any(last is not None for last in finals):
            row["final_obs"] = self._final_obs(finals, to.unbatched)
        return row

    def _final_obs(self, finals: list[Values | None], unbatched: bool) -> Any:
        """As arrays, or as Gymnasium's array of objects: whichever comes."""
        seen = [
            None if last is None else {p: last[p] for p in self.oracle.observed} for last in finals
        ]
        if unbatched:
            assert seen[0] is not None
            return self._one_obs(seen[0])
        if self.random.random() < 0.5:
            objects = np.full(len(seen), None, object)
            for i, one in enumerate(seen):
                objects[i] = None if one is None else self._one_obs(one)
            return objects
        like = next(one for one in seen if one is not None)
        whole = {
            path: np.asarray([(one or like)[path] for one in seen], self._dtype(path))
            for path in like
        }
        return nested(whole)["obs"]

    def _one_obs(self, values: Values) -> Any:
        return nested({p: np.asarray(v, self._dtype(p)) for p, v in values.items()})["obs"]

    def _dtype(self, path: str) -> Any:
        return next(column.dtype for name, column in self.schema.columns if name == path)

    def _end_of(self, stream: Stream, lengths: list[int] | None) -> str:
        if lengths is None:
            return ""
        number = len(stream.episodes) - (1 if stream.open else 0)
        done = len(stream.episodes[-1].steps) if stream.open else 0
        if done + 1 < lengths[number % len(lengths)]:
            return ""
        return ("terminated", "truncated")[number % 2]


def _first(value: Any) -> Any:
    return value[0] if isinstance(value, list) else value
