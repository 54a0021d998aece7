"""`out=` of transitions whose values have any length: arrays are used where they have room."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    InvalidArgument,
    NStep,
    ReplayBuffer,
    SchemaMismatch,
    Timeout,
)
from replay_buffer.schema import Column
from replay_buffer.testing.crowd import Crowd
from views.reused import addresses, check_same, junk

SCHEMA = {
    "tokens": Column((None,), "int32", expected=4),
    "scene": {
        "points": Column((None, 3), "float32", compression="zstd", padded=True),
        "marks": Column((None, 2), "int16"),
        "pixels": Column((4, 4), "uint8"),
    },
    "words": Column((None,), "uint16", padded=True),
    "number": Column((), "int64"),
}
ROWS = 60


def row_of(number: int) -> dict[str, Any]:
    rng = np.random.default_rng(number)
    lengths = rng.integers(0, 12, 4) * (1 + 9 * (number % 20 == 0))
    return {
        "tokens": rng.integers(1, 99, lengths[0]).astype("int32"),
        "scene": {
            "points": 1 + rng.random((lengths[1], 3)).astype("float32"),
            "marks": rng.integers(1, 99, (lengths[2], 2)).astype("int16"),
            "pixels": np.full((4, 4), number, "uint8"),
        },
        "words": rng.integers(1, 99, lengths[3]).astype("uint16"),
        "number": number,
    }


def make(strategy: str = "uniform", rows: int = ROWS, **options: Any) -> ReplayBuffer:
    buffer = ReplayBuffer(BufferConfig(rows, strategy, **options), schema=SCHEMA, seed=5)
    for number in range(rows):
        buffer.add(**row_of(number))
    return buffer


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "fifo", "without_replacement"])
@pytest.mark.parametrize("n", [1, 4, 40])
def test_a_loop_gets_the_batches_of_the_same_seed(strategy: str, n: int) -> None:
    one, two = make(strategy), make(strategy)
    batch = None
    for _ in range(100 if strategy != "fifo" else ROWS // n):
        fresh = one.sample(n)
        again = two.sample(n, out=batch)
        assert batch is None or again is batch
        batch = again
        check_same(batch, fresh)


def test_arrays_only_grow_and_settle() -> None:
    one, two = make(), make()
    batch = two.sample(8)
    one.sample(8)
    changes = []
    for call in range(400):
        before = addresses(batch), {k: v.size for k, v in sizes(batch).items()}
        two.sample(8, out=batch)
        check_same(batch, one.sample(8))
        after = addresses(batch), {k: v.size for k, v in sizes(batch).items()}
        for path, size in before[1].items():
            assert after[1][path] >= size
            assert (after[0][path] == before[0][path]) or after[1][path] > size
            if after[1][path] > size:
                changes.append((call, path))
    assert changes
    assert len(changes) < 100
    fixed = {"tokens/offsets", "scene/marks/offsets", "scene/pixels", "number", "indices"}
    assert not fixed & {path for _, path in changes}


def sizes(batch: dict[str, Any]) -> dict[str, Any]:
    scene, tokens = batch["scene"], batch["tokens"]
    return {
        "tokens/values": tokens["values"],
        "tokens/offsets": tokens["offsets"],
        "scene/points": scene["points"],
        "scene/points_mask": scene["points_mask"],
        "scene/marks/values": scene["marks"]["values"],
        "scene/marks/offsets": scene["marks"]["offsets"],
        "scene/pixels": scene["pixels"],
        "words": batch["words"],
        "words_mask": batch["words_mask"],
        "number": batch["number"],
        "indices": batch["indices"],
    }


def test_arrays_with_room_are_kept_and_what_is_behind_the_values_too() -> None:
    one, two = make(), make()
    out = junk(two.sample(8), room=2000)
    one.sample(8)
    for name, holder in (("points", out["scene"]), ("words", out)):
        array = holder[name]
        holder[name] = np.full((8, 200, *array.shape[2:]), 3, array.dtype)
        holder[name + "_mask"] = np.ones((8, 200), bool)
    held = addresses(out)
    inner = out["tokens"], out["scene"], out["scene"]["marks"]
    for _ in range(20):
        two.sample(8, out=out)
        check_same(out, one.sample(8))
        assert addresses(out) == held
        assert (out["tokens"], out["scene"], out["scene"]["marks"]) == inner
    end = max(out["tokens"]["offsets"][-1], 1200)
    assert (out["tokens"]["values"][end:] == 3).all()


def test_new_arrays_are_as_large_as_the_batch_needs() -> None:
    one, two = make(), make()
    two.sample(8)
    small = junk(one.sample(8), room=0)
    small["words"], small["words_mask"] = np.empty((8, 0), "uint16"), np.empty((8, 0), bool)
    fresh = two.sample(8)
    one.sample(8, out=small)
    assert small["tokens"]["values"].shape == fresh["tokens"]["values"].shape
    assert small["scene"]["marks"]["values"].shape == fresh["scene"]["marks"]["values"].shape
    assert small["words"].shape == small["words_mask"].shape == fresh["words"].shape
    check_same(small, fresh)


def test_weights_are_those_of_a_fresh_batch() -> None:
    one, two = make("prioritized"), make("prioritized")
    for buffer in (one, two):
        buffer.update_priorities(np.arange(ROWS), np.arange(ROWS) + 0.5)
    out = two.sample(16)
    one.sample(16)
    for beta in (0.2, 0.7, None):
        check_same(two.sample(16, out=out, beta=beta), one.sample(16, beta=beta))


def test_values_that_take_long_are_filled_without_the_lock_of_python() -> None:
    schema = {"tokens": Column((None,), "int64"), "number": Column((), "int64")}
    with ReplayBuffer(BufferConfig(50), schema=schema) as buffer:
        for number in range(50):
            buffer.add(np.full(900 + number, number), number)

        def read(crowd: Crowd) -> None:
            batch: dict[str, Any] | None = None
            while not crowd.over.is_set():
                batch = buffer.sample(64, out=batch)
                offsets = batch["tokens"]["offsets"]
                told = np.repeat(batch["number"], np.diff(offsets))
                assert (batch["tokens"]["values"][: offsets[-1]] == told).all()

        with Crowd() as crowd:
            for _ in range(3):
                crowd.start(read, crowd)
            for number in range(50, 400):
                buffer.add(np.full(900 + number % 50, number), number)


# ---- what is refused

Change = Callable[[dict[str, Any]], Any]


def odd() -> dict[str, tuple[Change, type[Exception], str]]:
    def tokens(**changes: Any) -> Change:
        def change(out: dict[str, Any]) -> Any:
            pair = dict(out["tokens"])
            for name, value in changes.items():
                pair[name] = value(pair[name])
            return {**out, "tokens": pair}

        return change

    def scene(name: str, value: Callable[[Any], Any]) -> Change:
        return lambda out: {**out, "scene": {**out["scene"], name: value(out["scene"][name])}}

    def without(*path: str) -> Change:
        def change(out: dict[str, Any]) -> Any:
            *outer, last = path
            if not outer:
                return {key: value for key, value in out.items() if key != last}
            inner = {key: value for key, value in out[outer[0]].items() if key != last}
            return {**out, outer[0]: inner}

        return change

    def locked(array: Any) -> Any:
        array = array.copy()
        array.flags.writeable = False
        return array

    def shared_marks(out: dict[str, Any]) -> Any:
        room = np.zeros(400, "int16")
        marks = {"values": room.reshape(-1, 2), "offsets": out["scene"]["marks"]["offsets"]}
        words = room.view("uint16")[:8].reshape(4, 2)
        mask = np.zeros((4, 2), bool)
        scene = {**out["scene"], "marks": marks}
        return {**out, "scene": scene, "words": words, "words_mask": mask}

    def shared_offsets(out: dict[str, Any]) -> Any:
        pair = {**out["tokens"], "offsets": out["scene"]["marks"]["offsets"]}
        return {**out, "tokens": pair}

    wrong = SchemaMismatch
    return {
        "values of another dtype": (
            tokens(values=lambda a: a.astype("int64")),
            wrong,
            "'tokens/values'",
        ),
        "values of two dimensions": (tokens(values=lambda a: a[:, None]), wrong, "'tokens/values'"),
        "values that are a list": (tokens(values=list), wrong, "'tokens/values'"),
        "values that are None": (tokens(values=lambda a: None), wrong, "'tokens/values'"),
        "values for reading": (tokens(values=locked), wrong, "'tokens/values'"),
        "values with gaps": (
            tokens(values=lambda a: np.zeros(400, "int32")[::2]),
            wrong,
            "'tokens/values'",
        ),
        "swapped values": (tokens(values=lambda a: a.astype(">i4")), wrong, "'tokens/values'"),
        "few offsets": (tokens(offsets=lambda a: a[:-1].copy()), wrong, "'tokens/offsets'"),
        "many offsets": (tokens(offsets=lambda a: np.r_[a, a]), wrong, "'tokens/offsets'"),
        "offsets of int32": (
            tokens(offsets=lambda a: a.astype("int32")),
            wrong,
            "'tokens/offsets'",
        ),
        "no values": (without("tokens", "values"), wrong, "'tokens/values'"),
        "no offsets": (without("tokens", "offsets"), wrong, "'tokens/offsets'"),
        "no pair": (without("tokens"), wrong, "'tokens'"),
        "an array for a pair": (
            lambda out: {**out, "tokens": out["tokens"]["values"]},
            InvalidArgument,
            "tokens",
        ),
        "no mask": (without("words_mask"), wrong, "'words_mask'"),
        "no mask inside": (without("scene", "points_mask"), wrong, "'scene/points_mask'"),
        "a mask of bytes": (
            scene("points_mask", lambda a: a.astype("uint8")),
            wrong,
            "'scene/points_mask'",
        ),
        "a mask of another length": (
            scene("points_mask", lambda a: np.zeros((4, a.shape[1] + 1), bool)),
            wrong,
            "'scene/points_mask'",
        ),
        "points of two numbers": (
            scene("points", lambda a: np.zeros((4, 50, 2), "float32")),
            wrong,
            "'scene/points'",
        ),
        "points of too few rows": (
            scene("points", lambda a: np.zeros((3, 50, 3), "float32")),
            wrong,
            "'scene/points'",
        ),
        "points for reading": (scene("points", locked), wrong, "'scene/points'"),
        "points column by column": (
            scene("points", lambda a: np.zeros((4, 50, 3), "float32", order="F")),
            wrong,
            "'scene/points'",
        ),
        "a number that is wrong": (
            lambda out: {**out, "number": out["number"][:-1]},
            wrong,
            "'number'",
        ),
        "one memory for two columns": (shared_marks, wrong, "'words'"),
        "offsets of two columns": (shared_offsets, wrong, "'scene/marks/offsets'"),
    }


@pytest.mark.parametrize("kind", odd())
def test_what_cannot_be_filled_is_refused_untouched(kind: str) -> None:
    change, error, said = odd()[kind]
    buffer, other = make(), make()
    good = buffer.sample(4)
    other.sample(4)
    texts = {path: repr(value) for path, value in sizes(good).items()}
    counted = buffer.stats()["samples"]
    with pytest.raises(error, match=said):
        buffer.sample(4, out=change(good))
    assert {path: repr(value) for path, value in sizes(good).items()} == texts
    assert buffer.stats()["samples"] == counted
    check_same(buffer.sample(4), other.sample(4))  # nothing was drawn


def test_a_refusal_gives_its_share_back() -> None:
    buffer = make(samples_per_insert=1.0, min_size=10, tolerance=float(ROWS))
    out = buffer.sample(4)
    balance = buffer.stats()["limiter"]["balance"]
    for _ in range(50):
        wrong = {**out, "tokens": {**out["tokens"], "offsets": out["tokens"]["offsets"][1:]}}
        with pytest.raises(SchemaMismatch):
            buffer.sample(4, out=wrong, timeout=0)
    assert buffer.stats()["limiter"]["balance"] == balance
    drawn = 0
    while buffer.stats()["limiter"]["balance"] == balance - drawn and drawn < 4 * ROWS:
        try:
            buffer.sample(4, out=out, timeout=0)
        except Timeout:
            break
        drawn += 4
    assert 0 < drawn < 4 * ROWS
    assert buffer.stats()["limiter"]["balance"] == balance - drawn


def test_a_dict_that_changes_during_the_call_is_no_danger() -> None:
    """A key may run code when it is compared: the arrays found before are the ones filled."""

    class Key:
        def __hash__(self) -> int:
            return hash("words_mask")

        def __eq__(self, other: object) -> bool:
            tokens.clear()
            out["scene"].clear()
            return other == "words_mask"

    one, two = make(), make()
    one.sample(4)
    out: dict[Any, Any] = junk(two.sample(4), room=2000)
    out[Key()] = out.pop("words_mask")
    tokens, held = out["tokens"], dict(out["tokens"])
    two.sample(4, out=out)
    assert tokens == {}
    fresh = one.sample(4)["tokens"]
    np.testing.assert_array_equal(held["offsets"], fresh["offsets"])
    np.testing.assert_array_equal(held["values"][: fresh["offsets"][-1]], fresh["values"])


def test_n_steps_of_transitions_take_them_too() -> None:
    schema = {"obs": Column((None,), "int32"), "reward": Column(), "done": Column((), "bool")}
    one_stream = NStep(3, one_stream=True)
    views = []
    for _ in range(2):
        buffer = ReplayBuffer(BufferConfig(50), schema=schema, seed=2)
        for number in range(50):
            buffer.add(np.full(number % 7, number), 1.0, number % 9 == 8)
        views.append(buffer.view(one_stream))
    batch = None
    for _ in range(30):
        batch = views[0].sample(6, out=batch)
        check_same(batch, views[1].sample(6))
