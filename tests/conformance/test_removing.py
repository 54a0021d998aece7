"""Removing a buffer: by a handle, open or closed, and by its location alone."""

from __future__ import annotations

import multiprocessing
from pathlib import Path

import pytest

from conformance.children import check_unlink_is_refused, in_fork, joined
from conformance.shared import MARKS, create, path_of
from replay_buffer import (
    InvalidArgument,
    NotFound,
    ReadOnly,
    ReplayBuffer,
    ReplayBufferError,
    SharedArray,
)
from replay_buffer.testing.content import add_numbers

pytestmark = MARKS


def test_a_readonly_handle_removes_nothing_open_or_closed(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 3)
        watcher = ReplayBuffer.open(location, readonly=True)
        for _ in range(2):
            with pytest.raises(
                ReadOnly, match=rf"{location} .*ReplayBuffer\.unlink\('{location}'\)"
            ):
                watcher.unlink()
            assert path_of(location).exists()
            watcher.close()
        with ReplayBuffer.open(location) as other:
            assert len(other) == 3


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_a_readonly_handle_that_was_handed_on_removes_nothing(location: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with create(location), ReplayBuffer.open(location, readonly=True) as watcher:
        child = context.Process(target=check_unlink_is_refused, args=(watcher,))
        child.start()
        child.join()
        assert child.exitcode == 0
        assert path_of(location).exists()


def test_unlink_works_after_close_and_twice(location: str) -> None:
    buffer = create(location)
    buffer.close()
    buffer.unlink()
    assert not path_of(location).exists()
    buffer.unlink()
    with create(location) as open_one:
        open_one.unlink()
        open_one.unlink()
        assert not path_of(location).exists()
        assert len(open_one) == 0


def test_a_handle_is_told_when_others_were_faster(location: str) -> None:
    buffer, other = create(location), ReplayBuffer.open(location)
    assert joined(in_fork(lambda: ReplayBuffer.open(location).unlink())) == 0
    other.close()
    for handle in (buffer, other):
        for _ in range(2):
            with pytest.raises(NotFound, match="no longer the name"):
                handle.unlink()
    buffer.close()


def test_a_closed_handle_removes_what_it_held_and_nothing_newer(location: str) -> None:
    """A file system may give the newer file the number of the old one."""
    for _ in range(20):
        old = create(location)
        old.close()
        ReplayBuffer.unlink(location)
        with create(location) as new:
            add_numbers(new, 3)
            with pytest.raises(NotFound):
                old.unlink()
            with ReplayBuffer.open(location) as again:
                assert len(again) == 3
            new.unlink()


def test_a_handle_that_removed_its_buffer_never_removes_the_next_one(location: str) -> None:
    old = create(location)
    old.close()
    old.unlink()
    with create(location) as new:
        old.unlink()
        assert path_of(location).exists()
        new.unlink()


def test_a_location_is_removed_without_a_handle(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 3)
        ReplayBuffer.unlink(location)
        assert not path_of(location).exists()
        assert len(buffer) == 3
        with pytest.raises(NotFound):
            ReplayBuffer.unlink(location)


@pytest.mark.parametrize("bad", ["heap:", "shm:", "name", 7, None])
def test_what_names_no_buffer_cannot_be_removed(bad: object) -> None:
    with pytest.raises(InvalidArgument):
        ReplayBuffer.unlink(bad)  # type: ignore[arg-type]


def test_what_has_no_name_cannot_be_removed() -> None:
    for location in ("heap:", "shm:"):
        buffer = create(location)
        for _ in range(2):
            with pytest.raises(InvalidArgument, match="name"):
                buffer.unlink()
            buffer.close()


def test_a_file_that_is_no_buffer_is_not_removed(tmp_path: Path) -> None:
    path = tmp_path / "thesis.txt"
    for text in ("", "a year of work"):
        path.write_text(text)
        with pytest.raises(ReplayBufferError, match="not a replay buffer"):
            ReplayBuffer.unlink(f"file:{path}")
        assert path.read_text() == text


def test_a_with_block_closes_and_removes_nothing(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 3)
    assert buffer.closed
    with ReplayBuffer.open(location) as opened:
        assert len(opened) == 3
    assert path_of(location).exists()
    with pytest.raises(ZeroDivisionError), ReplayBuffer.open(location):
        raise ZeroDivisionError
    assert path_of(location).exists()


def test_a_with_block_of_a_shared_array_does_the_same() -> None:
    with SharedArray.create(3, "int32") as shared:
        shared.array[:] = 7
    assert shared.closed
    with SharedArray.open(shared.name) as opened:
        assert opened.array.tolist() == [7, 7, 7]
    with SharedArray.open(shared.name):
        pass
    shared.unlink()
    shared.unlink()
    with pytest.raises(NotFound):
        SharedArray.open(shared.name)
