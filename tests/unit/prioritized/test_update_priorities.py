"""update_priorities: magnitudes by row id; stale ids are skipped, bad calls are refused."""

from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Closed, InvalidArgument, ReplayBuffer
from unit.prioritized.law import Ids, assert_law, fill, live_ids, make, masses, rank_masses

WEIGHTED = pytest.mark.parametrize("strategy", ["prioritized", "rank"])


def test_the_use_that_the_documentation_shows() -> None:
    config = BufferConfig(capacity=1000, strategy="prioritized", alpha=0.6, beta=0.4)
    buffer = ReplayBuffer(config, obs_shape=(8,), action_dim=4, seed=0)
    rng = np.random.default_rng(0)
    for _ in range(50):
        buffer.add(rng.random(8), int(rng.integers(4)), 1.0, rng.random(8), False)
    batch = buffer.sample(batch_size=32)
    td_errors = rng.normal(size=32).astype(np.float32)
    assert buffer.update_priorities(batch["indices"], td_errors) == 32
    last = dict(zip(batch["indices"], np.abs(td_errors), strict=True))
    assert buffer.priorities(list(last)).tolist() == list(last.values())
    assert buffer.sample(32)["weights"].shape == (32,)


@WEIGHTED
@pytest.mark.parametrize("rows", [1, 2, 33, 256, 257, 600, 2000])  # around the sizes of chunks
def test_magnitudes_are_taken(strategy: str, rows: int) -> None:
    errors = np.random.default_rng(rows).normal(0, 3, rows).astype(np.float32)
    buffer = make(rows, strategy)
    ids = fill(buffer, np.ones(rows))
    order = np.random.default_rng(1).permutation(rows)
    assert buffer.update_priorities(ids[order], errors[order]) == rows
    assert np.array_equal(buffer.priorities(ids), np.abs(errors))
    assert buffer.total_priority == pytest.approx(masses(np.abs(errors), 0.6).sum(), rel=1e-6)
    law = masses if strategy == "prioritized" else rank_masses
    assert_law(buffer, ids, law(np.abs(errors), 0.6), rows=30_000, batch_size=50)


@pytest.mark.parametrize("dtype", [np.float16, np.float32, np.float64, np.int8, np.int64, np.uint8])
def test_errors_of_any_number_type(dtype: Any) -> None:
    buffer = make(4)
    ids = fill(buffer, np.ones(4))
    assert buffer.update_priorities(ids, np.array([0, 1, 2, 100], dtype)) == 4
    assert buffer.priorities(ids).tolist() == [0, 1, 2, 100]


def test_the_most_negative_whole_number_has_a_magnitude() -> None:
    buffer = make(1)
    ids = fill(buffer, [1])
    buffer.update_priorities(ids, np.array([-128], np.int8))
    assert buffer.priorities(ids).tolist() == [128]


@pytest.mark.parametrize("form", [list, tuple, np.int32, np.uint64, np.int16, ">i8", "strided"])
def test_ids_of_any_form(form: Any) -> None:
    buffer = make(4)
    fill(buffer, np.ones(4))
    ids: Any = [3, 0, 2]
    if form == "strided":
        ids = np.array([3, 9, 0, 9, 2, 9])[::2]
    else:
        ids = np.array(ids, form) if isinstance(form, str) else form(ids)
    assert buffer.update_priorities(ids, [0.5, 0.25, 0.125]) == 3
    assert buffer.priorities([0, 1, 2, 3]).tolist() == [0.25, 1, 0.125, 0.5]


def test_errors_in_the_other_byte_order_and_keywords() -> None:
    buffer = make(2)
    ids = fill(buffer, [1, 1])
    assert buffer.update_priorities(ids, np.array([0.5, 2.0], ">f4")) == 2
    assert buffer.priorities(ids).tolist() == [0.5, 2.0]
    assert buffer.update_priorities(indices=ids, td_errors=[3.0, 4.0]) == 2
    assert buffer.priorities(ids).tolist() == [3.0, 4.0]


def test_nothing_to_update_is_no_error() -> None:
    buffer = make(2)
    assert buffer.update_priorities([], []) == 0
    fill(buffer, [1, 1])
    assert buffer.update_priorities([], []) == 0
    assert buffer.update_priorities(np.empty(0, np.int64), np.empty(0, np.float32)) == 0


@WEIGHTED
def test_the_last_of_two_values_for_a_row_counts(strategy: str) -> None:
    buffer = make(3, strategy)
    ids = fill(buffer, [1, 1, 1])
    assert buffer.update_priorities([*ids, ids[0], ids[0]], [5, 6, 7, 8, 2]) == 5
    assert buffer.priorities(ids).tolist() == [2, 6, 7]
    assert buffer.total_priority == pytest.approx(masses([2, 6, 7], 0.6).sum(), rel=1e-6)
    law = masses if strategy == "prioritized" else rank_masses
    assert_law(buffer, ids, law([2, 6, 7], 0.6), rows=5000)


@WEIGHTED
@pytest.mark.parametrize("behind", [1, 3, 9])
def test_stale_ids_are_skipped_and_counted(strategy: str, behind: int) -> None:
    buffer = make(10, strategy)
    old = fill(buffer, np.ones(10))
    new = fill(buffer, np.full(behind, 0.5))
    assert buffer.update_priorities(old, np.full(10, 3.0)) == 10 - behind
    assert buffer.update_priorities(old[:1], [4.0]) == 0
    stats = buffer.stats()
    assert (stats["updates_applied"], stats["updates_stale"]) == (10 - behind, behind + 1)
    assert buffer.priorities(new).tolist() == [0.5] * behind
    assert buffer.priorities(old[behind:]).tolist() == [3.0] * (10 - behind)
    assert buffer.max_priority == 3.0


def test_a_skipped_value_does_not_become_the_maximum() -> None:
    buffer = make(2)
    old = fill(buffer, [1, 1])
    fill(buffer, [1, 1])
    assert buffer.update_priorities(old, [50.0, 60.0]) == 0
    assert buffer.max_priority == 1.0


def test_ids_of_cleared_rows_are_stale() -> None:
    buffer = make(5)
    old = fill(buffer, [1, 2, 3])
    buffer.clear()
    assert buffer.update_priorities(old, [4, 5, 6]) == 0
    assert buffer.total_priority == 0.0
    new = fill(buffer, [1, 1])
    assert buffer.update_priorities([*old, *new], [4, 5, 6, 7, 8]) == 2
    assert buffer.priorities(new).tolist() == [7, 8]


def snapshot(buffer: ReplayBuffer) -> tuple[Any, ...]:
    ids: Ids = live_ids(buffer)
    counters = buffer.stats()
    return (
        buffer.priorities(ids).tolist(),
        buffer.total_priority,
        buffer.max_priority,
        counters["updates_applied"],
        counters["updates_stale"],
    )


@pytest.mark.parametrize("rows", [4, 1000])
@pytest.mark.parametrize("place", [0, -1])
@pytest.mark.parametrize("bad", [np.nan, np.inf, -np.inf, 1e39, -1e300])
def test_a_value_that_is_not_finite_refuses_the_whole_call(
    bad: float, place: int, rows: int
) -> None:
    buffer = make(rows)
    ids = fill(buffer, np.ones(rows))
    before = snapshot(buffer)
    errors = np.full(rows, 7.0)
    errors[place] = bad
    for values in (errors, errors.tolist()):
        with pytest.raises(InvalidArgument, match="finite"):
            buffer.update_priorities(ids, values)
    with pytest.raises(InvalidArgument, match="finite"), np.errstate(over="ignore"):
        buffer.update_priorities(ids, errors.astype(np.float32))
    assert snapshot(buffer) == before


@pytest.mark.parametrize("rows", [4, 1000])
@pytest.mark.parametrize("unknown", [-1, 10**6, 2**62, -(2**63)])
def test_an_id_that_was_never_given_refuses_the_whole_call(unknown: int, rows: int) -> None:
    buffer = make(rows + 1)
    ids = fill(buffer, np.ones(rows))
    before = snapshot(buffer)
    for wrong in (unknown, rows):
        for place in (0, rows - 1):
            bad = ids.copy()
            bad[place] = wrong
            with pytest.raises(InvalidArgument, match="never given"):
                buffer.update_priorities(bad, np.full(rows, 7.0))
    assert snapshot(buffer) == before


def test_an_id_that_was_never_given_is_refused_after_the_wrap_and_after_clear() -> None:
    buffer = make(4)
    ids = fill(buffer, np.ones(6))
    for unknown in (6, 7, 8, 400):
        with pytest.raises(InvalidArgument, match="never given"):
            buffer.update_priorities([ids[5], unknown], [7.0, 7.0])
    assert buffer.priorities(ids[2:]).tolist() == [1] * 4
    buffer.clear()
    for unknown in (100, 101, 102, 103):
        with pytest.raises(InvalidArgument, match="never given"):
            buffer.update_priorities([unknown], [7.0])


@pytest.mark.parametrize("block_rows", [1, 4, 19])
def test_the_next_id_is_refused_after_clear_in_a_block_begun_anew(block_rows: int) -> None:
    buffer = make(19, block_rows=block_rows)
    fill(buffer, np.ones(19))
    buffer.clear()
    for _ in range(3):
        row = buffer.add(0)
        with pytest.raises(InvalidArgument, match="never given"):
            buffer.update_priorities([row, row + 1], [7.0, 7.0])
        assert buffer.priorities([row]).tolist() == [1.0]


def test_an_id_is_refused_before_the_columns_are_settled() -> None:
    buffer = ReplayBuffer(BufferConfig(capacity=10, strategy="prioritized"))
    assert buffer.update_priorities([], []) == 0
    with pytest.raises(InvalidArgument, match="never given"):
        buffer.update_priorities([0], [1.0])


@pytest.mark.parametrize(
    ("ids", "errors"),
    [
        ([0, 1], [1.0]),
        ([0], [1.0, 2.0]),
        ([0, 1], []),
        ([], [1.0]),
        ([0, 1], [[1.0, 2.0]]),
        ([[0, 1]], [[1.0, 2.0]]),
        ([0, 1], 1.0),
        (0, 1.0),
        ([0.0, 1.0], [1.0, 2.0]),
        (["0", "1"], [1.0, 2.0]),
        ([0, 1], ["1", "2"]),
        ([0, 1], [1j, 2j]),
        ([True, False], [1.0, 2.0]),
        ([0, None], [1.0, 2.0]),
        ([0, 1], None),
    ],
)
def test_shapes_and_types_that_do_not_fit_are_refused(ids: Any, errors: Any) -> None:
    buffer = make(4)
    fill(buffer, np.ones(4))
    before = snapshot(buffer)
    with pytest.raises(InvalidArgument):
        buffer.update_priorities(ids, errors)
    if isinstance(ids, list) and isinstance(errors, list) and len(ids) != len(errors):
        with pytest.raises(InvalidArgument):
            buffer.update_priorities(np.array(ids, np.int64), np.array(errors, np.float32))
    assert snapshot(buffer) == before


@pytest.mark.parametrize("strategy", ["uniform", "without_replacement", "fifo", "lifo"])
def test_buffers_without_priorities_refuse(strategy: str) -> None:
    buffer = make(4, strategy)
    row = buffer.add(0)
    with pytest.raises(InvalidArgument, match="priorities"):
        buffer.update_priorities([row], [1.0])
    with pytest.raises(InvalidArgument, match="priorities"):
        buffer.priorities([row])


def test_closed_buffers_refuse() -> None:
    buffer = make(4)
    ids = fill(buffer, [1.0])
    buffer.close()
    for call in (
        lambda: buffer.update_priorities(ids, [1.0]),
        lambda: buffer.priorities(ids),
        lambda: buffer.total_priority,
        lambda: buffer.max_priority,
        lambda: buffer.alpha,
    ):
        with pytest.raises(Closed):
            call()


def test_lists_of_different_lengths_are_refused_by_name() -> None:
    buffer = make(3)
    fill(buffer, [1.0, 2.0, 3.0])
    ragged: Any = [[1, 2], [0]]
    for call, name in (
        (lambda: buffer.priorities(ragged), "row ids"),
        (lambda: buffer.update_priorities(ragged, [5.0, 5.0]), "row ids"),
        (lambda: buffer.update_priorities([0, 1], ragged), "td_errors"),
        (lambda: buffer.add_batch([1, 2], priority=ragged), "priority"),
    ):
        with pytest.raises(InvalidArgument, match=rf"{name} must be .*, not \[\[1, 2\], \[0\]\]"):
            call()
    assert buffer.priorities([0, 1, 2]).tolist() == [1.0, 2.0, 3.0]


def test_masked_ids_are_refused() -> None:
    buffer = make(10)
    fill(buffer, [1.0, 2.0])
    masked = np.ma.array([0, 1], mask=[False, True])
    for call in (buffer.get, buffer.priorities, lambda ids: buffer.update_priorities(ids, [5, 5])):
        with pytest.raises(InvalidArgument, match="masked"):
            call(masked)
    assert buffer.priorities([0, 1]).tolist() == [1, 2]
