"""What is made of steps: transitions of three, sequences of eighty, stacks of four frames."""

from __future__ import annotations

from workload import Cell, Workload

POSITION = 4
VECTORS = (
    Cell("3 steps: sample 256", "n_step", (256,), floor=("six arrays of 256", "gather 256")),
    Cell("sequences of 80: sample 32", "sequences", (32,), floor=("runs of 80: 32",)),
)
FRAMES = (Cell("stacks of 4: sample 32", "stacks", (32,), floor=("np.take 32",)),)

WORKLOADS = [
    Workload(
        "views8",
        "views of 8 float32, 100k steps",
        (8,),
        "float32",
        100_000,
        VECTORS,
        {"views": {"n": 3, "gamma": 0.99, "length": 80}},
    ),
    Workload(
        "stacks",
        "stacks of 84x84 uint8 frames, 20k steps",
        (84, 84),
        "uint8",
        20_000,
        FRAMES,
        {"views": {"stack": 4}},
    ),
]
