"""The command replay-buffer, run as a user runs it, on real segments."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, NotFound, ReplayBuffer, SharedArray, _core

SCHEMA = {"obs": Column((3,)), "action": Column((), "int64", limit=1000)}
pytestmark = pytest.mark.usefixtures("shm_dir")

WRITER = """
import sys, time
import numpy as np
from replay_buffer import ReplayBuffer
buffer = ReplayBuffer.open(sys.argv[1])
for i in range(int(sys.argv[2])):
    buffer.add(np.full(3, i, np.float32), i)
print("ready", flush=True)
time.sleep(60)
"""


def make(name: str, rows: int = 10, **options: Any) -> ReplayBuffer:
    location = name if ":" in name else f"shm:{name}"
    buffer = ReplayBuffer.create(location, BufferConfig(100, **options), schema=SCHEMA)
    for i in range(rows):
        buffer.add(np.full(3, i, np.float32), i)
    return buffer


def run(*arguments: str) -> subprocess.CompletedProcess[str]:
    command = [sys.executable, "-m", "replay_buffer.cli", *arguments]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert "Traceback" not in done.stderr
    return done


@contextmanager
def writer(location: str, rows: int = 5) -> Iterator[subprocess.Popen[str]]:
    """Another process that has added rows and holds the buffer open."""
    command = [sys.executable, "-c", WRITER, location, str(rows)]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stdout.readline() == "ready\n"
        try:
            yield process
        finally:
            process.kill()


def listed(*arguments: str) -> list[dict[str, Any]]:
    done = run("ls", "--json", *arguments)
    assert done.returncode == 0, done.stderr
    found: list[dict[str, Any]] = json.loads(done.stdout)
    return found


# ---- ls ------------------------------------------------------------------------------------------


def test_ls_of_nothing_prints_nothing() -> None:
    done = run("ls")
    assert (done.returncode, done.stdout, done.stderr) == (0, "", "")
    assert listed() == []


def test_ls_shows_size_fill_strategy_owner_and_user() -> None:
    with make("one", 10, strategy="prioritized") as buffer, make("two", 3):
        one, two = listed()
        assert one["location"] == "shm:one"
        assert (one["size"], one["capacity"], one["strategy"]) == (10, 100, "prioritized")
        assert one["bytes"] == buffer.stats()["segment_bytes"]
        assert [(o["pid"], o["alive"], o["rows_added"]) for o in one["owners"]] == [
            (os.getpid(), True, 10)
        ]
        assert (one["in_use"], one["state"], one["problem"]) == (True, "in use", None)
        assert two["size"] == 3
        text = run("ls").stdout
        assert "10/100" in text
        assert f"1 alive ({os.getpid()})" in text
        assert "in use" in text


def test_ls_lists_arrays_behind_buffers() -> None:
    with make("one"), SharedArray.create((10, 2), "float32") as array:
        assert [entry.get("location") for entry in listed()] == ["shm:one", None]
        entry = listed()[1]
        assert (entry["array"], entry["state"]) == (array.name, "in use")
        assert entry["bytes"] >= array.array.nbytes
        assert array.name in run("ls").stdout


def test_ls_tells_dead_owners_from_live_ones() -> None:
    with make("one"), writer("shm:one") as other:
        assert {o["pid"]: o["alive"] for o in listed()[0]["owners"]} == {
            os.getpid(): True,
            other.pid: True,
        }
        other.kill()
        other.wait()
        assert {o["pid"]: o["alive"] for o in listed()[0]["owners"]} == {
            os.getpid(): True,
            other.pid: False,
        }
        assert f"1 alive ({os.getpid()}), 1 dead ({other.pid})" in run("ls").stdout


def test_ls_says_stale_of_what_no_process_has_open() -> None:
    make("left").close()
    assert listed()[0]["state"] == "stale"


def test_ls_lists_broken_segments_with_the_reason(shm_dir: Path) -> None:
    make("whole").close()
    (shm_dir / "replay_buffer.broken").write_bytes(b"x" * 5000)
    (shm_dir / "replay_buffer.empty").touch()
    broken, empty, whole = listed()
    assert "does not begin like one" in broken["problem"]
    assert "0 bytes" in empty["problem"]
    assert whole["problem"] is None
    assert "does not begin like one" in run("ls").stdout


# ---- rm ------------------------------------------------------------------------------------------


def test_rm_removes_what_nobody_has_open() -> None:
    make("a").close()
    make("b").close()
    done = run("rm", "a", "shm:b")
    assert (done.returncode, done.stdout) == (0, "removed shm:a\nremoved shm:b\n")
    assert listed() == []


def test_rm_refuses_what_is_in_use_unless_forced() -> None:
    with make("used") as buffer:
        done = run("rm", "used")
        assert done.returncode == 1
        assert done.stdout == ""
        assert done.stderr.count("\n") == 1
        assert "in use" in done.stderr
        assert len(listed()) == 1
        assert run("rm", "--force", "used").returncode == 0
        assert listed() == []
        buffer.add(np.zeros(3, np.float32), 1)  # it lives on where it is open
        assert len(buffer) == 11


def test_rm_of_what_is_not_there_says_so_and_removes_the_rest() -> None:
    make("there").close()
    done = run("rm", "missing", "there")
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "missing" in done.stderr
    assert done.stdout == "removed shm:there\n"


def test_rm_stale_removes_orphans_and_only_those(shm_dir: Path) -> None:
    make("left").close()
    with make("used"):
        make("orphan").close()
        with writer("shm:orphan") as other:
            assert "orphan" not in run("rm", "--stale").stdout.replace("left", "")
            other.kill()
            other.wait()
        (shm_dir / "replay_buffer.broken").write_bytes(b"x" * 5000)
        done = run("rm", "--stale")
        assert done.returncode == 0
        assert done.stdout == "removed shm:broken\nremoved shm:orphan\n"
        assert [segment["location"] for segment in listed()] == ["shm:used"]
    assert run("rm", "--stale").stdout == "removed shm:used\n"
    assert list(shm_dir.iterdir()) == []


def test_rm_stale_removes_files_whose_maker_was_killed(shm_dir: Path) -> None:
    old, fresh = shm_dir / ".replay_buffer.0123", shm_dir / ".replay_buffer.4567"
    for path in (old, fresh):
        path.write_bytes(b"half made")
    os.utime(old, (time.time() - 3600,) * 2)
    assert run("rm", "--stale").stdout == "removed 1 unfinished\n"
    assert not old.exists()
    assert fresh.exists()


@pytest.mark.parametrize(
    "arguments", [["rm"], ["rm", "--stale", "name"], ["rm", "--stale", "--force"], [], ["frob"]]
)
def test_a_command_line_that_makes_no_sense_is_refused(arguments: list[str]) -> None:
    done = run(*arguments)
    assert done.returncode == 2
    assert "usage:" in done.stderr


def test_rm_of_a_file_wants_a_segment(tmp_path: Path) -> None:
    make(f"file:{tmp_path}/replay.rb").close()
    other = tmp_path / "notes.rb"
    other.write_text("not a segment")
    done = run("rm", str(other))
    assert done.returncode == 2
    assert "--force" in done.stderr
    assert other.exists()
    assert run("rm", "--force", str(other)).returncode == 0
    assert not other.exists()
    assert run("rm", str(tmp_path / "replay.rb")).returncode == 0
    assert not (tmp_path / "replay.rb").exists()


# ---- stat ----------------------------------------------------------------------------------------


def test_stat_shows_counters_columns_and_owners() -> None:
    with make("one", 10, strategy="prioritized") as buffer:
        buffer.sample(4)
        facts = json.loads(run("stat", "one", "--json").stdout)
        assert facts["location"] == "shm:one"
        expected = buffer.stats()
        for name in ("size", "capacity", "rows_added", "rows_sampled", "samples", "strategy"):
            assert facts[name] == expected[name], name
        assert facts["columns"] == {
            "obs": {"shape": [3], "dtype": "float32", "limit": None, "compression": None},
            "action": {"shape": [], "dtype": "int64", "limit": 1000, "compression": None},
        }
        (owner,) = facts["owners"]
        assert (owner["pid"], owner["alive"], owner["rows_added"]) == (os.getpid(), True, 10)
        text = run("stat", "one").stdout
        me = f"pid {os.getpid()}"
        for part in ("rows_sampled", "float32[3]", "int64 < 1000", me, "alive", "10 rows"):
            assert part in text


def test_stat_shows_dead_owners_and_leaves_no_trace() -> None:
    with make("one", 0) as buffer, writer("shm:one", rows=7) as other:
        other.kill()
        other.wait()
        before = buffer.stats()
        owners = {o["pid"]: o for o in json.loads(run("stat", "one", "--json").stdout)["owners"]}
        assert owners[other.pid]["alive"] is False
        assert owners[other.pid]["rows_added"] == 7
        after = buffer.stats()
        assert {k: after[k] for k in before} == {
            **before,
            "resident_bytes": after["resident_bytes"],
        }


def test_a_writer_in_the_place_of_a_dead_one_is_told_by_its_own_rows() -> None:
    with make("one", 0):
        with writer("shm:one", rows=7) as first:
            first.kill()
            first.wait()
        with writer("shm:one", rows=2) as second:
            facts = json.loads(run("stat", "one", "--json").stdout)
            assert {o["pid"]: o["rows_added"] for o in facts["owners"]} == {
                os.getpid(): 0,
                second.pid: 2,
            }
            assert facts["rows_added"] == 9


def test_stat_tells_of_episodes_in_a_line() -> None:
    steps = {
        "obs": Column((3,)),
        "action": Column((), "int64"),
        "reward": Column(),
        "terminated": Column((), "bool"),
        "truncated": Column((), "bool"),
    }
    config = BufferConfig(100, storage="steps")
    with ReplayBuffer.create("shm:one", config, schema=steps) as buffer:
        assert "episodes         0 finished, 0 steps\n" in run("stat", "one").stdout
        stream = buffer.writer()
        for i in range(1, 13):
            last = {"final_obs": [0.0] * 3} if i % 4 == 0 else {}
            stream.append([0.0] * 3, 1, 0.5, i % 4 == 0, False, **last)
        told = "3 finished, 12 steps; of the latest 3 the mean length 4, return 2\n"
        assert told in run("stat", "one").stdout


def test_stat_takes_files_by_location_and_by_path(tmp_path: Path) -> None:
    make(f"file:{tmp_path}/replay.rb").close()
    for name in (f"file:{tmp_path}/replay.rb", f"{tmp_path}/replay.rb"):
        assert json.loads(run("stat", name, "--json").stdout)["size"] == 10


def test_stat_watch_shows_rates_and_ends_when_the_segment_goes() -> None:
    command = [sys.executable, "-m", "replay_buffer.cli", "stat", "one", "--json", "--watch", "0.1"]
    with (
        make("one", strategy="prioritized") as buffer,
        subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process,
    ):
        assert process.stdout is not None
        deadline = time.monotonic() + 60
        while time.monotonic() < deadline:
            for _ in range(2000):
                buffer.add(np.zeros(3, np.float32), 1)
                buffer.update_priorities(buffer.sample(4)["indices"], np.ones(4))
            facts = json.loads(process.stdout.readline())
            if all(facts[rate] > 0 for rate in ("added/s", "sampled/s", "updated/s")):
                break
        else:
            pytest.fail("no rates were shown")
        _core.remove("shm:one", False)
        process.stdout.read()
        assert process.wait(30) == 0


def test_stat_watch_ends_cleanly_on_ctrl_c() -> None:
    command = [sys.executable, "-m", "replay_buffer.cli", "stat", "one", "--watch", "0.05"]
    with (
        make("one"),
        subprocess.Popen(
            command,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            text=True,
            # Whoever runs the tests in the background may ignore it, and that is inherited.
            preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),
        ) as process,
    ):
        assert process.stdout is not None
        assert "added/s" in process.stdout.readline()
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        _, errors = process.communicate(timeout=30)
        assert process.returncode == 0
        assert errors == ""


# ---- verify, errors ------------------------------------------------------------------------------


def test_verify_of_a_sound_segment() -> None:
    with make("one", strategy="prioritized"):
        done = run("verify", "one")
        assert done.returncode == 0, done.stdout + done.stderr
        assert "10 rows, no problems" in done.stdout


def test_verify_prints_what_is_wrong(shm_dir: Path) -> None:
    make("one", 50, strategy="prioritized").close()
    path = shm_dir / "replay_buffer.one"
    raw = bytearray(path.read_bytes())
    at = raw.rindex(np.full(3, 49, np.float32).tobytes())  # the record of the last row
    word = raw.rindex((49 << 8 | 2).to_bytes(8, "little"), 0, at + 1)
    raw[word : word + 8] = (50_000_049 << 8 | 2).to_bytes(8, "little")
    path.write_bytes(raw)
    done = run("verify", "one")
    assert done.returncode == 1
    assert done.stdout.startswith("shm:one: ")


@pytest.mark.parametrize("command", ["stat", "verify"])
def test_errors_are_one_line(command: str, shm_dir: Path) -> None:
    (shm_dir / "replay_buffer.broken").write_bytes(b"x" * 5000)
    for name in ("missing", "broken", "bad name", "shm:", "heap:", "/no/such/file.rb"):
        done = run(command, name)
        assert done.returncode == 2, name
        assert done.stdout == ""
        assert done.stderr.startswith("replay-buffer: ")
        assert done.stderr.count("\n") == 1


def test_a_directory_that_is_not_there_is_one_line(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", "/no/such/directory")
    for arguments in (["ls"], ["rm", "--stale"], ["stat", "x"]):
        done = run(*arguments)
        assert done.returncode == 2
        assert done.stderr.count("\n") == 1
        assert "/no/such/directory" in done.stderr


def test_a_reader_that_goes_away_is_no_error() -> None:
    with make("one"):
        command = f"{sys.executable} -m replay_buffer.cli stat one --watch 0.01 | head -n 3"
        done = subprocess.run(
            ["sh", "-c", command], capture_output=True, text=True, timeout=60, check=True
        )
        assert done.stdout.count("\n") == 3
        assert done.stderr == ""


def test_the_command_is_installed() -> None:
    from importlib.metadata import entry_points

    (entry,) = entry_points(group="console_scripts", name="replay-buffer")
    assert entry.value == "replay_buffer.cli.__main__:main"
    assert run("--version").stdout.strip() == _core.__version__


def test_nothing_is_created_by_looking() -> None:
    for command in (["stat", "x"], ["verify", "x"], ["ls"], ["rm", "--stale"]):
        run(*command)
    with pytest.raises(NotFound):
        ReplayBuffer.open("shm:x")
