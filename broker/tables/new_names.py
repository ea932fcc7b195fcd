"""NewNames: the topics or groups that requests have made and a crash might lose, until it cannot.

What depends on such a name is acknowledged when its table's file has it, or in a group a quorum, and when the
NameServers know a topic. State changes at once, and only the response waits: messages are stored in the order of their
arrival.

    made       a name was made, or a topic got more queues: it joins the next round
    names      these names, empty nearly always; the path of a send looks whether it is
    when_kept  call a function when a name is safe, or with the reason why it is not
    kept       wait for names

A round takes all names that were made until it begins, so all share one write and one registration. A table that
cannot be written refuses whatever depends on its new names; it is tried again until it can. A NameServer that does not
respond holds a round up until ROUTE_SECONDS after its first name was made, not longer.

Without `run` (at start, in tests) nothing waits: the table then writes each change at once. Only the event loop touches
it. It is bounded by the table, and by the requests in progress.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable
from typing import Final

import trio

from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused

ROUTE_SECONDS: Final = 1.0
RETRY_SECONDS: Final = 1.0
"""The pause before a table that could not be written is tried again."""

Kept = Callable[[str], None]
"""Receives "" when a name is safe, else why not."""
Registered = Callable[[float], Awaitable[None]]
"""Returns when the NameServers have all topics, at the latest at this time (trio's)."""


class _Round:
    """Names that become safe together: `calls` waits for each of them. `until`: when a registration was long enough."""

    __slots__ = ("calls", "names", "until")

    def __init__(self) -> None:
        self.names: set[str] = set()
        self.calls: list[tuple[str, Kept]] = []
        self.until = 0.0


class _Waiter:
    """A task that waits for a name."""

    __slots__ = ("ended", "reason")

    def __init__(self) -> None:
        self.ended = trio.Event()
        self.reason = ""

    def call(self, reason: str) -> None:
        self.reason = reason
        self.ended.set()


class NewNames:
    """See the module's docstring. `kind` is what the table holds. `wait_kept` returns when no crash loses the changes
    made so far, and raises OSError or RequestRefused; `may_change` returns whether this broker may change the table."""

    def __init__(self, kind: str, wait_kept: Callable[[], Awaitable[None]], may_change: Callable[[], bool]) -> None:
        self.names: dict[str, _Round] = {}
        self._kind = kind
        self._wait_kept = wait_kept
        self._may_change = may_change
        self._failure = ""
        self._next = _Round()
        self._made = trio.Event()
        self._is_running = False

    @classmethod
    def none(cls) -> NewNames:
        """Return those of no table: nothing waits for them."""
        return cls("", trio.lowlevel.checkpoint, lambda: False)

    def made(self, name: str) -> None:
        """Note a new name."""
        if not self._is_running:
            return
        if not self._next.names:
            self._next.until = trio.current_time() + ROUTE_SECONDS
            self._made.set()
        self._next.names.add(name)
        self.names[name] = self._next

    def refusal(self, name: str) -> str:
        """Return why nothing may depend on a name at present, "" if it may."""
        return self._reason(name) if self._failure and name in self.names else ""

    def when_kept(self, name: str, call: Kept) -> None:
        """Call this when a name is safe, or is known not to be: now or later, once."""
        if name not in self.names or self._failure:
            call(self.refusal(name))
        else:
            self.names[name].calls.append((name, call))

    async def kept(self, names: Iterable[str]) -> None:
        """Wait until all these names are safe. Raises RequestRefused."""
        for name in names:
            waiter = _Waiter()
            self.when_kept(name, waiter.call)
            await waiter.ended.wait()
            if waiter.reason:
                raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, waiter.reason)

    async def run(self, registered: Registered | None = None) -> None:
        """Make names safe until cancelled. With `registered` the NameServers must know them, too."""
        self._is_running = True
        current = self._next
        try:
            while True:
                await self._made.wait()
                self._made = trio.Event()
                current, self._next = self._next, _Round()
                async with trio.open_nursery() as nursery:
                    if registered is not None:
                        nursery.start_soon(registered, current.until)
                    await self._keep(current)
                self._end(current)
        finally:
            self._is_running = False
            self._failure = "the broker stops"
            self._end(current)
            self._end(self._next)

    async def _keep(self, current: _Round) -> None:
        """Return when the names of a round are safe, or no longer this broker's business. Whatever waits for them, or
        for those made since, is refused meanwhile."""
        while True:
            try:
                await self._wait_kept()
            except (OSError, RequestRefused) as error:
                self._failure = error.remark or "" if isinstance(error, RequestRefused) else str(error)
            else:
                self._failure = ""
                return
            self._call(current)
            self._call(self._next)
            if not self._may_change():
                self._failure = ""
                return
            await trio.sleep(RETRY_SECONDS)

    def _end(self, ended: _Round) -> None:
        self._call(ended)
        for name in ended.names:
            if self.names.get(name) is ended:
                del self.names[name]

    def _call(self, ended: _Round) -> None:
        calls, ended.calls = ended.calls, []
        for name, call in calls:
            call(self._reason(name) if self._failure else "")

    def _reason(self, name: str) -> str:
        return f"{self._kind}[{name}] is new and not kept yet, the broker tries again: {self._failure}"
