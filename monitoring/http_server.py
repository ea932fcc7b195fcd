"""A small HTTP server on trio for the pages of a daemon, strict and bounded.

h11 reads and writes the protocol; this module owns sockets, time limits and bounds. A page is bytes, or an iterator of
pieces, each of which is one step of work; connections take their steps in turns
(remoting/scheduling/step_line.py), so a page that takes long to make holds nobody up.

Bounds: `MOST_CONNECTIONS`, half of them from one address. A newcomer without a place gets that of the connection that
has been waiting for a request for the longest time, else of the response that has lasted for over `LONG_SECONDS`. A
request has `MOST_HEAD_BYTES` and `HEAD_SECONDS` to arrive, its body as long again; a response `RESPONSE_SECONDS` to be
made and taken. So neither many connections nor slow ones keep a client out that asks and reads.

`Rules` says what a server accepts; by default GET and HEAD without a body. On a loopback address the Host header must
then be a loopback name or an address, or else a page of another site could read this one through a browser (DNS
rebinding).
"""

from __future__ import annotations

import ssl
from collections.abc import AsyncGenerator, Awaitable, Callable, Iterator, Mapping
from contextlib import aclosing
from dataclasses import dataclass, field
from typing import Final

import h11
import structlog
import trio

from triomq.monitoring.host_names import is_local_name, is_loopback
from triomq.protocol.outage import Outage
from triomq.remoting import network
from triomq.remoting.line_limit import LineLimit
from triomq.remoting.scheduling.scheduler import Scheduler
from triomq.remoting.scheduling.step_line import NO_LINE, StepLine, Steps

log = structlog.get_logger("triomq.monitoring.http")

MOST_CONNECTIONS: Final = 64
MOST_HEAD_BYTES: Final = 8192
RECEIVE_BYTES: Final = 2048
HEAD_SECONDS: Final = 10.0
IDLE_SECONDS: Final = 120.0
"""How long a connection may rest between two requests."""
RESPONSE_SECONDS: Final = 60.0
SEND_BYTES: Final = 64 * 1024
FAREWELL_SECONDS: Final = 1.0
FAREWELL_READS: Final = 16
LONG_SECONDS: Final = 10.0
"""A response that has lasted longer makes room for a newcomer."""
ACCEPT_AGAIN_SECONDS: Final = 1.0
_LINES_PER_SECOND: Final = 5
_PATH_CHARACTERS: Final = 200
_SAFETY_HEADERS: Final = (
    ("Cache-Control", "no-store"),
    ("Content-Security-Policy", "default-src 'none'"),
    ("X-Content-Type-Options", "nosniff"),
)


@dataclass(frozen=True, slots=True)
class Request:
    """What a page may ask about its request. `path` has no query; names of headers are in lower case. `address` is that
    of the client. A page that takes long runs in `steps`."""

    path: str
    accept: str = ""
    method: str = "GET"
    query: str = ""
    headers: Mapping[str, str] = field(default_factory=dict)
    body: bytes = b""
    address: str = ""
    steps: Steps = NO_LINE


@dataclass(frozen=True, slots=True)
class Response:
    """A page. `body` is all of it, or an iterator of its pieces; pieces that take time to come are sent one by one."""

    status: int
    content_type: str
    body: bytes | Iterator[bytes] | AsyncGenerator[bytes, None]
    headers: list[tuple[str, str]] = field(default_factory=list)


Answer = Callable[[Request], Response | Awaitable[Response]]
"""Returns the page of a request, at once or later. It may raise: that is status 500."""
GetContext = Callable[[], Awaitable[ssl.SSLContext | None]]


@dataclass(frozen=True, slots=True)
class Rules:
    """What a server accepts and says. `headers` are in every response. `is_host` judges the Host header; None: the
    module's docstring does. `get_context` returns the context for TLS; None: the server speaks without it."""

    methods: tuple[str, ...] = ("GET", "HEAD")
    most_body_bytes: int = 0
    headers: tuple[tuple[str, str], ...] = _SAFETY_HEADERS
    is_host: Callable[[str], bool] | None = None
    get_context: GetContext | None = None


def plain(status: int, text: str, *, allow: str = "") -> Response:
    """Return a page of one line."""
    headers = [("Allow", allow)] if allow else []
    return Response(status, "text/plain; charset=utf-8", text.encode() + b"\n", headers)


class _Client:
    """One connection. `since` is when it began to wait for a request, or to take a response."""

    __slots__ = ("address", "is_waiting", "scope", "since", "steps")

    def __init__(self, address: str, now: float, line: StepLine) -> None:
        self.address = address
        self.steps = Steps(line)
        self.is_waiting = True
        self.since = now
        self.scope = trio.CancelScope()


class HttpServer:
    """See the module's docstring. `open` binds the port, `run` serves until cancelled."""

    def __init__(
        self,
        address: str,
        port: int,
        answer: Answer,
        rules: Rules = Rules(),
        listening: network.Listening | None = None,
    ) -> None:
        """`listening` is a port that is open already."""
        self._address = address
        self._wanted_port = port
        self._answer = answer
        self._rules = rules
        self._checks_host = is_loopback(address)
        self._step_line = StepLine(Scheduler())
        self._clients: dict[_Client, None] = {}  # oldest first
        self._listening = listening
        self._lines = LineLimit(_LINES_PER_SECOND, trio.current_time)

    def open(self) -> int:
        """Listen. Return the port. Raises OSError."""
        self._listening = network.listen(self._address, self._wanted_port, MOST_CONNECTIONS)
        return network.port_of(self._listening)

    def close(self) -> None:
        """Stop listening; call this if `run` has not run."""
        if self._listening is not None:
            self._listening.close()

    @property
    def connection_count(self) -> int:
        return len(self._clients)

    async def run(self) -> None:
        """Serve until cancelled."""
        assert self._listening is not None
        listener = network.listener_of(self._listening)
        port = network.port_of(self._listening)
        outage = Outage()
        async with listener, trio.open_nursery() as nursery:
            nursery.start_soon(self._step_line.run)
            while True:
                try:
                    stream = await listener.accept()
                except OSError as error:  # out of file descriptors
                    if outage.failed(trio.current_time()):
                        log.error("HTTP connection not accepted; accepting pauses", port=port, exc_info=error)
                    await trio.sleep(ACCEPT_AGAIN_SECONDS)
                    continue
                if outage.worked(trio.current_time()):
                    log.info("HTTP connections accepted again", port=port)
                try:
                    remote, _ = network.ends(stream)
                except OSError:  # the peer has already gone
                    await trio.aclose_forcefully(stream)
                    continue
                nursery.start_soon(self.serve, stream, remote.ip)

    async def serve(self, stream: trio.abc.Stream, address: str) -> None:
        """Serve one connection until either side closes it; never raises an error of the peer."""
        if not self._make_room(address):
            await trio.aclose_forcefully(stream)
            return
        client = _Client(address, trio.current_time(), self._step_line)
        self._clients[client] = None
        try:
            with client.scope:
                secured = await self._secured(stream)
                if secured is not None:
                    await self._serve_requests(secured, client)
        except (trio.BrokenResourceError, trio.ClosedResourceError):
            pass  # the peer went away
        except Exception:
            self._complain("HTTP connection failed", exc_info=True, remote=address)
        finally:
            self._clients.pop(client, None)
            await trio.aclose_forcefully(stream)

    def _make_room(self, address: str) -> bool:
        """Return whether there is room for another client of this address; close one that must leave for it."""
        rivals = [client for client in self._clients if client.address == address]
        if len(rivals) < MOST_CONNECTIONS // 2:
            rivals = list(self._clients)
            if len(rivals) < MOST_CONNECTIONS:
                return True
        long_ago = trio.current_time() - LONG_SECONDS
        leaving = [client for client in rivals if client.is_waiting]
        leaving = leaving or [client for client in rivals if client.since < long_ago]
        if not leaving:
            return False
        oldest = min(leaving, key=lambda client: client.since)
        del self._clients[oldest]
        oldest.scope.cancel()
        return True

    async def _secured(self, stream: trio.abc.Stream) -> trio.abc.Stream | None:
        """Return the stream to speak over: with TLS after its handshake; None if that fails or takes too long."""
        if self._rules.get_context is None:
            return stream
        context = await self._rules.get_context()
        if context is None:
            return None
        secured = trio.SSLStream(stream, context, server_side=True, https_compatible=True)
        with trio.move_on_after(HEAD_SECONDS):
            await secured.do_handshake()
            return secured
        return None

    async def _serve_requests(self, stream: trio.abc.Stream, client: _Client) -> None:
        connection = h11.Connection(h11.SERVER, max_incomplete_event_size=MOST_HEAD_BYTES - RECEIVE_BYTES)
        patience_seconds = HEAD_SECONDS
        while True:
            client.is_waiting, client.since = True, trio.current_time()
            try:
                request = await _next_request(stream, connection, patience_seconds)
            except h11.RemoteProtocolError as error:
                if connection.our_state is h11.IDLE or connection.our_state is h11.SEND_RESPONSE:
                    await self._refuse(stream, connection, error)
                return
            if request is None:
                return
            client.is_waiting, client.since = False, trio.current_time()
            with trio.move_on_after(RESPONSE_SECONDS) as scope:
                await self._respond(stream, connection, request, client)
            if scope.cancelled_caught:
                return
            if connection.our_state is h11.MUST_CLOSE:
                await _part_with(stream)
            if (connection.our_state, connection.their_state) != (h11.DONE, h11.DONE):
                return
            connection.start_next_cycle()
            patience_seconds = IDLE_SECONDS

    async def _respond(
        self, stream: trio.abc.Stream, connection: h11.Connection, request: h11.Request, client: _Client
    ) -> None:
        refusal = self._refusal(request)
        body = b""
        if refusal is None:
            received = await _body(stream, connection, self._rules.most_body_bytes)
            if received is None:
                refusal = plain(413, f"a body has at most {self._rules.most_body_bytes} bytes and arrives soon")
            else:
                body = received
        response = refusal or await self._page(request, body, client)
        headers = [("Content-Type", response.content_type), *self._rules.headers, *response.headers]
        if isinstance(response.body, bytes):
            headers.append(("Content-Length", str(len(response.body))))
        if refusal is not None:
            headers.append(("Connection", "close"))
        data = _sent(connection, h11.Response(status_code=response.status, headers=headers))
        if isinstance(response.body, AsyncGenerator):
            await stream.send_all(data)
            await _send_as_they_come(stream, connection, response.body, is_head=request.method == b"HEAD")
            return
        if request.method == b"HEAD":
            pieces: Iterator[bytes] = iter(())
        elif isinstance(response.body, bytes):
            pieces = iter((response.body,))
        else:
            pieces = response.body
        while True:
            await client.steps.begin()
            piece = next(pieces, None)
            if piece is None:
                break
            data += _sent(connection, h11.Data(data=piece)) if piece else b""
            if len(data) >= SEND_BYTES:
                await stream.send_all(data)
                data = b""
        await stream.send_all(data + _sent(connection, h11.EndOfMessage()))

    def _refusal(self, request: h11.Request) -> Response | None:
        """Return why there is no page for a request, judged by its head alone."""
        methods = ", ".join(self._rules.methods)
        if request.method.decode("latin-1") not in self._rules.methods:
            return plain(405, f"only {methods} are possible here", allow=methods)
        if not self._rules.most_body_bytes and _has_body(request):
            return plain(413, "a request here has no body")
        host = dict(request.headers).get(b"host", b"").decode("latin-1")
        is_host = self._rules.is_host
        if is_host is not None:
            return None if is_host(host) else plain(421, "Host must name this machine, or one of dashboardHosts")
        if self._checks_host and host and not is_local_name(host):
            return plain(421, "the Host header must name this machine: localhost, or an address")
        return None

    async def _page(self, request: h11.Request, body: bytes, client: _Client) -> Response:
        """Return the page for a request."""
        headers = {name.decode("latin-1"): value.decode("latin-1") for name, value in request.headers}
        path, _, query = request.target.decode("latin-1").partition("?")
        method = request.method.decode("latin-1")
        asked = Request(path, headers.get("accept", ""), method, query, headers, body, client.address, client.steps)
        try:
            page = self._answer(asked)
            return page if isinstance(page, Response) else await page
        except Exception:
            self._complain("page failed", exc_info=True, path=path[:_PATH_CHARACTERS])
            return plain(500, "this page failed; the log says why")

    async def _refuse(
        self, stream: trio.abc.Stream, connection: h11.Connection, error: h11.RemoteProtocolError
    ) -> None:
        """Tell a peer that breaks the protocol what is wrong."""
        body = f"{error}\n".encode(errors="replace")
        headers = [("Content-Type", "text/plain; charset=utf-8"), ("Content-Length", str(len(body)))]
        response = h11.Response(status_code=error.error_status_hint, headers=[*headers, ("Connection", "close")])
        data = _sent(connection, response) + _sent(connection, h11.Data(data=body))
        with trio.move_on_after(FAREWELL_SECONDS):
            await stream.send_all(data + _sent(connection, h11.EndOfMessage()))
        await _part_with(stream)

    def _complain(self, event: str, *, exc_info: bool = False, **fields: str) -> None:
        if self._lines.take() is not None:
            log.error(event, exc_info=exc_info, **fields)


async def _send_as_they_come(
    stream: trio.abc.Stream, connection: h11.Connection, pieces: AsyncGenerator[bytes, None], *, is_head: bool
) -> None:
    async with aclosing(pieces):
        if not is_head:
            async for piece in pieces:
                await stream.send_all(_sent(connection, h11.Data(data=piece)))
    await stream.send_all(_sent(connection, h11.EndOfMessage()))


async def _next_request(
    stream: trio.abc.Stream, connection: h11.Connection, patience_seconds: float
) -> h11.Request | None:
    """Return the next request; None if none has arrived in time, or the peer has closed. Raises RemoteProtocolError."""
    deadline = trio.current_time() + patience_seconds
    while True:
        event = connection.next_event()
        if isinstance(event, h11.Request):
            return event
        if event is not h11.NEED_DATA:
            return None
        data: bytes | None = None
        with trio.move_on_at(deadline):
            data = bytes(await stream.receive_some(RECEIVE_BYTES))
        if data is None:
            return None
        if not connection.trailing_data[0]:  # the first byte of a request after a rest
            deadline = min(deadline, trio.current_time() + HEAD_SECONDS)
        connection.receive_data(data)


async def _body(stream: trio.abc.Stream, connection: h11.Connection, most_bytes: int) -> bytes | None:
    """Return the body of a request; None if it is too long, slow or broken."""
    found = b""
    with trio.move_on_after(HEAD_SECONDS):
        while True:
            try:
                event = connection.next_event()
            except h11.RemoteProtocolError:
                return None
            if event is h11.NEED_DATA:
                connection.receive_data(bytes(await stream.receive_some(RECEIVE_BYTES)))
            elif isinstance(event, h11.Data):
                found += bytes(event.data)
                if len(found) > most_bytes:
                    return None
            else:
                return found
    return None


async def _part_with(stream: trio.abc.Stream) -> None:
    """Let the peer read the response before the connection goes: closed with unread input, it could lose it."""
    if not isinstance(stream, trio.abc.HalfCloseableStream):
        return
    with trio.move_on_after(FAREWELL_SECONDS):
        await stream.send_eof()
        for _ in range(FAREWELL_READS):
            if not await stream.receive_some(RECEIVE_BYTES):
                break


def _sent(connection: h11.Connection, event: h11.Event) -> bytes:
    return connection.send(event) or b""


def _has_body(request: h11.Request) -> bool:
    for name, value in request.headers:
        if name == b"transfer-encoding" or (name == b"content-length" and value != b"0"):
            return True
    return False
