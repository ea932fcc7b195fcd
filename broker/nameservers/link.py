"""NameServerLink: what one NameServer has accepted of this broker's topics, and the registration in flight.

A NameServer (Apache's as well) accepts the topics of a registration only if its data version differs from the version
it accepted last from this broker, and it never asks for what an earlier registration lacked. Three rules follow:

    1. A NameServer that holds version v must hold every change up to v. So a changed topic is noted (`note`) in the
       same step that creates the new version, and a registration carries everything noted so far, not only the topic
       of the request that triggered it.
    2. A registration of some topics (a delta) may only go to a NameServer that knows all others: over the connection
       on which the whole table was accepted. A NameServer forgets a broker whose connection closes, and a restarted
       one knows nothing.
    3. Apache's NameServer handles the requests of one connection in several threads. If two registrations are in
       flight, the older may overtake the newer and win. So at most one is in flight, and none is one-way; concurrent
       requests wait for it and share the next.

`is_complete` means that (1) and (2) hold: the last registration was accepted, over the connection that is still open.
A NameServer that closes the connection has restarted, or another peer took this broker's registration there. The link
then registers again as soon as the broker's role is known, but not more often than every REST_SECONDS: two brokers
configured with one name displace each other all the time.

`run` performs the registrations; callers wait with `caught_up`. Only the event loop touches a link. Its size is bounded
by the number of topics.
"""

from __future__ import annotations

import math
from collections.abc import Awaitable, Callable

import structlog
import trio

from triomq.broker.nameservers.registration_request import RegistrationRequests
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.outage import Outage
from triomq.remoting.errors import ConnectionClosed, RemotingError

log = structlog.get_logger("triomq.broker.nameservers.registration")

Send = Callable[[str, RemotingCommand, float], Awaitable[RemotingCommand]]
"""Send a request to an address and return the response, within a number of seconds. Raises RemotingError. It uses the
open connection, or begins to connect, before its first await."""


REST_SECONDS = 10.0
"""The shortest time between two registrations because of closed connections."""
CONTEST_SECONDS = 30.0
"""A registration that is lost twice within this time is contested."""

CONTESTED = "the NameServer drops this broker repeatedly: another broker has the same brokerName and brokerId"


class Losses:
    """How often a NameServer has closed the connection over which it had accepted this broker. Times are trio's."""

    def __init__(self) -> None:
        self._rest_until = -math.inf
        self._last = -math.inf
        self._contested_until = -math.inf

    def may_register(self, now: float) -> bool:
        """Return whether the broker may register again at once, which it may not again before REST_SECONDS."""
        if now < self._rest_until:
            return False
        self._rest_until = now + REST_SECONDS
        return True

    def lost(self, now: float) -> bool:
        """Note that an accepted registration is lost. Return whether that is news: it is contested from now on."""
        was_contested = self.are_frequent(now)
        if now - self._last <= CONTEST_SECONDS:
            self._contested_until = now + CONTEST_SECONDS
        self._last = now
        return self.are_frequent(now) and not was_contested

    def are_frequent(self, now: float) -> bool:
        """Return whether registrations are lost repeatedly."""
        return now < self._contested_until


class NameServerLink:
    """See the module's docstring. `on_taken(link, response)` is called after each accepted registration; `role_known`
    returns when the broker's id may be registered."""

    def __init__(
        self,
        address: str,
        requests: RegistrationRequests,
        send: Send,
        *,
        timeout_seconds: Callable[[], float],
        on_taken: Callable[[NameServerLink, RemotingCommand], None],
        role_known: Callable[[], Awaitable[None]],
    ) -> None:
        self.address = address
        self.is_complete = False
        self.responded_at: float | None = None
        self.failed_at: float | None = None
        self.failure = ""
        self._requests = requests
        self._send = send
        self._timeout_seconds = timeout_seconds
        self._on_taken = on_taken
        self._role_known = role_known
        self._changed: set[str] = set()
        self._wants_whole = False
        self._closes = 0
        self._losses = Losses()
        self._started = 0
        self._finished = 0
        self._is_closed = False
        self._outage = Outage()
        self._wakeup = trio.Event()
        self._progress = trio.Event()

    @property
    def was_tried(self) -> bool:
        """Return whether a registration attempt has ended, successfully or not."""
        return self._finished > 0

    @property
    def is_away(self) -> bool:
        """Return whether the NameServer has not responded since the last attempt failed."""
        return self._outage.is_on

    @property
    def is_contested(self) -> bool:
        """Return whether the NameServer drops this broker repeatedly (CONTESTED)."""
        return self._losses.are_frequent(trio.current_time())

    @property
    def _is_under_way(self) -> bool:
        return self._started > self._finished

    @property
    def _is_due(self) -> bool:
        """Return whether there is a change that is neither accepted nor in flight."""
        return bool(self._changed) or self._wants_whole or not (self.is_complete or self._is_under_way)

    def note(self, topic: str) -> None:
        """Note a changed topic. Call this in the step that creates the new data version. If the whole table is due,
        nothing needs to be noted."""
        if self.is_complete or self._is_under_way:
            self._changed.add(topic)

    def want_changes(self) -> int:
        """Request a registration of everything that changed so far. Return the attempt for `caught_up` to wait for:
        the one in flight if it carries everything, else the next, which serves all concurrent callers."""
        if not self._is_due:
            return self._started
        self._wakeup.set()
        return self._started + 1

    def want_whole(self) -> int:
        """Request a registration of the whole table. Return the attempt for `caught_up` to wait for."""
        self._wants_whole = True
        return self.want_changes()

    async def caught_up(self, attempt: int) -> None:
        """Wait until an attempt has ended, successfully or not, or the link is closed."""
        while self._finished < attempt and not self._is_closed:
            await self._progress.wait()

    async def idle(self) -> None:
        """Wait until no attempt is in flight."""
        while self._is_under_way:
            await self._progress.wait()

    def connection_closed(self) -> None:
        """Note that the NameServer now forgets this broker, and request a registration unless the last one for this
        reason was a moment ago."""
        now = trio.current_time()
        if self.is_complete and self._losses.lost(now):
            log.error("registration contested", nameserver=self.address, error=CONTESTED)
        self.is_complete = False
        self._closes += 1
        if self.was_tried and self._losses.may_register(now):
            self._wakeup.set()

    def close(self) -> None:
        """Begin no further attempt; waiting callers return."""
        self._is_closed = True
        self._wakeup.set()
        self._made_progress()

    def failed(self, reason: str) -> None:
        """Note that the NameServer did not respond; logged at once and then once a minute."""
        self.failed_at = trio.current_time()
        self.failure = reason
        if self._outage.failed(self.failed_at):
            log.warning("NameServer not reached; retrying", nameserver=self.address, error=reason)

    def responded(self) -> None:
        """Note that the NameServer responded."""
        self.responded_at = trio.current_time()
        if self._outage.is_on:  # over with the first response: here failures and successes do not alternate
            self._outage = Outage()
            log.info("NameServer reached again", nameserver=self.address)

    async def run(self) -> None:
        """Register on request, until closed or cancelled."""
        try:
            while not self._is_closed:
                await self._wakeup.wait()
                self._wakeup = trio.Event()
                if not self._is_closed:
                    await self._attempt()
        finally:
            self.close()

    # -- inside ------------------------------------------------------------------------------------------------------

    async def _attempt(self) -> None:
        """Make one attempt within the time limit, and a second try if the connection turns out to be closed."""
        is_due = self._is_due
        self._started += 1
        seconds = self._timeout_seconds()
        failure = f"no response within {seconds:g} s"
        try:
            if is_due:
                with trio.move_on_after(seconds):
                    failure = await self._register(seconds)
                if failure:
                    self.failed(failure)
        finally:
            self._finished = self._started
            self._made_progress()

    def _made_progress(self) -> None:
        self._progress.set()
        self._progress = trio.Event()

    async def _register(self, seconds: float) -> str:
        """Send what is due. Return why there was no response, "" if there was one."""
        try:
            try:
                await self._send_due(seconds)
            except ConnectionClosed:
                # The NameServer restarted or is restarting: once it is back, it learns everything at once.
                await self._send_due(seconds)
        except RemotingError as error:
            return str(error)
        return ""

    async def _send_due(self, seconds: float) -> None:
        """Take the snapshot and send it in one step, so a delta never goes over a connection newer than `is_complete`.
        While it is in flight, topics may be noted again, and the connection may close. If it is cancelled or gets no
        response, the NameServer may or may not have accepted it, so the whole table is due.

        A member of a group that stood still may not lead any more when it wakes: its connection has closed because the
        new leader has registered, and a registration with its old id would take the name from that one.
        """
        await self._role_known()
        is_whole = self._wants_whole or not self.is_complete
        request = self._requests.whole() if is_whole else self._requests.changed(self._changed)
        self._changed.clear()
        self._wants_whole = False
        closes = self._closes
        is_taken = False
        try:
            response = await self._send(self.address, request, seconds)
            is_taken = response.code == ResponseCode.SUCCESS
        finally:
            self.is_complete = is_taken and self._closes == closes
        self.responded()
        if is_taken:
            self._on_taken(self, response)
        else:
            log.warning("registration refused", nameserver=self.address, code=response.code, remark=response.remark)
