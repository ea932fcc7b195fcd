"""A turn is one tick of the event loop: the requests that one wake-up brings are handled and finished as one batch.

A driver reads all ready sockets and handles their requests in order of arrival. `end` then does the expensive work once
for all of them: first it runs the `before_flush` hooks (the broker's store writes what the turn appended, which
completes the sends), then it sends once per connection that has output.

A turn has a time limit. What a connection cannot handle within it waits, and the task in `run` continues with it, one
connection after another and one turn after another; between two of its turns the drivers and all other tasks run.

Sends go before pulls: thousands of pulls of a consumer that catches up would make each turn so long that producers,
which wait for a response before they send again, come to a stand. So while sends arrive, and in a long turn, a pull
waits, and `run` handles the waiting pulls in turns of a *slice*. While sends arrive, a slice is a part of the time that
they took since the last one, so that they have the greater part of the loop. A pull that comes while none waits, in a
turn that has no sends so far, is a slice of its own and need not wait: a consumer that has just got a message sends it.

Output produced outside of a turn (by an async processor or a timer) is batched in the same way: the first response
wakes the task in `run`, which ends a turn of its own.

Only the event loop's thread may touch a turn.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Protocol

import trio

# A turn sends its responses at its end, and no other task runs before. After this time what remains waits for the next
# turn: whole sockets stay unread, so that senders see TCP back-pressure, and so do the other requests of one read.
LONG_TURN_SECONDS = 0.05


QUIET_SLICE_SECONDS = 0.005
"""The time of a slice while no sends arrive."""

LEAST_SLICE_SECONDS = 0.0001
SLICE_SHARE = 0.25
"""A slice while sends arrive, as a part of the time that they took since the last one."""

QUIET_SLICE_BYTES = 2 * 1024 * 1024
BUSY_SLICE_BYTES = 256 * 1024
"""The responses of a slice, without sends and while they arrive: the slice ends before another one that is as long as
its longest would be too much. To join and send a megabyte takes a millisecond, which comes after the slice's time."""

BUSY_SECONDS = 0.1
"""How long after a send others are expected."""

LEAST_SHARE = 0.25
"""What others get although one who goes first waits again: a part of the time that the turns of those took."""


class AnswerObserver(Protocol):
    """Notes how long requests took (monitoring.answers.Answers)."""

    def at_once(self, request_code: int, response_code: int) -> None:
        """This turn, which ends with `on_end`, answers a request that came in it."""

    def late(self, request_code: int, response_code: int, seconds: float) -> None:
        """A request that came this long ago is answered."""


class HasOutput(Protocol):
    """A connection, as a turn sees it."""

    def work(self) -> bool:
        """Handle requests that wait, until the turn is over. Return whether there are more for the next turn."""

    def flush(self) -> None:
        """Pass the output of this turn to the transport."""


class Turn:
    """The connections that have output or postponed requests, and the hooks that run before output is sent.

    `began` is trio's time at which a driver began the turn. The age of a request counts from `arrived`: the same time,
    or for a postponed request as much earlier as the requests ahead of it in its own read have taken. `limit_seconds`
    is the time limit of a turn. `now` is when its clock was last read, which is before each request. `has_sends` is set
    when a send is handled. `failure` is what a hook raised: its work will never be finished, so responses that claim
    success must never be sent. `answers`, if set, notes each response. `on_end`, if set, is called at the end of each
    turn with the seconds since it began. What was received and sent is counted for each read and write of a socket."""

    def __init__(self, clock: Callable[[], float] | None = None) -> None:
        self.began = inf
        self.arrived = inf
        self.now = inf
        self.limit_seconds = LONG_TURN_SECONDS
        self._dirty: list[HasOutput] = []
        self._before_flush: list[Callable[[], None]] = []
        self._running = False
        self._wakeup: trio.Event = trio.Event()
        self._postponed: deque[HasOutput] = deque()
        self._clock: Callable[[], float] = clock or trio.current_time
        self._has_clock = clock is not None
        self._stop_after = LONG_TURN_SECONDS
        self._yield_after = inf
        self._waits: list[Callable[[], bool]] = []
        self._first_seconds = 0.0  # what the turns of those who go first took since the last slice
        self._is_slice = False
        self._has_pull = False
        self._slice_bytes = 0
        self._counted_bytes = 0  # of the slice's responses, when `is_slice_over` was last asked
        self._longest_bytes = 0  # of them
        self._most_slice_bytes = QUIET_SLICE_BYTES
        self._busy_until = -inf
        self._busy_seconds = 0.0
        self.has_sends = False
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

    def goes_first(self, waits: Callable[[], bool]) -> Callable[[], None]:
        """Ask `waits` whether there is a client that goes before slices and other work of many clients. Return what
        ends that; call it before `waits` loses what it looks at, because tasks take steps after a driver has ended."""
        self._waits.append(waits)
        return partial(self._waits.remove, waits)

    def is_awaited(self) -> bool:
        """Return whether there is a client that goes before slices and other work of many clients."""
        return any(waits() for waits in self._waits)

    def hurry(self, seconds: float) -> None:
        """From now on the turn is over after `seconds`, or earlier when somebody waits who goes first and those who are
        handled now have had `LEAST_SHARE`."""
        spent = self.look() - self.began
        self._stop_after = min(spent + seconds, self.limit_seconds)
        self._yield_after = (1 + LEAST_SHARE) * spent

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
        """Call `connection.work` in a later turn, until it returns False."""
        self._postponed.append(connection)
        self._wakeup.set()

    def is_over(self) -> bool:
        """Return whether this turn has lasted long enough. Outside of a turn it never has."""
        if not self._running:
            return False
        spent = self.look() - self.began
        return spent > self._stop_after or (spent > self._yield_after and self.is_awaited())

    def look(self) -> float:
        """Read the clock. Return the time, which is also `now`."""
        self.now = self._clock()
        return self.now

    def note_answer(self, request_code: int, response_code: int, since: float) -> None:
        """Pass a response on to `answers`. `since`: when its request entered a pool, infinity if it did not."""
        assert self.answers is not None
        arrived = min(since, self.arrived)
        if self._running and arrived >= self.began:
            self.answers.at_once(request_code, response_code)
        else:
            self.answers.late(request_code, response_code, self.time() - arrived)

    def time(self) -> float:
        """Return trio's time as it was before this request. Outside of a turn the clock is read."""
        return self.now if self._running else self._clock()

    def is_slice_over(self, output_bytes: int) -> bool:
        """Return whether this slice has lasted long enough, or has responses enough: those of other connections, and
        `output_bytes`. It is asked after each request."""
        size_bytes = self._slice_bytes + output_bytes
        self._longest_bytes = max(self._longest_bytes, size_bytes - self._counted_bytes)
        self._counted_bytes = size_bytes
        return size_bytes + self._longest_bytes > self._most_slice_bytes or self.is_over()

    def sliced(self, output_bytes: int) -> None:
        """Note that a connection added this number of bytes of responses in this slice."""
        self._slice_bytes += output_bytes

    def must_yield(self) -> bool:
        """Return whether a pull must wait for a slice (`postpone`), so that sends need not wait for it."""
        if not self._running or self._is_slice or self.limit_seconds == inf:
            return False
        if self.began > self._busy_until:
            return self._clock() - self.began > QUIET_SLICE_SECONDS
        if self._has_pull or self.has_sends or self._postponed:
            return True
        self._has_pull = True
        self._busy_seconds = 0.0
        return False

    def begin(self) -> None:
        if not self._has_clock:
            self._has_clock = True
            self._clock = trio.lowlevel.current_clock().current_time  # a third of the cost of trio.current_time
        self.began = self.arrived = self.look()
        self._stop_after = self.limit_seconds
        self._yield_after = inf
        self._has_pull = False
        self._running = True

    def end(self) -> None:
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
        is_slice = self._is_slice
        self._running = self._is_slice = False
        if not has_begun and not self.has_sends:
            return
        now = self._clock()
        lasted = max(0.0, now - self.began)
        if not is_slice:
            self._first_seconds += lasted
        if self.has_sends:
            self.has_sends = False
            self._busy_until = now + BUSY_SECONDS
            self._busy_seconds += lasted
        if has_begun and self.on_end is not None:
            self.on_end(lasted)

    async def run(self) -> None:
        """Run turns for output produced outside of a driver's turn and for postponed requests, until cancelled."""
        while True:
            await self._wakeup.wait()
            self._wakeup = trio.Event()
            if self._postponed:
                self.go_on()
            self.end()

    def go_on(self) -> None:
        """Let each connection with postponed requests work, in the order of arrival, for at most one turn's time."""
        self.begin()
        slice_seconds = QUIET_SLICE_SECONDS
        self._slice_bytes = self._counted_bytes = self._longest_bytes = 0
        self._most_slice_bytes = QUIET_SLICE_BYTES
        if self.began <= self._busy_until:
            self._most_slice_bytes = BUSY_SLICE_BYTES
            slice_seconds = min(max(SLICE_SHARE * self._busy_seconds, LEAST_SLICE_SECONDS), QUIET_SLICE_SECONDS)
        self._stop_after = min(slice_seconds, self.limit_seconds)
        self._yield_after = max(LEAST_SHARE * self._first_seconds, LEAST_SLICE_SECONDS)
        self._first_seconds = self._busy_seconds = 0.0
        self._is_slice = True
        postponed = self._postponed
        for _ in range(len(postponed)):
            connection = postponed.popleft()
            if connection.work():
                postponed.append(connection)
            self.arrived = self.began
            if self.is_slice_over(0):
                break
        if postponed:
            self._wakeup.set()
