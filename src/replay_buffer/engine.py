"""The contract between a buffer and what keeps its rows.

A `ReplayBuffer` with its views and writers is the client: it converts values, checks arguments,
waits for rows, and puts goals and schedules of the user's in. An engine is what the client goes to:
it stores rows, draws them, and makes batches of them. So an engine gets arrays that are whole and
fit, and checks only what it alone can know.

Arrays     are C-contiguous, aligned and of the column's dtype. Where the length of values varies,
           they are a pair (values, offsets), with one offset more than rows.
Row ids    are int64, below 2^56: seven bits are left to say which of many engines has the row. They
           only ever grow, and an id that was given is never given again.
Waits      end after `timeout` seconds, with Timeout; None is as long as it takes, 0 is not at all.
Results    that come later, or never, are None: ids and counts of an engine that batches calls.
Errors     are those of errors.py. A call that raises has changed nothing. After close, all of them
           raise Closed.
Threads    may call everything at any time.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any, Literal

import numpy as np
import numpy.typing as npt

from . import _core
from .config import BufferConfig
from .plan import Plan
from .schema import Schema

#: Arrays by column, nested where the schema is, with `indices` and, if there are any, `weights`.
Batch = dict[str, Any]
Ids = npt.NDArray[np.int64]
Priorities = npt.NDArray[np.float32]
Raws = Priorities | None
Arrays = list[Any]  #: one for each column
Autoreset = Literal["same_step", "next_step"]
Seconds = float | None
#: Which items of a batch could not be made.
Mask = npt.NDArray[np.bool_]


class Engine(ABC):
    """What keeps the rows of a buffer."""

    location: str
    config: BufferConfig
    seed: int
    #: None until the columns are known: see `settle`.
    schema: Schema | None
    readonly: bool
    #: What fast calls go to, where they can; else every call comes here.
    target: _core.Local | None = None

    # ------------------------------------------------------------------------------------- facts

    @abstractmethod
    def size(self) -> int:
        """Rows that are there now."""

    @abstractmethod
    def is_full(self) -> bool:
        """Whether rows that are added now take the room of others."""

    @abstractmethod
    def progress(self) -> tuple[int, int, int]:
        """Rows added, rows drawn and batches drawn so far. Quick: calls that wait look at it."""

    @abstractmethod
    def counters(self) -> dict[str, Any]:
        """What `ReplayBuffer.stats` documents. May take a while."""

    @abstractmethod
    def masses(self) -> tuple[float, float, float]:
        """The priority exponent alpha, the sum of (priority + epsilon)^alpha over all rows, and the
        largest raw priority so far."""

    @abstractmethod
    def who(self) -> str:
        """Who could end a wait, in words for its warning."""

    @abstractmethod
    def count_waits(self, adds: bool, more: int) -> bool:
        """So many calls more, or fewer, wait elsewhere to add, or draw. False: nobody to tell."""

    # ----------------------------------------------------------------------------------- writing

    @abstractmethod
    def settle(self, schema: Schema) -> Engine:
        """The engine that stores rows of these columns, where none were known; else this one."""

    @abstractmethod
    def write(
        self, arrays: Arrays, n: int, raws: Raws, timeout: Seconds, key: bytes | None = None
    ) -> Ids | None:
        """Adds n transitions; without priorities they get the largest so far. Waits for the rate
        limiter. What comes again with the same key is not stored twice."""

    @abstractmethod
    def writer(self, streams: int, autoreset: Autoreset) -> EngineWriter:
        """A writer of the steps of so many streams."""

    @abstractmethod
    def set_priorities(self, ids: Ids, raws: Priorities) -> int | None:
        """Gives rows these priorities, finite and >= 0. How many were still there; raises
        InvalidArgument for an id that was never given."""

    @abstractmethod
    def clear(self) -> None:
        """Forgets all rows. Ids go on growing; counters stay."""

    @abstractmethod
    def set(self, *, alpha: float) -> None:
        """Changes what may be changed of the config: it then says so."""

    # ----------------------------------------------------------------------------------- reading

    @abstractmethod
    def draw(
        self, plan: Plan | None, n: int, beta: float, out: Batch | None, timeout: Seconds
    ) -> Batch:
        """Draws n rows and makes a batch of them; None is the rows as they are stored. Fills the
        arrays of `out`, where there are some, and gives it larger ones where theirs have no room.

        `beta` is the exponent of the weights. Waits for the rate limiter, not for rows: where these
        are missing it raises NotEnoughRows, and nothing was drawn."""

    @abstractmethod
    def make(self, plan: Plan | None, ids: Ids) -> tuple[Batch, Mask | None]:
        """What a plan makes of these rows, and which of them are gone or no starts; None when all
        could be made."""

    @abstractmethod
    def find(self, rows: Plan | int) -> Ids:
        """The ids of all rows that a plan can begin at, or of the newest so many, oldest first."""

    @abstractmethod
    def peek(self, ids: Ids) -> _core.InPlace:
        """The memory in which these rows lie. Raises InvalidArgument where there is none here."""

    @abstractmethod
    def priorities(self, ids: Ids) -> Priorities:
        """Raw priorities of rows; NaN for a row that is gone."""

    @abstractmethod
    def recipe(self, plan: Plan) -> _core.Recipe | None:
        """What fast calls of a view go to, where they can."""

    # ---------------------------------------------------------------------------------- life cycle

    @abstractmethod
    def save(self, path: str) -> dict[str, int]:
        """See ReplayBuffer.checkpoint."""

    @abstractmethod
    def flush(self) -> None:
        """Returns when what was written is on the disk."""

    @abstractmethod
    def hand_over(self) -> tuple[Callable[..., Engine], tuple[Any, ...]]:
        """What pickle needs to make this engine in another process, or TypeError."""

    @abstractmethod
    def unlink(self) -> None:
        """Removes the name that others find the rows by; also when closed."""

    @abstractmethod
    def close(self) -> Engine:
        """Gives everything back. Calls that wait end with Closed, as does every call on the engine
        that this returns and that takes its place."""


class EngineWriter(ABC):
    """Writes the steps of streams. Belongs to one thread at a time."""

    #: What fast calls go to, where they can.
    target: _core.LocalWriter | None = None

    @abstractmethod
    def append(
        self, arrays: Arrays, finals: Arrays | None, raws: Raws, timeout: Seconds
    ) -> Ids | None:
        """Writes a step of every stream. `finals` has the observations behind the streams that end,
        and None for other columns. Waits for the rate limiter."""

    @abstractmethod
    def ending(self) -> list[bool]:
        """The streams whose next step is a last observation only."""

    @abstractmethod
    def end(self, stream: int) -> None:
        """Cuts the episode of a stream."""

    @abstractmethod
    def close(self) -> None:
        """Cuts all episodes that are open."""
