"""SharedArray between real processes: they see one memory, and killing them leaves no mess.

Each scenario is a script of its own, so that children that are spawned can import it.
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from tempfile import TemporaryDirectory

import pytest

from replay_buffer import NotFound, SharedArray, _core
from replay_buffer.testing.crowd import Crowd
from unit.arrays import created

PREFIX = "replay_buffer_array."


def names(directory: Path) -> list[str]:
    return sorted(path.name.removeprefix(PREFIX) for path in directory.iterdir())


def run(tmp_path: Path, script: str) -> str:
    path = tmp_path / "script.py"
    path.write_text(script)
    command = [sys.executable, "-W", "error", "-W", "ignore::DeprecationWarning", str(path)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=100)
    assert (done.returncode, done.stderr) == (0, "")
    return done.stdout


# ---- one memory

WORKERS = """
import multiprocessing, sys
import numpy as np
from replay_buffer import SharedArray

def work(shared, name, k, barrier):
    with shared, SharedArray.open(name) as done:
        shared.array[k] = k + np.arange(1000)
        barrier.wait()
        assert (shared.array == np.arange(4)[:, None] + np.arange(1000)).all()
        done.array[k] = 1

if __name__ == "__main__":
    context = multiprocessing.get_context("{method}")
    barrier = context.Barrier(4)
    with SharedArray.create((4, 1000), "int64") as shared, SharedArray.create(4, "int8") as done:
        arguments = [(shared, done.name, k, barrier) for k in range(4)]
        workers = [context.Process(target=work, args=given) for given in arguments]
        for worker in workers: worker.start()
        for worker in workers: worker.join()
        assert [worker.exitcode for worker in workers] == [0] * 4
        assert done.array.tolist() == [1] * 4
        assert (shared.array == np.arange(4)[:, None] + np.arange(1000)).all()
        SharedArray.open(shared.name).close()  # no worker removed it
    shared.unlink()
    done.unlink()
"""


@pytest.mark.parametrize("method", ["spawn", "fork", "forkserver"])
def test_workers_and_their_parent_see_one_memory(
    tmp_path: Path, shm_dir: Path, method: str
) -> None:
    run(tmp_path, WORKERS.replace("{method}", method))
    assert names(shm_dir) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
@pytest.mark.parametrize(
    "child",
    [
        "os._exit(0)",
        "sys.exit(0)",  # leaves the with block of its parent
        "shared.close(); shared.unlink(); os._exit(0)",
        "del shared; gc.collect(); os._exit(0)",
    ],
)
def test_rule_25_a_forked_child_never_removes_the_name(
    tmp_path: Path, shm_dir: Path, child: str
) -> None:
    script = f"""
import gc, os, sys
from replay_buffer import SharedArray
parent = os.getpid()
with SharedArray.create(4, "int64") as shared:
    pid = os.fork()
    if pid == 0:
        shared.array[1] = 7
        {child}
    assert os.waitpid(pid, 0)[1] == 0
    assert shared.array[1] == 7
    SharedArray.open(shared.name).close()
shared.unlink()
"""
    run(tmp_path, script)
    assert names(shm_dir) == []


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_a_forked_child_removes_what_it_created_or_opened_itself(
    tmp_path: Path, shm_dir: Path
) -> None:
    run(
        tmp_path,
        """
import os
from replay_buffer import SharedArray
shared = SharedArray.create(4, "int64")
pid = os.fork()
if pid == 0:
    SharedArray.create(4, "int64").unlink()
    SharedArray.open(shared.name).unlink()
    os._exit(0)
assert os.waitpid(pid, 0)[1] == 0
shared.close()
""",
    )
    assert names(shm_dir) == []


# ---- those who are killed

CREATOR = """
import os, time
from replay_buffer import SharedArray
shared = SharedArray.create(1000, "float64")
shared.array[:] = 3
{more}
print(shared.name, flush=True)
time.sleep(100)
"""


def start_creator(more: str = "") -> tuple[subprocess.Popen[str], str]:
    command = [sys.executable, "-c", CREATOR.replace("{more}", more)]
    creator = subprocess.Popen(command, stdout=subprocess.PIPE, text=True)
    assert creator.stdout is not None
    return creator, creator.stdout.readline().strip()


def kill(process: subprocess.Popen[str]) -> None:
    with process:
        process.send_signal(signal.SIGKILL)
        assert process.wait() == -signal.SIGKILL


def test_rule_25_what_a_killed_creator_leaves_is_recognised_and_removed(shm_dir: Path) -> None:
    creator, name = start_creator()
    size = 128 + 8000
    assert _core.list_shared_arrays() == [(name, size, True)]
    assert _core.remove_stale_shared_arrays() == []
    kill(creator)
    assert _core.list_shared_arrays() == [(name, size, False)]
    with SharedArray.open(name) as survivor:  # the values are still there for who wants them
        assert survivor.array.sum() == 3000
        assert _core.remove_stale_shared_arrays() == []
    assert _core.remove_stale_shared_arrays() == [name]
    assert _core.list_shared_arrays() == []
    assert names(shm_dir) == []
    with pytest.raises(NotFound):
        SharedArray.open(name)


BUSY = """
from replay_buffer import SharedArray
print(flush=True)
while True:
    with SharedArray.create(100_000, "float64") as shared, SharedArray.open(shared.name) as other:
        other.array[-1] = 1
    shared.unlink()
"""


def test_rule_25_a_kill_at_any_moment_leaves_nothing_that_is_not_removed(shm_dir: Path) -> None:
    for i in range(20):
        process = subprocess.Popen([sys.executable, "-c", BUSY], stdout=subprocess.PIPE, text=True)
        assert process.stdout is not None
        process.stdout.readline()
        time.sleep(0.0007 * i)
        kill(process)
        for name, _, in_use in _core.list_shared_arrays():
            assert not in_use
            with SharedArray.open(name) as whole:
                assert whole.array.shape == (100_000,)
        _core.remove_stale_shared_arrays()
        assert list(shm_dir.iterdir()) == []


def test_an_array_is_in_use_while_a_view_is_all_that_is_left(shm_dir: Path) -> None:
    shared = SharedArray.create(3, "int8")
    view = shared.array
    shared.close()
    if sys.platform == "linux":
        assert _core.remove_stale_shared_arrays() == []
    del view
    assert _core.remove_stale_shared_arrays() == [shared.name]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork")
def test_an_array_is_in_use_while_a_forked_child_of_its_dead_creator_lives(shm_dir: Path) -> None:
    creator, name = start_creator("child = os.fork()\nif child == 0: time.sleep(100)\nprint(child)")
    child, name = int(name), creator.stdout.readline().strip()  # type: ignore[union-attr]
    try:
        kill(creator)
        assert _core.remove_stale_shared_arrays() == []
    finally:
        os.kill(child, signal.SIGKILL)
    removed: list[str] = []
    while not removed:  # somebody else has to wait for the orphan
        removed = _core.remove_stale_shared_arrays()
    assert removed == [name]


def test_only_shared_arrays_are_listed_and_removed(shm_dir: Path) -> None:
    others = [f"{PREFIX}foreign", f"{PREFIX}empty", "replay_buffer.buffer", "other"]
    for other in others:
        (shm_dir / other).write_bytes(b"" if "empty" in other else b"x" * 500)
    (shm_dir / f"{PREFIX}directory").mkdir()
    assert _core.list_shared_arrays() == []
    assert _core.remove_stale_shared_arrays() == []
    assert sorted(path.name for path in shm_dir.iterdir()) == sorted(
        [*others, f"{PREFIX}directory"]
    )


def test_opening_and_removing_at_once_gives_an_array_that_is_kept_or_none(shm_dir: Path) -> None:
    for _ in range(200):
        handed_on = SharedArray.create(3, "int8")
        handed_on.close()
        with Crowd() as crowd:
            removed = crowd.start(_core.remove_stale_shared_arrays)
            try:
                with SharedArray.open(handed_on.name) as opened:
                    assert removed.result() == []
                    opened.unlink()
            except NotFound:
                assert removed.result() == [handed_on.name]
        assert names(shm_dir) == []


# ---- other users


REFUSED = """
import os, sys
from replay_buffer import PermissionDenied, SharedArray, _core
if os.geteuid() == 0:
    os.seteuid(65534)
try:
    SharedArray.open(sys.argv[1])
except PermissionDenied as error:
    assert sys.argv[1] in str(error)
else:
    raise AssertionError("it was opened")
assert _core.list_shared_arrays() == []
assert _core.remove_stale_shared_arrays() == []
"""


def test_an_array_of_another_user_is_refused_and_let_be(monkeypatch: pytest.MonkeyPatch) -> None:
    with TemporaryDirectory() as directory:
        os.chmod(directory, 0o755)  # the directories of pytest are closed to others
        monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", directory)
        with created(3, "int8") as shared:
            if os.geteuid() != 0:
                os.chmod(Path(directory) / (PREFIX + shared.name), 0)
            command = [sys.executable, "-c", REFUSED, shared.name]
            done = subprocess.run(command, capture_output=True, text=True, timeout=100)
            assert (done.returncode, done.stderr) == (0, "")
            assert names(Path(directory)) == [shared.name]
