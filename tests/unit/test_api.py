"""What a user can rely on: the calls of the package, and what they give back."""

from __future__ import annotations

import collections
import copy
import gc
import pickle
import weakref
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Closed,
    Column,
    InvalidArgument,
    NotEnoughRows,
    ReplayBuffer,
    ReplayBufferError,
    RowGone,
    Schema,
    SchemaMismatch,
)

OBS = np.arange(3, dtype=np.float32)


def make(capacity: int = 8, rows: int = 0, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(capacity, **options), obs_shape=(3,), action_dim=4, seed=0)
    for k in range(rows):
        buffer.add(OBS + k, k % 4, k / 2, OBS + k + 1, k % 2 == 1)
    return buffer


def test_the_example_of_the_specification_works_as_written() -> None:
    config = BufferConfig(capacity=1_000_000)
    buffer = ReplayBuffer(config, obs_shape=(84, 84, 4), action_dim=6)
    obs = np.full((84, 84, 4), 7, np.uint8)
    next_obs = np.full((84, 84, 4), 8, np.uint8)
    buffer.add(obs, 5, 1.0, next_obs, False)
    batch = buffer.sample(batch_size=32)
    assert type(batch) is dict
    assert {name: (column.dtype.name, column.shape) for name, column in batch.items()} == {
        "obs": ("uint8", (32, 84, 84, 4)),
        "action": ("int64", (32,)),
        "reward": ("float32", (32,)),
        "next_obs": ("uint8", (32, 84, 84, 4)),
        "done": ("bool", (32,)),
        "indices": ("int64", (32,)),
    }
    assert (batch["obs"] == 7).all()
    assert (batch["next_obs"] == 8).all()
    assert (batch["action"] == 5).all()


def test_a_batch_is_columns_in_the_order_of_the_schema_then_indices() -> None:
    batch = make(rows=3).sample(2)
    assert list(batch) == ["obs", "action", "reward", "next_obs", "done", "indices"]
    assert all(type(column) is np.ndarray for column in batch.values())
    assert all(column.flags.carray and column.flags.owndata for column in batch.values())


def test_add_returns_the_row_id_as_int() -> None:
    buffer = make(2)
    assert [buffer.add(OBS, 0, 0.0, OBS, False) for _ in range(5)] == [0, 1, 2, 3, 4]
    assert type(buffer.add(OBS, 0, 0.0, OBS, False)) is int


def test_add_batch_returns_one_id_for_each_row() -> None:
    buffer = make(rows=2)
    rows = np.zeros((3, 3), np.float32)
    ids = buffer.add_batch(rows, [0, 1, 2], [0.0, 1.0, 2.0], rows, [False] * 3)
    assert ids.tolist() == [2, 3, 4]
    assert ids.dtype == np.int64
    assert buffer.get(ids)["action"].tolist() == [0, 1, 2]


def test_add_batch_larger_than_the_capacity_keeps_the_last_rows() -> None:
    buffer = make(4)
    n = 11
    rows = np.zeros((n, 3), np.float32)
    ids = buffer.add_batch(rows, np.zeros(n, np.int64), np.arange(n), rows, np.zeros(n, bool))
    assert ids.tolist() == list(range(n))
    assert buffer.latest(9)["reward"].tolist() == [7, 8, 9, 10]


def test_size_length_and_is_full_agree() -> None:
    buffer = make(3)
    for expected in (0, 1, 2, 3, 3):
        assert len(buffer) == buffer.size == expected
        assert buffer.is_full is (expected == 3)
        assert buffer.capacity == 3
        buffer.add(OBS, 0, 0.0, OBS, False)


def test_an_empty_buffer_is_true() -> None:
    assert make()


def test_latest_gives_the_newest_rows_oldest_first() -> None:
    buffer = make(4, rows=6)
    assert buffer.latest(3)["reward"].tolist() == [1.5, 2.0, 2.5]
    assert buffer.latest(3)["indices"].tolist() == [3, 4, 5]


def test_latest_gives_all_when_there_are_fewer() -> None:
    assert make(4, rows=2).latest(100)["indices"].tolist() == [0, 1]
    assert make(4, rows=9).latest(2**40)["indices"].tolist() == [5, 6, 7, 8]


def test_latest_of_no_rows_has_columns_of_length_zero() -> None:
    buffer = make(4, rows=2)
    buffer.clear()
    assert {name: column.shape for name, column in buffer.latest(2).items()} == {
        "obs": (0, 3),
        "action": (0,),
        "reward": (0,),
        "next_obs": (0, 3),
        "done": (0,),
        "indices": (0,),
    }


def test_get_gives_rows_in_the_order_asked_for_also_twice() -> None:
    batch = make(4, rows=6).get([5, 2, 5])
    assert batch["indices"].tolist() == [5, 2, 5]
    assert batch["reward"].tolist() == [2.5, 1.0, 2.5]


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda ids: np.array(ids, np.uint16)])
def test_get_takes_ids_of_any_whole_type(kind: Any) -> None:
    assert make(4, rows=3).get(kind([2, 0]))["indices"].tolist() == [2, 0]


def test_get_does_not_keep_the_callers_ids() -> None:
    buffer = make(4, rows=4)
    ids = np.array([0, 1])
    batch = buffer.get(ids)
    buffer.sample(2, out=batch)
    batch["indices"][:] = 77
    assert ids.tolist() == [0, 1]


@pytest.mark.parametrize("gone", [0, 1, 6, 10**12, -1])
def test_get_names_the_row_that_is_gone(gone: int) -> None:
    with pytest.raises(RowGone, match=str(gone)):
        make(4, rows=6).get([3, gone])


def test_sample_more_rows_than_are_stored() -> None:
    assert len(make(4, rows=2).sample(1000)["indices"]) == 1000


def test_sample_takes_whole_numbers_of_numpy() -> None:
    assert len(make(rows=2).sample(np.int32(5))["obs"]) == 5


def test_sample_out_fills_the_arrays_of_the_caller() -> None:
    buffer = make(rows=5)
    out = {name: np.zeros_like(column) for name, column in buffer.sample(16).items()}
    arrays = dict(out)
    batch = buffer.sample(16, out=out)
    assert batch is out
    assert all(out[name] is array for name, array in arrays.items())
    assert out["reward"].tolist() == [k / 2 for k in out["indices"].tolist()]
    assert set(out["indices"].tolist()) <= set(range(5))


def test_sample_out_gives_what_sample_gives() -> None:
    fresh, reused = make(rows=5), make(rows=5)
    out = {name: np.zeros_like(column) for name, column in fresh.sample(16).items()}
    reused.sample(16)
    for _ in range(5):
        expected = fresh.sample(16)
        got = reused.sample(16, out=out)
        assert all((got[name] == expected[name]).all() for name in expected)


def test_sample_out_leaves_other_keys_alone() -> None:
    buffer = make(rows=5)
    out = buffer.sample(4)
    out["mine"] = "untouched"
    assert buffer.sample(4, out=out)["mine"] == "untouched"


def test_sample_out_takes_any_dict() -> None:
    buffer = make(rows=5)
    out = collections.OrderedDict(buffer.sample(4))
    assert buffer.sample(4, out=out) is out


def test_sample_out_takes_equal_dtypes_of_another_c_type() -> None:
    buffer = make(rows=5)
    out = {**buffer.sample(4), "indices": np.zeros(4, np.longlong)}
    buffer.sample(4, out=out)
    assert out["reward"].tolist() == [k / 2 for k in out["indices"].tolist()]


def test_sample_out_of_nested_columns() -> None:
    schema = Schema(
        {"obs": {"a": Column((2,)), "b": Column((), "int16")}, "k": Column((), "int64")}
    )
    buffer = ReplayBuffer(BufferConfig(4), schema=schema)
    buffer.add({"a": [1, 2], "b": 3}, 4)
    out = buffer.sample(3)
    inner = out["obs"]
    inner["a"][:] = 0
    buffer.sample(3, out=out)
    assert out["obs"] is inner
    assert inner["a"].tolist() == [[1, 2]] * 3


def test_clear_forgets_rows_and_keeps_columns() -> None:
    buffer = make(4, rows=6)
    buffer.clear()
    assert len(buffer) == 0
    assert buffer.schema is not None
    with pytest.raises(NotEnoughRows):
        buffer.sample(1)
    with pytest.raises(RowGone):
        buffer.get([5])
    assert buffer.add(OBS, 1, 0.0, OBS, False) > 5
    assert buffer.sample(3)["action"].tolist() == [1, 1, 1]


def test_clear_of_a_buffer_without_columns_is_nothing() -> None:
    buffer = make()
    buffer.clear()
    assert buffer.schema is None
    assert len(buffer) == 0


CALLS_AFTER_CLOSE = {
    "add": lambda b: b.add(OBS, 0, 0.0, OBS, False),
    "add_batch": lambda b: b.add_batch(OBS[None], [0], [0.0], OBS[None], [False]),
    "sample": lambda b: b.sample(1),
    "latest": lambda b: b.latest(1),
    "get": lambda b: b.get([0]),
    "peek": lambda b: b.peek([0]),
    "peek_latest": lambda b: b.peek_latest(1),
    "size": lambda b: b.size,
    "capacity": lambda b: b.capacity,
    "len": len,
    "is_full": lambda b: b.is_full,
    "clear": lambda b: b.clear(),
    "stats": lambda b: b.stats(),
}


@pytest.mark.parametrize("call", CALLS_AFTER_CLOSE)
@pytest.mark.parametrize("rows", [0, 3])
def test_after_close_every_call_says_closed(call: str, rows: int) -> None:
    buffer = make(rows=rows)
    buffer.close()
    buffer.close()
    assert buffer.closed
    with pytest.raises(Closed):
        CALLS_AFTER_CLOSE[call](buffer)


PROPERTIES = [
    name
    for name, value in vars(ReplayBuffer).items()
    if isinstance(value, property) and name != "_engine"
]


@pytest.mark.parametrize("name", PROPERTIES)
@pytest.mark.parametrize("rows", [0, 3])
def test_after_close_only_what_was_said_before_is_known(name: str, rows: int) -> None:
    buffer = make(rows=rows, strategy="prioritized")
    schema = buffer.schema
    buffer.close()
    config = BufferConfig(8, "prioritized")
    known = {"closed": True, "config": config, "schema": schema, "location": "heap:"}
    if name in known:
        assert getattr(buffer, name) == known[name]
    else:
        with pytest.raises(Closed):
            getattr(buffer, name)


def test_a_context_manager_closes_also_after_an_error() -> None:
    with make(rows=1) as buffer:
        assert len(buffer) == 1
    assert buffer.closed
    with pytest.raises(KeyError), make() as buffer:
        raise KeyError
    assert buffer.closed


def test_a_batch_outlives_its_buffer() -> None:
    buffer = make(rows=3)
    batch = buffer.latest(3)
    buffer.close()
    del buffer
    gc.collect()
    assert batch["reward"].tolist() == [0.0, 0.5, 1.0]


def test_buffers_are_freed_without_close() -> None:
    buffer = make(rows=3)
    seen = weakref.ref(buffer)
    del buffer
    gc.collect()
    assert seen() is None


def test_repr_says_what_is_in_the_buffer() -> None:
    buffer = make(5000, rows=3)
    text = repr(buffer)
    for part in ("3/5,000", "uniform", "obs float32[3]", "action int64 < 4", "done bool"):
        assert part in text
    assert "not settled" in repr(make())
    buffer.close()
    assert "closed" in repr(buffer)


def test_repr_is_safe_while_another_thread_closes(monkeypatch: pytest.MonkeyPatch) -> None:
    buffer = make(rows=3)

    def closing(self: ReplayBuffer) -> int:
        size = self._engine.size()
        buffer.close()
        return size

    monkeypatch.setattr(ReplayBuffer, "size", property(closing))
    assert "closed" in repr(buffer)


def test_stats_count_what_was_done() -> None:
    buffer = make(4, rows=6)
    buffer.sample(5)
    buffer.sample(2, out=buffer.sample(2))
    stats = buffer.stats()
    assert stats["size"] == 4
    assert stats["capacity"] == 4
    assert stats["rows_added"] == 6
    assert stats["samples"] == 3
    assert stats["rows_sampled"] == 9
    assert stats["strategy"] == "uniform"
    assert stats["settled"] is True
    assert make().stats()["settled"] is False


def test_a_failed_sample_counts_for_nothing() -> None:
    def run(fail: bool) -> tuple[Any, Any]:
        buffer = ReplayBuffer(BufferConfig(64), schema={"k": Column((), "int64")}, seed=1)
        if fail:
            with pytest.raises(NotEnoughRows):
                buffer.sample(3)
        buffer.add_batch(np.arange(20))
        return buffer.sample(8)["k"].tolist(), buffer.stats()["samples"]

    assert run(fail=True) == run(fail=False)


def test_buffers_are_neither_copied_nor_pickled() -> None:
    for attempt in (copy.copy, copy.deepcopy, pickle.dumps):
        with pytest.raises(TypeError):
            attempt(make(rows=1))


def test_config_is_kept_and_cannot_change() -> None:
    config = BufferConfig(7)
    assert ReplayBuffer(config).config is config
    with pytest.raises(AttributeError):
        config.capacity = 8  # type: ignore[misc]


def test_config_repr_says_what_differs_from_the_defaults() -> None:
    assert repr(BufferConfig(7)) == "BufferConfig(capacity=7)"
    assert repr(BufferConfig(7, alpha=0.5)) == "BufferConfig(capacity=7, alpha=0.5)"


def test_wrong_arguments_name_the_call_the_user_made() -> None:
    buffer = make(rows=1)
    calls = (lambda: buffer.sample(), lambda: buffer.sample(1, 2), lambda: buffer.sample(1, no=1))
    for call in calls:
        with pytest.raises(TypeError, match=r"sample\(\)") as error:
            call()
        assert "_slow" not in str(error.value)


def test_errors_of_the_package_have_one_base() -> None:
    for error in (InvalidArgument, SchemaMismatch, NotEnoughRows, RowGone, Closed):
        assert issubclass(error, ReplayBufferError)
    assert issubclass(InvalidArgument, ValueError)
    assert issubclass(SchemaMismatch, ValueError)
    assert issubclass(RowGone, LookupError)
