"""Prints the requirements named on the command line: "build", or an extra of pyproject.toml.

With "build" come CMake and Ninja when the machine has none, or a CMake that is too old.
"""

import re
import shutil
import subprocess
import sys
from pathlib import Path

try:
    import tomllib
except ImportError:  # Python 3.10
    from pip._vendor import tomli as tomllib

OLDEST_CMAKE = (3, 20)


def missing_tools() -> list[str]:
    """CMake and Ninja as requirements, as far as PATH does not already provide them."""
    missing = []
    if shutil.which("cmake") is None or cmake_version() < OLDEST_CMAKE:
        missing.append("cmake>={}.{}".format(*OLDEST_CMAKE))
    if shutil.which("ninja") is None:
        missing.append("ninja")
    return missing


def cmake_version() -> tuple[int, ...]:
    text = subprocess.run(["cmake", "--version"], capture_output=True, text=True).stdout
    found = re.search(r"(\d+)\.(\d+)", text)
    return tuple(map(int, found.groups())) if found else (0,)


project = tomllib.loads(Path("pyproject.toml").read_text())
for name in sys.argv[1:]:
    if name == "build":
        print(*project["build-system"]["requires"], *missing_tools(), sep="\n")
    else:
        print(*project["project"]["optional-dependencies"][name], sep="\n")
