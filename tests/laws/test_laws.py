"""Everything is drawn as often as its law says, and weighs what it says: one test for the table."""

from __future__ import annotations

import zlib
from collections.abc import Iterable
from pathlib import Path

import numpy as np
import pytest

from conformance.shared import MARKS
from laws import laws
from laws.checks import check
from laws.places import draw_all, scene
from laws.table import RACE, THREES, Case, cases

pytestmark = MARKS


@pytest.mark.parametrize("case", cases(), ids=str)
def test_draws_and_weights_follow_the_law(case: Case, tmp_path: Path) -> None:
    follows_the_law(case, tmp_path)


@pytest.mark.parametrize("case", THREES, ids=str)
def test_what_only_three_together_show_follows_the_law(case: Case, tmp_path: Path) -> None:
    follows_the_law(case, tmp_path)


@pytest.mark.soak
@pytest.mark.parametrize("case", cases(strength=3), ids=str)
def test_every_three_together_follow_the_law(case: Case, tmp_path: Path) -> None:
    follows_the_law(case, tmp_path, more=2)


def test_consumers_that_race_for_the_last_rows_of_a_queue_lose_none(tmp_path: Path) -> None:
    none = np.empty(0, np.int64)
    with scene(RACE, 0, tmp_path) as made:
        made.draw(draw_all, 1)
        for _ in range(200):
            made.store.write(RACE.content.rows)
            seen = made.draw(draw_all, RACE.draw.batch)
            wrong = laws.queue(made.store.rows(), none, 1, [handle.all_ids for handle in seen])
            fail_if([] if wrong is None else [wrong])


def follows_the_law(case: Case, folder: Path, more: int = 1) -> None:
    with scene(case, zlib.crc32(str(case).encode()), folder) as made:
        fail_if(check(made, more))


def fail_if(wrong: Iterable[str]) -> None:
    lines = list(wrong)
    if lines:
        pytest.fail("\n".join(lines), pytrace=False)
