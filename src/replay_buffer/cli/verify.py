"""check everything that must hold in a buffer, and print what does not"""

from __future__ import annotations

import argparse

from .segments import location_of, opened

PROBLEMS = 1


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME")


def run(given: argparse.Namespace) -> int:
    location = location_of(given.name)
    with opened(location) as engine:
        problems = engine.verify()
        for problem in problems:
            print(f"{location}: {problem}")
        if problems:
            return PROBLEMS
        print(f"{location}: {engine.size():,} rows, no problems")
    return 0
