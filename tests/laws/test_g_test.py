"""The test of laws itself: it accepts the right one and rejects those a few per cent off."""

import numpy as np
import pytest

from laws.laws import g_test

UNLIKELY, ALMOST_IMPOSSIBLE = 1e-3, 1e-9
LAW = np.geomspace(1, 100, 40)


def counts(law: np.ndarray, seed: int) -> np.ndarray:
    return np.random.default_rng(seed).multinomial(20_000, law / law.sum())


@pytest.mark.parametrize("seed", range(10))
def test_accepts_the_law(seed: int) -> None:
    assert g_test(counts(LAW, seed), LAW) > UNLIKELY


@pytest.mark.parametrize("seed", range(10))
def test_rejects_an_exponent_a_tenth_off(seed: int) -> None:
    assert g_test(counts(LAW**1.1, seed), LAW) < UNLIKELY


def test_rejects_a_row_that_is_never_drawn() -> None:
    wrong = LAW.copy()
    wrong[-1] = 0
    assert g_test(counts(wrong, 0), LAW) < ALMOST_IMPOSSIBLE


def test_p_values_of_the_law_are_uniform() -> None:
    p = np.array([g_test(counts(LAW, seed), LAW) for seed in range(400)])
    assert 0.42 < p.mean() < 0.58
    assert 0.02 < (p < 0.05).mean() < 0.09


def test_rare_cells_are_merged() -> None:
    law = 2.0 ** -np.arange(40)
    assert g_test(counts(law, 1), law) > UNLIKELY


def test_a_row_of_no_mass_must_not_be_drawn() -> None:
    with pytest.raises(AssertionError, match="without priority"):
        g_test([5, 5, 1], [1, 1, 0])
