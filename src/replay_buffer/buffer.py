"""The replay buffer.

The hot calls (`add`, `add_batch`, `sample`, `update_priorities`) are methods of the C++ class this
one derives from. They handle values that are already what the columns store; everything else comes
here, to a `_slow_` method, and from there to conversion.py and drawing.py. All of them go to the
engine that the client has now: see client.py and engine.py.

Thread safety: every method may be called by any number of threads at once.
"""

from __future__ import annotations

import os
import weakref
from collections.abc import AsyncIterator, Callable, Iterator, Mapping
from types import TracebackType
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from . import _core, arguments, async_calls, conversion, reading, sharing, stats
from .awaiting import alone
from .client import Client
from .config import BufferConfig, check_beta_can_be
from .drawing import Source
from .engine import Autoreset, Batch, Engine, Ids
from .engines import names, places
from .engines.local import LocalEngine
from .engines.unsettled import UnsettledEngine
from .errors import InvalidArgument
from .hindsight import GoalSource, HindsightView
from .inference import Draft
from .peeking import PeekedRows
from .plan import Plan, one
from .schema import Schema
from .shortage import Patience
from .view import View
from .views import Hindsight, Part, Trajectory
from .writer import StepWriter

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
        draft = Draft(obs_shape, obs_dtype, action_dim, action_shape, action_dtype, reward_dtype)
        self._begin(UnsettledEngine(config, places.generator_seed(seed), draft), draft)
        if schema is not None:
            self._client.settle(draft.given(schema))

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
        columns = places.schema_of(draft, schema, config)
        buffer = cls(config, seed=seed)
        again = bool(overwrite)
        return buffer._now(
            places.create(location, config, columns, buffer._engine.seed, overwrite=again)
        )

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
        columns = places.schema_of(draft, schema, config)
        engine, created = places.open_or_create(location, config, columns, seed)
        return cls(config, seed=engine.seed)._now(engine) if created else cls._over(engine)

    @classmethod
    def open(cls: type[Self], location: str, *, readonly: bool = False, wait: float = 0) -> Self:
        """A buffer that exists. Its columns and config come from the segment.

        Opened with `readonly` it needs no permission to write, and draws without being counted.
        A file that was not closed is recovered. `wait` is for how many seconds to look for one that
        somebody is yet to create; then it raises Timeout. Raises NotFound, Corrupt, Incompatible,
        PermissionDenied.
        """
        return cls._over(places.open_there(location, bool(readonly), wait))

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
        source = arguments.path("path", path)
        return cls._over(LocalEngine.restore(source, location, bool(limiter), bool(overwrite)))

    @classmethod
    async def open_async(
        cls: type[Self], location: str, *, readonly: bool = False, wait: float = 0
    ) -> Self:
        """`open`, awaited."""
        return cls._over(await places.open_async(location, bool(readonly), wait))

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
        return self._engine.location

    @property
    def readonly(self) -> bool:
        self._client.check_open()
        return self._engine.readonly

    @property
    def config(self) -> BufferConfig:
        return self._engine.config

    @property
    def schema(self) -> Schema | None:
        """The columns; None until the first `add` has settled them."""
        return self._engine.schema

    @property
    def capacity(self) -> int:
        """Rows the buffer can hold."""
        self._client.check_open()
        return self.config.capacity

    @property
    def size(self) -> int:
        """Rows in the buffer now."""
        return self._engine.size()

    def __len__(self) -> int:
        return self.size

    def __bool__(self) -> bool:
        return True

    @property
    def is_full(self) -> bool:
        """Whether rows that are added now take the room of others."""
        return self._engine.is_full()

    @property
    def closed(self) -> bool:
        return self._client.closed

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
        return stats.of(self._engine)

    def __repr__(self) -> str:
        return stats.line(self)

    # ----------------------------------------------------------------------------------- reading

    def latest(self, n: int) -> Batch:
        """The newest n rows (all when there are fewer), oldest first.

        Raises NotEnoughRows before the first row, when the columns are not yet known.
        """
        return reading.latest(self._client, n)

    def get(self, ids: Any) -> Batch:
        """Rows by id. Raises RowGone when one of them is no longer there."""
        return self._stored.get(arguments.row_ids(ids))

    def peek(self, ids: Any) -> PeekedRows:
        """Rows by id, read where they lie: nothing is copied. See PeekedRows.

        Raises RowGone when one of them is no longer there.
        """
        return reading.peek(self._client, ids)

    def peek_latest(self, n: int) -> PeekedRows:
        """The newest n rows (all when there are fewer), oldest first, read where they lie.

        Raises NotEnoughRows before the first row, when the columns are not yet known.
        """
        return reading.peek_latest(self._client, n)

    def view(self, *parts: Part) -> View:
        """Batches made of steps: `buffer.view(FrameStack(4), NStep(3, gamma=0.99)).sample(256)`.

        Without parts it is what `sample` gives of steps: transitions of one step. Of rows that are
        transitions, NStep can be made and nothing else.
        """
        plan = self._planned(*parts)
        hindsight = one(parts, Hindsight)
        if hindsight is not None:
            return HindsightView(self, GoalSource(self._client, plan, hindsight), parts)
        return View(self, Source(self._client, plan), parts)

    def episodes(self) -> Iterator[Batch]:
        """The episodes that ended and are whole, the oldest first: one dict of arrays for each.

        Arrays are [time, ...]; `final_obs` is the observation after the last step, `indices` the
        row id of the first. An episode that is overwritten meanwhile is left out.
        """
        yield from reading.episodes(self._whole_episodes())

    async def episodes_async(self) -> AsyncIterator[Batch]:
        """`episodes`, for `async for`."""
        async for episode in reading.episodes_async(self._whole_episodes()):
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
        return await async_calls.sample(self._rows, batch_size, out, beta, timeout)

    # ----------------------------------------------------------------------------------- writing

    async def add_async(self, *values: Any, timeout: float | None = None, **columns: Any) -> int:
        """`add`, awaited."""
        return await async_calls.add(self._client, self.add, values, columns, timeout)

    async def add_batch_async(
        self, *values: Any, timeout: float | None = None, **columns: Any
    ) -> Ids:
        """`add_batch`, awaited."""
        return await async_calls.add(self._client, self.add_batch, values, columns, timeout)

    def writer(self, streams: int = 1, autoreset: Autoreset = "same_step") -> StepWriter:
        """A writer of the steps of `streams` environments; see StepWriter. Any number may write."""
        self._client.check_open()
        if self.config.storage != "steps":
            raise InvalidArgument("writers are for storage='steps'; transitions are added with add")
        return StepWriter(self, self._client, streams, autoreset)

    def clear(self) -> None:
        """Forget all rows. Row ids go on growing; columns, seed and counters stay."""
        self._engine.clear()

    def flush(self) -> None:
        """Return when what was written is on the disk. For files."""
        self._engine.flush()

    def checkpoint(self, path: str | os.PathLike[str]) -> dict[str, int]:
        """Save the buffer in the directory `path` while others write to it; `restore` reads it.

        All rows added before the call, and not overwritten during it, are saved. Another call with
        the same path writes what has changed since. A crash leaves the checkpoint that was there or
        the new one. Returns the rows in it, its bytes and the bytes written by this call. Raises
        Busy when another checkpoint to the path is under way.
        """
        self._client.check_open()
        check_beta_can_be(self.config, "saved")
        return self._engine.save(arguments.path("path", path))

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
            self._engine.unlink()
        else:
            names.unlink(self)

    def close(self) -> None:
        """Release the memory. Calls after it raise Closed; closing twice is fine."""
        self._client.close()

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
        return _made, (type(self), *self._engine.hand_over())

    # -------------------------------------------------------------------------------- priorities

    async def update_priorities_async(self, indices: Any, td_errors: Any) -> int:
        """`update_priorities`, awaited."""
        return await async_calls.update_priorities(
            self._client, self.update_priorities, indices, td_errors
        )

    def priorities(self, ids: Any) -> npt.NDArray[np.float32]:
        """Raw priorities of rows. Raises RowGone when one of them is no longer there."""
        return reading.priorities(self._client, ids)

    @property
    def total_priority(self) -> float:
        """The sum over all rows of (priority + epsilon)^alpha."""
        self._client.check_weighted()
        return self._engine.masses()[1]

    @property
    def max_priority(self) -> float:
        """The largest raw priority so far, which a row gets that is added without one."""
        self._client.check_weighted()
        return self._engine.masses()[2]

    @property
    def alpha(self) -> float:
        """The priority exponent. Setting it recomputes every row's weight from its raw priority."""
        self._client.check_weighted()
        return self._engine.masses()[0]

    @alpha.setter
    def alpha(self, value: float) -> None:
        self._client.check_weighted()
        self._client.set_alpha(value)

    # ------------------------------------------------------------------- the slow side of hot calls

    def _slow_add(
        self, /, *values: Any, priority: Any = None, timeout: Any = None, **columns: Any
    ) -> int | None:
        ids = conversion.add_rows(self._client, values, columns, priority, timeout, batched=False)
        return None if ids is None else int(ids[0])

    def _slow_add_batch(
        self, /, *values: Any, priority: Any = None, timeout: Any = None, **columns: Any
    ) -> Ids | None:
        return conversion.add_rows(self._client, values, columns, priority, timeout, batched=True)

    def _slow_sample(
        self,
        /,
        batch_size: int,
        *,
        out: Batch | None = None,
        beta: float | None = None,
        timeout: float | None = None,
    ) -> Batch:
        if self._rows.plan is not None:  # which a view draws, by a fast call of its own
            return self._one_step().sample(batch_size, out=out, beta=beta, timeout=timeout)
        return self._rows.draw(batch_size, out, beta, Patience(self._client, timeout))

    def _slow_update_priorities(self, /, indices: Any, td_errors: Any) -> int | None:
        return conversion.update_priorities(self._client, indices, td_errors)

    # --------------------------------------------------------------------------------- internals

    @classmethod
    def _over(cls: type[Self], engine: Engine) -> Self:
        """A buffer of what is there already."""
        buffer = cls.__new__(cls)
        _core.Buffer.__init__(buffer)
        buffer._begin(engine, Draft())
        buffer._go_to(engine)
        sharing.attend(buffer)
        return buffer

    def _now(self: Self, engine: Engine) -> Self:
        """This buffer, with rows that were just made for it."""
        self._client.go_to(engine)
        sharing.attend(self)
        return self

    def _begin(self, engine: Engine, draft: Draft) -> None:
        self._client = Client(engine, draft, weakref.WeakMethod(self._go_to))
        self._stored = Source(self._client, None)
        steps = engine.config.storage == "steps"
        self._rows = Source(self._client, Plan()) if steps else self._stored  # what `sample` draws
        self._transitions: View | None = None

    @property
    def _engine(self) -> Engine:
        return self._client.engine

    def _go_to(self, engine: Engine | None) -> None:
        """Aims fast calls."""
        target = None if engine is None else engine.target
        self._aim(target, engine is not None and callable(engine.config.beta))

    def _scheduled_beta(self, draws: int) -> float:
        """The exponent of the next batch; called by `sample` when the config has a schedule."""
        beta = self._client.engine.config.beta
        return beta(draws) if callable(beta) else beta

    def _one_step(self) -> View:
        if self._transitions is None:
            self._transitions = View(self, self._rows, ())
        return self._transitions

    def _whole_episodes(self) -> Source:
        return Source(self._client, self._planned(Trajectory()))

    def _planned(self, *parts: Part) -> Plan:
        """The plan of a view. Raises InvalidArgument where it is not for what the buffer stores."""
        self._client.check_open()
        plan = Plan.of(parts)
        steps = self.config.storage == "steps"
        if not steps and (plan.n_step is None or len(parts) > 1):
            raise InvalidArgument(
                "of transitions a view can make NStep; everything else needs storage='steps'"
            )
        if steps and plan.n_step and plan.n_step.one_stream:
            raise InvalidArgument("one_stream is for transitions: steps know their streams")
        return plan


def _made(cls: type[Self], make: Callable[..., Engine], args: tuple[Any, ...]) -> Self:
    """A buffer that another process handed over."""
    return cls._over(make(*args))


_core.adopt_hot_methods(ReplayBuffer)

# What Python says of wrong arguments names the call the user made.
for _name in ("add", "add_batch", "sample", "update_priorities"):
    getattr(ReplayBuffer, f"_slow_{_name}").__qualname__ = f"ReplayBuffer.{_name}"
