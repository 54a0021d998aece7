"""`cmake ..` builds what it can and says in one line each what it cannot, and how to get it."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest

from unit.conftest import ROOT

pytestmark = pytest.mark.skipif(shutil.which("cmake") is None, reason="CMake is not installed")

#: The part of the specification's README that builds and tests, word for word.
COMMANDS = """\
# Configure and build
mkdir build && cd build
cmake ..
cmake --build .

# Run tests
ctest --output-on-failure

# Run benchmarks
./benchmarks/replay_buffer_benchmarks

# Run specific benchmarks (filter by name)
./benchmarks/replay_buffer_benchmarks --benchmark_filter=Prioritized

# Run with repetitions for statistical confidence
./benchmarks/replay_buffer_benchmarks --benchmark_repetitions=3

# Save benchmark results to file
./benchmarks/replay_buffer_benchmarks --benchmark_out=results.json --benchmark_out_format=json
"""
#: What a machine without anything else lacks.
NOTHING = (
    "-DCMAKE_DISABLE_FIND_PACKAGE_GTest=ON",
    "-DCMAKE_DISABLE_FIND_PACKAGE_benchmark=ON",
    "-DCMAKE_DISABLE_FIND_PACKAGE_Python=ON",
    "-DCMAKE_FIND_ROOT_PATH=/nowhere",
    "-DCMAKE_FIND_ROOT_PATH_MODE_LIBRARY=ONLY",
)


def configure(build: Path, *options: str, source: Path = ROOT) -> tuple[int, list[str]]:
    """The exit status and the lines."""
    done = subprocess.run(
        ["cmake", "-S", source, "-B", build, *options],
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        text=True,
    )
    return done.returncode, done.stdout.splitlines()


def targets(build: Path) -> str:
    return subprocess.run(
        ["cmake", "--build", build, "--target", "help"], capture_output=True, text=True, check=True
    ).stdout


def test_the_readme_has_the_commands_of_the_specification() -> None:
    """`make test` runs them from there."""
    assert f"```bash\n{COMMANDS}```\n" in (ROOT / "README.md").read_text()


def test_what_is_missing_is_said_in_one_line_with_how_to_get_it(tmp_path: Path) -> None:
    status, lines = configure(tmp_path, *NOTHING)
    assert status == 0
    for missing, brought_by in {
        "GoogleTest": "libgtest-dev",
        "Google Benchmark": "libbenchmark-dev",
        "blosc2": "pip install blosc2",
    }.items():
        said = [line for line in lines if f"{missing} was not found" in line]
        assert len(said) == 1, lines
        assert brought_by in said[0]
    assert "replay_core" in targets(tmp_path)
    assert "replay_tests" not in targets(tmp_path)
    assert "replay_buffer_benchmarks" not in targets(tmp_path)


def test_compression_that_is_asked_for_and_cannot_be_is_an_error(tmp_path: Path) -> None:
    status, lines = configure(tmp_path, *NOTHING, "-DREPLAY_COMPRESSION=ON")
    assert status != 0
    assert "pip install blosc2" in " ".join(lines)


def test_a_part_of_another_project_builds_no_tests(tmp_path: Path) -> None:
    (tmp_path / "CMakeLists.txt").write_text(
        "cmake_minimum_required(VERSION 3.20)\nproject(other CXX)\n"
        f'add_subdirectory("{ROOT}" replay_buffer)\n'
    )
    status, _ = configure(tmp_path / "build", source=tmp_path)
    assert status == 0
    assert "replay_core" in targets(tmp_path / "build")
    assert "replay_tests" not in targets(tmp_path / "build")
    assert "replay_buffer_benchmarks" not in targets(tmp_path / "build")
