"""check everything that must hold in a buffer, and print what does not"""

from __future__ import annotations

import argparse

from ..buffer import ReplayBuffer
from .segments import location_of

PROBLEMS = 1


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("name", metavar="NAME")


def run(given: argparse.Namespace) -> int:
    location = location_of(given.name)
    with ReplayBuffer.open(location, readonly=True) as buffer:
        problems = buffer._verify()
        for problem in problems:
            print(f"{location}: {problem}")
        if problems:
            return PROBLEMS
        print(f"{location}: {buffer.size:,} rows, no problems")
    return 0
