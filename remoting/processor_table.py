"""Dispatches requests: code -> processor and pool (RocketMQ: NettyRemotingAbstract.processRequestCommand).

A processor is a plain function that returns its response, or None when it responds later or not at all; or a coroutine,
which then runs as a task of the connection. Tasks begin after the requests that arrived together with theirs, and in
any order. So what changes state is a plain function: it makes its change, or takes its place behind others
(scheduling/places.py), and the coroutine that it returns does the rest. Async functions only read.

Only this module turns exceptions into responses, and no exception gets past it.

A pool is a name, a bound on unfinished requests, and the age of the oldest one. It replaces RocketMQ's executors, since
most requests are handled inline.
"""

from __future__ import annotations

import sys
from collections.abc import Callable, Coroutine, Iterable
from math import inf
from typing import Any

import trio

from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import BodyError, HeaderFieldError, RequestRefused
from triomq.protocol.raised_at import raised_at
from triomq.remoting.connection import Connection
from triomq.remoting.log import get_logger
from triomq.remoting.scheduling.policy import BULK, INTERACTIVE, WorkClass

log = get_logger("triomq.remoting.processor")

Answer = RemotingCommand | None
Processor = Callable[[Connection, RemotingCommand], "Answer | Coroutine[Any, Any, Answer]"]
BeforeHook = Callable[[Connection, RemotingCommand], None]
"""Called before every processor; raises RequestRefused to refuse the request (access control, RPC hooks). To observe
responses use `Connection.on_answer`: many are sent long after their processor returned."""

Guard = Callable[[], "str | None"]

OVERLOAD = "[OVERLOAD]system busy, start flow control for a while"


class Pool:
    """A bound on unfinished requests of one kind. The code that parks a request calls `entered` and later `left`.

    `guard`, if set, runs before every request. If it returns a remark, the request is refused with SYSTEM_BUSY.
    `make_room`, if set, runs before a request of this connection would be refused because the pool is full, and returns
    whether there is room now. `clock` returns trio's time; that of a turn (Turn.time) need not read it."""

    def __init__(self, name: str, capacity: int, clock: Callable[[], float] = trio.current_time) -> None:
        self.name = name
        self.capacity = capacity
        self.clock = clock
        self.in_flight = 0
        self.rejected = 0
        self.guard: Guard | None = None
        self.make_room: Callable[[Connection], bool] | None = None
        self._since: dict[object, float] = {}

    @property
    def is_full(self) -> bool:
        return self.in_flight >= self.capacity

    def entered(self, token: object, now: float | None = None) -> None:
        """Count a request from now on. `now` is what `clock` would return, from a caller that knows it."""
        self.in_flight += 1
        self._since[token] = self.clock() if now is None else now

    def left(self, token: object) -> float:
        """Return when the request entered, infinity for one that is not here."""
        since = self._since.pop(token, None)
        if since is None:
            return inf
        self.in_flight -= 1
        return since

    def head_wait_ms(self) -> int:
        """Return the age of the oldest unfinished request in ms, or 0 if there is none (dicts keep insertion order)."""
        if not self._since:
            return 0
        return int((trio.current_time() - next(iter(self._since.values()))) * 1000)


class _Entry:
    __slots__ = ("is_bulk", "is_send", "pool", "processor")

    def __init__(self, processor: Processor, pool: Pool | None, work: WorkClass | None) -> None:
        self.processor = processor
        self.pool = pool
        self.is_send = work is INTERACTIVE
        self.is_bulk = work is BULK


class ProcessorTable:
    """The processors of one server or client. It is filled before serving begins, and read for every request."""

    def __init__(self) -> None:
        self._entries: dict[int, _Entry] = {}
        self._before: list[BeforeHook] = []
        self.errors: dict[tuple[int, int], int] = {}
        """(request code, response code) -> responses of processors that are not SUCCESS; bounded by both tables."""

    def register(
        self,
        codes: Iterable[int] | int,
        processor: Processor,
        pool: Pool | None = None,
        work: WorkClass | None = None,
    ) -> None:
        """Register `processor` for these codes. `pool` bounds the number of unfinished requests. `work` is their class:
        INTERACTIVE (sends) or BULK (pulls, which yield to sends); None if they have that of their client."""
        for code in (codes,) if isinstance(codes, int) else codes:
            self._entries[int(code)] = _Entry(processor, pool, work)

    def codes(self) -> set[int]:
        return set(self._entries)

    def before(self, hook: BeforeHook) -> None:
        self._before.append(hook)

    def set_hooks(self, hooks: Iterable[BeforeHook]) -> None:
        """Replace all hooks. Requests from the next one on pass these."""
        self._before = list(hooks)

    def handle(self, connection: Connection, request: RemotingCommand) -> None:
        """Handle one request: respond now, or start the task that will. Never raises."""
        entry = self._entries.get(request.code)
        if entry is None:
            refusal = f" request type {request.code} not supported"
            connection.answer(request, new_response(request, ResponseCode.REQUEST_CODE_NOT_SUPPORTED, refusal))
            return
        if entry.is_send:
            connection.turn.scheduler.has_sent = True
        elif entry.is_bulk and not connection.turn.may_handle_bulk():
            connection.postpone(request)
            return
        pool = entry.pool
        if pool is not None:
            guard = pool.guard
            remark = guard() if guard is not None else None
            if remark is None and pool.in_flight >= pool.capacity:
                make_room = pool.make_room
                if make_room is None or not make_room(connection):
                    remark = OVERLOAD
            if remark is not None:
                pool.rejected += 1
                connection.answer(request, new_response(request, ResponseCode.SYSTEM_BUSY, remark))
                return
        try:
            for hook in self._before:
                hook(connection, request)
            result = entry.processor(connection, request)
        except Exception as error:
            result = error_response(connection, request, error)
        if result is None:
            return
        if isinstance(result, RemotingCommand):
            if result.code:
                self._count(request, result)
            connection.answer(request, result)
            return
        token = object()
        if pool is not None:
            pool.entered(token)
        held_bytes = request.held_bytes
        connection.task_began(held_bytes)
        connection.start_soon(self._finish, connection, request, result, pool, token, held_bytes)

    async def _finish(
        self,
        connection: Connection,
        request: RemotingCommand,
        work: Coroutine[Any, Any, RemotingCommand | None],
        pool: Pool | None,
        token: object,
        held_bytes: int,
    ) -> None:
        since = inf
        try:
            response = await work
        except Exception as error:
            response = error_response(connection, request, error)
        finally:
            if pool is not None:
                since = pool.left(token)
            connection.task_ended(held_bytes)
        if response is not None:
            if response.code:
                self._count(request, response)
            connection.answer(request, response, since)

    def _count(self, request: RemotingCommand, response: RemotingCommand) -> None:
        key = (request.code, response.code)
        self.errors[key] = self.errors.get(key, 0) + 1


def error_response(connection: Connection, request: RemotingCommand, error: Exception) -> RemotingCommand:
    """Return the response to a request whose processor raised `error`: a refusal, bad input, or an internal error."""
    if isinstance(error, RequestRefused):
        return new_response(request, error.code, error.remark)
    if isinstance(error, HeaderFieldError | BodyError):
        return new_response(request, ResponseCode.SYSTEM_ERROR, str(error))
    log.error("processor failed", code=request.code, remote=connection.remote.text, exc_info=error)
    place = raised_at(error.__traceback__ or sys.exc_info()[2])
    where = "" if place is None else f", {place}"
    return new_response(request, ResponseCode.SYSTEM_ERROR, f"{type(error).__name__}: {error}{where}")
