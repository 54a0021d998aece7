"""The engine of a segment that is open in this process: heap:, shm: or file:."""

from __future__ import annotations

import dataclasses
import os
import sys
from collections.abc import Callable
from typing import Any, NoReturn, get_args

from .. import _core, outputs, waiting
from ..config import BufferConfig, shortest
from ..engine import (
    Arrays,
    Autoreset,
    Batch,
    Engine,
    EngineWriter,
    Ids,
    Mask,
    Priorities,
    Raws,
    Seconds,
)
from ..errors import Corrupt, InvalidArgument, SchemaMismatch
from ..inference import check_steps
from ..plan import Plan
from ..schema import Schema
from .closed import ClosedEngine
from .episodes import Episodes
from .names import Name

#: So many plans are kept ready.
_RECIPES = 64


class LocalEngine(Engine):
    """Takes the segment over: it is closed with the engine."""

    schema: Schema
    target: _core.Local

    def __init__(
        self, local: _core.Local, location: str, config: BufferConfig, schema: Schema, seed: int
    ) -> None:
        self.location = location
        self.config = config
        self.seed = seed
        self.schema = schema
        self.readonly = not local.writable()
        self.target = local
        self._name = Name(location, local.identity(), self.readonly)
        self._recipes: dict[Plan, _core.Recipe | Episodes] = {}

    @classmethod
    def create(
        cls,
        location: str,
        config: BufferConfig,
        schema: Schema,
        seed: int,
        *,
        overwrite: bool = False,
    ) -> LocalEngine:
        """A new segment; see ReplayBuffer.create."""
        schema = compressed(schema, config)
        if config.storage == "steps":
            check_steps(schema)
        options = config.core_options(seed)
        local = _core.Local.create(location, schema.core_columns(), options, overwrite)
        return cls(local, location, config, schema, seed)

    @classmethod
    def open(cls, location: str, readonly: bool = False) -> LocalEngine:
        """A segment that exists; see ReplayBuffer.open."""
        return cls._described(_core.Local.open(location, readonly), location)

    @classmethod
    def adopt(cls, handed: Any, location: str, readonly: bool) -> LocalEngine:
        """A segment whose descriptor another process handed over."""
        return cls._described(_core.Local.adopt(handed.detach(), location, readonly), location)

    @classmethod
    def restore(cls, path: str, location: str, limiter: bool, overwrite: bool) -> LocalEngine:
        """A new segment from a checkpoint; see ReplayBuffer.restore."""
        local = _core.Local.restore(path, location, limiter, overwrite)
        return cls._described(local, location, made=True)

    @classmethod
    def _described(cls, local: _core.Local, location: str, *, made: bool = False) -> LocalEngine:
        """What a segment says of itself. One that makes no sense, and was just `made`, is removed
        again."""
        try:
            facts = local.facts()
            config, schema = BufferConfig.from_core(facts), Schema.from_core(facts["columns"])
            if config.storage == "steps":
                check_steps(schema)
            return cls(local, location, config, schema, facts["seed"])
        except (Corrupt, InvalidArgument, SchemaMismatch) as error:
            identity = local.identity()
            local.close()
            if made and location not in ("heap:", "shm:"):
                _core.remove_own(location, identity)
            if isinstance(error, Corrupt):
                raise
            raise Corrupt(f"{location} is not a whole segment: {error}") from error

    def size(self) -> int:
        return self.target.size()

    def is_full(self) -> bool:
        return self.target.is_full()

    def progress(self) -> tuple[int, int, int]:
        return self.target.progress()

    def counters(self) -> dict[str, Any]:
        return self.target.counters()

    def masses(self) -> tuple[float, float, float]:
        alpha, total, largest = self.target.masses()
        return shortest(alpha), total, largest

    def who(self) -> str:
        return waiting.writers(self.target.owners())

    def owners(self) -> list[tuple[int, int, bool, bool, int, int]]:
        """(slot, pid, alive, whether the pid is of this namespace, rows added, what it waits for)
        of everybody who has the segment open for writing, or had when it died."""
        return self.target.owners()

    def verify(self) -> list[str]:
        """What is wrong with the segment."""
        return self.target.verify()

    def has_name(self) -> bool:
        """Whether the segment can still be found by others."""
        return os.fstat(self.target.descriptor()).st_nlink > 0

    def count_waits(self, adds: bool, more: int) -> bool:
        return self.target.count_waits(adds, more)

    def settle(self, schema: Schema) -> Engine:
        return self

    def write(
        self, arrays: Arrays, n: int, raws: Raws, timeout: Seconds, key: bytes | None = None
    ) -> Ids:
        return self.target.write(n, arrays, raws, timeout)

    def writer(self, streams: int, autoreset: Autoreset) -> EngineWriter:
        return LocalWriter(self, streams, autoreset)

    def set_priorities(self, ids: Ids, raws: Priorities) -> int:
        return self.target.set_priorities(ids, raws)

    def clear(self) -> None:
        self.target.clear()

    def set(self, *, alpha: float) -> None:
        config = dataclasses.replace(self.config, alpha=alpha)
        self.target.set_alpha(config.alpha)
        self.config = config

    def draw(
        self, plan: Plan | None, n: int, beta: float, out: Batch | None, timeout: Seconds
    ) -> Batch:
        drawn_from = self.target if plan is None else self._ready(plan)
        return drawn_from.draw(n, beta, out, timeout)

    def make(self, plan: Plan | None, ids: Ids) -> tuple[Batch, Mask | None]:
        if plan is None:
            batch, gone, count = self.target.read(ids)
        else:
            batch, gone, count = self._ready(plan).make(ids, plan.time, None)
            batch["indices"] = ids.copy()
        return batch, gone if count else None

    def find(self, rows: Plan | int) -> Ids:
        if isinstance(rows, Plan):
            return self._ready(rows).starts()
        return self.target.latest(rows)

    def peek(self, ids: Ids) -> _core.InPlace:
        return self.target.in_place()

    def priorities(self, ids: Ids) -> Priorities:
        return self.target.priorities(ids)

    def recipe(self, plan: Plan) -> _core.Recipe | None:
        ready = self._ready(plan)
        return None if isinstance(ready, Episodes) else ready

    def save(self, path: str) -> dict[str, int]:
        return self.target.save(path)

    def flush(self) -> None:
        self.target.flush()

    def hand_over(self) -> tuple[Callable[..., Engine], tuple[Any, ...]]:
        """A child that is spawned gets the descriptor, so that a segment without a name can be
        handed over too; anybody else gets the name. One that is forked has the segment."""
        if self.location == "heap:":
            refuse_heap()
        # Nothing is imported here: in the child of a fork an import may wait for ever.
        context = sys.modules.get("multiprocessing.context")
        spawning = getattr(context, "get_spawning_popen", None)  # None where it is not loaded yet
        if spawning is not None and spawning() is not None:
            handed = sys.modules["multiprocessing.reduction"].DupFd(self.target.descriptor())
            return type(self).adopt, (handed, self.location, self.readonly)
        if self.location == "shm:":
            raise TypeError(
                "a shared buffer without a name can be handed to a child when it is started, "
                "and to nobody else; give it a name"
            )
        return type(self).open, (self.location, self.readonly)

    def unlink(self) -> None:
        self._name.remove()

    def close(self) -> Engine:
        self._recipes.clear()
        self.target.close()
        return ClosedEngine(self, self._name)

    def _ready(self, plan: Plan) -> _core.Recipe | Episodes:
        found = self._recipes.get(plan)
        if found is not None:
            return found
        while len(self._recipes) >= _RECIPES:
            self._recipes.pop(next(iter(self._recipes), plan), None)
        return self._recipes.setdefault(plan, self._carried_out(plan))

    def _carried_out(self, plan: Plan) -> _core.Recipe | Episodes:
        """What carries a plan out here. Raises what outputs() does."""
        made = outputs.outputs(plan, self.schema, self.config)
        spec = outputs.spec(plan, self.schema, self.config)
        whole = self.target.recipe(spec, outputs.described(made))
        if plan.trajectory is None:
            return whole
        measure = self.target.recipe(spec, outputs.described([outputs.lengths()]))
        arrays = outputs.batch_of(plan, self.schema, self.config)
        return Episodes(whole, measure, plan.trajectory.length, arrays)


class LocalWriter(EngineWriter):
    """Writes to the segment of a LocalEngine."""

    target: _core.LocalWriter

    def __init__(self, engine: LocalEngine, streams: int, autoreset: Autoreset) -> None:
        columns = engine.schema.columns
        paths = [path for path, _ in columns]
        observed = [path.split("/")[0] == "obs" for path in paths]
        reward = paths.index("reward") if "reward" in paths else -1
        if reward >= 0:
            column = columns[reward][1]
            if column.shape != () or column.dtype.name not in ("float32", "float64"):
                reward = -1
        self.target = engine.target.writer(
            streams,
            get_args(Autoreset).index(autoreset),
            observed,
            reward,
            paths.index("terminated"),
            paths.index("truncated"),
        )

    def append(self, arrays: Arrays, finals: Arrays | None, raws: Raws, timeout: Seconds) -> Ids:
        return self.target.append(arrays, finals, raws, timeout)

    def ending(self) -> list[bool]:
        return self.target.ending()

    def end(self, stream: int) -> None:
        self.target.end(stream)

    def close(self) -> None:
        self.target.close()


def compressed(schema: Schema, config: BufferConfig) -> Schema:
    """The columns with what `enable_compression` makes of them."""
    if not config.enable_compression:
        return schema
    return Schema.from_core(_core.with_codecs(schema.core_columns()))


def refuse_heap() -> NoReturn:
    """Raises what is to be said of memory of this process that another one asks for."""
    raise TypeError(
        "a buffer in the memory of this process cannot be handed to another one; "
        "make it with ReplayBuffer.create('shm:', ...)"
    )
