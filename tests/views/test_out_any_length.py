"""`out=` where the size of arrays depends on the batch: values of any length, whole episodes."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    Hindsight,
    NStep,
    ReplayBuffer,
    SchemaMismatch,
    Sequence,
    Trajectory,
)
from views.goals import distance
from views.reused import addresses, check_same, junk
from views.world import flat, nested

GOALS = Hindsight("future", reward=distance)
VIEWS: list[tuple[Any, ...]] = [
    (),
    (NStep(1),),
    (NStep(3, 0.9),),
    (Sequence(3),),
    (Sequence(4, burn_in=2, next_obs=True),),
    (Trajectory(9),),
    (Trajectory(),),
    (Trajectory(), FrameStack(2, columns=("obs/id",))),
    (GOALS,),
    (GOALS, NStep(3, 0.9)),
]
EPISODES = [3, 1, 9, 2, 5, 4, 1, 1, 7]

Values = dict[str, Any]


def make(strategy: str = "prioritized", episodes: int = 40, **options: Any) -> ReplayBuffer:
    goal = Column((2,), "float32")
    buffer = ReplayBuffer(
        BufferConfig(300, strategy, storage="steps", **options),
        schema={
            "obs": {
                "tokens": Column((None,), "int32", expected=3),
                "cloud": Column((None, 2), "float32", padded=True),
                "achieved_goal": goal,
                "desired_goal": goal,
                "id": Column((), "int64"),
            },
            "note": Column((None,), "uint8"),
            "boxes": Column((None, 4), "int16", padded=True, compression="lz4"),
            "action": Column((), "int64"),
            "reward": Column(),
            "terminated": Column((), "bool"),
            "truncated": Column((), "bool"),
        },
        seed=3,
    )
    rng = np.random.default_rng(1)
    number = 0

    def observe() -> Values:
        nonlocal number
        number += 1
        lengths = rng.integers(0, 6, 2) * (1 + 6 * (number % 25 == 0))
        return {
            "tokens": np.full(lengths[0], number, "int32"),
            "cloud": np.full((lengths[1], 2), number, "float32"),
            "achieved_goal": np.array([number, 1], "float32"),
            "desired_goal": np.array([-number, 2], "float32"),
            "id": number,
        }

    with buffer.writer() as writer:
        for episode in range(episodes):
            length = EPISODES[episode % len(EPISODES)]
            for step in range(length):
                writer.append(
                    obs=observe(),
                    note=np.full(rng.integers(0, 5), 7, "uint8"),
                    boxes=np.full((rng.integers(0, 4), 4), step + 1, "int16"),
                    action=step,
                    reward=1.0 + step,
                    terminated=step == length - 1,
                    truncated=False,
                    final_obs=observe() if step == length - 1 else None,
                )
    return buffer


@pytest.mark.parametrize("strategy", ["uniform", "prioritized"])
@pytest.mark.parametrize("n", [1, 5])
@pytest.mark.parametrize("parts", VIEWS, ids=repr)
def test_a_loop_gets_the_batches_of_the_same_seed(
    parts: tuple[Any, ...], n: int, strategy: str
) -> None:
    one, two = make(strategy).view(*parts), make(strategy).view(*parts)
    batch = None
    for _ in range(60):
        fresh = one.sample(n)
        again = two.sample(n, out=batch)
        assert batch is None or again is batch
        batch = again
        check_same(batch, fresh)


@pytest.mark.parametrize("parts", VIEWS, ids=repr)
def test_memory_settles(parts: tuple[Any, ...]) -> None:
    view = make().view(*parts)
    batch = view.sample(6)
    dicts = {name: value for name, value in batch.items() if isinstance(value, dict)}
    for _ in range(300):
        view.sample(6, out=batch)
    held = addresses(batch)
    changed = 0
    for _ in range(100):
        view.sample(6, out=batch)
        changed += addresses(batch) != held
        held = addresses(batch)
    assert changed <= 10
    assert all(batch[name] is value for name, value in dicts.items())


@pytest.mark.parametrize("parts", VIEWS, ids=repr)
def test_arrays_with_room_are_used(parts: tuple[Any, ...]) -> None:
    one, two = make().view(*parts), make().view(*parts)
    largest = two.sample(200)
    one.sample(200)
    rows = {path: array[:4] for path, array in flat(largest).items()}
    steps = (len(largest["note"]["offsets"]) - 1) // 200
    out = flat(junk(nested(rows), room=3000))
    for path, array in flat(largest).items():
        if path.endswith("/offsets"):
            each = (len(array) - 1) // 200
            assert each in (1, steps)
            out[path] = np.full(4 * each + 1, 3)
    batch = nested(out)
    held = addresses(batch)
    for _ in range(20):
        assert two.sample(4, out=batch) is batch
        check_same(batch, one.sample(4))
        assert addresses(batch) == held
    assert (batch["note"]["values"][2000:] == 3).all()


def test_whole_episodes_take_the_time_of_the_arrays() -> None:
    one, two = make().view(Trajectory()), make().view(Trajectory())
    batch = two.sample(3)
    one.sample(3)
    longest = batch["mask"].shape[1]
    for _ in range(100):
        fresh = one.sample(3)
        two.sample(3, out=batch)
        longest = max(longest, fresh["mask"].shape[1])
        assert batch["mask"].shape == batch["reward"].shape == (3, longest)
        assert batch["obs"]["cloud"].shape[:2] == (3, longest)
        assert len(batch["obs"]["tokens"]["offsets"]) == 3 * longest + 1
        assert len(batch["final_obs"]["tokens"]["offsets"]) == 4
        check_same(batch, fresh)
        assert (batch["mask"].sum(axis=1) == batch["lengths"]).all()


def test_arrays_without_time_stay_when_the_time_grows() -> None:
    view = make().view(Trajectory())
    batch = view.sample(2)
    names = ("lengths", "indices", "weights")
    held = [batch[name] for name in names] + [batch["final_obs"]["id"], batch["obs"]]
    for _ in range(50):
        view.sample(2, out=batch)
    now = [batch[name] for name in names] + [batch["final_obs"]["id"], batch["obs"]]
    assert all(a is b for a, b in zip(held, now, strict=True))


@pytest.mark.parametrize("parts", VIEWS, ids=repr)
def test_what_cannot_be_filled_is_refused_before_anything_is_drawn(parts: tuple[Any, ...]) -> None:
    options = {"samples_per_insert": 100.0, "min_size": 1, "tolerance": 1e6}
    buffer = make(**options)
    view, other = buffer.view(*parts), make(**options).view(*parts)
    batch = flat(view.sample(4))
    other.sample(4)
    texts = {path: repr(array) for path, array in batch.items()}
    before = buffer.stats()
    wrong: list[Values] = []
    for path, array in batch.items():
        wrong.append({key: value for key, value in batch.items() if key != path})
        odd = [array.astype("complex64"), array[None], array.tolist(), None]
        if array.ndim > 1 and array.size > 1:
            odd.append(np.asfortranarray(np.zeros((*array.shape[:-1], array.shape[-1] + 2), "i1")))
        if not path.endswith("/values"):
            odd.append(array[:-1])
        locked = array.copy()
        locked.flags.writeable = False
        wrong.extend({**batch, path: value} for value in [*odd, locked])
    for out in wrong:
        with pytest.raises(ValueError, match="out"):
            view.sample(4, out=nested(out))
    assert {path: repr(array) for path, array in batch.items()} == texts
    assert buffer.stats()["samples"] == before["samples"]
    assert buffer.stats()["limiter"] == before["limiter"]
    check_same(view.sample(4), other.sample(4))


def test_arrays_of_different_times_are_refused() -> None:
    view = make().view(Trajectory())
    batch = flat(view.sample(4))
    time = batch["mask"].shape[1]
    for path in ("reward", "is_first", "obs/id", "obs/cloud", "mask"):
        array = batch[path]
        longer = np.zeros((4, time + 1, *array.shape[2:]), array.dtype)
        with pytest.raises(SchemaMismatch, match="out: column"):
            view.sample(4, out=nested({**batch, path: longer}))
    with pytest.raises(SchemaMismatch, match="'obs/tokens/offsets'"):
        view.sample(4, out=nested({**batch, "obs/tokens/offsets": np.zeros(4 * time + 2, int)}))


@pytest.mark.parametrize("parts", VIEWS, ids=repr)
def test_one_memory_for_two_columns_is_refused(parts: tuple[Any, ...]) -> None:
    view = make().view(*parts)
    batch = view.sample(4)
    batch["obs"]["tokens"]["offsets"] = batch["note"]["offsets"]
    with pytest.raises(SchemaMismatch, match="'note/offsets'"):
        view.sample(4, out=batch)
