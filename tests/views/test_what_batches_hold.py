"""The arrays of a batch, by name and shape, for each kind of view."""

from __future__ import annotations

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    FrameStack,
    NStep,
    ReplayBuffer,
    Sequence,
    Trajectory,
)

STEP = ["action", "obs", "reward", "terminated", "truncated"]
ALWAYS = ["indices", "weights"]


def filled(strategy: str) -> ReplayBuffer:
    """Four streams of frames, with episodes of ten steps."""
    config = BufferConfig(capacity=1000, storage="steps", strategy=strategy)
    buffer = ReplayBuffer(config, obs_shape=(5, 5), obs_dtype="uint8", action_dim=6, seed=0)
    frames = np.zeros((4, 5, 5), np.uint8)
    with buffer.writer(streams=4, autoreset="same_step") as writer:
        for t in range(100):
            end = np.full(4, t % 10 == 9)
            final = frames if end.any() else None
            writer.append(frames, np.zeros(4, int), np.ones(4), end, ~end & False, final_obs=final)
    return buffer


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
@pytest.mark.parametrize(
    ("parts", "more", "shape"),
    [
        ((), ["next_obs"], (8, 5, 5)),
        ((FrameStack(4), NStep(3)), ["next_obs", "k", "discount"], (8, 4, 5, 5)),
        ((Sequence(8, burn_in=4, period=4),), ["mask", "is_first"], (8, 12, 5, 5)),
        ((Trajectory(),), ["mask", "is_first", "final_obs", "lengths"], (8, 10, 5, 5)),
    ],
    ids=str,
)
def test_a_batch_has_its_arrays_however_it_is_drawn(
    strategy: str, parts: tuple[object, ...], more: list[str], shape: tuple[int, ...]
) -> None:
    batch = filled(strategy).view(*parts).sample(8)  # type: ignore[arg-type]
    assert sorted(batch) == sorted([*STEP, *ALWAYS, *more])
    assert batch["obs"].shape == shape
    assert batch["weights"].dtype == np.float32
    assert batch["weights"].shape == batch["indices"].shape == (8,)


def test_what_is_drawn_uniformly_weighs_the_same() -> None:
    buffer = filled("uniform")
    for view in (buffer, buffer.view(NStep(3)), buffer.view(Trajectory())):
        batch = view.sample(16)
        batch["weights"][:] = 7
        assert (view.sample(16)["weights"] == 1).all()
        assert (view.sample(16, out=batch)["weights"] == 1).all()
