"""Priorities and weights over the whole range of floats."""

from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, ReplayBuffer, Sequence
from unit.prioritized.law import UNLIKELY, counts_of, draw, fill, g_test, make


@pytest.mark.parametrize("scale", [1e-30, 1e-20, 1.0, 1e20, 1e30])
def test_rows_are_drawn_by_the_ratio_of_their_priorities_at_any_scale(scale: float) -> None:
    raws = np.float32(scale * np.array([1.0, 2.0, 3.0, 6.0]))
    buffer = make(4, alpha=1.0, epsilon=0.0, beta=1.0, weights="none")
    ids = fill(buffer, raws)
    assert g_test(counts_of(draw(buffer, 20_000, 50), ids), raws.astype(float)) > UNLIKELY
    batch = buffer.sample(64)
    expected = 3 / np.array([1.0, 2.0, 3.0, 6.0])[batch["indices"]]
    np.testing.assert_allclose(batch["weights"], expected, rtol=1e-6)


@pytest.mark.parametrize("capacity", [5, 1000, 2**20])
@pytest.mark.parametrize(
    "raws",
    [
        [1e19, 2e19, 3e30],
        [1e10, 1e14, 4e17],
        [0.0, 1e-30, 5e-20, 1e-19],
        [0.0, 1e-25, 1e19],
        [1e-10, 2e-10, 3e-10],
    ],
)
def test_powers_are_kept_between_2_to_the_minus_126_and_2_to_127_less_the_bits_of_the_capacity(
    raws: list[float], capacity: int
) -> None:
    buffer = make(capacity, alpha=2.0, epsilon=0.0, beta=0.25, weights="none")
    ids = fill(buffer, raws)
    powers = np.float32(raws).astype(float) ** 2
    kept = np.clip(powers, 2.0**-126, 2.0 ** (127 - capacity.bit_length())) * (powers > 0)
    assert buffer.total_priority == pytest.approx(kept.sum(), rel=1e-6)
    assert g_test(counts_of(draw(buffer, 20_000, 50), ids), kept) > UNLIKELY
    batch = buffer.sample(64)
    expected = (len(ids) * kept[batch["indices"]] / kept.sum()) ** -0.25
    np.testing.assert_allclose(batch["weights"], expected, rtol=1e-5)


@pytest.mark.parametrize(("small", "large"), [(1e-30, 1e30), (1e-30, 1e-10), (1e10, 1e30)])
@pytest.mark.parametrize("beta", [0.25, 0.4, 0.6])
def test_weights_are_right_where_the_ratio_of_masses_is_no_float(
    small: float, large: float, beta: float
) -> None:
    """The first steps of episodes have a share of 1e-60, and nothing else may start."""
    config = BufferConfig(
        400, storage="steps", strategy="prioritized", alpha=1.0, epsilon=0.0, weights="none"
    )
    columns: dict[str, Any] = {"obs_dtype": "float32", "action_shape": ()}
    buffer = ReplayBuffer(config, obs_shape=(1,), action_dtype="int64", **columns)
    obs = np.zeros(1, np.float32)
    with buffer.writer() as writer:
        for t in range(300):
            ends = t % 50 == 49
            writer.append(obs, t, 0.0, ends, False, final_obs=obs if ends else None)
    view = buffer.view(Sequence(50, period=50))
    starts, everything = view.starts(), buffer.view().starts()
    assert (len(starts), len(everything)) == (6, 300)
    buffer.update_priorities(everything, np.full(300, large))
    buffer.update_priorities(starts, np.full(6, small))
    total = 294 * np.float64(np.float32(large)) + 6 * np.float64(np.float32(small))
    expected = (len(buffer) * np.float64(np.float32(small)) / total) ** -beta
    assert np.isfinite(np.float32(expected))
    weights = view.sample(32, beta=beta)["weights"]
    np.testing.assert_allclose(weights, np.full(32, expected), rtol=1e-5)
