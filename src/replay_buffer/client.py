"""What a buffer, its views and its writers have in common: the engine that they go to.

A buffer has one engine after the other: that of columns that are not known yet, that of its rows,
and that of a closed buffer. They are exchanged here, and fast calls are aimed anew.

Thread safety: every method may be called by any number of threads at once.
"""

from __future__ import annotations

import weakref
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from .arguments import exponent
from .awaiting import AsyncCalls
from .config import BufferConfig
from .engine import Engine
from .errors import Closed, InvalidArgument
from .forking import ForkLock
from .inference import Draft
from .schema import Schema

if TYPE_CHECKING:
    from .writer import StepWriter

#: Takes the engine that fast calls are to go to; None: they go nowhere any more.
Aim = Callable[[Engine | None], None]


class Client:
    """`draft` is what was said of the columns; `aim` belongs to the buffer, and does not keep it:
    one that nobody holds goes at once."""

    def __init__(self, engine: Engine, draft: Draft, aim: weakref.WeakMethod[Aim]) -> None:
        self.engine = engine
        self.draft = draft
        self.closed = False
        self.async_calls = AsyncCalls()
        #: Held while the engine is exchanged.
        self.exchanging: ForkLock = ForkLock()
        self._aim = aim
        self._writers: weakref.WeakSet[StepWriter] = weakref.WeakSet()

    @property
    def config(self) -> BufferConfig:
        return self.engine.config

    @property
    def schema(self) -> Schema | None:
        """None until the columns are known."""
        return self.engine.schema

    def settle(self, schema: Schema) -> Schema:
        """The columns: these, unless another thread's first row came first."""
        with self.exchanging:
            self.check_open()
            if self.engine.schema is None:
                self._go_to(self.engine.settle(schema))
        assert self.engine.schema is not None
        return self.engine.schema

    def go_to(self, engine: Engine) -> None:
        """Goes to an engine that has just been made."""
        with self.exchanging:
            self._go_to(engine)

    def set_alpha(self, alpha: Any) -> None:
        with self.exchanging:
            self.engine.set(alpha=alpha)

    def register(self, writer: StepWriter) -> None:
        """Closes a writer with the buffer."""
        with self.exchanging:
            self.check_open()
            self._writers.add(writer)

    def close(self) -> None:
        """Closes the writers, and the engine. May be called again."""
        with self.exchanging:
            self.closed = True  # so that there are no more writers
            writers = list(self._writers)
        for writer in writers:
            writer.close()
        with self.exchanging:
            self._aim_at(None)
            self.engine = self.engine.close()
        self.async_calls.close()

    def check_open(self) -> None:
        if self.closed:
            raise Closed("the buffer is closed")

    def check_weighted(self) -> None:
        self.check_open()
        if not self.config.weighted:
            raise InvalidArgument(
                f"strategy={self.config.strategy!r} keeps no priorities; "
                "'prioritized' and 'rank' do"
            )

    def who(self) -> str:
        return self.engine.who()

    def count_waits(self, adds: bool, more: int) -> bool:
        return self.engine.count_waits(adds, more)

    def exponent(self, given: Any) -> float:
        """That of the weights of a batch that is drawn now: given, scheduled or configured."""
        beta = self.config.beta
        if not self.config.weighted:
            return 0.0
        if given is not None:
            return exponent("beta", given)
        if callable(beta):
            return exponent("beta of the schedule", beta(self.engine.progress()[2]))
        return beta

    def _go_to(self, engine: Engine) -> None:
        self.engine = engine
        self._aim_at(engine)

    def _aim_at(self, engine: Engine | None) -> None:
        aim = self._aim()
        if aim is not None:
            aim(engine)
