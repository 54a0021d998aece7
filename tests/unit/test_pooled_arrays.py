"""Large arrays of batches come from memory that is kept between batches: never from one in use."""

from __future__ import annotations

import gc
import subprocess
import sys

import numpy as np

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema

SHAPE = (100, 100, 4)


def frames(rows: int = 64) -> ReplayBuffer:
    buffer = ReplayBuffer(
        BufferConfig(rows), schema=Schema({"x": Column(SHAPE, "float32")}), seed=0
    )
    for i in range(rows):
        buffer.add(np.full(SHAPE, i, np.float32))
    return buffer


def test_arrays_in_use_are_never_handed_out_again() -> None:
    buffer = frames()
    kept = [buffer.sample(8) for _ in range(20)]
    for i, a in enumerate(kept):
        np.testing.assert_array_equal(a["x"][:, 0, 0, 0], a["indices"])
        for b in kept[i + 1 :]:
            assert not np.shares_memory(a["x"], b["x"])


def test_a_view_keeps_the_memory_of_its_array() -> None:
    buffer = frames()
    view = buffer.sample(8)["x"][3, :, :, 1]
    value = view[0, 0]
    for _ in range(10):
        buffer.sample(8)
    assert (view == value).all()


def test_memory_is_used_again_once_an_array_is_gone() -> None:
    buffer = frames()
    places = set()
    for _ in range(20):
        places.add(buffer.sample(8)["x"].__array_interface__["data"][0])
        gc.collect()
    assert len(places) < 5


def test_arrays_outlive_the_buffer_and_can_be_written_and_pickled() -> None:
    import pickle

    buffer = frames()
    batch = buffer.sample(8)
    buffer.close()
    del buffer
    batch["x"] += 1
    np.testing.assert_array_equal(batch["x"][:, 0, 0, 0], batch["indices"] + 1)
    assert (pickle.loads(pickle.dumps(batch["x"])) == batch["x"]).all()


def test_arrays_alive_at_exit_do_no_harm() -> None:
    script = (
        "import numpy as np; from replay_buffer import *\n"
        "b = ReplayBuffer(BufferConfig(8), schema=Schema({'x': Column((100, 1000))}))\n"
        "b.add(np.zeros((100, 1000))); batch = b.sample(4)\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", script], capture_output=True, text=True, timeout=60
    )
    assert (done.returncode, done.stderr) == (0, "")
