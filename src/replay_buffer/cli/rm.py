"""remove buffers; one that a process has open only with --force"""

from __future__ import annotations

import argparse
import sys

from .. import _core
from ..buffer import ReplayBuffer
from ..errors import Corrupt, Incompatible, NotFound, ReplayBufferError
from .segments import location_of

REFUSED = 1
FAILED = 2


def arguments(command: argparse.ArgumentParser) -> None:
    command.add_argument("names", metavar="NAME", nargs="*")
    command.add_argument(
        "--stale", action="store_true", help="all in shared memory that no process has open"
    )
    command.add_argument(
        "--force", action="store_true", help="also what is in use (it lives on where it is open)"
    )
    command.set_defaults(usage_error=command.error)


def run(given: argparse.Namespace) -> int:
    if given.stale == bool(given.names):
        given.usage_error("give either names or --stale")
    if given.stale and given.force:
        given.usage_error("--stale never removes what is in use: no --force")
    return remove_stale() if given.stale else max(remove(n, given.force) for n in given.names)


def remove(name: str, force: bool) -> int:
    location = location_of(name)
    try:
        if location.startswith("file:") and not force:
            check_is_segment(location)
        if not _core.remove(location, not force):
            return refuse(f"{location} is in use; --force removes its name all the same")
    except ReplayBufferError as error:
        return refuse(" ".join(str(error).split()), FAILED)
    print(f"removed {location}")
    return 0


def check_is_segment(location: str) -> None:
    """Any path can be given: what is no segment at all is not ours to remove."""
    try:
        ReplayBuffer.open(location, readonly=True).close()
    except (Corrupt, Incompatible) as error:
        raise type(error)(f"{error}; --force removes it all the same") from None


def remove_stale() -> int:
    """Removes every orphan. Those of other users, who may not be asked, stay."""
    for name in _core.list_shared_memory():
        location = f"shm:{name}"
        try:
            if _core.remove(location, True):
                print(f"removed {location}")
        except NotFound:
            continue  # somebody else removed it
        except ReplayBufferError as error:
            print(f"kept {location}: {' '.join(str(error).split())}", file=sys.stderr)
    abandoned = _core.remove_abandoned()
    if abandoned:
        print(f"removed {abandoned} unfinished")
    for name in _core.remove_stale_shared_arrays():
        print(f"removed array {name}")
    return 0


def refuse(message: str, code: int = REFUSED) -> int:
    print("replay-buffer:", message, file=sys.stderr)
    return code
