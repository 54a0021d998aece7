"""Where segments are: opened or made by many processes at once, and compared."""

from __future__ import annotations

import asyncio
import contextlib
import dataclasses
import fcntl
import os
import secrets
import time
from collections.abc import Iterator
from dataclasses import fields
from typing import Any

import numpy as np

from .. import _core, arguments
from ..awaiting import alone
from ..config import BufferConfig, check_beta_can_be
from ..errors import AlreadyExists, InvalidArgument, NotFound, SchemaMismatch
from ..inference import Draft
from ..schema import Schema
from ..waiting import Wait, seconds
from .local import LocalEngine, compressed

#: Seconds between two looks for a segment that is not there yet.
_LOOK = 0.02
#: Seconds for which a process waits for others that create a buffer in the same directory.
_PATIENCE = 10.0
#: How often a name may be there for one call and gone for the next.
_TRIES = 1000


def schema_of(draft: Draft, schema: Any, config: BufferConfig) -> Schema:
    """The columns of a segment whose layout is fixed when it is made."""
    if schema is not None:
        return compressed(draft.given(schema), config)
    return compressed(draft.explicit(steps=config.storage == "steps"), config)


def create(
    location: str, config: BufferConfig, schema: Schema, seed: int, *, overwrite: bool = False
) -> LocalEngine:
    """See ReplayBuffer.create."""
    _core.check_location(location)
    check_beta_can_be(config, "shared with other processes")
    return LocalEngine.create(location, config, schema, seed, overwrite=overwrite)


def open_there(location: str, readonly: bool, wait: Any) -> LocalEngine:
    """See ReplayBuffer.open."""
    patience = _patience(wait)
    while True:
        try:
            return LocalEngine.open(location, readonly)
        except NotFound:
            if not wait:
                raise
        patience.until(lambda: False, *_absent(location), longest=_LOOK)


async def open_async(location: str, readonly: bool, wait: Any) -> LocalEngine:
    """The same, awaited."""
    patience = _patience(wait)
    while True:
        try:
            return await alone(lambda: LocalEngine.open(location, readonly))
        except NotFound:
            if not wait:
                raise
        patience.go_on(*_absent(location))
        await asyncio.sleep(min(patience.left, _LOOK))


def _patience(wait: Any) -> Wait:
    """How long a call waits for a segment that somebody else is to create."""
    return Wait(seconds(wait, "wait", none=""), lambda: "nobody has created it")


def _absent(location: str) -> tuple[str, str]:
    """What waits, and for what, where there is no segment yet."""
    return f"open({location!r})", f"there is no buffer there ({_core.segment_path(location)})"


def open_or_create(
    location: str, config: BufferConfig, schema: Schema, seed: int | None
) -> tuple[LocalEngine, bool]:
    """See ReplayBuffer.open_or_create; and whether the segment was created."""
    check_beta_can_be(config, "shared with other processes")
    new_seed = generator_seed(seed)
    if not _core.check_location(location)[1]:  # nobody else can have one without a name
        return create(location, config, schema, new_seed), True
    with contextlib.suppress(NotFound):
        return _open_fitting(location, config, schema, seed), False
    with _one_at_a_time(_core.segment_path(location)):
        for attempt in range(_TRIES):
            with contextlib.suppress(NotFound):
                return _open_fitting(location, config, schema, seed), False
            try:
                return create(location, config, schema, new_seed), True
            except AlreadyExists:  # somebody else was faster
                if attempt == _TRIES - 1:
                    raise
    raise AssertionError("not reached")


def generator_seed(seed: int | None) -> int:
    """The seed that was given, or any."""
    return secrets.randbits(64) if seed is None else arguments.generator_seed(seed)


@contextlib.contextmanager
def _one_at_a_time(path: str) -> Iterator[None]:
    """Of many who would create a buffer, lets one do so, until it is there or time is over.

    Else each would take all the memory of its buffer before it finds that another was faster. The
    lock decides nothing: that exactly one wins does not depend on it. So whoever cannot have it
    goes on without.
    """
    try:
        directory = os.open(os.path.dirname(path) or ".", os.O_RDONLY | os.O_DIRECTORY)
    except OSError:
        yield
        return
    try:
        _try_lock(directory, path)
        yield
        with contextlib.suppress(OSError):
            fcntl.flock(directory, fcntl.LOCK_UN)  # also for a child forked meanwhile
    finally:
        os.close(directory)


def _try_lock(directory: int, path: str) -> None:
    deadline = time.monotonic() + _PATIENCE
    while time.monotonic() < deadline and not os.path.exists(path):
        try:
            fcntl.flock(directory, fcntl.LOCK_EX | fcntl.LOCK_NB)
        except BlockingIOError:
            time.sleep(0.005)
        except OSError:
            return
        else:
            return


def _open_fitting(
    location: str, config: BufferConfig, schema: Schema, seed: int | None
) -> LocalEngine:
    """Opens a segment that was made as it would be made now; raises what differs."""
    engine = LocalEngine.open(location)
    try:
        different = _difference_of_columns(engine.schema, schema)
        if different:
            raise SchemaMismatch(f"{location} has other columns: {different}")
        differing = _differences_of_options(engine.config, config)
        if seed is not None and seed != engine.seed:
            differing.append(f"seed is {engine.seed} there, {seed} here")
        if differing:
            raise InvalidArgument(f"{location} was made otherwise: {'; '.join(differing)}")
    except BaseException:
        engine.close()
        raise
    return engine


def _difference_of_columns(there: Schema, here: Schema) -> str:
    """The first column that is not the same; "" when all are."""
    for (path, column), (other, wanted) in zip(there.columns, here.columns, strict=False):
        if path != other:
            return f"{path!r} is there where {other!r} is here"
        if column != wanted:
            return f"{path!r}: {'; '.join(_differences(column, wanted))}"
    if len(there.columns) == len(here.columns):
        return ""
    n = min(len(there.columns), len(here.columns))
    longer, place = (there, "there") if len(there.columns) > n else (here, "here")
    return f"{longer.columns[n][0]!r} is only {place}"


def _differences_of_options(there: BufferConfig, here: BufferConfig) -> list[str]:
    """All options that are not the same, but alpha, which may be changed at any time."""
    options = here.core_options(0)
    options["block_rows"] = here.block_rows or there.block_rows  # chosen where it is not given
    wanted = BufferConfig.from_core(options)  # rounded as the segment rounds
    return _differences(dataclasses.replace(there, alpha=wanted.alpha), wanted)


def _differences(there: Any, here: Any) -> list[str]:
    """The fields of two dataclasses that are not equal."""
    pairs = ((f.name, getattr(there, f.name), getattr(here, f.name)) for f in fields(there))
    return [f"{name} is {_said(a)} there, {_said(b)} here" for name, a, b in pairs if a != b]


def _said(value: Any) -> str:
    return value.name if isinstance(value, np.dtype) else repr(value)
