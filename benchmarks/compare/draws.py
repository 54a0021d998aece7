"""Priorities, and the ids of drawn batches that updates are timed with: the same for all peers."""

from __future__ import annotations

import itertools
from collections.abc import Callable
from typing import Any

import numpy as np
import numpy.typing as npt
from timing import Fresh

BATCHES = 256
ERRORS = 251  # not a divisor of BATCHES: a batch that comes again brings other errors


def priorities(n: int, seed: int = 0) -> npt.NDArray[np.float32]:
    """`n` positive priorities, most of them small, as TD errors are."""
    drawn = np.random.default_rng(seed).exponential(size=n)
    return (drawn + 0.01).astype(np.float32)


def updates(draw: Callable[[], Any], n: int, errors: Callable[[Any], Any]) -> tuple[Fresh, Fresh]:
    """Arguments of an update: ids that `draw` gave just now, and their new priorities.

    `errors` turns the float32 array of priorities into what the peer takes.
    """
    ids = [draw() for _ in range(BATCHES)]
    new = [errors(priorities(n, seed)) for seed in range(ERRORS)]
    return Fresh(itertools.cycle(ids).__next__), Fresh(itertools.cycle(new).__next__)
