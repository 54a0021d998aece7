"""Each option of a buffer does in C++ what it does in Python, whichever language made the segment.

The law is that of twins: two segments are made alike; a handle of one is used by Python, one of the
other by a C++ program that gets the same commands; what comes of them is equal. And it differs from
what a buffer without the option gives, so that an option that is ignored is noticed.
"""

from __future__ import annotations

import contextlib
import itertools
import json
import os
import re
import subprocess
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field, fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    LinearSchedule,
    NotFound,
    ReplayBuffer,
    ReplayBufferError,
    SchemaMismatch,
    Timeout,
)
from unit.conftest import ROOT

pytestmark = pytest.mark.timeout(600)  # compiles the library

OBS = Column((32,), "float32")
SCHEMA: dict[str, Column] = {
    "obs": OBS,
    "action": Column((), "int64"),
    "reward": Column(),
    "next_obs": OBS,
    "done": Column((), "bool"),
}
STEPS = {
    "obs": OBS,
    "action": Column((), "int64"),
    "reward": Column(),
    "terminated": Column((), "bool"),
    "truncated": Column((), "bool"),
}
ROWS = 40
SCRIPT = ("config", "size", "draw 8 3", "add 9", "update 7.5", "draw 8 4", "size")
_names = itertools.count()


@dataclass(frozen=True)
class Case:
    """An option that is set, and others that it needs."""

    options: dict[str, Any]
    needs: dict[str, Any] = field(default_factory=dict)
    seed: int = 5
    columns: dict[str, Column] = field(default_factory=dict)
    file: bool = False

    def config(self) -> BufferConfig:
        return BufferConfig(**{"capacity": 64, **self.needs, **self.options})

    def without(self) -> Case:
        """The same without the option."""
        needs = {"tolerance": 90.0, **self.needs} if "tolerance" in self.options else self.needs
        return Case({}, needs, file=self.file)


BY_PRIORITY = {"strategy": "prioritized"}
FIFO = {"strategy": "fifo"}

#: What each option of BufferConfig changes. Those of the rate limiter have calls wait: see below.
OPTIONS: dict[str, list[Case]] = {
    "capacity": [Case({"capacity": 24})],
    "strategy": [
        Case({"strategy": strategy})
        for strategy in ("prioritized", "rank", "without_replacement", "fifo", "lifo")
    ],
    "alpha": [Case({"alpha": 1.7}, BY_PRIORITY), Case({"alpha": 0.2}, {"strategy": "rank"})],
    "beta": [
        Case({"beta": 1.5}, BY_PRIORITY),
        Case({"beta": LinearSchedule(0.1, 2.0, 5)}, BY_PRIORITY),
        Case({"beta": LinearSchedule(1.0, 0.0, 3)}, {"strategy": "rank"}),
    ],
    "epsilon": [Case({"epsilon": 3.0}, BY_PRIORITY)],
    "weights": [Case({"weights": scale}, BY_PRIORITY) for scale in ("global", "none")],
    "cer": [Case({"cer": True}), Case({"cer": True}, BY_PRIORITY)],
    "max_times_sampled": [Case({"max_times_sampled": 3}, FIFO)],
    "block_rows": [Case({"block_rows": 5})],
    "min_size": [Case({"min_size": 30})],
    "samples_per_insert": [Case({"samples_per_insert": 1.5}, {"tolerance": 100})],
    "tolerance": [Case({"tolerance": 100}, {"samples_per_insert": 1.5})],
    "durable": [Case({"durable": True}, file=True)],
    "enable_compression": [],  # of frames: below
    "storage": [],  # steps are no transitions: refused, below
    "seed": [Case({}, seed=6)],
}
#: Options that make calls wait, and a config that a handle soon has to wait with.
WAITING: dict[str, dict[str, Any]] = {
    "min_size": {"min_size": ROWS + 1},
    "samples_per_insert": {"samples_per_insert": 0.25, "tolerance": 30},
    "tolerance": {"samples_per_insert": 0.25, "tolerance": 60},
}
#: What each option of a Column changes: columns, and whether C++ can open them at all.
COLUMNS: dict[str, tuple[dict[str, Column], bool]] = {
    "shape": ({"obs": Column((33,)), "next_obs": Column((33,))}, False),
    "dtype": ({"reward": Column((), "float64")}, False),
    "limit": ({"action": Column((), "int64", limit=4)}, True),
    "compression": ({"obs": Column((32,), compression="lz4")}, True),
    "ratio": ({"obs": Column((32,), compression="zstd", ratio=4)}, True),
    "expected": ({"obs": Column((None,), expected=3)}, False),
    "padded": ({"obs": Column((None,), padded=True)}, False),
}
#: Options that only C++ has: Python says of each column what is expected.
OF_CPP = {"expected", "arena_bytes"}
FRAME = Column((2048,), "uint8")
FRAMES = {**SCHEMA, "obs": FRAME, "next_obs": FRAME}


def python_does(buffer: ReplayBuffer, command: str) -> Any:
    """What a command gives, as the program of tests/cpp/package/options.cc says it."""
    verb, *words = command.split()
    try:
        return COMMANDS[verb](buffer, *words)
    except ReplayBufferError as error:
        return {"error": error.code}


def python(buffer: ReplayBuffer) -> list[Any]:
    """What the script gives."""
    return [python_does(buffer, command) for command in SCRIPT]


def row_of(number: int, action: int) -> tuple[Any, ...]:
    obs = np.full(32, number, np.float32)
    return obs, action, float(number), obs + 1, number % 5 == 0


def config_of(buffer: ReplayBuffer) -> dict[str, Any]:
    facts = buffer._engine.target.facts()
    options = buffer.config.core_options(facts["seed"])
    chosen = {name: facts[name] for name in ("block_rows", "beta_end")}
    return {name: float(value) for name, value in {**options, **chosen}.items()}


def update(buffer: ReplayBuffer, priority: str) -> int:
    if not buffer.config.weighted:
        return 0
    return buffer.update_priorities(buffer.latest(4)["indices"], np.full(4, np.float32(priority)))


def draw(buffer: ReplayBuffer, n: str, batches: str) -> list[dict[str, Any]]:
    found = []
    for _ in range(int(batches)):
        batch = buffer.sample(int(n))
        columns = [batch["obs"][:, -1], batch["action"], batch["reward"]]
        columns += [batch["next_obs"][:, -1], batch["done"]]
        seen = np.stack(columns, 1, dtype=np.float64, casting="unsafe").ravel().tolist()
        weights = batch["weights"].tolist() if "weights" in batch else []
        found.append({"ids": batch["indices"].tolist(), "weights": weights, "seen": seen})
    return found


COMMANDS: dict[str, Callable[..., Any]] = {
    "config": config_of,
    "size": len,
    "fill": lambda b, n: [b.add(*row_of(i, i % 4)) for i in range(int(n))],
    "add": lambda b, action: b.add(*row_of(1000, int(action))),
    "update": update,
    "draw": draw,
}


class Program:
    """The C++ program, at work on one buffer."""

    def __init__(self, program: Path, *arguments: str) -> None:
        self.process = subprocess.Popen(
            [program, *arguments], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
        )

    def ask(self, command: str) -> Any:
        self.tell(command)
        assert self.process.stdout is not None
        return json.loads(self.process.stdout.readline())

    def tell(self, command: str) -> None:
        assert self.process.stdin is not None
        try:
            self.process.stdin.write(command + "\n")
            self.process.stdin.flush()
        except BrokenPipeError:
            pass  # it could not open the buffer, and says so

    def __enter__(self) -> Program:
        return self

    def __exit__(self, *_: object) -> None:
        assert self.process.stdin is not None
        with contextlib.suppress(BrokenPipeError):
            self.process.stdin.close()  # then it ends
        try:
            self.process.wait(10)
        except subprocess.TimeoutExpired:
            self.process.kill()
            self.process.wait()
        assert self.process.stdout is not None
        self.process.stdout.close()


class Places:
    """Locations of a test's own, which are gone after it."""

    def __init__(self, directory: Path) -> None:
        self.directory = directory
        self.buffers: list[ReplayBuffer] = []

    def new(self, file: bool = False) -> str:
        name = f"options-{os.getpid()}-{next(_names)}"
        return f"file:{self.directory / name}" if file else f"shm:{name}"

    def make(self, case: Case) -> ReplayBuffer:
        """A buffer with rows, and where there are priorities one of its own for each."""
        schema = {**SCHEMA, **case.columns}
        location = self.new(case.file)
        buffer = ReplayBuffer.create(location, case.config(), schema=schema, seed=case.seed)
        self.buffers.append(buffer)
        for i in range(ROWS):
            weighted = buffer.config.weighted
            buffer.add(*row_of(i, i % 4), **({"priority": 0.5 + i % 7} if weighted else {}))
        return buffer

    def open(self, location: str) -> ReplayBuffer:
        self.buffers.append(ReplayBuffer.open(location))
        return self.buffers[-1]


@pytest.fixture
def places(tmp_path: Path) -> Iterator[Places]:
    found = Places(tmp_path)
    yield found
    for buffer in found.buffers:
        with contextlib.suppress(NotFound):
            buffer.unlink()
        buffer.close()


@pytest.fixture(scope="module")
def program(cpp_program: Callable[[str], Path]) -> Path:
    return cpp_program("options")


def cpp(program: Path, *arguments: str) -> list[Any]:
    """What the script gives in C++."""
    with Program(program, *arguments) as process:
        return [process.ask(command) for command in SCRIPT]


def same(one: Any, other: Any) -> bool:
    """Equal, but for the last digit of a float32."""
    if isinstance(one, dict) and isinstance(other, dict):
        return one.keys() >= other.keys() and all(same(one[k], other[k]) for k in other)
    if isinstance(one, list) and isinstance(other, list):
        return len(one) == len(other) and all(map(same, one, other))
    return bool(one == pytest.approx(other, rel=3e-7, abs=1e-30))


def check_script(found: list[Any], wanted: list[Any]) -> None:
    for command, one, other in zip(SCRIPT, found, wanted, strict=True):
        assert same(one, other), f"{command}: {one}, not {other}"


CASES = [
    pytest.param(
        name, case, id="-".join(map(str, (name, *case.options.values(), *case.needs.values())))
    )
    for name, cases in OPTIONS.items()
    for case in cases
]


def test_the_table_has_every_option() -> None:
    seed = {"seed"}  # of the buffer
    assert set(OPTIONS) == {option.name for option in fields(BufferConfig)} | seed
    assert set(COLUMNS) == {option.name for option in fields(Column)}
    header = (ROOT / "include/replay_buffer/config.h").read_text()
    body = header[header.index("struct BufferConfig") :]
    of_cpp = re.findall(r"^ +[\w:]+ (\w+) = .*;", body, re.MULTILINE)
    told = set(BufferConfig(1).core_options(0))
    assert set(of_cpp) == told | OF_CPP


@pytest.mark.parametrize(("name", "case"), CASES)
def test_cpp_follows_what_python_has_set(
    name: str, case: Case, program: Path, places: Places
) -> None:
    one, other = places.make(case), places.make(case)
    wanted = python(places.open(one.location))
    check_script(cpp(program, "open", other.location), wanted)
    default = places.make(case.without())
    assert not same(python(places.open(default.location)), wanted)
    assert other._engine.verify() == []


@pytest.mark.parametrize(("name", "case"), CASES)
def test_python_follows_what_cpp_has_set(
    name: str, case: Case, program: Path, places: Places
) -> None:
    by_python, by_cpp = places.new(case.file), places.new(case.file)
    one = ReplayBuffer.create(by_python, case.config(), schema=SCHEMA, seed=case.seed)
    places.buffers.append(one)
    options = case.config().core_options(case.seed)
    given = [f"{name}={float(value)!r}" for name, value in options.items()]
    with Program(program, "create", by_cpp, *given) as process:
        assert process.ask(f"fill {ROWS}") == python_does(one, f"fill {ROWS}")
        other = places.open(by_cpp)
        assert repr(other.config) == repr(places.open(by_python).config)
        check_script(python(other), python(places.open(by_python)))


@pytest.mark.parametrize("name", WAITING)
def test_cpp_waits_where_python_would(name: str, program: Path, places: Places) -> None:
    case = Case(WAITING[name])
    one, other = places.make(case), places.make(case)
    handle = places.open(one.location)
    with contextlib.suppress(Timeout):
        for _ in range(ROWS):
            handle.sample(8, timeout=0)
    draws = one.stats()["samples"]
    assert draws < ROWS
    with Program(program, "open", other.location) as process:
        process.tell(f"draw 8 {draws + 1}")
        wait_until(lambda: other.stats()["limiter"]["waiting"] == 1)
        assert other.stats()["samples"] == draws
        for i in range(ROWS):
            other.add(*row_of(i, 0), timeout=0)
            if other.stats()["samples"] > draws:
                break
        wait_until(lambda: other.stats()["samples"] == draws + 1)


def wait_until(what: Callable[[], bool]) -> None:
    end = time.monotonic() + 60
    while not what():
        assert time.monotonic() < end
        time.sleep(0.002)


def test_an_exponent_that_python_changes_is_changed_for_cpp(program: Path, places: Places) -> None:
    one, other = places.make(Case(BY_PRIORITY)), places.make(Case(BY_PRIORITY))
    with Program(program, "open", other.location) as process:
        one.alpha = other.alpha = 1.9
        wanted = python(places.open(one.location))
        check_script([process.ask(command) for command in SCRIPT], wanted)


def test_steps_are_refused_by_cpp(program: Path, places: Places) -> None:
    """Whatever their columns are called: rows without links would be no steps."""
    location = places.new()
    buffer = ReplayBuffer.create(location, BufferConfig(64, storage="steps"), schema=STEPS)
    places.buffers.append(buffer)
    assert cpp_error(program, "open", location) == SchemaMismatch.code
    assert cpp_error(program, "create", places.new(), "capacity=64", "storage=1") == 1


def cpp_error(program: Path, *arguments: str) -> int:
    with Program(program, *arguments) as process:
        return int(process.ask("size")["error"])


@pytest.mark.parametrize("name", COLUMNS)
def test_cpp_follows_what_python_has_set_of_a_column(
    name: str, program: Path, places: Places
) -> None:
    columns, fits = COLUMNS[name]
    case = Case({}, columns=columns)
    if not fits:
        location = places.new()
        schema = {**SCHEMA, **columns}
        places.buffers.append(ReplayBuffer.create(location, case.config(), schema=schema))
        assert cpp_error(program, "open", location) == SchemaMismatch.code
        return
    one, other, default = places.make(case), places.make(case), places.make(Case({}))
    wanted = python(places.open(one.location))
    check_script(cpp(program, "open", other.location), wanted)
    if name == "limit":
        assert wanted[SCRIPT.index("add 9")] == {"error": SchemaMismatch.code}
        assert not same(python(places.open(default.location)), wanted)
        return
    packed = other.stats()["compression"]
    assert packed == one.stats()["compression"]
    assert packed["bytes_in"] == (ROWS + 1) * 128
    assert default.stats()["compression"] is None


def frame_of(number: int) -> tuple[Any, ...]:
    _, action, reward, _, done = row_of(number, number % 4)
    obs = np.full(2048, number, np.uint8)
    return obs, action, reward, obs + 1, done


def test_both_compress_the_same_columns(program: Path, places: Places) -> None:
    """Whichever made the buffer, the other opens it and goes on in the same way."""
    config = BufferConfig(64, enable_compression=True)
    by_python, by_cpp = places.new(), places.new()
    one = ReplayBuffer.create(by_python, config, schema=FRAMES, seed=0)
    places.buffers.append(one)
    for i in range(ROWS):
        one.add(*frame_of(i))
    with Program(
        program, "create-frames", by_cpp, "capacity=64", "enable_compression=1"
    ) as process:
        assert process.ask(f"fill {ROWS}") == list(range(ROWS))
        other = places.open(by_cpp)
        assert other._engine.target.facts()["columns"] == one._engine.target.facts()["columns"]
        assert other.schema is not None
        assert [path for path, c in other.schema.columns if c.compression] == ["obs", "next_obs"]
        assert other.stats()["compression"] == one.stats()["compression"]
        assert other.stats()["compression"]["ratio"] > 4
        assert other.config == places.open(by_python).config
        assert other.config.enable_compression
        assert (other.get(np.arange(ROWS))["obs"] == np.arange(ROWS)[:, None]).all()
        assert process.ask("config")["enable_compression"] == 1
    with Program(program, "open-frames", by_python) as process:
        assert process.ask("config")["enable_compression"] == 1
        assert process.ask("add 2") == ROWS
        assert (one.get([ROWS])["obs"] == np.uint8(1000 % 256)).all()


def test_arenas_that_cpp_asks_for_are_arenas_for_python(program: Path, places: Places) -> None:
    location, given = places.new(), ("enable_compression=1", "arena_bytes=65536")
    with Program(program, "create-frames", location, "capacity=64", *given) as process:
        assert process.ask(f"fill {ROWS}") == list(range(ROWS))
        buffer = places.open(location)
        assert buffer.stats()["segment_bytes"] > places.make(Case({})).stats()["segment_bytes"]
        row_id = buffer.add(*frame_of(7))
        assert process.ask("size") == ROWS + 1
        assert (buffer.get([row_id])["obs"] == 7).all()
