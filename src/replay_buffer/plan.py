"""What batches are made of, as a value: the parts of a view, without the functions of the user's.

A plan can be compared, hashed and sent. Functions stay with the client: a plan says which goals are
put in the place of others, and the client calculates what follows from that.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass
from typing import Any, TypeVar

from .errors import InvalidArgument
from .views import FrameStack, GoalStrategy, Hindsight, NStep, Part, Sequence, Trajectory

OnePart = TypeVar("OnePart")


@dataclass(frozen=True)
class Goals:
    """Hindsight without its functions.

    ends  whether an item may end at an earlier step with its new goal
    """

    strategy: GoalStrategy
    k: float
    achieved: str
    goal: str
    ends: bool

    @classmethod
    def of(cls, part: Hindsight) -> Goals:
        ends = part.terminated is not None
        return cls(part.strategy, part.k, part.achieved, part.goal, ends)


@dataclass(frozen=True)
class Plan:
    """Without parts it is what `sample` gives of steps: transitions of one step."""

    n_step: NStep | None = None
    stack: FrameStack | None = None
    sequence: Sequence | None = None
    trajectory: Trajectory | None = None
    goals: Goals | None = None

    @classmethod
    def of(cls, parts: Iterable[Any]) -> Plan:
        """The plan of these parts. Raises InvalidArgument where they do not go together."""
        given = list(parts)
        for part in given:
            if not isinstance(part, Part):
                raise InvalidArgument(f"{part!r} is not a part of a view")
        kinds = [type(part) for part in given]
        twice = [kind for kind in kinds if kinds.count(kind) > 1]
        if twice:
            raise InvalidArgument(f"a view has at most one {twice[0].__name__}")
        runs = [part for kind in (Sequence, Trajectory) if (part := one(given, kind)) is not None]
        others = [part for kind in (NStep, Hindsight) if (part := one(given, kind)) is not None]
        if len(runs) > 1 or (runs and others):
            names = " and ".join(type(part).__name__ for part in [*runs, *others])
            raise InvalidArgument(f"{names} do not go together: each makes a batch of its own kind")
        hindsight = one(given, Hindsight)
        return cls(
            n_step=one(given, NStep),
            stack=one(given, FrameStack),
            sequence=one(given, Sequence),
            trajectory=one(given, Trajectory),
            goals=None if hindsight is None else Goals.of(hindsight),
        )

    @property
    def runs(self) -> bool:
        """Whether an item has a time: it is a run of steps."""
        return self.sequence is not None or self.trajectory is not None

    @property
    def time(self) -> int:
        """The steps of an item; 0 where items have none, or each batch its own number of them."""
        if self.trajectory is not None:
            return self.trajectory.length or 0
        return self.sequence.burn_in + self.sequence.length if self.sequence is not None else 0


def one(parts: Iterable[Any], kind: type[OnePart]) -> OnePart | None:
    return next((part for part in parts if isinstance(part, kind)), None)
