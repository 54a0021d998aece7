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
    ReplayBufferWarning,
    RowGone,
    SchemaMismatch,
    SystemFailure,
    Timeout,
)
from .peeking import PeekedColumn, PeekedRows
from .pipeline import shared_memory_rl_pipeline
from .schema import Column, Schema
from .shared_array import SharedArray
from .view import View
from .views import FrameStack, Hindsight, NStep, Sequence, Trajectory
from .writer import StepWriter
from .zero_copy import zero_copy_env_simulation

__all__ = [
    "AlreadyExists",
    "BufferConfig",
    "Busy",
    "Closed",
    "Column",
    "Corrupt",
    "FrameStack",
    "Hindsight",
    "Incompatible",
    "InvalidArgument",
    "LinearSchedule",
    "NStep",
    "NotEnoughRows",
    "NotFound",
    "OutOfSpace",
    "PeekedColumn",
    "PeekedRows",
    "PermissionDenied",
    "ReadOnly",
    "ReplayBuffer",
    "ReplayBufferError",
    "ReplayBufferWarning",
    "RowGone",
    "Schema",
    "SchemaMismatch",
    "Sequence",
    "SharedArray",
    "SharedCircularBuffer",
    "StepWriter",
    "SystemFailure",
    "Timeout",
    "Trajectory",
    "View",
    "__version__",
    "shared_memory_rl_pipeline",
    "zero_copy_env_simulation",
]
