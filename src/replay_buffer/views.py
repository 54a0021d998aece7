"""What a batch can be made of: the parts that `ReplayBuffer.view` takes.

A buffer that stores steps keeps each observation once; everything below is derived from the steps
when a batch is drawn, and nothing of it is stored.
"""

from __future__ import annotations

import math
import operator
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any, Literal, get_args

from .config import one_of
from .errors import InvalidArgument, shown

GoalStrategy = Literal["future", "final", "episode"]

#: compute_reward or compute_terminated of a Gymnasium goal environment, of many steps at once:
#: (achieved goals, goals, info) -> one number or bool for each.
GoalFunction = Callable[[Any, Any, Mapping[str, Any]], Any]


@dataclass(frozen=True)
class NStep:
    """Transitions of up to `n` steps.

    `reward` is the discounted sum over the true k <= n steps, `discount` is gamma^k, and 0 where
    the episode terminated, so that the target is reward + discount * V(next_obs). A transition is
    shorter than n where its episode ends, or where nothing more is written yet.

    Where rows are transitions, one goes on in the next that its handle added if its next_obs is
    the obs there, and not its own obs; elsewhere the n steps end.

    one_stream  nothing is compared: all that a handle adds are transitions of one environment, in
                their order, and all ends of its episodes are flagged
    """

    n: int
    gamma: float = 0.99
    one_stream: bool = False

    def __post_init__(self) -> None:
        _whole(self, "n", 1)
        _number(self, "gamma", 0, 1)
        _truth(self, "one_stream")


@dataclass(frozen=True)
class FrameStack:
    """Observations of the last `n` frames, the oldest first, in a new leading dimension.

    Before the first frame of an episode stands that frame again; a row is no start where frames of
    its episode are overwritten or cleared. `columns` are those stacked, by path ("obs/pixels");
    without it all of the observation.
    """

    n: int
    columns: tuple[str, ...] | None = None

    def __post_init__(self) -> None:
        _whole(self, "n", 1)
        if self.columns is not None:
            given: Any = self.columns
            try:
                chosen = (given,) if isinstance(given, str) else tuple(given)
            except TypeError:
                raise InvalidArgument(f"columns must be paths, not {given!r}") from None
            if not all(isinstance(path, str) for path in chosen):
                raise InvalidArgument(f"columns must be paths, not {given!r}")
            object.__setattr__(self, "columns", chosen)


@dataclass(frozen=True)
class Sequence:
    """Runs of `burn_in + length` steps: arrays [batch, time, ...], `mask` and `is_first`.

    The row that is drawn, and named in `indices`, is the one behind the burn-in. Where a step is
    missing, before the episode began, after it ended, or because it is overwritten or not written
    yet, the arrays hold zeros and `mask` is False.

    period          starts are the steps whose number in their episode is a multiple of it
    pad             False: only starts that have all burn_in + length steps are drawn
    cross_episodes  True: a sequence goes on into the stream's next episode, where is_first is set
    next_obs        True: also `next_obs`, and `next_mask` where there is one
    eta             sequence priorities are eta * max + (1 - eta) * mean of |TD error|, as in R2D2
    """

    length: int
    burn_in: int = 0
    period: int = 1
    pad: bool = True
    cross_episodes: bool = False
    next_obs: bool = False
    eta: float = 0.9

    def __post_init__(self) -> None:
        _whole(self, "length", 1)
        _whole(self, "burn_in", 0)
        _whole(self, "period", 1)
        _number(self, "eta", 0, 1)
        for name in ("pad", "cross_episodes", "next_obs"):
            _truth(self, name)


@dataclass(frozen=True)
class Trajectory:
    """Whole episodes: arrays [batch, time, ...], `mask`, `lengths` and `final_obs`.

    Only episodes that ended, and of which no step is overwritten or cleared, are drawn. The time is
    that of the longest in the batch, or more where `out` has room for it; with `length` it is
    always that, and longer episodes are not drawn.
    """

    length: int | None = None

    def __post_init__(self) -> None:
        if self.length is not None:
            _whole(self, "length", 1)


@dataclass(frozen=True)
class Hindsight:
    """Goals put in the place of those that were pursued (hindsight experience replay).

    In k of k + 1 transitions the goal becomes a state that the episode did reach: one after the
    step ("future"), its last ("final", the newest while it goes on) or any ("episode"). `reward`
    and `terminated` are then called once for all steps of these. What is stored stays as it is.
    `relabelled` in the batch says where. `k` and `discount` are those of NStep; without it gamma
    is 1.

    reward      compute_reward of a Gymnasium goal environment: reward(achieved, goals, info).
                `info` are the columns of the steps, stacked if asked, and their next_obs
    terminated  compute_terminated likewise: n steps stop at the first that ends with the new goal,
                and `discount` is 0 there. Without it the stored flags stay: right where the goal
                does not decide when an episode terminates
    achieved    the column with the goal that was reached
    goal        the column with the goal that was pursued
    """

    strategy: GoalStrategy = "future"
    k: float = 4
    reward: GoalFunction | None = None
    terminated: GoalFunction | None = None
    achieved: str = "obs/achieved_goal"
    goal: str = "obs/desired_goal"

    def __post_init__(self) -> None:
        one_of("strategy", self.strategy, get_args(GoalStrategy))
        for name in ("achieved", "goal"):
            path = getattr(self, name)
            if not isinstance(path, str):
                raise InvalidArgument(f"{name} must be the path of a column, not {shown(path)}")
        _number(self, "k", 0, math.inf)
        if not callable(self.reward):
            raise InvalidArgument(f"reward must be a function, not {self.reward!r}")
        if self.terminated is not None and not callable(self.terminated):
            raise InvalidArgument(f"terminated must be a function, not {self.terminated!r}")


Part = NStep | FrameStack | Sequence | Trajectory | Hindsight


def _whole(part: Any, name: str, least: int) -> None:
    value = getattr(part, name)
    try:
        number = operator.index(value)
    except TypeError:
        raise InvalidArgument(f"{name} must be a whole number, not {shown(value)}") from None
    if isinstance(value, bool) or not least <= number <= 2**20:
        raise InvalidArgument(f"{name} must be between {least} and 2^20, not {shown(value)}")
    object.__setattr__(part, name, number)


def _truth(part: Any, name: str) -> None:
    value = getattr(part, name)
    if not isinstance(value, bool):
        raise InvalidArgument(f"{name} must be True or False, not {shown(value)}")


def _number(part: Any, name: str, least: float, most: float) -> None:
    value = getattr(part, name)
    try:
        number = math.nan if isinstance(value, (str, bytes, bool)) else float(value)
    except (TypeError, ValueError, OverflowError):
        number = math.nan
    if not (least <= number <= most and math.isfinite(number)):
        bounds = f"between {least:g} and {most:g}" if math.isfinite(most) else f">= {least:g}"
        raise InvalidArgument(f"{name} must be a number {bounds}, not {shown(value)}")
    object.__setattr__(part, name, number)
