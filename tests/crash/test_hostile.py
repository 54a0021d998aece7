"""Hostile surroundings: other pid namespaces, forks in the middle of things, closed descriptors,
full and damaged memory, other users. A clear error or correct work; never a crash or a hang."""

from __future__ import annotations

import contextlib
import io
import os
import shutil
import signal
import stat
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    AlreadyExists,
    BufferConfig,
    Busy,
    Column,
    Corrupt,
    Incompatible,
    InvalidArgument,
    NotFound,
    OutOfSpace,
    PermissionDenied,
    ReadOnly,
    ReplayBuffer,
    ReplayBufferError,
    Schema,
    _core,
)
from replay_buffer.cli.__main__ import main

#: Every value of a row follows from its number, so that a torn row is noticed.
SCHEMA = {"number": Column((), "int64"), "twice": Column((5,), "int64")}
NOBODY = 54321  # a uid that no user has
BOOT_AT = 512  # in the header: 0 in a file that its last writer closed
as_root = pytest.mark.skipif(os.geteuid() != 0, reason="needs root")


@pytest.fixture(autouse=True)
def shm_dir(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    directory = tmp_path / "shm"
    directory.mkdir()
    monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", str(directory))
    return directory


def make(location: str = "shm:hostile", capacity: int = 1000, **options: Any) -> ReplayBuffer:
    return ReplayBuffer.create(location, BufferConfig(capacity, **options), schema=SCHEMA)


def add(buffer: ReplayBuffer, number: int) -> int:
    return buffer.add(number, np.full(5, 2 * number))


def check_rows(batch: dict[str, Any]) -> None:
    assert (batch["twice"] == 2 * batch["number"][:, None]).all()


COMMON = """
import os, signal, sys, time
import numpy as np
import replay_buffer
from replay_buffer import ReplayBuffer

def add(buffer, number):
    return buffer.add(number, np.full(5, 2 * number))
"""


def script(text: str, *arguments: Any, prefix: tuple[str, ...] = ()) -> subprocess.Popen[str]:
    command = [*prefix, sys.executable, "-c", COMMON + text, *map(str, arguments)]
    pipe = subprocess.PIPE
    return subprocess.Popen(command, stdin=pipe, stdout=pipe, stderr=pipe, text=True)


@contextlib.contextmanager
def running(text: str, *arguments: Any, prefix: tuple[str, ...] = ()) -> Iterator[Any]:
    """A process that has printed its first line, which is `process.first`."""
    with script(text, *arguments, prefix=prefix) as process:
        try:
            process.first = process.stdout.readline()  # type: ignore
            assert process.first, process.stderr.read()  # type: ignore
            yield process
        finally:
            process.kill()


def in_child(work: Callable[[], None]) -> int:
    """Runs `work` in a fork of this process. Returns the exit status: 0 when it did not raise."""
    pid = os.fork()
    if pid == 0:
        code = 1
        try:
            work()
            code = 0
        except BaseException as error:
            sys.stderr.write(f"child: {error!r}\n")
        finally:
            os._exit(code)
    return wait_for(pid)


def wait_for(pid: int, seconds: float = 60) -> int:
    deadline = time.monotonic() + seconds
    while time.monotonic() < deadline:
        done, status = os.waitpid(pid, os.WNOHANG)
        if done:
            return status
        time.sleep(0.005)
    os.kill(pid, signal.SIGKILL)
    os.waitpid(pid, 0)
    raise AssertionError("the child hangs")


# ---- pid namespaces ------------------------------------------------------------------------------

NAMESPACE = ("unshare", "--pid", "--fork", "--kill-child", "--mount-proc")

WRITE_ON = """
buffer = ReplayBuffer.open("shm:hostile")
number = int(sys.argv[1])
add(buffer, number)
print(os.getpid(), flush=True)
while True:
    number += 1
    add(buffer, number)
    time.sleep(0.0005)
"""


def can_unshare() -> bool:
    if shutil.which("unshare") is None:
        return False
    return subprocess.run([*NAMESPACE, "true"], capture_output=True).returncode == 0


@pytest.fixture
def namespaces() -> None:
    if not can_unshare():
        pytest.skip("this machine does not let this user make pid namespaces")


def kill_group(process: Any) -> None:
    """Kills what runs inside the namespace: its first process, a child of unshare."""
    children = Path(f"/proc/{process.pid}/task/{process.pid}/children").read_text().split()
    for child in children:
        os.kill(int(child), signal.SIGKILL)
    process.wait(30)


@pytest.mark.usefixtures("namespaces")
def test_writers_in_two_pid_namespaces_are_told_apart() -> None:
    with (
        make(capacity=64, block_rows=8) as buffer,
        running(WRITE_ON, 1_000_000, prefix=NAMESPACE) as one,
        running(WRITE_ON, 2_000_000, prefix=NAMESPACE) as two,
    ):
        # Both have the same pid, each in its own namespace.
        assert one.first == two.first == "1\n"
        add(buffer, 3_000_000)
        alive = [(o[1], o[2], o[3]) for o in buffer._owners()]
        assert alive.count((1, True, False)) == 2
        assert (os.getpid(), True, True) in alive
        check_rows(buffer.sample(200))

        kill_group(one)
        wait_until(lambda: [o[2] for o in buffer._owners() if o[1] == 1].count(False) == 1)
        # Who comes next mends what the dead one left, and nothing of the living one.
        with ReplayBuffer.open("shm:hostile") as other:
            assert [o[2] for o in other._owners() if o[1] == 1] == [True]
            before = rows_of(other, 2_000_000)
            for i in range(200):
                add(other, 3_000_001 + i)
            check_rows(other.sample(200))
            wait_until(lambda: rows_of(other, 2_000_000) > before)
        assert two.poll() is None
        kill_group(two)
        wait_until(lambda: [o[2] for o in buffer._owners() if o[1] == 1] == [False])
        with ReplayBuffer.open("shm:hostile") as other:
            assert not any(o[2] for o in other._owners() if o[1] == 1)
            assert other._verify() == []
            check_rows(other.latest(64))


def rows_of(buffer: ReplayBuffer, first: int) -> int:
    """The largest number of the writer that counts from `first`."""
    numbers = buffer.latest(buffer.capacity)["number"]
    mine = numbers[(numbers >= first) & (numbers < first + 1_000_000)]
    return int(mine.max()) if mine.size else 0


def wait_until(true: Callable[[], bool], seconds: float = 30) -> None:
    deadline = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < deadline, "it did not come true"
        time.sleep(0.01)


@pytest.mark.usefixtures("namespaces")
def test_a_stopped_writer_of_another_namespace_lives() -> None:
    with (
        make(capacity=64, block_rows=8) as buffer,
        running(WRITE_ON, 1_000_000, prefix=NAMESPACE) as one,
    ):
        child = int(Path(f"/proc/{one.pid}/task/{one.pid}/children").read_text())
        os.kill(child, signal.SIGSTOP)
        for i in range(300):
            add(buffer, i)
        assert [o[2] for o in buffer._owners() if o[1] == 1] == [True]
        os.kill(child, signal.SIGCONT)
        kill_group(one)


# ---- fork ----------------------------------------------------------------------------------------


def test_forks_in_the_middle_of_writes_lose_and_tear_nothing() -> None:
    forks, per_child = 100, 3
    with make(capacity=1_000_000, block_rows=64) as buffer:
        mine: list[int] = []
        stop = threading.Event()

        def write() -> None:
            number = 0
            while not stop.is_set():
                mine.append(add(buffer, number))
                number += 1

        thread = threading.Thread(target=write)
        thread.start()
        children = []
        try:
            for child in range(forks):
                pid = os.fork()
                if pid == 0:
                    code = 1
                    try:
                        for i in range(per_child):
                            add(buffer, 10_000_000 + child * per_child + i)
                        code = 0
                    finally:
                        os._exit(code)
                children.append(pid)
            assert [wait_for(pid) for pid in children] == [0] * forks
            before = len(mine)
            wait_until(lambda: len(mine) > before)  # the parent goes on
        finally:
            stop.set()
            thread.join()
        everything = buffer.latest(buffer.capacity)
        check_rows(everything)
        numbers = everything["number"]
        assert len(numbers) == len(set(everything["indices"])) == len(buffer)
        ours = np.sort(numbers[numbers < 10_000_000])
        assert (ours == np.arange(len(mine))).all()
        theirs = np.sort(numbers[numbers >= 10_000_000]) - 10_000_000
        assert (theirs == np.arange(forks * per_child)).all()
        assert set(mine) <= set(everything["indices"].tolist())


def allowed(work: Callable[[], Any]) -> None:
    """Correct work or a clear error."""
    with contextlib.suppress(ReplayBufferError):
        work()


@pytest.mark.parametrize("location", ["shm:hostile", "shm:"])
def test_a_child_that_closes_all_descriptors_works_or_is_refused(location: str) -> None:
    with make(location, strategy="prioritized") as buffer:
        for i in range(10):
            add(buffer, i)

        def work() -> None:
            os.closerange(3, 1000)
            allowed(lambda: add(buffer, 100))
            check_rows(buffer.sample(5))
            allowed(lambda: buffer.update_priorities([0], [2.0]))
            allowed(buffer.clear)
            allowed(buffer.close)

        assert in_child(work) == 0
        for i in range(10):
            add(buffer, i)
        check_rows(buffer.sample(20))
        assert [o[2] for o in buffer._owners() if o[1] == os.getpid()] == [True]
        if location != "shm:":
            with ReplayBuffer.open(location) as other:
                add(other, 5)
                assert other._verify() == []


CLOSE_ALL = """
buffer = ReplayBuffer.open("shm:hostile")
for i in range(10):
    add(buffer, i)
os.closerange(3, 1000)
descriptors = [os.open("/dev/null", os.O_RDWR) for _ in range(30)]  # the numbers are used again
for i in range(3000):
    add(buffer, i)
batch = buffer.sample(50)
assert (batch["twice"] == 2 * batch["number"][:, None]).all()
buffer.update_priorities(batch["indices"], np.ones(50))
try:
    if os.fork() == 0:
        try:
            add(buffer, 7)
        except replay_buffer.ReplayBufferError:
            pass
        os._exit(0)
    assert os.wait()[1] == 0
except replay_buffer.ReplayBufferError:
    pass
print("works", flush=True)
sys.stdin.readline()
try:
    buffer.close()
except replay_buffer.ReplayBufferError:
    pass
for descriptor in descriptors:
    os.fstat(descriptor)  # none of the new files was closed for an old one
print("closed", flush=True)
"""


def test_a_process_that_closes_all_descriptors_goes_on() -> None:
    with make(strategy="prioritized") as buffer, running(CLOSE_ALL) as process:
        assert process.first == "works\n"
        # Its locks are gone, and yet it lives: its pid says so.
        assert [o[2] for o in buffer._owners() if o[1] == process.pid] == [True]
        with ReplayBuffer.open("shm:hostile") as other:
            for i in range(3000):
                add(other, i)
            check_rows(other.sample(100))
        output, errors = process.communicate(timeout=60)
        assert output == "closed\n", errors
        assert process.returncode == 0


BLIND = """
buffer = ReplayBuffer.open("shm:hostile")
os.closerange(3, 1000)
descriptors = [os.open("/dev/null", os.O_RDWR) for _ in range(30)]
for i in range(300):
    add(buffer, i)
print([owner[2] for owner in buffer._owners() if not owner[3]], flush=True)
"""


@pytest.mark.usefixtures("namespaces")
def test_who_closed_its_descriptors_takes_nobody_elsewhere_for_dead() -> None:
    with (
        make(capacity=64, block_rows=8),
        running(WRITE_ON, 1_000_000, prefix=NAMESPACE) as writer,
        running(BLIND) as blind,
    ):
        assert blind.first == "[True]\n"
        kill_group(writer)


@pytest.mark.parametrize("taken", [True, False])
def test_who_closed_its_descriptors_does_not_mark_a_file_as_closed(
    tmp_path: Path, taken: bool
) -> None:
    path = tmp_path / "file"
    with make(f"file:{path}") as buffer:

        def work() -> None:
            other = ReplayBuffer.open(f"file:{path}")
            os.closerange(3, 1000)
            if taken:  # the number is now that of a file that nobody else has
                for i in range(30):
                    os.open(tmp_path / f"{i}", os.O_RDWR | os.O_CREAT)
            other.close()

        assert in_child(work) == 0
        assert path.read_bytes()[BOOT_AT : BOOT_AT + 8] != bytes(8)
        add(buffer, 1)
    assert path.read_bytes()[BOOT_AT : BOOT_AT + 8] == bytes(8)


# ---- space ---------------------------------------------------------------------------------------


@contextlib.contextmanager
def tmpfs(directory: Path, size: str) -> Iterator[None]:
    done = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", f"size={size}", "tmpfs", str(directory)],
        capture_output=True,
        text=True,
    )
    if done.returncode != 0:
        pytest.skip(f"cannot mount a tmpfs: {done.stderr.strip()}")
    try:
        yield
    finally:
        subprocess.run(["umount", str(directory)], check=True)


@as_root
def test_a_full_file_system_is_an_error_that_names_sizes(shm_dir: Path) -> None:
    with tmpfs(shm_dir, "1m"):
        columns = Schema({"x": Column((100,), "bool")}).core_columns()
        needed = _core.plan(columns, BufferConfig(1).core_options(0))
        assert needed[1] < 1_000_000
        with pytest.raises(OutOfSpace) as refused:
            make(capacity=100_000)
        assert any(part.isdigit() and int(part) > 1_000_000 for part in words(refused.value))
        assert list(shm_dir.iterdir()) == []
        with make("shm:small", capacity=100) as small:
            for i in range(300):
                add(small, i)
            # What is there was taken at once: filling the rest up changes nothing for it.
            with pytest.raises(OSError, match="No space"):
                (shm_dir / "filler").write_bytes(b"x" * 2_000_000)
            with pytest.raises(OutOfSpace):
                make("shm:second", capacity=1000)
            for i in range(300):
                add(small, i)
            check_rows(small.sample(100))
        assert sorted(path.name for path in shm_dir.iterdir()) == [
            "filler",
            "replay_buffer.small",
        ]


def words(error: BaseException) -> list[str]:
    return str(error).replace(",", "").replace(".", " ").split()


# ---- damaged segments ----------------------------------------------------------------------------


@pytest.fixture
def specimen(shm_dir: Path) -> Path:
    with make(capacity=50, strategy="prioritized") as buffer:
        for i in range(70):
            add(buffer, i)
    return shm_dir / "replay_buffer.hostile"


def opened_as(path: Path, raw: bytes) -> None:
    """Opens a segment of these bytes, both ways. It is another file each time."""
    path.unlink(missing_ok=True)
    path.write_bytes(raw)
    for readonly in (True, False):
        ReplayBuffer.open("shm:hostile", readonly=readonly).close()


def patched(raw: bytes, offset: int, kind: str, value: int) -> bytes:
    patch = struct.pack(kind, value)
    return raw[:offset] + patch + raw[offset + len(patch) :]


def test_a_segment_of_a_newer_format_is_incompatible(specimen: Path) -> None:
    raw = specimen.read_bytes()
    with pytest.raises(Incompatible, match="format 2"):
        opened_as(specimen, patched(raw, 8, "<I", 2))
    with pytest.raises(Incompatible):
        opened_as(specimen, patched(raw, 12, "<I", 1024))


def test_a_truncated_segment_is_corrupt_at_every_length(specimen: Path) -> None:
    raw = specimen.read_bytes()
    header = 9 * 64 + 2 * 192
    lengths = [*range(0, header + 1, 7), header, 2 * header, len(raw) // 2, len(raw) - 1]
    for length in lengths:
        with pytest.raises(Corrupt):
            opened_as(specimen, raw[:length])


def test_what_does_not_begin_like_a_segment_is_corrupt(specimen: Path) -> None:
    raw = specimen.read_bytes()
    with pytest.raises(Corrupt, match="begin"):
        opened_as(specimen, b"X" + raw[1:])
    with pytest.raises(Corrupt):
        opened_as(specimen, bytes(len(raw)))


def test_every_byte_of_the_fixed_header_is_checked(specimen: Path) -> None:
    raw = specimen.read_bytes()
    for offset in [*range(3 * 64), *range(10 * 64, 10 * 64 + 2 * 192, 5)]:
        changed = bytearray(raw)
        changed[offset] ^= 0x10
        with pytest.raises((Corrupt, Incompatible)):
            opened_as(specimen, bytes(changed))


def test_a_wrong_total_size_is_corrupt(specimen: Path) -> None:
    raw = specimen.read_bytes()
    for total in (0, len(raw) - 1, len(raw) + 1, 2 * len(raw), 2**63, 2**64 - 1):
        with pytest.raises(Corrupt):
            opened_as(specimen, with_checksum(patched(raw, 16, "<Q", total)))


def with_checksum(raw: bytes) -> bytes:
    """As somebody would write it who knows the format."""
    mask, prime = 2**64 - 1, 0x9E3779B97F4A7C15

    def mix(h: int, word: int) -> int:
        h = ((h ^ word) * prime) & mask
        return h ^ (h >> 29)

    def checksum(data: bytes, h: int) -> int:
        h = mix(h, len(data))
        for (word,) in struct.iter_unpack("<Q", data):
            h = mix(h, word)
        return mix(h, prime)

    columns = struct.unpack_from("<I", raw, 32 + 48)[0]
    h = checksum(raw[:24] + bytes(8) + raw[32:192], 0)
    h = checksum(raw[640 : 640 + columns * 192], h)
    return patched(raw, 24, "<Q", h)


def test_a_header_forged_with_its_checksum_is_refused_or_works(specimen: Path) -> None:
    raw = specimen.read_bytes()
    assert with_checksum(raw) == raw
    rng = np.random.default_rng(1)
    for _ in range(300):
        offset = int(rng.choice([*range(32, 192, 4), *range(640, 640 + 384, 4)]))
        value = int(rng.choice([0, 1, 2, 255, 2**31, 2**32 - 1, int(rng.integers(2**32))]))
        try:
            opened_as(specimen, with_checksum(patched(raw, offset, "<I", value)))
        except (Corrupt, Incompatible, InvalidArgument):
            continue
        with ReplayBuffer.open("shm:hostile") as buffer:
            buffer.stats()
            with contextlib.suppress(ReplayBufferError):
                buffer.sample(4)


@pytest.mark.parametrize(
    ("first", "second"),
    [("a", "a/b"), ("a/b", "a"), ("a/", "b"), ("", "b"), ("a", "a"), ("\x07", "b"), ("\xff", "b")],
)
def test_column_names_that_make_no_sense_are_corrupt(
    specimen: Path, first: str, second: str
) -> None:
    raw = specimen.read_bytes()
    for at, name in ((640, first), (640 + 192, second)):
        raw = raw[:at] + name.encode("latin-1").ljust(64, b"\0") + raw[at + 64 :]
    with pytest.raises(Corrupt):
        opened_as(specimen, with_checksum(raw))


# ---- permissions ---------------------------------------------------------------------------------


def as_nobody(work: Callable[[], None]) -> None:
    def other_user() -> None:
        os.setgroups([])
        os.setgid(NOBODY)
        os.setuid(NOBODY)
        work()

    assert in_child(other_user) == 0


@pytest.fixture
def for_everybody(shm_dir: Path) -> Path:
    """A directory that all users can reach, as /dev/shm is."""
    for directory in (shm_dir, *shm_dir.parents):
        if directory.owner() == "root" and os.geteuid() == 0 and directory != Path("/"):
            directory.chmod(directory.stat().st_mode | 0o755)
    shm_dir.chmod(0o1777)
    return shm_dir


@as_root
def test_another_user_can_neither_open_nor_see_nor_remove(for_everybody: Path) -> None:
    with make() as buffer:
        add(buffer, 1)
        path = for_everybody / "replay_buffer.hostile"
        assert stat.S_IMODE(path.stat().st_mode) == 0o600

        def work() -> None:
            for readonly in (True, False):
                with pytest.raises(PermissionDenied):
                    ReplayBuffer.open("shm:hostile", readonly=readonly)
            with pytest.raises(PermissionError):
                path.read_bytes()
            with pytest.raises((PermissionDenied, AlreadyExists)):
                make()
            for only_stale in (True, False):
                with pytest.raises(PermissionDenied):
                    _core.remove("shm:hostile", only_stale)
            with contextlib.redirect_stdout(io.StringIO()) as listed:
                assert main(["ls"]) == 0
            assert "permission denied" in listed.getvalue()

        as_nobody(work)
        add(buffer, 2)
        assert len(buffer) == 2


@as_root
def test_a_reader_needs_only_permission_to_read(for_everybody: Path) -> None:
    with make() as buffer:
        for i in range(10):
            add(buffer, i)
        (for_everybody / "replay_buffer.hostile").chmod(0o644)

        def work() -> None:
            with pytest.raises(PermissionDenied):
                ReplayBuffer.open("shm:hostile")
            with ReplayBuffer.open("shm:hostile", readonly=True) as reader:
                check_rows(reader.sample(20))
                assert len(reader.latest(5)["number"]) == 5
                with pytest.raises(ReadOnly):
                    add(reader, 1)

        as_nobody(work)


@pytest.mark.parametrize("strategy", ["uniform", "prioritized", "rank", "without_replacement"])
def test_a_reader_writes_nothing(shm_dir: Path, strategy: str) -> None:
    with make(strategy=strategy) as buffer:
        for i in range(10):
            add(buffer, i)
    path = shm_dir / "replay_buffer.hostile"
    before = path.read_bytes()
    with ReplayBuffer.open("shm:hostile", readonly=True) as reader:
        check_rows(reader.sample(50))
        reader.latest(3)
        reader.stats()
        reader._verify()
        for refused in (reader.clear, lambda: add(reader, 1)):
            with pytest.raises(ReadOnly):
                refused()
    assert path.read_bytes() == before


def test_a_reader_of_a_queue_cannot_take_from_it() -> None:
    with make(strategy="fifo") as buffer:
        add(buffer, 1)
        with (
            ReplayBuffer.open("shm:hostile", readonly=True) as reader,
            pytest.raises(ReadOnly, match="reading only"),
        ):
            reader.sample(1)
        assert len(buffer.sample(1)["number"]) == 1


# ---- the directory -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("value", "error"),
    [
        ("relative/path", InvalidArgument),
        (".", InvalidArgument),
        ("~", InvalidArgument),
        ("/no/such/directory", NotFound),
        ("/dev/null", NotFound),
        ("/proc/self", ReplayBufferError),
        ("/" + "x" * 5000, NotFound),
    ],
)
def test_odd_directories_are_refused(
    value: str, error: type[Exception], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", value)
    with pytest.raises(error):
        make()


@pytest.mark.parametrize("suffix", ["/", "//", "/.", "/../shm"])
def test_directories_written_differently_are_the_same(
    shm_dir: Path, suffix: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    with make() as buffer:
        add(buffer, 1)
        monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", f"{shm_dir}{suffix}")
        with ReplayBuffer.open("shm:hostile") as other:
            add(other, 2)
        assert len(buffer) == 2
        assert _core.list_shared_memory() == ["hostile"]


def test_an_empty_value_means_the_default(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", "")
    assert _core.segment_path("shm:x") == "/dev/shm/replay_buffer.x"


# ---- stopped, unlinked, racing -------------------------------------------------------------------


def test_a_stopped_writer_keeps_its_block_and_holds_up_nobody() -> None:
    with make(capacity=64, block_rows=8) as buffer, running(WRITE_ON, 1_000_000) as process:
        os.kill(process.pid, signal.SIGSTOP)
        for i in range(1000):
            add(buffer, i)
        check_rows(buffer.sample(200))
        assert [o[2] for o in buffer._owners() if o[1] == process.pid] == [True]
        assert (buffer.latest(64)["number"] >= 1_000_000).any()  # its block was not stolen
        os.kill(process.pid, signal.SIGCONT)
        before = rows_of(buffer, 1_000_000)
        wait_until(lambda: rows_of(buffer, 1_000_000) > before)
        check_rows(buffer.latest(64))


def test_when_all_blocks_are_held_by_the_living_the_writer_is_told() -> None:
    with contextlib.ExitStack() as stack:
        buffer = stack.enter_context(make(capacity=4, block_rows=2))
        others = [stack.enter_context(ReplayBuffer.open("shm:hostile")) for _ in range(2)]
        for i, other in enumerate(others):
            add(other, i)
        with pytest.raises(Busy, match="live writers"):
            add(buffer, 3)


def test_a_segment_unlinked_in_use_lives_on_where_it_is_open() -> None:
    with make() as buffer, running(WRITE_ON, 1_000_000) as process:
        _core.remove("shm:hostile", False)
        with pytest.raises(NotFound):
            ReplayBuffer.open("shm:hostile")
        before = rows_of(buffer, 1_000_000)
        wait_until(lambda: rows_of(buffer, 1_000_000) > before)
        with make() as second:  # another one may take the name
            add(second, 1)
            assert len(second) == 1
            add(buffer, 5)
            assert len(second) == 1
        assert in_child(lambda: add(buffer, 6) and None) == 0
        assert 6 in buffer.latest(1000)["number"]
        process.kill()
        process.wait()
        for i in range(3000):
            add(buffer, i)  # reaps it
        check_rows(buffer.latest(1000))


CREATE = """
sys.stdin.readline()
from replay_buffer import AlreadyExists, BufferConfig, Column
schema = {"number": Column((), "int64"), "twice": Column((5,), "int64")}
try:
    buffer = ReplayBuffer.create("shm:hostile", BufferConfig(1000), schema=schema)
except AlreadyExists:
    print("late")
else:
    add(buffer, 1)
    print("first", flush=True)
    time.sleep(600)
"""


def test_of_many_that_create_at_once_exactly_one_wins(shm_dir: Path) -> None:
    command = [sys.executable, "-c", COMMON + CREATE]
    pipes: dict[str, Any] = {"stdin": subprocess.PIPE, "stdout": subprocess.PIPE, "text": True}
    processes = [subprocess.Popen(command, **pipes) for _ in range(20)]
    try:
        for process in processes:
            process.stdin.write("go\n")
            process.stdin.flush()
        answers = [process.stdout.readline() for process in processes]
        assert sorted(answers) == ["first\n"] + ["late\n"] * 19
        with ReplayBuffer.open("shm:hostile") as buffer:
            assert len(buffer) == 1
        assert [path.name for path in shm_dir.iterdir()] == ["replay_buffer.hostile"]
    finally:
        for process in processes:
            process.kill()
            process.communicate()


REMOVE = """
from replay_buffer import NotFound, _core
print("begun", flush=True)
removed = 0
while not os.path.exists(sys.argv[1]):
    try:
        removed += _core.remove("shm:hostile", True)
    except NotFound:
        pass
print(removed)
"""


def test_opening_races_with_removing_orphans(shm_dir: Path, tmp_path: Path) -> None:
    """Who opens gets a whole buffer that keeps its name while it is open, or none."""
    path = shm_dir / "replay_buffer.hostile"
    stop = tmp_path / "stop"
    opened = 0
    with running(REMOVE, stop) as remover:
        for _ in range(300):
            with contextlib.suppress(AlreadyExists), make(capacity=10) as buffer:
                add(buffer, 1)
                with ReplayBuffer.open("shm:hostile") as other:
                    add(other, 2)
                assert len(buffer) == 2
                assert path.exists()
            with contextlib.suppress(NotFound), ReplayBuffer.open("shm:hostile") as other:
                opened += 1
                add(other, 3)
                assert path.exists()
        stop.touch()
        output, errors = remover.communicate(timeout=60)
    assert int(output) > 0, errors
    assert opened + int(output) >= 100
