"""Configurations that make no sense, or that ask for more memory than there is."""

from __future__ import annotations

import resource
import subprocess
import sys
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, InvalidArgument, ReplayBuffer


@pytest.mark.parametrize("capacity", [0, -1, -(2**70), 2**41, 2**70, 1.5, "8", None, True, [8]])
def test_a_capacity_that_makes_no_sense_is_refused(capacity: Any) -> None:
    with pytest.raises(InvalidArgument, match="capacity"):
        BufferConfig(capacity)


@pytest.mark.parametrize(
    ("option", "value"),
    [
        ("strategy", "best"),
        ("strategy", None),
        ("strategy", 0),
        ("alpha", -0.1),
        ("alpha", float("nan")),
        ("alpha", "a"),
        ("beta", float("inf")),
        ("beta", None),
        ("epsilon", -1e-9),
        ("weights", "max"),
        ("cer", "yes"),
        ("cer", 1),
        ("cer", None),
        ("max_times_sampled", 0),
        ("block_rows", 0),
        ("block_rows", 9),
        ("block_rows", 1.5),
        ("min_size", np.array([1, 2])),
        ("min_size", -1),
        *(
            pytest.param(option, 10**5000, id=f"{option}-huge")
            for option in ("capacity", "min_size", "alpha", "strategy")
        ),
        *(
            (option, value)
            for option in ("strategy", "weights", "storage")
            for value in (np.array(["uniform", "batch"]), np.array(["steps"]), np.array([]))
        ),
        ("strategy", ["uniform"]),
        ("strategy", {}),
        ("storage", {"steps"}),
    ],
)
def test_an_option_that_makes_no_sense_is_named(option: str, value: Any) -> None:
    with pytest.raises(InvalidArgument, match=option):
        BufferConfig(**{"capacity": 8, option: value})


def test_a_capacity_of_numpy_is_a_capacity() -> None:
    assert BufferConfig(np.int32(5)).capacity == 5


@pytest.mark.parametrize("cer", [True, np.True_])
def test_cer_is_true_or_false(cer: Any) -> None:
    assert BufferConfig(4, cer=cer).core_options(0)["cer"] is True


def test_switches_of_numpy_become_those_of_python() -> None:
    config = BufferConfig(10, cer=np.True_, durable=np.False_)
    assert config.cer is True
    assert config.durable is False
    assert repr(config) == "BufferConfig(capacity=10, cer=True)"


NO_MEMORY = """
import resource
import numpy as np
from replay_buffer import BufferConfig, OutOfSpace, ReplayBuffer

buffer = ReplayBuffer(BufferConfig(1_000_000), obs_shape=(84, 84, 4), action_dim=6)
resource.setrlimit(resource.RLIMIT_AS, (2**31, 2**31))
frame = np.zeros((84, 84, 4), np.uint8)
for _ in range(2):
    try:
        buffer.add(frame, 1, 0.0, frame, False)
    except OutOfSpace as error:
        assert isinstance(error, MemoryError)
        assert "5647" in str(error) or "56.4" in str(error) or "52.5" in str(error), error
    else:
        raise SystemExit("was not refused")
assert buffer.schema is None and len(buffer) == 0
"""


@pytest.mark.skipif(sys.platform != "linux", reason="RLIMIT_AS holds on Linux only")
def test_memory_that_cannot_be_reserved_is_a_clear_error_with_its_size() -> None:
    assert resource.RLIMIT_AS is not None
    done = subprocess.run([sys.executable, "-c", NO_MEMORY], capture_output=True, text=True)
    assert done.returncode == 0, done.stderr + done.stdout


def test_a_buffer_of_steps_has_room_for_two() -> None:
    with pytest.raises(InvalidArgument, match="at least 2"):
        BufferConfig(1, storage="steps")
    buffer = ReplayBuffer(BufferConfig(2, storage="steps"), seed=0)
    with buffer.writer() as writer:
        for t in range(5):
            writer.append([float(t)], 0, 1.0, True, False, final_obs=[t + 1.0])
    assert (buffer.sample(3)["next_obs"] == 5).all()
