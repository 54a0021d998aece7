"""episodes() leaves out what is the same in all, and nothing of the observation."""

from __future__ import annotations

import numpy as np

from replay_buffer import BufferConfig, Column, ReplayBuffer
from views.world import FLAGS

REST = {"action": Column((), "int64"), "reward": Column(), **FLAGS}


def test_parts_of_the_observation_may_have_any_name() -> None:
    names = ("mask", "is_first", "lengths", "indices")
    obs = {name: Column((2,)) for name in names}
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"), schema={"obs": obs, **REST})
    with buffer.writer() as writer:
        for t in range(3):
            now, final = ({name: [x, x] for name in names} for x in (t, 9))
            writer.append(now, 0, 1.0, t == 2, False, final_obs=final)
    (episode,) = buffer.episodes()
    for name in names:
        np.testing.assert_array_equal(episode["obs"][name], [[0, 0], [1, 1], [2, 2]])
        np.testing.assert_array_equal(episode["final_obs"][name], [9, 9])
    assert not {"mask", "is_first", "lengths"} & set(episode)


def test_values_and_offsets_may_be_parts_of_the_observation() -> None:
    obs = {"values": Column((2,)), "offsets": Column((), "int64")}
    schema = {"obs": obs, "tokens": Column((None,), "int32"), **REST}
    buffer = ReplayBuffer(BufferConfig(20, storage="steps"), schema=schema)
    with buffer.writer() as writer:
        for t in range(3):
            writer.append(
                {"values": [t, t], "offsets": t},
                action=0,
                reward=1.0,
                terminated=t == 2,
                truncated=False,
                tokens=np.full(t, t, np.int32),
                final_obs={"values": [9, 9], "offsets": 9},
            )
    (episode,) = buffer.episodes()
    assert episode["obs"]["values"].shape == (3, 2)
    np.testing.assert_array_equal(episode["obs"]["offsets"], [0, 1, 2])
    assert episode["final_obs"]["offsets"] == 9
    np.testing.assert_array_equal(episode["tokens"]["values"], [1, 2, 2])
    np.testing.assert_array_equal(episode["tokens"]["offsets"], [0, 0, 1, 3])
