"""TorchRL: tensors in a TensorDict; priorities in its C++ extension."""

from __future__ import annotations

import importlib
from typing import Any

import torch_threads
from draws import priorities, updates
from timing import Call
from workload import Workload

TITLE = "TorchRL 0.14.1"
INSTALL = (("torch==2.13.0",), ("torchrl==0.14.1",))
CAN = frozenset({"prioritized", "views"})
NOTE = "Adds a ready `TensorDict`; making it from arrays is not counted. " + torch_threads.NOTE


class Buffer:
    """`TensorDictReplayBuffer` over `LazyTensorStorage`, or its prioritized kind."""

    def __init__(self, workload: Workload) -> None:
        import torch
        from torchrl import data

        self._torch = torch
        self._workload = workload
        storage = data.LazyTensorStorage(workload.capacity)
        prioritized = workload.options.get("prioritized")
        if prioritized:
            importlib.import_module("torchrl._torchrl")  # says why, where the buffer does not
            kind = data.TensorDictPrioritizedReplayBuffer
            self._buffer: Any = kind(storage=storage, **prioritized)
        else:
            self._buffer = data.TensorDictReplayBuffer(storage=storage)
        for chunk in workload.chunks():
            ids = self._buffer.extend(self._rows(chunk))
            if prioritized:
                new = torch.from_numpy(priorities(len(ids)))
                self._buffer.update_priority(ids, new)

    def _rows(self, rows: dict[str, Any]) -> Any:
        from tensordict import TensorDict

        columns = {name: self._torch.from_numpy(column) for name, column in rows.items()}
        return TensorDict(columns, batch_size=[len(rows["obs"])])

    def add_one(self) -> Call:
        return Call(self._buffer.add, (self._rows(self._workload.rows(1))[0].clone(),))

    def add_batch(self, n: int) -> Call:
        return Call(self._buffer.extend, (self._rows(self._workload.rows(n)),))

    def sample(self, n: int) -> Call:
        torch_threads.choose(lambda: self._buffer.sample(n))
        return Call(self._buffer.sample, (n,))


class Prioritized(Buffer):
    """With priorities."""

    def update(self, n: int) -> Call:
        drawn = updates(lambda: self._buffer.sample(n)["index"], n, self._torch.from_numpy)
        return Call(self._buffer.update_priority, drawn)


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return (Prioritized if "prioritized" in workload.options else Buffer)(workload)
