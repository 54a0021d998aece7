"""Places for buffers that are shared."""

from __future__ import annotations

import itertools
import os
import shutil
import tempfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from conformance.shared import SHARED_MEMORY

numbers = itertools.count()


@pytest.fixture(params=["shm", "file"])
def location(request: pytest.FixtureRequest) -> Iterator[str]:
    """A location nobody uses; emptied afterwards."""
    folder = Path(tempfile.mkdtemp())
    name = f"sharing-{os.getpid()}-{next(numbers)}"
    yield f"shm:{name}" if request.param == "shm" else f"file:{folder / name}"
    (SHARED_MEMORY / f"replay_buffer.{name}").unlink(missing_ok=True)
    shutil.rmtree(folder)
