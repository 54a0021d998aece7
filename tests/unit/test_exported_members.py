"""The public surface, frozen: a change here is a change for users."""

from __future__ import annotations

import ast
import dataclasses
import importlib.metadata
import importlib.resources
import inspect
import pydoc
import types
from typing import Any

import pytest

import replay_buffer
from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    Hindsight,
    LinearSchedule,
    NStep,
    PeekedColumn,
    PeekedRows,
    ReplayBuffer,
    Schema,
    Sequence,
    SharedArray,
    SharedCircularBuffer,
    StepWriter,
    Trajectory,
    View,
    _core,
    shared_memory_rl_pipeline,
    zero_copy_env_simulation,
)

EXPORTED = """
    AlreadyExists BufferConfig Busy Closed Column Corrupt FrameStack Hindsight Incompatible
    InvalidArgument LinearSchedule NStep NotEnoughRows NotFound OutOfSpace PeekedColumn PeekedRows
    PermissionDenied ReadOnly ReplayBuffer ReplayBufferError ReplayBufferWarning RowGone Schema
    SchemaMismatch Sequence SharedArray SharedCircularBuffer StepWriter SystemFailure Timeout
    Trajectory View __version__ shared_memory_rl_pipeline zero_copy_env_simulation
"""

MEMBERS: dict[type, str] = {
    ReplayBuffer: """
        add add_async add_batch add_batch_async alpha capacity checkpoint checkpoint_async clear
        close closed config create episodes episodes_async flush flush_async get is_full latest
        location max_priority open open_async open_or_create peek peek_latest priorities readonly
        restore restore_async sample sample_async schema size stats total_priority unlink
        update_priorities update_priorities_async view writer
    """,
    PeekedRows: "get gone indices intact items keys values",
    PeekedColumn: "runs",
    SharedArray: "array close closed create name open unlink",
    SharedCircularBuffer: "latest push sample",
    BufferConfig: """
        alpha beta block_rows capacity cer core_options durable enable_compression epsilon
        from_core limited max_times_sampled min_size samples_per_insert storage strategy tolerance
        weighted weights
    """,
    StepWriter: "append append_async autoreset close closed end streams",
    View: """
        buffer get sample sample_async starts starts_async update_priorities update_priorities_async
    """,
    NStep: "gamma n one_stream",
    FrameStack: "columns n",
    Sequence: "burn_in cross_episodes eta length next_obs pad period",
    Trajectory: "length",
    Hindsight: "achieved goal k reward strategy terminated",
    Schema: "arrays columns core_columns fields from_core",
    Column: "compression dtype expected item_shape limit padded ratio shape variable",
    LinearSchedule: "end start steps",
}

SIGNATURES: dict[Any, str] = {
    ReplayBuffer: "(config, obs_shape=None, action_dim=None, *, obs_dtype=None, action_shape=None, "
    "action_dtype=None, reward_dtype=None, schema=None, seed=None)",
    ReplayBuffer.latest: "(self, n)",
    ReplayBuffer.get: "(self, ids)",
    ReplayBuffer.peek: "(self, ids)",
    ReplayBuffer.peek_latest: "(self, n)",
    PeekedRows.intact: "(self)",
    PeekedRows.gone: "(self)",
    ReplayBuffer.checkpoint: "(self, path)",
    ReplayBuffer.create: "(location, config, obs_shape=None, action_dim=None, *, obs_dtype=None, "
    "action_shape=None, action_dtype=None, reward_dtype=None, schema=None, seed=None, "
    "overwrite=False)",
    ReplayBuffer.open_or_create: "(location, config, obs_shape=None, action_dim=None, *, "
    "obs_dtype=None, action_shape=None, action_dtype=None, reward_dtype=None, schema=None, "
    "seed=None)",
    ReplayBuffer.open: "(location, *, readonly=False, wait=0)",
    ReplayBuffer.unlink: "(self, /)",
    ReplayBuffer.restore: "(path, location='heap:', *, limiter=False, overwrite=False)",
    ReplayBuffer.clear: "(self)",
    ReplayBuffer.close: "(self)",
    ReplayBuffer.stats: "(self)",
    ReplayBuffer.priorities: "(self, ids)",
    ReplayBuffer.sample_async: "(self, batch_size, *, out=None, beta=None, timeout=None)",
    ReplayBuffer.add_async: "(self, *values, timeout=None, **columns)",
    ReplayBuffer.add_batch_async: "(self, *values, timeout=None, **columns)",
    ReplayBuffer.update_priorities_async: "(self, indices, td_errors)",
    ReplayBuffer.checkpoint_async: "(self, path)",
    ReplayBuffer.flush_async: "(self)",
    ReplayBuffer.episodes_async: "(self)",
    ReplayBuffer.open_async: "(location, *, readonly=False, wait=0)",
    ReplayBuffer.restore_async: "(path, location='heap:', *, limiter=False, overwrite=False)",
    ReplayBuffer.add: "(self, /, *values, priority=None, timeout=None, **columns)",
    ReplayBuffer.add_batch: "(self, /, *values, priority=None, timeout=None, **columns)",
    ReplayBuffer.sample: "(self, /, batch_size, *, out=None, beta=None, timeout=None)",
    ReplayBuffer.update_priorities: "(self, /, indices, td_errors)",
    SharedArray.create: "(shape, dtype)",
    SharedArray.open: "(name)",
    SharedArray.close: "(self)",
    SharedArray.unlink: "(self)",
    shared_memory_rl_pipeline: "(num_envs, obs_dim, step_data)",
    zero_copy_env_simulation: "(num_envs, obs_dim, step_data, commands)",
    SharedCircularBuffer: "(capacity, state_dim)",
    SharedCircularBuffer.push: "(self, state, action, reward, next_state, done)",
    SharedCircularBuffer.sample: "(self, batch_size, seed=None)",
    SharedCircularBuffer.latest: "(self, n)",
    BufferConfig: "(capacity, strategy='uniform', alpha=0.6, beta=0.4, enable_compression=False, "
    "epsilon=1e-06, weights='batch', cer=False, max_times_sampled=1, block_rows=None, min_size=0, "
    "samples_per_insert=None, tolerance=0.0, durable=False, storage='transitions')",
    ReplayBuffer.writer: "(self, streams=1, autoreset='same_step')",
    ReplayBuffer.view: "(self, *parts)",
    ReplayBuffer.episodes: "(self)",
    StepWriter.append: "(self, /, *values, final_obs=None, priority=None, timeout=None, **columns)",
    StepWriter.append_async: "(self, *values, final_obs=None, priority=None, timeout=None, "
    "**columns)",
    StepWriter.end: "(self, stream=0)",
    View.sample: "(self, /, batch_size, *, out=None, beta=None, timeout=None)",
    View.sample_async: "(self, batch_size, *, out=None, beta=None, timeout=None)",
    View.starts_async: "(self)",
    View.update_priorities_async: "(self, indices, td_errors, mask=None)",
    View.get: "(self, ids)",
    View.starts: "(self)",
    View.update_priorities: "(self, indices, td_errors, mask=None)",
    NStep: "(n, gamma=0.99, one_stream=False)",
    FrameStack: "(n, columns=None)",
    Sequence: "(length, burn_in=0, period=1, pad=True, cross_episodes=False, next_obs=False, "
    "eta=0.9)",
    Trajectory: "(length=None)",
    Hindsight: "(strategy='future', k=4, reward=None, terminated=None, "
    "achieved='obs/achieved_goal', goal='obs/desired_goal')",
    Column: "(shape=(), dtype='float32', limit=None, compression=None, ratio=1.0, expected=None, "
    "padded=False)",
    Schema: "(fields)",
    LinearSchedule: "(start, end, steps)",
}


def bare(signature: inspect.Signature) -> str:
    """A signature without its types."""
    parameters = [
        parameter.replace(annotation=inspect.Parameter.empty)
        for parameter in signature.parameters.values()
    ]
    return str(signature.replace(parameters=parameters, return_annotation=inspect.Signature.empty))


def members(cls: type) -> set[str]:
    found = {name for name in dir(cls) if not name.startswith("_")}
    if dataclasses.is_dataclass(cls):
        found |= {field.name for field in dataclasses.fields(cls)}
    return found


def test_the_package_exports_these_names() -> None:
    assert replay_buffer.__all__ == EXPORTED.split()


def test_the_package_has_no_other_public_names() -> None:
    public = {
        name
        for name, value in vars(replay_buffer).items()
        if not name.startswith("_") and not isinstance(value, types.ModuleType)
    }
    assert public == set(EXPORTED.split()) - {"__version__"}


@pytest.mark.parametrize("cls", MEMBERS, ids=lambda cls: cls.__name__)
def test_a_class_has_these_members(cls: type) -> None:
    assert members(cls) == set(MEMBERS[cls].split())


@pytest.mark.parametrize("call", SIGNATURES, ids=lambda call: call.__qualname__)
def test_a_call_has_these_parameters(call: Any) -> None:
    assert bare(inspect.signature(call)) == SIGNATURES[call]


@pytest.mark.parametrize("name", ["add", "add_batch", "sample", "update_priorities"])
def test_the_calls_of_the_core_have_a_documentation(name: str) -> None:
    call = getattr(ReplayBuffer, name)
    assert call.__doc__
    assert "--" not in call.__doc__  # where the signature ends
    assert f"{name}{inspect.signature(call)}" in pydoc.plain(pydoc.render_doc(call))


@pytest.mark.parametrize("name", ["add", "add_batch", "sample", "update_priorities"])
def test_the_slow_side_of_a_call_has_the_same_parameters(name: str) -> None:
    slow = inspect.signature(getattr(ReplayBuffer, f"_slow_{name}"))
    assert bare(inspect.signature(getattr(ReplayBuffer, name))) == bare(slow)


def test_every_async_form_takes_what_its_call_takes() -> None:
    """And `timeout` where the call waits."""
    forms = {
        (cls, name)
        for cls in (ReplayBuffer, View, StepWriter)
        for name in members(cls)
        if name.endswith("_async")
    }
    assert len(forms) == 13
    for cls, name in forms:
        call = inspect.signature(getattr(cls, name.removesuffix("_async"))).parameters
        form = inspect.signature(getattr(cls, name)).parameters
        collected = {"columns"} & set(form)  # an option may be among them
        assert set(form) <= set(call), name
        assert collected or set(form) == set(call), name


def test_all_public_calls_are_documented() -> None:
    undocumented = [
        f"{cls.__name__}.{name}"
        for cls in (ReplayBuffer, SharedArray, SharedCircularBuffer)
        for name in members(cls)
        if callable(getattr(cls, name)) and not getattr(cls, name).__doc__
    ]
    assert undocumented == []


def test_stats_have_these_keys() -> None:
    buffer = ReplayBuffer(BufferConfig(4), obs_shape=(3,), action_dim=2)
    sizes = {
        "size",
        "capacity",
        "row_bytes",
        "raw_bytes",
        "segment_bytes",
        "overhead_bytes",
        "overhead",
        "settled",
        "strategy",
        "limiter",
        "compression",
    }
    assert set(buffer.stats()) == sizes
    buffer.add([0.0] * 3, 1, 0.0, [0.0] * 3, False)
    assert set(buffer.stats()) == sizes | {
        "block_rows",
        "resident_bytes",
        "rows_added",
        "rows_sampled",
        "samples",
        "updates_applied",
        "updates_stale",
    }


# ---- types


def installed(name: str) -> Any:
    return importlib.resources.files(replay_buffer) / name


def test_the_package_says_that_it_is_typed() -> None:
    assert installed("py.typed").is_file()


def stub() -> ast.Module:
    return ast.parse(installed("_core.pyi").read_text())


def test_the_stub_of_the_core_names_what_is_there() -> None:
    names = set()
    for node in stub().body:
        if isinstance(node, (ast.FunctionDef, ast.ClassDef)):
            names.add(node.name)
        elif isinstance(node, ast.AnnAssign) and isinstance(node.target, ast.Name):
            names.add(node.target.id)
    there = {name for name in vars(_core) if not name.startswith("_")} | {"__version__"}
    assert names == there


def test_the_stub_of_the_core_names_every_method() -> None:
    for cls in (node for node in stub().body if isinstance(node, ast.ClassDef)):
        said = {node.name for node in cls.body if isinstance(node, ast.FunctionDef)}
        there = {name for name in vars(getattr(_core, cls.name)) if not name.startswith("__")}
        assert said - {"__init__"} == there, cls.name


def test_every_public_call_has_types() -> None:
    untyped = []
    for cls in MEMBERS:
        for name, value in vars(cls).items():
            if name.startswith("_") or not inspect.isfunction(value):
                continue
            signature = inspect.signature(value)
            hints = [signature.return_annotation]
            hints += [p.annotation for p in list(signature.parameters.values())[1:]]
            if inspect.Signature.empty in hints:
                untyped.append(f"{cls.__name__}.{name}")
    assert untyped == []


def test_the_version_is_a_version() -> None:
    major, minor, patch = replay_buffer.__version__.split(".")
    assert all(part.isdigit() for part in (major, minor, patch))


def test_the_package_carries_its_licence() -> None:
    about = importlib.metadata.distribution("replay-buffer")
    assert about.metadata["License-Expression"] == "MIT"
    text = about.read_text("licenses/LICENSE")
    assert text is not None
    assert "the replay_buffer authors" in text
