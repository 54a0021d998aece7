"""Shared arrays that are gone when a test is done with them."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

from replay_buffer import SharedArray


@contextmanager
def created(shape: Any, dtype: Any) -> Iterator[SharedArray]:
    """A new array, closed and removed at the end."""
    with SharedArray.create(shape, dtype) as shared:
        try:
            yield shared
        finally:
            shared.unlink()
