"""How likely a row is drawn, and the importance weight it then has."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..buffer import ReplayBuffer
from ..config import LinearSchedule
from ..errors import InvalidArgument
from .content import (
    WEIGHTED,
    Floats,
    Ids,
    MakeBuffer,
    add_numbers,
    assert_drawn_by,
    live_ids,
    masses,
    numbered,
    rank_masses,
)

CAPACITY, ALPHA = 60, 0.7
LAWS = {"prioritized": masses, "rank": rank_masses}


def law_of(buffer: ReplayBuffer, alpha: float = ALPHA) -> Floats:
    """The masses of all stored rows, oldest first."""
    return LAWS[buffer.config.strategy](buffer.priorities(live_ids(buffer)), alpha)


def some_priorities(n: int) -> Any:
    """Distinct, so that ranks have one order."""
    return np.random.default_rng(n).permutation(n) + 1.0


def expected_weights(mass: Floats, at: Ids, beta: float, scale: str) -> Floats:
    weight = (len(mass) * mass / mass.sum()) ** -beta
    most = {"batch": weight[at].max(), "global": weight.max(), "none": 1.0}[scale]
    found: Floats = weight[at] / most
    return found


def drawn_singly(buffer: ReplayBuffer, rows: int) -> Ids:
    """Batches of one are independent draws."""
    out = buffer.sample(1)
    return np.array([int(buffer.sample(1, out=out)["indices"][0]) for _ in range(rows)])


class Laws:
    @pytest.mark.parametrize("added", [7, CAPACITY, 100])
    def test_uniform_draws_every_stored_row_alike(
        self, make_buffer: MakeBuffer, added: int
    ) -> None:
        buffer = numbered(make_buffer, CAPACITY)
        add_numbers(buffer, added)
        ids = live_ids(buffer)
        drawn = buffer.sample(20_000)["indices"]
        assert set(drawn) == set(ids)
        assert_drawn_by(np.ones(len(ids)), np.bincount(drawn - ids[0], minlength=len(ids)))

    @pytest.mark.parametrize("strategy", WEIGHTED)
    @pytest.mark.parametrize("added", [7, CAPACITY, 100])
    def test_weighted_draws_follow_their_law(
        self, make_buffer: MakeBuffer, strategy: str, added: int
    ) -> None:
        buffer = numbered(make_buffer, CAPACITY, strategy, alpha=ALPHA)
        add_numbers(buffer, added, priority=some_priorities(added))
        ids = live_ids(buffer)
        drawn = drawn_singly(buffer, 10_000)
        assert_drawn_by(law_of(buffer), np.bincount(drawn - ids[0], minlength=len(ids)))

    def test_a_row_of_priority_zero_is_never_drawn(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, CAPACITY, "prioritized", epsilon=0.0)
        add_numbers(buffer, CAPACITY, priority=np.arange(CAPACITY) % 2)
        for n in (1, 32, 500):
            assert (buffer.sample(n)["k"] % 2 == 1).all()

    def test_all_priorities_zero_is_uniform(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 8, "prioritized", epsilon=0.0)
        add_numbers(buffer, 8, priority=np.zeros(8))
        assert set(buffer.sample(500)["k"].tolist()) == set(range(8))

    @pytest.mark.parametrize("strategy", WEIGHTED)
    @pytest.mark.parametrize("scale", ["batch", "global", "none"])
    @pytest.mark.parametrize("beta", [0.0, 0.4, 1.0])
    def test_weights_have_the_closed_form(
        self, make_buffer: MakeBuffer, strategy: str, scale: str, beta: float
    ) -> None:
        buffer = numbered(make_buffer, CAPACITY, strategy, alpha=ALPHA, weights=scale)
        add_numbers(buffer, 83, priority=some_priorities(83))
        ids, mass = live_ids(buffer), law_of(buffer)
        for n in (1, 5, 32, 300):
            batch = buffer.sample(n, beta=beta)
            assert batch["weights"].dtype == np.float32
            expected = expected_weights(mass, batch["indices"] - ids[0], beta, scale)
            np.testing.assert_allclose(batch["weights"], expected, rtol=1e-6)

    def test_weights_have_the_closed_form_after_updates(self, make_buffer: MakeBuffer) -> None:
        rng = np.random.default_rng(0)
        buffer = numbered(make_buffer, CAPACITY, "prioritized", alpha=ALPHA, beta=0.5)
        add_numbers(buffer, 83, priority=some_priorities(83))
        for _ in range(20):
            ids = live_ids(buffer)
            buffer.update_priorities(rng.choice(ids, 10), rng.lognormal(0, 3, 10))
            batch = buffer.sample(32)
            expected = expected_weights(law_of(buffer), batch["indices"] - ids[0], 0.5, "batch")
            np.testing.assert_allclose(batch["weights"], expected, rtol=1e-6)
            buffer.add(0, [0, 0, 0])

    def test_a_schedule_counts_batches(self, make_buffer: MakeBuffer) -> None:
        schedule = LinearSchedule(0.4, 1.0, 10)
        buffer = numbered(
            make_buffer, CAPACITY, "prioritized", alpha=ALPHA, beta=schedule, weights="none"
        )
        add_numbers(buffer, CAPACITY, priority=some_priorities(CAPACITY))
        mass = law_of(buffer)
        for step in range(15):
            batch = buffer.sample(32)
            expected = expected_weights(mass, batch["indices"], schedule(step), "none")
            np.testing.assert_allclose(batch["weights"], expected, rtol=2e-6)

    @pytest.mark.parametrize("beta", [-0.1, float("nan"), float("inf"), "much"])
    def test_a_beta_that_is_none_is_refused(self, make_buffer: MakeBuffer, beta: Any) -> None:
        buffer = numbered(make_buffer, 8, "prioritized")
        add_numbers(buffer, 8)
        with pytest.raises(InvalidArgument, match="beta"):
            buffer.sample(4, beta=beta)

    def test_a_beta_needs_weights(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 8)
        add_numbers(buffer, 8)
        with pytest.raises(InvalidArgument):
            buffer.sample(4, beta=0.5)

    @pytest.mark.parametrize("strategy", WEIGHTED)
    @pytest.mark.parametrize("after", [0.0, 0.5, 1.0])
    def test_a_changed_alpha_is_as_good_as_one_from_the_start(
        self, make_buffer: MakeBuffer, strategy: str, after: float
    ) -> None:
        changed = numbered(make_buffer, CAPACITY, strategy, alpha=0.9, seed=3)
        fresh = numbered(make_buffer, CAPACITY, strategy, alpha=after, seed=3)
        for buffer in (changed, fresh):
            add_numbers(buffer, 83, priority=some_priorities(83))
        changed.alpha = after
        assert changed.alpha == pytest.approx(after)
        assert changed.total_priority == fresh.total_priority
        for _ in range(5):
            ours, theirs = changed.sample(16), fresh.sample(16)
            assert all(np.array_equal(ours[name], theirs[name]) for name in ours)

    def test_alpha_through_zero_and_back_changes_nothing(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, CAPACITY, "prioritized", alpha=ALPHA)
        add_numbers(buffer, 83, priority=some_priorities(83))
        before, total = buffer.priorities(live_ids(buffer)), buffer.total_priority
        for alpha in (0.0, 2.0, 0.0, ALPHA):
            buffer.alpha = alpha
        assert np.array_equal(buffer.priorities(live_ids(buffer)), before)
        assert buffer.total_priority == total
        with pytest.raises(InvalidArgument, match="alpha"):
            buffer.alpha = -1.0
