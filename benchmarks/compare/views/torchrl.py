"""TorchRL: slices are drawn by a sampler, n steps made by a transform when rows are added."""

from __future__ import annotations

from typing import Any

import torch_threads
from episodes import episodes
from timing import Call
from workload import Rows, Workload

END = ("next", "done")


def tensors(rows: Rows) -> Any:
    """An episode as a rollout has it: what follows a step stands under `next`."""
    import torch
    from tensordict import TensorDict

    one = {name: torch.from_numpy(column.copy()) for name, column in rows.items()}
    if one["obs"].ndim == 3:  # frames have a channel
        one |= {name: one[name][:, None] for name in ("obs", "next_obs")}
    ends = dict.fromkeys(("done", "terminated"), one["done"][:, None])
    after = {"obs": one["next_obs"], "reward": one["reward"][:, None], **ends}
    size = [len(rows["obs"])]
    return TensorDict(
        {"obs": one["obs"], "action": one["action"], "next": TensorDict(after, size)}, size
    )


def full(workload: Workload, kind: str = "TensorDictReplayBuffer", **options: Any) -> Any:
    """A buffer over `LazyTensorStorage`."""
    from torchrl import data

    storage = data.LazyTensorStorage(workload.capacity)
    buffer = getattr(data, kind)(storage=storage, **options)
    for rows in episodes(workload):
        buffer.extend(tensors(rows))
    return buffer


def timed(sample: Any, *arguments: int) -> Call:
    """The call, with the better number of threads."""
    torch_threads.choose(lambda: sample(*arguments))
    return Call(sample, arguments)


class Vectors:
    """`MultiStepTransform`; `SliceSampler`, which looks for the ends anew at every draw."""

    def __init__(self, workload: Workload) -> None:
        from torchrl.envs.transforms import MultiStepTransform

        self._workload = workload
        views = workload.options["views"]
        transform = MultiStepTransform(n_steps=views["n"], gamma=views["gamma"])
        self._steps = full(workload, transform=transform)
        self._slices: Any = None

    def n_step(self, n: int) -> Call:
        return timed(self._steps.sample, n)

    def sequences(self, n: int) -> Call:
        from torchrl.data import SliceSampler

        length = self._workload.options["views"]["length"]
        if self._slices is None:
            sampler = SliceSampler(slice_len=length, end_key=END)
            self._slices = full(self._workload, sampler=sampler)
        return timed(self._slices.sample, n * length)


class Stacks:
    """Slices as long as a stack, and `CatFrames` over them, as its own recipe has it."""

    def __init__(self, workload: Workload) -> None:
        self._workload = workload
        self._buffer: Any = None

    def stacks(self, n: int) -> Call:
        from torchrl.envs.transforms import CatFrames

        if self._buffer is None:
            frames = CatFrames(
                N=self._workload.options["views"]["stack"],
                dim=-3,
                in_keys=["obs"],
                out_keys=["stack"],
                reset_key="_reset",
                done_key="done",
            )
            transform, sampler = frames.make_rb_transform_and_sampler(batch_size=n, end_key=END)
            self._buffer = full(
                self._workload, "ReplayBuffer", transform=transform, sampler=sampler
            )
        return timed(self._buffer.sample, n)


def make(workload: Workload) -> Vectors | Stacks:
    """A full buffer."""
    return (Stacks if "stack" in workload.options["views"] else Vectors)(workload)
