"""One HTTP/2 connection, over which gRPC clients make calls.

A call that is complete is handled as the requests of remoting are: in order of arrival, until the turn is over; the
rest waits for later turns. Heartbeats go first, and those of telemetry streams: a client that hears nothing of its
heartbeats gives the whole connection up.

Several clients may share a connection, because gRPC libraries join those of a process. Each has a `GrpcClient`, which
is its connection as far as the rest of the broker is concerned.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

import trio

from triomq.broker.grpc.call import Call
from triomq.broker.grpc.client import GrpcClient
from triomq.broker.grpc.methods import Methods
from triomq.broker.grpc.results import CLIENT_ID_REQUIRED, TOO_MANY_REQUESTS, Refused
from triomq.broker.grpc.wrong_port import remoting_refusal
from triomq.grpc_front.call import read_call
from triomq.grpc_front.messages import MessageReader
from triomq.grpc_front.status import CallFailed, GrpcStatus
from triomq.http2.errors import ErrorCode
from triomq.http2.events import ConnectionFailed, DataArrived, Event, RequestStarted, StreamReset, TrailersArrived
from triomq.http2.server_side import ServerSide
from triomq.protocol.address import HostPort
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.log import get_logger
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.turn import Turn

log = get_logger("triomq.broker.grpc")

MAX_CLIENTS: Final = 1000
"""Clients of one connection."""
MAX_INCOMPLETE_MESSAGES: Final = 4
"""How many messages of the longest size may be incomplete in one connection; a call with one more is refused."""
MAX_PENDING_BYTES: Final = 4 * 1024 * 1024
"""Answers that wait because the peer grants no window for them. Above it no further call is taken."""

Ready = tuple[Call, bytes]
"""A call and a message of its request, to be handled."""


class GrpcConnection(Connection):
    """See the module's docstring."""

    def __init__(
        self,
        methods: Methods,
        table: ProcessorTable,
        turn: Turn,
        nursery: trio.Nursery,
        remote: HostPort,
        local: HostPort,
        settings: ConnectionSettings,
        *,
        on_close: Callable[[Connection], None] | None = None,
    ) -> None:
        super().__init__(table, turn, nursery, remote, local, settings, on_close=on_close)
        self._methods = methods
        self._table = table
        self._task_nursery = nursery
        self._settings = settings
        self._http = ServerSide()
        self._calls: dict[int, Call] = {}
        self._clients: dict[str, GrpcClient] = {}
        self._incomplete_bytes = 0
        self._pending_bytes = 0  # of answers, as they are counted in the memory budget
        self._second = 0.0
        self._is_known = False  # whether the first bytes were those of HTTP/2
        self._first = b""
        self._is_leaving = False

    # What the driver calls.

    def receive(self, data: bytes) -> int:
        if not self._is_known:
            self._first += data
            refusal = remoting_refusal(self._first, self._methods.port)
            if refusal is not None:
                self._refuse(refusal)
                return 0
            self._is_known = len(self._first) >= 4
            self._first = b""
        self._let_time_pass()
        ready: list[Ready] = []
        for event in self._http.receive(data):
            self._happened(event, ready)
        self._note_incomplete(is_new=bool(ready))
        self.has_spoken = self.has_spoken or bool(ready)
        for call, message in ready:
            if call.method.is_urgent:
                call.handle(message)
        for call, message in ready:
            if not call.method.is_urgent:
                self._handle_soon(call, message)
        self.sent()
        return len(ready)

    def flush(self) -> None:
        output = self._http.take_output()
        if output:
            self.put(output)
        pending_bytes = self._http.pending_bytes
        if pending_bytes != self._pending_bytes:
            self.hold(pending_bytes - self._pending_bytes)
            self._pending_bytes = pending_bytes
        super().flush()

    def close(self, reason: str) -> None:
        if not self.is_open:
            return
        super().close(reason)
        self._calls.clear()
        for client in list(self._clients.values()):
            client.close(reason)

    def leave(self) -> None:
        """Let clients go elsewhere: the open calls end, and no further one begins."""
        if self._is_leaving or not self.is_open:
            return
        self._is_leaving = True
        for client in list(self._clients.values()):
            client.leave()
        self._http.go_away("the broker stops")
        self.sent()

    # Calls.

    def respond(self, stream_id: int, block: bytes) -> bool:
        return self._http.respond(stream_id, block)

    def send_data(self, stream_id: int, data: bytes) -> bool:
        return self._http.send_data(stream_id, data)

    def end(self, call: Call, block: bytes) -> None:
        """End the answer to a call."""
        self._forget(call)
        self._http.send_end(call.stream_id, block)
        self.sent()

    def sent(self) -> None:
        """Send what there is at the end of this turn."""
        self._mark()

    @property
    def is_full(self) -> bool:
        """Whether the peer must take answers before it gets more."""
        return self._http.pending_bytes > MAX_PENDING_BYTES

    def _client_closed(self, client: Connection) -> None:
        assert isinstance(client, GrpcClient)
        if self._clients.get(client.client_id) is client:
            del self._clients[client.client_id]
        self._methods.listeners.connection_closed(client)

    def _happened(self, event: Event, ready: list[Ready]) -> None:
        if isinstance(event, RequestStarted):
            self._begin(event)
            if event.has_ended:
                self._ended(event.stream_id, ready)
        elif isinstance(event, DataArrived):
            call = self._calls.get(event.stream_id)
            if call is not None and event.data:
                self._read(call, event.data, ready)
            self._http.consumed(event.stream_id, len(event.data))
            if event.has_ended:
                self._ended(event.stream_id, ready)
        elif isinstance(event, TrailersArrived):
            self._ended(event.stream_id, ready)
        elif isinstance(event, StreamReset):
            call = self._calls.get(event.stream_id)
            if call is not None:
                self._forget(call)
                call.given_up()
        else:
            self._failed(event)

    def _begin(self, event: RequestStarted) -> None:
        try:
            head = read_call(event.fields)
            method = self._methods.at(head.path)
            if method is None:
                text = f"this server has no method {head.path.decode('latin-1')[:200]}"
                raise CallFailed(GrpcStatus.UNIMPLEMENTED, text)
            reader = MessageReader(self._methods.max_message_bytes, head.encoding)
            call = self._calls[event.stream_id] = Call(self, event.stream_id, head, method, reader)
        except CallFailed as failure:
            self._http.send_end(event.stream_id, failure.trailers())
            return
        try:
            call.client = self._client(head.fields)
        except Refused as refusal:
            call.refuse(refusal)

    def _client(self, fields: dict[bytes, bytes]) -> GrpcClient:
        """Return the client that makes a call. Raises Refused."""
        client_id = fields.get(b"x-mq-client-id", b"").decode("utf-8", "replace")
        if not client_id:
            raise Refused(CLIENT_ID_REQUIRED, "the header x-mq-client-id is missing: it names the client")
        client = self._clients.get(client_id)
        if client is None:
            if len(self._clients) >= MAX_CLIENTS:
                raise Refused(TOO_MANY_REQUESTS, f"this connection has {MAX_CLIENTS} clients, the most it may have")
            language = fields.get(b"x-mq-language", b"").decode("latin-1")
            client = GrpcClient(
                self,
                client_id,
                language,
                self._table,
                self._task_nursery,
                self._settings,
                self._methods.held(),
                on_close=self._client_closed,
            )
            self._clients[client_id] = client
            self._methods.listeners.connection_opened(client)
        return client

    def _read(self, call: Call, data: bytes, ready: list[Ready]) -> None:
        before = call.reader.held_bytes
        messages: list[bytes] = []
        failure: CallFailed | None = None
        try:
            messages = call.reader.feed(data)
        except CallFailed as error:
            failure = error
        self._incomplete_bytes += call.reader.held_bytes - before  # also what the reader holds after a failure
        if self._incomplete_bytes > MAX_INCOMPLETE_MESSAGES * self._methods.max_message_bytes:
            text = f"{self._incomplete_bytes} bytes of incomplete messages in one connection"
            failure = failure or CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, text)
        if failure is not None:
            call.fail(failure)
            return
        for message in messages:
            if call.method.is_stream:
                ready.append((call, message))
            elif call.message is None:
                call.message = message
            else:
                call.fail(CallFailed(GrpcStatus.INTERNAL, "a call of this method has one message"))
                return

    def _ended(self, stream_id: int, ready: list[Ready]) -> None:
        """A request has come to its end."""
        call = self._calls.get(stream_id)
        if call is None:
            return
        try:
            call.reader.check_ended()
        except CallFailed as failure:
            call.fail(failure)
            return
        if call.method.is_stream:
            call.finish()
        elif call.message is None:
            call.fail(CallFailed(GrpcStatus.INTERNAL, "the request has no message"))
        else:
            ready.append((call, call.message))
            call.message = None

    def _handle_soon(self, call: Call, message: bytes) -> None:
        """Handle a call in this turn, or in a later one."""
        if self.must_wait():
            self.postpone(partial(self._handle, call, message), len(message))
        else:
            self._handle(call, message)

    def _handle(self, call: Call, message: bytes) -> None:
        if self.is_full:
            text = f"{self._http.pending_bytes} bytes of answers wait for this client to take them"
            call.fail(CallFailed(GrpcStatus.RESOURCE_EXHAUSTED, text))
        else:
            call.handle(message)

    def _forget(self, call: Call) -> None:
        if self._calls.pop(call.stream_id, None) is not None:
            self._incomplete_bytes -= call.reader.held_bytes

    def _note_incomplete(self, *, is_new: bool) -> None:
        """Let the memory budget know of messages that have not arrived as a whole."""
        held_bytes = self._http.held_bytes + self._incomplete_bytes
        if held_bytes or self._has_frame:
            needed_bytes = max([call.reader.needed_bytes for call in self._calls.values()], default=0)
            self.note_frame(held_bytes, needed_bytes, is_new=is_new)

    def _let_time_pass(self) -> None:
        """Give a client back what frames that achieve nothing have cost it, for each second."""
        seconds = self.turn.time() - self._second
        if seconds >= 1:
            self._second += int(seconds)
            for _ in range(min(int(seconds), 10)):
                self._http.replenish()

    def _failed(self, event: ConnectionFailed) -> None:
        log.warning("connection of a gRPC client closed", remote=self.remote.text, error=event.reason)
        self._http.close(ErrorCode(event.code), event.reason)
        self.close_soon(f"not HTTP/2 as the protocol has it: {event.reason}")

    def _refuse(self, answer: tuple[bytes, str]) -> None:
        """Tell a client of another protocol that this is not its port, and close."""
        self._http.take_output()
        data, reason = answer
        log.warning("connection to grpcServerPort closed", remote=self.remote.text, error=reason)
        self.put(data)
        self.close_soon(reason)
