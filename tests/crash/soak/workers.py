"""What the processes of a soak do, until they are killed or told to stop."""

from __future__ import annotations

import time
from typing import Any

import numpy as np

from crash.soak.board import Board
from crash.soak.rows import MOST, Source, misplaced, torn
from replay_buffer import ReplayBuffer

PATIENCE = 5.0  # seconds in which a row that is being overwritten is written
SETTLE = 3.0  # seconds until what a survivor holds counts as its measure


def check(board: Board, batch: dict[str, Any], how: str) -> None:
    for wrong, word in ((torn(batch), "torn"), (misplaced(batch), "misplaced")):
        if len(wrong):
            board.complain(f"{len(wrong)} {word} rows from {how}, the first is {wrong[0]}")


def write(buffer: ReplayBuffer, board: Board, place: int, me: int) -> None:
    rng, source = np.random.default_rng(me), Source(me, me)
    while not board.stopped:
        n = int(rng.choice([1, 1, 8, 64, MOST]))
        rows = source.rows(n)
        if n == 1:
            ids = np.array([buffer.add(*(column[0] for column in rows))])
        elif rng.random() < 0.5:
            ids = buffer.add_batch(*rows)
        else:
            ids = buffer.add_batch(*rows, priority=rng.random(n).astype(np.float32))
        board.acknowledge(ids)
        board.written[place] += n
        board.progress[place] += 1
        note_now_and_then(board, place)


def learn(buffer: ReplayBuffer, board: Board, place: int, me: int) -> None:
    rng = np.random.default_rng(me)
    while not board.stopped:
        n = int(rng.choice([1, 32, 256]))
        batch = buffer.sample(n)
        check(board, batch, "sample")
        if not np.isfinite(batch["weights"]).all():
            board.complain("weights that are no numbers")
        board.sampled[place] += n
        if rng.random() < 0.2:
            check(board, buffer.latest(64), "latest")
        if rng.random() < 0.5:
            look_up(buffer, board, place, rng.integers(0, buffer.capacity, 64))
        board.progress[place] += 1
        note_now_and_then(board, place)


def update(buffer: ReplayBuffer, board: Board, place: int, me: int) -> None:
    rng = np.random.default_rng(me)
    while not board.stopped:
        batch = buffer.sample(32)
        check(board, batch, "sample")
        board.sampled[place] += 32
        board.updated[place] += buffer.update_priorities(
            batch["indices"], rng.lognormal(0, 1, 32).astype(np.float32)
        )
        if rng.random() < 0.001:
            buffer.alpha = float(rng.choice([0.5, 0.6, 0.7]))
        board.progress[place] += 1
        note_now_and_then(board, place)


def visit(buffer: ReplayBuffer, board: Board, place: int, me: int) -> None:
    """Opens the buffer, does a little, closes it."""
    rng, source = np.random.default_rng(me), Source(me, me)
    while not board.stopped:
        readonly = bool(rng.random() < 0.3)
        with ReplayBuffer.open(buffer.location, readonly=readonly) as handle:
            check(board, handle.sample(32), "sample")
            board.sampled[place] += 32
            if not readonly:
                n = int(rng.integers(1, 100))
                board.acknowledge(handle.add_batch(*source.rows(n)))
                board.written[place] += n
        board.progress[place] += 1
        note_now_and_then(board, place)


def save(buffer: ReplayBuffer, board: Board, place: int, me: int) -> None:
    """Makes checkpoints, restores each, and goes on writing in what it restored.

    The one before, perhaps of a process that was killed while it made it, is restored first.
    """
    path, source = board.checkpoint(place), Source(me, me)
    if (path / "manifest").exists():
        with ReplayBuffer.restore(path) as restored:
            check_restored(restored, board)
    while not board.stopped:
        ids = board.acknowledged[board.acknowledged >= 0]
        buffer.checkpoint(path)
        with ReplayBuffer.restore(path) as restored:
            check_restored(restored, board)
            gone = ids[restored._engine.target.read(ids)[1].astype(bool)]
            still = gone[~buffer._engine.target.read(gone)[1].astype(bool)]
            if len(still):
                board.complain(f"{len(still)} rows are lost from a checkpoint: {still[0]} is one")
            again = np.intersect1d(restored.add_batch(*source.rows(MOST)), ids)
            if len(again):
                board.complain(f"a restored buffer gives the id {again[0]} for a second time")
            check(board, restored.latest(restored.capacity), "a restored buffer that went on")
        board.saved[place] += 1
        board.progress[place] += 1
        note_now_and_then(board, place)


def check_restored(restored: ReplayBuffer, board: Board) -> None:
    batch = restored.latest(restored.capacity)
    check(board, batch, "a restored buffer")
    if len(restored) != len(batch["indices"]):
        board.complain(f"{len(restored)} restored rows are counted, not {len(batch['indices'])}")
    for complaint in restored._engine.verify():
        board.complain(f"verify of a restored buffer: {complaint}")


def look_up(buffer: ReplayBuffer, board: Board, place: int, slots: Any) -> None:
    """Rows that were acknowledged are there, or others are in their place."""
    ids = board.acknowledged[slots].copy()
    ids = ids[ids >= 0]
    batch, gone, _ = buffer._engine.target.read(ids)
    gone = gone.astype(bool)
    check(board, {name: column[~gone] for name, column in batch.items()}, "get")
    board.looked_up[place] += len(ids)
    suspects = [int(id_) for id_ in ids[gone]]
    deadline = time.monotonic() + PATIENCE
    while suspects := [id_ for id_ in suspects if not overwritten(buffer, board, id_)]:
        if time.monotonic() > deadline:
            board.complain(f"{len(suspects)} rows are lost, the first is {suspects[0]}")
            return
        time.sleep(0.01)


def overwritten(buffer: ReplayBuffer, board: Board, id_: int) -> bool:
    """Whether a later lap has reached the slot of a row that is gone.

    A writer that is killed inside a row leaves the slot empty. The rows of a block are written in
    order, so the row before it in the block is then of the later lap; the first one of a block has
    none before it.
    """
    capacity, block_rows = buffer.capacity, buffer.config.block_rows
    assert block_rows is not None
    slot = id_ % capacity
    if slot % block_rows == 0 or board.acknowledged[slot] > id_:
        return True
    later = id_ + capacity * np.arange(1, 65)
    looked_for = np.concatenate([later, later - 1])
    return buffer._engine.target.read(looked_for)[2] < len(looked_for)


def note_now_and_then(board: Board, place: int) -> None:
    """A survivor notes what it holds, once a second or so."""
    if place < SURVIVORS and board.progress[place] % 64 == 0 and time.monotonic() > _settled[0]:
        board.note_holdings(place)


WORK = (write, learn, update, visit, save)
KINDS = ("writers", "learners", "updaters", "visitors", "savers")
SURVIVORS = len(WORK)  # the first places are those of processes that are not killed
_settled = [0.0]


def run(location: str, board: Board, place: int, me: int) -> None:
    """The life of the process at a place; `me` is no other process's number."""
    _settled[0] = time.monotonic() + SETTLE
    with ReplayBuffer.open(location) as buffer:
        WORK[place % len(WORK)](buffer, board, place, me)
