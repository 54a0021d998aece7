"""A goal environment written to a buffer and its oracle: where one is, is what it has reached."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema
from views.oracle import Oracle, Row

GOAL = Column((2,), "float32")
SCHEMA = Schema(
    {
        "obs": {
            "observation": Column((), "int64"),
            "achieved_goal": GOAL,
            "desired_goal": GOAL,
        },
        "action": Column((), "int64"),
        "reward": Column((), "float32"),
        "terminated": Column((), "bool"),
        "truncated": Column((), "bool"),
    }
)


def distance(achieved: Any, goals: Any, info: Mapping[str, Any]) -> Any:
    """A reward that tells every pair of goals apart, and every action."""
    return achieved[:, 0] * 0.25 - goals[:, 0] * 0.125 + goals[:, 1] + info["action"] * 64


def arrived(achieved: Any, goals: Any, info: Mapping[str, Any]) -> Any:
    """Whether an episode ends, where it does so at its goal."""
    assert (info["next_obs"]["achieved_goal"] == achieved).all()
    return (achieved == goals).all(axis=1)


class GoalWorld:
    def __init__(self, capacity: int = 200, location: str = "heap:", **options: Any) -> None:
        config = BufferConfig(capacity, storage="steps", **options)
        self.buffer = ReplayBuffer.create(location, config, schema=SCHEMA, seed=7)
        self.writer = self.buffer.writer()
        self.oracle = Oracle(["obs/observation", "obs/achieved_goal", "obs/desired_goal"])
        self.stream = self.oracle.stream()
        self.rows: dict[int, Row] = {}
        self.count = 0

    def episode(self, length: int, end: str = "truncated") -> None:
        """An episode with a goal of its own; without an end it goes on."""
        goal = [-float(self.count) - 1, 0.5]
        for i in range(length):
            last = i == length - 1
            values = {
                **self._obs(goal),
                "action": i,
                "reward": -1.0,
                "terminated": last and end == "terminated",
                "truncated": last and end == "truncated",
            }
            ended = last and end in ("terminated", "truncated")
            final = self._obs(goal) if ended else None
            row = self.stream.step(values)
            row.id = int(
                self.writer.append(
                    _tree(values),
                    values["action"],
                    values["reward"],
                    values["terminated"],
                    values["truncated"],
                    final_obs=None if final is None else _tree(final),
                )
            )
            self._rows_of(row)
            if final is not None:
                self._rows_of(self.stream.finish({**values, **final}))

    def sync(self) -> None:
        batch = self.buffer.latest(self.buffer.capacity)
        self.oracle.ids = set(batch["indices"].tolist())
        numbers = batch["obs"]["observation"].tolist()
        for number, row_id in zip(numbers, batch["indices"].tolist(), strict=True):
            self.rows[number].id = row_id

    def _rows_of(self, row: Row) -> None:
        self.rows[row.values["obs/observation"]] = row

    def _obs(self, goal: list[float]) -> dict[str, Any]:
        self.count += 1
        return {
            "obs/observation": self.count,
            "obs/achieved_goal": [float(self.count), self.count / 4],
            "obs/desired_goal": goal,
        }


def _tree(values: dict[str, Any]) -> dict[str, Any]:
    return {
        "observation": np.int64(values["obs/observation"]),
        "achieved_goal": np.asarray(values["obs/achieved_goal"], np.float32),
        "desired_goal": np.asarray(values["obs/desired_goal"], np.float32),
    }
