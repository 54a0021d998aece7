"""What the processes of a soak say to each other: plain memory that outlives each of them.

Made before the processes are forked; one writes a cell, others read it.
"""

from __future__ import annotations

import mmap
import os
from pathlib import Path

import numpy as np

CELLS = 16  # by place
PLACES = 64


class Board:
    """For each place: its progress, what it did, what it holds. For each slot: the newest id there
    that a writer was given.
    """

    def __init__(self, capacity: int, folder: Path, checkpoints: Path) -> None:
        self._memory = mmap.mmap(-1, 8 * (1 + PLACES * CELLS + capacity))
        numbers = np.frombuffer(self._memory, np.int64)
        self._stop = numbers[:1]
        cells = numbers[1 : 1 + PLACES * CELLS].reshape(PLACES, CELLS)
        self.progress, self.written, self.sampled, self.updated, self.looked_up = cells.T[:5]
        self.descriptors, self.resident = cells[:, 5:7], cells[:, 7:9]  # at first, at last
        self.saved = cells[:, 9]
        self.acknowledged = numbers[1 + PLACES * CELLS :]
        self.acknowledged[:] = -1
        self._folder = folder
        self._checkpoints = checkpoints

    def acknowledge(self, ids: np.ndarray) -> None:
        """These ids were returned by the buffer, so their rows must be there until overwritten."""
        self.acknowledged[ids % len(self.acknowledged)] = ids

    def checkpoint(self, place: int) -> Path:
        """Where the processes at a place save, one after the other."""
        return self._checkpoints / str(place)

    def stop(self) -> None:
        self._stop[0] = 1

    @property
    def stopped(self) -> bool:
        return bool(self._stop[0])

    def complain(self, what: str) -> None:
        """The soak has failed; said in a file, because who says it may be killed."""
        (self._folder / f"{os.getpid()}-{os.urandom(4).hex()}").write_text(what)

    def complaints(self) -> list[str]:
        return [path.read_text() for path in sorted(self._folder.iterdir())]

    def note_holdings(self, place: int) -> None:
        """Descriptors and private memory of this process, now; the first time is kept."""
        status = dict(
            line.split(":", 1) for line in Path("/proc/self/status").read_text().splitlines()
        )
        held = len(os.listdir("/proc/self/fd")), int(status["RssAnon"].split()[0])
        when = 1 if self.descriptors[place, 0] else 0
        self.descriptors[place, when], self.resident[place, when] = held
