"""The errors of this package: one class for each code of include/replay_buffer/error.h.

ReplayBufferError
├── InvalidArgument     an argument is outside what the call documents      (also a ValueError)
├── SchemaMismatch      a value does not fit its column                     (also a ValueError)
├── NotEnoughRows       a batch was asked of a buffer that cannot fill it
├── RowGone             a row id names a row that is no longer there        (also a LookupError)
├── Closed              the buffer or writer was closed
├── ReadOnly            a write through a read-only handle
├── NotFound            no segment at that location                       (also a FileNotFoundError)
├── AlreadyExists       a segment is already at that location               (also a FileExistsError)
├── Corrupt             a segment or file fails its own checks
├── Incompatible        made by another format version
├── OutOfSpace          memory, disk or row ids are used up                 (also a MemoryError)
├── PermissionDenied    the operating system refused access                 (also a PermissionError)
├── Timeout             a wait reached its deadline                         (also a TimeoutError)
├── Busy                every block or process slot is held by a live process
└── SystemFailure       any other failure of the operating system           (also an OSError)
"""

from __future__ import annotations

import reprlib
from collections.abc import Callable
from typing import Any


class ReplayBufferError(Exception):
    """Base of everything this package raises on purpose."""

    code: int = 0


class InvalidArgument(ReplayBufferError, ValueError):
    code = 1


class SchemaMismatch(ReplayBufferError, ValueError):
    code = 2


class NotEnoughRows(ReplayBufferError):
    code = 3


class RowGone(ReplayBufferError, LookupError):
    code = 4


class Closed(ReplayBufferError):
    code = 5


class ReadOnly(ReplayBufferError):
    code = 6


class NotFound(ReplayBufferError, FileNotFoundError):
    code = 7


class AlreadyExists(ReplayBufferError, FileExistsError):
    code = 8


class Corrupt(ReplayBufferError):
    code = 9


class Incompatible(ReplayBufferError):
    code = 10


class OutOfSpace(ReplayBufferError, MemoryError):
    code = 11


class PermissionDenied(ReplayBufferError, PermissionError):
    code = 12


class Timeout(ReplayBufferError, TimeoutError):
    code = 13


class Busy(ReplayBufferError):
    code = 14


class SystemFailure(ReplayBufferError, OSError):
    code = 15


class ReplayBufferWarning(RuntimeWarning):
    """What this package warns of: calls that have waited for long."""


_BY_CODE = {cls.code: cls for cls in ReplayBufferError.__subclasses__()}


def class_of(code: int) -> type[ReplayBufferError]:
    """The class raised for an error code of the core or the wire."""
    return _BY_CODE.get(code, ReplayBufferError)


def shown(value: Any, show: Callable[[Any], str] = repr) -> str:
    """A value for a message, whatever it is."""
    try:
        return show(value)
    except ValueError:  # Python does not print whole numbers of thousands of digits
        if isinstance(value, int):
            return f"a whole number of {value.bit_length()} bits"
        return f"a {type(value).__name__} that cannot be printed"


def short(value: Any) -> str:
    """The same, with the beginning of what is long."""
    return shown(value, reprlib.repr)
