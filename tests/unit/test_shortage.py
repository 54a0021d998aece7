"""`timeout=` waits for rows: in every strategy, with and without a limiter, also for the first."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    InvalidArgument,
    NotEnoughRows,
    NStep,
    ReadOnly,
    ReplayBuffer,
    Sequence,
    Timeout,
    Trajectory,
)
from replay_buffer.testing.content import NUMBERED, STRATEGIES, add_numbers, assert_whole
from replay_buffer.testing.crowd import Crowd
from unit import shortage_children as children

pytestmark = [
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
    pytest.mark.usefixtures("short_turns"),
]
PATIENCE = 60.0  # seconds until somebody who should not wait is called hung
LIMITS: dict[str, dict[str, Any]] = {
    "no limiter": {},
    "min_size": {"min_size": 3},
    "ratio": {"min_size": 3, "samples_per_insert": 4, "max_times_sampled": 4, "tolerance": 40},
}


def make(location: str = "heap:", capacity: int = 100, **options: Any) -> ReplayBuffer:
    return ReplayBuffer.create(location, BufferConfig(capacity, **options), schema=NUMBERED, seed=0)


def steps(location: str = "heap:", **options: Any) -> ReplayBuffer:
    config = BufferConfig(100, storage="steps", block_rows=10, **options)
    return ReplayBuffer.create(location, config, schema=children.STEPS, seed=0)


def patiently(source: Any, n: int) -> Any:
    return source.sample(n, timeout=PATIENCE)


@pytest.fixture(params=["fork", "spawn"])
def context(request: pytest.FixtureRequest) -> Any:
    return multiprocessing.get_context(request.param)


@pytest.fixture
def started() -> Iterator[Callable[..., Any]]:
    """Starts processes that are killed at the end, if they are still there."""
    processes: list[Any] = []

    def start(context: Any, work: Callable[..., None], *args: Any) -> Any:
        process = context.Process(target=work, args=args)
        process.start()
        processes.append(process)
        return process

    yield start
    for process in processes:
        if process.is_alive():
            process.kill()
        process.join()


# ---- rows that come


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_timeout_waits_for_rows_of_another_process(
    started: Callable[..., Any], strategy: str, limits: dict[str, Any]
) -> None:
    buffer = make("shm:", strategy=strategy, **limits)
    begin = time.monotonic()
    child = started(multiprocessing.get_context("fork"), children.add_later, buffer, 0.3, 8)
    batch = buffer.sample(4, timeout=PATIENCE)
    assert time.monotonic() - begin > 0.3
    assert len(batch["k"]) == 4
    assert_whole(batch)
    child.join(PATIENCE)
    assert child.exitcode == 0


@pytest.mark.parametrize("limits", LIMITS.values(), ids=LIMITS)
@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_timeout_waits_for_the_first_row_of_another_thread(
    strategy: str, limits: dict[str, Any]
) -> None:
    """The columns are not even known."""
    buffer = ReplayBuffer(BufferConfig(100, strategy=strategy, **limits), seed=0)  # type: ignore[arg-type]
    with Crowd() as crowd:
        learner = crowd.start(patiently, buffer, 4)
        time.sleep(0.1)
        for k in range(8):
            buffer.add(k=k)
        assert learner.result()["k"].shape == (4,)


def test_a_view_waits_until_there_is_a_start(context: Any, started: Callable[..., Any]) -> None:
    """A step is the start of a transition as soon as there is another behind it."""
    buffer = steps("shm:")
    with buffer.writer() as writer:
        writer.append(0, 0, 0.0, False, False)
        for view in (buffer.view(), buffer.view(NStep(3)), buffer.view(Sequence(4, pad=False))):
            with pytest.raises(NotEnoughRows):
                view.sample(2)
        child = started(context, children.append_later, buffer, 0.3, 9)
        batch = buffer.view(Sequence(4, pad=False)).sample(2, timeout=PATIENCE)
        assert batch["mask"].all()
        assert len(buffer.sample(2, timeout=0)["indices"]) == 2
        child.join(PATIENCE)
        assert child.exitcode == 0


def test_a_view_of_trajectories_waits_until_an_episode_ended() -> None:
    buffer = steps()
    view = buffer.view(Trajectory())
    with buffer.writer() as writer, Crowd() as crowd:
        for k in range(5):
            writer.append(k, 0, 0.0, False, False)
        with pytest.raises(Timeout, match="of 5 rows none is a start"):
            view.sample(1, timeout=0)
        learner = crowd.start(patiently, view, 1)
        time.sleep(0.1)
        writer.append(5, 0, 0.0, False, True, final_obs=6)
        assert learner.result()["lengths"].tolist() == [6]


def test_a_view_that_was_made_before_the_columns_are_known_waits() -> None:
    buffer = ReplayBuffer(BufferConfig(100, storage="steps"), seed=0)
    views = [
        buffer.view(),
        buffer.view(NStep(2)),
        buffer.view(Sequence(2)),
        buffer.view(Trajectory()),
    ]
    with Crowd() as crowd:
        learners = [crowd.start(patiently, v, 2) for v in views]
        time.sleep(0.1)
        with buffer.writer() as writer:
            for k in range(4):
                writer.append([k], 0, 0.0, False, k == 3, final_obs=[4])
        for learner in learners:
            assert len(learner.result()["indices"]) == 2


def test_a_queue_gives_each_row_to_one_of_those_who_wait(started: Callable[..., Any]) -> None:
    """Draws that fail take nothing: every row is given out, once, and in whole batches."""
    context = multiprocessing.get_context("fork")
    buffer = make("shm:", capacity=1000, strategy="fifo", block_rows=10)
    told = context.Queue()
    consumers = [started(context, children.consume, buffer, 40, 5, told) for _ in range(3)]
    for k in range(0, 600, 2):
        add_numbers(buffer, 2, first=k)
        time.sleep(0.0005)
    drawn = [told.get(timeout=PATIENCE) for _ in consumers]
    assert sorted(k for ks in drawn for k in ks) == list(range(600))
    with pytest.raises(Timeout):
        buffer.sample(1, timeout=0)


def test_a_readonly_handle_waits_too(tmp_path: Path) -> None:
    with (
        make(f"file:{tmp_path / 'rows'}") as buffer,
        ReplayBuffer.open(buffer.location, readonly=True) as watcher,
        Crowd() as crowd,
    ):
        learner = crowd.start(patiently, watcher, 4)
        time.sleep(0.1)
        add_numbers(buffer, 3)
        assert len(learner.result()["k"]) == 4


def test_the_rows_that_a_clear_took_are_waited_for(started: Callable[..., Any]) -> None:
    buffer = make("shm:")
    add_numbers(buffer, 20)
    buffer.clear()
    started(multiprocessing.get_context("fork"), children.add_later, buffer, 0.2, 5, 100)
    assert buffer.sample(4, timeout=PATIENCE)["k"].min() >= 100


def test_arrays_of_the_caller_are_filled_after_a_wait(started: Callable[..., Any]) -> None:
    buffer = make("shm:")
    out = {
        "k": np.zeros(4, np.int64),
        "x": np.zeros((4, 3), np.float32),
        "indices": np.zeros(4, np.int64),
    }
    started(multiprocessing.get_context("fork"), children.add_later, buffer, 0.2, 5)
    assert buffer.sample(4, out=out, timeout=PATIENCE) is out
    assert_whole(out)


# ---- rows that do not come


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_without_a_timeout_missing_rows_are_an_error_at_once(strategy: str) -> None:
    buffer = make(strategy=strategy)
    for timeout in ({}, {"timeout": None}):
        with pytest.raises(NotEnoughRows):
            buffer.sample(4, **timeout)
    with pytest.raises(NotEnoughRows):
        asyncio.run(buffer.sample_async(4))
    limited = make(strategy="fifo", min_size=1)
    add_numbers(limited, 1)
    with pytest.raises(NotEnoughRows):
        limited.sample(2)
    with pytest.raises(NotEnoughRows):
        asyncio.run(limited.sample_async(2))


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_a_timeout_of_zero_tries_once(strategy: str) -> None:
    buffer = make(strategy=strategy)
    with pytest.raises(Timeout, match=r"^sample\(4\) would have to wait: .*(empty|0 left)"):
        buffer.sample(4, timeout=0)
    with pytest.raises(Timeout, match="empty"):
        ReplayBuffer(BufferConfig(10, strategy=strategy)).sample(4, timeout=0)  # type: ignore[arg-type]
    add_numbers(buffer, 8)
    assert len(buffer.sample(4, timeout=0)["k"]) == 4


def test_a_timeout_says_what_is_missing_and_takes_as_long_as_it_says() -> None:
    buffer = make(strategy="fifo")
    add_numbers(buffer, 3)
    begin = time.monotonic()
    with pytest.raises(Timeout, match=r"^sample\(5\) waited 0\.3 s: .*\b3\b"):
        buffer.sample(5, timeout=0.3)
    assert time.monotonic() - begin >= 0.3
    assert buffer.sample(3, timeout=0)["k"].tolist() == [0, 1, 2]


def test_limiter_and_rows_have_one_timeout_between_them() -> None:
    buffer = make(strategy="fifo", min_size=4, samples_per_insert=1.0, tolerance=20.0)
    add_numbers(buffer, 3)
    begin = time.monotonic()
    with Crowd() as crowd:
        adding = crowd.start(children.add_later, buffer, 0.4, 1)
        with pytest.raises(Timeout, match=r"waited 0\.8 s: .*\b4\b"):
            buffer.sample(6, timeout=0.8)
        adding.result()
    assert 0.8 <= time.monotonic() - begin < 1.1
    assert buffer.stats()["limiter"]["balance"] == 4
    assert buffer.stats()["rows_sampled"] == 0


@pytest.mark.parametrize("parts", [None, (), (NStep(2),)], ids=["sample", "view", "n-step"])
@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
def test_a_wait_in_vain_leaves_no_trace_in_the_generator(strategy: str, parts: Any) -> None:
    def batches(patient: bool) -> list[Any]:
        buffer = make(strategy=strategy) if parts is None else steps(strategy=strategy)
        source = buffer if parts is None else buffer.view(*parts)
        if patient:
            for _ in range(3):
                with pytest.raises(Timeout):
                    source.sample(4, timeout=0.01)
        if parts is None:
            add_numbers(buffer, 50)
        else:
            with buffer.writer() as writer:
                for k in range(50):
                    writer.append(k, 0, 0.0, False, False)
        drawn = [source.sample(4)["indices"].tolist() for _ in range(5)]
        assert buffer.stats()["samples"] == 5
        return drawn

    assert batches(patient=True) == batches(patient=False)


def test_batches_that_no_number_of_rows_could_fill_are_refused() -> None:
    for strategy, options, most in (
        ("fifo", {}, 10),
        ("fifo", {"max_times_sampled": 3}, 30),
        ("lifo", {}, 10),
    ):
        buffer = make(capacity=10, strategy=strategy, **options)
        add_numbers(buffer, 10)
        with pytest.raises(
            InvalidArgument, match=rf"sample\({most + 1}\) could wait for ever.*{most}"
        ):
            buffer.sample(most + 1, timeout=PATIENCE)
        assert len(buffer.sample(most, timeout=0)["k"]) == most


@pytest.mark.parametrize("bad", [-1, float("nan"), "1", True])
def test_bad_timeouts_are_refused_by_every_call(bad: Any) -> None:
    settled, empty = make(), ReplayBuffer(BufferConfig(10))
    add_numbers(settled, 5)
    for buffer in (settled, empty):
        with pytest.raises(InvalidArgument, match="timeout must be None or a number of seconds"):
            buffer.sample(4, timeout=bad)
    for part in (NStep(2), Sequence(2), Trajectory()):
        with pytest.raises(InvalidArgument, match="timeout must be None or a number of seconds"):
            steps().view(part).sample(4, timeout=bad)


# ---- ends of a wait


def test_closing_ends_a_wait_for_rows() -> None:
    for buffer in (make(), ReplayBuffer(BufferConfig(10)), steps()):
        with Crowd() as crowd:
            learner = crowd.start(patiently, buffer, 4)
            time.sleep(0.1)
            buffer.close()
            with pytest.raises(Closed):
                learner.result()


@pytest.mark.parametrize("settled", [True, False])
def test_ctrl_c_ends_a_wait_for_rows(settled: bool) -> None:
    buffer = make() if settled else ReplayBuffer(BufferConfig(10))
    sent: list[float] = []

    def interrupt() -> None:
        time.sleep(0.2)
        sent.append(time.monotonic())
        os.kill(os.getpid(), signal.SIGINT)

    with Crowd() as crowd:
        crowd.start(interrupt)
        with pytest.raises(KeyboardInterrupt):
            buffer.sample(4, timeout=PATIENCE)
    assert time.monotonic() - sent[0] < 1


def test_a_writer_that_is_killed_holds_up_nobody_who_waits(started: Callable[..., Any]) -> None:
    context = multiprocessing.get_context("fork")
    buffer = make("shm:", strategy="fifo")
    doomed = started(context, children.add_and_hang, buffer, 2)
    while len(buffer) < 2:
        time.sleep(0.001)
    doomed.kill()
    started(context, children.add_later, buffer, 0.2, 2)
    assert len(buffer.sample(4, timeout=PATIENCE)["k"]) == 4


def test_async_draws_wait_for_rows_too() -> None:
    async def main() -> None:
        buffer = make(strategy="fifo")
        waiting = [asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE)) for _ in range(40)]
        await asyncio.sleep(0.4)  # longer than one slice of waiting
        add_numbers(buffer, 80)
        drawn = [k for batch in await asyncio.gather(*waiting) for k in batch["k"].tolist()]
        assert sorted(drawn) == list(range(80))
        with pytest.raises(Timeout, match=r"^sample\(2\) waited 0\.4 s: "):
            await buffer.sample_async(2, timeout=0.4)
        cancelled = asyncio.create_task(buffer.sample_async(2, timeout=PATIENCE))
        await asyncio.sleep(0.05)
        cancelled.cancel()

    begin = time.monotonic()
    asyncio.run(main())  # joins the threads of the executor
    assert time.monotonic() - begin < PATIENCE


def test_a_queue_is_not_drawn_from_by_a_readonly_handle_that_waits(tmp_path: Path) -> None:
    with (
        make(f"file:{tmp_path / 'queue'}", strategy="fifo") as buffer,
        ReplayBuffer.open(buffer.location, readonly=True) as watcher,
        pytest.raises(ReadOnly),
    ):
        watcher.sample(1, timeout=PATIENCE)
