"""How every number of the comparison is taken.

One loop for all: the call stands in the loop's body with its arguments as locals, the collector is
off, and each repeat lasts at least the asked time. Numbers are microseconds per call (or per row).
The cost of the empty loop is part of every number, the floors' too.
"""

from __future__ import annotations

import statistics
import timeit
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any


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
