"""Schemas: any named, typed columns, nested or not, stored and given back exactly."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, InvalidArgument, ReplayBuffer, Schema
from replay_buffer.schema import DTYPES


def buffer_of(schema: Any, capacity: int = 8) -> ReplayBuffer:
    return ReplayBuffer(BufferConfig(capacity), schema=schema, seed=0)


def extremes(dtype: str) -> list[Any]:
    kind = np.dtype(dtype)
    if kind.kind == "b":
        return [False, True, True]
    if kind.kind == "f":
        info = np.finfo(kind)
        return [info.max, info.smallest_subnormal, -np.inf]
    limits = np.iinfo(kind)
    return [limits.min, limits.max, limits.max // 3]


@pytest.mark.parametrize("dtype", DTYPES)
@pytest.mark.parametrize("large", [False, True])
def test_every_dtype_keeps_its_extreme_values_bit_by_bit(dtype: str, large: bool) -> None:
    shape = (3, 500) if large else (3,)  # large columns lie outside of the packed records
    value = np.zeros(shape, dtype)
    value.reshape(3, -1)[:, -1] = extremes(dtype)
    buffer = buffer_of({"x": Column(shape, dtype)})
    buffer.add(value)
    buffer.add_batch(np.stack([value, value]))
    batch = buffer.sample(20)
    assert batch["x"].dtype == dtype
    assert all(row.tobytes() == value.tobytes() for row in batch["x"])


@pytest.mark.parametrize("dtype", DTYPES)
def test_every_dtype_of_scalars_takes_numbers_of_python_and_numpy(dtype: str) -> None:
    buffer = buffer_of({"x": Column((), dtype)})
    for value in extremes(dtype):
        buffer.add(value)
        buffer.add(np.dtype(dtype).type(value))
        buffer.add(np.array(value, dtype))
        assert buffer.latest(3)["x"].tolist() == [np.dtype(dtype).type(value)] * 3


def test_not_a_number_is_a_value_like_any_other() -> None:
    buffer = buffer_of({"x": Column((2,)), "y": Column()})
    buffer.add(np.array([np.nan, 1], np.float32), float("nan"))
    batch = buffer.sample(1)
    assert np.isnan(batch["x"]).tolist() == [[True, False]]
    assert np.isnan(batch["y"]).all()


def test_columns_next_to_each_other_do_not_touch() -> None:
    """Odd sizes in every order: a write of one byte too many would show."""
    fields = {
        f"{dtype}_{n}": Column((n,), dtype)
        for n in (1, 3, 5, 7, 1030)
        for dtype in ("uint8", "float64", "int16", "float32")
    }
    rng = np.random.default_rng(0)
    buffer = buffer_of(fields, capacity=3)
    rows = []
    for _ in range(5):
        row = {
            name: rng.integers(0, 100, column.shape).astype(column.dtype)
            for name, column in fields.items()
        }
        rows.append(row)
        buffer.add(**row)
    batch = buffer.latest(3)
    for name in fields:
        assert (batch[name] == np.stack([row[name] for row in rows[-3:]])).all(), name


NESTED = Schema(
    {
        "obs": {
            "pixels": Column((4, 4), "uint8"),
            "state": {"position": Column((3,)), "lamp": Column((), "bool")},
        },
        "action": Column((), "int64", limit=5),
        "extra": Column((2,), "float64"),
    }
)
NESTED_ROW: dict[str, Any] = {
    "obs": {
        "pixels": np.arange(16, dtype=np.uint8).reshape(4, 4),
        "state": {"position": np.array([1, 2, 3], np.float32), "lamp": True},
    },
    "action": 4,
    "extra": np.array([0.1, 0.2]),
}


def check_nested(batch: Mapping[str, Any], n: int) -> None:
    assert list(batch) == ["obs", "action", "extra", "indices"]
    assert list(batch["obs"]) == ["pixels", "state"]
    assert list(batch["obs"]["state"]) == ["position", "lamp"]
    assert batch["obs"]["pixels"].tolist() == [np.arange(16).reshape(4, 4).tolist()] * n
    assert batch["obs"]["state"]["position"].tolist() == [[1, 2, 3]] * n
    assert batch["obs"]["state"]["lamp"].tolist() == [True] * n
    assert batch["extra"].tolist() == [[0.1, 0.2]] * n


def test_nested_rows_come_back_nested() -> None:
    buffer = buffer_of(NESTED)
    buffer.add(*NESTED_ROW.values())
    buffer.add(**NESTED_ROW)
    check_nested(buffer.sample(6), 6)
    check_nested(buffer.latest(2), 2)
    check_nested(buffer.get([1]), 1)


def test_nested_batches() -> None:
    def repeated(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: repeated(inner) for name, inner in value.items()}
        return np.stack([value] * 3)

    buffer = buffer_of(NESTED)
    buffer.add_batch(**repeated(NESTED_ROW))
    buffer.add_batch(*repeated(NESTED_ROW).values())
    check_nested(buffer.latest(6), 6)


def test_nested_dicts_may_come_in_any_order() -> None:
    def turned(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: turned(value[name]) for name in reversed(value)}
        return value

    buffer = buffer_of(NESTED)
    buffer.add(**turned(NESTED_ROW))
    check_nested(buffer.sample(2), 2)


def test_any_mapping_is_a_nested_row() -> None:
    class Frozen(Mapping[str, Any]):
        def __init__(self, inner: dict[str, Any]) -> None:
            self.inner = inner

        def __getitem__(self, name: str) -> Any:
            return self.inner[name]

        def __iter__(self) -> Any:
            return iter(self.inner)

        def __len__(self) -> int:
            return len(self.inner)

    buffer = buffer_of(NESTED)
    buffer.add(**{**NESTED_ROW, "obs": Frozen(NESTED_ROW["obs"])})
    check_nested(buffer.sample(2), 2)


def test_a_plain_dict_of_columns_is_a_schema() -> None:
    buffer = buffer_of({"a": Column((2,)), "b": Column((), "int8")})
    buffer.add([1, 2], 3)
    assert buffer.schema == Schema({"a": Column((2,)), "b": Column((), "int8")})


def test_names_may_be_any_printable_text() -> None:
    names = ["größe", "a b", "x.y", "self", "out", "n", "values", "columns", "θ" * 40]
    buffer = buffer_of({name: Column((), "int64") for name in names})
    buffer.add(**{name: k for k, name in enumerate(names)})
    batch = buffer.sample(1)
    assert [batch[name].tolist() for name in names] == [[k] for k in range(len(names))]


def test_a_schema_does_not_follow_the_dict_it_was_made_from() -> None:
    inner = {"a": Column()}
    fields: dict[str, Any] = {"obs": inner, "k": Column((), "int64")}
    schema = Schema(fields)
    inner["b"] = Column()
    fields["z"] = Column()
    assert [path for path, _ in schema.columns] == ["obs/a", "k"]
    assert buffer_of(schema).add({"a": 1.0}, 2) == 0


def test_schemas_compare_by_their_columns() -> None:
    assert Schema({"a": Column((2,), "f4")}) == Schema({"a": Column([2], np.float32)})
    assert Schema({"a": Column((2,))}) != Schema({"a": Column((3,))})


def test_a_column_says_what_it_is() -> None:
    assert str(Column()) == "float32"
    assert str(Column((84, 84), "uint8")) == "uint8[84,84]"
    assert str(Column((), "int64", limit=6)) == "int64 < 6"
    assert str(NESTED).startswith("obs/pixels uint8[4,4], obs/state/position float32[3]")


def test_a_column_takes_every_way_to_name_a_dtype() -> None:
    for name in ("int16", np.int16, np.dtype(np.int16), "<i2", ">i2", "h"):
        assert Column((), name).dtype == np.dtype("int16")
    assert Column((), bool).dtype == np.dtype("bool")
    assert Column((), float).dtype == np.dtype("float64")


@pytest.mark.parametrize("shape", [5, [5], (5,), np.int64(5), np.array([5])])
def test_a_column_takes_every_way_to_say_a_shape(shape: Any) -> None:
    assert Column(shape).shape == (5,)


@pytest.mark.parametrize(
    "column",
    [
        lambda: Column((0,)),
        lambda: Column((-1,)),
        lambda: Column((1.5,)),  # type: ignore[arg-type]
        lambda: Column((True,)),
        lambda: Column((4, False)),
        lambda: Column((np.True_,)),  # type: ignore[arg-type]
        lambda: Column("ab"),  # type: ignore[arg-type]
        lambda: Column((1,) * 9),
        lambda: Column((), "complex64"),
        lambda: Column((), "nonsense"),
        lambda: Column((), "(2,"),
        lambda: Column((), object),
        lambda: Column((), "U5"),
        lambda: Column((), "datetime64[s]"),
        lambda: Column((), None),
        lambda: Column((), 5),
        lambda: Column((), "f4,i4"),
        lambda: Column((), np.longdouble),
        lambda: Column((), "int64", limit=0),
        lambda: Column((), "int64", limit=-3),
        lambda: Column((), "int64", limit=2.5),  # type: ignore[arg-type]
        lambda: Column((), "int64", limit="4"),  # type: ignore[arg-type]
        lambda: Column((), "int64", limit=2**70),
        lambda: Column((), "float32", limit=4),
        lambda: Column((3,), "int64", limit=4),
        lambda: Schema({}),
        lambda: Schema(5),  # type: ignore[arg-type]
        lambda: Schema({"a": (8,)}),
        lambda: Schema({"a": {}}),
        lambda: Schema({"": Column()}),
        lambda: Schema({"a/b": Column()}),
        lambda: Schema({"a\0b": Column()}),
        lambda: Schema({"a\ud800": Column()}),
        lambda: Schema({5: Column()}),  # type: ignore[dict-item]
        lambda: Schema({"indices": Column()}),
        lambda: Schema({"weights": Column()}),
        lambda: Schema({"priority": Column()}),
        lambda: Schema({"timeout": Column()}),
        lambda: Schema({"x" * 96: Column()}),
        lambda: buffer_of({f"c{k}": Column() for k in range(257)}),
        lambda: buffer_of({"a": Column((2**40, 2**40))}),
        lambda: buffer_of({"a": Column((2**40,))}, capacity=2**40),
    ],
)
def test_what_cannot_be_a_schema_is_an_invalid_argument(column: Any) -> None:
    with pytest.raises(InvalidArgument):
        column()


def test_a_dict_of_no_columns_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"'obs/goal'.*empty"):
        Schema({"obs": {"x": Column(), "goal": {}}})


def test_256_columns_are_allowed() -> None:
    buffer = buffer_of({f"c{k}": Column((), "int32") for k in range(256)})
    buffer.add(*range(256))
    batch = buffer.sample(1)
    assert [batch[f"c{k}"].item() for k in range(256)] == list(range(256))


@pytest.mark.parametrize(
    "option",
    [
        {"obs_shape": (3,)},
        {"action_dim": 2},
        {"action_shape": ()},
        {"obs_dtype": "float64"},
        {"action_dtype": "float64"},
        {"reward_dtype": "float64"},
        {"reward_dtype": "float32"},
    ],
)
def test_a_schema_says_everything_and_allows_nothing_beside_it(option: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match="schema"):
        ReplayBuffer(BufferConfig(4), schema={"a": Column()}, **option)


def test_a_schema_that_contains_itself_is_refused() -> None:
    ring: dict[str, Any] = {}
    ring["a"] = ring
    with pytest.raises(InvalidArgument, match="contain itself"):
        Schema(ring)
    deep: dict[str, Any] = {"x": Column()}
    for _ in range(100_000):
        deep = {"a": deep}
    with pytest.raises(InvalidArgument, match="contain itself"):
        Schema(deep)
    while deep:  # taken apart from outside, or its end would recurse too deeply
        deep = deep.popitem()[1] if "a" in deep else {}


@pytest.mark.parametrize("shape", [(2**40,), (3, 2**40), (0,), (-1,)])
def test_a_dimension_outside_of_what_the_message_says_is_refused(shape: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"from 1 to 2\^40 - 1"):
        Column(shape)
