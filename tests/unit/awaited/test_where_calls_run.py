"""Long calls, and those that run code of the user's, run in threads; others in the loop's own."""

from __future__ import annotations

import asyncio
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, LinearSchedule, ReplayBuffer, SchemaMismatch
from replay_buffer.testing.content import NUMBERED, add_numbers
from unit.awaited.scenes import VIEWS, add_episode, steps

pytestmark = pytest.mark.usefixtures("short_turns")
MEGABYTE = 1 << 20
FRAMES = {"x": Column((MEGABYTE,), "uint8")}
LIST = [0.0, 0.0, 0.0]
IDS = np.zeros(200_000, np.int64)


def full(strategy: Any = "uniform", capacity: int = 100, **options: Any) -> ReplayBuffer:
    config = BufferConfig(capacity, strategy=strategy, **options)
    buffer = ReplayBuffer(config, schema=NUMBERED, seed=0)
    add_numbers(buffer, capacity)
    return buffer


def file(folder: Path) -> ReplayBuffer:
    location = f"file:{folder / 'rows'}"
    buffer = ReplayBuffer.create(location, BufferConfig(50), schema=NUMBERED)
    add_numbers(buffer, 5)
    return buffer


def one_row(columns: Any, *values: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(64), schema=columns, seed=0)
    buffer.add(*values)
    return buffer


def frames() -> ReplayBuffer:
    return one_row(FRAMES, np.zeros(MEGABYTE, np.uint8))


def viewed(name: str) -> Any:
    buffer = steps("heap:")
    add_episode(buffer, 9)
    return buffer.view(*VIEWS[name])


async def discarded(call: Any) -> None:
    await call


#: What is called, and how, given a folder.
IN_THE_LOOP: dict[str, Any] = {
    "a small batch": lambda folder: (full(), "sample", 32),
    "a batch of 20 MB": lambda folder: (frames(), "sample", 20),
    "a schedule of the package": lambda folder: (
        full("prioritized", beta=LinearSchedule(0, 1, 9)),
        "sample",
        2,
    ),
    "few ranks": lambda folder: (full("rank"), "sample", 2),
    "a long queue": lambda folder: (full("fifo", 40_000), "sample", 2),
    "transitions of steps": lambda folder: (viewed("transitions").buffer, "sample", 2),
    "n steps": lambda folder: (viewed("n steps"), "sample", 2),
    "a row": lambda folder: (full(), "add", 1, np.zeros(3)),
    "a row of lists": lambda folder: (full(), "add", 1, LIST),
    "a size from NumPy": lambda folder: (full(), "sample", np.int64(32)),
    "an update": lambda folder: (full("rank"), "update_priorities", [1], [1.0]),
}
IN_THREADS: dict[str, Any] = {
    "a batch of 40 MB": lambda folder: (frames(), "sample", 40),
    "a batch of 20 MB, compressed": lambda folder: (
        one_row(
            {"x": Column((MEGABYTE,), "uint8", compression="lz4")}, np.zeros(MEGABYTE, np.uint8)
        ),
        "sample",
        20,
    ),
    "a batch of a file": lambda folder: (file(folder), "sample", 2),
    "values of any length": lambda folder: (
        one_row({"x": Column((None,))}, np.ones(2, np.float32)),
        "sample",
        2,
    ),
    "a schedule of the user": lambda folder: (full("prioritized", beta=lambda n: 0.4), "sample", 2),
    "many ranks": lambda folder: (full("rank", 40_000), "sample", 2),
    "a long epoch": lambda folder: (full("without_replacement", 40_000), "sample", 2),
    "goals": lambda folder: (viewed("hindsight"), "sample", 2),
    "whole episodes": lambda folder: (viewed("trajectories"), "sample", 2),
    "a row of a file": lambda folder: (file(folder), "add", 1, LIST),
    "the first row": lambda folder: (ReplayBuffer(BufferConfig(9)), "add", LIST, 1, 0.0, LIST, 0),
    "rows of 40 MB": lambda folder: (
        frames(),
        "add_batch",
        np.zeros((40, MEGABYTE), np.uint8),
    ),
    "goals, a size from NumPy": lambda folder: (viewed("hindsight"), "sample", np.int32(2)),
    "a long list": lambda folder: (
        one_row({"x": Column((2000,))}, np.zeros(2000, np.float32)),
        "add",
        [0.0] * 2000,
    ),
    "many updates": lambda folder: (full("rank"), "update_priorities", IDS, np.zeros(len(IDS))),
}


def ran_in_a_thread(buffer: ReplayBuffer) -> bool:
    return buffer._client.async_calls._pool is not None


@pytest.mark.parametrize("case", [*IN_THE_LOOP, *IN_THREADS])
def test_only_long_calls_run_in_threads(case: str, tmp_path: Path) -> None:
    source, name, *arguments = {**IN_THE_LOOP, **IN_THREADS}[case](tmp_path)
    buffer = source if isinstance(source, ReplayBuffer) else source.buffer
    asyncio.run(discarded(getattr(source, name + "_async")(*arguments)))
    assert ran_in_a_thread(buffer) == (case in IN_THREADS)


def test_a_list_that_contains_itself_is_refused_as_it_is_by_add() -> None:
    endless: list[Any] = [0.0, 0.0]
    endless.append(endless)
    buffer = full()
    with pytest.raises(SchemaMismatch):
        buffer.add(1, endless)
    with pytest.raises(SchemaMismatch):
        asyncio.run(buffer.add_async(1, endless))


def test_objects_of_the_user_are_converted_in_a_thread() -> None:
    class Number(float):
        pass

    for value in (np.float32(3), Number(3)):
        buffer = ReplayBuffer(BufferConfig(9), schema={"x": Column()})
        asyncio.run(buffer.add_async(value))
        asyncio.run(buffer.add_async(x=value))
        assert buffer.latest(2)["x"].tolist() == [3.0, 3.0]
        assert ran_in_a_thread(buffer) == isinstance(value, Number)
