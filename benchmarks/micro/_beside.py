"""Calls of up to seven megabytes beside a thread that runs plain Python, and the thread's own pace.

A call may take twice as long as alone. The thread's own pace, while 50 calls a second are made, is
compared with that beside a peer by `make compare`; here it stands beside its pace with no calls.
"""

from __future__ import annotations

import itertools
import statistics
import time
from dataclasses import asdict, dataclass
from typing import Any

import numpy as np
from benchmarks.compare.timing import Call, Fresh, alone, beside, thread
from benchmarks.micro._rows import full_buffer, priorities, workload

from replay_buffer import BufferConfig, Column, ReplayBuffer, Sequence

MOST = 2.0  # times the median alone


@dataclass(frozen=True)
class Company:
    """Medians of a call in microseconds, and the thread's pace: 1 is that with no calls."""

    alone: float
    beside: float
    pace: float

    @property
    def ratio(self) -> float:
        return self.beside / self.alone


def cells(quick: bool) -> dict[str, Call]:
    """What is timed."""
    vectors = workload((8,), "float32", 100_000)
    frames = workload((84, 84, 4), "uint8", 200 if quick else 2000)
    weighted, images = full_buffer(vectors, "prioritized"), full_buffer(frames)
    ids = itertools.cycle([weighted.sample(1024)["indices"] for _ in range(64)])
    errors = itertools.cycle([priorities(1024, seed) for seed in range(61)])
    return {
        "sample 2048, 0.2 MB": Call(weighted.sample, (2048,)),
        "sample 20000, 1.5 MB": Call(weighted.sample, (20_000,)),
        "sample 90000, 6.9 MB": Call(weighted.sample, (90_000,)),
        "update_priorities 1024": Call(
            weighted.update_priorities, (Fresh(ids.__next__), Fresh(errors.__next__))
        ),
        "add_batch 4096, 0.3 MB": Call(weighted.add_batch, tuple(vectors.rows(4096).values())),
        "add_batch 90000, 6.9 MB": Call(weighted.add_batch, tuple(vectors.rows(90_000).values())),
        "frames: sample 16, 0.9 MB": Call(images.sample, (16,)),
        "frames: sample 124, 7 MB": Call(images.sample, (124,)),
        "frames: sample 124 into arrays": Call(images.sample, (124,), {"out": images.sample(124)}),
        "frames: add_batch 64, 3.6 MB": Call(images.add_batch, tuple(frames.rows(64).values())),
        **compressed_cells(),
        **step_cells(),
    }


def compressed_cells() -> dict[str, Call]:
    """Frames that are packed and unpacked on the way."""
    schema = {"obs": Column((84, 84, 4), "uint8", compression="lz4")}
    buffer = ReplayBuffer(BufferConfig(1000), schema=schema, seed=0)
    frames = np.zeros((64, 84, 84, 4), np.uint8)
    frames[:, 20:40] = np.random.default_rng(0).integers(0, 256, (64, 20, 84, 4), dtype=np.uint8)
    for _ in range(16):
        buffer.add_batch(frames)
    return {
        "compressed: add_batch 64, 1.8 MB": Call(buffer.add_batch, (frames,)),
        "compressed: sample 64, 1.8 MB": Call(buffer.sample, (64,)),
    }


def step_cells() -> dict[str, Call]:
    """Sequences of steps."""
    config = BufferConfig(20_000, storage="steps")
    buffer = ReplayBuffer(config, obs_shape=(17,), obs_dtype="float32", action_dim=4, seed=0)
    writer, obs, no = buffer.writer(8), np.zeros((8, 17), np.float32), np.zeros(8, bool)
    for _ in range(2500):
        writer.append(obs, np.zeros(8, np.int64), np.zeros(8, np.float32), no, no)
    return {"sequences of 80: sample 256, 1.7 MB": Call(buffer.view(Sequence(80)).sample, (256,))}


def measure(quick: bool) -> dict[str, Company]:
    """Every cell, in turns."""
    seconds, rounds = (0.01, 1) if quick else (0.06, 5)
    found: dict[str, list[tuple[float, float, float]]] = {}
    free = Call(time.sleep, (0,))
    timed = cells(quick)
    for _ in range(rounds):
        untouched = thread(free, seconds, 1)[0]
        for name, call in timed.items():
            numbers = (
                alone(call, seconds, 1)[0],
                beside(call, seconds, 1)[0],
                untouched / thread(call, seconds, 1)[0],
            )
            found.setdefault(name, []).append(numbers)
    return {
        name: Company(*(statistics.median(column) for column in zip(*numbers, strict=True)))
        for name, numbers in found.items()
    }


def show(found: dict[str, Company]) -> None:
    """The table."""
    print(
        f"\n{'beside a Python thread, median µs':42} {'alone':>9} {'beside':>9} {'ratio':>6} pace"
    )
    for name, one in found.items():
        word = "pass" if one.ratio <= MOST else f"MISS (at most {MOST})"
        numbers = f"{one.alone:9.1f} {one.beside:9.1f} {one.ratio:6.2f} {one.pace:4.2f}"
        print(f"{name:42} {numbers}  {word}")


def as_json(found: dict[str, Company]) -> dict[str, Any]:
    return {name: {**asdict(one), "ratio": one.ratio} for name, one in found.items()}
