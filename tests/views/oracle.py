"""The oracle of views: every step of every stream in lists, and what each view must make of them.

A row's values are by column path, plain numbers and lists. Which rows are still stored is told from
outside (`ids`); everything else follows from what was written. An item is a dict of values by path,
or None where no item starts.
"""

from __future__ import annotations

from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import Any

Values = dict[str, Any]


@dataclass(eq=False)
class Row:
    """A step, or the last observation of an episode."""

    values: Values
    episode: Episode
    position: int  # in its episode
    id: int = -1

    @property
    def final(self) -> bool:
        return self is self.episode.final

    @property
    def ended(self) -> bool:
        return bool(self.values["terminated"] or self.values["truncated"])


@dataclass(eq=False)
class Episode:
    stream: Stream
    steps: list[Row] = field(default_factory=list)
    final: Row | None = None
    rows: list[Row] = field(default_factory=list)  # the steps, and the final one
    before: Episode | None = None  # in the stream, where the way was not lost
    next: Episode | None = None


@dataclass(eq=False)
class Stream:
    """What one environment wrote."""

    episodes: list[Episode] = field(default_factory=list)
    open: bool = False  # the last episode goes on
    ending: bool = False  # its last observation comes with the next call
    linked: bool = False  # and the next episode is known to follow it

    def step(self, values: Values) -> Row:
        if not self.open:
            self._begin()
        episode = self.episodes[-1]
        episode.steps.append(Row(values, episode, len(episode.steps)))
        episode.rows.append(episode.steps[-1])
        return episode.steps[-1]

    def finish(self, values: Values) -> Row:
        """The last observation of the episode."""
        if not self.open:
            self._begin()
        episode = self.episodes[-1]
        episode.final = Row(values, episode, len(episode.steps))
        episode.rows.append(episode.final)
        self.open = self.ending = False
        return episode.final

    def cut(self) -> None:
        self.open = self.ending = False

    def forget(self) -> None:
        """The rows are cleared: an episode that is open goes on without its start."""
        self.linked = self.open

    def _begin(self) -> None:
        before = self.episodes[-1] if self.linked else None
        self.episodes.append(Episode(self, before=before))
        if before is not None:
            before.next = self.episodes[-1]
        self.open = self.linked = True


@dataclass
class Oracle:
    observed: list[str]  # paths of the observation's columns
    streams: list[Stream] = field(default_factory=list)
    ids: set[int] = field(default_factory=set)  # of the rows that are stored

    def stream(self) -> Stream:
        self.streams.append(Stream())
        return self.streams[-1]

    def rows(self) -> Iterable[Row]:
        for stream in self.streams:
            for episode in stream.episodes:
                yield from episode.rows

    def stored(self, row: Row | None) -> Row | None:
        return row if row is not None and row.id in self.ids else None

    # ------------------------------------------------------------------------------------- the way

    def after(self, row: Row) -> Row | None:
        """The row after a step in its episode."""
        rows = row.episode.rows
        return self.stored(rows[row.position + 1]) if row.position + 1 < len(rows) else None

    def next_step(self, row: Row, cross: bool) -> Row | None:
        after = self.after(row)
        if after is not None and not after.final:
            return after
        lost = row.position + 1 < len(row.episode.rows) and after is None
        following = row.episode.next
        if not cross or lost or following is None:
            return None
        return self.stored(following.rows[0]) if following.steps else None

    def step_before(self, row: Row, cross: bool) -> Row | None:
        if row.position > 0:
            return self.stored(row.episode.steps[row.position - 1])
        before = row.episode.before
        if not cross or before is None or not before.steps:
            return None
        if before.final is not None and self.stored(before.final) is None:
            return None
        return self.stored(before.steps[-1])

    def frames(self, row: Row, n: int) -> list[Row] | None:
        """The last n rows up to this one, the first of the episode again before it."""
        rows = [row.episode.rows[max(0, row.position - back)] for back in range(n - 1, -1, -1)]
        return rows if all(self.stored(frame) for frame in rows) else None

    def seen(self, row: Row, path: str, stack: int, stacked: Iterable[str] | None) -> Any:
        if stack == 1 or not (stacked is None or path in stacked):
            return row.values[path]
        frames = self.frames(row, stack)
        assert frames is not None
        return [frame.values[path] for frame in frames]

    # ----------------------------------------------------------------------------------- the views

    def transition(
        self,
        row: Row,
        n: int = 1,
        gamma: float = 1.0,
        stack: int = 1,
        stacked: Iterable[str] | None = None,
    ) -> Values | None:
        steps = self.steps(row, n, stack)
        if steps is None:
            return None
        last = steps[-1]
        after = self.after(last)
        assert after is not None
        item: Values = {}
        for path, value in row.values.items():
            if path in self.observed:
                item[path] = self.seen(row, path, stack, stacked)
                item["next_" + path] = self.seen(after, path, stack, stacked)
            elif path in ("terminated", "truncated"):
                item[path] = last.values[path]
            else:
                item[path] = value
        item["reward"] = sum(gamma**i * step.values["reward"] for i, step in enumerate(steps))
        item["k"] = len(steps)
        item["discount"] = 0.0 if last.values["terminated"] else gamma ** len(steps)
        return item

    def steps(self, row: Row, n: int, stack: int = 1) -> list[Row] | None:
        """Up to n steps, each with a row after it."""
        if row.final or not self.stored(row) or not self.frames(row, stack):
            return None
        if self.after(row) is None:
            return None
        steps = [row]
        while len(steps) < n and not steps[-1].ended:
            onward = self.after(steps[-1])
            if onward is None or onward.final or self.after(onward) is None:
                break
            steps.append(onward)
        return steps

    def sequence(
        self,
        row: Row,
        length: int,
        burn_in: int = 0,
        period: int = 1,
        pad: bool = True,
        cross_episodes: bool = False,
        next_obs: bool = False,
        stack: int = 1,
        stacked: Iterable[str] | None = None,
    ) -> Values | None:
        if row.final or not self.stored(row) or not self.frames(row, stack):
            return None
        if row.position % period:
            return None
        onward = [row]
        while len(onward) < length:
            following = self.next_step(onward[-1], cross_episodes)
            if following is None:
                break
            onward.append(following)
        behind: list[Row] = []
        while len(behind) < burn_in:
            before = self.step_before(behind[0] if behind else row, cross_episodes)
            if before is None or not self.frames(before, stack):
                break
            behind.insert(0, before)
        if not pad and (len(behind) < burn_in or len(onward) < length):
            return None
        missing: list[Row | None] = [None]
        times = missing * (burn_in - len(behind)) + behind + onward
        times += missing * (length - len(onward))
        item = self._over_time(times, row, stack, stacked)
        if next_obs:
            afters = [self.after(step) if step else None for step in times]
            for path in self.observed:
                whole = [self.seen(a, path, stack, stacked) if a else None for a in afters]
                item["next_" + path] = _filled(whole, self.seen(row, path, stack, stacked))
            item["next_mask"] = [a is not None for a in afters]
        return item

    def trajectory(
        self,
        row: Row,
        time: int,
        stack: int = 1,
        stacked: Iterable[str] | None = None,
        longest: int | None = None,
    ) -> Values | None:
        """The episode that begins with a row, padded to `time`; longer than `longest`: None."""
        episode = row.episode
        if row.position != 0 or row.final or episode.final is None:
            return None
        if not all(self.stored(step) for step in episode.rows):
            return None
        if longest is not None and len(episode.steps) > longest:
            return None
        missing: list[Row | None] = [None]
        times = [*episode.steps, *missing * (time - len(episode.steps))]
        item = self._over_time(times, row, stack, stacked)
        for path in self.observed:
            item["final_" + path] = self.seen(episode.final, path, stack, stacked)
        item["lengths"] = len(episode.steps)
        return item

    def goals(self, row: Row, strategy: str, achieved: str) -> list[Any]:
        """What a goal of this step may become."""
        rows = row.episode.rows
        later: list[Row] = []
        for other in rows[row.position + 1 :]:
            if not self.stored(other):
                break
            later.append(other)
        earlier: list[Row] = []
        for other in reversed(rows[: row.position + 1]):
            if not self.stored(other):
                break
            earlier.append(other)
        chosen = {"future": later, "final": later[-1:], "episode": earlier + later}[strategy]
        return [other.values[achieved] for other in chosen]

    def _over_time(
        self, times: list[Row | None], like: Row, stack: int, stacked: Iterable[str] | None
    ) -> Values:
        item: Values = {}
        for path, value in like.values.items():
            if path in self.observed:
                model = self.seen(like, path, stack, stacked)
                whole = [self.seen(s, path, stack, stacked) if s else None for s in times]
            else:
                model, whole = value, [s.values[path] if s else None for s in times]
            item[path] = _filled(whole, model)
        item["mask"] = [step is not None for step in times]
        item["is_first"] = [step is not None and step.position == 0 for step in times]
        return item


def _filled(values: list[Any], like: Any) -> list[Any]:
    """Zeros of the shape of `like` where there is no value."""
    return [_zero(like) if value is None else value for value in values]


def _zero(like: Any) -> Any:
    return [_zero(inner) for inner in like] if isinstance(like, list) else 0
