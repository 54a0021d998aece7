"""The replay buffer.

The hot calls (`add`, `add_batch`, `sample`, `update_priorities`) are methods of the C++ class this
one derives from. They handle values that are already what the columns store; everything else comes
here, to a `_slow_` method, and from there to conversion.py. The columns come from settling.py, what
is read from reading.py.

Thread safety: every method may be called by any number of threads at once.
"""

from __future__ import annotations

import dataclasses
import os
import secrets
import weakref
from collections.abc import AsyncIterator, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import (
    _core,
    arguments,
    async_calls,
    conversion,
    lifecycle,
    reading,
    settling,
    sharing,
    shortage,
    stats,
    waiting,
)
from .awaiting import AsyncCalls, alone
from .config import BufferConfig, check_beta_can_be, shortest
from .errors import Closed, InvalidArgument, NotEnoughRows
from .forking import ForkLock
from .inference import Draft
from .peeking import PeekedRows
from .schema import Schema
from .view import View
from .views import Part, Trajectory
from .writer import Autoreset, StepWriter

#: What `sample` returns: arrays by column, nested where the schema is.
Batch = dict[str, Any]
Ids = npt.NDArray[np.int64]
Self = TypeVar("Self", bound="ReplayBuffer")


class ReplayBuffer(_core.Buffer):
    """A ring of rows that environments write and learners sample.

    Columns are given by `schema`, or settled by the first `add` together with what is said here:
    a scalar integer action is discrete (below `action_dim`), a vector is continuous, uint8 frames
    stay uint8, float64 becomes float32 unless a dtype is asked for.

    `seed` makes the batches repeatable: the same seed and content give the same batches.

    With storage="steps" rows are the steps of streams, written by a `writer`; `sample` gives
    transitions, and a `view` what else can be made of steps.

    As a context manager a buffer is closed at the end, and never removed: see `unlink`.
    """

    def __init__(
        self,
        config: BufferConfig,
        obs_shape: Any = None,
        action_dim: int | None = None,
        *,
        obs_dtype: Any = None,
        action_shape: Any = None,
        action_dtype: Any = None,
        reward_dtype: Any = None,
        schema: Schema | Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> None:
        super().__init__()
        if not isinstance(config, BufferConfig):
            raise InvalidArgument(f"config must be a BufferConfig, not {config!r}")
        self._config = config
        self._seed = secrets.randbits(64) if seed is None else arguments.generator_seed(seed)
        self._draft = Draft(
            obs_shape, obs_dtype, action_dim, action_shape, action_dtype, reward_dtype
        )
        self._schema: Schema | None = None
        self._begin("heap:")
        settling.check(config, self._seed)
        if schema is not None:
            settling.use(self, self._draft.given(schema))

    @classmethod
    def create(
        cls: type[Self],
        location: str,
        config: BufferConfig,
        obs_shape: Any = None,
        action_dim: int | None = None,
        *,
        obs_dtype: Any = None,
        action_shape: Any = None,
        action_dtype: Any = None,
        reward_dtype: Any = None,
        schema: Schema | Mapping[str, Any] | None = None,
        seed: int | None = None,
        overwrite: bool = False,
    ) -> Self:
        """A new buffer at a location, which other processes can open.

        location  "shm:name"   shared memory
                  "shm:"       shared memory without a name: for the children of this process
                  "file:path"  a file that survives the process
                  "heap:"      memory of this process

        Its layout is fixed here, so shapes and dtypes are given, or a schema. Where there is a
        buffer, whether or not anybody has it open, this raises AlreadyExists; with `overwrite` it
        is replaced, and lives on where it is open. Raises OutOfSpace when memory or disk is not
        there: it is taken now.
        """
        draft = Draft(obs_shape, obs_dtype, action_dim, action_shape, action_dtype, reward_dtype)
        columns = lifecycle.schema_of(draft, schema, config)
        return lifecycle.create(cls, location, config, columns, seed, overwrite=bool(overwrite))

    @classmethod
    def open_or_create(
        cls: type[Self],
        location: str,
        config: BufferConfig,
        obs_shape: Any = None,
        action_dim: int | None = None,
        *,
        obs_dtype: Any = None,
        action_shape: Any = None,
        action_dtype: Any = None,
        reward_dtype: Any = None,
        schema: Schema | Mapping[str, Any] | None = None,
        seed: int | None = None,
    ) -> Self:
        """The buffer at a location, or a new one where there is none; see `open` and `create`.

        Of processes that call this at once one creates, and all share. One that exists must have
        these columns and this config, and this seed if it is given; alpha may have been changed.
        Else this raises SchemaMismatch or InvalidArgument, which say what differs.
        """
        draft = Draft(obs_shape, obs_dtype, action_dim, action_shape, action_dtype, reward_dtype)
        columns = lifecycle.schema_of(draft, schema, config)
        return lifecycle.open_or_create(cls, location, config, columns, seed)

    @classmethod
    def open(cls: type[Self], location: str, *, readonly: bool = False, wait: float = 0) -> Self:
        """A buffer that exists. Its columns and config come from the segment.

        Opened with `readonly` it needs no permission to write, and draws without being counted.
        A file that was not closed is recovered. `wait` is for how many seconds to look for one that
        somebody is yet to create; then it raises Timeout. Raises NotFound, Corrupt, Incompatible,
        PermissionDenied.
        """
        return lifecycle.open_there(cls, location, bool(readonly), wait)

    @classmethod
    def restore(
        cls: type[Self],
        path: str | os.PathLike[str],
        location: str = "heap:",
        *,
        limiter: bool = False,
        overwrite: bool = False,
    ) -> Self:
        """A new buffer from a checkpoint, at any location: see `create`.

        Rows, row ids, priorities, alpha, counters and generator go on where they were; the rate
        limiter begins anew unless `limiter` is set. Raises NotFound, Corrupt, Incompatible,
        AlreadyExists, OutOfSpace.
        """
        source, flags = arguments.path("path", path), (bool(limiter), bool(overwrite))
        return sharing.attached(
            cls, location, lambda self: self._restore(source, location, *flags), made=True
        )

    @classmethod
    async def open_async(
        cls: type[Self], location: str, *, readonly: bool = False, wait: float = 0
    ) -> Self:
        """`open`, awaited."""
        return await lifecycle.open_async(cls, location, readonly, wait)

    @classmethod
    async def restore_async(
        cls: type[Self],
        path: str | os.PathLike[str],
        location: str = "heap:",
        *,
        limiter: bool = False,
        overwrite: bool = False,
    ) -> Self:
        """`restore`, awaited."""
        return await alone(
            lambda: cls.restore(path, location, limiter=limiter, overwrite=overwrite)
        )

    # ------------------------------------------------------------------------------------- facts

    @property
    def location(self) -> str:
        """Where the buffer is: "heap:", "shm:name", "shm:" or "file:path"."""
        return self._location

    @property
    def readonly(self) -> bool:
        self._check_open()
        return self._settled() and not self._writable()

    @property
    def config(self) -> BufferConfig:
        return self._config

    @property
    def schema(self) -> Schema | None:
        """The columns; None until the first `add` has settled them."""
        return self._schema

    @property
    def capacity(self) -> int:
        """Rows the buffer can hold."""
        self._check_open()
        return self._capacity() if self._settled() else self._config.capacity

    @property
    def size(self) -> int:
        """Rows in the buffer now."""
        if self._settled():
            return self._size()
        self._check_open()
        return 0

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    @property
    def is_full(self) -> bool:
        """Whether rows that are added now take the room of others."""
        self._check_open()
        return self._settled() and self._is_full()

    @property
    def closed(self) -> bool:
        return self._closed

    def stats(self) -> dict[str, Any]:
        """Counters and memory.

        raw_bytes is what the columns of a full buffer need, segment_bytes what it takes with
        everything around them, resident_bytes what is in memory now. Before the columns are settled
        the first two are estimates for float32 observations (None without a shape).

        compression is None, or the bytes that were compressed so far, before (bytes_in) and after
        (bytes_kept), and their ratio.

        limiter is None, or the rate limiter's settings, its balance (samples_per_insert times the
        rows added, less the rows drawn) and how many processes wait.

        episodes, of steps, are those that ended, unless the buffer was cleared after they began:
        finished, their steps and return_sum, and lengths and returns of the latest; zeros before
        the first row.
        """
        return stats.of(self)

    def __repr__(self) -> str:
        return stats.line(self)

    # ----------------------------------------------------------------------------------- reading

    def latest(self, n: int) -> Batch:
        """The newest n rows (all when there are fewer), oldest first.

        Raises NotEnoughRows before the first row, when the columns are not yet known.
        """
        return reading.latest(self, n)

    def get(self, ids: Any) -> Batch:
        """Rows by id. Raises RowGone when one of them is no longer there."""
        return reading.get(self, ids)

    def peek(self, ids: Any) -> PeekedRows:
        """Rows by id, read where they lie: nothing is copied. See PeekedRows.

        Raises RowGone when one of them is no longer there.
        """
        return reading.peek(self, ids)

    def peek_latest(self, n: int) -> PeekedRows:
        """The newest n rows (all when there are fewer), oldest first, read where they lie.

        Raises NotEnoughRows before the first row, when the columns are not yet known.
        """
        return reading.peek_latest(self, n)

    def view(self, *parts: Part) -> View:
        """Batches made of steps: `buffer.view(FrameStack(4), NStep(3, gamma=0.99)).sample(256)`.

        Without parts it is what `sample` gives of steps: transitions of one step. Of rows that are
        transitions, NStep can be made and nothing else.
        """
        self._check_open()
        return reading.view_of(self, parts)

    def episodes(self) -> Iterator[Batch]:
        """The episodes that ended and are whole, the oldest first: one dict of arrays for each.

        Arrays are [time, ...]; `final_obs` is the observation after the last step, `indices` the
        row id of the first. An episode that is overwritten meanwhile is left out.
        """
        yield from reading.episodes(self.view(Trajectory()))

    async def episodes_async(self) -> AsyncIterator[Batch]:
        """`episodes`, for `async for`."""
        async for episode in reading.episodes_async(self.view(Trajectory())):
            yield episode

    async def sample_async(
        self,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """`sample`, awaited: other tasks go on while it waits. See docs/guides/async.md."""
        return await async_calls.sample(self, self, batch_size, out, beta, timeout)

    # ----------------------------------------------------------------------------------- writing

    async def add_async(self, *values: Any, timeout: float | None = None, **columns: Any) -> int:
        """`add`, awaited."""
        return await async_calls.add(self, self.add, values, columns, timeout)

    async def add_batch_async(
        self, *values: Any, timeout: float | None = None, **columns: Any
    ) -> Ids:
        """`add_batch`, awaited."""
        return await async_calls.add(self, self.add_batch, values, columns, timeout)

    def writer(self, streams: int = 1, autoreset: Autoreset = "same_step") -> StepWriter:
        """A writer of the steps of `streams` environments; see StepWriter. Any number may write."""
        self._check_open()
        if self._config.storage != "steps":
            raise InvalidArgument("writers are for storage='steps'; transitions are added with add")
        with self._settling:
            writer = StepWriter(self, streams, autoreset)
            self._writers.add(writer)
        return writer

    def clear(self) -> None:
        """Forget all rows. Row ids go on growing; columns, seed and counters stay."""
        self._check_open()
        if self._settled():
            self._clear()

    def flush(self) -> None:
        """Return when what was written is on the disk. For files."""
        self._check_open()
        if self._settled():
            self._flush()

    def checkpoint(self, path: str | os.PathLike[str]) -> dict[str, int]:
        """Save the buffer in the directory `path` while others write to it; `restore` reads it.

        All rows added before the call, and not overwritten during it, are saved. Another call with
        the same path writes what has changed since. A crash leaves the checkpoint that was there or
        the new one. Returns the rows in it, its bytes and the bytes written by this call. Raises
        Busy when another checkpoint to the path is under way.
        """
        self._check_open()
        check_beta_can_be(self._config, "saved")
        if not self._settled():
            raise NotEnoughRows("the buffer is empty and its columns are not settled yet")
        return self._checkpoint(arguments.path("path", path))

    async def flush_async(self) -> None:
        """`flush`, awaited."""
        await alone(self.flush)

    async def checkpoint_async(self, path: str | os.PathLike[str]) -> dict[str, int]:
        """`checkpoint`, awaited."""
        return await alone(lambda: self.checkpoint(path))

    def unlink(self: ReplayBuffer | str, /) -> None:
        """Remove the buffer's name or file. It lives on where it is open.

        May be called again, and when closed. A newer buffer that has taken the name keeps it: this
        raises NotFound, as when the name is gone. A handle for reading raises ReadOnly.

        `ReplayBuffer.unlink("shm:name")` needs no handle.
        """
        if isinstance(self, ReplayBuffer):
            lifecycle.unlink(self)
        else:
            lifecycle.unlink_location(self)

    def close(self) -> None:
        """Release the memory. Calls after it raise Closed; closing twice is fine."""
        with self._settling:
            self._closed = True  # so that there are no more writers
            writers = list(self._writers)
        for writer in writers:
            writer.close()
        with self._settling:
            self._release()
        self._async_calls.close()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, ...]:
        return sharing.reduce(self)

    # -------------------------------------------------------------------------------- priorities

    async def update_priorities_async(self, indices: Any, td_errors: Any) -> int:
        """`update_priorities`, awaited."""
        return await async_calls.update_priorities(self, self.update_priorities, indices, td_errors)

    def priorities(self, ids: Any) -> npt.NDArray[np.float32]:
        """Raw priorities of rows. Raises RowGone when one of them is no longer there."""
        return reading.priorities(self, ids)

    @property
    def total_priority(self) -> float:
        """The sum over all rows of (priority + epsilon)^alpha."""
        self._check_weighted()
        return self._total_priority() if self._settled() else 0.0

    @property
    def max_priority(self) -> float:
        """The largest raw priority so far, which a row gets that is added without one."""
        self._check_weighted()
        return self._max_priority() if self._settled() else 1.0

    @property
    def alpha(self) -> float:
        """The priority exponent. Setting it recomputes every row's weight from its raw priority."""
        self._check_weighted()
        return shortest(self._alpha()) if self._settled() else self._config.alpha

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._check_weighted()
        with self._settling:
            config = dataclasses.replace(self._config, alpha=value)  # checks the value
            if self._settled():
                self._set_alpha(config.alpha)
            self._config = config

    # ------------------------------------------------------------------- the slow side of hot calls

    def _slow_add(
        self, /, *values: Any, priority: Any = None, timeout: Any = None, **columns: Any
    ) -> int:
        return int(conversion.add_rows(self, values, columns, priority, timeout, batched=False)[0])

    def _slow_add_batch(
        self, /, *values: Any, priority: Any = None, timeout: Any = None, **columns: Any
    ) -> Ids:
        return conversion.add_rows(self, values, columns, priority, timeout, batched=True)

    def _slow_sample(
        self,
        /,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        if self._config.storage == "steps":  # which a view draws, by a fast call of its own
            return self._one_step().sample(batch_size, out=out, beta=beta, timeout=timeout)
        return self._draw(batch_size, out, beta, shortage.Patience(self, timeout))

    def _slow_update_priorities(self, /, indices: Any, td_errors: Any) -> int:
        return conversion.update_priorities(self, indices, td_errors)

    # --------------------------------------------------------------------------------- internals

    def _draw(self, batch_size: Any, out: Any, beta: Any, patience: shortage.Patience) -> Batch:
        if self._config.storage == "steps":
            return self._one_step()._draw(batch_size, out, beta, patience)
        n = shortage.check(self, batch_size, beta, patience)
        if out is not None:
            reading.check_out(self, out, n)
        return shortage.draw(
            self,
            n,
            lambda left: self._sample_prepared(n, out=out, beta=beta, timeout=left),
            patience,
        )

    def _begin(self, location: str) -> None:
        self._location = location
        self._reads_only = False
        self._own = (0, 0, 0)  # what unlink() removes: an identity; of heap memory there is none
        self._unlinked = False
        self._closed = False
        self._settling: ForkLock = ForkLock()
        self._async_calls = AsyncCalls()
        self._work = 0.0  # for a row of a batch, when it is known: see async_calls
        self._writers: weakref.WeakSet[StepWriter] = weakref.WeakSet()
        self._transitions: View | None = None  # what `sample` draws from steps

    def _scheduled_beta(self, draws: int) -> float:
        """The exponent of the next batch; called by `sample` when the config has a schedule."""
        return self._config.beta(draws) if callable(self._config.beta) else self._config.beta

    def _who(self) -> str:
        return shortage.writers(self)

    def _warn_of_wait(self, told: str) -> None:
        """Called by the core when a call has waited for long."""
        waiting.warn_of_wait(told, self._who())

    def _item_bytes(self) -> float:
        if self._config.storage == "steps":
            return self._one_step()._item_bytes()
        assert self._schema is not None
        return arguments.bytes_of(self._schema.fields, None)

    def _one_step(self) -> View:
        if self._transitions is None:
            self._transitions = self.view()
        return self._transitions

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the buffer is closed")

    def _check_weighted(self) -> None:
        self._check_open()
        if not self._config.weighted:
            raise InvalidArgument(
                f"strategy={self._config.strategy!r} keeps no priorities; "
                "'prioritized' and 'rank' do"
            )


_core.adopt_hot_methods(ReplayBuffer)

# What Python says of wrong arguments names the call the user made.
for _name in ("add", "add_batch", "sample", "update_priorities"):
    getattr(ReplayBuffer, f"_slow_{_name}").__qualname__ = f"ReplayBuffer.{_name}"
