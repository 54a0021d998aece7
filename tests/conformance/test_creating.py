"""Creating a buffer where there may be one: nothing is ever replaced in silence."""

from __future__ import annotations

import multiprocessing
import os
import signal
import time
from pathlib import Path
from typing import Any

import pytest

from conformance.children import in_fork, joined, killed_after, open_or_create, write
from conformance.shared import MARKS, create, path_of
from replay_buffer import (
    AlreadyExists,
    BufferConfig,
    Column,
    Corrupt,
    InvalidArgument,
    LinearSchedule,
    NotFound,
    ReplayBuffer,
    Schema,
    SchemaMismatch,
    Timeout,
)
from replay_buffer.testing.content import NUMBERED, add_numbers, assert_whole
from replay_buffer.testing.crowd import Crowd

pytestmark = MARKS
ADVICE = r"open\(\).*open_or_create\(\).*overwrite=True.*unlink"


def made_or_opened(location: str, config: BufferConfig | None = None, **others: Any) -> Any:
    others.setdefault("schema", NUMBERED)
    return ReplayBuffer.open_or_create(location, config or BufferConfig(100), **others)


# ---- what is there already


def hold(location: str, say: int) -> None:
    """Has the buffer open until it is killed, or a minute."""
    handle = ReplayBuffer.open(location)
    os.write(say, b"x")
    time.sleep(60)
    handle.close()


def test_rows_that_somebody_holds_are_not_replaced_and_the_holders_are_named(location: str) -> None:
    ready, say = os.pipe()
    with create(location) as buffer:
        add_numbers(buffer, 3)
        child = in_fork(hold, location, say)
        try:
            os.read(ready, 1)
            with pytest.raises(AlreadyExists, match=rf"{location} .*{ADVICE}") as caught:
                create(location)
        finally:
            os.kill(child, signal.SIGKILL)
            joined(child)
        assert f"{os.getpid()} (this process)" in str(caught.value)
        assert str(child) in str(caught.value)
        with pytest.raises(AlreadyExists) as caught:
            create(location)
        assert str(child) not in str(caught.value)
        assert len(buffer) == 3
    os.close(ready)
    os.close(say)


def test_rows_that_somebody_reads_are_not_replaced(location: str) -> None:
    create(location).close()
    with (
        ReplayBuffer.open(location, readonly=True),
        pytest.raises(AlreadyExists, match=rf"open for reading.*{ADVICE}"),
    ):
        create(location)


def test_rows_that_nobody_holds_are_not_replaced(location: str) -> None:
    killed_after(lambda: add_numbers(create(location), 5))
    for _ in range(2):
        with pytest.raises(AlreadyExists, match=rf"nobody has it open.*{ADVICE}"):
            create(location)
    with ReplayBuffer.open(location) as buffer:
        assert len(buffer) == 5


def test_a_restored_buffer_replaces_nothing_either(location: str, tmp_path: Path) -> None:
    saved = tmp_path / "saved"
    with create("heap:") as buffer:
        add_numbers(buffer, 7)
        buffer.checkpoint(saved)
    with create(location) as there:
        add_numbers(there, 3)
    with pytest.raises(AlreadyExists, match=ADVICE):
        ReplayBuffer.restore(saved, location)
    with ReplayBuffer.open(location) as there:
        assert len(there) == 3
    with ReplayBuffer.restore(saved, location, overwrite=True) as restored:
        assert len(restored) == 7
    with ReplayBuffer.open(location) as there:
        assert len(there) == 7


def test_nothing_is_allocated_before_a_buffer_is_refused(location: str) -> None:
    """What exists is said, not that there is no space for a second one."""
    create(location).close()
    with pytest.raises(AlreadyExists):
        create(location, capacity=2**40)


# ---- overwrite=True


def test_overwrite_replaces_what_is_there_and_it_lives_on_where_it_is_open(location: str) -> None:
    with create(location) as old:
        add_numbers(old, 3)
        with create(location, overwrite=True) as new:
            assert len(new) == 0
            add_numbers(new, 5)
            old.add(0, [0, 0, 0])
            assert len(old) == 4
            with ReplayBuffer.open(location) as opened:
                assert len(opened) == 5
            with pytest.raises(NotFound):
                old.unlink()  # the name is that of the new one
            assert path_of(location).exists()


def test_overwrite_of_nothing_creates(location: str) -> None:
    with create(location, overwrite=True) as buffer:
        add_numbers(buffer, 3)
    with ReplayBuffer.open(location) as buffer:
        assert len(buffer) == 3


def test_overwrite_replaces_what_a_crash_left(location: str) -> None:
    killed_after(lambda: add_numbers(create(location), 5))
    with create(location, overwrite=True) as buffer:
        assert len(buffer) == 0


def test_overwrite_leaves_a_file_alone_that_is_no_buffer(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    path.write_text("a year of work")
    with pytest.raises(AlreadyExists, match="not a replay buffer"):
        create(f"file:{path}")
    with pytest.raises(Corrupt, match="not a replay buffer"):
        create(f"file:{path}", overwrite=True)
    assert path.read_text() == "a year of work"


# ---- open_or_create


def test_open_or_create_creates_once_and_then_opens(location: str) -> None:
    with made_or_opened(location, seed=3) as one, made_or_opened(location, seed=3) as other:
        add_numbers(one, 3)
        assert len(other) == 3
    with made_or_opened(location) as again:  # no seed: that of the segment
        assert len(again) == 3


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_of_many_processes_one_creates_and_all_share(location: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    barrier, told = context.Barrier(8), context.Queue()
    children = [
        context.Process(target=open_or_create, args=(location, worker, barrier, told))
        for worker in range(8)
    ]
    try:
        for child in children:
            child.start()
        assert [told.get(timeout=60) for _ in children] == [8 * 10] * 8
    finally:
        for child in children:
            child.kill()
            child.join()
    with ReplayBuffer.open(location) as buffer:
        assert sorted(set(buffer.latest(100)["k"] // 1000)) == list(range(8))
        assert_whole(buffer.latest(100))


def test_open_or_create_goes_on_with_what_a_crash_left(location: str) -> None:
    killed_after(lambda: write(create(location), 0, 37))
    with made_or_opened(location) as buffer:
        assert buffer.latest(100)["k"].tolist() == list(range(37))


@pytest.mark.parametrize(
    ("config", "said"),
    [
        (BufferConfig(200), r"capacity is 100 .*200"),
        (BufferConfig(100, "rank"), r"strategy is 'prioritized' .*'rank'"),
        (BufferConfig(100, "prioritized", epsilon=0.1), r"epsilon is 1e-06 .*0\.1"),
        (BufferConfig(100, "prioritized", beta=0.7), r"beta is 0\.4 .*0\.7"),
        (
            BufferConfig(100, "prioritized", beta=LinearSchedule(0.4, 1, 9)),
            r"beta is 0\.4 .*Linear",
        ),
        (BufferConfig(100, "prioritized", min_size=5), r"min_size is 0 .*5"),
        (BufferConfig(100, "prioritized", block_rows=7), r"block_rows is \d+ .*7"),
        (BufferConfig(100, "prioritized", weights="none", cer=True), r"weights .*cer"),
    ],
)
def test_a_config_that_does_not_fit_is_refused(
    location: str, config: BufferConfig, said: str
) -> None:
    with made_or_opened(location, BufferConfig(100, "prioritized")) as buffer:
        add_numbers(buffer, 3)
        with pytest.raises(InvalidArgument, match=rf"{location} .*{said}"):
            made_or_opened(location, config)
        with pytest.raises(InvalidArgument, match="seed"):
            made_or_opened(location, BufferConfig(100, "prioritized"), seed=buffer._engine.seed ^ 1)
        assert len(buffer) == 3


def test_a_schedule_that_only_one_process_has_is_refused(location: str) -> None:
    config = BufferConfig(100, "prioritized", beta=lambda step: 0.0)
    there = made_or_opened(location, BufferConfig(100, "prioritized", beta=0.0))
    with there, pytest.raises(InvalidArgument, match="LinearSchedule"):
        made_or_opened(location, config)


def test_alpha_may_have_been_changed_since(location: str) -> None:
    with made_or_opened(location, BufferConfig(100, "prioritized")) as buffer:
        buffer.alpha = 0.1
        with made_or_opened(location, BufferConfig(100, "prioritized")) as other:
            assert other.alpha == pytest.approx(0.1)
            assert other.config.alpha == pytest.approx(0.1)


@pytest.mark.parametrize(
    ("columns", "said"),
    [
        ({"k": Column((), "int64")}, "'x'"),
        ({"k": Column((), "int32"), "x": Column((3,))}, "'k': dtype is int64.*int32"),
        ({"k": Column((), "int64"), "x": Column((4,))}, r"'x'.*\(3,\).*\(4,\)"),
        ({"k": Column((), "int64", limit=9), "x": Column((3,))}, "'k': limit is None .*9"),
        ({"x": Column((3,)), "k": Column((), "int64")}, "'k'.*'x'"),
        (
            {"k": Column((), "int64"), "x": Column((3,)), "more": Column()},
            "'more'",
        ),
    ],
)
def test_columns_that_do_not_fit_are_refused(
    location: str, columns: dict[str, Column], said: str
) -> None:
    with made_or_opened(location), pytest.raises(SchemaMismatch, match=rf"{location} .*{said}"):
        made_or_opened(location, schema=Schema(columns))


def test_a_damaged_buffer_is_not_replaced_by_open_or_create(location: str) -> None:
    create(location).close()
    with path_of(location).open("r+b") as file:
        file.write(b"\0" * 8)
    with pytest.raises(Corrupt):
        made_or_opened(location)
    assert path_of(location).exists()


def test_an_unnamed_buffer_is_always_created() -> None:
    for location in ("heap:", "shm:"):
        with made_or_opened(location) as one, made_or_opened(location) as other:
            add_numbers(one, 3)
            assert len(other) == 0


# ---- open(wait=)


def test_open_waits_for_a_buffer_that_comes_later(location: str) -> None:
    def appear() -> None:
        time.sleep(0.3)
        with create(location) as buffer:
            add_numbers(buffer, 3)

    child = in_fork(appear)
    begin = time.monotonic()
    try:
        with ReplayBuffer.open(location, wait=60) as buffer:
            assert time.monotonic() - begin > 0.25
            assert buffer.location == location
    finally:
        assert joined(child) == 0


def test_open_says_what_it_waited_for(location: str) -> None:
    begin = time.monotonic()
    with pytest.raises(Timeout, match=rf"open\('{location}'\) waited 0\.3 s: .*no buffer there"):
        ReplayBuffer.open(location, wait=0.3)
    assert time.monotonic() - begin >= 0.3
    with pytest.raises(NotFound):
        ReplayBuffer.open(location, wait=0)


def test_a_wait_for_a_buffer_is_ended_by_ctrl_c(location: str) -> None:
    def wait() -> None:
        def interrupt() -> None:
            time.sleep(0.3)
            os.kill(os.getpid(), signal.SIGINT)

        begin = time.monotonic()
        with Crowd() as crowd:
            crowd.start(interrupt)
            with pytest.raises(KeyboardInterrupt):
                ReplayBuffer.open(location, wait=60)
        assert time.monotonic() - begin < 10

    assert joined(in_fork(wait)) == 0


@pytest.mark.parametrize("bad", [-1, float("nan"), "1", True, [1]])
def test_bad_waits_are_refused(location: str, bad: Any) -> None:
    with pytest.raises(InvalidArgument, match="wait must be a number of seconds"):
        ReplayBuffer.open(location, wait=bad)
