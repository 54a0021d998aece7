"""Rules that other replay buffers broke, for the uniform ring; a number is the rule's own.

Each test fails on the bug it is named after. The rules of priorities stand in prioritized/.
"""

from __future__ import annotations

import random
from typing import Any

import numpy as np
import pytest
from scipy import stats

from replay_buffer import BufferConfig, Column, ReplayBuffer, RowGone, Schema

SCHEMA = Schema({"k": Column((), "int64"), "v": Column((3,), "float32")})


def filled(
    capacity: int, rows: int, *, seed: int = 0, block_rows: int | None = None
) -> ReplayBuffer:
    config = BufferConfig(capacity, block_rows=block_rows)
    buffer = ReplayBuffer(config, schema=SCHEMA, seed=seed)
    for k in range(rows):
        buffer.add(k, [k, -k, k / 2])
    return buffer


def p_uniform(drawn: np.ndarray[Any, Any], rows: list[int]) -> float:
    """How likely a uniform draw over `rows` is at least as uneven as this one."""
    assert set(drawn.tolist()) <= set(rows), "a row came back that is not in the buffer"
    counts = [int((drawn == row).sum()) for row in rows]
    return float(stats.chisquare(counts).pvalue) if len(rows) > 1 else 1.0


# Empty slots behind, full to the last slot, one row over it, in the middle of a lap, laps later.
FILL_LEVELS = [(50, 1), (50, 2), (50, 37), (50, 50), (50, 51), (50, 75), (50, 230), (3, 7), (1, 5)]


@pytest.mark.parametrize(("capacity", "rows"), FILL_LEVELS)
@pytest.mark.parametrize("batch_size", [1, 7, 3000])
def test_rule_01_every_slot_is_drawn_equally_often(
    capacity: int, rows: int, batch_size: int
) -> None:
    buffer = filled(capacity, rows)
    live = list(range(rows))[-capacity:]
    n = 300 * len(live)
    drawn = [buffer.sample(batch_size)["k"] for _ in range(-(-n // batch_size))]
    assert p_uniform(np.concatenate(drawn), live) > 1e-4


@pytest.mark.parametrize("block_rows", [1, 3, 16, 50])
def test_rule_01_blocks_do_not_show_in_the_draw(block_rows: int) -> None:
    buffer = filled(50, 117, block_rows=block_rows)
    assert p_uniform(buffer.sample(20_000)["k"], list(range(67, 117))) > 1e-4


def test_rule_01_the_newest_row_is_drawn_as_soon_as_it_is_added() -> None:
    buffer = filled(5, 0)
    for k in range(17):
        buffer.add(k, [0, 0, 0])
        assert k in buffer.sample(200)["k"]


def test_rule_01_draws_of_one_batch_are_independent() -> None:
    pairs = filled(4, 4).sample(40_000)["k"].reshape(-1, 2)
    counts = np.bincount(pairs[:, 0] * 4 + pairs[:, 1], minlength=16)
    assert stats.chisquare(counts).pvalue > 1e-4


def test_rule_08_indices_are_row_ids_not_slots() -> None:
    buffer = filled(4, 11)  # ids 7 to 10 are there, slots 0 to 3
    batch = buffer.sample(100)
    assert set(batch["indices"].tolist()) == {7, 8, 9, 10}
    assert batch["indices"].tolist() == batch["k"].tolist()
    assert batch["indices"].dtype == np.int64


def test_rule_08_an_id_never_names_the_row_that_came_after() -> None:
    buffer = filled(4, 4)
    ids = buffer.sample(1)["indices"]
    for k in range(4, 8):
        buffer.add(k, [0, 0, 0])  # every slot is now held by a later row
    with pytest.raises(RowGone):
        buffer.get(ids)


def test_rule_08_ids_are_not_given_again_after_clear() -> None:
    buffer = filled(4, 3)
    buffer.clear()
    for old in range(3):
        with pytest.raises(RowGone):
            buffer.get([old])
    new = [buffer.add(k, [0, 0, 0]) for k in range(9)]
    assert min(new) >= 3
    assert new == sorted(set(new))
    for old in range(3):
        with pytest.raises(RowGone):
            buffer.get([old])


def everything(buffer: ReplayBuffer) -> dict[str, bytes]:
    return {name: column.tobytes() for name, column in buffer.latest(buffer.capacity).items()}


@pytest.mark.parametrize("rows", [3, 10, 26])
def test_rule_09_sampling_changes_nothing_that_is_stored(rows: int) -> None:
    buffer = filled(10, rows)
    before = everything(buffer)
    batch = buffer.sample(64)
    for _ in range(50):
        buffer.sample(7)
        buffer.sample(64, out=batch)
        buffer.latest(3)
        buffer.get(batch["indices"][:2])
    assert everything(buffer) == before
    assert len(buffer) == min(rows, 10)


def test_rule_09_a_batch_is_the_callers_own() -> None:
    buffer = filled(10, 10)
    before = everything(buffer)
    for batch in (buffer.sample(10), buffer.latest(10), buffer.get(np.arange(10))):
        for column in batch.values():
            column[...] = 99
    assert everything(buffer) == before


def test_rule_09_a_row_is_the_buffers_own() -> None:
    buffer = ReplayBuffer(BufferConfig(4), schema=SCHEMA)
    value = np.array([1, 2, 3], np.float32)
    buffer.add(0, value)
    buffer.add_batch(np.array([1]), value[None])
    value[...] = 99
    assert buffer.latest(2)["v"].tolist() == [[1, 2, 3], [1, 2, 3]]


def batches(seed: int | None, n: int = 20) -> list[list[int]]:
    config = BufferConfig(50)
    buffer = ReplayBuffer(config, schema=SCHEMA, seed=seed)
    for k in range(80):
        buffer.add(k, [k, k, k])
    return [buffer.sample(8)["k"].tolist() for _ in range(n)]


def test_rule_10_the_same_seed_gives_the_same_batches() -> None:
    assert batches(7) == batches(7)
    assert batches(7) != batches(8)


def test_rule_10_batches_of_one_buffer_differ() -> None:
    assert len({tuple(batch) for batch in batches(7)}) == 20


def test_rule_10_without_a_seed_runs_differ() -> None:
    assert batches(None) != batches(None)


def test_rule_10_global_generators_are_neither_used_nor_moved() -> None:
    np.random.seed(1)  # noqa: NPY002
    random.seed(1)
    numpy_before, python_before = np.random.get_state()[1].tolist(), random.getstate()  # noqa: NPY002
    first = batches(7)
    assert np.random.get_state()[1].tolist() == numpy_before  # noqa: NPY002
    assert random.getstate() == python_before
    np.random.seed(2)  # noqa: NPY002
    random.seed(2)
    assert batches(7) == first


def test_rule_20_terminated_and_truncated_are_two_columns() -> None:
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    buffer.add([0.0, 1.0], 1, 0.5, [1.0, 2.0], True, False)
    buffer.add([0.0, 1.0], 1, 0.5, [1.0, 2.0], False, True)
    batch = buffer.latest(2)
    assert batch["terminated"].tolist() == [True, False]
    assert batch["truncated"].tolist() == [False, True]
    assert "done" not in batch


def test_rule_20_terminated_and_truncated_by_name() -> None:
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    row = {"obs": [0.0, 1.0], "action": 1, "reward": 0.5, "next_obs": [1.0, 2.0]}
    buffer.add(**row, terminated=False, truncated=True)
    buffer.add(*row.values(), terminated=True, truncated=False)
    batch = buffer.latest(2)
    assert batch["terminated"].tolist() == [False, True]
    assert batch["truncated"].tolist() == [True, False]


@pytest.mark.parametrize("by_name", [False, True])
def test_rule_20_done_is_shorthand_for_terminated(by_name: bool) -> None:
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    row = {"obs": [0.0, 1.0], "action": 1, "reward": 0.5, "next_obs": [1.0, 2.0]}
    buffer.add(*row.values(), False, False)
    if by_name:
        buffer.add(**row, done=True)
        buffer.add_batch(**{name: [value] * 2 for name, value in row.items()}, done=[True, False])
    else:
        buffer.add(*row.values(), True)
        buffer.add_batch(*([value] * 2 for value in row.values()), [True, False])
    batch = buffer.latest(4)
    assert batch["terminated"].tolist() == [False, True, True, False]
    assert batch["truncated"].tolist() == [False] * 4


def test_rule_20_done_with_truncated_is_terminated() -> None:
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    row = ([0.0, 1.0], 1, 0.5, [1.0, 2.0])
    buffer.add(*row, True, truncated=False)
    buffer.add(*row, done=False, truncated=True)
    batch = buffer.latest(2)
    assert batch["terminated"].tolist() == [True, False]
    assert batch["truncated"].tolist() == [False, True]


def test_rule_20_five_values_are_stored_as_done() -> None:
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    buffer.add([0.0, 1.0], 1, 0.5, [1.0, 2.0], True)
    assert buffer.sample(1)["done"].tolist() == [True]
