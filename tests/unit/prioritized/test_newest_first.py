"""cer=True: the newest row is the first of every batch; the others are drawn from all rows."""

import numpy as np
import pytest

from replay_buffer import InvalidArgument
from unit.prioritized.law import (
    UNLIKELY,
    draw,
    fill,
    g_test,
    live_ids,
    make,
    masses,
    rank_masses,
)


@pytest.mark.parametrize("batch_size", [1, 2, 32, 300])
@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
def test_the_newest_row_is_always_first(strategy: str, batch_size: int) -> None:
    buffer = make(20, strategy, cer=True)
    for step in range(70):
        newest = buffer.add(step)
        batch = buffer.sample(batch_size)
        assert batch["indices"][0] == newest
        assert batch["x"][0] == step


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
def test_the_newest_row_is_first_after_a_batch_of_rows_and_after_clear(strategy: str) -> None:
    buffer = make(20, strategy, cer=True)
    for rows in (1, 5, 20, 33):
        ids = buffer.add_batch(np.arange(rows))
        assert buffer.sample(8)["indices"][0] == ids[-1]
    buffer.clear()
    newest = buffer.add(0)
    assert buffer.sample(8)["indices"].tolist() == [newest] * 8


@pytest.mark.parametrize("batch_size", [2, 64])
@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank"])
def test_the_other_rows_follow_the_law_of_the_strategy(strategy: str, batch_size: int) -> None:
    raws = np.float32(np.linspace(0.1, 1, 30))
    law = {
        "uniform": np.ones(30),
        "prioritized": masses(raws, 0.6),
        "rank": rank_masses(raws, 0.6),
    }[strategy]
    buffer = make(30, strategy, cer=True)
    if strategy == "uniform":
        buffer.add_batch(np.arange(30))
    else:
        fill(buffer, raws)
    drawn = draw(buffer, 32_000 * 2, batch_size).reshape(-1, batch_size)[:, 1:].ravel()
    assert g_test(np.bincount(drawn, minlength=30), law) > UNLIKELY


@pytest.mark.parametrize("weights", ["batch", "global", "none"])
@pytest.mark.parametrize("newest", [0.01, 0.5, 20.0])
@pytest.mark.parametrize("strategy", ["prioritized", "rank"])
def test_weights_are_of_the_share_that_a_row_has_of_the_batch(
    strategy: str, newest: float, weights: str
) -> None:
    rng = np.random.default_rng(1)
    buffer = make(25, strategy, cer=True, alpha=0.8, beta=0.7, weights=weights)
    fill(buffer, rng.random(30))
    newest_id = buffer.add(0, priority=newest)
    ids = live_ids(buffer)
    by_slot = np.argsort(ids % 25)
    raws = buffer.priorities(ids[by_slot])
    mass = np.empty(25)
    mass[by_slot] = masses(raws, 0.8) if strategy == "prioritized" else rank_masses(raws, 0.8)
    for batch_size in (2, 16, 200):
        share = mass / mass.sum() * (batch_size - 1) / batch_size
        least = share.min()  # of the draws
        share[ids == newest_id] += 1 / batch_size
        weight = (25 * share) ** -0.7
        batch = buffer.sample(batch_size)
        assert batch["indices"][0] == newest_id
        drawn = np.searchsorted(ids, batch["indices"])
        most = {"batch": weight[drawn].max(), "global": (25 * least) ** -0.7, "none": 1.0}
        np.testing.assert_allclose(batch["weights"], weight[drawn] / most[weights], rtol=1e-6)
    alone = {"batch": 1.0, "global": 1.0, "none": 25**-0.7}  # the newest row is the whole batch
    np.testing.assert_allclose(buffer.sample(1)["weights"], [alone[weights]], rtol=1e-6)


def test_a_newest_row_of_priority_zero_has_the_weight_of_its_one_place() -> None:
    buffer = make(4, cer=True, epsilon=0.0, alpha=1.0, beta=1.0, weights="none")
    fill(buffer, [1.0, 2.0, 0.0])
    batch = buffer.sample(8)
    assert batch["indices"][0] == 2
    assert 2 not in batch["indices"][1:]
    share = np.array([7 / 8 / 3, 7 / 8 * 2 / 3, 1 / 8])[batch["indices"]]
    np.testing.assert_allclose(batch["weights"], 1 / (3 * share), rtol=1e-6)


def test_all_priorities_zero_with_the_newest_first() -> None:
    buffer = make(10, cer=True, epsilon=0.0)
    fill(buffer, np.zeros(10))
    drawn = draw(buffer, 20_000, batch_size=2).reshape(-1, 2)
    assert (drawn[:, 0] == 9).all()
    assert g_test(np.bincount(drawn[:, 1], minlength=10), np.ones(10)) > UNLIKELY


@pytest.mark.parametrize("strategy", ["fifo", "lifo", "without_replacement"])
def test_strategies_with_an_order_of_their_own_refuse(strategy: str) -> None:
    with pytest.raises(InvalidArgument, match="cer"):
        make(4, strategy, cer=True)
