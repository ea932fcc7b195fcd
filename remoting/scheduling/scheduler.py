"""Who runs next: all rules of fairness, and all state that they need.

Nothing here waits, or reads a clock or a socket: times are arguments (in seconds, of one clock that does not go back),
and drivers say what came. `policy.py` has the numbers.

One wake-up of the event loop is a turn. It is in one of these states:

    IDLE ---- turn_began ----> TURN ---- bulk_began ----> READING ---- bulk_ended ----> ENDING
     ^ |                        |                                                         |
     | |                        +-----------------------> turn_ended <--------------------+
     | |                                                      | ^
     | +------ slice_began ---> SLICE ------------------------|-+
     +--------------------------------------------------------+

    TURN      interactive clients are read; without any of them, all clients are
    READING   the other clients are read, for a short time
    ENDING    what the end of the turn wakes is handled
    SLICE     requests that waited are handled, one connection after another

The loop is contended or not:

      ALONE ---- interactive work: a send, a read of an interactive client ----> CONTENDED
        ^                                                                            |
        +-------------------- CONTENDED_SECONDS without any of it -------------------+

A client is bulk or interactive (`Client`):

      BULK ---- INTERACTIVE_READS short reads in a row ----> INTERACTIVE
        ^                                                         |
        +-------------------- one that is long -------------------+

Steps of tasks run in passes of the loop (`Pass`):

      CLOSED ---- first step ----> OPEN ---- its quota is used, or an interactive client waits ----> FULL
        ^                                                                                              |
        +------------------------------------- began (the next pass) ----------------------------------+
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable
from functools import partial
from math import inf
from typing import Final, Protocol

from triomq.remoting.scheduling.policy import (
    BACKGROUND,
    BULK,
    BULK_READ_SECONDS,
    CONTENDED_SECONDS,
    INTERACTIVE,
    INTERACTIVE_READ_REQUESTS,
    INTERACTIVE_READ_SECONDS,
    INTERACTIVE_READS,
    MOST_STEPS_CALLED,
)

_TURN_SECONDS: Final = INTERACTIVE.quota_seconds
_SHARE: Final = BULK.share
_SLICE_SECONDS: Final = BULK.quota_seconds
_LEAST_SECONDS: Final = BULK.least_seconds
_PASS_SECONDS: Final = BACKGROUND.quota_seconds


class HasWork(Protocol):
    """A connection with requests that wait, as the scheduler sees it."""

    def work(self) -> bool:
        """Handle requests that wait, until the slice is over. Return whether there are more for the next one."""


class Client:
    """What is known of one client, and so its class. A new one is bulk."""

    __slots__ = ("_short_reads",)

    def __init__(self) -> None:
        self._short_reads = 0

    @property
    def is_interactive(self) -> bool:
        return self._short_reads >= INTERACTIVE_READS

    def was_read(self, requests: int, seconds: float, *, has_more: bool) -> None:
        """Note a read: how many requests it brought, how long they took, and whether there was more than it took."""
        if has_more or requests > INTERACTIVE_READ_REQUESTS or seconds > INTERACTIVE_READ_SECONDS:
            self._short_reads = 0
        else:
            self._short_reads += 1


class Scheduler:
    """The turns and slices of one event loop; see the module's docstring.

    `turn_seconds` is the longest turn; without limit nothing waits for a slice, either."""

    def __init__(self) -> None:
        self.turn_seconds = _TURN_SECONDS
        # This turn. It ends at `_stop_at`, and at `_yield_at` already if an interactive client waits.
        self._began = inf
        self._stop_at = inf
        self._yield_at = inf
        self._is_slice = False
        self.has_sent = False
        """A send was handled in it. Who handles one sets this; bulk work yields to sends."""
        self._has_bulk = False  # a bulk request was handled in it at once, as a slice by itself
        # The bytes of this slice's responses.
        self._quota_bytes = BULK.quota_bytes
        self._bytes = 0
        self._longest_bytes = 0  # of one of them
        # What interactive work took since the last slice: all turns, and those of them that had sends.
        self._interactive_seconds = 0.0
        self._send_seconds = 0.0
        # Until when the loop counts as contended, by sends and by interactive clients.
        self._sends_until = -inf
        self._clients_until = -inf
        # Who can tell whether an interactive client waits, and who has requests that wait: the next slice's first.
        self._backlogs: list[Callable[[], bool]] = []
        self._waiting: deque[HasWork] = deque()
        self._rest_of_slice = 0  # of those in `_waiting`, how many this slice may still call

    # Turns.

    def turn_began(self, now: float) -> None:
        self._began = now
        self._stop_at = now + self.turn_seconds
        self._yield_at = inf
        self._has_bulk = False

    def bulk_began(self, now: float) -> None:
        """The interactive clients of this turn are served; now the others are read, for `BULK_READ_SECONDS`."""
        self._others_run(now, BULK_READ_SECONDS)

    def bulk_ended(self, now: float) -> None:
        """They are read. What the end of the turn wakes has the rest of its time."""
        self._others_run(now, self.turn_seconds)

    def _others_run(self, now: float, seconds: float) -> None:
        self._stop_at = min(now + seconds, self._began + self.turn_seconds)
        self._yield_at = now + _SHARE * (now - self._began)

    def turn_ended(self, now: float, *, has_begun: bool) -> float:
        """Return how long the turn was. `has_begun` is false when an end alone made it, for output from outside."""
        is_slice = self._is_slice
        self._is_slice = False
        lasted = max(0.0, now - self._began)
        if not has_begun and not self.has_sent:
            return lasted
        if not is_slice:
            self._interactive_seconds += lasted
        if self.has_sent:
            self.has_sent = False
            self._sends_until = now + CONTENDED_SECONDS
            self._send_seconds += lasted
        return lasted

    def may_continue(self, now: float) -> bool:
        """Return whether this turn has time for another request."""
        if now > self._stop_at:
            return False
        return now <= self._yield_at or not self.is_interactive_waiting(now)

    # Requests, by their class.

    def may_handle_bulk(self, now: float) -> bool:
        """Return whether a bulk request that has come in this turn is handled now; otherwise it waits for a slice."""
        if self._is_slice or self.turn_seconds == inf:
            return True
        if self._began > self._sends_until:
            return now - self._began <= _SLICE_SECONDS
        if self._has_bulk or self.has_sent or self._waiting:
            return False
        # A consumer that has just got a message asks for the next one: another pass of the loop for a slice would cost
        # more than this pull does.
        self._has_bulk = True
        self._send_seconds = 0.0
        return True

    # Clients, by their class.

    def may_read(self, client: Client, now: float) -> bool:
        """Return whether a client that has sent something is read at once; else after those that are (`bulk_began`)."""
        return client.is_interactive or now >= self._clients_until

    def is_contended(self, now: float) -> bool:
        """Return whether there are interactive clients."""
        return now < self._clients_until

    def was_read(self, client: Client, now: float) -> None:
        """A client was read, which `client` has noted."""
        if client.is_interactive:
            self._clients_until = now + CONTENDED_SECONDS

    def ask(self, has_backlog: Callable[[], bool]) -> Callable[[], None]:
        """Ask `has_backlog` from now on whether an interactive client has sent something that is not read yet. Return
        what ends that; call it before `has_backlog` loses what it looks at, because steps run after a driver has ended.
        """
        self._backlogs.append(has_backlog)
        return partial(self._backlogs.remove, has_backlog)

    def is_interactive_waiting(self, now: float) -> bool:
        """Return whether an interactive client waits. Nobody is asked while the loop has none."""
        return now < self._clients_until and any(has_backlog() for has_backlog in self._backlogs)

    # Slices.

    @property
    def has_waiting(self) -> bool:
        """Return whether a slice is due."""
        return len(self._waiting) > 0

    def is_slice_due(self, now: float) -> bool:
        """Return whether a slice may begin although sockets are ready: the sends since the last one have earned it its
        shortest time, or there are none."""
        return now > self._sends_until or _SHARE * self._send_seconds >= _LEAST_SECONDS

    def waits(self, connection: HasWork) -> None:
        """Give a connection a place in the slices, behind the others."""
        self._waiting.append(connection)

    def slice_began(self, now: float) -> None:
        """Begin a turn that handles requests which waited. It has its share of what interactive work took."""
        self.turn_began(now)
        seconds = _SLICE_SECONDS
        self._quota_bytes = BULK.quota_bytes
        if now <= self._sends_until:
            seconds = min(max(_SHARE * self._send_seconds, _LEAST_SECONDS), _SLICE_SECONDS)
            self._quota_bytes = BULK.contended_bytes
        self._stop_at = now + min(seconds, self.turn_seconds)
        self._yield_at = now + max(_SHARE * self._interactive_seconds, _LEAST_SECONDS)
        self._interactive_seconds = self._send_seconds = 0.0
        self._bytes = self._longest_bytes = 0
        self._is_slice = True
        self._rest_of_slice = len(self._waiting)

    def next_of_slice(self) -> HasWork | None:
        """Return the connection that works next, None when each has worked."""
        if not self._rest_of_slice:
            return None
        self._rest_of_slice -= 1
        return self._waiting.popleft()

    def handled(self, response_bytes: int) -> None:
        """A request of this slice was handled, and has this much output."""
        self._bytes += response_bytes
        self._longest_bytes = max(self._longest_bytes, response_bytes)

    def slice_may_continue(self, now: float) -> bool:
        """Return whether this slice has time for another request, and bytes for one as long as its longest."""
        return self._bytes + self._longest_bytes <= self._quota_bytes and self.may_continue(now)


class Pass:
    """The steps of tasks in one pass of the event loop: at least one, and then as many as its quota has time for."""

    def __init__(self, scheduler: Scheduler) -> None:
        self._scheduler = scheduler
        self._began: float | None = None  # when its first step began
        self._most = 1  # that are called for a pass
        self._ran = 0
        self._sent_back = 0

    @property
    def is_open(self) -> bool:
        """Return whether a step was taken."""
        return self._began is not None

    def may_step(self, now: float) -> bool:
        """Return whether this pass has time for another step; the first one always has."""
        if self._began is None:
            self._began = now
            return True
        return now - self._began <= _PASS_SECONDS and not self._scheduler.is_interactive_waiting(now)

    def began(self) -> int:
        """Begin the next pass. Return how many tasks to call for it."""
        self._began = None
        self._ran = self._sent_back = 0
        return self._most

    def ended(self) -> None:
        """End a pass, which every called task has used or left. If some found no time for their step, the next pass
        calls the number that ran in this one; otherwise twice the number that this one called."""
        self._most = max(1, self._ran) if self._sent_back else min(2 * self._most, MOST_STEPS_CALLED)

    def ran(self) -> None:
        """A task that was called has taken its step."""
        self._ran += 1

    def sent_back(self) -> None:
        """A task that was called found no time for its step."""
        self._sent_back += 1
