"""How long writers, views and buffers live: while a call needs them, and not longer."""

from __future__ import annotations

import contextlib
import gc
import subprocess
import sys
import time
import weakref
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    InvalidArgument,
    NStep,
    ReplayBuffer,
    Sequence,
    StepWriter,
    Trajectory,
)
from replay_buffer.testing.crowd import Crowd
from views.world import FLAGS


def steps(**options: Any) -> ReplayBuffer:
    return ReplayBuffer(
        BufferConfig(2000, storage="steps", **options),
        obs_shape=(84, 84),
        obs_dtype="uint8",
        action_dim=2,
    )


def values(streams: int) -> tuple[Any, ...]:
    flags = np.zeros(streams, bool)
    obs = np.zeros((streams, 84, 84), np.uint8)
    return obs, np.zeros(streams, np.int64), np.zeros(streams, np.float32), flags, flags


def test_a_writer_may_be_closed_while_it_waits_for_the_limiter() -> None:
    buffer = steps(min_size=1, samples_per_insert=1.0, tolerance=5.0)
    writer = buffer.writer(streams=2)
    ends: list[str] = []

    def write() -> None:
        try:
            for _ in range(1000):
                writer.append(*values(2), timeout=60)
        except Closed as error:
            ends.append(str(error))

    with Crowd() as crowd:
        waiting = crowd.start(write)
        crowd.until(lambda: len(buffer) > 0)
        time.sleep(0.1)
        writer.close()
        rows = len(buffer)
        while waiting.running:
            buffer.sample(1, timeout=60)  # lets the next step in
            waiting.thread.join(0.01)
    assert ends == ["the writer was closed while this call waited"]
    assert len(buffer) == rows


def test_a_writer_may_be_closed_while_others_append() -> None:
    buffer = steps()
    batch = values(16)

    def write(writer: StepWriter) -> None:
        while True:
            writer.append(*batch)

    for _ in range(100):
        writer = buffer.writer(streams=16)
        with Crowd() as crowd:
            threads = [crowd.start(write, writer) for _ in range(3)]
            time.sleep(0.002)
            writer.close()
            for thread in threads:
                with pytest.raises(Closed):
                    thread.result()
    assert not buffer._engine.verify()


@pytest.mark.parametrize("what", ["view", "writer"])
def test_a_buffer_that_knows_its_view_or_writer_is_collected(what: str) -> None:
    buffer = steps()
    writer = buffer.writer()
    for _ in range(5):
        writer.append(*values(1))
    view = buffer.view(NStep(2))
    view.sample(2)
    buffer.mine = view if what == "view" else writer  # type: ignore[attr-defined]
    gone = weakref.ref(buffer)
    del buffer, writer, view
    gc.collect()
    assert gone() is None


@pytest.mark.parametrize(
    "parts", [(NStep(3),), (Sequence(2, pad=False, next_obs=True),), (Trajectory(),)]
)
def test_views_of_as_many_columns_as_there_can_be(parts: tuple[Any, ...]) -> None:
    names = [f"k{i}" for i in range(252)]
    buffer = ReplayBuffer(
        BufferConfig(100, storage="steps"),
        schema={
            "obs": {name: Column((2,)) for name in names},
            "action": Column((), "int64"),
            "reward": Column(),
            **FLAGS,
        },
    )
    writer = buffer.writer()
    for t in range(10):
        obs = {name: np.full(2, 1000 * i + t, np.float32) for i, name in enumerate(names)}
        final = {name: value + 1 for name, value in obs.items()}
        writer.append(obs, 1, 1.0, False, t == 9, final_obs=final)
    view = buffer.view(*parts)
    batch = view.sample(8)
    after = batch["final_obs" if parts == (Trajectory(),) else "next_obs"]
    for i, name in enumerate(names):
        assert (batch["obs"][name] // 1000 == i).all()
        assert (after[name] // 1000 == i).all()
    assert view.sample(8, out=batch) is batch
    if not isinstance(parts[0], Trajectory):
        assert len(view.get(view.starts())["indices"]) >= 9


def test_as_many_steps_as_there_can_be_take_no_more_room_than_there_are_rows() -> None:
    buffer = ReplayBuffer(
        BufferConfig(300, storage="steps"), obs_shape=(), obs_dtype="float64", action_dim=2
    )
    writer = buffer.writer()
    for t in range(250):
        writer.append(float(t), 0, 1.0, False, t == 249, final_obs=250.0)
    batch = buffer.view(NStep(2**20, gamma=1)).sample(500)
    assert (batch["obs"] + batch["k"] == 250).all()
    assert (batch["next_obs"] == 250).all()
    assert (batch["reward"] == batch["k"]).all()


def test_flags_that_change_while_they_are_written_do_no_harm() -> None:
    buffer = steps()
    streams = 64
    obs, action, reward, truncated, _ = values(streams)
    terminated = np.zeros(streams, bool)

    def flip() -> None:
        terminated[-1] = True
        terminated[-1] = False

    with Crowd() as crowd, buffer.writer(streams=streams) as writer:
        crowd.repeat(flip)
        for _ in range(1000):
            with contextlib.suppress(InvalidArgument):  # where a flag was seen: no final_obs
                writer.append(obs, action, reward, terminated, truncated)
    assert not buffer._engine.verify()


SCARCE = """
import resource
import numpy as np
from replay_buffer import BufferConfig, NStep, ReplayBuffer

one = ReplayBuffer(BufferConfig(100), obs_shape=(1,), obs_dtype="float32", action_dim=2)
one.add([0.0], 0, 1.0, [1.0], False)
two = ReplayBuffer(
    BufferConfig(100, storage="steps"), obs_shape=(1,), obs_dtype="float32", action_dim=2
)
with two.writer() as writer:
    writer.append([0.0], 0, 1.0, True, False, final_obs=[1.0])
resource.setrlimit(resource.RLIMIT_AS, (2 << 30, 2 << 30))
for source in (one, two, two.view(NStep(3))):
    try:
        source.sample(2**31 - 1)
    except MemoryError:
        print("MemoryError")
    source.sample(4)
"""


def test_a_batch_that_memory_has_no_room_for_is_an_error() -> None:
    done = subprocess.run([sys.executable, "-c", SCARCE], capture_output=True, text=True)
    assert done.stdout.split() == ["MemoryError"] * 3, done.stderr


SCARCE_FOR_WINDOWS = """
import os
import resource
import numpy as np
from replay_buffer import BufferConfig, FrameStack, ReplayBuffer, Sequence

buffer = ReplayBuffer(
    BufferConfig(300_000, storage="steps"), obs_shape=(), obs_dtype="float32", action_dim=2
)
with buffer.writer() as writer:
    for _ in range(300_000):
        writer.append(0.0, 0, 1.0, False, False)
view = buffer.view(FrameStack(2), Sequence(2**18, pad=False))
batch = 4 * 2**18 * (8 + 8 + 4 + 4)
with open("/proc/self/statm") as statm:
    used = int(statm.read().split()[0]) * os.sysconf("SC_PAGE_SIZE")
resource.setrlimit(resource.RLIMIT_AS, (used + batch + 4 * 2**20, resource.RLIM_INFINITY))
try:
    view.sample(4)
except MemoryError:
    print("MemoryError")
"""


@pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
def test_nor_does_one_end_the_process_whose_rows_memory_has_no_room_for() -> None:
    done = subprocess.run(
        [sys.executable, "-c", SCARCE_FOR_WINDOWS], capture_output=True, text=True
    )
    assert done.stdout.split() == ["MemoryError"], done.stderr
