"""What a buffer says of itself: counters and memory, before its first row as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from .engine import Engine
from .errors import Closed

if TYPE_CHECKING:
    from .buffer import ReplayBuffer


def of(engine: Engine) -> dict[str, Any]:
    """See ReplayBuffer.stats."""
    stats = dict(engine.counters())
    stats["settled"] = engine.schema is not None
    stats["strategy"] = engine.config.strategy
    if stats["raw_bytes"] is not None:
        stats["overhead_bytes"] = stats["segment_bytes"] - stats["raw_bytes"]
        stats["overhead"] = stats["overhead_bytes"] / stats["raw_bytes"]
    return stats


def line(buffer: ReplayBuffer) -> str:
    """The buffer on one line, closed or not."""
    name = type(buffer).__name__
    columns = str(buffer.schema) if buffer.schema is not None else "columns not settled"
    try:
        rows = f"{buffer.size:,}/{buffer.capacity:,} rows"
    except Closed:  # perhaps just now
        return f"<{name}, closed>"
    where = "" if buffer.location == "heap:" else f" at {buffer.location}"
    return f"<{name}{where} {rows}, {buffer.config.strategy}: {columns}>"
