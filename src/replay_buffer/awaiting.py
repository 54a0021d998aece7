"""Calls that are awaited: how they wait, where they run, and how they are cancelled.

A call is tried, and does not wait itself. Where it would have to, it stands in line, and is tried
again when something has changed; that takes no thread. Short calls run in the thread of the event
loop, long ones in a thread of the buffer's own.

A call that stands in line has taken nothing, so it is cancelled without a trace. One that was
handed to a thread and has not begun is dropped. One that has begun is finished: `await` gives its
result, and the task is cancelled at its next `await`.

Thread safety: calls may be awaited in the event loops of any number of threads at once. A line
belongs to one loop.
"""

from __future__ import annotations

import asyncio
import bisect
import functools
import itertools
import operator
import os
import time
import weakref
from collections import deque
from collections.abc import Callable, Hashable
from concurrent.futures import Future
from concurrent.futures.thread import ThreadPoolExecutor
from dataclasses import dataclass
from typing import Any, Generic, TypeVar

from .errors import NotEnoughRows, Timeout
from .forking import ForkLock
from .waiting import Wait

T = TypeVar("T")

#: Seconds between two looks at what is waited for: at first, and at most. Pauses grow by a tenth:
#: a look comes late by a tenth of the time waited.
_SHORTEST_PAUSE, _LONGEST_PAUSE, _GROWTH = 0.0005, 0.02, 1.1

#: Seconds after which the first in line is tried again although nothing seems to have changed.
_TRY = 0.1

#: Seconds for which calls that run in the loop's thread keep the loop from its other tasks.
_TURN = 0.001

#: Threads of a buffer for long calls. None of them waits, so a few are enough.
_THREADS = 4

#: Tasks whose cancelling was put off, until it is done.
_put_off: weakref.WeakSet[asyncio.Task[Any]] = weakref.WeakSet()


@dataclass(slots=True)
class Call(Generic[T]):
    """A call that may have to wait.

    attempt  does it, or raises Timeout or NotEnoughRows and has done nothing
    is_long  whether it is to be tried in a thread
    kind     calls of one kind are tried in the order they came; when one has to wait, so do they
    wait     for how long
    state    is another one when the call may go on
    refused  what an attempt's error means: what is waited for, in words; or it raises
    tell     counts the calls that wait for the rate limiter
    ordered  none may overtake the one before it, even to find that its time is over
    """

    attempt: Callable[[], T]
    is_long: Callable[[], bool]
    kind: Hashable
    wait: Wait
    state: Callable[[], object]
    refused: Callable[[Timeout | NotEnoughRows], str]
    tell: Callable[[int], bool]
    ordered: bool = False


class AsyncCalls:
    """The async calls of a buffer: its threads, and a line for each event loop."""

    def __init__(self) -> None:
        self._lock = ForkLock()
        self._closed = False
        self._pool: ThreadPoolExecutor | None = None
        self._pid = os.getpid()
        self._lines: weakref.WeakKeyDictionary[asyncio.AbstractEventLoop, _Line]
        self._lines = weakref.WeakKeyDictionary()

    async def run(self, call: Callable[[], T], long: bool = False) -> T:
        """A call that does not wait."""
        await self._line().take_turn()
        return await self._run(call, long)

    async def patiently(self, call: Call[T]) -> T:
        """A call that may have to wait. Raises Timeout when its time is over."""
        line = self._line()
        came, waits = next(line.arrivals), False
        place: _Place | None = None
        if call.ordered or line.is_occupied(call.kind):
            place = line.join(call, came)
        try:
            while True:
                await line.take_turn()
                if place is None and line.is_occupied(call.kind):  # since the turn was awaited
                    place = line.join(call, came)
                if place is None or place.may_try():
                    try:
                        return await self._run(call.attempt, call.is_long())
                    except (Timeout, NotEnoughRows) as error:
                        said = call.refused(error)
                        waits = waits or (isinstance(error, Timeout) and call.tell(1))
                    if call.wait.left == 0:
                        raise Timeout(said)
                    call.wait.warn_when_long(said)
                place = place or line.join(call, came)
                await place.news()
        finally:
            if waits:
                call.tell(-1)
            if place is not None:
                line.leave(place)
            line.look()

    def close(self) -> None:
        """Ends the threads. Calls that wait are tried again, and find that the buffer is closed."""
        with self._lock:
            self._forget_parent()
            self._closed = True
            pool, self._pool = self._pool, None
        if pool is not None:
            pool.shutdown(wait=False)

    async def _run(self, call: Callable[[], T], long: bool) -> T:
        job = self._submit(call) if long else None
        return call() if job is None else await finished(job)

    def _submit(self, call: Callable[[], T]) -> Future[T] | None:
        """None when there are no threads any more, as the buffer is closed or Python ends."""
        with self._lock:
            self._forget_parent()
            if self._closed:
                return None
            if self._pool is None:
                self._pool = ThreadPoolExecutor(_THREADS, "replay_buffer")
            try:
                return _in_thread(self._pool, call)
            except RuntimeError:
                return None

    def _line(self) -> _Line:
        loop = asyncio.get_running_loop()
        line = self._lines.get(loop)
        if line is None:
            with self._lock:
                self._forget_parent()
                # Calls that wait in a line keep its loop, and a closed one never ends them.
                for closed in [other for other in self._lines if other.is_closed()]:
                    del self._lines[closed]
                line = self._lines[loop] = _Line()
        return line

    def _forget_parent(self) -> None:
        """In the child of a fork there are none of the parent's threads and loops."""
        if self._pid != os.getpid():
            self._pid, self._pool = os.getpid(), None
            self._lines.clear()


class _Place:
    """Where a call stands in line."""

    def __init__(self, line: _Line, call: Call[Any], came: int) -> None:
        self._line = line
        self.call = call
        self.came = came
        self._seen: object = None  # the state before the last attempt
        self._asleep: asyncio.Future[None] | None = None
        self._was_first = False  # when it last fell asleep

    @property
    def asleep(self) -> bool:
        return self._asleep is not None and not self._asleep.done()

    @property
    def outdated(self) -> bool:
        """Whether something has changed since the last attempt."""
        return self.call.state() != self._seen

    def may_try(self) -> bool:
        """Whether it is this call's turn to be tried. Raises Timeout when it will never be."""
        call = self.call
        if not self._line.is_first(self):
            if call.ordered and call.wait.left == 0 and self._line.first(call.kind).asleep:
                raise Timeout(call.wait.told("append", "an earlier append of this writer waits"))
            if call.ordered or (call.wait.left > 0 and call.wait.until_warning > 0):
                return False
        self._seen = call.state()
        return True

    def wake(self) -> None:
        if self._asleep is not None and self.asleep and not self._asleep.get_loop().is_closed():
            self._asleep.set_result(None)

    async def news(self) -> None:
        """Returns when the call should be tried again."""
        loop = asyncio.get_running_loop()
        self._asleep = loop.create_future()
        seconds = min(self.call.wait.left, self.call.wait.until_warning)
        if seconds == 0:
            seconds = _SHORTEST_PAUSE  # it is out of time, and waits for its turn only
        if self._line.is_first(self):
            seconds = min(seconds, _TRY)
            self._line.watch(soon=not self._was_first)
            self._was_first = True
        # A long timeout may be more than a timer of the loop can take.
        timer = loop.call_later(min(seconds, 3600), self.wake)
        try:
            await self._asleep
        finally:
            timer.cancel()
            self._asleep = None


class _Line:
    """The calls on one buffer, in one event loop, that wait."""

    def __init__(self) -> None:
        self.arrivals = itertools.count()
        self._places: dict[Hashable, deque[_Place]] = {}
        self._timer: asyncio.TimerHandle | None = None
        self._pause = _SHORTEST_PAUSE
        self._turn_ends = 0.0

    async def take_turn(self) -> None:
        """Lets the loop's other tasks come first now and then."""
        if time.monotonic() < self._turn_ends:
            await _be_cancelled()
        else:
            await asyncio.sleep(0)
            self._turn_ends = time.monotonic() + _TURN

    def is_occupied(self, kind: Hashable) -> bool:
        return kind in self._places

    def first(self, kind: Hashable) -> _Place:
        return self._places[kind][0]

    def is_first(self, place: _Place) -> bool:
        return self.first(place.call.kind) is place

    def join(self, call: Call[Any], came: int) -> _Place:
        """A place behind those who came before, also where threads have tried them in no order."""
        place = _Place(self, call, came)
        places = self._places.setdefault(call.kind, deque())
        bisect.insort(places, place, key=operator.attrgetter("came"))
        return place

    def leave(self, place: _Place) -> None:
        places = self._places[place.call.kind]
        places.remove(place)
        if not places:
            del self._places[place.call.kind]
        if self._timer is not None and not self._places:
            self._timer.cancel()
            self._timer = None

    def look(self) -> None:
        """Wakes who is first in line, where something has changed; or who has just become first."""
        for places in self._places.values():
            if places[0].asleep and places[0].outdated:
                places[0].wake()

    def watch(self, *, soon: bool) -> None:
        """Looks from time to time, less and less often; `soon` begins anew."""
        if soon and self._timer is not None:
            self._timer.cancel()
            self._timer = None
        if soon:
            self._pause = _SHORTEST_PAUSE
        if self._timer is None:
            self._timer = asyncio.get_running_loop().call_later(self._pause, self._look_again)

    def _look_again(self) -> None:
        self._timer = None
        self._pause = min(_GROWTH * self._pause, _LONGEST_PAUSE)
        self.look()
        if any(places[0].asleep for places in self._places.values()):
            self.watch(soon=False)


def _in_thread(pool: ThreadPoolExecutor, call: Callable[[], T]) -> Future[T]:
    return pool.submit(_without_stop, call)


def _without_stop(call: Callable[[], T]) -> T:
    """What a coroutine does with StopIteration, which no future can hold."""
    try:
        return call()
    except StopIteration as error:
        raise RuntimeError("an async call raised StopIteration") from error


async def alone(call: Callable[[], T]) -> T:
    """A call that takes so long that it gets a thread for itself."""
    await _be_cancelled()
    pool = ThreadPoolExecutor(1, "replay_buffer")
    try:
        return await finished(_in_thread(pool, call))
    finally:
        pool.shutdown(wait=False)


async def finished(job: Future[T]) -> T:
    """What a thread's job gives; cancelled only if it has not begun."""
    done = asyncio.wrap_future(job)
    cancelled: asyncio.CancelledError | None = None
    while not done.done():
        try:
            await asyncio.wait((done,))
        except asyncio.CancelledError as error:
            if job.cancel():
                raise
            cancelled = error
    if cancelled is not None:
        if done.exception() is not None:
            raise cancelled
        _put_off_cancelling(cancelled)
    return done.result()


async def _be_cancelled() -> None:
    """Where the task was to be cancelled and that was put off, this is where it is."""
    if _put_off and asyncio.current_task() in _put_off:
        await asyncio.sleep(0)


def _put_off_cancelling(error: asyncio.CancelledError) -> None:
    """Cancels the task again as soon as it awaits something; unless it has ended by then, or
    whoever cancelled it, such as asyncio.timeout, has taken that back."""
    task = asyncio.current_task()
    assert task is not None
    asked = _times_cancelled(task)
    _put_off.add(task)
    asyncio.get_running_loop().call_soon(functools.partial(_cancel_again, task, asked, error))


def _cancel_again(task: asyncio.Task[Any], asked: int, error: asyncio.CancelledError) -> None:
    _put_off.discard(task)
    if task.done() or _times_cancelled(task) < asked:
        return
    task.cancel(*error.args)
    if hasattr(task, "uncancel"):
        task.uncancel()  # it was counted when it was first asked for


def _times_cancelled(task: asyncio.Task[Any]) -> int:
    """How often somebody has asked for it, as far as Python counts that: from 3.11 on."""
    return task.cancelling() if hasattr(task, "cancelling") else 0
