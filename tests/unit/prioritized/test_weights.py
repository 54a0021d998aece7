"""Importance weights are (N P)^-beta, scaled by name: "batch", "global" or "none"."""

from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, InvalidArgument, ReplayBuffer
from unit.prioritized.law import Floats, fill, live_ids, make, masses, rank_masses

SCALES = pytest.mark.parametrize("weights", ["batch", "global", "none"])


def closed_form(mass: Floats, drawn: np.ndarray, beta: float, weights: str) -> Floats:
    """Weights of `drawn`, places in `mass`."""
    share = mass / mass.sum()
    with np.errstate(divide="ignore"):
        weight = (len(mass) * share) ** -beta
    most = {
        "batch": weight[drawn].max(),
        "global": weight[mass > 0].max(),
        "none": 1.0,
    }[weights]
    return weight[drawn] / most


def assert_closed_form(buffer: ReplayBuffer, law: Any, beta: float, weights: str) -> None:
    """`law` gives the masses of raw priorities, in the order of slots."""
    ids = live_ids(buffer)
    by_slot = np.argsort(ids % buffer.capacity)
    mass = np.empty(len(ids))
    mass[by_slot] = law(buffer.priorities(ids[by_slot]))
    for batch_size in (1, 5, 32, 300, 3000):
        batch = buffer.sample(batch_size, beta=beta)
        drawn = np.searchsorted(ids, batch["indices"])
        assert batch["weights"].dtype == np.float32
        expected = closed_form(mass, drawn, beta, weights)
        np.testing.assert_allclose(batch["weights"], expected, rtol=1e-6)


@SCALES
@pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
@pytest.mark.parametrize("alpha", [0.0, 0.6, 1.0])
@pytest.mark.parametrize("added", [1, 3, 100, 150, 777])
def test_weights_have_the_closed_form(added: int, alpha: float, beta: float, weights: str) -> None:
    buffer = make(150, alpha=alpha, weights=weights)
    fill(buffer, np.random.default_rng(added).lognormal(0, 3, added))
    assert_closed_form(buffer, lambda raws: masses(raws, alpha), beta, weights)


@SCALES
def test_weights_have_the_closed_form_after_updates(weights: str) -> None:
    rng = np.random.default_rng(2)
    buffer = make(60, alpha=0.7, weights=weights)
    fill(buffer, rng.random(80))
    for _ in range(20):
        ids = rng.choice(live_ids(buffer), 10)
        buffer.update_priorities(ids, rng.lognormal(0, 4, 10))
        buffer.add(0)
        assert_closed_form(buffer, lambda raws: masses(raws, 0.7), 0.5, weights)


@SCALES
def test_weights_have_the_closed_form_beside_rows_of_priority_zero(weights: str) -> None:
    buffer = make(60, alpha=0.7, epsilon=0.0, weights=weights)
    fill(buffer, np.where(np.arange(40) % 3 == 0, 0, np.linspace(0.1, 1, 40)))
    assert_closed_form(buffer, lambda raws: masses(raws, 0.7, 0.0), 0.5, weights)


@SCALES
@pytest.mark.parametrize("beta", [0.4, 1.0])
@pytest.mark.parametrize("added", [1, 3, 60, 77])
def test_weights_of_ranks_have_the_closed_form(added: int, beta: float, weights: str) -> None:
    buffer = make(60, "rank", alpha=0.7, weights=weights)
    fill(buffer, np.random.default_rng(added).permutation(added) + 1)
    assert_closed_form(buffer, lambda raws: rank_masses(raws, 0.7), beta, weights)


@SCALES
def test_equal_priorities_have_weight_one(weights: str) -> None:
    buffer = make(50, weights=weights)
    fill(buffer, np.full(37, 0.2))
    assert buffer.sample(100, beta=0.9)["weights"] == pytest.approx(1.0, rel=1e-6)


@SCALES
def test_beta_zero_has_weight_one(weights: str) -> None:
    buffer = make(50, weights=weights, beta=0.0)
    fill(buffer, np.arange(50))
    assert np.array_equal(buffer.sample(100)["weights"], np.ones(100))


@pytest.mark.parametrize("decades", [5, 15, 25])
def test_weights_of_very_different_priorities_stay_finite(decades: int) -> None:
    raws = np.float32(np.logspace(0, decades, 30))
    for weights in ("batch", "global", "none"):
        buffer = make(30, alpha=1.0, beta=1.0, weights=weights)
        ids = fill(buffer, raws)
        batch = buffer.sample(50)
        assert np.isfinite(batch["weights"]).all()
        mass = masses(raws, 1.0)
        expected = closed_form(mass, np.searchsorted(ids, batch["indices"]), 1.0, weights)
        np.testing.assert_allclose(batch["weights"], expected, rtol=1e-6)


def test_the_default_is_the_batch_maximum() -> None:
    assert BufferConfig(capacity=1).weights == "batch"
    buffer = make(100)
    fill(buffer, np.random.default_rng(0).random(100))
    for _ in range(20):
        assert buffer.sample(8)["weights"].max() == 1.0


def test_weights_are_written_into_the_arrays_of_the_caller() -> None:
    buffer = make(10)
    fill(buffer, [1, 2, 3])
    out = buffer.sample(4)
    weights = out["weights"]
    weights[:] = -1
    assert buffer.sample(4, out=out)["weights"] is weights
    assert (weights > 0).all()


def test_buffers_without_priorities_have_no_weights() -> None:
    for strategy in ("uniform", "without_replacement", "fifo", "lifo"):
        buffer = make(10, strategy)
        buffer.add(0)
        assert set(buffer.sample(1)) == {"x", "indices"}


def test_unknown_names_of_scales_are_refused() -> None:
    with pytest.raises(InvalidArgument, match="weights"):
        make(10, weights="largest")
