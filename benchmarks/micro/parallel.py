"""The same work in threads of one process and in processes: rows a second of all of them together.

One buffer in shared memory, a million rows of 8 float32, so that all that differs is where the work
is done. Threads take turns with the interpreter's lock; processes have one each, and share the
buffer and the machine. An idler calls a function that shares nothing: what the machine has to give.
The best of all repeats, each of which has every crowd once in threads and once in processes. Writes
`parallel.json` and `parallel.png` to `out/bench`.
"""

from __future__ import annotations

import gc
from pathlib import Path

from benchmarks.compare.workload import Workload
from benchmarks.micro._crowd import ROLES, Crowd, together
from benchmarks.micro._measure import OUT, quick_asked, write
from benchmarks.micro._plot import lines, picture
from benchmarks.micro._rows import Strategy, buffer_at, fill, workload

from replay_buffer import ReplayBuffer

COUNTS = (1, 2, 4)
KINDS = ("threads", "processes")
Rates = dict[str, dict[str, dict[int, float]]]  # by role, kind and how many: rows a second


def rates(buffer: ReplayBuffer, rows: Workload, seconds: float, repeats: int) -> Rates:
    """The best of all repeats."""
    found: Rates = {role: {kind: {} for kind in KINDS} for role in ROLES}
    with Crowd(buffer, rows, max(COUNTS)) as crowd:
        for _ in range(repeats):
            for role, (make, per) in ROLES.items():
                for n in COUNTS:
                    calls = together([make(buffer, rows) for _ in range(n)], seconds)
                    keep_most(found[role]["threads"], n, per * sum(calls))
                    apart = crowd.rates((role,) * n, seconds)
                    keep_most(found[role]["processes"], n, sum(rate for rate, _ in apart))
    return found


def keep_most(numbers: dict[int, float], n: int, value: float) -> None:
    numbers[n] = max(numbers.get(n, 0.0), value)


def show(strategy: str, found: Rates) -> None:
    """A line a role and kind."""
    counts = "".join(f"{n:>12}" for n in COUNTS)
    print(f"\n{strategy}, thousands of rows a second, of so many".ljust(48) + counts)
    for role, by in found.items():
        for kind, line in by.items():
            numbers = "".join(f"{line[n] / 1e3:12,.0f}" for n in COUNTS)
            print(f"{role + ', ' + kind:48}{numbers}", flush=True)


def draw(found: dict[Strategy, Rates], path: Path) -> None:
    """A panel a role: rows a second over how many there are, uniform."""
    roles = [role for role in ROLES if role != "idler"]
    with picture("Rows a second, uniform", path, panels=len(roles), height=4) as axes:
        for axis, role in zip(axes, roles, strict=False):
            by = found["uniform"][role]
            lines(axis, {kind: {n: rate / 1e6 for n, rate in by[kind].items()} for kind in KINDS})
            axis.set_title(f"{role}s")
            axis.set_xticks(COUNTS)
            axis.set_ylim(0, 1.1 * max(rate for kind in KINDS for rate in by[kind].values()) / 1e6)
            axis.set_xlabel("threads, or processes")
            axis.set_ylabel("million rows a second")


def main() -> None:
    """Uniform and prioritized."""
    quick = quick_asked("Threads against processes on one buffer.")
    rows = workload((8,), "float32", 20_000 if quick else 1_000_000)
    seconds, repeats = (0.02, 1) if quick else (0.1, 5)
    strategies: tuple[Strategy, ...] = ("uniform", "prioritized")
    found: dict[Strategy, Rates] = {}
    gc.disable()
    OUT.mkdir(parents=True, exist_ok=True)
    for strategy in strategies:
        with fill(buffer_at("shm:", rows, strategy), rows) as buffer:
            found[strategy] = rates(buffer, rows, seconds, repeats)
        show(strategy, found[strategy])
    draw(found, OUT / "parallel.png")
    write("parallel", found)


if __name__ == "__main__":
    main()
