"""Many handles: a place for so many, and nothing that grows with their number."""

from __future__ import annotations

import gc
import os
import re
import signal
import time
from pathlib import Path

import pytest

from conformance.children import in_fork, joined, killed_after
from conformance.shared import MARKS, create, path_of
from replay_buffer import Busy, ReplayBuffer
from replay_buffer.testing.content import add_numbers

pytestmark = MARKS
OWNERS = 256


def test_there_is_a_place_for_so_many_writers_and_then_a_clear_error(location: str) -> None:
    with create(location) as buffer:
        handles = [ReplayBuffer.open(location) for _ in range(OWNERS - 1)]
        held = rf"process {os.getpid()} \(this process\) \(256 times\)"
        for _ in range(3):
            with pytest.raises(Busy, match=rf"all 256 places .* {held}.*readonly"):
                ReplayBuffer.open(location)
        with ReplayBuffer.open(location, readonly=True) as watcher:
            assert len(watcher) == 0
        handles.pop().close()
        handles.append(ReplayBuffer.open(location))
        for handle in handles:
            handle.close()
        add_numbers(buffer, 3)
        with ReplayBuffer.open(location) as another:
            assert len(another) == 3


def test_who_holds_all_blocks_is_named_and_smaller_blocks_make_room(location: str) -> None:
    """A writer keeps the block that it fills: there are as many writers as blocks."""
    ready, say = os.pipe()

    def hold_one() -> None:
        with ReplayBuffer.open(location) as other:
            other.add(0, [0, 0, 0])
            os.write(say, b"x")
            time.sleep(60)

    def fill(rows: int) -> None:
        """Writes through as many handles as there are blocks of so many rows, and a child."""
        with create(location, 8, block_rows=rows, overwrite=True):
            child = in_fork(hold_one)
            handles = [ReplayBuffer.open(location) for _ in range(8 // rows)]
            try:
                os.read(ready, 1)
                for k, handle in enumerate(handles):
                    handle.add(k, [k, k, k])
            finally:
                os.kill(child, signal.SIGKILL)
                joined(child)
                for handle in handles:
                    handle.close()

    with pytest.raises(Busy, match=r"all 2 blocks .* live writers") as caught:
        fill(4)
    assert re.search(rf"process \d+, {os.getpid()} \(this process\)", str(caught.value))
    assert re.search(r"smaller block_rows \(it is 4\)", str(caught.value))
    fill(1)  # rows that are full are given up at once
    os.close(ready)
    os.close(say)


def test_places_of_writers_that_were_killed_are_given_again(location: str) -> None:
    with create(location, 400) as buffer:

        def crowd() -> None:
            handles = [ReplayBuffer.open(location) for _ in range(OWNERS // 2 + 1)]
            handles[0].add(0, [0, 0, 0])

        killed_after(crowd)
        killed_after(crowd)
        assert len(buffer) == 2


@pytest.mark.parametrize("readonly", [False, True])
def test_descriptors_and_memory_stay_flat(location: str, readonly: bool) -> None:
    def use() -> None:
        with ReplayBuffer.open(location, readonly=readonly) as handle:
            handle.sample(8)
            if not readonly:
                handle.add(0, [0, 0, 0])

    def held() -> tuple[int, int]:
        gc.collect()
        maps = len(Path("/proc/self/maps").read_text().splitlines())
        return len(os.listdir("/proc/self/fd")), maps

    def resident() -> int:
        return int(Path("/proc/self/statm").read_text().split()[1])

    with create(location, 10_000, "prioritized") as buffer:
        add_numbers(buffer, 20_000)
        for _ in range(20):
            use()
        before, pages = held(), resident()
        for _ in range(200):
            use()
        descriptors, maps = held()
        assert descriptors == before[0]
        assert maps <= before[1] + 4
        assert resident() - pages < 250  # 1 MB; a leaked mapping would be 200 MB


def test_create_and_close_leave_nothing_open(location: str) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for _ in range(50):
        with create(location) as buffer:
            add_numbers(buffer, 3)
            buffer.unlink()
    assert len(os.listdir("/proc/self/fd")) == before
    assert not path_of(location).exists()
