"""How a buffer gets its columns: told when it is made, or by the first row of any thread."""

from __future__ import annotations

from typing import TYPE_CHECKING

from . import _core
from .config import BufferConfig
from .inference import check_steps
from .schema import Column, Schema

if TYPE_CHECKING:
    from .buffer import Batch, ReplayBuffer


def check(config: BufferConfig, seed: int) -> None:
    """Raises what is wrong with a config, before any columns are known."""
    _core.plan(Schema({"x": Column()}).core_columns(), config.core_options(seed))


def compressed(schema: Schema, config: BufferConfig) -> Schema:
    """The columns with what `enable_compression` makes of them."""
    if not config.enable_compression:
        return schema
    return Schema.from_core(_core.with_codecs(schema.core_columns()))


def use(buffer: ReplayBuffer, schema: Schema, *, overwrite: bool = False) -> None:
    """Makes the segment. Of several threads one may do so: see `settle`."""
    config = buffer.config
    schema = compressed(schema, config)
    if config.storage == "steps":
        check_steps(schema)
    options = config.core_options(buffer._seed)
    buffer._create(buffer.location, schema.core_columns(), options, overwrite)
    buffer._own = buffer._identity()
    buffer._schema = schema


def settle(buffer: ReplayBuffer, schema: Schema) -> Schema:
    """The columns: these, unless another thread's first row came first."""
    with buffer._settling:
        buffer._check_open()
        if buffer._schema is None:
            use(buffer, schema)
    assert buffer._schema is not None
    return buffer._schema


def schema_of_steps(buffer: ReplayBuffer, row: Batch, *, batched: bool) -> Schema:
    """The columns of steps: known, or what the values of the first will settle."""
    if buffer._schema is not None:
        return buffer._schema
    schema = buffer._draft.settle(row, batched=batched, steps=True)
    check_steps(schema)
    return schema
