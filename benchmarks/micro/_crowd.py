"""Threads or processes that work on one buffer at the same time, and how much they get done."""

from __future__ import annotations

import gc
import multiprocessing
import threading
import time
from collections.abc import Callable
from multiprocessing.connection import Connection

from benchmarks.compare.workload import Workload
from benchmarks.micro._rows import one_row, priorities

from replay_buffer import ReplayBuffer

BATCH = 32
LEAD = 0.05  # seconds between asking and starting
TURN = 20  # calls between two looks at the clock, or at whether to stop


def writer(buffer: ReplayBuffer, rows: Workload) -> Callable[[], object]:
    """Adds one row after the other."""
    add, row = buffer.add, one_row(rows)
    return lambda: add(*row)


def batch_writer(buffer: ReplayBuffer, rows: Workload) -> Callable[[], object]:
    """Adds 64 rows at a time."""
    add, batch = buffer.add_batch, tuple(rows.rows(64).values())
    return lambda: add(*batch)


def learner(buffer: ReplayBuffer, rows: Workload) -> Callable[[], object]:
    """Draws into arrays of its own, and updates what it drew where there are priorities."""
    del rows
    sample, out = buffer.sample, buffer.sample(BATCH)
    if not buffer.config.weighted:
        return lambda: sample(BATCH, out=out)
    update, errors, ids = buffer.update_priorities, priorities(BATCH), out["indices"]

    def learn() -> None:
        sample(BATCH, out=out)
        update(ids, errors)

    return learn


def idler(buffer: ReplayBuffer, rows: Workload) -> Callable[[], object]:
    """Shares nothing with anybody: what more processes of this machine can give at all."""
    private = buffer.capacity, rows.row_bytes
    return lambda: hash(private)


#: What a process can do, and the rows of a call.
ROLES = {
    "writer": (writer, 1),
    "batch writer": (batch_writer, 64),
    "learner": (learner, BATCH),
    "idler": (idler, 1),
}


def together(works: list[Callable[[], object]], seconds: float) -> list[float]:
    """Calls a second of each of `works`: one thread each, begun together and told when to stop.

    Of the time of all of them: a thread that waits for the lock of the interpreter does nothing.
    """
    calls = [0] * len(works)
    start = threading.Barrier(len(works) + 1)
    stop = threading.Event()

    def loop(i: int, work: Callable[[], object]) -> None:
        done, stopped = 0, stop.is_set
        start.wait()
        while not stopped():
            for _ in range(TURN):
                work()
            done += TURN
        calls[i] = done

    threads = [threading.Thread(target=loop, args=pair) for pair in enumerate(works)]
    for thread in threads:
        thread.start()
    start.wait()
    begin = time.perf_counter()
    time.sleep(seconds)
    stop.set()
    for thread in threads:
        thread.join()
    took = time.perf_counter() - begin
    return [done / took for done in calls]


class Crowd:
    """So many processes, each with the buffer; for use in `with`."""

    def __init__(self, buffer: ReplayBuffer, rows: Workload, processes: int) -> None:
        context = multiprocessing.get_context("spawn")
        self._ends, self._processes = [], []
        for _ in range(processes):
            ours, theirs = context.Pipe()
            process = context.Process(target=_serve, args=(buffer, rows, theirs), daemon=True)
            process.start()
            theirs.close()
            self._ends.append(ours)
            self._processes.append(process)

    def rates(self, roles: tuple[str, ...], seconds: float) -> list[tuple[float, float]]:
        """Rows a second of each of the processes that play `roles` at once: of time, and of time
        that it had a processor, which other programs do not shorten.
        """
        ends = self._ends[: len(roles)]
        for end, role in zip(ends, roles, strict=True):
            end.send((role, 0.0, 0.0))  # ready?
        for end in ends:
            end.recv()
        start = time.monotonic() + LEAD
        for end, role in zip(ends, roles, strict=True):
            end.send((role, start, seconds))
        return [end.recv() for end in ends]

    def __enter__(self) -> Crowd:
        return self

    def __exit__(self, *_: object) -> None:
        for end in self._ends:
            end.close()
        for process in self._processes:
            process.join(10)


def _serve(buffer: ReplayBuffer, rows: Workload, asked: Connection) -> None:
    works = {name: (make(buffer, rows), per) for name, (make, per) in ROLES.items()}
    gc.disable()
    while True:
        try:
            role, start, seconds = asked.recv()
        except EOFError:
            return
        work, per = works[role]
        clock = time.monotonic
        for _ in range(TURN):
            work()
        while clock() < start:
            pass
        calls, begin, cpu = 0, clock(), time.process_time()
        end = begin + seconds
        while clock() < end:
            for _ in range(TURN):
                work()
            calls += TURN
        rows_done = calls * per
        cpu_taken = max(time.process_time() - cpu, 1e-9)
        asked.send((rows_done / max(clock() - begin, 1e-9), rows_done / cpu_taken))
