"""Draws at a chosen point: the seed whose first number is the one wanted.

The generator's steps can be undone (src/cpp/core/random.h), so the rare numbers at the edges of
rounding need not be waited for.
"""

from __future__ import annotations

from typing import Any

from unit.prioritized.law import fill, make

WORD = 2**64
GOLDEN = 0x9E3779B97F4A7C15
FIRST = pow(0xBF58476D1CE4E5B9, -1, WORD)
SECOND = pow(0x94D049BB133111EB, -1, WORD)
#: The largest number below 1 that the generator gives.
LARGEST = 1 - 2.0**-53


def unshift(z: int, shift: int) -> int:
    """Undoes z ^= z >> shift."""
    x = z
    for _ in range(64 // shift):
        x = z ^ (x >> shift)
    return x


def unmix(z: int) -> int:
    """Undoes the generator's mix."""
    z = unshift(z, 31) * SECOND % WORD
    z = unshift(z, 27) * FIRST % WORD
    return unshift(z, 30)


def seed_for(fraction: float) -> int:
    """The seed of a buffer whose first draw takes `fraction` of the way through its stratum."""
    wanted = int(fraction * 2**53) << 11
    return unmix(unmix((unmix(wanted) - GOLDEN) % WORD))


def draw_at(fraction: float, raws: Any, capacity: int, strategy: str = "prioritized") -> int:
    """The row that a batch of one takes at `fraction` of the total. Alpha is 1, epsilon 0."""
    buffer = make(capacity, strategy, alpha=1.0, epsilon=0.0, seed=seed_for(fraction))
    fill(buffer, raws)
    return int(buffer.sample(1)["indices"][0])
