"""The examples run as they are written."""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path

EXAMPLES = Path(__file__).parents[2] / "examples"


def run(example: str, where: Path) -> str:
    """What an example prints; it leaves nothing behind."""
    done = subprocess.run(
        [sys.executable, "-W", "error", str(EXAMPLES / example)],
        capture_output=True,
        text=True,
        cwd=where,
    )
    assert done.returncode == 0, done.stderr
    assert list(where.iterdir()) == []
    return done.stdout


def test_the_quickstart_runs_and_prints_its_batch(tmp_path: Path) -> None:
    printed = run("quickstart.py", tmp_path)
    assert "obs        uint8    (32, 84, 84, 4)" in printed
    assert "indices    int64    (32,)" in printed


def test_steps_become_transitions_of_stacked_frames(tmp_path: Path) -> None:
    printed = run("n_step_from_steps.py", tmp_path)
    assert "observations (32, 4, 84, 84)" in printed
