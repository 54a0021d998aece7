"""What the constructor leaves open is settled by the first row; later rows have to agree."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, InvalidArgument, ReplayBuffer, SchemaMismatch

OBS = np.array([0.5, 1.5], np.float32)


def settled(*row: Any, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(8), **options)
    assert buffer.schema is None
    buffer.add(*row)
    return buffer


def column(buffer: ReplayBuffer, name: str) -> Any:
    assert buffer.schema is not None
    return buffer.schema.fields[name]


def with_obs(obs: Any, **options: Any) -> Any:
    return column(settled(obs, 0, 0.0, obs, False, **options), "obs")


def with_action(action: Any, **options: Any) -> Any:
    return column(settled(OBS, action, 0.0, OBS, False, **options), "action")


# ---- observations


@pytest.mark.parametrize("dtype", ["uint8", "int16", "int64", "float16", "float32", "bool"])
def test_arrays_keep_their_dtype(dtype: str) -> None:
    assert with_obs(np.zeros((2, 3), dtype)) == Column((2, 3), dtype)


def test_float64_becomes_float32_unless_asked_for() -> None:
    assert with_obs(np.zeros(3)) == Column((3,), "float32")
    assert with_obs(np.zeros(3), obs_dtype="float64") == Column((3,), "float64")


def test_byte_swapped_arrays_settle_the_native_dtype() -> None:
    assert with_obs(np.zeros(3, ">i2")) == Column((3,), "int16")
    assert with_obs(np.zeros(3, ">f8")) == Column((3,), "float32")


def test_lists_of_numbers_are_float32_whole_or_not() -> None:
    assert with_obs([0.5, 1]) == Column((2,), "float32")
    assert with_obs([0, 1]) == Column((2,), "float32")


def test_a_list_of_frames_keeps_their_dtype() -> None:
    assert with_obs([np.zeros((2, 2), np.uint8)] * 4) == Column((4, 2, 2), "uint8")


def test_a_whole_number_as_observation_stays_whole() -> None:
    assert with_obs(3) == Column((), "int64")
    assert with_obs(np.int32(3)) == Column((), "int32")


def test_obs_dtype_holds_for_both_observations() -> None:
    buffer = settled(np.zeros(2), 0, 0.0, np.zeros(2), False, obs_dtype="float16")
    assert column(buffer, "obs") == column(buffer, "next_obs") == Column((2,), "float16")


def test_nested_observations_settle_each_part() -> None:
    obs = {"frame": np.zeros((2, 2), np.uint8), "speed": np.zeros(3)}
    expected = {"frame": Column((2, 2), "uint8"), "speed": Column((3,), "float32")}
    assert with_obs(obs) == expected
    assert with_obs(obs, obs_shape={"frame": (2, 2), "speed": (3,)}) == expected
    assert with_obs(obs, obs_dtype={"speed": "float64"})["speed"] == Column((3,), "float64")


# ---- actions


@pytest.mark.parametrize("action", [3, np.int64(3), np.uint8(3), np.array(3, np.int32)])
def test_a_whole_number_is_a_discrete_action_below_action_dim(action: Any) -> None:
    assert with_action(action, action_dim=6) == Column((), "int64", limit=6)
    assert with_action(action) == Column((), "int64")


@pytest.mark.parametrize("action", [[0.5] * 6, np.zeros(6), np.zeros(6, np.float32), [0] * 6])
def test_a_vector_of_action_dim_is_continuous(action: Any) -> None:
    assert with_action(action, action_dim=6) == Column((6,), "float32")


def test_actions_can_be_said_explicitly() -> None:
    assert with_action([1, 0], action_shape=(2,), action_dtype="int8") == Column((2,), "int8")
    assert with_action(2, action_dim=6, action_dtype="uint8") == Column((), "uint8", limit=6)
    assert with_action(2, action_dim=6, action_shape=()) == Column((), "int64", limit=6)
    assert with_action([0.5], action_dim=1) == Column((1,), "float32")
    assert with_action(0.5, action_dim=1) == Column((), "float32")


@pytest.mark.parametrize("action", [[0.5] * 5, [[0.5] * 6], 0.5, [[1, 2]]])
def test_an_action_of_neither_meaning_is_refused(action: Any) -> None:
    buffer = ReplayBuffer(BufferConfig(8), action_dim=6)
    with pytest.raises(SchemaMismatch, match=r"'action'.*6"):
        buffer.add(OBS, action, 0.0, OBS, False)
    assert buffer.schema is None


# ---- the rest of the row


def test_rewards_are_float32_unless_asked_for() -> None:
    for reward in (1, 1.0, np.float64(1), np.int8(1)):
        assert column(settled(OBS, 0, reward, OBS, False), "reward") == Column()
    buffer = settled(OBS, 0, 1, OBS, False, reward_dtype="float64")
    assert column(buffer, "reward") == Column((), "float64")


def test_rewards_may_be_vectors() -> None:
    assert column(settled(OBS, 0, [1.0, 2.0], OBS, False), "reward") == Column((2,))


@pytest.mark.parametrize("done", [True, 1, 0.0, np.bool_(True), np.array(False)])
def test_done_is_bool_however_it_is_written(done: Any) -> None:
    assert column(settled(OBS, 0, 0.0, OBS, done), "done") == Column((), "bool")


def test_named_columns_beside_the_usual_ones() -> None:
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    buffer.add(OBS, 1, 0.0, OBS, False, log_prob=-0.5, seen=np.uint8(4), goal={"x": [1.0, 2.0]})
    assert column(buffer, "log_prob") == Column()
    assert column(buffer, "seen") == Column((), "uint8")
    assert column(buffer, "goal") == {"x": Column((2,))}
    assert buffer.sample(1)["goal"]["x"].tolist() == [[1, 2]]


def test_only_named_columns_make_any_schema() -> None:
    buffer = ReplayBuffer(BufferConfig(8))
    buffer.add(token=np.int32(5), mask=True, embedding=np.zeros(4))
    assert str(buffer.schema) == "token int32, mask bool, embedding float32[4]"


def test_a_first_batch_settles_like_a_first_row() -> None:
    by_row, by_batch = (
        ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3) for _ in range(2)
    )
    by_row.add(OBS, 1, 0.0, OBS, False)
    by_batch.add_batch(np.stack([OBS] * 3), [0, 1, 2], [0, 0.5, 1], np.stack([OBS] * 3), [0, 0, 1])
    assert by_row.schema == by_batch.schema
    assert by_batch.latest(3)["action"].tolist() == [0, 1, 2]


# ---- a first row that cannot settle anything


def refused(match: str, *row: Any, **options: Any) -> None:
    buffer = ReplayBuffer(BufferConfig(8), **options)
    with pytest.raises(SchemaMismatch, match=match):
        buffer.add(*row)
    assert buffer.schema is None
    assert len(buffer) == 0
    buffer.add(OBS, 1, 0.0, OBS, False)  # nothing of the refused row is left


def test_a_first_row_of_another_shape_than_said_is_refused() -> None:
    refused(r"'obs'.*\(2,\).*\(3,\)", np.zeros(3), 0, 0.0, np.zeros(3), False, obs_shape=(2,))
    refused(r"'next_obs'.*\(2,\).*\(3,\)", OBS, 0, 0.0, np.zeros(3), False, obs_shape=(2,))


def test_a_first_row_whose_observations_disagree_is_refused() -> None:
    refused("next_obs", OBS, 0, 0.0, np.zeros(3, np.float32), False)
    refused("next_obs", OBS, 0, 0.0, np.zeros(2, np.uint8), False)


def test_a_first_row_without_a_column_is_refused() -> None:
    refused("'done'", OBS, 0, 0.0, OBS, action_dim=3)
    refused("'next_obs'|'done'", OBS, 0, 0.0)
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    with pytest.raises(SchemaMismatch, match="'action'"):
        buffer.add(obs=OBS, reward=0.0, next_obs=OBS, done=False)
    with pytest.raises(SchemaMismatch):
        buffer.add()
    with pytest.raises(SchemaMismatch):
        buffer.add(OBS, 0, 0.0, OBS, False, False, 7)
    assert buffer.schema is None


def test_a_first_row_of_nested_parts_must_have_the_parts_said() -> None:
    shapes = {"a": (2,), "b": (3,)}
    refusing = ReplayBuffer(BufferConfig(8), obs_shape=shapes)
    for obs in ({"a": OBS}, {"a": OBS, "b": np.zeros(3), "c": OBS}, OBS, {"a": OBS, "b": OBS}):
        with pytest.raises(SchemaMismatch, match="obs"):
            refusing.add(obs, 0, 0.0, obs, False)
    assert refusing.schema is None


def test_a_first_row_out_of_the_limit_is_refused() -> None:
    refused(r"'action'.*0 to 2.*3", OBS, 3, 0.0, OBS, False, action_dim=3)
    refused(r"'action'.*0 to 2.*-1", OBS, -1, 0.0, OBS, False, action_dim=3)


def test_a_first_row_of_no_numbers_is_refused() -> None:
    for bad in ("text", None, object(), np.array(["a", "b"]), np.zeros(2, complex), [[1], [1, 2]]):
        refused("'obs'", bad, 0, 0.0, OBS, False)
        refused("'reward'", OBS, 0, bad, OBS, False)


@pytest.mark.parametrize("dtype", ["longdouble", "M8[s]", "f4,i4", "S3"])
def test_a_first_row_of_a_dtype_that_is_not_stored_names_its_column(dtype: str) -> None:
    refused("'obs'", np.zeros(2, dtype), 0, 0.0, np.zeros(2, dtype), False)


EMPTY = np.zeros((0, 2))


@pytest.mark.parametrize("obs", [EMPTY, [], {"a": EMPTY, "b": {"c": []}}])
@pytest.mark.parametrize("options", [{}, {"obs_shape": (2,), "action_dim": 3}])
def test_an_empty_first_batch_settles_nothing(obs: Any, options: dict[str, Any]) -> None:
    buffer = ReplayBuffer(BufferConfig(8), **options)
    ids = buffer.add_batch(obs, [], EMPTY[:, 0], next_obs=obs, done=[])
    assert ids.shape == (0,)
    assert ids.dtype == np.int64
    assert buffer.schema is None
    assert buffer.add(OBS, 1, 0.0, OBS, False) == 0


def test_an_empty_first_batch_still_has_to_make_sense() -> None:
    buffer = ReplayBuffer(BufferConfig(8), obs_shape=(2,), action_dim=3)
    with pytest.raises(SchemaMismatch, match="'action' is missing"):
        buffer.add_batch(obs=EMPTY, reward=[], next_obs=EMPTY, done=[])
    with pytest.raises(SchemaMismatch, match=r"'action'.*0 rows"):
        buffer.add_batch([OBS], [], [0.0], [OBS], [False])
    with pytest.raises(SchemaMismatch, match=r"'obs'.*0 rows"):
        buffer.add_batch(EMPTY, [1], [0.0], [OBS], [False])
    with pytest.raises(SchemaMismatch, match=r"'obs'.*expected a batch"):
        buffer.add_batch(1.0, [], [], EMPTY, [])
    with pytest.raises(InvalidArgument, match="uniform"):
        buffer.add_batch(EMPTY, [], [], EMPTY, [], priority=[])
    assert buffer.schema is None


@pytest.mark.parametrize("obs", [{}, {"a": OBS, "b": {}}])
def test_an_observation_without_parts_is_refused(obs: Any) -> None:
    refused(r"'obs(/b)?'.*empty", obs, 0, 0.0, obs, False)


@pytest.mark.parametrize("shape", [{}, {"a": (2,), "b": {}}])
def test_a_shape_without_parts_is_refused(shape: Any) -> None:
    with pytest.raises(InvalidArgument, match=r"obs_shape(/b)?: .*empty"):
        ReplayBuffer(BufferConfig(8), obs_shape=shape)


# ---- later rows


@pytest.mark.parametrize(
    ("row", "match"),
    [
        ((np.zeros(3), 1, 0.0, OBS, False), r"'obs'.*\(2,\).*\(3,\)"),
        ((OBS, [0.5, 0.5, 0.5], 0.0, OBS, False), r"'action'.*\(\).*\(3,\)"),
        ((OBS, 0.5, 0.0, OBS, False), "'action'.*int64.*float64"),
        ((OBS, 3, 0.0, OBS, False), "'action'.*0 to 2.*3"),
        ((OBS, 1, [0.0], OBS, False), r"'reward'.*\(\).*\(1,\)"),
        ((OBS, 1, 0.0, OBS, False, False), "6 values"),
    ],
)
def test_a_later_row_that_disagrees_is_refused(row: Any, match: str) -> None:
    buffer = settled(OBS, 1, 0.0, OBS, False, obs_shape=(2,), action_dim=3)
    with pytest.raises(SchemaMismatch, match=match):
        buffer.add(*row)
    assert len(buffer) == 1


# ---- the constructor


@pytest.mark.parametrize(
    "options",
    [
        {"obs_shape": (0,)},
        {"obs_shape": (-1, 4)},
        {"obs_shape": "ab"},
        {"obs_shape": (1.5,)},
        {"obs_shape": (True,)},
        {"obs_shape": {"a": (0,)}},
        {"obs_dtype": "nonsense"},
        {"obs_dtype": object},
        {"action_dim": 0},
        {"action_dim": -1},
        {"action_dim": 1.5},
        {"action_dim": True},
        {"action_dim": "6"},
        {"action_shape": (0,)},
        {"action_dtype": "complex64"},
        {"reward_dtype": "text"},
        {"seed": -1},
        {"seed": 1.5},
        {"seed": 2**64},
        {"seed": "a"},
    ],
)
def test_the_constructor_names_the_argument_that_is_wrong(options: dict[str, Any]) -> None:
    with pytest.raises(InvalidArgument, match=next(iter(options))):
        ReplayBuffer(BufferConfig(8), **options)


@pytest.mark.parametrize("config", [8, None, {"capacity": 8}, BufferConfig])
def test_the_constructor_wants_a_config(config: Any) -> None:
    with pytest.raises(InvalidArgument, match="BufferConfig"):
        ReplayBuffer(config)


def test_unknown_options_are_refused() -> None:
    with pytest.raises(TypeError, match="obs_shapes"):
        ReplayBuffer(BufferConfig(8), obs_shapes=(3,))  # type: ignore[call-arg]


@pytest.mark.parametrize("batched", [False, True])
def test_names_in_any_order_leave_positions_as_they_are(batched: bool) -> None:
    """A first row that names next_obs before obs must not swap them in the rows after it."""
    buffer = ReplayBuffer(BufferConfig(8))
    row: dict[str, Any] = {
        "next_obs": OBS + 1,
        "done": False,
        "obs": OBS,
        "reward": 0.5,
        "action": 1,
    }
    if batched:
        buffer.add_batch(**{name: np.array([value]) for name, value in row.items()})
    else:
        buffer.add(**row)
    buffer.add(OBS, 1, 0.5, OBS + 1, False)
    rows = buffer.get([0, 1])
    assert rows["obs"].tolist() == [OBS.tolist()] * 2
    assert rows["next_obs"].tolist() == [(OBS + 1).tolist()] * 2
