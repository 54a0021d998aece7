"""How every number of the comparison is taken.

One loop for all: the call stands in the loop's body with its arguments as locals, the collector is
off, and each repeat lasts at least the asked time. Numbers are microseconds per call (or per row).
The cost of the empty loop is part of every number, the floors' too.

Some calls are timed one by one, alone and beside a thread that runs plain Python, as an environment
does. Such a thread gives up the interpreter's lock a switch interval (5 ms) after somebody began to
wait for it: a call that lets go of the lock for its work gets it back that much later. One that
keeps it costs the thread its own time, and no more. So that thread is timed too.
"""

from __future__ import annotations

import statistics
import threading
import time
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

LOOPS = 1000  # that the Python thread's time is given for
PERIOD = 0.02  # seconds from one call to the next where that thread is what is timed


@dataclass(frozen=True)
class Fresh:
    """An argument that is asked for anew at every call, such as the next seed or the next ids."""

    next: Callable[[], Any]


@dataclass(frozen=True)
class Call:
    """What is timed: `function(*arguments, **keywords)`, the result dropped at once."""

    function: Callable[..., Any]
    arguments: tuple[Any, ...] = ()
    keywords: dict[str, Any] = field(default_factory=dict)


def timer(call: Call) -> timeit.Timer:
    """The loop around `call`, everything it names bound to locals."""
    setup = ["f = function"]
    passed = []
    values: dict[str, Any] = {"function": call.function}
    named = [("", value) for value in call.arguments]
    named += [(f"{key}=", value) for key, value in call.keywords.items()]
    for i, (prefix, value) in enumerate(named):
        fresh = isinstance(value, Fresh)
        values[f"value{i}"] = value.next if fresh else value
        setup.append(f"a{i} = value{i}")
        passed.append(f"{prefix}a{i}()" if fresh else f"{prefix}a{i}")
    return timeit.Timer(f"f({', '.join(passed)})", "\n".join(setup), globals=values)


def measure(call: Call, seconds: float, repeats: int, per: int = 1) -> list[float]:
    """Microseconds of each of `repeats` repeats, divided by `per` (rows a call).

    Two calls come first and are not counted: they may compile, map memory or start threads.
    """
    loop = timer(call)
    loop.timeit(2)
    loops = 1
    numbers: list[float] = []
    while len(numbers) < repeats:
        took = loop.timeit(loops)
        if took >= seconds:
            numbers.append(took / loops / per * 1e6)
        else:
            grow = 1.2 * seconds / took if took > 0.0 else 10.0
            loops = max(loops + 1, int(loops * min(grow, 10.0)))
    return numbers


def summary(microseconds: Sequence[float]) -> dict[str, float]:
    """Best and median of all repeats of all rounds."""
    return {"best": min(microseconds), "median": statistics.median(microseconds)}


class PythonThread:
    """Runs Python code while the block lasts."""

    def __init__(self) -> None:
        self.loops = 0
        self._over = False
        self._thread = threading.Thread(target=self._run, daemon=True)

    def _run(self) -> None:
        while not self._over:
            for _ in range(LOOPS):
                pass
            self.loops += LOOPS

    def __enter__(self) -> PythonThread:
        self._thread.start()
        return self

    def __exit__(self, *_: object) -> None:
        self._over = True
        self._thread.join()


def once(call: Call) -> Callable[[], float]:
    """A function that makes the call and says how long it took, in seconds."""
    clock, function = time.perf_counter, call.function

    def fresh(value: object) -> object:
        return value.next() if isinstance(value, Fresh) else value

    def timed() -> float:
        arguments = [fresh(value) for value in call.arguments]
        keywords = {name: fresh(value) for name, value in call.keywords.items()}
        start = clock()
        function(*arguments, **keywords)
        return clock() - start

    timed()
    timed()
    return timed


def median(timed: Callable[[], float], seconds: float) -> float:
    """Microseconds of a call, of calls that come one after the other."""
    taken = [timed() for _ in range(5)]
    end = time.perf_counter() + seconds
    while time.perf_counter() < end:
        taken.append(timed())
    return statistics.median(taken) * 1e6


def alone(call: Call, seconds: float, repeats: int, per: int = 1) -> list[float]:
    """The median of each repeat, in microseconds."""
    timed = once(call)
    return [median(timed, seconds) / per for _ in range(repeats)]


def beside(call: Call, seconds: float, repeats: int, per: int = 1) -> list[float]:
    """The same beside a Python thread."""
    timed = once(call)
    with PythonThread():
        return [median(timed, seconds) / per for _ in range(repeats)]


def thread(call: Call, seconds: float, repeats: int, per: int = 1) -> list[float]:
    """Microseconds of a thousand loops of a Python thread, while 50 calls a second are made.

    So many, and no more, whatever a call takes: whoever makes fewer of them disturbs less.
    """
    timed, found = once(call), []
    with PythonThread() as python:
        for _ in range(repeats):
            start, loops = time.perf_counter(), python.loops
            for turn in range(max(5, round(5 * seconds / PERIOD))):
                timed()
                time.sleep(max(0.0, start + (turn + 1) * PERIOD - time.perf_counter()))
            took = time.perf_counter() - start
            found.append(took * LOOPS / max(1, python.loops - loops) * 1e6)
    del per
    return found
