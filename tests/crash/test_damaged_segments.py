"""Damaged and forged segments: refused with a clear error; never a crash."""

from __future__ import annotations

import contextlib
import struct
from pathlib import Path

import numpy as np
import pytest

from crash.processes import add, make
from replay_buffer import (
    BufferConfig,
    Column,
    Corrupt,
    Incompatible,
    ReplayBuffer,
    ReplayBufferError,
    _core,
)

pytestmark = pytest.mark.usefixtures("shm_dir")


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


def patched(raw: bytes, offset: int, kind: str, *values: int) -> bytes:
    patch = struct.pack(kind, *values)
    return raw[:offset] + patch + raw[offset + len(patch) :]


def test_a_segment_of_a_newer_format_is_incompatible(specimen: Path) -> None:
    raw = specimen.read_bytes()
    (own,) = struct.unpack_from("<I", raw, 8)
    with pytest.raises(Incompatible, match=f"format {own + 1}"):
        opened_as(specimen, patched(raw, 8, "<I", own + 1))
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


def test_a_value_read_in_place_lies_in_its_arena_whatever_its_row_says(shm_dir: Path) -> None:
    schema = {"tokens": Column((None,), "int32"), "k": Column((), "int64")}
    with ReplayBuffer.create("shm:hostile", BufferConfig(8), schema=schema) as buffer:
        buffer.add(tokens=np.arange(123, dtype=np.int32), k=0)
        wanted = buffer.peek([0])["tokens"][0].tolist()
    path = shm_dir / "replay_buffer.hostile"
    raw = path.read_bytes()
    cell = struct.pack("<II", 0, 4 * 123)
    offset, most = raw.index(cell), 2**31 - 1
    assert raw.count(cell) == 1
    cells = {(0, 4 * 123): wanted, (4, 4 * 122): wanted[1:], (8, 11): wanted[2:4], (0, 0): []}
    outside = [(0, most), (2**30, 4), (2**32 - 4, 8), (2**32 - 1, most), (0, 2**31 + 4), (4, 2**20)]
    for (begin, size), seen in [*cells.items(), *((place, []) for place in outside)]:
        path.unlink()
        path.write_bytes(patched(raw, offset, "<II", begin, size))
        with ReplayBuffer.open("shm:hostile", readonly=True) as buffer:
            tokens = buffer.peek([0])["tokens"][0]
            assert (tokens.tolist(), tokens.flags.writeable) == (seen, False), (begin, size)


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
        except (Corrupt, Incompatible):
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


STEPS = ("obs", "action", "reward", "terminated", "truncated")


@pytest.fixture
def steps(shm_dir: Path) -> Path:
    """A segment of steps, column by column in the order of STEPS."""
    flag = Column((), "bool")
    columns = {name: Column() for name in STEPS[:3]} | {"terminated": flag, "truncated": flag}
    config = BufferConfig(50, storage="steps")
    with ReplayBuffer.create("shm:hostile", config, schema=columns) as buffer:
        writer = buffer.writer()
        for i in range(20):
            writer.append(i, 0, 1, i % 4 == 3, False, final_obs=i)
    return shm_dir / "replay_buffer.hostile"


@pytest.mark.parametrize("number", range(5))
def test_a_segment_of_steps_without_one_of_their_columns_is_corrupt(
    steps: Path, number: int
) -> None:
    at = 640 + 192 * number
    raw = steps.read_bytes()
    name = STEPS[number].encode().ljust(16, b"\0")
    assert raw[at : at + 16] == name
    opened_as(steps, with_checksum(raw))
    forged = raw[:at] + b"other".ljust(16, b"\0") + raw[at + 16 :]
    with pytest.raises(Corrupt, match=STEPS[number]):
        opened_as(steps, with_checksum(forged))


@pytest.mark.parametrize("number", [3, 4])
def test_a_segment_of_steps_whose_flags_are_no_bools_is_corrupt(steps: Path, number: int) -> None:
    forged = patched(steps.read_bytes(), 640 + 192 * number + 96, "<I", 6)  # uint8, as large
    with pytest.raises(Corrupt, match=STEPS[number]):
        opened_as(steps, with_checksum(forged))


def test_a_checkpoint_of_such_a_segment_is_corrupt_too(steps: Path, tmp_path: Path) -> None:
    """And leaves nothing where it would have been restored."""
    raw = steps.read_bytes()
    forged = patched(raw, 640 + 192 * 3 + 96, "<I", 6)
    steps.write_bytes(with_checksum(forged))
    local = _core.Local.open("shm:hostile", True)
    local.save(str(tmp_path / "saved"))
    local.close()
    with pytest.raises(Corrupt, match="terminated"):
        ReplayBuffer.restore(tmp_path / "saved", "shm:again")
    assert [path.name for path in steps.parent.iterdir()] == [steps.name]
