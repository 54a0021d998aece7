"""A process ends cleanly whatever its buffers and threads are doing."""

from __future__ import annotations

import subprocess
import sys

import pytest

BUSY = """
import asyncio, atexit, sys, threading
import numpy as np
from replay_buffer import BufferConfig, Column, ReplayBuffer, _core

sys.setswitchinterval(1e-5)
_core.set_long_work(0)  # threads are inside of calls without the interpreter's lock
schema = {"x": Column((100_000,), "uint8"), "n": {"y": Column((3,))}}
buffer = ReplayBuffer(BufferConfig(64), schema=schema, seed=0)
x, y = np.zeros(100_000, np.uint8), np.zeros(3, np.float32)
batch_x, batch_y = np.zeros((8, 100_000), np.uint8), np.zeros((8, 3), np.float32)
buffer.add(x, {"y": y})
out = buffer.sample(64)
turns = threading.Semaphore(0)

def forever(call):
    def loop():
        while True:
            call()
            turns.release()
    threading.Thread(target=loop, daemon=True).start()

"""

CALLS = {
    "add": "forever(lambda: buffer.add(x, {'y': y}))",
    "add by name": "forever(lambda: buffer.add(x=x, n={'y': y}))",
    "add_batch": "forever(lambda: buffer.add_batch(batch_x, {'y': batch_y}))",
    "sample": "forever(lambda: buffer.sample(64))",
    "sample out": "forever(lambda: buffer.sample(64, out=out))",
    "latest": "forever(lambda: buffer.latest(8))",
}


def ends_well(script: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", BUSY + script], capture_output=True, text=True, timeout=100
    )
    assert (done.returncode, done.stderr) == (0, "")


@pytest.mark.parametrize("call", CALLS)
def test_daemon_threads_inside_a_call_do_not_spoil_the_exit(call: str) -> None:
    ends_well(CALLS[call] + "\n" + CALLS[call] + "\nfor _ in range(20): turns.acquire()\n")


def test_all_calls_at_once_do_not_spoil_the_exit() -> None:
    ends_well("\n".join(CALLS.values()) + "\nfor _ in range(60): turns.acquire()\n")


def test_buffers_alive_at_exit_do_no_harm() -> None:
    ends_well("""
class Cycle: pass
cycle = Cycle()
cycle.me, cycle.buffer = cycle, buffer
sys.modules["kept"] = cycle
atexit.register(lambda: buffer.sample(64))
""")


def test_a_loop_that_ends_early_does_no_harm() -> None:
    ends_well("""
async def main():
    tasks = [asyncio.ensure_future(buffer.sample_async(64)) for _ in range(50)]
    await tasks[0]
    for task in tasks[1:]:
        task.cancel()

asyncio.run(main())
""")
