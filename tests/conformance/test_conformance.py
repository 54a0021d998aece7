"""A buffer is the same wherever it is: one suite over every location."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from replay_buffer import BufferConfig, ReplayBuffer
from replay_buffer.testing import Conformance, MakeBuffer


@pytest.fixture
def make_at() -> Iterator[Callable[[Callable[[], str]], MakeBuffer]]:
    """Makes buffers at locations, and closes them after the test."""
    made: list[ReplayBuffer] = []

    def at(location: Callable[[], str]) -> MakeBuffer:
        def make(config: BufferConfig, **columns: Any) -> ReplayBuffer:
            made.append(ReplayBuffer.create(location(), config, **columns))
            return made[-1]

        return make

    yield at
    for buffer in made:
        buffer.close()


class TestPrivateMemory(Conformance):
    @pytest.fixture
    def make_buffer(self) -> Iterator[MakeBuffer]:
        """The constructor itself."""
        made: list[ReplayBuffer] = []

        def make(config: BufferConfig, **columns: Any) -> ReplayBuffer:
            made.append(ReplayBuffer(config, **columns))
            return made[-1]

        yield make
        for buffer in made:
            buffer.close()


class TestSharedMemory(Conformance):
    @pytest.fixture
    def make_buffer(self, make_at: Any) -> MakeBuffer:
        made: MakeBuffer = make_at(lambda: "shm:")
        return made


class TestFile(Conformance):
    @pytest.fixture
    def make_buffer(self, make_at: Any, tmp_path: Path) -> MakeBuffer:
        names = iter(range(1000))
        made: MakeBuffer = make_at(lambda: f"file:{tmp_path / f'{next(names)}.rb'}")
        return made


class TestDurableFile(Conformance):
    """A file that checks its rows: no other behaviour."""

    @pytest.fixture
    def make_buffer(self, make_at: Any, tmp_path: Path) -> MakeBuffer:
        names = iter(range(1000))
        make = make_at(lambda: f"file:{tmp_path / f'{next(names)}.rb'}")

        def durable(config: BufferConfig, **columns: Any) -> ReplayBuffer:
            made: ReplayBuffer = make(dataclasses.replace(config, durable=True), **columns)
            return made

        return durable
