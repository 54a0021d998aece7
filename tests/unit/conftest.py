"""The C++ package as somebody else gets it, built once for all tests."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
PROGRAMS = ROOT / "tests" / "cpp" / "package"


def run(*command: str | Path) -> str:
    environment = {**os.environ, "CMAKE_BUILD_PARALLEL_LEVEL": "2"}
    done = subprocess.run(command, capture_output=True, text=True, env=environment)
    assert done.returncode == 0, f"{command}\n{done.stdout}\n{done.stderr}"
    return done.stdout


@pytest.fixture(scope="session")
def cpp_prefix(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Where the package is installed, with compression. What is elsewhere must not be needed."""
    installed = Path(os.environ.get("REPLAY_CPP_PREFIX", "nowhere"))  # by scripts/test_clone.sh
    if installed.is_dir():
        return installed
    if shutil.which("cmake") is None:
        pytest.skip("CMake is not installed")
    build, prefix = tmp_path_factory.mktemp("build"), tmp_path_factory.mktemp("prefix")
    compression = "-DREPLAY_COMPRESSION=ON", f"-DPython_EXECUTABLE={sys.executable}"
    alone = "-DREPLAY_BUILD_TESTS=OFF", "-DREPLAY_BUILD_BENCHMARKS=OFF"
    run("cmake", "-S", ROOT, "-B", build, *alone, *compression)
    run("cmake", "--build", build)
    run("cmake", "--install", build, "--prefix", prefix, "--component", "cpp")
    shutil.rmtree(build)
    return prefix


@pytest.fixture(scope="session")
def cpp_program(
    cpp_prefix: Path, tmp_path_factory: pytest.TempPathFactory
) -> Callable[[str], Path]:
    """The programs of tests/cpp/package, by name: they find the installed package."""
    build = tmp_path_factory.mktemp("programs")
    run("cmake", "-S", PROGRAMS, "-B", build, f"-DCMAKE_PREFIX_PATH={cpp_prefix}")
    run("cmake", "--build", build)
    return lambda name: build / name
