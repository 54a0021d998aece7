"""Checkpoints beside a plain sequential write of as many bytes; reopening large files.

The floor writes the same number of bytes to the same disk in pieces of 1 MiB and then calls fsync.
The two take turns in going first, and each begins when the disk has nothing left to write: what one
leaves to be written would count for the other. Disks of virtual machines are slowed down after a
burst: the size is small enough to stay within one on ours, and where the floor itself varies more
than by half, the table says that the share is not settled. Sizes shrink to the room there is.
Files are reopened with what of them the page cache holds: as they were closed, after their process
was killed, and after a power cut, of which the file says that it was open in another boot.
"""

from __future__ import annotations

import multiprocessing
import os
import shutil
import signal
import statistics
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
from benchmarks.micro._measure import available_bytes, quick_asked, write

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema

MIB = 1 << 20
BOOT_AT = 512  # in the header of a file, see docs/internals/segment.md
STEADY = 1.5  # how much the floor may vary from turn to turn
FRAMES = Schema({"frame": Column((84, 84), "uint8"), "action": Column((), "int64")})
VECTORS = Schema({"obs": Column((24,)), "next_obs": Column((24,)), "action": Column((), "int64")})


def timed(call: Callable[[], Any]) -> float:
    start = time.perf_counter()
    call()
    return time.perf_counter() - start


def full(location: str, schema: Schema, total: int, **options: Any) -> ReplayBuffer:
    capacity = total // sum(c.dtype.itemsize * int(np.prod(c.shape)) for _, c in schema.columns)
    buffer = ReplayBuffer.create(location, BufferConfig(capacity, **options), schema=schema, seed=0)
    add(buffer, capacity)
    return buffer


def add(buffer: ReplayBuffer, n: int) -> None:
    rng = np.random.default_rng(0)
    assert buffer.schema is not None
    piece = max(1, min(n, 4096))
    values = [
        np.frombuffer(
            rng.bytes(piece * column.dtype.itemsize * int(np.prod(column.shape))), np.uint8
        )
        .view(column.dtype)
        .reshape(piece, *column.shape)
        for _, column in buffer.schema.columns
    ]
    for at in range(0, n, piece):
        buffer.add_batch(*(value[: min(piece, n - at)] for value in values))


def settled(call: Callable[[], Any]) -> float:
    """The time of a call that finds the disk idle."""
    os.sync()
    time.sleep(0.5)
    return timed(call)


def plain_write(path: Path, total: int, data: memoryview) -> None:
    file = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC, 0o600)
    for at in range(0, total, MIB):
        offset = at % len(data)
        os.write(file, data[offset : offset + min(MIB, total - at)])
    os.fsync(file)
    os.close(file)


def throughput(name: str, schema: Schema, folder: Path, total: int, rounds: int) -> dict[str, Any]:
    strategy = "prioritized" if schema is VECTORS else "uniform"
    with full("heap:", schema, total, strategy=strategy) as buffer:
        data = memoryview(np.random.default_rng(1).bytes(64 * MIB))
        size = buffer.checkpoint(folder / "checkpoint")["bytes"]
        shutil.rmtree(folder / "checkpoint")
        floors, saves, loads = [], [], []
        for turn in range(rounds):
            for floor in (turn % 2 == 0, turn % 2 != 0):
                if floor:
                    floors.append(settled(lambda: plain_write(folder / "plain", size, data)))
                    (folder / "plain").unlink()
                else:
                    saves.append(settled(lambda: buffer.checkpoint(folder / "checkpoint")))
            loads.append(timed(lambda: ReplayBuffer.restore(folder / "checkpoint").close()))
            shutil.rmtree(folder / "checkpoint")
        shares = [floor / save for floor, save in zip(floors, saves, strict=True)]
        row = {
            "rows": name,
            "mib": size / MIB,
            "checkpoint_mib_s": size / MIB / min(saves),
            "plain_mib_s": size / MIB / min(floors),
            "share_best": min(floors) / min(saves),
            "share_median": statistics.median(shares),
            "share_least": min(shares),
            "floor_spread": max(floors) / min(floors),
            "restore_mib_s": size / MIB / min(loads),
        }
        row["changes"] = changes(buffer, folder / "checkpoint")
    return row


def changes(buffer: ReplayBuffer, path: Path) -> list[dict[str, float]]:
    """What a checkpoint costs after a part of the rows was written again."""
    first = {"seconds": settled(lambda: buffer.checkpoint(path))}
    table = []
    for part in (0.0, 0.01, 0.1, 0.5):
        add(buffer, int(part * buffer.capacity))
        result: dict[str, int] = {}
        seconds = settled(lambda result=result: result.update(buffer.checkpoint(path)))  # type: ignore[misc]
        table.append(
            {
                "part": part,
                "mib_written": result["bytes_written"] / MIB,
                "seconds": seconds,
                "of_a_full_one": seconds / first["seconds"],
            }
        )
    shutil.rmtree(path)
    return table


def fill_and_wait(location: str, total: int, ready: Any) -> None:
    buffer = full(location, FRAMES, total, durable=True)
    ready.set()
    while True:
        add(buffer, 64)


def reopening(folder: Path, total: int) -> dict[str, Any]:
    """A file that was closed, one whose process was killed, one that a power cut left."""
    location = f"file:{folder}/buffer.rb"
    context = multiprocessing.get_context("spawn")
    ready = context.Event()
    child = context.Process(target=fill_and_wait, args=(location, total, ready))
    child.start()
    ready.wait()
    assert child.pid is not None
    os.kill(child.pid, signal.SIGKILL)
    child.join()
    buffers: list[ReplayBuffer] = []
    killed = timed(lambda: buffers.append(ReplayBuffer.open(location)))
    rows = len(buffers[0])
    closing = timed(buffers.pop().close)
    closed = timed(lambda: buffers.append(ReplayBuffer.open(location)))
    assert rows == len(buffers[0])
    buffers.pop().close()
    with open(folder / "buffer.rb", "r+b") as file:
        file.seek(BOOT_AT)
        file.write(b"another ")
    recovered = timed(lambda: buffers.append(ReplayBuffer.open(location)))
    assert rows == len(buffers[0])
    buffers.pop().close()
    (folder / "buffer.rb").unlink()
    return {
        "gib": total / 2**30,
        "rows": rows,
        "open_after_kill_s": killed,
        "close_s": closing,
        "open_after_close_s": closed,
        "open_after_power_cut_s": recovered,
    }


def report(results: dict[str, Any]) -> None:
    for row in results["checkpoints"]:
        print(
            f"{row['rows']:8} {row['mib']:7.0f} MiB   checkpoint {row['checkpoint_mib_s']:6.0f} "
            f"MiB/s   plain write {row['plain_mib_s']:6.0f} MiB/s   {row['share_best']:.0%} of it "
            f"(median {row['share_median']:.0%}, least {row['share_least']:.0%}; target 70%)   "
            f"restore {row['restore_mib_s']:.0f} MiB/s"
        )
        if row["floor_spread"] > STEADY:
            print(f"    not settled: the plain write varies {row['floor_spread']:.1f} times")
        for change in row["changes"]:
            print(
                f"    {change['part']:4.0%} of the rows new: {change['mib_written']:7.1f} MiB in "
                f"{change['seconds']:.3f} s, {change['of_a_full_one']:.0%} of a full one"
            )
    file = results["reopening"]
    print(
        f"a file of {file['gib']:.1f} GiB: open after kill -9 {file['open_after_kill_s']:.3f} s "
        f"(target 5), after close {file['open_after_close_s']:.3f} s (target 1), after a power cut "
        f"{file['open_after_power_cut_s']:.3f} s (target 5)"
    )


def main() -> None:
    quick = quick_asked("checkpoints and files")
    folder = Path(tempfile.mkdtemp(prefix="replay-files-", dir=os.environ.get("TMPDIR", ".")))
    try:
        free = shutil.disk_usage(folder).free
        total = 64 * MIB if quick else min(512 * MIB, available_bytes() // 4, free // 6)
        large = 128 * MIB if quick else min(10 * 1024 * MIB, free // 3)
        rounds = 2 if quick else 10
        results = {
            "checkpoints": [
                throughput("frames", FRAMES, folder, total, rounds),
                throughput("vectors", VECTORS, folder, total, rounds),
            ],
            "reopening": reopening(folder, large),
        }
    finally:
        shutil.rmtree(folder, ignore_errors=True)
    report(results)
    write("files", results)


if __name__ == "__main__":
    main()
