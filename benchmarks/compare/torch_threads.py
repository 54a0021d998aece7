"""PyTorch's number of threads, chosen in the peer's favour.

On a busy machine its second thread makes a copy of frames fifty times slower, on a quiet one a
little faster; a peer is shown with what serves it better at that moment.
"""

from __future__ import annotations

import functools
import time
from collections.abc import Callable
from typing import Any

NOTE = "PyTorch has one thread or its default number, whichever was faster just before."
CALLS = 5


@functools.cache
def default_threads() -> int:
    """What PyTorch chose for itself."""
    import torch

    threads: int = torch.get_num_threads()
    return threads


def choose(call: Callable[[], Any]) -> None:
    """Sets the number of threads with which `call` is faster."""
    import torch

    best: dict[int, float] = {}
    for threads in {1, default_threads()}:
        torch.set_num_threads(threads)
        call()
        times = []
        for _ in range(CALLS):
            start = time.perf_counter()
            call()
            times.append(time.perf_counter() - start)
        best[threads] = min(times)
    torch.set_num_threads(min(best, key=lambda threads: best[threads]))
