"""Writers, learners, updaters, visitors and savers on one prioritized buffer, and a killer.

    python -m crash.soak --seconds 60        (in tests/)

Each process is forked from this one, which has no buffer open, and opens it by name. One is killed
with SIGKILL every 50 ms, and another one takes its place at once; one process of each kind is left
alone. Exits with 0 when no row was torn, none lost, and nobody hung; with the reasons otherwise.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import tempfile
import time
import traceback
from pathlib import Path

import numpy as np

from crash.soak.board import Board
from crash.soak.rows import SCHEMA, Source
from crash.soak.workers import KINDS, SURVIVORS, WORK, check, look_up, overwritten, run
from replay_buffer import BufferConfig, ReplayBuffer

CAPACITY, BLOCK_ROWS = 10_000, 64
KILLABLE = 2 * len(WORK)
EVERY = 0.05  # seconds between two kills
HUNG = 20.0  # seconds without progress; the machine may be busy with other things
OWNERS = 256


class Soak:
    def __init__(self, location: str, complaints: Path, checkpoints: Path, seed: int) -> None:
        self._location = location
        self._board = Board(CAPACITY, complaints, checkpoints)
        self._rng = np.random.default_rng(seed)
        self._pids: dict[int, int] = {}  # by place
        self._dying: list[int] = []
        self._started = 0
        self._failed: list[str] = []
        self._kills = [0] * len(WORK)
        self._prefill()

    def _prefill(self) -> None:
        config = BufferConfig(CAPACITY, strategy="prioritized", block_rows=BLOCK_ROWS)
        with ReplayBuffer.create(self._location, config, schema=SCHEMA, seed=0) as buffer:
            source = Source(0, 0)
            for _ in range(10):
                self._board.acknowledge(buffer.add_batch(*source.rows(100)))

    def _start(self, place: int) -> None:
        self._started += 1
        pid = os.fork()
        if pid == 0:
            code = 1
            os.nice(1)  # the killer comes first
            try:
                run(self._location, self._board, place, self._started)
                code = 0
            except BaseException:
                self._board.complain(traceback.format_exc())
            finally:
                os._exit(code)
        self._pids[place] = pid

    def _kill_one(self) -> None:
        place = int(self._rng.integers(SURVIVORS, SURVIVORS + KILLABLE))
        pid = self._pids.pop(place)
        os.kill(pid, signal.SIGKILL)
        self._kills[place % len(WORK)] += 1
        self._start(place)
        self._dying.append(pid)
        self._dying = [pid for pid in self._dying if not self._reaped(pid)]

    def _reaped(self, pid: int) -> bool:
        gone, status = os.waitpid(pid, os.WNOHANG)
        if gone and os.waitstatus_to_exitcode(status) != -signal.SIGKILL:
            self._failed.append(f"a process ended by itself: {status}")
        return gone != 0

    def go(self, seconds: float) -> None:
        for place in range(SURVIVORS + KILLABLE):
            self._start(place)
        begin = time.monotonic()
        turn, next_look = 0, begin + 5
        while time.monotonic() < begin + seconds and not self._troubled():
            turn += 1
            time.sleep(max(0.0, begin + turn * EVERY - time.monotonic()))
            self._kill_one()
            if time.monotonic() > next_look:
                paused = time.monotonic()
                self._everybody_moves()
                pause = time.monotonic() - paused
                begin, seconds = begin + pause, seconds - pause  # kills go on at the same pace
                next_look = time.monotonic() + 5
        self._everybody_moves()
        self._end()

    def _troubled(self) -> bool:
        self._failed += self._board.complaints()
        return bool(self._failed)

    def _everybody_moves(self) -> None:
        """Nobody is killed until each process has got on; who does not has hung."""
        places = sorted(self._pids)
        before, deadline = self._board.progress[places].copy(), time.monotonic() + HUNG
        while (still := self._board.progress[places] == before).any():
            if self._board.complaints():
                return
            if time.monotonic() > deadline:
                hung = np.array(places)[still]
                self._failed.append(f"hung: places {hung.tolist()}")
                return
            time.sleep(0.01)

    def _end(self) -> None:
        self._board.stop()
        deadline = time.monotonic() + HUNG
        while self._dying and time.monotonic() < deadline:
            self._dying = [pid for pid in self._dying if not self._reaped(pid)]
        for place, pid in self._pids.items():
            while not (done := os.waitpid(pid, os.WNOHANG))[0] and time.monotonic() < deadline:
                time.sleep(0.01)
            if not done[0]:
                self._failed.append(f"the process at place {place} does not stop")
                os.kill(pid, signal.SIGKILL)
                os.waitpid(pid, 0)
            elif done[1] != 0:
                self._failed.append(f"the process at place {place} failed: {done[1]}")
        self._pids.clear()
        self._failed += self._board.complaints()

    def leave(self) -> None:
        """Ends what is still there after an error."""
        for pid in self._pids.values():
            os.kill(pid, signal.SIGKILL)
            os.waitpid(pid, 0)
        self._pids.clear()

    def examine(self) -> list[str]:
        """What is wrong now that everybody is gone."""
        board, failed = self._board, self._failed
        with ReplayBuffer.open(self._location) as buffer:
            complaints = buffer._engine.verify()
            failed += [f"verify: {complaint}" for complaint in complaints]
            batch = buffer.latest(CAPACITY)
            check(board, batch, "latest")
            if len(buffer) != len(batch["indices"]):
                failed.append(f"{len(buffer)} rows are counted, {len(batch['indices'])} are there")
            mass = (buffer.priorities(batch["indices"]).astype(float) + 1e-6) ** buffer.alpha
            if not np.isclose(mass.sum(), buffer.total_priority, rtol=1e-4):
                failed.append(f"the total is {buffer.total_priority}, of the rows {mass.sum()}")
            look_up(buffer, board, SURVIVORS, np.arange(CAPACITY))
            self._count_empty(buffer)
        self._check_holdings()
        handles = [ReplayBuffer.open(self._location) for _ in range(OWNERS)]  # no place is lost
        for handle in handles:
            handle.close()
        failed += board.complaints()
        return failed

    def _count_empty(self, buffer: ReplayBuffer) -> None:
        """A killed writer leaves at most one row of a slot unwritten."""
        ids = self._board.acknowledged[self._board.acknowledged >= 0]
        gone = buffer._engine.target.read(ids)[1].astype(bool)
        later = ids[gone, None] + CAPACITY * np.arange(1, 65)
        missing = buffer._engine.target.read(later.ravel())[1].astype(bool)
        empty = missing.reshape(later.shape).all(axis=1)
        kills = sum(self._kills)
        if empty.sum() > kills or not all(
            overwritten(buffer, self._board, int(i)) for i in ids[gone][empty]
        ):
            self._failed.append(f"{empty.sum()} slots are empty, {kills} processes were killed")

    def _check_holdings(self) -> None:
        board = self._board
        for place in range(SURVIVORS):
            first, last = board.descriptors[place]
            if last and last != first:
                self._failed.append(f"place {place} held {first} descriptors, then {last}")
            first, last = board.resident[place]
            if last > first + 4096:
                self._failed.append(f"place {place} had {first} KB of its own, then {last}")

    def figures(self, seconds: float) -> str:
        board, failed = self._board, " ".join(self._failed)
        words = {word: failed.count(word) for word in ("torn", "lost", "hung")}
        killed = ", ".join(f"{n} {kind}" for n, kind in zip(self._kills, KINDS, strict=True))
        kept = ", ".join(
            f"{board.resident[p].max() / 1024:.0f} MB and {board.descriptors[p].max()} descriptors"
            for p in range(SURVIVORS)
        )
        return (
            f"{seconds:.0f} s: {board.written.sum():,} rows written, "
            f"{board.sampled.sum():,} sampled, {board.updated.sum():,} updated, "
            f"{board.looked_up.sum():,} looked up by id, "
            f"{board.saved.sum():,} checkpoints restored, "
            f"{sum(self._kills):,} processes killed ({killed}); {words['torn']} torn, "
            f"{words['lost']} lost, {words['hung']} hung; survivors hold {kept}"
        )


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--file", action="store_true", help="a file instead of shared memory")
    asked = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder, tempfile.TemporaryDirectory() as complaints:
        name = f"soak-{os.getpid()}"
        location = f"file:{folder}/{name}" if asked.file else f"shm:{name}"
        checkpoints = Path(folder, "checkpoints")
        checkpoints.mkdir()
        soak = Soak(location, Path(complaints), checkpoints, asked.seed)
        try:
            begin = time.monotonic()
            soak.go(asked.seconds)
            seconds = time.monotonic() - begin
            failed = soak.examine()
        finally:
            soak.leave()
            ReplayBuffer.unlink(location)
        print(soak.figures(seconds), flush=True)
    left = [name for name in os.listdir("/dev/shm") if f"soak-{os.getpid()}" in name]
    failed += [f"{name} is left in /dev/shm" for name in left]
    for reason in failed[:20]:
        print(reason, file=sys.stderr)
    return 1 if failed else 0


if __name__ == "__main__":
    sys.exit(main())
