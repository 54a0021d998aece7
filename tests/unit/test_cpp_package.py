"""The C++ package installs with CMake, is found by find_package and works in another program."""

from __future__ import annotations

import re
from collections.abc import Callable
from pathlib import Path

import pytest

from unit.conftest import ROOT, run

pytestmark = pytest.mark.timeout(600)  # compiles the library


def test_a_program_finds_builds_and_runs(cpp_program: Callable[[str], Path]) -> None:
    assert run(cpp_program("consumer")) == "ok\n"


def snippet(page: str, language: str) -> str:
    """The last one of a page in a language."""
    text = (ROOT / page).read_text()
    return re.findall(rf"^```{language}\n(.*?)^```$", text, re.DOTALL | re.MULTILINE)[-1]


@pytest.mark.parametrize(
    ("page", "output"),
    [("README.md", "32 updated\n"), ("docs/cpp.md", "0\n1 1 8 15 5\n")],
)
def test_the_example_of_a_page_builds_and_runs(
    page: str, output: str, cpp_prefix: Path, tmp_path: Path
) -> None:
    (tmp_path / "CMakeLists.txt").write_text(snippet("README.md", "cmake"))
    (tmp_path / "main.cc").write_text(snippet(page, "cpp"))
    build = tmp_path / "build"
    run("cmake", "-S", tmp_path, "-B", build, f"-DCMAKE_PREFIX_PATH={cpp_prefix}")
    run("cmake", "--build", build)
    assert run(build / "example") == output


def test_only_public_headers_are_installed(cpp_prefix: Path) -> None:
    installed = {str(p.relative_to(cpp_prefix / "include")) for p in cpp_prefix.rglob("*.h")}
    public = {str(path.relative_to(ROOT / "include")) for path in (ROOT / "include").rglob("*.h")}
    assert installed == public


def test_the_installed_package_knows_no_place_of_the_build(cpp_prefix: Path) -> None:
    for path in cpp_prefix.rglob("*.cmake"):
        assert str(ROOT) not in path.read_text(), path
