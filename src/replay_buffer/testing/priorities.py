"""Setting and reading priorities."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ..errors import InvalidArgument, RowGone
from .content import STRATEGIES, WEIGHTED, MakeBuffer, add_numbers, live_ids, masses, numbered


class Priorities:
    @pytest.mark.parametrize("strategy", WEIGHTED)
    def test_new_rows_get_the_largest_priority_so_far(
        self, make_buffer: MakeBuffer, strategy: str
    ) -> None:
        buffer = numbered(make_buffer, 10, strategy)
        assert buffer.max_priority == 1.0
        ids = add_numbers(buffer, 3)
        assert buffer.priorities(ids).tolist() == [1, 1, 1]
        buffer.update_priorities(ids[:1], [7.25])
        buffer.update_priorities(ids[:1], [0.5])
        assert buffer.max_priority == 7.25
        assert buffer.priorities([buffer.add(0, [0, 0, 0])]).tolist() == [7.25]

    def test_rows_are_added_with_priorities(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 10, "prioritized")
        first = buffer.add(0, [0, 0, 0], priority=2.5)
        ids = add_numbers(buffer, 3, priority=[0.0, 0.5, 3.0])
        assert buffer.priorities([first, *ids]).tolist() == [2.5, 0.0, 0.5, 3.0]

    @pytest.mark.parametrize("priority", [-1.0, float("nan"), float("inf")])
    def test_a_row_with_a_bad_priority_is_not_added(
        self, make_buffer: MakeBuffer, priority: float
    ) -> None:
        buffer = numbered(make_buffer, 10, "prioritized")
        with pytest.raises(InvalidArgument, match="priority"):
            buffer.add(0, [0, 0, 0], priority=priority)
        with pytest.raises(InvalidArgument, match="priority"):
            add_numbers(buffer, 2, priority=[1.0, priority])
        assert len(buffer) == 0

    @pytest.mark.parametrize("strategy", WEIGHTED)
    @pytest.mark.parametrize("rows", [1, 33, 600])
    def test_updates_take_magnitudes(
        self, make_buffer: MakeBuffer, strategy: str, rows: int
    ) -> None:
        rng = np.random.default_rng(rows)
        buffer = numbered(make_buffer, rows, strategy)
        ids = rng.permutation(add_numbers(buffer, rows))
        errors = rng.normal(0, 3, rows).astype(np.float32)
        assert buffer.update_priorities(ids, errors) == rows
        assert np.array_equal(buffer.priorities(ids), np.abs(errors))

    def test_the_total_is_the_sum_over_all_rows(self, make_buffer: MakeBuffer) -> None:
        rng = np.random.default_rng(1)
        buffer = numbered(make_buffer, 300, "prioritized", alpha=0.6)
        for _ in range(20):
            add_numbers(buffer, 37)
            ids = live_ids(buffer)
            buffer.update_priorities(rng.choice(ids, 50), rng.lognormal(0, 2, 50))
            expected = masses(buffer.priorities(ids), 0.6).sum()
            assert buffer.total_priority == pytest.approx(expected, rel=1e-5)

    def test_the_last_of_two_values_for_a_row_counts(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 3, "prioritized")
        ids = add_numbers(buffer, 3)
        assert buffer.update_priorities([*ids, ids[0]], [5.0, 6.0, 7.0, 2.0]) == 4
        assert buffer.priorities(ids).tolist() == [2, 6, 7]

    def test_updates_of_rows_that_are_gone_are_skipped_and_counted(
        self, make_buffer: MakeBuffer
    ) -> None:
        buffer = numbered(make_buffer, 10, "prioritized")
        old = add_numbers(buffer, 10)
        add_numbers(buffer, 4)
        before = buffer.priorities(live_ids(buffer)).tolist()
        assert buffer.update_priorities(old[:4], [9.0] * 4) == 0
        assert buffer.priorities(live_ids(buffer)).tolist() == before
        assert buffer.update_priorities(old, [9.0] * 10) == 6
        assert buffer.priorities(old[4:]).tolist() == [9] * 6

    @pytest.mark.parametrize("bad", [-1, 10, 2**40])
    def test_an_id_that_was_never_given_is_refused_before_anything_changes(
        self, make_buffer: MakeBuffer, bad: int
    ) -> None:
        buffer = numbered(make_buffer, 16, "prioritized")
        ids = add_numbers(buffer, 10)
        with pytest.raises(InvalidArgument, match=str(bad)):
            buffer.update_priorities([*ids, bad], np.full(11, 5.0))
        assert buffer.priorities(ids).tolist() == [1] * 10

    @pytest.mark.parametrize("bad", [float("nan"), float("inf"), -float("inf")])
    def test_an_update_with_a_bad_number_changes_nothing(
        self, make_buffer: MakeBuffer, bad: float
    ) -> None:
        buffer = numbered(make_buffer, 16, "prioritized")
        ids = add_numbers(buffer, 10)
        total = buffer.total_priority
        with pytest.raises(InvalidArgument, match="finite"):
            buffer.update_priorities(ids, [5.0] * 9 + [bad])
        assert buffer.priorities(ids).tolist() == [1] * 10
        assert buffer.total_priority == total

    def test_ids_and_errors_come_in_pairs(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 16, "prioritized")
        ids = add_numbers(buffer, 10)
        with pytest.raises(InvalidArgument, match=r"10 ids but 9"):
            buffer.update_priorities(ids, np.ones(9))
        assert buffer.update_priorities([], []) == 0

    @pytest.mark.parametrize("gone", [0, 99])
    def test_the_priority_of_a_row_that_is_gone_is_refused(
        self, make_buffer: MakeBuffer, gone: int
    ) -> None:
        buffer = numbered(make_buffer, 10, "prioritized")
        add_numbers(buffer, 14)
        with pytest.raises(RowGone):
            buffer.priorities([5, gone])

    @pytest.mark.parametrize("strategy", [s for s in STRATEGIES if s not in WEIGHTED])
    def test_other_strategies_keep_no_priorities(
        self, make_buffer: MakeBuffer, strategy: str
    ) -> None:
        buffer = numbered(make_buffer, 10, strategy)
        ids = add_numbers(buffer, 5)
        calls: list[Any] = [
            lambda: buffer.update_priorities(ids, np.ones(5)),
            lambda: buffer.priorities(ids),
            lambda: buffer.total_priority,
            lambda: buffer.max_priority,
            lambda: buffer.alpha,
        ]
        for call in calls:
            with pytest.raises(InvalidArgument, match=strategy):
                call()

    def test_sampling_changes_no_priority(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 50, "prioritized")
        ids = add_numbers(buffer, 50, priority=np.arange(50))
        total = buffer.total_priority
        for _ in range(50):
            buffer.sample(32)
        assert buffer.priorities(ids).tolist() == list(range(50))
        assert buffer.total_priority == total
