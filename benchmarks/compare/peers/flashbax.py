"""Flashbax: JAX arrays and pure functions, compiled, on the CPU, the state donated."""

from __future__ import annotations

import functools
import itertools
from collections.abc import Callable
from typing import Any

from draws import priorities, updates
from timing import Call, Fresh
from workload import Workload

TITLE = "Flashbax 0.1.3"
INSTALL = (("flashbax==0.1.3",),)
CAN = frozenset({"prioritized", "views"})
NOTE = "Each call is waited for; actions are int32; prioritized draws bring no weights."
KEYS = 4096


class Buffer:
    """The item buffer, or its prioritized kind; rows go in as NumPy arrays."""

    def __init__(self, workload: Workload) -> None:
        import flashbax
        import jax

        self._jax = jax
        self._workload = workload
        kind = flashbax.make_item_buffer
        if prioritized := workload.options.get("prioritized"):
            kind = functools.partial(
                flashbax.make_prioritised_item_buffer, priority_exponent=prioritized["alpha"]
            )
        self._kind = functools.partial(kind, workload.capacity, 1)
        self._keys = list(jax.random.split(jax.random.key(0), KEYS))
        row = {name: column[0] for name, column in workload.rows(1).items()}
        self._row = row
        self._state = self._kind(32).init(jax.tree.map(jax.numpy.asarray, row))
        add = jax.jit(self._kind(32, add_sequences=True).add, donate_argnums=0)
        for chunk in workload.chunks():
            self._state = add(self._state, chunk)

    def _change(self, function: Callable[..., Any]) -> Callable[..., None]:
        """A call that replaces the state, compiled and waited for."""
        compiled = self._jax.jit(function, donate_argnums=0)
        wait = self._jax.block_until_ready

        def call(*arguments: Any) -> None:
            self._state = wait(compiled(self._state, *arguments))

        return call

    @functools.cached_property
    def _add(self) -> Callable[..., None]:
        return self._change(self._kind(32).add)

    @functools.cached_property
    def _add_many(self) -> Callable[..., None]:
        return self._change(self._kind(32, add_sequences=True).add)

    @functools.cache  # noqa: B019
    def _draw(self, n: int) -> Callable[[Any], Any]:
        compiled = self._jax.jit(self._kind(n).sample)
        wait = self._jax.block_until_ready
        return lambda key: wait(compiled(self._state, key))

    def add_one(self) -> Call:
        return Call(self._add, (self._row,))

    def add_batch(self, n: int) -> Call:
        return Call(self._add_many, (self._workload.rows(n),))

    def sample(self, n: int) -> Call:
        return Call(self._draw(n), (Fresh(itertools.cycle(self._keys).__next__),))


class Prioritized(Buffer):
    """With priorities."""

    def __init__(self, workload: Workload) -> None:
        super().__init__(workload)
        self._update = self._change(self._kind(32).set_priorities)
        new = priorities(workload.capacity)
        size = 10_000
        for first in range(0, workload.capacity, size):
            ids = self._jax.numpy.arange(first, min(first + size, workload.capacity))
            self._update(ids, new[first : first + len(ids)])

    def update(self, n: int) -> Call:
        keys = itertools.cycle(self._keys)
        draw = self._draw(n)
        drawn = updates(lambda: draw(next(keys)).indices, n, lambda errors: errors)
        return Call(self._update, drawn)


def make(workload: Workload) -> Buffer:
    """A full buffer."""
    return (Prioritized if "prioritized" in workload.options else Buffer)(workload)
