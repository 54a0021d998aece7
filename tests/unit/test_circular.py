"""SharedCircularBuffer, sentence by sentence, beside the same thing in plain NumPy arrays."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import InvalidArgument, ReplayBufferError, SharedCircularBuffer

KEYS = ["states", "actions", "rewards", "next_states", "dones"]


class PlainArrays:
    """Fixed-size arrays, a write position that goes around, a count."""

    def __init__(self, capacity: int, state_dim: int) -> None:
        self.capacity = capacity
        self.states = np.zeros((capacity, state_dim), np.float64)
        self.actions = np.zeros(capacity, np.int64)
        self.rewards = np.zeros(capacity, np.float64)
        self.next_states = np.zeros((capacity, state_dim), np.float64)
        self.dones = np.zeros(capacity, np.bool_)
        self.position = 0
        self.count = 0

    def push(self, state: Any, action: int, reward: float, next_state: Any, done: bool) -> None:
        at = self.position
        self.states[at], self.actions[at], self.rewards[at] = state, action, reward
        self.next_states[at], self.dones[at] = next_state, done
        self.position = (at + 1) % self.capacity
        self.count = min(self.count + 1, self.capacity)

    def sample(self, batch_size: int, seed: int | None = None) -> dict[str, list[Any]]:
        rng = np.random.RandomState(seed)
        return self.at(rng.randint(0, self.count, size=batch_size))

    def latest(self, n: int) -> dict[str, list[Any]]:
        n = min(n, self.count)
        return self.at((self.position - n + np.arange(n)) % self.capacity)

    def at(self, places: Any) -> dict[str, list[Any]]:
        return {name: getattr(self, name)[places].tolist() for name in KEYS}

    def __len__(self) -> int:
        return self.count


def transition(k: int, state_dim: int) -> tuple[Any, ...]:
    rng = np.random.default_rng(k)
    return (
        rng.standard_normal(state_dim),
        int(rng.integers(-(2**62), 2**62)),
        float(rng.standard_normal()),
        rng.standard_normal(state_dim),
        bool(rng.integers(2)),
    )


def both(capacity: int, state_dim: int, pushes: int) -> tuple[SharedCircularBuffer, PlainArrays]:
    shared, plain = SharedCircularBuffer(capacity, state_dim), PlainArrays(capacity, state_dim)
    for k in range(pushes):
        for buffer in (shared, plain):
            buffer.push(*transition(k, state_dim))
    return shared, plain


@pytest.mark.parametrize("capacity", [1, 2, 3, 5, 8, 100])
@pytest.mark.parametrize("state_dim", [1, 4])
def test_it_does_what_plain_arrays_do_at_every_step(capacity: int, state_dim: int) -> None:
    shared, plain = both(capacity, state_dim, 0)
    for k in range(2 * capacity + 3):
        for buffer in (shared, plain):
            buffer.push(*transition(k, state_dim))
        assert len(shared) == len(plain)
        for n in (1, capacity // 2 + 1, capacity, capacity + 7):
            assert shared.latest(n) == plain.latest(n)
            assert shared.sample(n, seed=k) == plain.sample(n, seed=k)


def test_states_are_float64_of_state_dim() -> None:
    shared, _ = both(3, 2, 0)
    state = [0.1, 1e300]  # exact in float64 only
    shared.push(state, 0, 0.0, state, False)
    assert shared.latest(1)["states"] == [state]
    assert shared.latest(1)["next_states"] == [state]
    with pytest.raises(ReplayBufferError, match=r"states.*\(2,\).*\(3,\)"):
        shared.push([1.0, 2.0, 3.0], 0, 0.0, state, False)


def test_actions_are_int64_rewards_float64_dones_bool() -> None:
    shared, _ = both(3, 1, 0)
    shared.push([0.0], 2**63 - 1, 0.1, [0.0], True)
    batch = shared.latest(1)
    assert batch["actions"] == [2**63 - 1]
    assert batch["rewards"] == [0.1]
    assert batch["dones"] == [True]
    assert type(batch["actions"][0]) is int
    assert type(batch["rewards"][0]) is float
    assert type(batch["dones"][0]) is bool


@pytest.mark.parametrize("kind", [list, tuple, np.array, lambda s: np.array(s, np.float32)])
def test_states_may_be_anything_like_an_array(kind: Any) -> None:
    shared, _ = both(3, 2, 0)
    shared.push(kind([1, 2]), np.int64(3), np.float32(0.5), kind([3, 4]), np.bool_(True))
    assert shared.latest(1) == {
        "states": [[1.0, 2.0]],
        "actions": [3],
        "rewards": [0.5],
        "next_states": [[3.0, 4.0]],
        "dones": [True],
    }


def test_when_full_the_oldest_is_overwritten() -> None:
    shared, plain = both(4, 1, 6)
    assert len(shared) == 4
    expected = [transition(k, 1)[1] for k in (2, 3, 4, 5)]
    assert shared.latest(4)["actions"] == plain.latest(4)["actions"] == expected


def test_sample_is_a_dict_of_python_lists() -> None:
    shared, _ = both(4, 2, 6)
    for batch in (shared.sample(5), shared.latest(2)):
        assert list(batch) == KEYS
        assert all(type(column) is list for column in batch.values())


def test_sample_draws_by_random_state_over_the_valid_part() -> None:
    for pushes in (1, 3, 4, 11):
        shared, plain = both(4, 2, pushes)
        for seed in range(20):
            assert shared.sample(9, seed) == plain.sample(9, seed) == shared.sample(9, seed=seed)


def test_sample_without_a_seed_differs_from_call_to_call() -> None:
    shared, _ = both(100, 1, 100)
    assert shared.sample(20) != shared.sample(20)


def test_sample_leaves_the_global_generator_alone() -> None:
    shared, _ = both(4, 1, 4)
    np.random.seed(1)  # noqa: NPY002
    before = np.random.get_state()[1].tolist()  # noqa: NPY002
    shared.sample(9, seed=5)
    shared.sample(9)
    assert np.random.get_state()[1].tolist() == before  # noqa: NPY002


def test_latest_is_ordered_from_oldest_to_newest() -> None:
    shared, _ = both(5, 1, 13)
    assert shared.latest(3)["actions"] == [transition(k, 1)[1] for k in (10, 11, 12)]


def test_latest_of_more_than_there_are_gives_all() -> None:
    shared, _ = both(5, 1, 3)
    assert shared.latest(100)["actions"] == [transition(k, 1)[1] for k in range(3)]


def test_nothing_is_in_an_empty_buffer() -> None:
    shared, plain = both(5, 2, 0)
    assert len(shared) == 0
    assert shared.latest(3) == plain.latest(3) == {name: [] for name in KEYS}
    with pytest.raises(ReplayBufferError, match="empty"):
        shared.sample(1)


def test_latest_of_none_and_sample_of_none_are_empty() -> None:
    shared, plain = both(5, 2, 3)
    assert shared.latest(0) == plain.latest(0)
    assert shared.sample(0, seed=1) == plain.sample(0, seed=1)


@pytest.mark.parametrize(("capacity", "state_dim"), [(0, 2), (-1, 2), (4, 0), (4, -1), (1.5, 2)])
def test_sizes_that_make_no_sense_are_refused(capacity: Any, state_dim: Any) -> None:
    with pytest.raises(ReplayBufferError):
        SharedCircularBuffer(capacity, state_dim)


@pytest.mark.parametrize("state_dim", [None, "2", True, 2**70])
def test_a_state_dim_that_is_no_number_is_refused(state_dim: Any) -> None:
    with pytest.raises(InvalidArgument):
        SharedCircularBuffer(4, state_dim)


@pytest.mark.parametrize("n", [-1, 1.5, "x", None, True])
def test_a_number_of_rows_that_makes_no_sense_is_refused(n: Any) -> None:
    for pushes in (0, 3):
        shared, _ = both(5, 2, pushes)
        with pytest.raises(InvalidArgument, match="batch_size"):
            shared.sample(n)
        with pytest.raises(InvalidArgument, match="n must be"):
            shared.latest(n)


@pytest.mark.parametrize("seed", [-1, 2**32, "x", 1.5])
def test_a_seed_that_makes_no_sense_is_refused(seed: Any) -> None:
    shared, _ = both(5, 2, 3)
    with pytest.raises(InvalidArgument, match="seed"):
        shared.sample(2, seed=seed)


def test_a_refused_push_changes_nothing() -> None:
    shared, _ = both(3, 2, 2)
    before = shared.latest(3)
    for bad in (
        ([1.0], 0, 0.0, [1.0, 2.0], False),
        ([1.0, 2.0], 0.5, 0.0, [1.0, 2.0], False),
        ([1.0, 2.0], 0, "r", [1.0, 2.0], False),
        ([1.0, 2.0], 0, 0.0, None, False),
    ):
        with pytest.raises(ReplayBufferError):
            shared.push(*bad)
    assert shared.latest(3) == before
