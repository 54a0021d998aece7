"""NumPy arrays that several processes see at once.

The elements are plain shared memory: nothing orders the reads and writes of different processes.
For experience use a ReplayBuffer; this is for what goes beside it, or for a protocol of your own.
"""

from __future__ import annotations

import warnings
from types import TracebackType
from typing import Any

import numpy.typing as npt

from . import _core
from .errors import Closed, InvalidArgument
from .schema import DTYPES, as_dtype, as_shape


class SharedArray:
    """A NumPy array in shared memory, known to other processes by its name.

    Made by create(), which gives it a name, and by open(name), here or in another process. The name
    stays, and the memory with it, until unlink(). As a context manager an array is closed at the
    end, and never removed.

    Views of `array` keep the memory mapped: they stay good after close() and unlink().

    Pickling carries the name; the other side opens it. In a forked child the inherited object
    works, but its unlink() does not remove the name, which is its parent's to remove.
    """

    __slots__ = ("__weakref__", "_array", "_handle")

    _handle: _core.SharedArray
    _array: npt.NDArray[Any] | None

    def __init__(self, handle: _core.SharedArray) -> None:
        self._array = handle.array()
        self._handle = handle

    @classmethod
    def create(cls, shape: int | tuple[int, ...], dtype: Any) -> SharedArray:
        """A new array, all zero, under a name that the system chooses.

        The memory is taken now: OutOfSpace is raised here or never. Only this user may open it.
        """
        dims, code = as_shape("shape", shape), DTYPES.index(as_dtype("dtype", dtype).name) + 1
        return cls(_core.SharedArray.create(list(dims), code))

    @classmethod
    def open(cls, name: str) -> SharedArray:
        """The array of that name, with the shape and dtype it was created with.

        Raises NotFound, PermissionDenied, Corrupt when the file of that name is no shared array or
        was cut short, Incompatible when another version of this package made it.
        """
        if not isinstance(name, str) or not name.isascii():
            raise InvalidArgument(f"the name of a shared array is a plain string, not {name!r}")
        return cls(_core.SharedArray.open(name))

    @property
    def name(self) -> str:
        """What open() takes. Still there after close()."""
        return self._handle.name

    @property
    def array(self) -> npt.NDArray[Any]:
        """The elements, writable. Raises Closed after close()."""
        if self._array is None:
            raise Closed(f"the shared array {self.name!r} is closed")
        return self._array

    @property
    def closed(self) -> bool:
        return self._handle.closed

    def close(self) -> None:
        """Let go of the memory; views that are still in use keep it. May be called again."""
        self._array = None
        self._handle.close()

    def unlink(self) -> None:
        """Remove the name; who has the array open keeps it. May be called again, and when closed.

        Does nothing on an object that a forked child inherited: it can open() one of its own.
        """
        self._handle.unlink()

    def __enter__(self) -> SharedArray:
        if self.closed:
            raise Closed(f"the shared array {self.name!r} is closed")
        return self

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.close()

    def __reduce__(self) -> tuple[Any, tuple[str]]:
        if self.closed:
            raise Closed(f"the shared array {self.name!r} is closed")
        return type(self).open, (self.name,)

    def __del__(self) -> None:
        handle = getattr(self, "_handle", None)  # none when __init__ was refused its argument
        if handle is None or handle.closed or handle.unlinked:
            return
        if handle.created_here:
            warnings.warn(
                f"{self!r} was created and neither closed nor unlinked; its memory stays in use",
                ResourceWarning,
                stacklevel=2,
                source=self,
            )

    def __repr__(self) -> str:
        if self._array is None:
            return f"<SharedArray {self.name!r}, closed>"
        return f"<SharedArray {self.name!r}: {self._array.dtype} {self._array.shape}>"
