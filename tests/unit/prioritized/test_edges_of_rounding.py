"""Points that rounding may push over an edge still give a row that is there and has a priority."""

import numpy as np
import pytest

from unit.prioritized.steering import LARGEST, draw_at


@pytest.mark.parametrize("strategy", ["prioritized", "rank"])
def test_draws_can_be_steered(strategy: str) -> None:
    """When this fails the generator has changed, and steering.py has to follow."""
    for fraction in (0.0, 0.25, 0.37, 0.5 - 2**-20, 0.75):
        if strategy == "prioritized":
            assert draw_at(fraction, np.ones(1024), 1024) == int(fraction * 1024)
        else:
            expected = 0 if fraction < 6 / 11 else 1 if fraction < 9 / 11 else 2
            assert draw_at(fraction, [3, 2, 1], 3, "rank") == expected


@pytest.mark.parametrize("rows", [1, 3, 16, 17, 100, 256, 300, 5000])
@pytest.mark.parametrize("strategy", ["prioritized", "rank"])
def test_rule_06_the_last_point_gives_the_last_positive_row(strategy: str, rows: int) -> None:
    rng = np.random.default_rng(rows)
    for spread in (0, 1, 3):
        raws = np.float32(rng.lognormal(0, spread, rows))
        assert 0 <= draw_at(LARGEST, raws, rows + 40, strategy) < rows
        if strategy == "prioritized":
            assert draw_at(LARGEST, raws, rows + 40) == rows - 1
            raws[(rows + 1) // 2 :] = 0
            assert raws[draw_at(LARGEST, raws, rows)] > 0


def test_rule_06_the_first_point_gives_the_first_positive_row() -> None:
    for zeros in (0, 1, 15, 16, 17, 299):
        raws = np.ones(300)
        raws[:zeros] = 0
        assert draw_at(0.0, raws, 300) == zeros


@pytest.mark.parametrize("rows", [16, 64, 300])
@pytest.mark.parametrize("spread", [0.1, 1.0, 4.0])
def test_rule_06_points_beside_every_edge_give_rows_with_a_priority(
    rows: int, spread: float
) -> None:
    """Running sums depend on the order of adding: at an edge they may step onto a zero."""
    rng = np.random.default_rng(rows)
    raws = np.float32(rng.lognormal(0, spread, rows))
    raws[rng.random(rows) < 0.3] = 0
    raws[3::4] = 0
    total = raws.sum(dtype=np.float64)
    for edge in np.cumsum(raws, dtype=np.float64)[:: max(1, rows // 32)]:
        for ulps in (-3, -1.5, -0.75, -0.3, 0, 0.3, 0.75, 1.5, 3):
            fraction = min(max(edge / total + ulps * 2.0**-24, 0.0), LARGEST)
            row = draw_at(fraction, raws, rows)
            assert raws[row] > 0
            assert abs(raws[: row + 1].sum(dtype=np.float64) - edge) <= raws.max() + 1e-5 * total


def test_a_giant_beside_dwarfs_does_not_hide_them() -> None:
    """Far down the tree a point keeps the precision of the total."""
    raws = np.ones(4096)
    raws[0] = 1e7
    total = raws.sum()
    for row in (1, 15, 16, 255, 2000, 4095):
        drawn = draw_at((1e7 + row - 0.5) / total, raws, 4096)
        assert abs(drawn - row) <= 1
