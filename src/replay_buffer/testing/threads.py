"""Threads on one handle: no row is torn, lost or given twice."""

from __future__ import annotations

import itertools

import numpy as np
import pytest

from .content import MakeBuffer, add_numbers, assert_whole, live_ids, masses, numbered
from .crowd import Crowd, together


class Threads:
    def test_rows_of_several_writers_are_all_stored_once(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 4000)
        ids: dict[int, list[int]] = {}

        def write(me: int) -> None:
            mine = []
            for k in range(0, 900, 9):
                mine += add_numbers(buffer, 8, first=1000 * me + k).tolist()
                mine.append(buffer.add(1000 * me + k + 8, [1000 * me + k + 8] * 3))
            ids[me] = mine

        together(*(lambda me=me: write(me) for me in range(4)))
        assert len(buffer) == 3600
        assert sorted(itertools.chain(*ids.values())) == live_ids(buffer).tolist()
        for me, mine in ids.items():
            assert buffer.get(mine)["k"].tolist() == list(range(1000 * me, 1000 * me + 900))

    @pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank", "without_replacement"])
    def test_no_batch_holds_a_torn_row_while_others_write(
        self, make_buffer: MakeBuffer, strategy: str
    ) -> None:
        buffer = numbered(make_buffer, 64, strategy)
        add_numbers(buffer, 64)
        with Crowd() as crowd:
            for _ in range(2):
                crowd.repeat(add_numbers, buffer, 7)
            for _ in range(150):
                batch = buffer.sample(32)
                assert_whole(batch)
                if buffer.config.weighted:
                    assert np.isfinite(batch["weights"]).all()
                    buffer.update_priorities(batch["indices"], np.ones(32))
                assert_whole(buffer.latest(10))
        assert len(buffer) == 64
        if strategy == "prioritized":
            expected = masses(buffer.priorities(live_ids(buffer)), 0.6).sum()
            assert buffer.total_priority == pytest.approx(expected, rel=1e-5)

    def test_a_queue_gives_each_row_to_one_of_its_readers(self, make_buffer: MakeBuffer) -> None:
        buffer = numbered(make_buffer, 2000, "fifo")
        ids = add_numbers(buffer, 2000)
        taken: list[int] = []

        def take() -> None:
            for _ in range(100):
                taken.extend(buffer.sample(10)["indices"].tolist())

        together(take, take)
        assert sorted(taken) == ids.tolist()
