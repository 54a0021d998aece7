"""Many threads at once: no update is lost, none hits the wrong row, and draws follow the law.

Calls with many ids or bytes release the interpreter's lock, so that these threads truly race.
"""

import itertools
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import numpy as np
import pytest

from replay_buffer import BufferConfig, Column, ReplayBuffer, Schema
from replay_buffer.testing.crowd import Crowd, together
from unit.prioritized.law import (
    ALMOST_IMPOSSIBLE,
    draw,
    fill,
    g_test,
    live_ids,
    make,
    masses,
    rank_masses,
)


@contextmanager
def meanwhile(step: Callable[[int], None]) -> Iterator[Crowd]:
    """Calls step(0), step(1), … in a thread until the block ends."""
    turns = itertools.count()
    with Crowd() as crowd:
        crowd.repeat(lambda: step(next(turns)))
        yield crowd


def assert_tree_is_exact(buffer: ReplayBuffer, alpha: float) -> None:
    """The total is the sum of all leaves, and every leaf follows from its raw priority."""
    ids = live_ids(buffer)
    mass = masses(buffer.priorities(ids), alpha)
    assert buffer.total_priority == pytest.approx(mass.sum(), rel=1e-6)
    batch = buffer.sample(5000, beta=1.0)  # unscaled weights with beta 1 are total / (N leaf)
    leaf = mass.sum() / len(ids) / batch["weights"]
    np.testing.assert_allclose(leaf, mass[np.searchsorted(ids, batch["indices"])], rtol=1e-5)
    total = buffer.total_priority
    buffer.alpha = alpha  # recomputes every leaf and every sum
    assert buffer.total_priority == pytest.approx(total, rel=1e-6)


@pytest.mark.parametrize("rows", [40, 3000])
def test_updates_of_four_threads_and_adds_leave_an_exact_tree(rows: int) -> None:
    buffer = make(rows, alpha=0.7, weights="none")
    fill(buffer, np.ones(rows))
    applied = [0] * 4

    def update(worker: int) -> None:
        rng = np.random.default_rng(worker)
        for turn in range(150):
            n = 32 if turn % 3 else 1500  # the larger ones without the interpreter's lock
            ids = buffer.sample(n)["indices"]
            applied[worker] += buffer.update_priorities(ids, rng.lognormal(0, 3, n))

    def add() -> None:
        rng = np.random.default_rng(9)
        for turn in range(400):
            n = 1 if turn % 2 else rows // 2 + 1
            buffer.add_batch(np.arange(n), priority=rng.lognormal(0, 3, n))

    together(*[lambda worker=worker: update(worker) for worker in range(4)], add)
    stats = buffer.stats()
    assert stats["updates_applied"] == sum(applied)
    assert stats["updates_applied"] + stats["updates_stale"] == 4 * (50 * 1500 + 100 * 32)
    assert_tree_is_exact(buffer, 0.7)


def test_late_updates_never_hit_the_rows_that_came_after() -> None:
    """Others update only rows about to be overwritten; new ones must keep what they were given."""
    rows, step = 128, 37
    buffer = make(rows, alpha=1.0, weights="none")
    fill(buffer, np.ones(rows))
    oldest = [np.arange(step)]
    done = threading.Event()

    def check_new_rows() -> None:
        new: list[np.ndarray] = []
        for turn in range(6000):
            raws = np.full(step, 1 + turn % 1009, np.float32)
            ids = buffer.add_batch(np.arange(step), priority=raws)
            oldest[0] = ids - rows + step
            new = [*new[-1:], ids]  # a late store comes late: the batch before is looked at again
            for back, given in enumerate(reversed(new)):
                assert (buffer.priorities(given) == 1 + (turn - back) % 1009).all()

    def add() -> None:
        try:
            check_new_rows()
        finally:
            done.set()

    def update() -> None:
        while not done.is_set():
            ids = np.repeat(oldest[0], 40)
            buffer.update_priorities(ids, np.full(len(ids), 5e4))

    together(add, update, update)
    assert_tree_is_exact(buffer, 1.0)


def test_a_change_of_alpha_reaches_rows_that_are_being_added_and_updated() -> None:
    rows, rounds = 30_000, 25
    buffer = make(rows, alpha=0.5, weights="none")
    ids = fill(buffer, np.ones(rows))
    begin, end = threading.Barrier(4), threading.Barrier(4)
    raws = np.random.default_rng(1).lognormal(0, 2, (rounds, rows))

    def each_round(job: Callable[[int], None]) -> Callable[[], None]:
        def run() -> None:
            try:
                for turn in range(rounds):
                    begin.wait()
                    job(turn)
                    end.wait()
                    if job is change_alpha:
                        mass = masses(buffer.priorities(live_ids(buffer)), buffer.alpha)
                        assert buffer.total_priority == pytest.approx(mass.sum(), rel=1e-6)
            except BaseException:
                begin.abort()
                end.abort()
                raise

        return run

    def change_alpha(turn: int) -> None:
        buffer.alpha = turn % 7 / 5

    def change_alpha_too(turn: int) -> None:
        buffer.alpha = turn % 5 / 3

    def add(turn: int) -> None:
        buffer.add_batch(np.arange(rows // 2), priority=raws[turn, : rows // 2])

    def update(turn: int) -> None:
        buffer.update_priorities(ids + max(0, (turn - 1) * (rows // 2)), raws[turn])

    together(*map(each_round, (change_alpha, change_alpha_too, add, update)))
    assert_tree_is_exact(buffer, buffer.alpha)


@pytest.mark.parametrize("strategy", ["prioritized", "rank"])
@pytest.mark.parametrize("width", [1, 1024])
def test_draws_follow_the_law_while_a_writer_overwrites(strategy: str, width: int) -> None:
    """Each slot keeps its priority over all laps, so the law of slots stands still.

    The writer takes one step for each batch: by rank a row that is overwritten before it is copied
    is not drawn, and one that goes round the ring meanwhile leaves but the rows behind it.
    """
    rows = 60
    raws = np.random.default_rng(3).permutation(np.float32(np.linspace(0.2, 3, rows)))
    config = BufferConfig(capacity=rows, strategy=strategy, alpha=1.0)  # type: ignore[arg-type]
    buffer = ReplayBuffer(config, schema=Schema({"x": Column((width,), "float32")}), seed=1)
    values = np.zeros((rows, width), np.float32)
    buffer.add_batch(values, priority=raws)
    lengths = np.random.default_rng(4).integers(1, 20, 1000)
    batches, steps, overwritten = [0], [0], [0]

    def overwrite(_: int) -> None:
        if steps[0] == batches[0]:
            time.sleep(0)
            return
        at = overwritten[0] % rows
        n = min(int(lengths[steps[0] % 1000]), rows - at)
        buffer.add_batch(values[:n], priority=raws[at : at + n])
        overwritten[0] += n
        steps[0] += 1

    counts = np.zeros(rows)
    with meanwhile(overwrite) as crowd:
        while counts.sum() < 40_000:
            batches[0] += 1
            counts += np.bincount(buffer.sample(64)["indices"] % rows, minlength=rows)
            while steps[0] < batches[0]:
                crowd.check()
                time.sleep(0)
    law = masses(raws, 1.0) if strategy == "prioritized" else rank_masses(raws, 1.0)
    assert g_test(counts, law) > ALMOST_IMPOSSIBLE


def test_rows_of_priority_zero_are_not_drawn_while_others_change() -> None:
    rows = 500
    zero = np.arange(rows) % 2 == 0
    buffer = make(rows, alpha=1.0, epsilon=0.0)
    ids = fill(buffer, np.where(zero, 0, 1))

    def change(turn: int) -> None:
        raws = np.random.default_rng(turn).lognormal(0, 8, 4000)
        buffer.update_priorities(np.tile(ids[~zero], 16), raws)

    with meanwhile(change):
        drawn = draw(buffer, 200_000, batch_size=500)
    assert not zero[drawn].any()


def test_a_row_is_never_drawn_with_the_priority_of_the_row_before() -> None:
    """A slot's row has priority 1 in one lap and 0 in the next; those of 0 must not be drawn."""
    rows = 512
    config = BufferConfig(capacity=rows, strategy="prioritized", alpha=1.0, epsilon=0.0)
    buffer = ReplayBuffer(config, schema=Schema({"x": Column((32,), "float32")}), seed=1)
    values = np.zeros((rows, 32), np.float32)  # enough bytes to be added without the lock
    buffer.add_batch(values, priority=np.ones(rows))

    def overwrite(turn: int) -> None:
        buffer.add_batch(values, priority=np.float32(np.arange(rows) % 2 == turn % 2))

    with meanwhile(overwrite):
        for _ in range(3000):
            ids = buffer.sample(64)["indices"]
            lap, slot = ids // rows, ids % rows
            assert ((lap == 0) | (slot % 2 == (lap - 1) % 2)).all()


def test_global_weights_are_exact_after_threads_raced() -> None:
    rows = 700
    buffer = make(rows, alpha=1.0, beta=1.0, weights="global")
    ids = fill(buffer, np.ones(rows))

    def update(worker: int) -> None:
        rng = np.random.default_rng(worker)
        for _ in range(100):
            buffer.update_priorities(np.tile(ids, 2), rng.lognormal(0, 3, 2 * rows))

    together(*[lambda worker=worker: update(worker) for worker in range(4)])
    mass = masses(buffer.priorities(ids), 1.0)
    batch = buffer.sample(300)
    np.testing.assert_allclose(batch["weights"], mass.min() / mass[batch["indices"]], rtol=1e-6)


def test_the_maximum_is_that_of_all_threads() -> None:
    buffer = make(100)
    ids = fill(buffer, np.ones(100))

    def update(worker: int) -> None:
        for turn in range(100):
            buffer.update_priorities(np.tile(ids, 6), np.full(600, 2.0 + turn + worker / 4))

    together(*[lambda worker=worker: update(worker) for worker in range(4)])
    assert buffer.max_priority == 101.75
    assert buffer.priorities([buffer.add(0)]).tolist() == [101.75]
