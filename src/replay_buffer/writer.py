"""Writers of steps: what environments write to a buffer that stores steps.

Thread safety: a writer belongs to the thread that steps its environments; calls of several threads
are taken one after the other.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from types import TracebackType
from typing import TYPE_CHECKING, Any, get_args

import numpy as np

from . import _core, arguments, async_calls, waiting
from .client import Client
from .conversion import raw_priorities, schema_of_steps
from .engine import Autoreset, EngineWriter
from .errors import Closed, InvalidArgument, SchemaMismatch, shown
from .inference import STEP
from .ragged import as_ragged
from .schema import Array, Schema, as_column, leaves

if TYPE_CHECKING:
    from .buffer import ReplayBuffer
    from .engine import Ids


class StepWriter(_core.Writer):
    """What `ReplayBuffer.writer` returns: a writer of the steps of `streams` environments.

    append(obs, action, reward, terminated, truncated, final_obs=None) takes, for every stream, the
    observation the action was chosen on, the action, and the reward and flags that followed.

    autoreset  "same_step"  a stream whose flag is set gives its last observation in `final_obs`;
                            rows of other streams in it are ignored
               "next_step"  the next append of that stream carries it as `obs`; the other values of
                            the stream are then ignored

    With one stream values may come without the leading dimension. Closing a writer, or its death,
    cuts the episodes that are open: their last steps have no successor.
    """

    def __init__(
        self, buffer: ReplayBuffer, client: Client, streams: int, autoreset: Autoreset
    ) -> None:
        super().__init__()
        self._buffer = buffer  # lives as long as its writers
        self._client = client
        self._streams = arguments.count("streams", streams)
        if self._streams > 32_767:
            raise InvalidArgument(f"streams must be at most 32,767, not {shown(streams)}")
        if 2 * self._streams > buffer.capacity:
            raise InvalidArgument(
                f"a writer of {streams} streams needs a capacity of at least {2 * self._streams}, "
                f"not {buffer.capacity}"
            )
        if not isinstance(autoreset, str) or autoreset not in get_args(Autoreset):
            raise InvalidArgument(
                f"autoreset must be one of {', '.join(get_args(Autoreset))}, not {autoreset!r}"
            )
        self._autoreset: Autoreset = autoreset
        self._closed = False
        self._engine: EngineWriter | None = None  # when the columns are known
        client.register(self)
        if client.schema is not None:
            self._attach()

    @property
    def streams(self) -> int:
        return self._streams

    @property
    def autoreset(self) -> Autoreset:
        return self._autoreset

    @property
    def closed(self) -> bool:
        return self._closed or self._client.closed

    def __repr__(self) -> str:
        state = ", closed" if self.closed else ""
        return f"<StepWriter of {self._streams} streams, {self._autoreset}{state}>"

    async def append_async(
        self,
        *values: Any,
        final_obs: Any = None,
        priority: Any = None,
        timeout: float | None = None,
        **columns: Any,
    ) -> Ids | int:
        """`append`, awaited. Steps are written in the order in which the calls were made."""
        options = {"final_obs": final_obs, "priority": priority}
        given = {name: value for name, value in options.items() if value is not None}
        call: Callable[..., Ids | int] = self.append
        return await async_calls.add(
            self._client, call, values, {**columns, **given}, timeout, self
        )

    def end(self, stream: int = 0) -> None:
        """Cut the episode of a stream, as when its environment is abandoned: a truncation."""
        self._check_open()
        number = arguments.index("stream", stream, self._streams)
        if self._engine is not None:
            self._engine.end(number)

    def close(self) -> None:
        """Cut all open episodes and give the memory back that was taken ahead."""
        self._closed = True
        if self._engine is not None:
            self._engine.close()

    def __enter__(self) -> StepWriter:
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    # --------------------------------------------------------------------------------- internals

    def _slow_append(
        self,
        /,
        *values: Any,
        final_obs: Any = None,
        priority: Any = None,
        timeout: Any = None,
        **columns: Any,
    ) -> Ids | int | None:
        self._check_open()
        if final_obs is not None and self._autoreset == "next_step":
            raise InvalidArgument(
                "final_obs is for autoreset='same_step'; here it is the obs of the next append"
            )
        row = self._by_name(values, columns)
        if "terminated" not in row:
            raise SchemaMismatch("column 'terminated' is missing")
        single = self._streams == 1 and np.ndim(row["terminated"]) == 0
        schema = schema_of_steps(self._client, row, batched=not single)
        finals = None if self._engine is None else np.array(self._engine.ending(), bool)
        n, arrays = schema.arrays(row, None if single else -1, finals)
        if n != self._streams:
            raise SchemaMismatch(f"{n} rows were given to a writer of {self._streams} streams")
        last = self._finals(schema, arrays, final_obs, single)
        raws = raw_priorities(self._client, priority, n, batched=not single)
        waiting.seconds(timeout)
        settled = self._client.schema is schema or self._client.settle(schema) is schema
        if not settled:  # another thread's first step came first
            return self._slow_append(
                *values, final_obs=final_obs, priority=priority, timeout=timeout, **columns
            )
        ids = self._attach().append(arrays, last, raws, timeout)
        return int(ids[0]) if single and ids is not None else ids

    def _by_name(self, values: tuple[Any, ...], columns: dict[str, Any]) -> dict[str, Any]:
        schema = self._client.schema
        order = tuple(schema.fields) if schema is not None else STEP
        if len(values) > len(order):
            raise SchemaMismatch(
                f"{len(values)} values were given, the columns are {', '.join(order)}"
            )
        row = dict(zip(order, values, strict=False))
        twice = [name for name in columns if name in row]
        if twice:
            raise SchemaMismatch(f"column {twice[0]!r} was given by position and by name")
        row.update(columns)
        if "done" in row and "done" not in order:
            if "terminated" in row:
                raise SchemaMismatch("'done' is short for 'terminated': give one of them")
            row["terminated"] = row.pop("done")
            row.setdefault("truncated", np.zeros_like(row["terminated"], dtype=bool))
        return row

    def _attach(self) -> EngineWriter:
        """What writes, made by one thread when the columns are known."""
        if self._engine is None:
            with self._client.exchanging:
                self._check_open()
                if self._engine is None:
                    self._engine = self._client.engine.writer(self._streams, self._autoreset)
                    if self._engine.target is not None:
                        self._aim(self._engine.target)
        if self._closed:  # meanwhile, by a thread that did not see it yet
            self._engine.close()
        return self._engine

    def _finals(
        self, schema: Schema, arrays: list[Array], final_obs: Any, single: bool
    ) -> list[Any] | None:
        """The last observations of the streams that ended, in arrays as long as all of them."""
        by_path = {path: array for (path, _), array in zip(schema.columns, arrays, strict=True)}
        ended = np.flatnonzero(by_path["terminated"] | by_path["truncated"])
        if not ended.size or self._autoreset == "next_step":
            return None
        if final_obs is None:
            raise InvalidArgument(
                f"the episode of stream {ended[0]} ended and final_obs is missing; with "
                "autoreset='next_step' it comes with the next call; nothing was written"
            )
        rows = None if single else self._streams
        of_streams = {int(i): _final_of(schema, final_obs, int(i), rows) for i in ended}
        finals: list[Any] = []
        for path, column in schema.columns:
            if path.split("/")[0] != "obs":
                finals.append(None)
                continue
            if column.variable:
                given = [
                    of_streams[stream][path] if stream in of_streams else ()
                    for stream in range(self._streams)
                ]
                shape = column.item_shape
                finals.append(as_ragged("final_" + path, shape, column.dtype, given, batched=True))
                continue
            whole = np.zeros((self._streams, *column.item_shape), column.dtype)
            for stream, value in of_streams.items():
                row = as_column("final_" + path, column, value[path], batched=False)
                whole[stream] = row[0]
            finals.append(whole)
        return finals

    def _check_open(self) -> None:
        if self._closed:
            raise Closed("the writer is closed")
        self._client.check_open()


def _final_of(schema: Schema, final_obs: Any, stream: int, rows: int | None) -> dict[str, Any]:
    """One stream's part of the last observations by column. These are, where there are rows, a dict
    of batches, or a batch, perhaps of dicts.

    Gymnasium gives an array of objects, None for the streams that go on.
    """
    obs = schema.fields["obs"]
    paths = [path for path, _ in schema.columns if path.split("/")[0] == "obs"]
    batches = isinstance(obs, Mapping) and isinstance(final_obs, Mapping)
    value = final_obs if rows is None or batches else _row(final_obs, "obs", stream, rows)
    values = list(leaves(obs, value, "final_obs/")) if isinstance(obs, Mapping) else [value]
    if rows is not None and batches:
        pairs = zip(values, paths, strict=True)
        values = [_row(value, path, stream, rows) for value, path in pairs]
    return dict(zip(paths, values, strict=True))


def _row(values: Any, path: str, stream: int, rows: int) -> Any:
    try:
        given = len(values)
        value = values[stream] if given == rows else None
    except (TypeError, IndexError, KeyError):
        raise SchemaMismatch(f"final_obs has no row {stream} for column {path!r}") from None
    if given != rows:
        raise SchemaMismatch(
            f"final_obs has {given} rows for column {path!r}, the writer {rows} streams"
        )
    if value is None:
        raise InvalidArgument(
            f"the episode of stream {stream} ended and final_obs[{stream}] is None; "
            "nothing was written"
        )
    return value
