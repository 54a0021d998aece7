"""The C++ package installs with CMake, is found by find_package and works in another program."""

from __future__ import annotations

import os
import shutil
import subprocess
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
CONSUMER = ROOT / "tests" / "cpp" / "package"

pytestmark = [
    pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed"),
    pytest.mark.timeout(600),  # compiles the library
]


def run(*command: str | Path) -> str:
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="module")
def prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed. What is elsewhere must not be needed."""
    build, prefix = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("prefix")
    run("cmake", "-S", ROOT, "-B", build, "-DCMAKE_BUILD_TYPE=Release")
    run("cmake", "--build", build)
    run("cmake", "--install", build, "--prefix", prefix, "--component", "cpp")
    shutil.rmtree(build)
    return prefix


def test_a_program_finds_builds_and_runs(prefix: Path, tmp_path: Path) -> None:
    run("cmake", "-S", CONSUMER, "-B", tmp_path, f"-DCMAKE_PREFIX_PATH={prefix}")
    run("cmake", "--build", tmp_path)
    assert run(tmp_path / "consumer") == "ok\n"


def test_only_public_headers_are_installed(prefix: Path) -> None:
    installed = {str(path.relative_to(prefix / "include")) for path in prefix.rglob("*.h")}
    public = {str(path.relative_to(ROOT / "include")) for path in (ROOT / "include").rglob("*.h")}
    assert installed == public


def test_the_installed_package_knows_no_place_of_the_build(prefix: Path) -> None:
    for path in prefix.rglob("*.cmake"):
        assert str(ROOT) not in path.read_text(), path
