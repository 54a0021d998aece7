"""The examples run as they are written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def test_the_quickstart_runs_and_prints_its_batch(tmp_path: Path) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / "quickstart.py")],
        capture_output=True,
        text=True,
        cwd=tmp_path,
    )
    assert done.returncode == 0, done.stderr
    assert "obs        uint8    (32, 84, 84, 4)" in done.stdout
    assert "indices    int64    (32,)" in done.stdout
    assert list(tmp_path.iterdir()) == []
