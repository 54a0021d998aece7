"""The command line: parses it, runs one command, and says in one line what went wrong."""

from __future__ import annotations

import argparse
import os
import sys
from collections.abc import Sequence

from .. import _core
from ..errors import ReplayBufferError
from . import ls, rm, stat, verify

FAILED = 2
INTERRUPTED = 130


def parser() -> argparse.ArgumentParser:
    top = argparse.ArgumentParser(
        prog="replay-buffer",
        description="Looks after buffers in shared memory and files.",
        epilog="NAME is the name of a shared buffer, 'file:PATH', or a path that ends in .rb",
    )
    top.add_argument("--version", action="version", version=_core.__version__)
    commands = top.add_subparsers(metavar="COMMAND", required=True)
    for module in (ls, rm, stat, verify):
        name = module.__name__.rpartition(".")[2]
        summary = (module.__doc__ or "").splitlines()[0]
        command = commands.add_parser(name, help=summary, description=summary)
        module.arguments(command)
        command.set_defaults(run=module.run)
    return top


def main(arguments: Sequence[str] | None = None) -> int:
    """Runs a command line and returns its exit code."""
    given = parser().parse_args(arguments)
    try:
        code: int = given.run(given)
        sys.stdout.flush()
        return code
    except BrokenPipeError:  # the reader of our output has gone, as `head` does
        os.dup2(os.open(os.devnull, os.O_WRONLY), sys.stdout.fileno())
        return 0
    except KeyboardInterrupt:
        return INTERRUPTED
    except (ReplayBufferError, OSError) as error:
        print("replay-buffer:", " ".join(str(error).split()), file=sys.stderr)
        return FAILED


if __name__ == "__main__":
    sys.exit(main())
