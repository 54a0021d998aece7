"""Rules 22 and 23: any process may be killed at any time, and the others go on with whole rows."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")
TESTS = Path(__file__).parents[1]
SECONDS = float(os.environ.get("SOAK_SECONDS", "180"))


def soak(seconds: float, seed: int, *options: str) -> None:
    paths = [str(TESTS), *filter(None, [os.environ.get("PYTHONPATH")])]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join(paths), "OPENBLAS_NUM_THREADS": "1"}
    done = subprocess.run(
        [sys.executable, "-m", "crash.soak", f"--seconds={seconds}", f"--seed={seed}", *options],
        env=environment,
        capture_output=True,
        text=True,
        timeout=seconds + 300,
    )
    print(done.stdout)
    assert done.returncode == 0, done.stdout + done.stderr


@pytest.mark.timeout(310)
def test_no_row_is_torn_or_lost_while_processes_are_killed() -> None:
    soak(10, seed=0)


@pytest.mark.soak
@pytest.mark.parametrize("options", [(), ("--file",)], ids=["shm", "file"])
def test_no_row_is_torn_or_lost_while_processes_are_killed_for_minutes(
    options: tuple[str, ...],
) -> None:
    soak(SECONDS, 1, *options)
