"""When calls let go of the interpreter's lock: for waits and for long work, and else not.

Beside a thread that runs Python code, getting the lock back takes a switch interval.
"""

from __future__ import annotations

import threading
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    NStep,
    ReplayBuffer,
    Sequence,
    Trajectory,
    _core,
)
from replay_buffer.testing.crowd import Crowd, short_turns

Call = Callable[[], Any]
FRAME = (84, 84, 4)
MOST = 7_000_000  # bytes that are moved without letting go


def lets_go(call: Call) -> bool:
    """Whether the core lets go of the lock during `call`."""
    before = _core.times_let_go()
    call()
    return _core.times_let_go() > before


def lets_others_run(call: Call) -> bool:
    """Whether another thread gets a turn during `call`, whoever lets it: NumPy does, too.

    It may come too late to see that the lock was free.
    """
    done = []
    about_to_call = threading.Event()

    def work() -> None:
        about_to_call.set()
        call()
        done.append(True)

    with Crowd(race=False) as crowd, short_turns(3600):  # nobody asks for the lock
        crowd.start(work)
        about_to_call.wait()
        seen_in_between = not done
        crowd.join()
    return seen_in_between


def test_the_checks_can_fail() -> None:
    array = np.ones(1_000_000)
    assert any(lets_others_run(lambda: np.sort(array)) for _ in range(1000))
    assert not any(lets_others_run(lambda: sum(range(100_000))) for _ in range(5))
    assert not lets_go(lambda: np.sort(array))


# ---- kept


def vectors(rows: int, **options: Any) -> tuple[ReplayBuffer, tuple[Any, ...]]:
    """A full buffer of rows of 77 bytes, and as many to add."""
    schema = {
        "obs": Column((8,)),
        "action": Column((), "int64"),
        "reward": Column(()),
        "next_obs": Column((8,)),
        "done": Column((), "bool"),
    }
    buffer = ReplayBuffer(BufferConfig(rows, **options), schema=schema, seed=0)
    obs = np.random.default_rng(0).random((rows, 8), np.float32)
    some = obs, np.arange(rows), np.zeros(rows, np.float32), obs, np.zeros(rows, bool)
    buffer.add_batch(*some)
    return buffer, some


def calls_on_vectors() -> dict[str, Call]:
    rows = MOST // 77
    buffer, some = vectors(rows, strategy="prioritized")
    out = buffer.sample(rows)
    ids = out["indices"].copy()
    errors = np.ones(rows, np.float32)
    one = [column[0] for column in some]
    names = ("obs", "action", "reward", "next_obs", "done")
    named = dict(zip(names, some, strict=True))
    return {
        "sample": lambda: buffer.sample(rows),
        "sample out": lambda: buffer.sample(rows, out=out),
        "update_priorities": lambda: buffer.update_priorities(ids, errors),
        "add": lambda: buffer.add(*one),
        "add_batch": lambda: buffer.add_batch(*some),
        "add_batch with priorities": lambda: buffer.add_batch(*some, priority=errors),
        "add_batch by name": lambda: buffer.add_batch(**named),
        "latest": lambda: buffer.latest(1000),
        "stats": buffer.stats,
    }


def calls_on_frames() -> dict[str, Call]:
    schema = {"obs": Column(FRAME, "uint8"), "next_obs": Column(FRAME, "uint8")}
    n = MOST // (2 * 28_224)
    buffer = ReplayBuffer(BufferConfig(200), schema=schema, seed=0)
    frames = np.ones((n, *FRAME), np.uint8)
    buffer.add_batch(frames, frames)
    out = buffer.sample(n)
    return {
        "frames: sample": lambda: buffer.sample(n),
        "frames: sample out": lambda: buffer.sample(n, out=out),
        "frames: add": lambda: buffer.add(frames[0], frames[0]),
        "frames: add by name": lambda: buffer.add(obs=frames[0], next_obs=frames[0]),
        "frames: add_batch": lambda: buffer.add_batch(frames, frames),
        "frames: get": lambda: buffer.get(buffer.latest(n)["indices"]),
    }


def calls_on_packed_values(compression: Any) -> dict[str, Call]:
    schema = {"obs": Column(FRAME, "uint8", compression=compression), "tokens": Column((None,))}
    buffer = ReplayBuffer(BufferConfig(200), schema=schema, seed=0)
    frames, tokens = np.ones((50, *FRAME), np.uint8), np.ones(100, np.float32)
    many = {"values": np.ones(5000, np.float32), "offsets": np.arange(0, 5001, 100)}
    buffer.add_batch(frames, many)
    return {
        f"{compression}: add": lambda: buffer.add(frames[0], tokens),
        f"{compression}: add_batch": lambda: buffer.add_batch(frames, many),
        f"{compression}: sample": lambda: buffer.sample(60),
    }


def calls_on_steps() -> dict[str, Call]:
    buffer = ReplayBuffer(
        BufferConfig(20_000, storage="steps"), obs_shape=(17,), obs_dtype="float32", action_dim=4
    )
    writer = buffer.writer(8)
    obs, no = np.zeros((8, 17), np.float32), np.zeros(8, bool)
    values = obs, np.zeros(8, np.int64), np.zeros(8, np.float32)
    for t in range(2000):
        ends = np.full(8, t % 50 == 49)
        writer.append(*values, ends, no, **({"final_obs": obs} if ends.any() else {}))
    views = {
        "steps": buffer.view(),
        "3 steps": buffer.view(NStep(3)),
        "stacks": buffer.view(FrameStack(4)),
        "sequences": buffer.view(Sequence(80)),
        "whole sequences": buffer.view(Sequence(40, pad=False)),
        "sequences with a period": buffer.view(Sequence(20, period=10)),
        "trajectories": buffer.view(Trajectory()),
    }
    samples: dict[str, Call] = {
        f"{name}: sample": lambda view=view: view.sample(256)  # type: ignore[misc]
        for name, view in views.items()
    }
    return samples | {
        "append": lambda: writer.append(*values, no, no),
        "starts": views["3 steps"].starts,
    }


def calls_by_strategy() -> dict[str, Call]:
    calls: dict[str, Call] = {}
    for strategy in ("rank", "without_replacement", "lifo"):
        buffer, some = vectors(5000, strategy=strategy)
        calls[f"{strategy}: sample"] = lambda buffer=buffer: buffer.sample(32)  # type: ignore[misc]
    queue, some = vectors(5000, strategy="fifo")

    def take() -> None:
        queue.add_batch(*some)
        queue.sample(32)

    cleared, some = vectors(2000, strategy="prioritized")

    def change() -> None:
        cleared.alpha = 0.5
        cleared.clear()
        cleared.add_batch(*some)

    return calls | {"fifo: sample": take, "clear": change}


GROUPS: list[Callable[[], dict[str, Call]]] = [
    calls_on_vectors,
    calls_on_frames,
    lambda: calls_on_packed_values("lz4"),
    lambda: calls_on_packed_values("zstd"),
    calls_on_steps,
    calls_by_strategy,
]


@pytest.mark.parametrize("group", range(len(GROUPS)))
def test_calls_of_up_to_seven_megabytes_keep_the_lock(group: int) -> None:
    calls = GROUPS[group]()
    for call in calls.values():
        call()
    assert [name for name, call in calls.items() if lets_go(call)] == []
    tries = range(20)
    assert [n for n, call in calls.items() if any(lets_others_run(call) for _ in tries)] == []


# ---- let go of


@pytest.mark.parametrize("what", ["add", "add_batch", "sample", "sample out", "get", "slow add"])
def test_long_copies_let_go(what: str) -> None:
    n = 40_000_000
    buffer = ReplayBuffer(BufferConfig(2), schema={"x": Column((n,), "uint8")}, seed=0)
    row = np.ones(n, np.uint8)
    buffer.add(row)
    out = buffer.sample(1)
    call = {
        "add": lambda: buffer.add(row),
        "add_batch": lambda: buffer.add_batch(row[None]),
        "sample": lambda: buffer.sample(1),
        "sample out": lambda: buffer.sample(1, out=out),
        "get": lambda: buffer.get([buffer.stats()["rows_added"] - 1]),
        "slow add": lambda: buffer.add(x=row),
    }[what]
    assert lets_go(call)


def test_what_looks_at_a_million_rows_lets_go() -> None:
    rows = 1_000_000
    ranked, _ = vectors(rows, strategy="rank")
    ids = np.arange(rows)

    def sort() -> None:
        ranked.update_priorities(ids[:20_000], np.random.default_rng().random(20_000))
        ranked.sample(32)

    def change() -> None:
        ranked.alpha = 0.5

    calls: dict[str, Call] = {
        "sort": sort,
        "alpha": change,
        "sample": lambda: ranked.sample(rows // 5),
        "update": lambda: ranked.update_priorities(ids, np.ones(rows, np.float32)),
        "priorities": lambda: ranked.priorities(ids),
        "latest": lambda: ranked.latest(rows),
        "clear": ranked.clear,
    }
    assert [name for name, call in calls.items() if not lets_go(call)] == []


def test_looking_for_rare_starts_among_many_rows_lets_go() -> None:
    buffer = ReplayBuffer(BufferConfig(600_000, storage="steps"), schema={
        "obs": Column((), "int64"), "action": Column((), "int64"), "reward": Column(()),
        "terminated": Column((), "bool"), "truncated": Column((), "bool"),
    })  # fmt: skip
    writer = buffer.writer(100)
    zeros, no = np.zeros(100, np.int64), np.zeros(100, bool)
    for _ in range(5900):
        writer.append(zeros, zeros, np.zeros(100, np.float32), no, no)
    view = buffer.view(Sequence(5900, pad=False))
    assert lets_go(view.starts)
    assert lets_go(lambda: view.sample(8))


def test_who_waits_for_another_thread_that_adds_lets_go() -> None:
    buffer, some = vectors(1_000_000)
    row = [column[0] for column in some]
    before = _core.times_let_go()
    with Crowd(race=False) as crowd, short_turns(3600):
        for _ in range(20):
            adds = crowd.start(buffer.add_batch, *some)  # runs on when it has let go
            buffer.add(*row)
            adds.result()
    assert _core.times_let_go() - before > 20


def test_who_waits_for_the_limiter_lets_go() -> None:
    buffer = ReplayBuffer(BufferConfig(10, min_size=2), schema={"x": Column(())}, seed=0)
    buffer.add(0.0)
    with Crowd(race=False) as crowd, short_turns(3600):
        learner = crowd.start(buffer.sample, 4)
        buffer.add(1.0)
        assert len(learner.result()["x"]) == 4


@pytest.mark.parametrize("what", ["checkpoint", "restore", "open", "create", "verify"])
def test_what_reads_and_writes_files_lets_go(what: str, tmp_path: Path) -> None:
    rows = 20_000
    location = f"file:{tmp_path / 'a.rb'}"
    buffer, _ = vectors(rows)
    buffer.checkpoint(tmp_path / "c")

    def create() -> None:
        ReplayBuffer.create(f"file:{tmp_path}/b.rb", BufferConfig(10), schema=buffer.schema).close()

    def reopen() -> None:
        ReplayBuffer.open(location).close()

    with ReplayBuffer.restore(tmp_path / "c", location):
        calls: dict[str, Call] = {
            "checkpoint": lambda: buffer.checkpoint(tmp_path / "c"),
            "restore": lambda: ReplayBuffer.restore(tmp_path / "c"),
            "open": reopen,
            "create": create,
            "verify": buffer._engine.verify,
        }
        assert lets_go(calls[what])
