"""The HTTP server, and what strangers do to it while a healthy client notices nothing."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Iterator
from contextlib import asynccontextmanager
from pathlib import Path

import h11
import pytest
import trio
import trio.testing
from tls_authority import Authority, needs_openssl

from triomq.monitoring import http_server
from triomq.monitoring.host_names import is_local_name, is_loopback
from triomq.monitoring.http_server import HttpServer, Request, Response, plain

GET = b"GET /page HTTP/1.1\r\nHost: localhost\r\n\r\n"


def answer(request: Request) -> Response:
    if request.path == "/page":
        return plain(200, "the page")
    if request.path == "/pieces":
        return Response(200, "text/plain", iter([b"one ", b"", b"two"]))
    if request.path == "/broken":
        raise ValueError("a bug")
    if request.path == "/endless":
        return Response(200, "text/plain", endless())
    return plain(404, "no such page")


def endless() -> Iterator[bytes]:
    while True:
        yield b"x" * 70_000


@asynccontextmanager
async def serving(address: str = "127.0.0.1") -> AsyncIterator[HttpServer]:
    server = HttpServer(address, 0, answer)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server._step_line.run)
        server.nursery = nursery  # type: ignore[attr-defined]
        yield server
        nursery.cancel_scope.cancel()


class Client:
    """One connection to a server, over memory."""

    def __init__(self, server: HttpServer, address: str = "10.0.0.1", *, has_buffer: bool = True) -> None:
        """Without a buffer, what one side sends waits until the other side receives it."""
        pair = trio.testing.memory_stream_pair if has_buffer else trio.testing.lockstep_stream_pair
        self.stream, theirs = pair()
        server.nursery.start_soon(server.serve, theirs, address)  # type: ignore[attr-defined]
        self.rest = b""

    async def ask(self, raw: bytes, method: str = "GET") -> tuple[int, bytes]:
        """Send bytes; return status and body of the next response."""
        with trio.fail_after(30):
            if raw:
                await self.stream.send_all(raw)
            return await self.response(method)

    async def response(self, method: str = "GET") -> tuple[int, bytes]:
        reader = h11.Connection(h11.CLIENT)
        reader.send(h11.Request(method=method, target="/", headers=[("Host", "x")]))
        reader.send(h11.EndOfMessage())
        if self.rest:
            reader.receive_data(self.rest)
        status, body = 0, b""
        while True:
            event = reader.next_event()
            if event is h11.NEED_DATA:
                reader.receive_data(bytes(await self.stream.receive_some(65536)))
            elif isinstance(event, h11.Response):
                status = event.status_code
                self.headers = {name.decode(): value.decode() for name, value in event.headers}
            elif isinstance(event, h11.Data):
                body += bytes(event.data)
            else:
                assert isinstance(event, h11.EndOfMessage), event
                self.rest = reader.trailing_data[0]
                return status, body

    async def is_closed(self) -> bool:
        """Return whether the server closes the connection within five minutes."""
        with trio.move_on_after(300):
            while True:
                try:
                    if not await self.stream.receive_some(65536):
                        return True
                except trio.BrokenResourceError:
                    return True
        return False


async def test_a_page_and_another_one_on_the_same_connection(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        client = Client(server)
        assert await client.ask(GET) == (200, b"the page\n")
        assert client.headers["cache-control"] == "no-store"
        assert await client.ask(GET.replace(b"/page", b"/pieces?x=1")) == (200, b"one two")
        assert await client.ask(GET.replace(b"/page", b"/nothing")) == (404, b"no such page\n")


async def test_an_old_client_gets_the_page_and_the_end_of_the_connection(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as server:
        client = Client(server)
        assert await client.ask(b"GET /pieces HTTP/1.0\r\n\r\n") == (200, b"one two")
        assert await client.is_closed()


async def test_head_has_the_headers_only(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        client = Client(server)
        head = b"HEAD /page HTTP/1.1\r\nHost: localhost\r\n\r\n"
        assert await client.ask(head, "HEAD") == (200, b"")
        assert client.headers["content-length"] == "9"
        assert await client.ask(head.replace(b"/page", b"/pieces"), "HEAD") == (200, b"")
        assert await client.ask(GET) == (200, b"the page\n")


async def test_requests_that_arrive_together_are_answered_in_order(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        client = Client(server)
        await client.stream.send_all(GET + GET.replace(b"/page", b"/pieces") + GET)
        answers = [await client.ask(b"") for _ in range(3)]
        assert answers == [(200, b"the page\n"), (200, b"one two"), (200, b"the page\n")]


@pytest.mark.parametrize(
    ("raw", "status"),
    [
        (b"POST /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 405),
        (b"DELETE /page HTTP/1.1\r\nHost: localhost\r\n\r\n", 405),
        (b"GET /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 3\r\n\r\nabc", 413),
        (b"GET /page HTTP/1.1\r\nHost: localhost\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n", 413),
        (b"GET /page HTTP/1.1\r\n\r\n", 400),
        (b"GET /page HTTP/1.1\r\nHost: a\r\nHost: b\r\n\r\n", 400),
        (b"GET /page\r\n\r\n", 400),
        (b"\x16\x03\x01\x02\x00\x01\x00\r\n\r\n", 400),
        (b"GET /pa\x00ge HTTP/1.1\r\nHost: localhost\r\n\r\n", 400),
        (b"GET /page HTTP/1.1\r\nHost: localhost\r\nX: " + b"y" * 9000 + b"\r\n\r\n", 431),
        (b"GET /" + b"y" * 9000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n", 431),
        (b"GET /page HTTP/1.1\r\nHost: localhost\r\nContent-Length: 0\r\nContent-Length: 5\r\n\r\n", 400),
    ],
)
async def test_what_is_no_request_for_a_page_is_refused_and_ends_the_connection(
    autojump_clock: trio.testing.MockClock, raw: bytes, status: int
) -> None:
    async with serving() as server:
        client, healthy = Client(server), Client(server)
        assert (await client.ask(raw))[0] == status
        assert await client.is_closed()
        assert await healthy.ask(GET) == (200, b"the page\n")


async def test_a_page_that_fails_is_an_error_and_the_connection_goes_on(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as server:
        client = Client(server)
        assert (await client.ask(GET.replace(b"/page", b"/broken")))[0] == 500
        assert await client.ask(GET) == (200, b"the page\n")


async def test_only_a_loopback_name_is_served_on_a_loopback_address(autojump_clock: trio.testing.MockClock) -> None:
    foreign = GET.replace(b"localhost", b"attacker.example")
    async with serving() as server:
        assert (await Client(server).ask(foreign))[0] == 421
        assert (await Client(server).ask(GET.replace(b"localhost", b"127.0.0.1:5557")))[0] == 200
    async with serving("0.0.0.0") as server:
        assert (await Client(server).ask(foreign))[0] == 200


@pytest.mark.parametrize(
    ("host", "is_local"),
    [
        ("localhost", True),
        ("localhost:5557", True),
        ("LOCALHOST.", True),
        ("x.localhost:1", True),
        ("127.0.0.1", True),
        ("10.1.2.3:80", True),
        ("[::1]", True),
        ("[::1]:5557", True),
        ("example.org", False),
        ("localhost.example.org", False),
        ("127.0.0.1.example.org:5557", False),
        ("", False),
        (":80", False),
        ("[x]", False),
    ],
)
def test_local_names(host: str, is_local: bool) -> None:
    assert is_local_name(host) is is_local


def test_loopback_addresses() -> None:
    assert [is_loopback(text) for text in ("127.0.0.1", "::1", "localhost", "", "0.0.0.0", "10.0.0.1")] == [
        *[True] * 3,
        *[False] * 3,
    ]


async def test_a_head_that_comes_slowly_ends_the_connection(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        slow, healthy = Client(server), Client(server)
        began = trio.current_time()

        async def drip() -> None:
            for byte in GET[:-2]:
                try:
                    await slow.stream.send_all(bytes([byte]))
                except trio.BrokenResourceError:
                    return
                await trio.sleep(2)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(drip)
            assert await healthy.ask(GET) == (200, b"the page\n")
            assert await slow.is_closed()
            assert trio.current_time() - began == pytest.approx(http_server.HEAD_SECONDS)
            nursery.cancel_scope.cancel()


async def test_a_connection_may_rest_between_requests_but_not_while_one_arrives(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as server:
        client = Client(server)
        assert (await client.ask(GET))[0] == 200
        await trio.sleep(http_server.IDLE_SECONDS - 1)
        assert (await client.ask(GET))[0] == 200
        await trio.sleep(50)
        await client.stream.send_all(GET[:10])
        began = trio.current_time()
        assert await client.is_closed()
        assert trio.current_time() - began == pytest.approx(http_server.HEAD_SECONDS)
        silent = Client(server)
        began = trio.current_time()
        assert await silent.is_closed()
        assert trio.current_time() - began == pytest.approx(http_server.HEAD_SECONDS)


async def test_many_silent_connections_make_room_for_one_that_asks(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        others = []
        for index in range(3 * http_server.MOST_CONNECTIONS):
            others.append(Client(server, f"10.0.{index % 4}.1"))
            await trio.testing.wait_all_tasks_blocked()
            assert server.connection_count <= http_server.MOST_CONNECTIONS
        for _ in range(3):
            assert await Client(server, "10.9.9.9").ask(GET) == (200, b"the page\n")
        assert await others[0].is_closed()


async def test_one_address_has_half_of_the_places() -> None:
    async with serving() as server:
        clients = []
        for _ in range(http_server.MOST_CONNECTIONS):
            clients.append(Client(server, "10.0.0.1"))
            await trio.testing.wait_all_tasks_blocked()  # trio starts tasks in any order
        assert server.connection_count == http_server.MOST_CONNECTIONS // 2
        assert await clients[-1].ask(GET) == (200, b"the page\n")


async def test_clients_that_do_not_read_their_pages_make_room_after_a_while(
    autojump_clock: trio.testing.MockClock,
) -> None:
    async with serving() as server:
        for index in range(http_server.MOST_CONNECTIONS):
            stuck = Client(server, f"10.0.{index % 4}.1", has_buffer=False)
            await stuck.stream.send_all(GET.replace(b"/page", b"/endless"))
            assert await stuck.stream.receive_some(1)
        refused = Client(server, "10.9.9.9")
        assert await refused.is_closed()
        await trio.sleep(http_server.LONG_SECONDS + 1)
        assert await Client(server, "10.9.9.9").ask(GET) == (200, b"the page\n")


async def test_a_response_that_nobody_takes_ends(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        stuck = Client(server, has_buffer=False)
        await stuck.stream.send_all(GET)
        await trio.sleep(http_server.RESPONSE_SECONDS - 1)
        assert server.connection_count == 1
        await trio.sleep(2)
        assert server.connection_count == 0


async def test_a_long_page_lets_other_pages_through(autojump_clock: trio.testing.MockClock) -> None:
    async with serving() as server:
        busy = Client(server, has_buffer=False)
        await busy.stream.send_all(GET.replace(b"/page", b"/endless"))

        async def read_on() -> None:
            while True:
                await busy.stream.receive_some(1 << 20)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(read_on)
            for _ in range(5):
                assert await Client(server).ask(GET) == (200, b"the page\n")
            nursery.cancel_scope.cancel()


async def test_over_sockets() -> None:
    server = HttpServer("127.0.0.1", 0, answer)
    port = server.open()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server.run)
        stream = await trio.open_tcp_stream("127.0.0.1", port)
        async with stream:
            await stream.send_all(GET + b"GET / HTTP/1.1\r\n" + b"y" * 100_000)
            received = b""
            with trio.fail_after(5):
                while data := await stream.receive_some(65536):
                    received += data
        assert received.startswith(b"HTTP/1.1 200 ")
        assert b"HTTP/1.1 431 " in received or b"HTTP/1.1 400 " in received
        nursery.cancel_scope.cancel()


POST = b"POST /form HTTP/1.1\r\nHost: localhost\r\n"
RULES = http_server.Rules(methods=("GET", "HEAD", "POST"), most_body_bytes=100)


async def echo(request: Request) -> Response:
    await trio.lowlevel.checkpoint()
    return plain(200, f"{request.method} {request.query} {request.body.decode()}")


@asynccontextmanager
async def serving_forms(rules: http_server.Rules = RULES) -> AsyncIterator[HttpServer]:
    server = HttpServer("127.0.0.1", 0, echo, rules)
    async with trio.open_nursery() as nursery:
        nursery.start_soon(server._step_line.run)
        server.nursery = nursery  # type: ignore[attr-defined]
        yield server
        nursery.cancel_scope.cancel()


async def test_a_form_arrives_whole_and_the_connection_goes_on(autojump_clock: trio.testing.MockClock) -> None:
    async with serving_forms() as server:
        client = Client(server)
        chunks = b"1\r\na\r\n2\r\n=1\r\n0\r\n\r\n"
        for raw in (b"Content-Length: 3\r\n\r\na=1", b"Transfer-Encoding: chunked\r\n\r\n" + chunks):
            assert await client.ask(POST + raw, "POST") == (200, b"POST  a=1\n")
        assert await client.ask(GET.replace(b"/page", b"/page?x=1")) == (200, b"GET x=1 \n")


@pytest.mark.parametrize(
    "rest",
    [
        b"Content-Length: 101\r\n\r\n" + b"x" * 101,
        b"Transfer-Encoding: chunked\r\n\r\n65\r\n" + b"x" * 101 + b"\r\n0\r\n\r\n",
        b"Transfer-Encoding: chunked\r\n\r\nnonsense\r\n",
        b"Content-Length: 100\r\n\r\nthe rest never comes",
    ],
    ids=["long", "long in chunks", "broken", "slow"],
)
async def test_a_form_that_is_long_broken_or_slow_is_refused(
    rest: bytes, autojump_clock: trio.testing.MockClock
) -> None:
    async with serving_forms() as server:
        client = Client(server)
        assert (await client.ask(POST + rest, "POST"))[0] == 413
        assert await client.is_closed()


async def test_the_rules_judge_the_host_and_say_the_headers(autojump_clock: trio.testing.MockClock) -> None:
    rules = http_server.Rules(headers=(("X-A", "b"),), is_host=lambda host: host == "mq")
    async with serving_forms(rules) as server:
        assert (await Client(server).ask(GET))[0] == 421
        client = Client(server)
        assert (await client.ask(GET.replace(b"localhost", b"mq")))[0] == 200
        assert client.headers["x-a"] == "b"
        assert "content-security-policy" not in client.headers


async def test_without_a_certificate_there_is_no_page_and_a_silent_handshake_ends(
    autojump_clock: trio.testing.MockClock,
) -> None:
    context: ssl.SSLContext | None = None

    async def get_context() -> ssl.SSLContext | None:
        return context

    async with serving_forms(http_server.Rules(get_context=get_context)) as server:
        assert await Client(server).is_closed()
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        began = trio.current_time()
        assert await Client(server).is_closed()
        assert trio.current_time() - began < 2 * http_server.HEAD_SECONDS


@needs_openssl
async def test_with_a_certificate_pages_are_served_over_tls(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    context.load_cert_chain(*authority.issue("server"))

    async def get_context() -> ssl.SSLContext | None:
        await trio.lowlevel.checkpoint()
        return context

    async with serving_forms(http_server.Rules(get_context=get_context)) as server:
        client = Client(server)
        trusting = ssl.create_default_context(cafile=str(authority.certificate))
        client.stream = trio.SSLStream(client.stream, trusting, server_hostname="127.0.0.1", https_compatible=True)
        for _ in range(2):
            assert await client.ask(GET) == (200, b"GET  \n")
