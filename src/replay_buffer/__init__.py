"""Experience replay: environments write, learners sample."""

from ._core import __version__
from .buffer import ReplayBuffer
from .circular import SharedCircularBuffer
from .config import BufferConfig, LinearSchedule
from .errors import (
    AlreadyExists,
    Busy,
    Closed,
    Corrupt,
    Incompatible,
    InvalidArgument,
    NotEnoughRows,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    ReadOnly,
    ReplayBufferError,
    RowGone,
    SchemaMismatch,
    SystemFailure,
    Timeout,
)
from .schema import Column, Schema

__all__ = [
    "AlreadyExists",
    "BufferConfig",
    "Busy",
    "Closed",
    "Column",
    "Corrupt",
    "Incompatible",
    "InvalidArgument",
    "LinearSchedule",
    "NotEnoughRows",
    "NotFound",
    "OutOfSpace",
    "PermissionDenied",
    "ReadOnly",
    "ReplayBuffer",
    "ReplayBufferError",
    "RowGone",
    "Schema",
    "SchemaMismatch",
    "SharedCircularBuffer",
    "SystemFailure",
    "Timeout",
    "__version__",
]
