"""What a buffer keeps and how it draws."""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass, fields
from typing import Any, Literal, get_args

import numpy as np

from .errors import InvalidArgument, shown

Strategy = Literal["uniform", "prioritized", "rank", "without_replacement", "fifo", "lifo"]
Weights = Literal["batch", "global", "none"]
Storage = Literal["transitions", "steps"]

#: A number for every step: given how many batches were drawn so far.
Schedule = Callable[[int], float]


@dataclass(frozen=True)
class LinearSchedule:
    """From `start` to `end` in `steps` draws, then `end`."""

    start: float
    end: float
    steps: int

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        for name in ("start", "end"):
            set_(self, name, _finite(name, getattr(self, name)))
        set_(self, "steps", _whole("steps", self.steps, 2**63))

    def __call__(self, step: int) -> float:
        return self.start + (self.end - self.start) * min(1.0, step / self.steps)


@dataclass(frozen=True)
class BufferConfig:
    """The options of a buffer, checked here and fixed when the buffer is made.

    capacity            rows kept; older ones are overwritten
    strategy            how `sample` draws:
                        "uniform"
                        "prioritized"          P(i) proportional to (p + epsilon)^alpha, stratified
                        "rank"                 P(i) proportional to 1 / rank(i)^alpha
                        "without_replacement"  every stored row once, then again in another order
                        "fifo"                 a queue: each row at most `max_times_sampled` times
                        "lifo"                 the newest rows, newest first
    storage             what a row is: a whole transition ("transitions"), or one step of a stream
                        ("steps"), from which views make transitions, returns and sequences
    alpha, epsilon      priority exponent, and what is added to every priority before it. A positive
                        (p + epsilon)^alpha is kept between 2^-126 and 2^(127 - b), where b is the
                        number of bits of the capacity: rows beyond either end are drawn alike
    beta                importance-weight exponent: a number, or a schedule such as LinearSchedule
    enable_compression  columns whose values take more than 1 KiB, or have any length, get
                        compression="lz4", unless they have one of their own
    weights             (N P(i))^-beta scaled so that the largest of the "batch" is 1, or the
                        largest any stored row could have ("global"), or not at all ("none")
    cer                 the newest row is the first of every batch (combined experience replay)
    block_rows          rows a writer takes at a time; chosen from the capacity when None. Each
                        handle that writes needs such a block: smaller ones make room for more
    min_size            rows that must be there before `sample` draws; until then it waits
    samples_per_insert  rows drawn for each row added: `sample` and `add` wait for each other.
                        None is no limit
    tolerance           how far, in rows drawn, the two may drift apart: at least half of what an
                        `add` and a batch move together, (rows * samples_per_insert + batch) / 2
    durable             in files: a checksum for each row, so that after a power cut only whole
                        rows come back
    """

    capacity: int
    strategy: Strategy = "uniform"
    alpha: float = 0.6
    beta: float | Schedule = 0.4
    enable_compression: bool = False
    epsilon: float = 1e-6
    weights: Weights = "batch"
    cer: bool = False
    max_times_sampled: int = 1
    block_rows: int | None = None
    min_size: int = 0
    samples_per_insert: float | None = None
    tolerance: float = 0.0
    durable: bool = False
    storage: Storage = "transitions"

    def __post_init__(self) -> None:
        set_ = object.__setattr__
        set_(self, "capacity", _whole("capacity", self.capacity))
        set_(self, "max_times_sampled", _whole("max_times_sampled", self.max_times_sampled, 2**31))
        if self.block_rows is not None:
            set_(self, "block_rows", _whole("block_rows", self.block_rows))
            if self.block_rows > self.capacity:
                raise InvalidArgument(
                    f"block_rows must be at most the capacity, not {shown(self.block_rows)}"
                )
        self._check_limiter()
        one_of("strategy", self.strategy, get_args(Strategy))
        one_of("weights", self.weights, get_args(Weights))
        one_of("storage", self.storage, get_args(Storage))
        for name in ("alpha", "epsilon"):
            set_(self, name, not_negative(name, getattr(self, name)))
        if isinstance(self.beta, LinearSchedule):
            for name in ("start", "end"):
                not_negative(f"beta's {name}", getattr(self.beta, name))
        elif not callable(self.beta):
            set_(self, "beta", not_negative("beta", self.beta))
        for name in ("enable_compression", "cer", "durable"):
            value = getattr(self, name)
            if not isinstance(value, (bool, np.bool_)):
                raise InvalidArgument(f"{name} must be True or False, not {shown(value)}")
            set_(self, name, bool(value))
        if self.storage == "steps":
            if self.capacity < 2:
                raise InvalidArgument(
                    "the capacity must be at least 2 with storage='steps': a step and what "
                    "comes after it"
                )
            if self.strategy not in ("uniform", "prioritized", "rank"):
                raise InvalidArgument(
                    f"steps are drawn uniformly, by priority or by rank, not {self.strategy!r}"
                )
            if self.cer:
                raise InvalidArgument(
                    "cer=True is for transitions: the newest step has no successor"
                )
        if self.cer and self.strategy in ("fifo", "lifo", "without_replacement"):
            raise InvalidArgument(f"cer=True has no meaning with strategy={self.strategy!r}")

    def _check_limiter(self) -> None:
        set_ = object.__setattr__
        set_(self, "min_size", _whole("min_size", self.min_size, self.capacity, least=0))
        set_(self, "tolerance", not_negative("tolerance", self.tolerance))
        if self.samples_per_insert is not None:
            ratio = not_negative("samples_per_insert", self.samples_per_insert)
            if ratio == 0:
                raise InvalidArgument("samples_per_insert must be above 0; None is no limit")
            set_(self, "samples_per_insert", ratio)
            if 2 * self.tolerance < ratio + 1:
                raise InvalidArgument(
                    f"tolerance must be at least {(ratio + 1) / 2:g} with samples_per_insert="
                    f"{ratio:g}, not {self.tolerance:g}: add and sample could wait for each other "
                    "for ever"
                )
            if self.strategy == "fifo" and ratio > self.max_times_sampled:
                raise InvalidArgument(
                    f"a queue cannot give each row out {ratio:g} times (samples_per_insert): "
                    f"max_times_sampled is {self.max_times_sampled}"
                )

    @property
    def limited(self) -> bool:
        """Whether calls may have to wait."""
        return self.min_size > 0 or self.samples_per_insert is not None

    @property
    def weighted(self) -> bool:
        """Whether batches carry importance weights and priorities can be updated."""
        return self.strategy in ("prioritized", "rank")

    def core_options(self, seed: int) -> dict[str, Any]:
        """The same as the core takes it."""
        scheduled = callable(self.beta)
        linear = self.beta if isinstance(self.beta, LinearSchedule) else None
        return {
            "capacity": self.capacity,
            "strategy": get_args(Strategy).index(self.strategy),
            "storage": get_args(Storage).index(self.storage),
            "alpha": self.alpha,
            "beta": linear.start if linear else 0.0 if scheduled else self.beta,
            "beta_end": linear.end if linear else 0.0,
            "beta_steps": linear.steps if linear else 0,
            "enable_compression": self.enable_compression,
            "epsilon": self.epsilon,
            "weights": get_args(Weights).index(self.weights),
            "cer": self.cer,
            "max_times_sampled": self.max_times_sampled,
            "seed": seed,
            "block_rows": self.block_rows or 0,
            "min_size": self.min_size,
            "samples_per_insert": self.samples_per_insert or 0.0,
            "tolerance": self.tolerance,
            "durable": self.durable,
        }

    @classmethod
    def from_core(cls, facts: Mapping[str, Any]) -> BufferConfig:
        """The options of a segment, from what it says of itself."""
        start = shortest(facts["beta"])
        beta: float | LinearSchedule = start
        if facts["beta_steps"]:
            beta = LinearSchedule(start, shortest(facts["beta_end"]), facts["beta_steps"])
        return cls(
            capacity=facts["capacity"],
            strategy=get_args(Strategy)[facts["strategy"]],
            alpha=shortest(facts["alpha"]),
            beta=beta,
            enable_compression=facts["enable_compression"],
            epsilon=shortest(facts["epsilon"]),
            weights=get_args(Weights)[facts["weights"]],
            cer=facts["cer"],
            max_times_sampled=facts["max_times_sampled"],
            block_rows=facts["block_rows"],
            min_size=facts["min_size"],
            samples_per_insert=facts["samples_per_insert"] or None,
            tolerance=facts["tolerance"],
            durable=facts["durable"],
            storage=get_args(Storage)[facts["storage"]],
        )

    def __repr__(self) -> str:
        said = [
            f"{f.name}={getattr(self, f.name)!r}"
            for f in fields(self)
            if getattr(self, f.name) != f.default
        ]
        return f"BufferConfig({', '.join(said)})"


def check_beta_can_be(config: BufferConfig, done: str) -> None:
    """Raises InvalidArgument when beta is a function, which only this process has."""
    if callable(config.beta) and not isinstance(config.beta, LinearSchedule):
        raise InvalidArgument(f"beta must be a number or a LinearSchedule to be {done}")


def shortest(single: float) -> float:
    """The number a user wrote that became this single-precision one."""
    return float(np.format_float_scientific(np.float32(single)))


def _whole(name: str, value: Any, most: int = 2**40, least: int = 1) -> int:
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be a whole number, not {shown(value)}") from None
    if isinstance(value, bool) or number < least:
        raise InvalidArgument(f"{name} must be at least {least}, not {shown(value)}")
    if number > most:
        raise InvalidArgument(f"{name} must be at most {most:,}, not {shown(value)}")
    return number


def _finite(name: str, value: Any) -> float:
    try:
        number = math.nan if isinstance(value, (str, bytes)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not math.isfinite(number):
        raise InvalidArgument(f"{name} must be a finite number, not {shown(value)}")
    return number


def not_negative(name: str, value: Any) -> float:
    number = _finite(name, value)
    if number < 0:
        raise InvalidArgument(f"{name} must be a finite number >= 0, not {shown(value)}")
    return number


def one_of(name: str, value: Any, allowed: tuple[str, ...]) -> None:
    if not isinstance(value, str) or value not in allowed:
        raise InvalidArgument(f"{name} must be one of {', '.join(allowed)}, not {shown(value)}")
