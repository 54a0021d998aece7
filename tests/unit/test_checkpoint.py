"""Checkpoints: what was saved comes back, everywhere, whatever happens meanwhile."""

from __future__ import annotations

import functools
import multiprocessing
import os
import signal
import threading
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    AlreadyExists,
    BufferConfig,
    Busy,
    Closed,
    Column,
    Corrupt,
    Incompatible,
    InvalidArgument,
    LinearSchedule,
    NotEnoughRows,
    NotFound,
    ReplayBuffer,
    Schema,
)
from replay_buffer.testing.crowd import Crowd, together

CAPACITY = 100
STRATEGIES = ["uniform", "prioritized", "rank", "fifo", "lifo", "without_replacement"]
NESTED = Schema(
    {
        "obs": {"vector": Column((3,)), "frame": Column((40, 40), "uint8")},
        "action": Column((), "int64"),
        "done": Column((), "bool"),
    }
)


def rows(n: int, seed: int = 0) -> dict[str, Any]:
    rng = np.random.default_rng(seed)
    return {
        "obs": {
            "vector": rng.normal(size=(n, 3)).astype(np.float32),
            "frame": rng.integers(0, 256, (n, 40, 40), dtype=np.uint8),
        },
        "action": rng.integers(0, 1000, n),
        "done": rng.random(n) < 0.5,
    }


def small(config: BufferConfig, location: str = "heap:", **options: Any) -> ReplayBuffer:
    schema = Schema({"x": Column((4,)), "n": Column((), "int64")})
    return ReplayBuffer.create(location, config, schema=schema, seed=3, **options)


def fill(buffer: ReplayBuffer, n: int, first: int = 0) -> Any:
    numbers = np.arange(first, first + n)
    return buffer.add_batch(np.repeat(numbers[:, None], 4, 1).astype(np.float32), numbers)


def same(left: Any, right: Any) -> None:
    assert left.keys() == right.keys()
    for key, value in left.items():
        if isinstance(value, dict):
            same(value, right[key])
        else:
            np.testing.assert_array_equal(value, right[key])


def facts(buffer: ReplayBuffer) -> dict[str, Any]:
    stats = buffer.stats()
    stats.pop("resident_bytes")
    if buffer.config.weighted:
        stats["total"], stats["max"] = buffer.total_priority, buffer.max_priority
        stats["alpha"] = buffer.alpha
    return stats


def equal(saved: ReplayBuffer, restored: ReplayBuffer) -> None:
    assert facts(saved) == facts(restored)
    assert saved.schema == restored.schema
    if len(saved):
        everything = saved.latest(saved.capacity)
        same(everything, restored.latest(saved.capacity))
        if saved.config.weighted:
            ids = everything["indices"]
            np.testing.assert_array_equal(saved.priorities(ids), restored.priorities(ids))


# ------------------------------------------------------------------------ save -> load -> equal


@pytest.mark.parametrize("strategy", STRATEGIES)
@pytest.mark.parametrize("n", [0, 1, 63, 99, 100, 101, 200, 257])
def test_what_was_saved_comes_back(strategy: Any, n: int, tmp_path: Path) -> None:
    config = BufferConfig(CAPACITY, strategy=strategy, max_times_sampled=3)
    with ReplayBuffer(config, schema=NESTED, seed=1) as saved:
        if n:
            ids = saved.add_batch(**rows(n))
        if saved.config.weighted and n > 10:
            saved.update_priorities(ids[-10:], np.arange(10.0))
            saved.alpha = 0.9
        if n > 30:
            saved.sample(20)
        result = saved.checkpoint(tmp_path / "c")
        assert result["rows"] == len(saved)
        with ReplayBuffer.restore(tmp_path / "c") as restored:
            equal(saved, restored)
            # From here on both do the same: batches, ids, rows that are overwritten.
            for step in range(3):
                if n > 30 and strategy not in ("without_replacement", "rank"):
                    same(saved.sample(8), restored.sample(8))
                new = rows(37, seed=step)
                np.testing.assert_array_equal(saved.add_batch(**new), restored.add_batch(**new))
                equal(saved, restored)


@pytest.mark.parametrize("strategy", ["rank", "without_replacement"])
def test_an_order_of_the_handle_begins_anew_but_repeatably(strategy: Any, tmp_path: Path) -> None:
    with ReplayBuffer(BufferConfig(CAPACITY, strategy=strategy), schema=NESTED, seed=1) as saved:
        saved.add_batch(**rows(80))
        saved.checkpoint(tmp_path / "c")
    one, two = (ReplayBuffer.restore(tmp_path / "c") for _ in range(2))
    for _ in range(4):
        same(one.sample(30), two.sample(30))


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "fifo"])
@pytest.mark.parametrize("later", [0, 5, 150])
def test_after_clear(strategy: Any, later: int, tmp_path: Path) -> None:
    saved = small(BufferConfig(CAPACITY, strategy=strategy))
    old = fill(saved, 130)
    saved.clear()
    if later:
        fill(saved, later)
    saved.checkpoint(tmp_path / "c")
    restored = ReplayBuffer.restore(tmp_path / "c")
    equal(saved, restored)
    np.testing.assert_array_equal(fill(saved, 20), fill(restored, 20))
    if strategy == "prioritized":  # ids of rows that are gone are stale, not unknown
        assert saved.update_priorities(old[-5:], np.ones(5)) == 0
        assert restored.update_priorities(old[-5:], np.ones(5)) == 0


def test_a_queue_goes_on_where_it_was(tmp_path: Path) -> None:
    saved = small(BufferConfig(CAPACITY, strategy="fifo", max_times_sampled=2))
    fill(saved, 60)
    drawn = saved.sample(31)["n"]
    saved.checkpoint(tmp_path / "c")
    restored = ReplayBuffer.restore(tmp_path / "c")
    left = restored.sample(120 - 31)["n"]
    np.testing.assert_array_equal(np.concatenate([drawn, left]), np.repeat(np.arange(60), 2))
    with pytest.raises(NotEnoughRows):
        restored.sample(1)


def test_between_all_locations(tmp_path: Path) -> None:
    name = f"checkpoint-{os.getpid()}"
    first = small(BufferConfig(CAPACITY, strategy="prioritized", durable=True))
    fill(first, 130)
    first.checkpoint(tmp_path / "a")
    shared = ReplayBuffer.restore(tmp_path / "a", f"shm:{name}")
    try:
        equal(first, shared)
        with ReplayBuffer.open(f"shm:{name}", readonly=True) as watcher:
            watcher.checkpoint(tmp_path / "b")  # needs no permission to write
        file = f"file:{tmp_path}/buffer.rb"
        with ReplayBuffer.restore(tmp_path / "b", file) as kept:
            equal(first, kept)
        with ReplayBuffer.open(file) as kept:
            kept.checkpoint(tmp_path / "c")
        equal(first, ReplayBuffer.restore(tmp_path / "c"))
        with pytest.raises(AlreadyExists):
            ReplayBuffer.restore(tmp_path / "c", file)
    finally:
        shared.unlink()


def test_schedules_and_options_come_back(tmp_path: Path) -> None:
    config = BufferConfig(
        50, "prioritized", beta=LinearSchedule(0.4, 1, 10), weights="global", block_rows=7
    )
    saved = small(config)
    fill(saved, 30)
    for _ in range(4):
        saved.sample(3)
    saved.checkpoint(tmp_path / "c")
    restored = ReplayBuffer.restore(tmp_path / "c")
    assert restored.config == config
    same(saved.sample(20), restored.sample(20))


def test_the_rate_limiter_comes_back_only_when_asked(tmp_path: Path) -> None:
    config = BufferConfig(CAPACITY, min_size=10, samples_per_insert=1.0, tolerance=20)
    saved = small(config)
    fill(saved, 10)
    saved.sample(20)  # all that may be drawn now
    saved.checkpoint(tmp_path / "c")
    fresh = ReplayBuffer.restore(tmp_path / "c")
    fresh.sample(10)
    kept = ReplayBuffer.restore(tmp_path / "c", limiter=True)
    fill(kept, 1)
    assert len(kept) == 11


# -------------------------------------------------------------------------------- incremental


def files(path: Path) -> dict[str, int]:
    return {entry.name: entry.stat().st_size for entry in path.iterdir()}


def test_a_second_checkpoint_writes_what_changed(tmp_path: Path) -> None:
    path = tmp_path / "c"
    saved = small(BufferConfig(64 * 1024, strategy="prioritized", block_rows=1024))
    ids = fill(saved, 64 * 1024)
    first = saved.checkpoint(path)
    manifest = files(path)["manifest"]
    assert first["bytes"] == first["bytes_written"] == sum(files(path).values())
    assert saved.checkpoint(path)["bytes_written"] == manifest
    fill(saved, 1000)
    changed = saved.checkpoint(path)["bytes_written"] - manifest
    assert changed < first["bytes"] / 32
    saved.update_priorities(ids[-1:], np.ones(1) * 7)
    assert saved.checkpoint(path)["bytes_written"] - manifest <= changed + 4096
    equal(saved, ReplayBuffer.restore(path))


def test_files_on_the_disk_stay_within_twice_what_is_saved(tmp_path: Path) -> None:
    path = tmp_path / "c"
    saved = small(BufferConfig(4096, strategy="prioritized", block_rows=32))
    full = 0
    for step in range(60):
        fill(saved, 333)
        result = saved.checkpoint(path)
        on_disk = files(path)
        assert sum(on_disk.values()) == result["bytes"]
        full = max(full, result["bytes_written"])
        data = result["bytes"] - on_disk["manifest"]
        assert data <= 2 * (4096 + 32) * saved.stats()["segment_bytes"] / 4096, step
        assert len(on_disk) <= 32 + 3
    equal(saved, ReplayBuffer.restore(path))


def test_another_buffer_at_the_same_path_replaces_it(tmp_path: Path) -> None:
    one, two = small(BufferConfig(CAPACITY)), small(BufferConfig(CAPACITY))
    fill(one, 50)
    fill(two, 50, first=1000)  # the same ids, other rows
    one.checkpoint(tmp_path / "c")
    two.checkpoint(tmp_path / "c")
    equal(two, ReplayBuffer.restore(tmp_path / "c"))
    restored = ReplayBuffer.restore(tmp_path / "c")
    fill(two, 10, first=2000)
    fill(restored, 10, first=3000)
    two.checkpoint(tmp_path / "c")
    restored.checkpoint(tmp_path / "c")
    equal(restored, ReplayBuffer.restore(tmp_path / "c"))


# ------------------------------------------------------------------------ while others write


def check_rows(buffer: ReplayBuffer, killed: int = 0) -> None:
    batch = buffer.latest(buffer.capacity)
    assert len(batch["n"]) == len(buffer)
    np.testing.assert_array_equal(batch["x"], np.repeat(batch["n"][:, None], 4, 1).astype("f4"))
    assert buffer._engine.verify() == []
    # A row's priority follows from its number: it has its own. A writer that was killed may have
    # taken that of the row it was about to overwrite; then it has the largest, here and there.
    raws = buffer.priorities(batch["indices"])
    others = raws[raws != (batch["n"] % 1000 + 1).astype(np.float32)]
    assert len(others) <= killed
    assert (others == buffer.max_priority).all()
    total = ((raws.astype(np.float64) + buffer.config.epsilon) ** buffer.alpha).sum()
    assert buffer.total_priority == pytest.approx(total, rel=1e-6)


def write_for_ever(buffer: ReplayBuffer, first: int, stop: Any) -> None:
    n = first
    while not stop.is_set():
        numbers = np.arange(n, n + 7)
        values = np.repeat(numbers[:, None], 4, 1).astype(np.float32)
        buffer.add_batch(values, numbers, priority=(numbers % 1000 + 1).astype(np.float32))
        n += 7


def test_while_threads_write(tmp_path: Path) -> None:
    buffer = small(BufferConfig(5000, strategy="prioritized"))
    with Crowd() as crowd:
        for i in range(2):
            crowd.start(write_for_ever, buffer, i * 10**6, crowd.over)
        for _ in range(12):
            acknowledged = buffer.latest(50)["indices"] if len(buffer) > 50 else []
            buffer.checkpoint(tmp_path / "c")
            restored = ReplayBuffer.restore(tmp_path / "c")
            check_rows(restored)
            if len(acknowledged) and buffer.stats()["rows_added"] < acknowledged[0] + 5000:
                restored.get(acknowledged)


def write_and_checkpoint(buffer: ReplayBuffer, path: Path) -> None:
    while True:
        buffer.checkpoint(path)


def test_processes_that_write_and_one_that_saves_are_killed(tmp_path: Path) -> None:
    path = tmp_path / "c"
    context = multiprocessing.get_context("fork")
    buffer = small(BufferConfig(3000, strategy="prioritized"), "shm:")
    never = threading.Event()
    saved = 0
    for turn in range(6):
        writers = [
            context.Process(target=write_for_ever, args=(buffer, (turn * 2 + i) * 10**6, never))
            for i in range(2)
        ]
        saver = context.Process(target=write_and_checkpoint, args=(buffer, path))
        for process in (*writers, saver):
            process.start()
        time.sleep(0.3 + 0.05 * turn)
        for process in (saver, *writers):
            assert process.pid is not None
            os.kill(process.pid, signal.SIGKILL)
            process.join()
        if (path / "manifest").exists():
            check_rows(ReplayBuffer.restore(path), killed=2 * (turn + 1))
            saved += 1
    assert saved > 0
    buffer.checkpoint(path)
    restored = ReplayBuffer.restore(path)
    check_rows(restored, killed=12)
    # The sums of the buffer itself may wait to be mended after the kills; its rows do not.
    same(buffer.latest(3000), restored.latest(3000))
    assert set(files(path)) == {"lock", "manifest"} | {
        name for name in files(path) if name.startswith("data-")
    }


def test_two_at_once_never_mix(tmp_path: Path) -> None:
    buffers = [small(BufferConfig(200_000)) for _ in range(2)]
    for i, buffer in enumerate(buffers):
        fill(buffer, 200_000, first=i * 10**6)
    busy = []

    def save(buffer: ReplayBuffer) -> None:
        for _ in range(10):
            try:
                buffer.checkpoint(tmp_path / "c")
            except Busy:
                busy.append(buffer)

    together(*(functools.partial(save, buffer) for buffer in buffers))
    numbers = ReplayBuffer.restore(tmp_path / "c").latest(200_000)["n"]
    assert numbers.min() // 10**6 == numbers.max() // 10**6
    np.testing.assert_array_equal(np.sort(numbers) % 10**6, np.arange(200_000))


# ------------------------------------------------------------------------------------- errors


@pytest.fixture
def saved(tmp_path: Path) -> Path:
    buffer = small(BufferConfig(CAPACITY, strategy="prioritized"))
    fill(buffer, 77)
    buffer.checkpoint(tmp_path / "c")
    return tmp_path / "c"


def test_there_is_none(tmp_path: Path) -> None:
    with pytest.raises(NotFound):
        ReplayBuffer.restore(tmp_path / "nothing")
    with pytest.raises(NotFound):
        small(BufferConfig(5)).checkpoint(tmp_path / "no" / "parent")


def test_a_directory_with_other_files_is_left_alone(tmp_path: Path) -> None:
    (tmp_path / "data-1").write_text("mine")
    with pytest.raises(InvalidArgument, match="other files"):
        small(BufferConfig(5)).checkpoint(tmp_path)
    with pytest.raises(InvalidArgument, match="not a directory"):
        small(BufferConfig(5)).checkpoint(tmp_path / "data-1")
    assert (tmp_path / "data-1").read_text() == "mine"


def test_nothing_to_save_yet(tmp_path: Path) -> None:
    buffer = ReplayBuffer(BufferConfig(5))
    with pytest.raises(NotEnoughRows):
        buffer.checkpoint(tmp_path / "c")
    buffer.close()
    with pytest.raises(Closed):
        buffer.checkpoint(tmp_path / "c")


def test_a_schedule_that_cannot_be_saved(tmp_path: Path) -> None:
    with (
        ReplayBuffer(
            BufferConfig(5, "prioritized", beta=lambda step: 0.5), schema={"x": Column()}
        ) as buffer,
        pytest.raises(InvalidArgument, match="LinearSchedule"),
    ):
        buffer.checkpoint(tmp_path / "c")


@pytest.mark.parametrize("name", ["manifest", "data-1"])
def test_damage_is_noticed(saved: Path, name: str) -> None:
    whole = (saved / name).read_bytes()
    rng = np.random.default_rng(5)
    for _ in range(150):
        damaged = bytearray(whole)
        damaged[rng.integers(len(whole))] ^= 1 << int(rng.integers(8))
        (saved / name).write_bytes(damaged)
        with pytest.raises((Corrupt, Incompatible)):
            ReplayBuffer.restore(saved)
    for size in (0, 1, 100, 271, 272, len(whole) // 2, len(whole) - 1):
        (saved / name).write_bytes(whole[:size])
        with pytest.raises(Corrupt):
            ReplayBuffer.restore(saved)
    (saved / name).unlink()
    with pytest.raises((NotFound, Corrupt)):
        ReplayBuffer.restore(saved)


def test_a_newer_format_is_said_to_be_one(saved: Path) -> None:
    manifest = bytearray((saved / "manifest").read_bytes())
    manifest[8] = 99
    (saved / "manifest").write_bytes(manifest)
    with pytest.raises(Incompatible, match="format 99"):
        ReplayBuffer.restore(saved)
    with pytest.raises(Incompatible):
        small(BufferConfig(5)).checkpoint(saved)


def test_a_damaged_checkpoint_is_replaced_by_the_next(saved: Path) -> None:
    (saved / "manifest").write_bytes(b"nonsense" * 100)
    buffer = small(BufferConfig(CAPACITY))
    fill(buffer, 10)
    buffer.checkpoint(saved)
    equal(buffer, ReplayBuffer.restore(saved))


def test_a_failed_restore_leaves_nothing(saved: Path) -> None:
    data = bytearray((saved / "data-1").read_bytes())
    data[-1] ^= 1
    (saved / "data-1").write_bytes(data)
    name = f"checkpoint-failed-{os.getpid()}"
    for location in (f"file:{saved.parent}/b.rb", f"shm:{name}"):
        with pytest.raises(Corrupt):
            ReplayBuffer.restore(saved, location)
        with pytest.raises(NotFound):
            ReplayBuffer.open(location)


def test_only_the_user_can_read_it(saved: Path) -> None:
    for path in (saved, *saved.iterdir()):
        assert path.stat().st_mode & 0o077 == 0
