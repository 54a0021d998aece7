"""BufferConfig(enable_compression=True): large columns are compressed, in every kind of buffer."""

from __future__ import annotations

from pathlib import Path
from typing import Any, get_args

import numpy as np
import pytest

from replay_buffer import (
    BufferConfig,
    Column,
    FrameStack,
    InvalidArgument,
    NStep,
    ReplayBuffer,
    SchemaMismatch,
)
from replay_buffer.config import Strategy

FRAME = Column((84, 84), "uint8")
SCHEMA: dict[str, Any] = {"obs": FRAME, "action": Column((), "int64")}


def frame(number: int) -> Any:
    return np.full((84, 84), number % 256, np.uint8)


def compressed(buffer: ReplayBuffer) -> dict[str, str]:
    assert buffer.schema is not None
    return {path: c.compression for path, c in buffer.schema.columns if c.compression is not None}


def test_columns_of_more_than_a_kibibyte_or_of_any_length_are_compressed_and_no_others() -> None:
    buffer = ReplayBuffer(
        BufferConfig(10, enable_compression=True),
        schema={
            "obs": {"pixels": FRAME, "vector": Column((256,)), "long": Column((257,))},
            "tokens": Column((None,), "int32"),
            "depth": Column((84, 84), "uint8", compression="zstd"),
            "reward": Column(),
        },
    )
    assert compressed(buffer) == {
        "obs/pixels": "lz4",
        "obs/long": "lz4",
        "tokens": "lz4",
        "depth": "zstd",
    }
    assert ReplayBuffer(BufferConfig(10), schema=SCHEMA).schema.fields["obs"] == FRAME  # type: ignore[union-attr]


@pytest.mark.parametrize("strategy", get_args(Strategy))
def test_rows_come_back_as_they_went_in(strategy: Strategy) -> None:
    config = BufferConfig(50, strategy=strategy, enable_compression=True)
    buffer = ReplayBuffer(config, obs_shape=(84, 84), action_dim=300)
    assert buffer.stats()["compression"] is None  # nothing is known of the columns yet
    for i in range(70):
        buffer.add(frame(i), i, 1.0, frame(i + 1), False)
    assert compressed(buffer) == {"obs": "lz4", "next_obs": "lz4"}
    assert buffer.stats()["compression"]["ratio"] > 10
    batch = buffer.sample(32)
    assert (batch["obs"] == batch["action"][:, None, None]).all()
    assert (batch["next_obs"] == batch["action"][:, None, None] + 1).all()


def test_views_of_steps_are_made_of_compressed_frames() -> None:
    config = BufferConfig(100, storage="steps", enable_compression=True)
    buffer = ReplayBuffer(config, obs_shape=(84, 84), action_dim=300)
    with buffer.writer() as writer:
        for t in range(60):
            writer.append(frame(t), t, 1.0, False, t == 59, final_obs=frame(t + 1))
    assert compressed(buffer) == {"obs": "lz4"}
    batch = buffer.view(FrameStack(4), NStep(3)).sample(32)
    newest = batch["action"][:, None, None]
    assert (batch["obs"][:, 3] == newest).all()
    assert (batch["next_obs"][:, 3] == newest + batch["k"][:, None, None]).all()


def test_a_config_goes_with_the_segment(tmp_path: Path) -> None:
    config = BufferConfig(20, enable_compression=True)
    with ReplayBuffer.create(f"file:{tmp_path / 'buffer'}", config, schema=SCHEMA) as buffer:
        buffer.add(frame(3), 3)
        with ReplayBuffer.open(buffer.location, readonly=True) as reader:
            assert reader.config.enable_compression
            assert compressed(reader) == {"obs": "lz4"}
        buffer.checkpoint(tmp_path / "checkpoint")
    with ReplayBuffer.restore(tmp_path / "checkpoint") as restored:
        assert restored.config.enable_compression
        assert (restored.get([0])["obs"] == 3).all()


def test_open_or_create_tells_buffers_with_and_without_it_apart(tmp_path: Path) -> None:
    location = f"file:{tmp_path / 'buffer'}"
    config = BufferConfig(20, enable_compression=True)
    with (
        ReplayBuffer.open_or_create(location, config, schema=SCHEMA),
        ReplayBuffer.open_or_create(location, config, schema=SCHEMA) as other,
    ):
        assert compressed(other) == {"obs": "lz4"}
        with pytest.raises(SchemaMismatch, match="compression is 'lz4' there, None here"):
            ReplayBuffer.open_or_create(location, BufferConfig(20), schema=SCHEMA)
        by_column = {**SCHEMA, "obs": Column((84, 84), "uint8", compression="lz4")}
        with pytest.raises(InvalidArgument, match="enable_compression is True there, False here"):
            ReplayBuffer.open_or_create(location, BufferConfig(20), schema=by_column)


@pytest.mark.parametrize("value", [1, None, "lz4"])
def test_it_is_true_or_false(value: Any) -> None:
    with pytest.raises(InvalidArgument, match="enable_compression must be True or False"):
        BufferConfig(10, enable_compression=value)


def test_the_estimate_of_memory_before_the_first_row_is_that_of_compressed_columns() -> None:
    config = BufferConfig(1000, enable_compression=True)
    buffer = ReplayBuffer(config, obs_shape=(84, 84), obs_dtype="uint8", action_dim=4)
    before = buffer.stats()["segment_bytes"]
    buffer.add(frame(0), 1, 1.0, frame(1), False)
    assert buffer.stats()["segment_bytes"] == before
