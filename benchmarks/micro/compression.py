"""Compressed columns on frames of Atari games: what they take, and what they cost.

Frames are 84 x 84 in grey, every fourth of six games played at random (ale-py and gymnasium; where
they are not installed the benchmark says so and ends). Steps go in one by one and in batches, and
come out in batches of 256. The floor is memcpy of as many bytes, on one thread, between arrays that
do not fit into the cache. Rates are of raw bytes: what a learner gets. Memory is what is resident
when the buffer has been filled once, and after more laps, in which each block keeps the room that
its largest lap has taken.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np
from benchmarks.micro._measure import quick_asked, write

from replay_buffer import BufferConfig, Column, ReplayBuffer

GAMES = ("Pong", "Breakout", "SpaceInvaders", "Seaquest", "MsPacman", "Qbert")
SIDE = 84
BATCH = 256


def shrunk(screen: Any) -> Any:
    """A screen of 210 x 160 as 84 x 84, by the mean of each part."""
    sums = np.pad(screen.astype(np.float64).cumsum(0).cumsum(1), ((1, 0), (1, 0)))
    rows = np.linspace(0, screen.shape[0], SIDE + 1).astype(int)
    columns = np.linspace(0, screen.shape[1], SIDE + 1).astype(int)
    corners = sums[np.ix_(rows, columns)]
    parts = corners[1:, 1:] - corners[:-1, 1:] - corners[1:, :-1] + corners[:-1, :-1]
    return np.round(parts / np.outer(np.diff(rows), np.diff(columns))).astype(np.uint8)


def played(n: int) -> Any:
    """n frames of each game."""
    import ale_py
    import gymnasium

    ale_py.ALEInterface.setLoggerMode(ale_py.LoggerMode.Error)
    gymnasium.register_envs(ale_py)
    rng = np.random.default_rng(0)
    frames = []
    for game in GAMES:
        env = gymnasium.make(f"ALE/{game}-v5", obs_type="grayscale", frameskip=4)
        screen, _ = env.reset(seed=1)
        for _ in range(n):
            frames.append(shrunk(screen))
            action = int(rng.integers(env.action_space.n))
            screen, _, terminated, truncated, _ = env.step(action)
            if terminated or truncated:
                screen, _ = env.reset()
        env.close()
    return np.stack(frames)


def best(call: Callable[[], Any], repeats: int) -> float:
    """Seconds of the fastest of some calls."""
    times = []
    for _ in range(repeats):
        start = time.perf_counter()
        call()
        times.append(time.perf_counter() - start)
    return min(times)


def measured(compression: str | None, frames: Any, repeats: int) -> dict[str, Any]:
    schema = {
        "obs": Column((SIDE, SIDE), "uint8", compression=compression),
        "action": Column((), "int64"),
    }
    n = len(frames)
    actions = np.zeros(n, np.int64)
    with ReplayBuffer(BufferConfig(capacity=n), schema=schema, seed=0) as buffer:
        empty = buffer.stats()["resident_bytes"]

        def one_by_one() -> None:
            add = buffer.add
            for frame in frames[::4]:
                add(frame, 0)

        buffer.add_batch(frames, actions)
        stats = buffer.stats()
        together = best(lambda: buffer.add_batch(frames, actions), repeats)
        single = best(one_by_one, repeats)
        later = buffer.stats()
        batch = buffer.sample(BATCH)
        out = best(lambda: buffer.sample(BATCH, out=batch), 20 * repeats)
    kept = (stats["resident_bytes"] - empty) / stats["size"]
    return {
        "bytes per step": kept,
        "GB per 1M steps": kept * 1e6 / 1e9,
        "... after more laps": (later["resident_bytes"] - empty) / later["size"] / 1e3,
        "ratio": (stats["compression"] or {}).get("ratio") or 1.0,
        "steps/s, add": len(frames[::4]) / single,
        "steps/s, add_batch": n / together,
        "GB/s out": BATCH * SIDE * SIDE / out / 1e9,
        "us per sample(256)": out * 1e6,
    }


def copied(frames: Any, repeats: int) -> dict[str, float]:
    to = np.empty_like(frames)
    to[:] = frames
    seconds = best(lambda: np.copyto(to, frames), 5 * repeats)
    return {"GB/s": frames.nbytes / seconds / 1e9, "steps/s": len(frames) / seconds}


def main() -> None:
    quick = quick_asked(__doc__ or "")
    try:
        frames = played(50 if quick else 2000)
    except ImportError as error:
        print(f"SKIPPED: {error}; pip install ale-py gymnasium")
        return
    repeats = 2 if quick else 7
    results: dict[str, Any] = {"memcpy": copied(frames, repeats)}
    for compression in (None, "lz4", "zstd"):
        results[compression or "none"] = measured(compression, frames, repeats)
    names = list(results["none"])
    print(f"{'':22}" + "".join(f"{kind:>12}" for kind in ("none", "lz4", "zstd")))
    for name in names:
        cells = (results[kind][name] for kind in ("none", "lz4", "zstd"))
        print(f"{name:22}" + "".join(f"{cell:12,.2f}" for cell in cells))
    floor = results["memcpy"]
    print(f"memcpy: {floor['GB/s']:.2f} GB/s, {floor['steps/s']:,.0f} steps/s")
    write("compression", results)


if __name__ == "__main__":
    main()
