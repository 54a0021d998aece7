"""The directory of shared memory: full, odd, or written in another way."""

from __future__ import annotations

import contextlib
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from crash.processes import add, as_root, check_rows, make
from replay_buffer import (
    BufferConfig,
    Column,
    InvalidArgument,
    NotFound,
    OutOfSpace,
    ReplayBuffer,
    ReplayBufferError,
    Schema,
    _core,
)

pytestmark = pytest.mark.usefixtures("shm_dir")


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
