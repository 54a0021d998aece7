"""Random scripts of what happens to a buffer of steps."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import Any

from hypothesis import strategies as st

from replay_buffer import Busy
from views.world import World

ENDS = ("terminated", "truncated", "both")


@dataclass(frozen=True)
class Setting:
    """A buffer and the writers it may get."""

    widths: tuple[int, ...]
    autoresets: tuple[str, ...]
    capacity: int
    block_rows: int | None
    strategy: str
    kind: str
    reward: str
    ending: float  # how likely a step is the last of its episode
    unbatched: bool

    def world(self, **options: Any) -> World:
        return World(
            self.capacity,
            kind=self.kind,
            reward=self.reward,
            block_rows=self.block_rows,
            strategy=self.strategy,
            **options,
        )


@st.composite
def settings_of(draw: st.DrawFn, most_writers: int = 3) -> Setting:
    """One writer with blocks of any size; or several, whose blocks are not skipped by a stream.

    A writer that stays in a block while others go around twice keeps rows from whose steps no way
    leads over a block that is smaller than what two steps are apart.
    """
    widths = tuple(draw(st.lists(st.integers(1, 9), min_size=1, max_size=most_writers)))
    least = 2 * max(widths)
    if len(widths) == 1:
        any_size = st.integers(least, 8 * max(widths))
        capacity = draw(st.one_of(st.integers(least, least + 8), any_size))
        block_rows = draw(st.one_of(st.none(), st.integers(1, capacity)))
    else:
        block_rows = draw(st.integers(least, least + 3))
        capacity = block_rows * draw(st.integers(1, 5))
    return Setting(
        widths,
        tuple(draw(st.sampled_from(["same_step", "next_step"])) for _ in widths),
        capacity,
        block_rows,
        draw(st.sampled_from(["uniform", "prioritized"])),
        draw(st.sampled_from(["vector", "scalar", "nested"])),
        draw(st.sampled_from(["float32", "float64"])),
        draw(st.sampled_from([0.0, 0.1, 0.3, 0.6, 1.0])),
        draw(st.booleans()),
    )


#: (what, which writer, a seed for the rest); appending is by far the most frequent.
Action = tuple[str, int, int]
ACTIONS = st.tuples(
    st.sampled_from(["append"] * 6 + ["many"] * 2 + ["end", "end", "reopen", "clear", "check"]),
    st.integers(0, 2),
    st.integers(0, 2**16),
)


def play(world: World, setting: Setting, action: Action) -> None:
    """One action; a writer that is not open yet is opened."""
    what, which, seed = action
    which %= len(setting.widths)
    chance = random.Random(seed)
    if what == "clear":
        world.clear()
        return
    to = world.by_place.get(which)
    if to is None or to not in world.writers:
        to = world.open(
            setting.widths[which], setting.autoresets[which], unbatched=setting.unbatched
        )
        world.by_place[which] = to
    if what == "end":
        world.end(to, seed % len(to.streams))
    elif what == "reopen":
        world.close(to)
    else:
        for _ in range(1 if what == "append" else 2 + seed % 7):
            ends = [
                chance.choice(ENDS) if chance.random() < setting.ending else "" for _ in to.streams
            ]
            try:
                world.append(to, ends)
            except Busy:
                return  # more writers than blocks; nothing was written
