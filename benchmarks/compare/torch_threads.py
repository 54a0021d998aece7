"""PyTorch's number of threads, chosen in the peer's favour.

When other work takes the cores, waiting for its second thread makes a copy of frames tens of times
slower; with free cores the thread may help. A peer is shown with what serves it better right then.
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

    took: dict[int, float] = {}
    for threads in {1, default_threads()}:
        torch.set_num_threads(threads)
        call()
        start = time.perf_counter()
        for _ in range(CALLS):
            call()
        took[threads] = time.perf_counter() - start
    torch.set_num_threads(min(took, key=lambda threads: took[threads]))
