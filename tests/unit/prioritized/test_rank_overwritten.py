"""Rank: a rank belongs to a row, not to its slot."""

from typing import Any

import numpy as np

from replay_buffer import BufferConfig, ReplayBuffer, Sequence
from unit.prioritized.law import UNLIKELY, counts_of, draw, fill, g_test, make


def test_a_row_does_not_inherit_the_rank_of_the_one_it_overwrote() -> None:
    raws = np.ones(4000, np.float32)
    raws[:20] = 100.0
    buffer = make(4000, "rank", alpha=1.0)
    fill(buffer, raws)
    buffer.sample(1)  # sorts
    newest = fill(buffer, np.full(20, 1e-3))  # over the largest, and too few to sort again
    drawn = draw(buffer, 4000)
    assert (drawn >= 20).all()
    # By its own rank, when it gets one, each has a share of less than 1 / 4000.
    assert np.isin(drawn, newest).mean() < 0.005


def rare(strategy: Any, alpha: float) -> tuple[ReplayBuffer, Any, Any]:
    """Two episodes of 4,000 steps, the ids of their first steps, and those of all steps."""
    config = BufferConfig(8100, storage="steps", strategy=strategy, alpha=alpha, epsilon=0.0)
    columns: dict[str, Any] = {"obs_dtype": "float32", "action_shape": ()}
    buffer = ReplayBuffer(config, seed=1, obs_shape=(1,), action_dtype="int64", **columns)
    obs = np.zeros(1, np.float32)
    with buffer.writer() as writer:
        for t in range(8000):
            ends = t % 4000 == 3999
            writer.append(obs, t, 0.0, ends, False, final_obs=obs if ends else None)
    return buffer, buffer.view(Sequence(4000, period=4000)).starts(), buffer.view().starts()


def assert_drawn(buffer: ReplayBuffer, starts: Any, law: Any) -> None:
    view = buffer.view(Sequence(4000, period=4000))
    out = view.sample(4)
    counts = np.zeros(len(starts))
    for _ in range(250):
        counts += counts_of(view.sample(4, out=out)["indices"], starts)
    assert g_test(counts, law) > UNLIKELY


def test_starts_too_rare_to_be_guessed_are_drawn_by_rank() -> None:
    buffer, starts, steps = rare("rank", alpha=2.0)
    assert (len(starts), len(steps)) == (2, 8000)
    raws = np.empty(8000, np.float32)
    first = np.isin(steps, starts)
    ranks = np.setdiff1d(np.arange(1, 8001), [2000, 4000])
    raws[~first] = 8001 - ranks
    raws[first] = 8001 - np.array([2000, 4000])
    buffer.update_priorities(steps, raws)
    assert_drawn(buffer, starts, [4.0, 1.0])


def test_starts_too_rare_to_be_guessed_are_drawn_by_priority() -> None:
    buffer, starts, steps = rare("prioritized", alpha=1.0)
    buffer.update_priorities(steps, np.full(8000, 1e6))
    buffer.update_priorities(starts, [4.0, 1.0])
    assert_drawn(buffer, starts, [4.0, 1.0])
