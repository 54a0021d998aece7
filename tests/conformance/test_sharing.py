"""One buffer, several handles and processes: in shared memory and in a file."""

from __future__ import annotations

import gc
import itertools
import multiprocessing
import os
import pickle
import shutil
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from conformance.children import check_and_answer, in_fork, joined, killed_after, write
from replay_buffer import (
    AlreadyExists,
    BufferConfig,
    Busy,
    InvalidArgument,
    LinearSchedule,
    NotFound,
    PermissionDenied,
    ReadOnly,
    ReplayBuffer,
)
from replay_buffer.testing.content import (
    NUMBERED,
    STRATEGIES,
    add_numbers,
    assert_whole,
    live_ids,
    masses,
    numbered,
)

pytestmark = [
    pytest.mark.skipif(sys.platform != "linux", reason="looks into /dev/shm and /proc"),
    pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning"),
]
SHARED_MEMORY = Path("/dev/shm")
OWNERS = 256
numbers = itertools.count()


@pytest.fixture(params=["shm", "file"])
def location(request: pytest.FixtureRequest) -> Iterator[str]:
    """A location nobody uses; emptied afterwards."""
    folder = Path(tempfile.mkdtemp())
    name = f"sharing-{os.getpid()}-{next(numbers)}"
    yield f"shm:{name}" if request.param == "shm" else f"file:{folder / name}"
    (SHARED_MEMORY / f"replay_buffer.{name}").unlink(missing_ok=True)
    shutil.rmtree(folder)


def path_of(location: str) -> Path:
    kind, _, name = location.partition(":")
    return SHARED_MEMORY / f"replay_buffer.{name}" if kind == "shm" else Path(name)


def create(location: str, capacity: int = 100, strategy: Any = "uniform", **options: Any) -> Any:
    return numbered(
        lambda config, **columns: ReplayBuffer.create(location, config, **columns),
        capacity,
        strategy,
        **options,
    )


def assert_sound(buffer: ReplayBuffer) -> None:
    """What is stored is whole, countable and has its mass."""
    batch = buffer.latest(buffer.capacity)
    assert_whole(batch)
    assert len(buffer) == len(batch["k"])
    if len(buffer):
        assert_whole(buffer.sample(64))
    if buffer.config.strategy == "prioritized":
        expected = masses(buffer.priorities(batch["indices"]), buffer.alpha).sum()
        assert buffer.total_priority == pytest.approx(expected, rel=1e-5)


# ---- handles of one process ------------------------------------------------------------------


def test_a_second_handle_sees_what_the_first_one_does(location: str) -> None:
    with create(location, strategy="prioritized") as one, ReplayBuffer.open(location) as other:
        ids = add_numbers(one, 30)
        assert other.latest(100)["k"].tolist() == list(range(30))
        assert other.update_priorities(ids[:2], [5.0, 6.0]) == 2
        assert one.priorities(ids[:3]).tolist() == [5, 6, 1]
        one.alpha = 0.3
        assert other.alpha == pytest.approx(0.3)
        assert other.total_priority == one.total_priority
        other.clear()
        assert len(one) == 0


def test_handles_write_to_blocks_of_their_own_and_nothing_is_lost(location: str) -> None:
    with create(location, 400) as one, ReplayBuffer.open(location) as other:
        ids = [[one.add(k, [k] * 3) for k in range(100)], []]
        for k in range(100, 150):
            ids[0].append(one.add(k, [k] * 3))
            ids[1].append(other.add(1000 + k, [1000 + k] * 3))
        assert set(ids[0]).isdisjoint(ids[1])
        assert one.get(ids[1])["k"].tolist() == list(range(1100, 1150))
        assert other.get(ids[0])["k"].tolist() == list(range(150))
        assert len(one) == len(other) == 200
        assert one.stats()["rows_added"] == other.stats()["rows_added"] == 200


def test_an_opened_buffer_has_the_columns_and_options_of_the_segment(location: str) -> None:
    options: dict[str, Any] = {
        "alpha": 0.7,
        "beta": LinearSchedule(0.4, 1.0, 100),
        "epsilon": 1e-3,
        "weights": "global",
        "cer": True,
        "block_rows": 9,
    }
    with create(location, 90, "prioritized", **options), ReplayBuffer.open(location) as opened:
        assert opened.config == BufferConfig(90, "prioritized", **options)
        assert opened.schema == NUMBERED
        assert opened.location == location
        assert location in repr(opened)


@pytest.mark.parametrize("strategy", STRATEGIES)
def test_every_strategy_draws_rows_that_another_handle_wrote(location: str, strategy: str) -> None:
    with create(location, 60, strategy) as writer, ReplayBuffer.open(location) as learner:
        add_numbers(writer, 90)
        batch = learner.sample(30)
        assert_whole(batch)
        assert batch["k"].min() >= 30


def test_handles_take_turns_in_one_sequence_of_draws(location: str) -> None:
    """Two learners never draw the same batch: the generator belongs to the buffer."""
    with create(location) as one, ReplayBuffer.open(location) as other:
        twin = ReplayBuffer(BufferConfig(100), schema=NUMBERED, seed=0)
        for buffer in (one, twin):
            add_numbers(buffer, 100)
        for turn in range(10):
            learner = one if turn % 3 else other
            assert np.array_equal(learner.sample(8)["k"], twin.sample(8)["k"])


# ---- opening and creating --------------------------------------------------------------------


def test_what_does_not_exist_is_not_found(location: str) -> None:
    for readonly in (False, True):
        with pytest.raises(NotFound, match=path_of(location).name):
            ReplayBuffer.open(location, readonly=readonly)


def test_a_live_buffer_is_not_replaced(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 3)
        with pytest.raises(AlreadyExists, match=path_of(location).name):
            create(location)
        assert len(buffer) == 3


def test_shared_memory_left_by_a_crash_is_replaced_and_a_file_is_kept(location: str) -> None:
    killed_after(lambda: add_numbers(create(location), 5))
    assert path_of(location).exists()
    if location.startswith("file:"):
        with pytest.raises(AlreadyExists):
            create(location)
        assert len(ReplayBuffer.open(location)) == 5
    else:
        with create(location) as buffer:
            assert len(buffer) == 0


def test_what_a_crash_left_can_be_opened(location: str) -> None:
    killed_after(lambda: write(create(location, strategy="prioritized"), 0, 37))
    with ReplayBuffer.open(location) as buffer:
        assert buffer.latest(100)["k"].tolist() == list(range(37))
        assert_sound(buffer)
        add_numbers(buffer, 200)
        assert len(buffer) == 100
        assert_sound(buffer)


def test_unlink_removes_the_name_and_the_buffer_lives_on(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 3)
        buffer.unlink()
        assert not path_of(location).exists()
        assert len(buffer) == 3
        with create(location) as another:
            assert len(another) == 0
            assert len(buffer) == 3


def test_shared_memory_without_a_name_is_nowhere() -> None:
    before = set(os.listdir(SHARED_MEMORY))
    with create("shm:") as buffer:
        add_numbers(buffer, 3)
        assert set(os.listdir(SHARED_MEMORY)) <= before
        for call in (
            lambda: ReplayBuffer.open("shm:"),
            buffer.unlink,
            lambda: pickle.dumps(buffer),
        ):
            with pytest.raises((InvalidArgument, TypeError), match="name"):
                call()


@pytest.mark.parametrize("bad", ["", "atari", "shm:a/b", "disk:x", "file:", "heap:name"])
def test_what_is_no_location_is_refused(bad: str) -> None:
    with pytest.raises(InvalidArgument):
        create(bad)
    with pytest.raises(InvalidArgument):
        ReplayBuffer.open(bad)


def test_what_is_missing_for_the_layout_is_named() -> None:
    with pytest.raises(InvalidArgument, match=r"obs_dtype.*action_dtype"):
        ReplayBuffer.create("shm:", BufferConfig(8), obs_shape=(3,), action_dim=2)


# ---- reading only ----------------------------------------------------------------------------


def test_a_readonly_handle_reads_and_cannot_write(location: str) -> None:
    with create(location, strategy="prioritized") as buffer:
        ids = add_numbers(buffer, 30)
        with ReplayBuffer.open(location, readonly=True) as watcher:
            assert watcher.readonly
            assert not buffer.readonly
            calls: list[Any] = [
                lambda: add_numbers(watcher, 1),
                lambda: watcher.add(0, [0, 0, 0]),
                lambda: watcher.update_priorities(ids, np.ones(30)),
                watcher.clear,
                lambda: setattr(watcher, "alpha", 0.1),
            ]
            for call in calls:
                with pytest.raises(ReadOnly):
                    call()
            assert watcher.get(ids)["k"].tolist() == list(range(30))
            assert_sound(watcher)
        assert buffer.alpha == pytest.approx(0.6)
        assert len(buffer) == 30


@pytest.mark.parametrize(
    "strategy", ["uniform", "prioritized", "rank", "without_replacement", "lifo"]
)
def test_a_readonly_handle_draws_without_being_counted(location: str, strategy: str) -> None:
    with create(location, strategy=strategy) as buffer:
        add_numbers(buffer, 50)
        twin = ReplayBuffer(BufferConfig(100, strategy=strategy), schema=NUMBERED, seed=0)  # type: ignore[arg-type]
        add_numbers(twin, 50)
        before = buffer.stats()
        with ReplayBuffer.open(location, readonly=True) as watcher:
            for _ in range(10):
                assert_whole(watcher.sample(16))
        after = buffer.stats()
        changing = {"resident_bytes"}
        assert all(after[name] == before[name] for name in before if name not in changing)
        assert np.array_equal(buffer.sample(16)["k"], twin.sample(16)["k"])


def test_a_readonly_handle_follows_the_writer(location: str) -> None:
    with create(location) as buffer, ReplayBuffer.open(location, readonly=True) as watcher:
        for k in range(0, 300, 50):
            add_numbers(buffer, 50, first=k)
            assert watcher.latest(3)["k"].tolist() == [k + 47, k + 48, k + 49]
            assert watcher.stats()["rows_added"] == k + 50


def test_a_readonly_handle_needs_no_permission_to_write(location: str) -> None:
    with create(location) as buffer:
        add_numbers(buffer, 30)
        path = path_of(location)
        path.chmod(0o444)
        path.parent.chmod(path.parent.stat().st_mode | 0o055)

        def watch() -> None:
            if os.getuid() == 0:
                os.setuid(65534)
            with ReplayBuffer.open(location, readonly=True) as watcher:
                assert watcher.latest(100)["k"].tolist() == list(range(30))
                assert_whole(watcher.sample(8))
            with pytest.raises(PermissionDenied):
                ReplayBuffer.open(location)

        assert joined(in_fork(watch)) == 0


@pytest.mark.skipif(os.getuid() != 0, reason="becomes another user")
def test_another_user_cannot_open_a_buffer(location: str) -> None:
    with create(location):
        path_of(location).parent.chmod(path_of(location).parent.stat().st_mode | 0o055)

        def try_it() -> None:
            os.setuid(65534)
            for readonly in (False, True):
                with pytest.raises(PermissionDenied):
                    ReplayBuffer.open(location, readonly=readonly)

        assert joined(in_fork(try_it)) == 0


# ---- processes -------------------------------------------------------------------------------


def test_a_forked_child_writes_while_its_parent_does(location: str) -> None:
    with create(location, 4000, "prioritized") as buffer:
        write(buffer, 0, 5)  # the parent has a block open, which the child must leave alone
        child = in_fork(write, buffer, 10_000, 1000)
        write(buffer, 5, 995)
        assert joined(child) == 0
        stored = buffer.latest(4000)["k"]
        assert sorted(stored) == [*range(1000), *range(10_000, 11_000)]
        # Each writer's rows are in the order it wrote them.
        for own in (stored[stored < 10_000], stored[stored >= 10_000]):
            assert (np.diff(own) > 0).all()
        assert_sound(buffer)


def test_a_forked_child_that_only_ends_takes_nothing_with_it(location: str) -> None:
    with create(location, strategy="prioritized") as buffer:
        write(buffer, 0, 5)
        assert joined(in_fork(lambda: buffer.sample(4))) == 0
        assert joined(in_fork(buffer.close)) == 0
        assert joined(in_fork(lambda: None)) == 0
        write(buffer, 5, 5)
        assert buffer.latest(100)["k"].tolist() == list(range(10))
        with pytest.raises(AlreadyExists):
            create(location)


def test_a_forked_child_survives_its_parent(location: str) -> None:
    ready, go = os.pipe()

    def parent() -> None:
        buffer = create(location, 400)
        write(buffer, 0, 10)

        def child() -> None:
            os.read(ready, 1)
            write(buffer, 10, 20)

        in_fork(child)
        os.kill(os.getpid(), signal.SIGKILL)

    assert joined(in_fork(parent)) == -signal.SIGKILL
    with ReplayBuffer.open(location) as buffer:
        os.write(go, b"x")
        deadline = time.monotonic() + 20
        while len(buffer) < 30 and time.monotonic() < deadline:
            time.sleep(0.005)
        assert buffer.latest(400)["k"].tolist() == list(range(30))
    os.close(ready)
    os.close(go)


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
@pytest.mark.parametrize("name", [True, False])
def test_a_buffer_is_handed_to_children(location: str, method: str, name: bool) -> None:
    context = multiprocessing.get_context(method)
    with create(location if name else "shm:", 400) as buffer:
        write(buffer, 0, 20)
        child = context.Process(target=check_and_answer, args=(buffer, 20))
        child.start()
        child.join(60)
        assert child.exitcode == 0
        assert buffer.latest(2)["k"].tolist() == [19, 20]


def open_and_write(location: str) -> None:
    handle = ReplayBuffer.open(location)
    write(handle, 0, 3)
    KEPT.append(handle)  # as a module would: nothing closes it


KEPT: list[ReplayBuffer] = []


@pytest.mark.parametrize("method", ["fork", "spawn", "forkserver"])
def test_a_child_that_ends_in_good_order_is_no_dead_owner(location: str, method: str) -> None:
    context = multiprocessing.get_context(method)
    with create(location, 400) as buffer:
        # One after the other: who opens a buffer mends what a dead one before it left.
        works = [(open_and_write, (location,)), (write, (buffer, 0, 3))]
        children = [context.Process(target=work, args=args) for work, args in works]
        for child in children:
            child.start()
            child.join(60)
        assert [child.exitcode for child in children] == [0, 0]
        assert len(buffer) == 6
        assert [pid for _, pid, *_ in buffer._owners()] == [os.getpid()]
        assert buffer._verify() == []


def test_a_readonly_buffer_is_handed_on_as_such(location: str) -> None:
    with create(location) as buffer:
        write(buffer, 0, 20)
        with ReplayBuffer.open(location, readonly=True) as watcher:
            child = multiprocessing.get_context("spawn").Process(
                target=check_and_answer, args=(watcher, 20)
            )
            child.start()
            child.join(60)
        assert child.exitcode == 0
        assert len(buffer) == 20


def test_a_pickled_buffer_is_its_location(location: str) -> None:
    with create(location) as buffer:
        write(buffer, 0, 20)
        with pickle.loads(pickle.dumps(buffer)) as copy:
            assert copy.location == location
            assert copy.latest(100)["k"].tolist() == list(range(20))


def test_private_memory_is_not_handed_on() -> None:
    with create("heap:") as buffer, pytest.raises(TypeError, match="shm:"):
        pickle.dumps(buffer)


def test_processes_write_and_learn_at_once(location: str) -> None:
    def learn() -> None:
        with ReplayBuffer.open(location) as learner:
            for _ in range(300):
                batch = learner.sample(32)
                assert_whole(batch)
                learner.update_priorities(batch["indices"], np.ones(32))

    with create(location, 64, "prioritized", block_rows=8) as buffer:
        write(buffer, 0, 64)
        children = [in_fork(write, buffer, 1000 * i, 1000) for i in (1, 2)] + [in_fork(learn)]
        assert [joined(child) for child in children] == [0, 0, 0]
        assert buffer.stats()["rows_added"] == 2064
        assert_sound(buffer)


# ---- files -----------------------------------------------------------------------------------


@pytest.mark.parametrize("rows", [0, 1, 99, 100, 101, 250])
def test_a_file_has_after_close_what_it_had_before(tmp_path: Path, rows: int) -> None:
    location = f"file:{tmp_path / 'kept.rb'}"
    rng = np.random.default_rng(rows)
    twin = ReplayBuffer(BufferConfig(100, "prioritized"), schema=NUMBERED, seed=0)
    with create(location, 100, "prioritized") as buffer:
        for one in (buffer, twin):
            add_numbers(one, rows)
        ids = live_ids(buffer)
        errors = rng.lognormal(0, 2, len(ids))
        for one in (buffer, twin):
            one.update_priorities(ids, errors)
            one.alpha = 0.8
            for _ in range(3 if rows else 0):
                one.sample(16)
        before = (buffer.stats(), buffer.priorities(ids), buffer.total_priority)
    for _ in range(2):
        with ReplayBuffer.open(location) as again:
            assert live_ids(again).tolist() == ids.tolist()
            assert again.get(ids)["k"].tolist() == ids.tolist()
            assert np.array_equal(again.priorities(ids), before[1])
            assert again.total_priority == before[2]
            assert again.max_priority == twin.max_priority
            assert again.alpha == pytest.approx(0.8)
            for name in ("size", "capacity", "rows_added", "samples", "rows_sampled"):
                assert again.stats()[name] == before[0][name]
    if rows:
        with ReplayBuffer.open(location) as again:  # the generator goes on where it was
            assert np.array_equal(again.sample(16)["k"], twin.sample(16)["k"])


def test_a_file_goes_on_where_it_was_closed(tmp_path: Path) -> None:
    location = f"file:{tmp_path / 'kept.rb'}"
    create(location).close()
    for k in range(0, 260, 26):
        with ReplayBuffer.open(location) as buffer:
            write(buffer, k, 26)
            assert_sound(buffer)
            newest = buffer.latest(26)["k"].tolist()
            assert newest == list(range(k, k + 26))
            assert len(buffer) <= 100


def test_rows_acknowledged_before_a_kill_are_in_the_file(location: str) -> None:
    """The writer is killed from outside, at any instruction, again and again."""
    create(location, 100_000, "prioritized", block_rows=16).close()
    rng = np.random.default_rng(0)
    done, say = os.pipe()

    def run(first: int) -> None:
        buffer = ReplayBuffer.open(location)
        for k in itertools.count(first):
            buffer.add(k, [k, k, k])
            os.write(say, k.to_bytes(8, "little"))

    keep = ReplayBuffer.open(location)  # shared memory that nobody has open could be replaced
    acknowledged: list[int] = []
    for turn in range(10):
        child = in_fork(run, turn * 1_000_000)
        time.sleep(0.02 + 0.03 * rng.random())
        os.kill(child, signal.SIGKILL)
        assert joined(child) == -signal.SIGKILL
        os.set_blocking(done, False)
        while chunk := _read(done):
            acknowledged += np.frombuffer(chunk, np.int64).tolist()
        with ReplayBuffer.open(location) as buffer:
            assert_sound(buffer)
            stored = set(buffer.latest(100_000)["k"].tolist())
            assert stored.issuperset(acknowledged)
            assert len(stored) <= len(acknowledged) + turn + 1  # at most one row not yet said
    assert len(acknowledged) > 100
    keep.close()
    os.close(done)
    os.close(say)


def _read(fd: int) -> bytes:
    try:
        return os.read(fd, 1 << 16)
    except BlockingIOError:
        return b""


# ---- many ------------------------------------------------------------------------------------


def test_there_is_a_place_for_so_many_writers_and_then_a_clear_error(location: str) -> None:
    with create(location) as buffer:
        handles = [ReplayBuffer.open(location) for _ in range(OWNERS - 1)]
        for _ in range(3):
            with pytest.raises(Busy, match=r"256.*readonly"):
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
