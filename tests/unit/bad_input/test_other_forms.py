"""Values that mean what the column stores, written down in another way."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import ReplayBuffer
from unit.bad_input.rows import numbered, row, rows, state


def other_forms() -> list[tuple[str, Any, Any]]:
    obs = np.array([[1.5, 2.5, 3.5], [4.5, 5.5, 6.5]], np.float32)
    unaligned = np.empty(obs.nbytes + 1, np.uint8)[1:].view(np.float32).reshape(2, 3)
    unaligned[...] = obs
    locked = obs.copy()
    locked.flags.writeable = False

    class Sub(np.ndarray):
        pass

    class Lazy:
        def __array__(self, dtype: Any = None, copy: Any = None) -> Any:
            return obs

    return [
        ("obs", obs.tolist(), obs),
        ("obs", tuple(map(tuple, obs.tolist())), obs),
        ("obs", list(obs), obs),
        ("obs", np.asfortranarray(obs), obs),
        ("obs", np.repeat(obs, 2, axis=1)[:, ::2], obs),
        ("obs", obs[::-1, ::-1][::-1, ::-1], obs),
        ("obs", obs.T.copy().T, obs),
        ("obs", obs.astype(">f4"), obs),
        ("obs", obs.astype(np.float64), obs),
        ("obs", obs.astype(">f8"), obs),
        ("obs", obs.astype(np.float16), obs),
        ("obs", unaligned, obs),
        ("obs", locked, obs),
        ("obs", obs.view(Sub), obs),
        ("obs", memoryview(obs), obs),
        ("obs", Lazy(), obs),
        ("obs", np.broadcast_to(np.float32(1.5), (2, 3)), np.full((2, 3), 1.5)),
        ("obs", np.arange(6, dtype=np.uint8).reshape(2, 3), np.arange(6).reshape(2, 3)),
        ("obs", np.eye(2, 3, dtype=bool), np.eye(2, 3)),
        ("obs", np.full((2, 3), np.inf), np.full((2, 3), np.inf)),
        ("action", np.int8(3), 3),
        ("action", np.uint64(3), 3),
        ("action", np.array(3, ">i4"), 3),
        ("action", np.array(3, np.longlong), 3),
        ("action", np.array(3, np.ulonglong), 3),
        ("action", True, 1),
        ("action", np.True_, 1),
        ("reward", 3, 3.0),
        ("reward", True, 1.0),
        ("reward", np.float16(0.5), 0.5),
        ("reward", np.float64(0.5), 0.5),
        ("reward", np.int8(-3), -3.0),
        ("reward", np.array(0.5), 0.5),
        ("reward", -np.inf, -np.inf),
    ]


FORMS = other_forms()


@pytest.mark.parametrize(("column", "value", "stored"), FORMS, ids=numbered(FORMS))
@pytest.mark.parametrize("by_name", [False, True], ids=["by position", "by name"])
def test_another_form_of_the_same_value_is_stored_as_that_value(
    buffer: ReplayBuffer, column: str, value: Any, stored: Any, by_name: bool
) -> None:
    values = row(**{column: value})
    row_id = buffer.add(**values) if by_name else buffer.add(*values.values())
    assert (buffer.get([row_id])[column][0] == np.asarray(stored)).all()


@pytest.mark.parametrize(("column", "value", "stored"), FORMS, ids=numbered(FORMS))
def test_a_batch_in_another_form_is_stored_as_that_batch(
    buffer: ReplayBuffer, column: str, value: Any, stored: Any
) -> None:
    ids = buffer.add_batch(**rows(3, **{column: [value] * 3}))
    for got in buffer.get(ids)[column]:
        assert (got == np.asarray(stored)).all()


@pytest.mark.parametrize("dtype", [np.longlong, np.ulonglong, ">i8", np.int32, np.uint8])
def test_a_batch_of_another_whole_dtype_is_stored_by_value(
    buffer: ReplayBuffer, dtype: Any
) -> None:
    ids = buffer.add_batch(**rows(3, action=np.array([3, 0, 2], dtype)))
    assert buffer.get(ids)["action"].tolist() == [3, 0, 2]


def test_a_batch_of_strided_swapped_and_unaligned_columns(buffer: ReplayBuffer) -> None:
    good = rows(4, reward=np.arange(4, dtype=np.float32))
    odd = {
        "obs": np.asfortranarray(good["obs"]),
        "goal": {"x": good["goal"]["x"].astype(">i2"), "lit": [1, 1, 1, 1]},
        "action": np.repeat(good["action"], 3)[::3],
        "reward": np.empty(17, np.uint8)[1:].view(np.float32),
    }
    odd["reward"][:] = good["reward"]
    expected = buffer.get(buffer.add_batch(**good))
    got = buffer.get(buffer.add_batch(**odd))
    assert (got["obs"] == expected["obs"]).all()
    assert (got["goal"]["x"] == expected["goal"]["x"]).all()
    assert got["goal"]["lit"].all()
    assert got["reward"].tolist() == [0, 1, 2, 3]


def test_a_batch_of_no_rows_adds_nothing(buffer: ReplayBuffer) -> None:
    before = state(buffer)
    empty = {
        "obs": np.zeros((0, 2, 3), np.float32),
        "goal": {"x": np.zeros((0, 2), np.int16), "lit": []},
        "action": [],
        "reward": np.zeros(0),
    }
    ids = buffer.add_batch(**empty)
    assert ids.dtype == np.int64
    assert ids.shape == (0,)
    assert state(buffer) == before
