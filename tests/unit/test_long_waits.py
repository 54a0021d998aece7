"""A call that waits for long and has no timeout says so once: who waits for what."""

from __future__ import annotations

import asyncio
import math
import multiprocessing
import os
import re
import time
import warnings
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, ReplayBuffer, ReplayBufferWarning, Timeout, waiting
from replay_buffer.testing.content import NUMBERED, add_numbers
from replay_buffer.testing.crowd import Crowd
from unit import shortage_children as children

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("short_turns"),
]
WRITERS = rf"; open for writing in process {os.getpid()} \((\d+) rows added\)"


@pytest.fixture(autouse=True)
def short(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(waiting, "LONG", 0.25)


def make(location: str = "heap:", **options: Any) -> ReplayBuffer:
    return ReplayBuffer.create(location, BufferConfig(100, **options), schema=NUMBERED, seed=0)


def warned_once(said: str, call: Callable[[], Any], end: Callable[[], object]) -> Any:
    """What a call returns that warns once, of its own line, and says this; `end` ends its wait."""

    def end_when_warned() -> None:
        crowd.until(lambda: len(warned) > 0)
        time.sleep(0.3)  # as long again, without another warning
        end()

    with warnings.catch_warnings(record=True) as warned, Crowd() as crowd:
        warnings.simplefilter("always", ReplayBufferWarning)
        crowd.start(end_when_warned)
        result = call()
    assert [Path(warning.filename).name for warning in warned] == [Path(__file__).name]
    assert re.search(said, str(warned[0].message)), str(warned[0].message)
    return result


def test_a_draw_that_waits_for_min_size_says_who_has_added_what() -> None:
    buffer = make("shm:", min_size=3)
    add_numbers(buffer, 2)
    said = r"^sample\(4\) waited [0-9.]+ s: 2 of 3 rows are there \(min_size\); nobody else waits"
    batch = warned_once(said + WRITERS, lambda: buffer.sample(4), lambda: add_numbers(buffer, 1))
    assert len(batch["k"]) == 4


def test_an_add_that_waits_for_draws_says_what_the_limiter_wants() -> None:
    buffer = make(min_size=1, samples_per_insert=1.0, tolerance=2.0)
    add_numbers(buffer, 3)
    said = r"^add waited [0-9.]+ s: 0 rows were drawn for 3 added .* 1 more must be drawn first"
    warned_once(said + f".*{WRITERS}", lambda: buffer.add(3, [3, 3, 3]), lambda: buffer.sample(1))


def test_a_writer_that_waits_says_so() -> None:
    config = BufferConfig(100, storage="steps", min_size=1, samples_per_insert=1.0, tolerance=2.0)
    buffer = ReplayBuffer(config, schema=children.STEPS, seed=0)
    with buffer.writer() as writer:
        for k in range(3):
            writer.append(k, 0, 0.0, False, False)
        said = r"^append of 1 step waited [0-9.]+ s: 0 rows were drawn for 3 added"
        warned_once(said, lambda: writer.append(3, 0, 0.0, False, False), lambda: buffer.sample(1))


def test_a_wait_for_the_first_row_says_that_nobody_writes() -> None:
    buffer = ReplayBuffer(BufferConfig(10, min_size=1), seed=0)
    said = (
        r"^sample\(4\) waited [0-9.]+ s: 0 of 1 rows are there \(min_size\); nobody has added a row"
    )
    warned_once(said, lambda: buffer.sample(4), lambda: buffer.add(k=1))


@pytest.mark.parametrize("strategy", ["uniform", "fifo"])
def test_an_endless_timeout_for_rows_says_so_too(strategy: str) -> None:
    buffer = make("shm:", strategy=strategy)
    said = rf"^sample\(4\) waited [0-9.]+ s: .*(empty|0 left).*{WRITERS}"
    warned_once(said, lambda: buffer.sample(4, timeout=math.inf), lambda: add_numbers(buffer, 4))


def test_other_processes_that_write_and_wait_are_named() -> None:
    buffer = make("shm:", min_size=3)
    add_numbers(buffer, 1)
    context = multiprocessing.get_context("fork")
    child = context.Process(target=children.add_then_draw, args=(buffer,))
    child.start()
    try:
        while buffer.stats()["limiter"]["waiting"] == 0:
            time.sleep(0.001)
        said = (
            rf"2 of 3 rows are there \(min_size\); process {child.pid} waits to sample; "
            rf"open for writing in process .*\b{child.pid} \(1 rows added\)"
        )
        warned_once(said, lambda: buffer.sample(4), lambda: add_numbers(buffer, 1))
    finally:
        child.kill()
        child.join()


def test_async_calls_warn_once_of_the_whole_wait() -> None:
    async def main(buffer: ReplayBuffer) -> None:
        draw = asyncio.create_task(buffer.sample_async(4))
        while not warned:
            await asyncio.sleep(0.01)
        await asyncio.sleep(0.6)
        await buffer.add_batch_async(np.arange(3), np.zeros((3, 3), np.float32))
        await draw

    with pytest.warns(ReplayBufferWarning) as warned:
        asyncio.run(main(make(min_size=3)))
    assert len([w for w in warned if w.category is ReplayBufferWarning]) == 1
    assert re.match(r"sample\(4\) waited [0-9.]+ s: 0 of 3 rows", str(warned[0].message))


def test_an_endless_wait_for_a_buffer_says_so(tmp_path: Path) -> None:
    location = f"file:{tmp_path / 'rows'}"
    said = (
        r"^open\('file:.*'\) waited [0-9.]+ s: there is no buffer there .*; nobody has created it"
    )
    warned_once(
        said,
        lambda: ReplayBuffer.open(location, wait=math.inf),
        lambda: make(location).close(),
    ).close()


def test_a_wait_that_has_a_timeout_does_not_warn() -> None:
    """Warnings are errors in these tests."""
    for buffer in (make(min_size=3), make(), ReplayBuffer(BufferConfig(10))):
        with pytest.raises(Timeout):
            buffer.sample(4, timeout=0.6)


def test_a_warning_that_is_made_an_error_ends_the_call_without_a_trace() -> None:
    buffer = make(min_size=3, samples_per_insert=1.0, tolerance=20.0)
    with pytest.raises(ReplayBufferWarning):
        buffer.sample(4)
    assert buffer.stats()["limiter"]["waiting"] == 0
    assert buffer.stats()["limiter"]["balance"] == 0
    with Crowd() as crowd:
        waiter = crowd.start(buffer.sample, 4)
        with pytest.raises(ReplayBufferWarning):
            waiter.result()
