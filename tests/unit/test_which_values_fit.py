"""What is stored is what was given, or its rounding to a float, or an error: in every form of a
value, for every dtype, by every way into a buffer.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from fractions import Fraction
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, ReplayBuffer, SchemaMismatch
from replay_buffer.schema import DTYPES

VALUES: list[Any] = [
    *(False, True),
    *(0, 1, -1, 2, 127, 128, 255, 256, 300, -128, -129, 2049, 65_504, 65_505, 70_000),
    *(2**24, 2**24 + 1, -(2**24) - 1, 2**31, 2**32 - 1, 2**53, 2**53 + 1, -(2**53) - 1),
    *(2**63 - 1, -(2**63), 2**63, 2**64 - 1, 2**64),
    *(0.0, 1.0, 1.5, -1.0, 0.1, 300.0, 70_000.0, 1e-60, 1e39, 1e300),
    *(math.inf, -math.inf, math.nan),
]

#: A vector's other number: nothing is known of a value by what is beside it.
BESIDE = 1


REFUSED = object()


def law(value: Any, dtype: np.dtype[Any]) -> Any:
    """What has to be stored of a Python number."""
    if dtype.kind == "b":
        return bool(value) if value in (0, 1) else REFUSED
    if dtype.kind in "iu":
        bounds = np.iinfo(dtype)
        whole = not isinstance(value, float)
        return int(value) if whole and bounds.min <= value <= bounds.max else REFUSED
    if not isinstance(value, float) and abs(value) >= 2**64:
        return REFUSED  # beyond 64 bits there are no whole numbers
    with np.errstate(all="ignore"):
        rounded = np.array([value]).astype(dtype)[0]
    if isinstance(value, float):
        return REFUSED if np.isinf(rounded) and math.isfinite(value) else rounded
    exact = np.isfinite(rounded) and Fraction(float(rounded)) == value
    return rounded if exact else REFUSED


def scalar_array(value: Any) -> Any:
    array = np.asarray(value)
    return array[()] if array.dtype != object else value


#: How one number is written.
SCALARS: dict[str, Callable[[Any], Any]] = {
    "Python": lambda v: v,
    "NumPy": scalar_array,
    "array": np.asarray,
}
#: How a vector of it and another number is written.
VECTORS: dict[str, Callable[[Any], Any]] = {
    "list": lambda v: [v, type(v)(BESIDE)],
    "tuple": lambda v: (v, type(v)(BESIDE)),
    "array": lambda v: np.asarray([v, type(v)(BESIDE)]),
    "strided": lambda v: np.asarray([v, 0, type(v)(BESIDE)])[::2],
    "swapped": lambda v: swapped(np.asarray([v, type(v)(BESIDE)])),
}


def swapped(array: Any) -> Any:
    return array.astype(array.dtype.newbyteorder()) if array.dtype != object else array


def buffer_of(column: Column) -> ReplayBuffer:
    return ReplayBuffer(BufferConfig(8), schema={"x": column})


def added(column: Column, value: Any) -> ReplayBuffer:
    buffer = buffer_of(column)
    buffer.add(value)
    return buffer


def added_by_name(column: Column, value: Any) -> ReplayBuffer:
    buffer = buffer_of(column)
    buffer.add(x=value)
    return buffer


def batch_of(value: Any) -> Any:
    """A batch of one row."""
    return value[None] if isinstance(value, np.ndarray) else [value]


def added_batch(column: Column, value: Any) -> ReplayBuffer:
    buffer = buffer_of(column)
    buffer.add_batch(batch_of(value))
    return buffer


def appended(column: Column, value: Any) -> ReplayBuffer:
    flag = Column((), "bool")
    schema = {"obs": Column(), "action": Column(), "reward": Column(), "x": column}
    buffer = ReplayBuffer(
        BufferConfig(8, storage="steps"), schema={**schema, "terminated": flag, "truncated": flag}
    )
    writer = buffer.writer()
    writer.append(0.0, 0.0, 0.0, value, False, False)
    return buffer


def first(column: Column, value: Any) -> ReplayBuffer:
    """In a row that settles the columns."""
    buffer = ReplayBuffer(BufferConfig(8), reward_dtype=column.dtype)
    buffer.add(0.5, 0, value, 0.5, False)
    return buffer


def first_batch(column: Column, value: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(8), reward_dtype=column.dtype)
    buffer.add_batch([0.5], [0], batch_of(value), [0.5], [False])
    return buffer


WAYS: list[tuple[Callable[[Column, Any], ReplayBuffer], str]] = [
    (added, "x"),
    (added_by_name, "x"),
    (added_batch, "x"),
    (appended, "x"),
    (first, "reward"),
    (first_batch, "reward"),
]


def check(
    way: Callable[[Column, Any], ReplayBuffer], name: str, column: Column, value: Any, given: Any
) -> None:
    """Fails unless a value, as it is given, is stored as the law says."""
    if isinstance(given, np.ndarray) and given.ndim == 1:
        value = given[0].item() if given.dtype != object else value  # NumPy may have rounded it
    wanted = law(value, column.dtype)
    said = f"{given!r} as {column}"
    if wanted is REFUSED:
        with pytest.raises(SchemaMismatch):
            print(said, way(column, given).latest(8)[name][0])
        return
    found = way(column, given).latest(8)[name][0]
    assert found.dtype == column.dtype
    np.testing.assert_array_equal(found, wanted if column.shape == () else [wanted, BESIDE], said)


PATHS = pytest.mark.parametrize(("way", "name"), WAYS, ids=lambda x: getattr(x, "__name__", ""))


@PATHS
@pytest.mark.parametrize("form", SCALARS)
def test_a_number_is_stored_as_it_is_or_refused(
    form: str, way: Callable[[Column, Any], ReplayBuffer], name: str
) -> None:
    for value in VALUES:
        for dtype in DTYPES:
            check(way, name, Column((), dtype), value, SCALARS[form](value))


@PATHS
@pytest.mark.parametrize("form", VECTORS)
def test_a_vector_is_stored_as_it_is_or_refused(
    form: str, way: Callable[[Column, Any], ReplayBuffer], name: str
) -> None:
    for value in VALUES:
        for dtype in DTYPES:
            check(way, name, Column((2,), dtype), value, VECTORS[form](value))


@pytest.mark.parametrize("dtype", DTYPES)
def test_of_any_length_they_are_stored_likewise(dtype: str) -> None:
    column = Column((None,), dtype)
    for value in VALUES:
        wanted = law(value, column.dtype)
        for form in ("list", "tuple"):
            given = VECTORS[form](value)
            buffer = buffer_of(column)
            if wanted is REFUSED:
                with pytest.raises(SchemaMismatch):
                    buffer.add(given)
            else:
                buffer.add(given)
                found = buffer.latest(1)["x"]["values"]
                np.testing.assert_array_equal(found, [wanted, BESIDE])


def test_whole_numbers_beside_fractions_are_whole_numbers_too() -> None:
    """NumPy would round them to float64 before anybody could ask."""
    buffer = buffer_of(Column((2,), "float64"))
    buffer.add([2**53, 0.5])
    for value in (2**53 + 1, -(2**53) - 1, 2**64 - 1):
        with pytest.raises(SchemaMismatch, match=str(value)):
            buffer.add([value, 0.5])
        with pytest.raises(SchemaMismatch, match=str(value)):
            buffer.add_batch(((value, 0.5), (1, 2)))
    assert len(buffer) == 1


def test_the_message_says_which_number_does_not_fit() -> None:
    buffer = buffer_of(Column((), "float32"))
    with pytest.raises(SchemaMismatch, match="column 'x': 16777217 does not fit into float32"):
        buffer.add(16_777_217)
    with pytest.raises(SchemaMismatch, match="column 'x': 16777217 does not fit into float32"):
        buffer.add_batch(np.arange(16_777_210, 16_777_220))


# ---- actions that are vectors of whole numbers (MultiDiscrete)


def added_action(action: Any, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(8), **options)
    buffer.add(0.5, action, 0.0, 0.5, False)
    return buffer


def added_actions(action: Any, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(8), **options)
    buffer.add_batch([0.5], batch_of(action), [0.0], [0.5], [False])
    return buffer


def appended_action(action: Any, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(8, storage="steps"), **options)
    buffer.writer().append(0.5, action, 0.0, False, False)
    return buffer


def again(buffer: ReplayBuffer, action: Any) -> None:
    """The same row with another action."""
    if buffer.config.storage == "steps":
        buffer.writer().append(0.5, action, 0.0, False, False)
    else:
        buffer.add(0.5, action, 0.0, 0.5, False)


@pytest.mark.parametrize("dtype", ["int64", "int32", "int8", "uint8"])
@pytest.mark.parametrize(
    "options", [{"action_dim": 3}, {"action_shape": (3,)}, {}], ids=["dim", "shape", "nothing"]
)
def test_an_array_of_whole_numbers_stays_whole_as_an_action(
    options: dict[str, Any], dtype: str
) -> None:
    action = np.array([1, 2, 100], dtype)
    for add in (added_action, added_actions, appended_action):
        buffer = add(action, **options)
        assert buffer.schema is not None
        assert buffer.schema.fields["action"] == Column((3,), dtype)
        found = buffer.latest(1)["action"][0]
        assert found.dtype == dtype
        assert found.tolist() == [1, 2, 100]
        with pytest.raises(SchemaMismatch, match=f"'action': expected {dtype}, got float64"):
            again(buffer, np.array([0.5, 1.0, 2.0]))


@pytest.mark.parametrize("action", [[1, 2, 3], (1, 2, 3)])
def test_whole_numbers_written_out_by_hand_are_no_choice_of_dtype(action: Any) -> None:
    for add in (added_action, added_actions):
        buffer = add(action, action_dim=3)
        assert buffer.latest(1)["action"].dtype == "float32"
        again(buffer, [0.5, 1.0, 2.0])
        for options in ({"action_dim": 3, "action_dtype": "int64"}, {"action_shape": (3,)}, {}):
            assert add(action, **options).latest(1)["action"].dtype == "int64"


def test_a_list_of_arrays_of_whole_numbers_is_not_written_by_hand() -> None:
    obs = [np.array([1, 2]), np.array([3, 4])]
    buffer = ReplayBuffer(BufferConfig(8))
    buffer.add_batch(obs, [np.array([1, 2])] * 2, [0.0, 1.0], obs, [False, False])
    assert str(buffer.schema).startswith("obs int64[2], action int64[2]")
