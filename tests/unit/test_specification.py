"""docs/specification.md: each command names what is there, and those marked quick run."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
TEXT = (ROOT / "docs" / "specification.md").read_text()
ROWS = [line.strip("| ").split("|") for line in TEXT.splitlines() if line.startswith("| ")]
COMMANDS = re.findall(r"`((?:pytest|python|make|ctest|scripts/|replay-buffer)[^`]*)`", TEXT)
QUICK = re.findall(r"`([^`]*)` \*quick\*", TEXT)


def is_there(command: str) -> bool:
    """Whether what a command runs exists."""
    program, *arguments = shlex.split(command)
    match program:
        case "pytest":
            return bool(arguments) and all((ROOT / path).exists() for path in arguments)
        case "python":
            name = arguments[-1].replace(".", "/") + ".py" if "-m" in arguments else arguments[-1]
            return (ROOT / name).exists()
        case "make":
            targets = re.findall(r"^([a-z0-9]+):", (ROOT / "Makefile").read_text(), re.MULTILINE)
            return arguments[0] in targets
        case "ctest":
            pattern = arguments[arguments.index("-R") + 1]
            sources = (ROOT / "tests" / "cpp").glob("*_test.cc")
            suites = "".join(path.read_text() for path in sources)
            return re.search(rf"TEST\w*\(\w*{pattern}", suites) is not None
        case "replay-buffer":
            return True
        case _:
            return (ROOT / program).exists()


@pytest.mark.parametrize("command", sorted(set(COMMANDS)))
def test_a_command_of_the_specification_names_what_is_there(command: str) -> None:
    assert is_there(command)


@pytest.mark.parametrize(
    "command",
    ["pytest tests/unit/test_nothing.py", "make nothing", "python -m benchmarks.micro.nothing"],
)
def test_a_command_that_names_nothing_is_noticed(command: str) -> None:
    assert not is_there(command)


@pytest.mark.parametrize("command", QUICK)
def test_a_quick_command_of_the_specification_runs(command: str, tmp_path: Path) -> None:
    environment = {**os.environ, "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}"}
    program, *arguments = shlex.split(command)
    paths = [str(ROOT / one) if (ROOT / one).exists() else one for one in arguments]
    done = subprocess.run(
        [program, *paths],
        cwd=tmp_path,
        env=environment,
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stdout + done.stderr


def test_each_demand_says_where_it_is_met() -> None:
    demands = [row for row in ROWS if not set("".join(row)) <= set("-| ")]
    assert len(demands) > 50
    for row in demands:
        assert len(row) >= 2, row
        assert row[0].strip(), row
    for path in re.findall(r"\]\(([^)#]+)\)", TEXT):
        assert (ROOT / "docs" / path).exists(), path


def test_at_least_three_commands_are_run() -> None:
    assert len(QUICK) >= 3
