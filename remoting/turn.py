"""A turn is one tick of the event loop: the requests that one wake-up brings are handled and finished as one batch.

A driver reads all ready sockets and handles their requests in order of arrival. `end` then does the expensive work once
for all of them: first it runs the `before_flush` hooks (the broker's store writes what the turn appended, which
completes the sends), then it sends once per connection that has output.

What a connection cannot handle in a turn waits for slices. The poller takes some of them between its turns, and the
task in `run` the others, between which the drivers and all other tasks run. The scheduler (scheduling/scheduler.py)
decides what waits, and for how long.

Output produced outside of a turn (by an async processor or a timer) is batched in the same way: the first response
wakes the task in `run`, which ends a turn of its own.

Only the event loop's thread may touch a turn.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from math import inf
from typing import Protocol

import trio

from triomq.remoting.scheduling.scheduler import Scheduler


class AnswerObserver(Protocol):
    """Notes how long requests took (monitoring.answers.Answers)."""

    def at_once(self, request_code: int, response_code: int) -> None:
        """This turn, which ends with `on_end`, answers a request that came in it."""

    def late(self, request_code: int, response_code: int, seconds: float) -> None:
        """A request that came this long ago is answered."""


class HasOutput(Protocol):
    """A connection, as a turn sees it."""

    def work(self) -> bool:
        """Handle requests that wait, until the slice is over. Return whether there are more for the next one."""

    def flush(self) -> None:
        """Pass the output of this turn to the transport."""


class Turn:
    """The connections that have output, the hooks that run before it is sent, and the clock.

    `began` is trio's time at which a driver began the turn. The age of a request counts from `arrived`: the same time,
    or for a postponed request as much earlier as the requests ahead of it in its own read have taken. `now` is when the
    clock was last read, which is before each request. `failure` is what a hook raised: its work will never be finished,
    so responses that claim success must never be sent. `answers`, if set, notes each response. `on_end`, if set, is
    called at the end of each turn with the seconds since it began. What was received and sent is counted for each read
    and write of a socket."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.scheduler = Scheduler()
        self.began = inf
        self.arrived = inf
        self.now = inf
        self._clock: Callable[[], float] = clock or trio.current_time
        self._has_clock = clock is not None
        self._dirty: list[HasOutput] = []
        self._drivers: list[Callable[[], bool]] = []
        self._before_flush: list[Callable[[], None]] = []
        self._running = False
        self._wakeup: trio.Event = trio.Event()
        self.failure: BaseException | None = None
        self.answers: AnswerObserver | None = None
        self.on_end: Callable[[float], None] | None = None
        self.received_requests = 0
        self.received_bytes = 0
        self.sent_bytes = 0

    def received(self, requests: int, size_bytes: int) -> None:
        """Count what one read brought."""
        self.received_requests += requests
        self.received_bytes += size_bytes

    def before_flush(self, hook: Callable[[], None]) -> None:
        """Call `hook` at the end of every turn, before anything is sent. It must not await. If it raises, nothing of
        this or a later turn is sent, and `end` raises the exception, which ends the server."""
        self._before_flush.append(hook)

    def mark(self, connection: HasOutput) -> None:
        """Send the output of `connection` at the end of this turn. If no turn is running, start one soon."""
        self._dirty.append(connection)
        if not self._running:
            self._wakeup.set()

    def wake(self) -> None:
        """Start a turn soon, so that the hooks run although there may be no output yet."""
        if not self._running:
            self._wakeup.set()

    def postpone(self, connection: HasOutput) -> None:
        """Call `connection.work` in slices, until it returns False."""
        self.scheduler.waits(connection)
        self.wake()

    def may_handle_bulk(self) -> bool:
        """Return whether a bulk request is handled now; otherwise it waits (`postpone`)."""
        return not self._running or self.scheduler.may_handle_bulk(self.now)

    def is_interactive_waiting(self) -> bool:
        """Return whether an interactive client waits, or is likely to send something at once."""
        return self.scheduler.is_interactive_waiting(self.time())

    def is_over(self) -> bool:
        """Return whether this turn has no time for another request. Outside of a turn it always has."""
        if not self._running:
            return False
        now = self.now = self._clock()
        return not self.scheduler.may_continue(now)

    def read_clock(self) -> float:
        """Return the time, which is also `now`."""
        self.now = self._clock()
        return self.now

    def note_answer(self, request_code: int, response_code: int, since: float) -> None:
        """Pass a response on to `answers`. `since`: when its request entered a pool, infinity if it did not."""
        assert self.answers is not None
        began = self.began
        if self._running and since >= began and self.arrived >= began:
            self.answers.at_once(request_code, response_code)
        else:
            self.answers.late(request_code, response_code, self.time() - min(since, self.arrived))

    def time(self) -> float:
        """Return trio's time as it was before this request. Outside of a turn the clock is read."""
        return self.now if self._running else self._clock()

    def current_time(self) -> float:
        """Return what trio.current_time does, at a third of its cost once a turn has begun."""
        return self._clock()

    def begin(self) -> None:
        self._begin()
        self.scheduler.turn_began(self.began)

    def _begin(self) -> None:
        if not self._has_clock:
            self._has_clock = True
            self._clock = trio.lowlevel.current_clock().current_time  # a third of the cost of trio.current_time
        self.began = self.arrived = self.read_clock()
        self._running = True

    def end(self) -> None:
        """Finish the turn, and let `run` take a slice soon if anything waits for one. Raises what `finish` raises."""
        self.finish()
        if self.scheduler.has_waiting:
            self.wake()

    def finish(self) -> None:
        """Finish the turn. If a hook raises, raise its exception now and at every later call."""
        if self.failure is not None:
            raise self.failure
        has_begun = self._running
        self._running = True
        try:
            for hook in self._before_flush:
                hook()
        except BaseException as error:
            self.failure = error
            self._dirty.clear()
            raise
        dirty = self._dirty
        while dirty:
            self._dirty = []
            for connection in dirty:
                connection.flush()
            dirty = self._dirty
        self._running = False
        lasted = self.scheduler.turn_ended(self._clock(), has_begun=has_begun)
        if has_begun and self.on_end is not None:
            self.on_end(lasted)

    def driven_by(self, take_turn: Callable[[], bool]) -> Callable[[], None]:
        """Let `catch_up` call `take_turn`, which takes a turn if there is anything for one. Return what ends that; call
        it before `take_turn` loses what it looks at."""
        self._drivers.append(take_turn)
        return partial(self._drivers.remove, take_turn)

    def catch_up(self) -> None:
        """Take a turn of each driver that has something for one, and send what there is, in a task that computes for
        long, between two parts of its work. To wait until the tasks of the drivers run takes passes of the loop, which
        cost more than the turn of a single request. What the caller has read before may be stale, as after an await."""
        for take_turn in self._drivers.copy():
            take_turn()
        if self._dirty or self.scheduler.has_waiting:
            self.end()

    async def run(self) -> None:
        """Run turns for output produced outside of a driver's turn, and slices, until cancelled."""
        while True:
            wakeup = self._wakeup
            await wakeup.wait()
            if wakeup is self._wakeup:  # not yet the next one, by another server of this turn
                self._wakeup = trio.Event()
            if self.scheduler.has_waiting:
                self.run_slice()
            self.end()

    def run_slice(self) -> None:
        """Let one connection after another handle requests that waited. `end` this turn, too."""
        self._begin()
        scheduler = self.scheduler
        scheduler.slice_began(self.began)
        while (connection := scheduler.next_of_slice()) is not None:
            if connection.work():
                scheduler.waits(connection)
            self.arrived = self.began
            if not scheduler.slice_may_continue(self.read_clock()):
                break
