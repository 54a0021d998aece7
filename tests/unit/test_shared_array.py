"""SharedArray in one process: its memory, its life, its format and its errors."""

from __future__ import annotations

import gc
import os
import pickle
import stat
import struct
import subprocess
import sys
import warnings
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    Closed,
    Corrupt,
    Incompatible,
    InvalidArgument,
    NotFound,
    OutOfSpace,
    SharedArray,
    _core,
)
from replay_buffer.schema import DTYPES
from unit.arrays import created

PREFIX = "replay_buffer_array."
reads_proc = pytest.mark.skipif(sys.platform != "linux", reason="reads /proc")


def names(directory: Path) -> list[str]:
    return sorted(path.name.removeprefix(PREFIX) for path in directory.iterdir())


# ---- the array


@pytest.mark.parametrize("dtype", DTYPES)
def test_a_new_array_is_zero_and_has_its_shape_and_dtype(dtype: str) -> None:
    with created((3, 2, 5), dtype) as shared:
        array = shared.array
        assert (array.shape, array.dtype) == ((3, 2, 5), np.dtype(dtype))
        assert not array.any()
        assert array.flags.c_contiguous
        assert array.flags.writeable
        assert array.ctypes.data % 64 == 0


def test_a_length_is_a_shape_and_a_scalar_has_none() -> None:
    with created(4, np.int8) as line, created((), "float64") as scalar:
        assert line.array.shape == (4,)
        scalar.array[...] = 2.5
        with SharedArray.open(scalar.name) as other:
            assert other.array.shape == ()
            assert float(other.array) == 2.5


def test_the_name_is_enough_to_see_the_same_memory() -> None:
    with created((2, 3), "int16") as one, SharedArray.open(one.name) as other:
        assert (other.array.shape, other.array.dtype) == ((2, 3), np.dtype("int16"))
        one.array[0] = 7
        other.array[1] = 9
        assert one.array.tolist() == other.array.tolist() == [[7, 7, 7], [9, 9, 9]]
        assert one.name == other.name


def test_every_array_has_a_file_of_its_own_for_this_user_alone(shm_dir: Path) -> None:
    with created(2, "bool") as one, created(2, "bool") as other:
        assert names(shm_dir) == sorted([one.name, other.name])
        assert {stat.S_IMODE(path.stat().st_mode) for path in shm_dir.iterdir()} == {0o600}
    assert names(shm_dir) == []


def test_repr_says_what_it_is() -> None:
    with created((2, 3), "int16") as shared:
        assert repr(shared) == f"<SharedArray {shared.name!r}: int16 (2, 3)>"
    assert repr(shared) == f"<SharedArray {shared.name!r}, closed>"


def test_an_array_is_not_made_by_its_constructor() -> None:
    with pytest.raises(TypeError):
        SharedArray((2, 3), "int16")  # type: ignore[call-arg, arg-type]


# ---- closing and unlinking


def test_with_closes_and_never_removes() -> None:
    with SharedArray.create(3, "float32") as shared:
        shared.array[:] = 5
    assert shared.closed
    with pytest.raises(ZeroDivisionError), SharedArray.open(shared.name) as other:
        raise ZeroDivisionError
    assert other.closed
    SharedArray.open(shared.name).close()
    shared.unlink()
    with pytest.raises(NotFound, match=shared.name):
        SharedArray.open(shared.name)


def test_close_and_unlink_can_be_repeated() -> None:
    shared = SharedArray.create(3, "float32")
    other = SharedArray.open(shared.name)
    name = shared.name
    shared.close()
    shared.close()
    SharedArray.open(name).close()  # the name is still there
    for array in (shared, other, shared, other):
        array.unlink()
    other.close()
    other.unlink()
    assert shared.name == other.name == name


def test_whoever_has_it_open_keeps_it_after_unlink() -> None:
    with created(3, "float32") as shared, SharedArray.open(shared.name) as other:
        shared.unlink()
        shared.array[:] = 5
        assert other.array.tolist() == [5, 5, 5]


def test_a_closed_array_says_so() -> None:
    with created(3, "float32") as shared:
        pass
    for use in (lambda: shared.array, lambda: pickle.dumps(shared), lambda: shared.__enter__()):
        with pytest.raises(Closed, match=shared.name):
            use()


def mappings(inode: int) -> int:
    """How often this process has a file mapped; the path of a file that began hidden is unknown."""
    lines = Path("/proc/self/maps").read_text().splitlines()
    return sum(line.split()[4] == str(inode) for line in lines)


@reads_proc
def test_views_keep_the_memory_until_the_last_of_them_is_gone(shm_dir: Path) -> None:
    with created((1000, 10), "int64") as shared:
        (path,) = shm_dir.iterdir()
        inode = path.stat().st_ino
        shared.array[:] = np.arange(10)
        view = shared.array[5:, ::2].T
    assert mappings(inode) == 1
    assert view[1].tolist() == [2] * 995
    view[:] = 4  # nobody else sees it; it must not crash
    del view
    assert mappings(inode) == 0


@reads_proc
def test_closing_gives_the_memory_back(shm_dir: Path) -> None:
    with created(1000, "int64") as shared:
        (path,) = shm_dir.iterdir()
        inode = path.stat().st_ino
        other = SharedArray.open(shared.name)
        assert mappings(inode) == 2
        other.close()
        assert mappings(inode) == 1
    assert mappings(inode) == 0


@reads_proc
def test_no_descriptor_is_leaked() -> None:
    def descriptors() -> int:
        return len(os.listdir("/proc/self/fd"))

    gc.collect()  # what other tests have lost is theirs
    before = descriptors()
    views = []
    for _ in range(100):
        with created(3, "int8") as shared:
            for _ in range(3):
                with SharedArray.open(shared.name) as other:
                    views.append(other.array)
            with pytest.raises(NotFound):
                SharedArray.open("nothing")
    assert descriptors() == before
    shared = SharedArray.create(3, "int8")
    others = [SharedArray.open(shared.name) for _ in range(10)]
    assert descriptors() == before + 11
    shared.unlink()
    del shared, other, others
    gc.collect()
    assert descriptors() == before


def test_losing_an_array_without_unlinking_it_is_warned_of(shm_dir: Path) -> None:
    shared = SharedArray.create(3, "int8")
    name = shared.name
    with pytest.warns(ResourceWarning, match=name):
        del shared
    assert names(shm_dir) == [name]
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        SharedArray.open(name)  # not the creator
        closed = SharedArray.create(3, "int8")
        closed.close()  # meant for others
        del closed
        gc.collect()
    assert len(_core.remove_stale_shared_arrays()) == 2


def test_pickling_carries_the_name() -> None:
    with created((2, 2), "uint16") as shared:
        text = pickle.dumps(shared)
        with pickle.loads(text) as other:
            other.array[1, 1] = 3
        assert shared.array[1, 1] == 3
    with pytest.raises(NotFound):
        pickle.loads(text)


# ---- errors


@pytest.mark.parametrize(
    ("shape", "dtype"),
    [
        ((2, -1), "int8"),
        ((0,), "int8"),
        ((1.5,), "int8"),
        ("ab", "int8"),
        (None, "int8"),
        ((1,) * 9, "int8"),
        ((2**41,), "int8"),
        ((2**39, 2**39), "int8"),
        ((3,), "nonsense"),
        ((3,), object),
        ((3,), "complex128"),
        ((3,), "U4"),
        ((3,), None),
    ],
)
def test_a_bad_shape_or_dtype_is_refused(shm_dir: Path, shape: Any, dtype: Any) -> None:
    with pytest.raises(InvalidArgument):
        SharedArray.create(shape, dtype)
    assert names(shm_dir) == []


@pytest.mark.parametrize(
    "name", ["", "a/b", "../x", "a b", "x" * 201, "ä", "a\0b", "\ud800", 3, None]
)
def test_a_bad_name_is_refused(name: Any) -> None:
    with pytest.raises(InvalidArgument):
        SharedArray.open(name)


def test_the_directory_for_shared_memory_must_be_there(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", "/no/such/directory")
    with pytest.raises(NotFound, match="/no/such/directory"):
        SharedArray.create(3, "int8")


def test_rule_26_more_than_there_is_is_an_error_that_names_both_sizes() -> None:
    with pytest.raises(OutOfSpace, match=r"Allocating 1099511627904 bytes .* only \d+ are free"):
        SharedArray.create((2**20, 2**20), "int8")


@pytest.fixture
def one_megabyte(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    directory = tmp_path / "small"
    directory.mkdir()
    command = ["mount", "-t", "tmpfs", "-o", "size=1m", "tmpfs", str(directory)]
    try:
        done = subprocess.run(command, capture_output=True, text=True)
    except FileNotFoundError:
        pytest.skip("there is no mount command")
    if done.returncode != 0:
        pytest.skip(f"cannot mount a small tmpfs: {done.stderr.strip()}")
    monkeypatch.setenv("REPLAY_BUFFER_SHM_DIR", str(directory))
    yield directory
    subprocess.run(["umount", "--lazy", str(directory)], check=True)


def test_rule_26_a_full_directory_is_an_error_at_creation(one_megabyte: Path) -> None:
    with pytest.raises(OutOfSpace, match="2097280 bytes"):
        SharedArray.create(2 << 20, "int8")
    assert names(one_megabyte) == []
    with created(600 << 10, "int8") as first:
        with pytest.raises(OutOfSpace):
            SharedArray.create(600 << 10, "int8")
        assert names(one_megabyte) == [first.name]
        with created(400 << 10, "int8") as second:
            first.array[:], second.array[:] = 1, 2  # every byte has its place
            assert (first.array.sum(), second.array.sum()) == (600 << 10, 800 << 10)
    with created(1000 << 10, "int8"):
        pass  # what was unlinked and closed is free again


# ---- the format

PRIME, MASK = 0x9E3779B97F4A7C15, (1 << 64) - 1


def checksum64(data: bytes) -> int:
    """As in src/cpp/segment/checksum.cc."""
    h = 0
    for word in (len(data), *struct.unpack(f"<{len(data) // 8}Q", data), PRIME):
        h = ((h ^ word) * PRIME) & MASK
        h ^= h >> 29
    return h


def header(
    dtype: int, shape: list[int], data_bytes: int, *, dimensions: int | None = None
) -> bytes:
    shapes = shape + [0] * (8 - len(shape))
    n = len(shape) if dimensions is None else dimensions
    fixed = struct.pack("<8s4IQ8Q3Q", b"rb array", 1, dtype, n, 0, data_bytes, *shapes, 0, 0, 0)
    return fixed + struct.pack("<Q", checksum64(fixed))


GOLDEN = bytes.fromhex(
    "7262206172726179010000000b000000020000000000000018000000000000000200000000000000"
    "03" + "00" * 79 + "cb3a8591844395cb" + "0000803f" * 6
)


def test_an_array_of_format_version_1_can_be_opened(shm_dir: Path) -> None:
    (shm_dir / f"{PREFIX}golden").write_bytes(GOLDEN)
    with SharedArray.open("golden") as shared:
        assert shared.array.dtype == np.float32
        assert shared.array.tolist() == [[1.0] * 3] * 2
    assert (shm_dir / f"{PREFIX}golden").read_bytes() == GOLDEN


def test_an_array_is_written_in_format_version_1(shm_dir: Path) -> None:
    with created((2, 3), "float32") as shared:
        shared.array[:] = 1
        assert (shm_dir / (PREFIX + shared.name)).read_bytes() == GOLDEN
    assert header(11, [2, 3], 24) == GOLDEN[:128]


def test_a_damaged_header_is_never_believed(shm_dir: Path) -> None:
    for at in range(128):
        damaged = bytearray(GOLDEN)
        damaged[at] ^= 0x40
        (shm_dir / f"{PREFIX}damaged").write_bytes(damaged)
        with pytest.raises(Incompatible if 8 <= at < 12 else Corrupt, match="damaged"):
            SharedArray.open("damaged")


@pytest.mark.parametrize("size", [0, 1, 8, 127, 128, len(GOLDEN) - 1])
def test_a_file_that_is_too_short_is_corrupt(shm_dir: Path, size: int) -> None:
    (shm_dir / f"{PREFIX}short").write_bytes(GOLDEN[:size])
    with pytest.raises(Corrupt, match="short"):
        SharedArray.open("short")


@pytest.mark.parametrize(
    "said",
    [
        header(11, [2**32, 2**32], 0),  # the product is 2^66
        header(11, [2**40], 2**42),
        header(11, [2, 3], 25),
        header(11, [2, 0], 0),
        header(0, [2, 3], 6),
        header(13, [2, 3], 6),
        header(2, [1] * 8, 1, dimensions=9),
        header(2, [1] * 8, 1, dimensions=2**32 - 1),
    ],
)
def test_lengths_that_make_no_sense_are_corrupt(shm_dir: Path, said: bytes) -> None:
    (shm_dir / f"{PREFIX}wrong").write_bytes(said + bytes(4096))
    with pytest.raises(Corrupt):
        SharedArray.open("wrong")


def test_what_is_not_a_file_is_refused(shm_dir: Path) -> None:
    (shm_dir / f"{PREFIX}directory").mkdir()
    os.mkfifo(shm_dir / f"{PREFIX}pipe")
    for name in ("directory", "pipe"):
        with pytest.raises(InvalidArgument, match=name):
            SharedArray.open(name)
