"""What the soak looks for, it finds: its checks are tested on rows that break them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from crash.soak.board import Board
from crash.soak.rows import SCHEMA, Source, misplaced, torn
from crash.soak.workers import check, check_restored, look_up
from replay_buffer import BufferConfig, ReplayBuffer

CAPACITY, BLOCK_ROWS = 128, 16


@pytest.fixture
def buffer() -> Iterator[ReplayBuffer]:
    config = BufferConfig(CAPACITY, block_rows=BLOCK_ROWS)
    with ReplayBuffer(config, schema=SCHEMA, seed=0) as made:
        made.add_batch(*Source(7, 7).rows(200))
        yield made


@pytest.fixture
def board(tmp_path: Path) -> Board:
    return Board(CAPACITY, tmp_path, tmp_path)


def test_sound_rows_bring_no_complaint(buffer: ReplayBuffer, board: Board) -> None:
    board.acknowledge(np.arange(200))
    for batch in (buffer.latest(CAPACITY), buffer.sample(300)):
        check(board, batch, "a test")
    look_up(buffer, board, 0, np.arange(CAPACITY))
    assert board.complaints() == []
    assert board.looked_up[0] == CAPACITY


@pytest.mark.parametrize("column", ["writer", "sequence", "payload", "frame", "checksum"])
def test_a_row_with_one_bit_of_another_is_torn(buffer: ReplayBuffer, column: str) -> None:
    batch = buffer.latest(CAPACITY)
    batch[column].view(np.uint8).reshape(CAPACITY, -1)[5, -1] ^= 1
    assert torn(batch).tolist() == [batch["indices"][5]]


def test_a_torn_row_in_a_restored_buffer_is_noticed(board: Board) -> None:
    source = Source(7, 7)
    with ReplayBuffer(BufferConfig(CAPACITY), schema=SCHEMA) as restored:
        restored.add_batch(*source.rows(20))
        check_restored(restored, board)
        assert board.complaints() == []
        *columns, checksum = source.rows(20)
        restored.add_batch(*columns, checksum ^ np.uint64(1))
        check_restored(restored, board)
    assert board.complaints() == ["20 torn rows from a restored buffer, the first is 20"]


def test_a_row_in_the_place_of_another_is_noticed(buffer: ReplayBuffer) -> None:
    batch = buffer.latest(CAPACITY)
    for name in ("writer", "sequence", "payload", "frame", "checksum"):
        batch[name][[3, 90]] = batch[name][[90, 3]]
    assert len(torn(batch)) == 0
    assert len(misplaced(batch)) > 0


def test_a_row_that_was_acknowledged_and_never_stored_is_lost(
    buffer: ReplayBuffer, board: Board, monkeypatch: Any
) -> None:
    monkeypatch.setattr("crash.soak.workers.PATIENCE", 0.05)
    board.acknowledge(np.array([203]))  # the next lap, in the middle of a block
    look_up(buffer, board, 0, np.arange(CAPACITY))
    assert board.complaints() == ["1 rows are lost, the first is 203"]


def test_a_row_that_was_overwritten_is_not_lost(buffer: ReplayBuffer, board: Board) -> None:
    board.acknowledge(np.array([3]))
    look_up(buffer, board, 0, np.arange(CAPACITY))
    assert board.complaints() == []
