"""The C++ package installs with CMake, is found by find_package and works in another program."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from unit.conftest import ROOT, run

pytestmark = pytest.mark.timeout(600)  # compiles the library


def test_a_program_finds_builds_and_runs(cpp_program: Callable[[str], Path]) -> None:
    assert run(cpp_program("consumer")) == "ok\n"


def test_only_public_headers_are_installed(cpp_prefix: Path) -> None:
    installed = {str(p.relative_to(cpp_prefix / "include")) for p in cpp_prefix.rglob("*.h")}
    public = {str(path.relative_to(ROOT / "include")) for path in (ROOT / "include").rglob("*.h")}
    assert installed == public


def test_the_installed_package_knows_no_place_of_the_build(cpp_prefix: Path) -> None:
    for path in cpp_prefix.rglob("*.cmake"):
        assert str(ROOT) not in path.read_text(), path
