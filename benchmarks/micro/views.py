"""Views of steps against targets and floors of the same run: n steps, frame stacks, sequences.

n steps of transitions compare each row with the next; cells "of one stream" are told that they need
not. Vectors: observations of 8 float32 in one million rows, of one stream and of 64. Frames: 84x84
uint8, twenty thousand rows. Sequences are 40 steps of burn-in and 80 more, of frames or of 64
float32. Their floors copy as many bytes with one thread: `memcpy` between the same two arrays,
which caches may hold; `runs` out of random places of an array as large as the buffer, one run of
steps at a time. `gather 1024` is what 256 transitions of three steps need of memory where every
step lies elsewhere, as with many streams. Writes `views.json` and `views_scaling.png` to
`out/bench`.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator
from dataclasses import asdict, dataclass

import numpy as np
from benchmarks.compare.timing import Call, Fresh
from benchmarks.micro._measure import (
    OUT,
    QUICK,
    Cell,
    Pace,
    Times,
    in_turns,
    quick_asked,
    start_gather,
    write,
)
from benchmarks.micro._plot import draw
from benchmarks.micro._rows import full_buffer, full_trajectory, workload
from benchmarks.micro._steps import Steps, bytes_of
from benchmarks.micro._targets import Target, show, verdicts

from replay_buffer import FrameStack, NStep, ReplayBuffer, Sequence

SEQUENCE = Sequence(length=80, burn_in=40)
STREAMS = (1, 64)
STEP_BYTES = 64  # a step of 8 float32 with its word and its link
SIZES = (10_000, 100_000, 1_000_000, 10_000_000)


def no_slower(cell: str, than: str, times: float, text: str) -> Target:
    """A target of one cell in multiples of another."""
    return Target(cell, text, lambda best: times * best(than))


TARGETS = (
    *(
        no_slower(f"3 steps: sample 256, {k} streams", "plain: sample 256", 2, "2 x plain")
        for k in STREAMS
    ),
    no_slower("3 steps of frames: sample 256", "plain single frames: sample 256", 2, "2 x plain"),
    no_slower("stacks: sample 32", "plain frames: sample 32", 1, "plain frames"),
    *(
        no_slower(f"sequences of {what} into arrays", f"runs, {what}", 1 / 0.7, "70 % of runs")
        for what in ("frames", "vectors")
    ),
)


def drawn(name: str, view: object, n: int) -> Iterator[tuple[str, Cell]]:
    """A view's batches: fresh, and into arrays of the caller."""
    sample = view.sample  # type: ignore[attr-defined]
    yield name, Cell(Call(sample, (n,)))
    yield f"{name} into arrays", Cell(Call(sample, (n,), {"out": sample(n)}))


def step_cells(rows: int) -> Iterator[tuple[str, Cell]]:
    """Transitions of vectors: plain ones, of one step and of three."""
    plain = full_buffer(workload((8,), "float32", rows))
    yield from drawn("plain: sample 256", plain, 256)
    for streams in STREAMS:
        buffer = Steps((8,), "float32", rows).full(streams)
        yield from drawn(f"1 step: sample 256, {streams} streams", buffer, 256)
        view = buffer.view(NStep(3, gamma=0.99))
        yield from drawn(f"3 steps: sample 256, {streams} streams", view, 256)


def transition_cells(rows: int, frames: int) -> Iterator[tuple[str, Cell]]:
    """Three steps of stored transitions, of vectors and of frames."""
    for what, shape, dtype, n, count in (
        ("", (8,), "float32", 256, rows),
        (" of frames", (84, 84), "uint8", 32, frames),
    ):
        buffer = full_trajectory(workload(shape, dtype, count))
        for said, one_stream in (("", False), (" of one stream", True)):
            view = buffer.view(NStep(3, gamma=0.99, one_stream=one_stream))
            yield f"3 transitions{what}{said}: sample {n}", Cell(Call(view.sample, (n,)))


def frame_step_cells(rows: int) -> Iterator[tuple[str, Cell]]:
    """Transitions of single frames: plain ones, and of three steps of 64 streams."""
    plain = full_buffer(workload((84, 84), "uint8", rows))
    yield "plain single frames: sample 256", Cell(Call(plain.sample, (256,)))
    view = Steps((84, 84), "uint8", rows).full(64).view(NStep(3, gamma=0.99))
    yield "3 steps of frames: sample 256", Cell(Call(view.sample, (256,)))


def frame_cells(rows: int) -> Iterator[tuple[str, Cell]]:
    """Stacks of four frames, made when drawn and stored as such."""
    plain = full_buffer(workload((84, 84, 4), "uint8", rows))
    yield from drawn("plain frames: sample 32", plain, 32)
    steps = Steps((84, 84), "uint8", rows).full()
    yield from drawn("stacks: sample 32", steps.view(FrameStack(4)), 32)
    yield from sequence_cells("frames", steps, 8)


def sequence_cells(what: str, buffer: ReplayBuffer, n: int) -> Iterator[tuple[str, Cell]]:
    """Sequences, and the two floors of as many bytes."""
    view = buffer.view(SEQUENCE)
    yield from drawn(f"sequences of {what}", view, n)
    size = bytes_of(view.sample(n))
    source, target = np.ones(size, np.uint8), np.ones(size, np.uint8)
    yield f"memcpy, {what}", Cell(Call(np.copyto, (target, source)))
    run = size // n
    large = np.ones(buffer.stats()["raw_bytes"], np.uint8)
    targets = [target[i * run : (i + 1) * run] for i in range(n)]
    places = np.random.default_rng(0).integers(0, len(large) - run, (512, n)).tolist()

    def runs(starts: list[int], copyto=np.copyto) -> None:  # type: ignore[no-untyped-def]
        for start, to in zip(starts, targets, strict=True):
            copyto(to, large[start : start + run])

    yield f"runs, {what}", Cell(Call(runs, (Fresh(itertools.cycle(places).__next__),)))


def append_cells(rows: int) -> Iterator[tuple[str, Cell]]:
    """One `append`, per row; episodes go on."""
    for streams in (1, 64, 1024):
        steps = Steps((8,), "float32", rows)
        writer = steps.full(streams).writer(streams=streams)
        never = np.zeros(streams, bool)
        step = (*steps.one(streams), never, never)
        yield f"append, per row of {streams}", Cell(Call(writer.append, step), per=streams)


@dataclass(frozen=True)
class Memory:
    """A number that has a limit."""

    what: str
    value: float
    limit: float

    def __str__(self) -> str:
        word = "pass" if self.value <= self.limit else "MISS"
        return f"{self.what:60} {self.value:12.3f} {self.limit:12.3f}  {word}"


def memory(rows: int) -> list[Memory]:
    """Stacks of steps against plain frames, filled; a million Atari steps, which are not."""
    plain = full_buffer(workload((84, 84, 4), "uint8", rows)).stats()
    steps = Steps((84, 84), "uint8", rows).full().stats()
    parts = ("segment_bytes", "resident_bytes")
    found = [
        Memory(f"stacks, {part}, of plain frames", steps[part] / plain[part], 1 / 7)
        for part in parts
    ]
    atari = Steps((84, 84), "uint8", 1_000_000)
    with atari.empty() as buffer, buffer.writer() as writer:
        obs, action, reward = (value[0] for value in atari.one(1))
        writer.append(obs, action, reward, False, False)  # settles the columns
        taken = buffer.stats()["segment_bytes"] / 1e9
    return [*found, Memory("1M Atari steps, GB", taken, 8)]


def scaling(sizes: tuple[int, ...], pace: Pace) -> dict[int, Times]:
    """Sequences and single steps from buffers of many sizes."""
    series: dict[int, Times] = {}
    for size in sizes:
        cells: dict[str, Cell] = {}
        for streams in STREAMS:
            buffer = Steps((8,), "float32", size).full(streams)
            view = buffer.view(Sequence(length=80))
            out = view.sample(32)
            named = f"32 sequences of 80, {streams} streams"
            cells[named] = Cell(Call(view.sample, (32,), {"out": out}))
        series[size] = in_turns(cells, (), pace)
        del cells
        numbers = "  ".join(f"{name}: {t['best']:.1f} us" for name, t in series[size].items())
        print(f"{size:>12,} rows  {numbers}", flush=True)
    return series


def main() -> None:
    """Measure, show, write."""
    quick = quick_asked("Times views of steps against targets and floors.")
    OUT.mkdir(parents=True, exist_ok=True)
    rows, frames = (50_000, 500) if quick else (1_000_000, 20_000)
    pace = QUICK if quick else Pace()
    gathers = start_gather(STEP_BYTES, rows, (256, 1024))
    times = in_turns(dict(step_cells(rows)), gathers, pace)
    for gather in gathers:
        gather.close()
    times |= in_turns(dict(transition_cells(rows, frames)), (), pace)
    times |= in_turns(dict(frame_step_cells(frames)), (), pace)
    times |= in_turns(dict(frame_cells(frames)), (), pace)
    vectors = Steps((64,), "float32", rows // 4).full()
    times |= in_turns(dict(sequence_cells("vectors", vectors, 32)), (), pace)
    times |= in_turns(dict(append_cells(rows)), (), pace)
    found = verdicts(times, TARGETS)
    show(times, found)
    print("\nmemory")
    stored = memory(frames)
    for entry in stored:
        print(entry)
    print("\nsequences of 8 float32, best")
    series = scaling(SIZES[:2] if quick else SIZES, pace)
    draw("Sequences, 8 float32 a step", series, OUT / "views_scaling.png")
    results = {"times": times, "targets": {name: asdict(v) for name, v in found.items()}}
    write("views", results | {"memory": [asdict(m) for m in stored], "scaling": series})


if __name__ == "__main__":
    main()
