"""A batch of n cuts the total into n equal strata and draws once in each.

So of the rows up to any row, which have the share F of the total, a batch holds n F, rounded down
or up.
"""

import numpy as np
import pytest

from unit.prioritized.law import Floats, draw, fill, g_test, make, masses, rank_masses


def assert_one_draw_per_stratum(drawn: np.ndarray, share: Floats) -> None:
    """`share` by place in the order of the strata; `drawn` the places of one batch."""
    upto = len(drawn) * np.cumsum(share)[:-1]
    held = np.searchsorted(np.sort(drawn), np.arange(len(share) - 1), side="right")
    rounding = 1e-3
    assert (held >= np.floor(upto - rounding)).all()
    assert (held <= np.ceil(upto + rounding)).all()


@pytest.mark.parametrize("batch_size", [2, 32, 100, 500])
@pytest.mark.parametrize("rows", [10, 100, 1000])
def test_prioritized_draws_once_in_every_stratum(rows: int, batch_size: int) -> None:
    raws = np.float32(np.random.default_rng(rows).lognormal(0, 1.5, rows))
    buffer = make(rows, alpha=0.7)
    fill(buffer, raws)
    mass = masses(raws, 0.7)
    for _ in range(50):
        assert_one_draw_per_stratum(buffer.sample(batch_size)["indices"], mass / mass.sum())


@pytest.mark.parametrize("batch_size", [2, 32, 100])
@pytest.mark.parametrize("rows", [10, 100])
def test_rank_draws_once_in_every_stratum(rows: int, batch_size: int) -> None:
    raws = np.float32(np.random.default_rng(rows).permutation(rows) + 1)
    buffer = make(rows, "rank", alpha=0.7)
    fill(buffer, raws)
    place = np.argsort(np.argsort(-raws))
    mass = np.sort(rank_masses(raws, 0.7))[::-1]
    for _ in range(50):
        assert_one_draw_per_stratum(place[buffer.sample(batch_size)["indices"]], mass / mass.sum())


def test_equal_rows_are_all_in_a_batch_as_large_as_the_buffer() -> None:
    buffer = make(64)
    fill(buffer, np.full(64, 0.3))
    for _ in range(100):
        assert np.array_equal(np.sort(buffer.sample(64)["indices"]), np.arange(64))


def test_the_draw_inside_a_stratum_is_random() -> None:
    buffer = make(64, alpha=1.0)
    fill(buffer, np.ones(64))
    drawn = draw(buffer, 32_000, batch_size=4)
    assert g_test(np.bincount(drawn, minlength=64), np.ones(64)) > 1e-3
    pairs = drawn.reshape(-1, 4)
    table = np.histogram2d(pairs[:, 0], pairs[:, 1], bins=4)[0]
    assert g_test(table.ravel(), np.ones(16)) > 1e-3  # one stratum says nothing about the next
