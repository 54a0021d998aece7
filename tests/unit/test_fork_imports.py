"""Nothing is imported on a path that may run after a fork.

Another thread may be importing a module when the process forks. In the child that import never
ends, and whoever needs the module waits for ever. Modules that `import replay_buffer` has loaded
need no waiting; so each path must do with these. The paths run in the child of a fresh interpreter.
"""

from __future__ import annotations

import os
import subprocess
import sys

import pytest

pytestmark = pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")

PATHS = """
import contextlib, os, pickle, signal, sys, threading, time, traceback
import numpy as np
import replay_buffer
from replay_buffer import *
from replay_buffer import _core

location = f"shm:imports-{os.getpid()}"
steps = {
    "obs": {"x": Column((2,)), "achieved_goal": Column((1,)), "desired_goal": Column((1,))},
    "action": Column((), "int64"),
    "reward": Column(),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}

def refused(kind, call, *arguments, **named):
    try:
        call(*arguments, **named)
    except kind as error:
        return str(error)
    raise AssertionError(f"{call} of {arguments}, {named} was not refused")

def transitions(buffer):
    for i in range(20):
        buffer.add([i, i + 1], i % 3, float(i), [i + 1, i + 2], i % 5 == 4)
    buffer.add(obs=[1, 2], action=np.int8(1), reward=1, next_obs=(3, 4), done=0)
    buffer.add_batch([[1, 2]], [1], [0.5], [[2, 3]], [True], priority=[2.0])
    refused(SchemaMismatch, buffer.add, "one", 0, 0.0, [0, 0], False)
    refused(SchemaMismatch, buffer.add, [1, 2, 3], 0, 0.0, [0, 0], False)
    refused(SchemaMismatch, buffer.add, [1, 2], 0.5, 0.0, [0, 0], False)
    refused(SchemaMismatch, buffer.add, [1, 2], 0, 10**30, [0, 0], False)
    refused(ReplayBufferError, buffer.add, [1, 2], -1, 0.0, [0, 0], False)
    refused(SchemaMismatch, buffer.add, [1, 2], 0, 0.0, [0, 0], False, wrong=1)
    refused(InvalidArgument, buffer.add, [1, 2], 0, 0.0, [0, 0], False, priority=-1.0)
    batch = buffer.sample(np.int64(8), beta=0.5)
    buffer.sample(8, out=batch)
    refused(InvalidArgument, buffer.sample, 0)
    refused(SchemaMismatch, buffer.sample, 8, out={})
    refused(InvalidArgument, buffer.sample, 8, timeout="soon")
    ids = batch["indices"].tolist()
    buffer.update_priorities(ids, [1.5] * 8)
    refused(InvalidArgument, buffer.update_priorities, ids, [np.nan] * 8)
    refused(InvalidArgument, buffer.update_priorities, [10**6], [1.0])  # by the core
    buffer.priorities(ids)
    buffer.get(ids)
    refused(RowGone, buffer.get, [10**6])
    buffer.latest(5)
    view = buffer.view(NStep(3))
    view.get(view.starts())
    view.sample(4, out=view.sample(4))
    buffer.alpha = 0.5
    repr(buffer), repr(view), repr(buffer.config), repr(buffer.schema), buffer.stats()
    buffer.clear()
    refused(NotEnoughRows, buffer.sample, 4)

def write(writer, calls):
    for i in range(calls):
        obs = {"x": [[i, i]] * 2, "achieved_goal": [[i]] * 2, "desired_goal": [[9]] * 2}
        writer.append(obs, [0, 1], [1.0, 2.0], [i % 4 == 3] * 2, [False] * 2, final_obs=obs)

def views(buffer):
    with buffer.writer(2) as writer:
        write(writer, 13)
        refused(SchemaMismatch, writer.append, 1)
        repr(writer)
    reward = lambda achieved, goal, info: -np.abs(achieved - goal)[:, 0]
    for parts in (
        (), (NStep(3),), (FrameStack(2),), (Sequence(3, burn_in=1),), (Trajectory(),),
        (Hindsight(reward=reward),), (Hindsight("final", reward=reward), NStep(2)),
    ):
        view = buffer.view(*parts)
        batch = view.sample(4)
        refused(RowGone, view.get, [10**6])
        refused(InvalidArgument, view.sample, 4, out={"obs": 1})
    sequences = buffer.view(Sequence(3))
    ids = sequences.sample(4)["indices"]
    sequences.update_priorities(ids, np.ones((4, 3)), mask=np.ones((4, 3), bool))
    list(buffer.episodes())
    buffer.sample(3)

def elsewhere(directory):
    with ReplayBuffer.create(location, BufferConfig(10), schema={"x": Column()}) as shared:
        shared.add(1)
        with ReplayBuffer.open(location, readonly=True) as reader:
            refused(ReadOnly, reader.add, 1)
            reader.latest(1)
        pickle.loads(pickle.dumps(shared)).close()
        shared.checkpoint(os.path.join(directory, "saved"))
        shared.unlink()
    with ReplayBuffer.restore(os.path.join(directory, "saved")) as again:
        refused(TypeError, pickle.dumps, again)
    refused(NotFound, ReplayBuffer.open, location)
    refused(Corrupt, ReplayBuffer.open, "file:" + np.__file__, readonly=True)
    with SharedArray.create((3, 2), "float32") as array:
        array.array[:] = 1
        pickle.loads(pickle.dumps(array)).close()
        array.unlink()
    ring = SharedCircularBuffer(10, 2)
    ring.push([1, 2], 1, 0.5, [2, 3], False)
    ring.sample(1, seed=3)

def in_child(work, seconds=40.0):
    pid = os.fork()
    if pid == 0:
        try:
            work()
        except BaseException:
            traceback.print_exc()
            os._exit(1)
        os._exit(0)
    until = time.monotonic() + seconds
    while time.monotonic() < until:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            assert status == 0, status
            return
        time.sleep(0.01)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")

config = BufferConfig(50, strategy="prioritized")
made = ReplayBuffer(config, obs_shape=(2,), action_dim=3)
of_steps = ReplayBuffer(BufferConfig(100, strategy="prioritized", storage="steps"), schema=steps)

def all_paths():
    transitions(made)
    transitions(ReplayBuffer(config, obs_shape=(2,), action_dim=3))
    views(of_steps)
    elsewhere(sys.argv[1])
"""

REFUSING = """
class Refuse:
    @staticmethod
    def find_spec(name, path=None, target=None):
        raise AssertionError(f"{name} is imported in the child of a fork")

def guarded():
    sys.meta_path.insert(0, Refuse)
    all_paths()

in_child(guarded)
"""

HOLDING = """
import importlib.machinery

held, name = threading.Event(), sys.argv[2]
already = name in sys.modules

class Hold:  # the lock of the module, not that of all imports, which a fork waits for
    @staticmethod
    def find_spec(wanted, path=None, target=None):
        return importlib.machinery.ModuleSpec(wanted, Hold) if wanted == name else None

    @staticmethod
    def create_module(spec):
        return None

    @staticmethod
    def exec_module(module):
        held.set()
        time.sleep(3600)

sys.setswitchinterval(1e-5)
sys.meta_path.insert(0, Hold)
threading.Thread(target=__import__, args=(name,), daemon=True).start()
try:
    assert already or held.wait(30)
    in_child(all_paths)
except BaseException:
    traceback.print_exc()
    os._exit(1)
os._exit(0)
"""

ASYNC = """
import asyncio

async def work():
    await made.add_async([1, 2], 0, 1.0, [2, 3], False)
    batch = await made.sample_async(2)
    await made.update_priorities_async(batch["indices"], [1.0, 2.0])
    await made.view(NStep(1)).sample_async(2)
    with contextlib.suppress(Timeout):
        await ReplayBuffer.open_async("shm:nobody", wait=0.01)
    with of_steps.writer() as writer:
        obs = {"x": [0, 0], "achieved_goal": [0], "desired_goal": [0]}
        await writer.append_async(obs, 0, 1.0, True, False, final_obs=obs)
    saved = os.path.join(sys.argv[1], "awaited")
    await made.checkpoint_async(saved)
    (await ReplayBuffer.restore_async(saved)).close()
    async for episode in of_steps.episodes_async():
        pass
    waiting = asyncio.create_task(ReplayBuffer(config).sample_async(1, timeout=10))
    await asyncio.sleep(0.01)
    waiting.cancel()

def guarded():
    sys.meta_path.insert(0, Refuse)
    asyncio.run(work())
    _core.set_long_work(0)  # all calls in threads
    asyncio.run(work())

in_child(guarded)
"""

MULTIPROCESSING = """
import multiprocessing

def guarded(buffer, also):
    sys.meta_path.insert(0, Refuse)
    buffer.add(2)
    also.append(ReplayBuffer.create(location + "b", BufferConfig(10), schema={"x": Column()}))
    also[0].unlink()
    transitions(made)

shared = ReplayBuffer.create(location, BufferConfig(10), schema={"x": Column()})
child = multiprocessing.get_context("fork").Process(target=guarded, args=(shared, []))
child.start()
child.join(60)
assert child.exitcode == 0, child.exitcode
assert shared.latest(5)["x"].tolist() == [2]
shared.unlink()
shared.close()
"""


def run(script: str, *arguments: object) -> None:
    command = [sys.executable, "-W", "ignore::DeprecationWarning", "-c", PATHS + script]
    done = subprocess.run(
        [*command, *map(str, arguments)], capture_output=True, text=True, timeout=120
    )
    assert done.returncode == 0, done.stderr


def test_no_path_imports_a_module_in_a_forked_child(tmp_path: object) -> None:
    run(REFUSING, tmp_path)


def test_no_async_call_imports_a_module_in_a_forked_child(tmp_path: object) -> None:
    run(REFUSING.replace("in_child(guarded)", "") + ASYNC, tmp_path)


def test_a_child_of_multiprocessing_imports_nothing(tmp_path: object) -> None:
    run(REFUSING.replace("in_child(guarded)", "") + MULTIPROCESSING, tmp_path)


@pytest.mark.parametrize(
    "module", ["numpy.ma", "multiprocessing.context", "concurrent.futures.thread"]
)
def test_a_child_does_not_wait_for_what_another_thread_was_importing(
    module: str, tmp_path: object
) -> None:
    run(HOLDING, tmp_path, module)
