"""Waiting: timeouts as numbers, and the async calls, which wait in a thread."""

from __future__ import annotations

import asyncio
import functools
import math
import re
import time
from collections.abc import Callable
from typing import Any, TypeVar

from .errors import InvalidArgument, Timeout

T = TypeVar("T")

#: Seconds that an async call waits in a thread at a time, and so until it notices its cancelling.
SLICE = 0.25


def seconds(timeout: Any) -> float:
    """A timeout as a number; infinite for None."""
    if timeout is None:
        return math.inf
    try:
        number = math.nan if isinstance(timeout, (bool, str, bytes)) else float(timeout)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not number >= 0:
        raise InvalidArgument(f"timeout must be None or a number of seconds >= 0, not {timeout!r}")
    return number


async def in_thread(call: Callable[..., T], timeout: Any) -> T:
    """Runs call(timeout=...) in a thread of the loop's executor.

    In slices, so that a call that is cancelled ends, and many that wait do not keep others from
    the threads.
    """
    start, limit = time.monotonic(), seconds(timeout)
    while True:
        left = limit - (time.monotonic() - start)
        sliced = functools.partial(call, timeout=max(0.0, min(left, SLICE)))
        try:
            return await asyncio.get_running_loop().run_in_executor(None, sliced)
        except Timeout as error:
            waited = time.monotonic() - start
            if waited >= limit:
                text = re.sub(r" waited [0-9.]+ s:", f" waited {waited:.1f} s:", str(error))
                raise Timeout(text) from None


def poll(ready: Callable[[], bool], limit: float, call: str, missing: str) -> float:
    """Returns when something is so, with what is left of the time; else raises Timeout."""
    start = time.monotonic()
    while not ready():
        waited = time.monotonic() - start
        if waited >= limit:
            raise Timeout(f"{call} waited {waited:.1f} s: {missing}")
        time.sleep(min(limit - waited, 0.005))
    return max(0.0, limit - (time.monotonic() - start))
