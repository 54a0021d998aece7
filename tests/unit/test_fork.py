"""After fork a child has a buffer of its own: it starts with the parent's rows and shares nothing.

Each scenario runs in a fresh interpreter, whose children report by their exit code.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

COMMON = """
import os, signal, sys, threading, time, traceback
import numpy as np
from replay_buffer import BufferConfig, Column, ReplayBuffer, _core

sys.setswitchinterval(1e-5)
_core.set_long_work(0)  # calls of a thread run beside the fork

def in_child(check):
    pid = os.fork()
    if pid == 0:
        try:
            check()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    _, status = os.waitpid(pid, 0)
    assert os.waitstatus_to_exitcode(status) == 0, os.waitstatus_to_exitcode(status)

def row(k, width):
    return k, np.full(width, k, np.int64)

def make(capacity, width):
    schema = {"k": Column((), "int64"), "x": Column((width,), "int64")}
    return ReplayBuffer(BufferConfig(capacity), schema=schema, seed=0)

def assert_sound(buffer):
    batch = buffer.latest(buffer.capacity)
    assert len(buffer) == len(batch["k"]) <= buffer.capacity, (len(buffer), batch["k"])
    assert (batch["x"] == batch["k"][:, None]).all()
    assert (np.diff(batch["indices"]) > 0).all()
    drawn = buffer.sample(50)
    assert (drawn["x"] == drawn["k"][:, None]).all()
    assert set(drawn["indices"]) <= set(batch["indices"])
"""


def run(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-W", "ignore::DeprecationWarning", "-c", COMMON + script],
        capture_output=True,
        text=True,
        timeout=100,
    )
    assert done.returncode == 0, done.stderr


def test_rule_27_a_child_writes_into_rows_of_its_own() -> None:
    run("""
buffer = make(8, 3)
for k in range(5):
    buffer.add(*row(k, 3))

def check():
    assert buffer.latest(8)["k"].tolist() == [0, 1, 2, 3, 4]
    for k in range(100, 120):
        buffer.add(*row(k, 3))
    assert buffer.latest(2)["k"].tolist() == [118, 119]
    assert_sound(buffer)

in_child(check)
assert buffer.latest(8)["k"].tolist() == [0, 1, 2, 3, 4]
buffer.add(*row(5, 3))
assert_sound(buffer)
""")


def test_a_child_of_a_process_that_copied_with_threads_samples() -> None:
    """The helpers of large copies do not exist in the child; it must not wait for them."""
    run("""
buffer = make(16, 20_000)
for k in range(16):
    buffer.add(*row(k, 20_000))
for _ in range(5):
    assert_sound(buffer)
    in_child(lambda: assert_sound(buffer))
    in_child(lambda: in_child(lambda: assert_sound(buffer)))
""")


@pytest.mark.parametrize("long", [False, True])
def test_a_child_forked_while_a_thread_adds_has_a_sound_buffer(long: bool) -> None:
    run(
        f"width, forks = {(100_000, 15) if long else (10, 40)}\n"
        + """
buffer = make(8, width)
for k in range(8):
    buffer.add(*row(k, width))
stop = False

def add_for_ever():
    rows = [row(k, width) for k in range(5)]
    while not stop:
        for values in rows:
            buffer.add(*values)

def check():
    before = len(buffer)
    assert before in (7, 8)  # the row that was being written never is
    for k in range(3):
        buffer.add(*row(k, width))
        assert_sound(buffer)
    for k in range(20):
        buffer.add(*row(k, width))
    assert buffer.is_full
    assert_sound(buffer)
    buffer.clear()
    buffer.add(*row(1, width))
    assert_sound(buffer)

thread = threading.Thread(target=add_for_ever)
thread.start()
try:
    for _ in range(forks):
        in_child(check)
finally:
    stop = True
    thread.join()
assert_sound(buffer)
"""
    )


def test_a_child_forked_while_a_thread_adds_a_batch_has_a_sound_buffer() -> None:
    run("""
width, n = 2_000, 1_000
buffer = make(4096, width)
ks = np.arange(n)
xs = np.repeat(ks, width).reshape(n, width)

def check():
    before = buffer.latest(4096)["indices"]
    buffer.add(*row(7, width))
    assert_sound(buffer)
    assert buffer.latest(1)["k"].tolist() == [7]
    ids = [buffer.add(*row(k, width)) for k in range(20)]
    assert ids == list(range(ids[0], ids[0] + 20))
    assert_sound(buffer)
    assert set(before) <= set(buffer.latest(4096)["indices"])  # whole rows are kept

for _ in range(20):
    buffer.clear()
    thread = threading.Thread(target=buffer.add_batch, args=(ks, xs))
    thread.start()
    in_child(check)
    thread.join()
    assert_sound(buffer)
""")


def test_a_child_forked_while_a_thread_samples_samples_too() -> None:
    run("""
buffer = make(16, 20_000)
for k in range(16):
    buffer.add(*row(k, 20_000))
stop = False

def sample_for_ever():
    while not stop:
        buffer.sample(32)

threads = [threading.Thread(target=sample_for_ever) for _ in range(2)]
for thread in threads:
    thread.start()
try:
    for _ in range(15):
        in_child(lambda: assert_sound(buffer))
finally:
    stop = True
    for thread in threads:
        thread.join()
""")


def test_a_lock_that_another_thread_held_is_free_in_the_child() -> None:
    """The one under which columns are settled, writers made and buffers closed."""
    run("""
buffer = make(8, 3)
held, done = threading.Event(), threading.Event()

def hold():
    with buffer._client.exchanging:
        held.set()
        done.wait()

threading.Thread(target=hold, daemon=True).start()
held.wait()

def check():
    signal.alarm(30)
    buffer.add(*row(1, 3))
    buffer.close()

in_child(check)
done.set()
""")


def test_a_child_forked_beside_a_writer_counts_what_it_has() -> None:
    """Before it writes anything; its parent's thread was in the midst of a batch."""
    run("""
width, n = 500, 20_000
buffer = make(65_536, width)
rows = np.arange(n), np.repeat(np.arange(n)[:, None], width, axis=1)
stop = False

def add_for_ever():
    while not stop:
        buffer.add_batch(*rows)

def check():
    assert buffer._engine.verify() == []
    assert len(buffer) == buffer.stats()["size"] == len(buffer.latest(65_536)["k"])
    buffer.add(*row(1, width))
    assert buffer._engine.verify() == []
    assert_sound(buffer)

thread = threading.Thread(target=add_for_ever)
thread.start()
end = time.monotonic() + 15
try:
    for _ in range(10):
        time.sleep(0.02)
        in_child(check)
        if time.monotonic() > end:
            break
finally:
    stop = True
    thread.join()
""")
