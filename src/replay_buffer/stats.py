"""What a buffer says of itself: counters and memory, before its first row as well."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from . import _core
from .config import BufferConfig
from .errors import Closed

if TYPE_CHECKING:
    from .buffer import ReplayBuffer


def of(buffer: ReplayBuffer) -> dict[str, Any]:
    """See ReplayBuffer.stats."""
    buffer._check_open()
    if buffer._settled():
        stats: dict[str, Any] = dict(buffer._counters())
    else:
        stats = {"size": 0, "capacity": buffer.capacity, **_estimate(buffer)}
        stats["limiter"] = _idle_limiter(buffer.config)
        stats["compression"] = None
        if buffer.config.storage == "steps":
            stats["episodes"] = _no_episodes()
    stats["settled"] = buffer._settled()
    stats["strategy"] = buffer.config.strategy
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


def _estimate(buffer: ReplayBuffer) -> dict[str, Any]:
    """The memory that a full buffer needs, as far as the columns are known."""
    guess = buffer._draft.guess(steps=buffer.config.storage == "steps")
    if guess is None:
        return {"raw_bytes": None, "segment_bytes": None}
    options = buffer.config.core_options(buffer._seed)
    row_bytes, segment_bytes = _core.plan(guess.core_columns(), options)
    return {
        "row_bytes": row_bytes,
        "raw_bytes": row_bytes * buffer.capacity,
        "segment_bytes": segment_bytes,
    }


def _no_episodes() -> dict[str, Any]:
    """What there is to say of episodes before the first row."""
    return {
        "finished": 0,
        "steps": 0,
        "return_sum": 0.0,
        "latest_lengths": [],
        "latest_returns": [],
    }


def _idle_limiter(config: BufferConfig) -> dict[str, Any] | None:
    """What there is to say of the limiter before the first row."""
    if not config.limited:
        return None
    return {
        "min_size": max(1, config.min_size),
        "samples_per_insert": config.samples_per_insert,
        "tolerance": config.tolerance,
        "balance": 0.0,
        "waiting": 0,
    }
