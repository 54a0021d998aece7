"""NStep on a buffer that stores transitions: a row goes on in the next that its handle added where
next_obs shows it, or wherever the caller says that all of them are one stream."""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from replay_buffer import BufferConfig, Column, NStep, ReplayBuffer, Schema
from replay_buffer.testing.crowd import together
from views.compare import check_batch

GAMMA = 0.75
OBS = Column((2,), "int64")
HEAD = {"obs": OBS, "action": Column((), "int32"), "reward": Column((), "float64")}
SCHEMAS = {
    "ends": Schema(
        {
            **HEAD,
            "next_obs": OBS,
            "terminated": Column((), "bool"),
            "truncated": Column((), "bool"),
        }
    ),
    "done": Schema({**HEAD, "next_obs": OBS, "done": Column((), "bool")}),
}


@dataclass
class Adder:
    """One handle and all it added, in order: an environment that may stand still, and whose
    episodes may end without a flag."""

    buffer: ReplayBuffer
    flags: str
    seed: int = 0
    at: int = 0
    rows: list[tuple[int, dict[str, Any]]] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.random = random.Random(self.seed)

    def row(self) -> dict[str, Any]:
        number = len(self.rows)
        end = self.random.choice(["", "", "", "terminated", "truncated"])
        before, after = self.at, self.at + self.random.choice([0, 1, 1, 1, 1])
        row: dict[str, Any] = {
            "obs": [before, -self.seed],
            "action": number % 5,
            "reward": self.random.uniform(-1, 1),
            "next_obs": [after, -self.seed],
        }
        begins = end != "" or self.random.random() < 0.1
        self.at = 100 * number if begins else after
        if self.flags == "done":
            return {**row, "done": end == "terminated"}
        return {**row, "terminated": end == "terminated", "truncated": end == "truncated"}

    def add(self) -> None:
        row = self.row()
        self.rows.append((int(self.buffer.add(**row)), row))

    def add_batch(self, n: int) -> None:
        rows = []
        for _ in range(n):
            rows.append(self.row())
            self.rows.append((-1, rows[-1]))
        ids = self.buffer.add_batch(**{k: np.asarray([r[k] for r in rows]) for k in rows[0]})
        self.rows[-n:] = zip(ids.tolist(), rows, strict=True)

    def items(self, n: int, ids: set[int], one_stream: bool) -> dict[int, dict[str, Any]]:
        """What NStep(n) must make of each stored row."""
        made: dict[int, dict[str, Any]] = {}
        for at, (row_id, first) in enumerate(self.rows):
            if row_id not in ids:
                continue
            last, total, k = first, first["reward"], 1
            while k < n and not (last.get("done") or last.get("terminated")):
                onward = self.rows[at + k] if at + k < len(self.rows) else (-1, {})
                if last.get("truncated") or onward[0] not in ids:
                    break
                shown = last["obs"] != last["next_obs"] == onward[1]["obs"]
                if not one_stream and not shown:
                    break
                last, total, k = onward[1], total + GAMMA**k * onward[1]["reward"], k + 1
            ended = last.get("done") or last.get("terminated")
            lasting = {
                name: last[name]
                for name in ("next_obs", "done", "terminated", "truncated")
                if name in last
            }
            discount = 0.0 if ended else GAMMA**k
            made[row_id] = {**first, **lasting, "reward": total, "k": k, "discount": discount}
        return made


def check(buffer: ReplayBuffer, adders: list[Adder]) -> None:
    ids = set(buffer.latest(buffer.capacity)["indices"].tolist())
    for n, one_stream in itertools.product((1, 2, 4, 9, 70), (False, True)):
        items: dict[int, dict[str, Any]] = {}
        for adder in adders:
            items.update(adder.items(n, ids, one_stream))
        view = buffer.view(NStep(n, GAMMA, one_stream=one_stream))
        assert sorted(view.starts().tolist()) == sorted(items) == sorted(ids)
        check_batch(view.get(view.starts()), items)
        for size in (1, 32, 65, 300):
            check_batch(view.sample(size), items)


def make(capacity: int, flags: str, location: str = "heap:", **options: Any) -> ReplayBuffer:
    config = BufferConfig(capacity, **options)
    return ReplayBuffer.create(location, config, schema=SCHEMAS[flags], seed=1)


@settings(max_examples=60, deadline=None)
@given(
    flags=st.sampled_from(["ends", "done"]),
    capacity=st.integers(1, 20),
    block=st.integers(1, 20),
    strategy=st.sampled_from(["uniform", "prioritized", "rank"]),
    script=st.lists(st.integers(-2, 9), min_size=1, max_size=30),
    seed=st.integers(0, 100),
)
def test_returns_of_one_stream_with_wraps_batches_and_clears(
    flags: str, capacity: int, block: int, strategy: str, script: list[int], seed: int
) -> None:
    buffer = make(capacity, flags, block_rows=min(block, capacity), strategy=strategy)
    adder = Adder(buffer, flags, seed)
    for n in script:
        if n == -2:
            buffer.clear()
        elif n > 0:
            adder.add_batch(n)
        else:
            adder.add()
    if len(buffer):
        check(buffer, [adder])


@settings(max_examples=30, deadline=None)
@given(st.integers(2, 30), st.integers(1, 8), st.lists(st.booleans(), min_size=1, max_size=60))
def test_each_of_two_handles_is_a_stream(capacity: int, block: int, script: list[bool]) -> None:
    block = min(block, max(1, capacity // 2))
    buffer = make(capacity, "ends", "shm:views-two-handles", block_rows=block)
    other = ReplayBuffer.open(buffer.location)
    adders = [Adder(buffer, "ends", 1), Adder(other, "ends", 2)]
    try:
        for which in script:
            adders[which].add()
        check(buffer, adders)
        check(other, adders)
    finally:
        buffer.unlink()
        other.close()
        buffer.close()


def test_handles_of_two_threads_do_not_mix() -> None:
    buffer = make(200, "ends", "shm:views-two-threads", block_rows=7)
    other = ReplayBuffer.open(buffer.location)
    adders = [Adder(buffer, "ends", 1), Adder(other, "ends", 2)]

    def add(adder: Adder) -> None:
        for _ in range(300):
            adder.add()

    try:
        together(*(functools.partial(add, adder) for adder in adders))
        check(buffer, adders)
    finally:
        buffer.unlink()
        other.close()
        buffer.close()


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 30])
def test_a_file_opened_again_begins_a_stream(rows: int, tmp_path: Path) -> None:
    location = f"file:{tmp_path}/a.rb"
    buffer = make(16, "done", location, block_rows=4)
    before = Adder(buffer, "done", 1)
    before.add_batch(rows)
    buffer.close()
    buffer = ReplayBuffer.open(location)
    after = Adder(buffer, "done", 2)
    for _ in range(8):
        after.add()
        check(buffer, [before, after])
    buffer.close()


@pytest.mark.parametrize("rows", [1, 3, 4, 5, 30])
def test_a_restored_checkpoint_begins_a_stream(rows: int, tmp_path: Path) -> None:
    buffer = make(16, "ends", block_rows=4)
    before = Adder(buffer, "ends", 1)
    before.add_batch(rows)
    buffer.checkpoint(tmp_path / "saved")
    buffer = ReplayBuffer.restore(tmp_path / "saved")
    after = Adder(buffer, "ends", 2)
    for _ in range(8):
        after.add()
        check(buffer, [before, after])
