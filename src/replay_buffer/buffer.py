"""The replay buffer.

The hot calls (`add`, `add_batch`, `sample`, `update_priorities`) are methods of the C++ class this
one derives from. They handle values that are already what the columns store; everything else comes
here, to a `_slow_` method that converts what can be converted and names what cannot.

Thread safety: every method may be called by any number of threads at once.
"""

from __future__ import annotations

import dataclasses
import functools
import os
import secrets
import threading
import weakref
from collections.abc import Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import _core, arguments, ragged, sharing, waiting
from .config import BufferConfig, LinearSchedule, not_negative, shortest
from .errors import Closed, InvalidArgument, NotEnoughRows, RowGone
from .hindsight import HindsightView
from .inference import Draft, by_name, check_steps, no_rows
from .schema import Column, Schema
from .trajectories import TrajectoryView, only_item
from .view import View
from .views import Hindsight, Part, Trajectory
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
        self._location = "heap:"
        self._closed = False
        self._begin()
        _core.plan(
            Schema({"x": Column()}).core_columns(), config.core_options(self._seed)
        )  # checks
        if schema is not None:
            if not self._draft.empty:
                raise InvalidArgument("a schema says everything: no shape or dtype beside it")
            self._use(schema if isinstance(schema, Schema) else Schema(schema))

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
    ) -> Self:
        """A new buffer at a location, which other processes can open.

        location  "shm:name"   shared memory; replaces one that a crash left behind
                  "shm:"       shared memory without a name: for the children of this process
                  "file:path"  a file that survives the process
                  "heap:"      memory of this process

        Its layout is fixed here, so shapes and dtypes are given, or a schema. Raises AlreadyExists,
        and OutOfSpace when memory or disk is not there: it is taken now.
        """
        self = cls(config, seed=seed)
        _core.check_location(location)
        if callable(config.beta) and not isinstance(config.beta, LinearSchedule):
            raise InvalidArgument(
                "beta must be a number or a LinearSchedule to be shared with other processes"
            )
        draft = Draft(obs_shape, obs_dtype, action_dim, action_shape, action_dtype, reward_dtype)
        if schema is not None and not draft.empty:
            raise InvalidArgument("a schema says everything: no shape or dtype beside it")
        if schema is None:
            schema = draft.explicit(steps=config.storage == "steps")
        self._location = location
        self._use(schema if isinstance(schema, Schema) else Schema(schema))
        sharing.attend(self)
        return self

    @classmethod
    def open(cls: type[Self], location: str, *, readonly: bool = False) -> Self:
        """A buffer that exists. Its columns and config come from the segment.

        Opened with `readonly` it needs no permission to write, and draws without being counted.
        A file that was not closed is recovered. Raises NotFound, Corrupt, Incompatible,
        PermissionDenied.
        """
        return cls._attached(location, lambda self: self._open(location, bool(readonly)))

    @classmethod
    def restore(
        cls: type[Self],
        path: str | os.PathLike[str],
        location: str = "heap:",
        *,
        limiter: bool = False,
    ) -> Self:
        """A new buffer from a checkpoint, at any location: see `create`.

        Rows, row ids, priorities, alpha, counters and generator go on where they were; the rate
        limiter begins anew unless `limiter` is set. Raises NotFound, Corrupt, Incompatible,
        AlreadyExists, OutOfSpace.
        """
        source = os.fspath(path)
        return cls._attached(location, lambda self: self._restore(source, location, bool(limiter)))

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
        return self._size() if self._settled() else self._empty_size()

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    @property
    def is_full(self) -> bool:
        return self.size == self.capacity

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
        """
        self._check_open()
        if self._settled():
            stats: dict[str, Any] = dict(self._counters())
        else:
            stats = {"size": 0, "capacity": self.capacity, **self._estimate()}
            stats["limiter"] = self._idle_limiter()
            stats["compression"] = None
        stats["settled"] = self._settled()
        stats["strategy"] = self._config.strategy
        if stats["raw_bytes"] is not None:
            stats["overhead_bytes"] = stats["segment_bytes"] - stats["raw_bytes"]
            stats["overhead"] = stats["overhead_bytes"] / stats["raw_bytes"]
        return stats

    def __repr__(self) -> str:
        columns = str(self._schema) if self._schema is not None else "columns not settled"
        try:
            rows = f"{self.size:,}/{self.capacity:,} rows"
        except Closed:  # perhaps just now
            return f"<{type(self).__name__}, closed>"
        where = "" if self._location == "heap:" else f" at {self._location}"
        return f"<{type(self).__name__}{where} {rows}, {self._config.strategy}: {columns}>"

    # ----------------------------------------------------------------------------------- reading

    def latest(self, n: int) -> Batch:
        """The newest n rows (all when there are fewer), oldest first.

        Raises NotEnoughRows before the first row, when the columns are not yet known.
        """
        n = arguments.count("n", n)
        if not self._settled():
            return self.get(self._no_ids())
        for _ in range(16):
            ids = self._latest_ids(min(n, self.capacity))
            batch, gone = self._get_rows(ids)
            batch["indices"] = ids
            if not gone.any():
                return batch
        # Writers are so fast that some rows are always overwritten between the two calls.
        assert self._schema is not None
        kept: Batch = ragged.select(~gone, batch, self._schema.fields)
        return kept

    def get(self, ids: Any) -> Batch:
        """Rows by id. Raises RowGone when one of them is no longer there."""
        wanted = arguments.row_ids(ids)
        if not self._settled():
            self._check_open()
            if wanted.size == 0:
                raise NotEnoughRows("the buffer is empty and its columns are not settled yet")
            raise RowGone(f"row {wanted.flat[0]} is not in the buffer")
        batch, gone = self._get_rows(wanted)
        if gone.any():
            first = wanted[gone][0]
            raise RowGone(f"{int(gone.sum())} of {wanted.size} rows are gone, the first is {first}")
        batch["indices"] = wanted.copy()
        return batch

    def view(self, *parts: Part) -> View:
        """Batches made of steps: `buffer.view(FrameStack(4), NStep(3, gamma=0.99)).sample(256)`.

        Without parts it is what `sample` gives: transitions of one step. Where rows are transitions
        that one writer added in their order, NStep can be made of them too.
        """
        self._check_open()
        if any(isinstance(part, Trajectory) for part in parts):
            return TrajectoryView(self, parts)
        if any(isinstance(part, Hindsight) for part in parts):
            return HindsightView(self, parts)
        return View(self, parts)

    def episodes(self) -> Iterator[Batch]:
        """The episodes that ended and are whole, the oldest first: one dict of arrays for each.

        Arrays are [time, ...]; `final_obs` is the observation after the last step, `indices` the
        row id of the first. An episode that is overwritten meanwhile is left out.
        """
        view = self.view(Trajectory())
        for start in np.sort(view.starts()):
            try:
                batch = view.get([start])
            except RowGone:
                continue
            yield only_item(batch)

    async def sample_async(
        self,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        """`sample` in a thread of the loop's executor."""
        call = functools.partial(self.sample, batch_size, out=out, beta=beta)
        return await waiting.in_thread(call, timeout)

    # ----------------------------------------------------------------------------------- writing

    async def add_async(self, *values: Any, timeout: float | None = None, **columns: Any) -> int:
        """`add` in a thread of the loop's executor."""
        return await waiting.in_thread(functools.partial(self.add, *values, **columns), timeout)

    async def add_batch_async(
        self, *values: Any, timeout: float | None = None, **columns: Any
    ) -> Ids:
        """`add_batch` in a thread of the loop's executor."""
        call = functools.partial(self.add_batch, *values, **columns)
        return await waiting.in_thread(call, timeout)

    def writer(self, streams: int = 1, autoreset: Autoreset = "same_step") -> StepWriter:
        """A writer of the steps of `streams` environments; see StepWriter. Any number may write."""
        self._check_open()
        if self._config.storage != "steps":
            raise InvalidArgument("writers are for storage='steps'; transitions are added with add")
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
        if callable(self._config.beta) and not isinstance(self._config.beta, LinearSchedule):
            raise InvalidArgument("beta must be a number or a LinearSchedule to be saved")
        if not self._settled():
            raise NotEnoughRows("the buffer is empty and its columns are not settled yet")
        return self._checkpoint(os.fspath(path))

    def unlink(self) -> None:
        """Remove the buffer's name or file. It lives on where it is open."""
        self._check_open()
        _core.remove(self._location, False)

    def close(self) -> None:
        """Release the memory. Calls after it raise Closed; closing twice is fine."""
        for writer in list(self._writers):
            writer.close()
        with self._settling:
            self._closed = True
            self._release()

    def __enter__(self: Self) -> Self:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # -------------------------------------------------------------------------------- priorities

    def priorities(self, ids: Any) -> npt.NDArray[np.float32]:
        """Raw priorities of rows. Raises RowGone when one of them is no longer there."""
        self._check_weighted()
        wanted = arguments.row_ids(ids)
        raws: npt.NDArray[np.float32] = self._raw_priorities(wanted)
        gone = np.isnan(raws)
        if gone.any():
            raise RowGone(f"{int(gone.sum())} of {wanted.size} rows are gone")
        return raws

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
        return int(self._convert_and_write(values, columns, priority, timeout, batched=False)[0])

    def _slow_add_batch(
        self, /, *values: Any, priority: Any = None, timeout: Any = None, **columns: Any
    ) -> Ids:
        return self._convert_and_write(values, columns, priority, timeout, batched=True)

    def _slow_sample(
        self,
        /,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        if self._config.storage == "steps":
            return self._one_step().sample(batch_size, out=out, beta=beta, timeout=timeout)
        n = arguments.count("batch_size", batch_size)
        self._check_open()
        if beta is not None:
            self._check_weighted()
        seconds = waiting.seconds(timeout)
        if self._schema is None and self._config.limited:
            seconds = self._await_first_row(n, seconds)
        if self._schema is None:
            raise NotEnoughRows(f"cannot sample {n} rows: the buffer is empty")
        if out is not None:
            self._check_out(out, n)
        if n > 2**31 - 1:
            raise InvalidArgument(f"batch_size must be below 2^31, not {n}")
        return self._sample_prepared(n, out=out, beta=beta, timeout=seconds)

    def _slow_update_priorities(self, /, indices: Any, td_errors: Any) -> int:
        self._check_weighted()
        wanted = arguments.row_ids(indices)
        raws = np.abs(arguments.numbers("td_errors", td_errors))
        if wanted.shape != raws.shape:
            raise InvalidArgument(f"{wanted.size} ids but {raws.size} td_errors were given")
        if not np.isfinite(raws).all():
            raise InvalidArgument("td_errors must be finite; nothing was changed")
        if not self._settled():
            if wanted.size == 0:
                return 0
            raise InvalidArgument(f"id {wanted[0]} was never given to a row; nothing was changed")
        return self.update_priorities(wanted, raws)

    # ----------------------------------------------------------------------- to other processes

    def __reduce__(self) -> tuple[Any, ...]:
        self._check_open()
        return sharing.reduce(self)

    @classmethod
    def _attached(cls: type[Self], location: str, attach: Callable[[Self], None]) -> Self:
        self = cls.__new__(cls)
        _core.Buffer.__init__(self)
        self._closed = False
        self._begin()
        self._location = location
        attach(self)
        facts = self._facts()
        self._config = BufferConfig.from_core(facts)
        self._seed = facts["seed"]
        self._draft = Draft()
        self._schema = Schema.from_core(facts["columns"])
        sharing.attend(self)
        return self

    # --------------------------------------------------------------------------------- internals

    def _begin(self) -> None:
        self._settling = threading.Lock()
        self._writers: weakref.WeakSet[StepWriter] = weakref.WeakSet()
        self._transitions: View | None = None  # what `sample` draws from steps

    def _scheduled_beta(self, draws: int) -> float:
        """The exponent of the next batch; called by `sample` when the config has a schedule."""
        return self._config.beta(draws) if callable(self._config.beta) else self._config.beta

    def _use(self, schema: Schema) -> None:
        if self._config.storage == "steps":
            check_steps(schema)
        options = self._config.core_options(self._seed)
        self._create(self._location, schema.core_columns(), options)
        self._schema = schema

    def _idle_limiter(self) -> dict[str, Any] | None:
        """What stats() says of the limiter before the first row."""
        config = self._config
        if not config.limited:
            return None
        return {
            "min_size": max(1, config.min_size),
            "samples_per_insert": config.samples_per_insert,
            "tolerance": config.tolerance,
            "balance": 0.0,
            "waiting": 0,
        }

    def _await_first_row(self, n: int, limit: float) -> float:
        """Waits for the row, of another thread, that settles the columns."""
        missing = f"0 of {max(1, self._config.min_size)} rows are there (min_size)"
        left = waiting.poll(
            lambda: self._closed or self._schema is not None, limit, f"sample({n})", missing
        )
        self._check_open()
        return left

    def _convert_and_write(
        self,
        values: tuple[Any, ...],
        columns: dict[str, Any],
        priority: Any,
        timeout: Any,
        *,
        batched: bool,
    ) -> Ids:
        """Adds rows, settling the schema if they are the first. Changes nothing when it raises."""
        self._check_open()
        if self._config.storage == "steps":
            raise InvalidArgument("this buffer stores steps: writer() has append for them")
        schema = self._schema
        row = by_name(schema, values, columns)
        if schema is None:
            if batched and all(no_rows(name, value) for name, value in row.items()):
                self._draft.check_names(row)
                self._raws(priority, 0, batched)
                return np.empty(0, np.int64)  # nothing to settle the columns by
            schema = self._draft.settle(row, batched=batched)
        n, arrays = schema.arrays(row, -1 if batched else None)
        raws = self._raws(priority, n, batched)
        if n == 0:
            return np.empty(0, np.int64)
        with self._settling:
            self._check_open()
            if self._schema is None:
                self._use(schema)
        if self._schema is not schema:  # another thread's first row came first
            return self._convert_and_write(values, columns, priority, timeout, batched=batched)
        ids: Ids = self._write_rows(n, arrays, raws, timeout)
        return ids

    def _ensure_schema(self, row: Batch, *, batched: bool) -> Schema:
        """The columns of steps: known, or settled by the values of the first."""
        if self._schema is None:
            schema = self._draft.settle(row, batched=batched, steps=True)
            schema.arrays(row, -1 if batched else None)  # raises what is wrong with the values
            with self._settling:
                self._check_open()
                if self._schema is None:
                    self._use(schema)
        assert self._schema is not None
        return self._schema

    def _one_step(self) -> View:
        if self._transitions is None:
            self._transitions = self.view()
        return self._transitions

    def _raws(self, priority: Any, n: int, batched: bool) -> npt.NDArray[np.float32] | None:
        if priority is None:
            return None
        self._check_weighted()
        if not batched:
            if getattr(priority, "ndim", 0) != 0 or isinstance(priority, bool):
                raise InvalidArgument(f"priority must be a number, not {priority!r}")
            priority = [not_negative("priority", priority)]
        raws = arguments.numbers("priority", priority)
        if raws.shape != (n,):
            raise InvalidArgument(f"priority: expected {n} values, got shape {raws.shape}")
        if not (np.isfinite(raws).all() and (raws >= 0).all()):
            raise InvalidArgument("priority must be finite and >= 0; nothing was added")
        return raws

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

    def _check_out(self, out: Any, n: int) -> None:
        """Raises what is wrong with the caller's arrays."""
        assert self._schema is not None
        extra: dict[str, Any] = {"indices": Column((), "int64")}
        if self._config.weighted:
            extra["weights"] = Column((), "float32")
        arguments.check_arrays({**self._schema.fields, **extra}, out, n)

    def _empty_size(self) -> int:
        self._check_open()
        return 0

    def _no_ids(self) -> Ids:
        self._check_open()
        return np.empty(0, np.int64)

    def _estimate(self) -> dict[str, Any]:
        guess = self._draft.guess(steps=self._config.storage == "steps")
        if guess is None:
            return {"raw_bytes": None, "segment_bytes": None}
        options = self._config.core_options(self._seed)
        row_bytes, segment_bytes = _core.plan(guess.core_columns(), options)
        return {
            "row_bytes": row_bytes,
            "raw_bytes": row_bytes * self.capacity,
            "segment_bytes": segment_bytes,
        }


_core.adopt_hot_methods(ReplayBuffer)

# What Python says of wrong arguments names the call the user made.
for _name in ("add", "add_batch", "sample", "update_priorities"):
    getattr(ReplayBuffer, f"_slow_{_name}").__qualname__ = f"ReplayBuffer.{_name}"
