"""The rate limiter: sample and add wait for each other, across threads and processes."""

from __future__ import annotations

import asyncio
import multiprocessing
import os
import signal
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    InvalidArgument,
    NotEnoughRows,
    ReadOnly,
    ReplayBuffer,
    Schema,
    SchemaMismatch,
    Timeout,
)
from replay_buffer.testing.crowd import Crowd
from unit import limiter_children as children

pytestmark = pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
PATIENCE = 60.0  # seconds until somebody who should not wait is called hung
SPAWN, FORK = (multiprocessing.get_context(kind) for kind in ("spawn", "fork"))


def make(location: str = "heap:", capacity: int = 1000, **options: Any) -> ReplayBuffer:
    config = BufferConfig(capacity, **options)
    return ReplayBuffer.create(location, config, schema=children.SCHEMA, seed=0)


def fill(buffer: ReplayBuffer, rows: int) -> None:
    for k in range(rows):
        buffer.add(k, timeout=0)


def balance(buffer: ReplayBuffer) -> float:
    return float(buffer.stats()["limiter"]["balance"])


def waiting(buffer: ReplayBuffer) -> int:
    return int(buffer.stats()["limiter"]["waiting"])


def eventually(true: Callable[[], bool]) -> None:
    deadline = time.monotonic() + PATIENCE
    while not true():
        assert time.monotonic() < deadline
        time.sleep(0.002)


@pytest.fixture(params=["fork", "spawn"])
def context(request: pytest.FixtureRequest) -> Any:
    return {"fork": FORK, "spawn": SPAWN}[request.param]


@pytest.fixture
def processes() -> Iterator[list[Any]]:
    """Processes that are killed at the end, if they are still there."""
    started: list[Any] = []
    yield started
    for process in started:
        if process.is_alive():
            process.kill()
        process.join()


def start(processes: list[Any], context: Any, work: Callable[..., None], *args: Any) -> Any:
    process = context.Process(target=work, args=args)
    process.start()
    processes.append(process)
    return process


def ended(*processes: Any) -> None:
    for process in processes:
        process.join(PATIENCE)
        assert process.exitcode == 0


# ------------------------------------------------------------------------------------ the rule


def test_without_a_limiter_adds_never_wait() -> None:
    buffer = make()
    assert buffer.stats()["limiter"] is None
    buffer.add(1, timeout=0)
    buffer.add_batch(np.arange(3), timeout=0.5)
    buffer.add(k=2, timeout=None)
    assert len(buffer.sample(8, timeout=0)["k"]) == 8
    assert len(buffer) == 5


def test_sample_waits_until_min_size_rows_are_there(crowd: Crowd) -> None:
    buffer = make(min_size=3)
    fill(buffer, 2)
    with pytest.raises(Timeout, match=r"2 of 3 rows are there \(min_size\)"):
        buffer.sample(1, timeout=0)
    learner = crowd.start(buffer.sample, 8)
    eventually(lambda: waiting(buffer) == 1)
    buffer.add(2)
    assert set(learner.result()["k"].tolist()) <= {0, 1, 2}
    assert waiting(buffer) == 0


def test_sample_waits_for_the_first_row_which_settles_the_columns(crowd: Crowd) -> None:
    buffer = ReplayBuffer(BufferConfig(10, min_size=2))
    assert buffer.stats()["limiter"]["min_size"] == 2
    with pytest.raises(Timeout, match="0 of 2 rows"):
        buffer.sample(1, timeout=0.02)
    learner = crowd.start(buffer.sample, 4)
    buffer.add(obs=1.0)
    buffer.add(obs=2.0)
    assert learner.result()["obs"].shape == (4,)
    other = ReplayBuffer(BufferConfig(10, min_size=2))
    learner = crowd.start(other.sample, 4)
    other.close()
    with pytest.raises(Closed):
        learner.result()


def test_each_side_can_go_as_far_as_the_tolerance() -> None:
    buffer = make(min_size=10, samples_per_insert=2, tolerance=8)
    fill(buffer, 14)  # the balance is 28: middle + tolerance
    with pytest.raises(Timeout):
        buffer.add(0, timeout=0)
    for _ in range(4):
        buffer.sample(4, timeout=0)  # 12: middle - tolerance
    with pytest.raises(Timeout):
        buffer.sample(1, timeout=0)
    assert buffer.stats()["limiter"] == {
        "min_size": 10,
        "samples_per_insert": 2.0,
        "tolerance": 8.0,
        "balance": 12.0,
        "waiting": 0,
    }
    fill(buffer, 8)
    with pytest.raises(Timeout):
        buffer.add_batch(np.arange(2), timeout=0)


def test_filling_up_to_min_size_is_never_refused() -> None:
    buffer = make(min_size=100, samples_per_insert=4, tolerance=20)
    buffer.add_batch(np.arange(90), timeout=0)
    buffer.add_batch(np.arange(90), timeout=0)
    with pytest.raises(InvalidArgument, match="could wait for ever"):
        buffer.add_batch(np.arange(90), timeout=0)
    buffer.clear()
    assert balance(buffer) == 0
    with pytest.raises(Timeout, match="0 of 100"):
        buffer.sample(1, timeout=0)
    buffer.add_batch(np.arange(90), timeout=0)


def test_a_clear_lets_adds_go_on(crowd: Crowd) -> None:
    buffer = make(min_size=2, samples_per_insert=1, tolerance=1)
    fill(buffer, 3)
    actor = crowd.start(buffer.add, 0)
    eventually(lambda: waiting(buffer) == 1)
    buffer.clear()
    assert actor.result() > 0


def test_a_queue_that_was_cleared_goes_on_as_a_new_one() -> None:
    buffer = make(strategy="fifo", samples_per_insert=1, tolerance=12)
    fill(buffer, 13)
    with pytest.raises(Timeout):
        buffer.add(0, timeout=0)
    buffer.clear()
    for _ in range(50):
        fill(buffer, 4)
        buffer.sample(4, timeout=0)
    assert balance(buffer) == 0


@pytest.mark.parametrize("limiter", [False, True])
def test_a_restored_queue_gives_every_row_that_nobody_had(limiter: bool, tmp_path: Path) -> None:
    buffer = make(strategy="fifo", min_size=10, samples_per_insert=1, tolerance=10)
    fill(buffer, 20)
    drawn = buffer.sample(4)["indices"].tolist()
    buffer.checkpoint(tmp_path / "saved")
    restored = ReplayBuffer.restore(tmp_path / "saved", limiter=limiter)
    for _ in range(16):
        drawn += restored.sample(1, timeout=0)["indices"].tolist()
    assert drawn == list(range(20))
    for _ in range(50):
        restored.add(0, timeout=0)
        restored.sample(1, timeout=0)


def test_a_queue_that_could_never_give_what_is_owed_is_refused() -> None:
    with pytest.raises(InvalidArgument, match=r"2 times.*max_times_sampled is 1"):
        make(strategy="fifo", samples_per_insert=2, tolerance=100)
    make(strategy="fifo", samples_per_insert=2, max_times_sampled=2, tolerance=100)


def test_a_batch_that_a_queue_is_never_filled_up_to_is_refused() -> None:
    buffer = make(strategy="fifo", samples_per_insert=1, tolerance=17)
    fill(buffer, 18)
    with pytest.raises(Timeout):
        buffer.add(0, timeout=0)
    with pytest.raises(InvalidArgument, match=r"sample\(19\).*min_size"):
        buffer.sample(19)
    assert len(buffer.sample(18, timeout=0)["k"]) == 18
    buffer = make(strategy="fifo", samples_per_insert=1, tolerance=17, min_size=15)
    fill(buffer, 32)
    assert len(buffer.sample(32, timeout=0)["k"]) == 32


def test_a_draw_that_a_clear_let_fail_leaves_nothing_owed(crowd: Crowd) -> None:
    """Its share is of before the clear, and is not given back after it."""
    buffer = make(strategy="fifo", capacity=64, samples_per_insert=1, tolerance=20)

    def draw() -> None:
        with suppress(NotEnoughRows, Timeout):
            buffer.sample(10, timeout=0)

    crowd.repeat(draw)
    crowd.repeat(draw)
    for _ in range(2000):
        with suppress(Timeout):
            buffer.add_batch(np.arange(10), timeout=0)
        buffer.clear()
        assert balance(buffer) <= len(buffer) + 10


def test_rows_that_a_stopped_consumer_lost_are_not_waited_for() -> None:
    """What is overwritten between taking and copying can never be drawn, and is not owed."""
    buffer = make("shm:", capacity=32, strategy="fifo", samples_per_insert=1, tolerance=12)
    writer = FORK.Process(target=children.act_until_killed, args=(buffer,))
    consumers = [FORK.Process(target=children.take_until_killed, args=(buffer,)) for _ in range(3)]
    for process in (writer, *consumers):
        process.start()
    try:
        for turn in range(120):
            pid = consumers[turn % 3].pid
            assert pid is not None
            os.kill(pid, signal.SIGSTOP)
            time.sleep(0.01)
            os.kill(pid, signal.SIGCONT)
        time.sleep(0.05)
        before = buffer.stats()["rows_sampled"]
        eventually(lambda: buffer.stats()["rows_sampled"] > before + 1000)
    finally:
        for process in (writer, *consumers):
            process.kill()
            process.join()
    with suppress(NotEnoughRows, Timeout):
        while True:
            buffer.sample(1, timeout=0)
    # The writer may have been killed with a share of 3 rows that it had not published, each
    # consumer with one of 4 that it had not taken.
    assert -12 <= balance(buffer) <= 3


def test_a_draw_that_fails_gives_its_share_back() -> None:
    buffer = make(strategy="fifo", min_size=1, samples_per_insert=1, tolerance=10)
    fill(buffer, 3)
    with pytest.raises(NotEnoughRows):
        buffer.sample(5)
    with pytest.raises(Timeout):
        buffer.sample(5, timeout=0)
    assert balance(buffer) == 3
    with pytest.raises(SchemaMismatch):
        buffer.sample(2, out={"k": np.zeros(3, np.int64)}, timeout=0)
    assert balance(buffer) == 3
    out = buffer.sample(2, timeout=0)
    assert balance(buffer) == 1
    buffer.add(7)
    buffer.add(8)
    assert buffer.sample(2, out=out, timeout=0)["k"].tolist() == [2, 7]
    assert balance(buffer) == 1


def test_all_ways_to_call_are_counted() -> None:
    buffer = make(strategy="prioritized", min_size=1, samples_per_insert=1, tolerance=50)
    buffer.add(1)
    buffer.add(k=1)
    buffer.add(2, priority=2.0, timeout=0)
    buffer.add(np.array(3, np.int8), timeout=0)  # converted
    buffer.add_batch([1, 2, 3], timeout=0)  # converted
    buffer.add_batch(np.arange(3), priority=np.ones(3, np.float32), timeout=0)
    assert balance(buffer) == 10
    buffer.sample(2)
    buffer.sample(batch_size=2, beta=0.5, timeout=1.5)
    buffer.sample(np.int64(2), timeout=np.float32(1))
    assert balance(buffer) == 4


def test_timeout_is_a_reserved_name() -> None:
    with pytest.raises(InvalidArgument, match="reserved"):
        Schema({"timeout": Column()})
    Schema({"info": {"timeout": Column()}})


@pytest.mark.parametrize("bad", [-1, -0.001, float("nan"), "1", b"1", [1], True, object(), 1j])
@pytest.mark.parametrize("limits", [{}, {"min_size": 1}])
def test_bad_timeouts_are_refused(bad: Any, limits: dict[str, Any]) -> None:
    buffer = make(**limits)
    buffer.add(1)
    for call in (
        lambda: buffer.sample(1, timeout=bad),
        lambda: buffer.sample(np.int64(1), timeout=bad),
        lambda: buffer.add(1, timeout=bad),
        lambda: buffer.add(k=1, timeout=bad),
        lambda: buffer.add_batch(np.arange(2), timeout=bad),
        lambda: buffer.add_batch([1, 2], timeout=bad),
        lambda: asyncio.run(buffer.sample_async(1, timeout=bad)),
    ):
        with pytest.raises(InvalidArgument, match="timeout must be None or a number of seconds"):
            call()
    assert len(buffer) == 1


@pytest.mark.parametrize(
    "options",
    [
        {"min_size": 11},
        {"min_size": -1},
        {"min_size": 1.5},
        {"samples_per_insert": 0},
        {"samples_per_insert": -1, "tolerance": 10},
        {"samples_per_insert": float("nan"), "tolerance": 10},
        {"samples_per_insert": 1e-6, "tolerance": 10},
        {"samples_per_insert": 1e7, "tolerance": 1e9},
        {"samples_per_insert": 1},
        {"samples_per_insert": 4, "tolerance": 2.4},
        {"tolerance": -1},
        {"tolerance": float("inf")},
        {"tolerance": 1e13},
    ],
)
def test_limits_that_cannot_work_are_refused(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument):
        ReplayBuffer(BufferConfig(10, **options))


def test_calls_that_could_wait_for_ever_are_refused() -> None:
    buffer = make(min_size=1, samples_per_insert=4, tolerance=10)
    fill(buffer, 1)
    with pytest.raises(InvalidArgument, match=r"sample\(17\) .* a tolerance of at least 10\.5"):
        buffer.sample(17)
    with pytest.raises(InvalidArgument, match=r"add_batch of 5 rows .* at least 10\.5"):
        buffer.add_batch(np.arange(5))


# ------------------------------------------------------------------------------- ends of a wait


def test_a_timeout_says_who_waits_for_what(processes: list[Any]) -> None:
    buffer = make("shm:", min_size=2, samples_per_insert=4, tolerance=20)
    with pytest.raises(
        Timeout, match=r"^sample\(8\) waited 0\.1 s: 0 of 2 rows are there \(min_size\); nobody"
    ):
        buffer.sample(8, timeout=0.1)
    told = FORK.Queue()
    child = start(processes, FORK, children.wait_for_rows, buffer, told)
    pid = told.get(timeout=PATIENCE)
    eventually(lambda: waiting(buffer) == 1)
    with pytest.raises(Timeout, match=rf"; process {pid} waits to sample$"):
        buffer.sample(8, timeout=0.05)
    fill(buffer, 2)
    ended(child)
    fill(buffer, 5)
    with pytest.raises(
        Timeout,
        match=r"^add would have to wait: 1 row was drawn for 7 added \(samples_per_insert=4, "
        r"tolerance=20\), 3 more must be drawn first; nobody else waits$",
    ):
        buffer.add(1, timeout=0)
    for _ in range(4):
        buffer.sample(8, timeout=0)
    with pytest.raises(Timeout, match=r"33 rows were drawn for 7 added .*, 1 more must be added"):
        buffer.sample(8, timeout=0)
    assert issubclass(Timeout, TimeoutError)


def test_a_timeout_takes_as_long_as_it_says() -> None:
    buffer = make(min_size=1)
    begin = time.monotonic()
    with pytest.raises(Timeout):
        buffer.sample(1, timeout=0.3)
    assert 0.3 <= time.monotonic() - begin < PATIENCE


@pytest.mark.parametrize("call", ["sample", "add"])
def test_closing_ends_the_waits_of_other_threads(crowd: Crowd, call: str) -> None:
    buffer = make(min_size=1, samples_per_insert=1, tolerance=1)
    if call == "add":
        fill(buffer, 2)
    waiters = [crowd.start(getattr(buffer, call), 1) for _ in range(3)]
    eventually(lambda: waiting(buffer) == 1)
    time.sleep(0.05)
    buffer.close()
    for waiter in waiters:
        with pytest.raises(Closed):
            waiter.result()


@pytest.mark.usefixtures("short_turns")
def test_async_calls_wait_without_blocking_the_loop_and_end_when_cancelled() -> None:
    async def main() -> None:
        buffer = make(min_size=2, samples_per_insert=2, tolerance=4)
        learner = asyncio.create_task(buffer.sample_async(2))
        for k in range(2):
            await buffer.add_async(k)
        assert (await learner)["k"].shape == (2,)
        await buffer.add_batch_async(np.arange(3), timeout=0)
        with pytest.raises(Timeout, match=r"^add_batch of 3 rows waited [0-9.]+ s: ") as caught:
            await buffer.add_batch_async(np.arange(3), timeout=0.6)
        assert "waited 0.2 s" not in str(caught.value)  # the whole time, not the last slice
        blocked = [asyncio.create_task(buffer.add_batch_async(np.arange(3))) for _ in range(40)]
        await asyncio.sleep(0.05)
        for task in blocked:
            task.cancel()
        await asyncio.gather(*blocked, return_exceptions=True)

    begin = time.monotonic()
    asyncio.run(main())  # joins the threads of the executor
    assert time.monotonic() - begin < PATIENCE


# -------------------------------------------------------------------------------- many processes


def test_a_learner_blocks_until_an_actor_has_filled_min_size(
    context: Any, processes: list[Any]
) -> None:
    buffer = make("shm:", min_size=5)
    told = context.Queue()
    learner = start(processes, context, children.learn_once, buffer, told)
    eventually(lambda: waiting(buffer) == 1)
    time.sleep(0.25)
    actor = start(processes, context, children.act, buffer, 5)
    took, drawn = told.get(timeout=PATIENCE)
    assert took >= 0.25
    assert set(drawn) <= set(range(5))
    ended(learner, actor)


def test_actors_and_learners_stay_within_the_tolerance_at_every_moment(
    context: Any, processes: list[Any]
) -> None:
    ratio, tolerance, size, rows = 8, 64, 16, 2000
    buffer = make("shm:", min_size=10, samples_per_insert=ratio, tolerance=tolerance)
    fill(buffer, 10)
    batches = rows * ratio // size
    work = [start(processes, context, children.act, buffer, rows) for _ in range(2)]
    work += [start(processes, context, children.learn, buffer, batches, size) for _ in range(2)]
    seen = []
    while any(process.is_alive() for process in work):
        seen.append(balance(buffer))
    ended(*work)
    assert min(seen) >= 10 * ratio - tolerance
    assert max(seen) <= 10 * ratio + tolerance
    assert balance(buffer) == 10 * ratio
    stats = buffer.stats()
    assert stats["rows_added"] == 10 + 2 * rows
    assert stats["rows_sampled"] == 2 * batches * size


@pytest.mark.parametrize("call", ["sample", "add"])
def test_ctrl_c_is_served_while_a_call_waits(context: Any, processes: list[Any], call: str) -> None:
    buffer = make("shm:", min_size=1, samples_per_insert=1, tolerance=1)
    if call == "add":
        fill(buffer, 2)
    told = context.Queue()
    child = start(processes, context, children.interrupted, buffer, told, call)
    assert told.get(timeout=PATIENCE) == "ready"
    eventually(lambda: waiting(buffer) == 1)
    sent = time.monotonic()
    os.kill(child.pid, signal.SIGINT)
    raised = told.get(timeout=PATIENCE)
    assert raised is not None
    assert raised - sent < 1
    ended(child)
    assert waiting(buffer) == 0


def test_whoever_is_killed_holds_nobody_up(processes: list[Any]) -> None:
    buffer = make("shm:", min_size=4, samples_per_insert=4, tolerance=40)
    for _ in range(8):
        doomed = [
            start(processes, FORK, children.act_until_killed, buffer),
            start(processes, FORK, children.learn_until_killed, buffer),
        ]
        time.sleep(0.05)
        for process in doomed:
            process.kill()
            process.join()
    # Everybody was killed in the middle of something, some of them asleep.
    assert waiting(buffer) == 0
    work = [
        start(processes, FORK, children.act, buffer, 500),
        start(processes, FORK, children.learn, buffer, 500, 4),
    ]
    ended(*work)
    assert abs(balance(buffer) - 16) <= 40


def test_a_waiter_that_is_killed_holds_nobody_up(processes: list[Any]) -> None:
    buffer = make("shm:", min_size=2)
    told = FORK.Queue()
    first = start(processes, FORK, children.wait_for_rows, buffer, told)
    told.get(timeout=PATIENCE)
    second = start(processes, FORK, children.wait_for_rows, buffer, told)
    told.get(timeout=PATIENCE)
    eventually(lambda: waiting(buffer) == 2)
    first.kill()
    first.join()
    assert waiting(buffer) == 1
    fill(buffer, 2)
    ended(second)


def test_a_reader_waits_for_min_size_and_is_not_counted(crowd: Crowd) -> None:
    name = f"shm:limiter-{os.getpid()}"
    with make(name, min_size=2, samples_per_insert=1, tolerance=2) as buffer:
        try:
            with ReplayBuffer.open(name, readonly=True) as reader:
                with pytest.raises(Timeout, match="0 of 2 rows"):
                    reader.sample(1, timeout=0.05)
                learner = crowd.start(reader.sample, 3)
                fill(buffer, 4)
                learner.result()
                for _ in range(10):
                    reader.sample(50)
                assert balance(buffer) == balance(reader) == 4
                with pytest.raises(ReadOnly):
                    reader.add(1)
        finally:
            buffer.unlink()


def test_a_buffer_that_is_opened_brings_its_limits_along() -> None:
    name = f"shm:limits-{os.getpid()}"
    with make(name, block_rows=8, min_size=2, samples_per_insert=0.5, tolerance=2) as buffer:
        try:
            fill(buffer, 3)
            with ReplayBuffer.open(name) as other:
                assert other.config == buffer.config
                assert other.stats()["limiter"] == buffer.stats()["limiter"]
        finally:
            buffer.unlink()


def test_a_restored_limiter_begins_anew_unless_asked(tmp_path: Path) -> None:
    buffer = make(min_size=10, samples_per_insert=4, tolerance=20)
    fill(buffer, 10)
    buffer.sample(16, timeout=0)
    buffer.checkpoint(tmp_path / "saved")
    assert balance(ReplayBuffer.restore(tmp_path / "saved")) == 40
    assert balance(ReplayBuffer.restore(tmp_path / "saved", limiter=True)) == 24
