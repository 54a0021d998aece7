"""Where async calls run: in the thread of the loop, or in others."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from replay_buffer import _core
from replay_buffer.testing.crowd import short_calls_race, short_turns


@pytest.fixture(params=["loop", "threads"])
def where(request: pytest.FixtureRequest) -> Iterator[str]:
    """Makes all calls long, so that they run in threads; or none."""
    with short_turns():
        if request.param == "threads":
            with short_calls_race():
                assert _core.long_work() == 0
                yield "threads"
        else:
            yield "loop"


@pytest.fixture
def long_calls() -> Iterator[None]:
    """All calls run in threads."""
    with short_turns(), short_calls_race():
        yield
