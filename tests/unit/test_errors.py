"""One list of errors: the enum in C++, the classes in Python and the numbers on the wire."""

from __future__ import annotations

import inspect
import re
from pathlib import Path

import pytest

import replay_buffer
from replay_buffer import (
    BufferConfig,
    Column,
    NotEnoughRows,
    ReplayBuffer,
    ReplayBufferError,
    errors,
)
from replay_buffer.errors import class_of

HEADER = Path(__file__).parents[2] / "include" / "replay_buffer" / "error.h"


def codes_in_cpp() -> dict[str, int]:
    body = re.search(r"enum class ErrorCode[^{]*\{(.*?)\};", HEADER.read_text(), re.DOTALL)
    assert body is not None
    entries = re.findall(r"^\s*k(\w+) = (\d+),", body.group(1), re.MULTILINE)
    return {name: int(code) for name, code in entries}


def classes() -> dict[str, type[ReplayBufferError]]:
    return {
        name: cls
        for name, cls in vars(errors).items()
        if inspect.isclass(cls)
        and issubclass(cls, ReplayBufferError)
        and cls is not ReplayBufferError
    }


def test_the_enum_was_found() -> None:
    assert codes_in_cpp()["InvalidArgument"] == 1
    assert len(codes_in_cpp()) >= 15


def test_python_has_the_names_and_numbers_of_cpp() -> None:
    assert {name: cls.code for name, cls in classes().items()} == codes_in_cpp()


def test_numbers_are_used_once_and_without_gaps() -> None:
    codes = sorted(codes_in_cpp().values())
    assert codes == list(range(1, len(codes) + 1))


def test_class_of_finds_the_class_of_every_code() -> None:
    for cls in classes().values():
        assert class_of(cls.code) is cls


def test_class_of_a_code_from_a_later_version_is_the_base() -> None:
    for code in (0, 999, -1):
        assert class_of(code) is ReplayBufferError


def test_every_error_is_exported_and_drawn_in_the_tree_of_its_file() -> None:
    assert errors.__doc__ is not None
    drawn = re.findall(r"[├└]── (\w+)", errors.__doc__)
    assert drawn == list(classes())
    for name, cls in classes().items():
        assert getattr(replay_buffer, name) is cls
        assert name in replay_buffer.__all__


def test_builtin_bases_are_those_of_the_tree() -> None:
    assert errors.__doc__ is not None
    said = dict(re.findall(r"── (\w+) .*\(also an? (\w+)\)", errors.__doc__))
    for name, cls in classes().items():
        builtin = [base.__name__ for base in cls.__bases__ if base is not ReplayBufferError]
        assert builtin == ([said[name]] if name in said else [])


def test_an_error_of_the_core_arrives_as_its_class_with_its_text() -> None:
    buffer = ReplayBuffer(BufferConfig(4), schema={"x": Column()})
    with pytest.raises(NotEnoughRows) as caught:
        buffer.sample(3)
    assert caught.value.code == codes_in_cpp()["NotEnoughRows"]
    assert "cannot sample 3 rows" in str(caught.value)
