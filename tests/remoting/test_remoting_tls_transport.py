"""TLS connections in the poller: what arrives together or apart, what a peer does not take, how they end.

The peer is OpenSSL without a socket, so that the tests decide which bytes arrive together."""

from __future__ import annotations

import socket
import ssl
import subprocess
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager, suppress
from pathlib import Path
from typing import Any

import pytest
import trio
from test_remoting_poller import HERE, Bench, frame, run_for
from tls_authority import Authority, needs_openssl

from triomq.protocol.command import new_request, new_response
from triomq.protocol.frame import FrameDecoder
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.connection_settings import ConnectionSettings
from triomq.remoting.handshake import HandshakeFailed, Secured, secure
from triomq.remoting.poller import HAS_EPOLL
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.scheduling.policy import INTERACTIVE_READS
from triomq.remoting.server import RemotingServer
from triomq.remoting.tls_transport import PIECE_BYTES, RECORD_BYTES, TlsTransport
from triomq.remoting.turn import Turn

pytestmark = [needs_openssl, pytest.mark.skipif(not HAS_EPOLL, reason="epoll is not available here")]

ECHO = 1
RECORD_OVERHEAD_BYTES = 64
"""More than the header, the tag and the padding of a record."""


@pytest.fixture(scope="module")
def context(tmp_path_factory: pytest.TempPathFactory) -> ssl.SSLContext:
    """The server's."""
    made = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    made.load_cert_chain(*Authority(tmp_path_factory.mktemp("keys")).issue("server"))
    return made


class Peer:
    """The client's end: its socket, and its OpenSSL."""

    def __init__(self, sock: socket.socket, version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3) -> None:
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT)
        context.check_hostname, context.verify_mode = False, ssl.CERT_NONE
        context.maximum_version = version
        self.sock = sock
        self.sock.setblocking(False)
        self.incoming, self.outgoing = ssl.MemoryBIO(), ssl.MemoryBIO()
        self.tls = context.wrap_bio(self.incoming, self.outgoing)
        self.has_ended = False
        """Whether the server has said that nothing follows."""
        self.taken = 0
        self._is_secured = False

    def continue_handshake(self) -> bytes:
        """Return what the peer sends next."""
        with suppress(ssl.SSLWantReadError):
            self.tls.do_handshake()
            self._is_secured = True
        return self.outgoing.read()

    def records(self, *contents: bytes) -> bytes:
        for content in contents:
            self.tls.write(content)
        return self.outgoing.read()

    def send(self, *contents: bytes) -> None:
        """Send each in records of its own, all at once."""
        self.sock.sendall(self.records(*contents))

    async def shake_hands(self, *first: bytes) -> None:
        self.sock.sendall(self.continue_handshake())
        while not self._is_secured:
            await trio.lowlevel.wait_readable(self.sock)
            self.incoming.write(self.sock.recv(1 << 16))
            data = self.continue_handshake()
            self.sock.sendall(data + self.records(*first) if self._is_secured else data)

    def receive(self, limit_bytes: int = 1 << 16) -> bytes:
        """Return the content of what has arrived. Raises SSLError, as for an alert."""
        with suppress(BlockingIOError):
            data = self.sock.recv(limit_bytes)
            self.taken += len(data)
            self.incoming.write(data)
        pieces: list[bytes] = []
        try:
            while piece := self.tls.read(RECORD_BYTES):
                pieces.append(piece)
            self.has_ended = True
        except ssl.SSLZeroReturnError:
            self.has_ended = True
        except ssl.SSLWantReadError:
            pass
        return b"".join(pieces)


class Watched:
    """A MemoryBIO that notes the most that was in it."""

    def __init__(self, buffer: ssl.MemoryBIO) -> None:
        self._buffer = buffer
        self.most = 0

    @property
    def pending(self) -> int:
        return self._buffer.pending

    def write(self, data: bytes) -> int:
        count = self._buffer.write(data)
        self.most = max(self.most, self._buffer.pending)
        return count

    def read(self) -> bytes:
        self.most = max(self.most, self._buffer.pending)
        return self._buffer.read()


class WatchedTls:
    """The OpenSSL of a connection, which counts writes. If it `fails`, it does so behind the first record of one."""

    def __init__(self, tls: ssl.SSLObject, *, fails: bool = False) -> None:
        self._tls = tls
        self._fails = fails
        self.writes = 0

    def write(self, data: bytes) -> int:
        self.writes += 1
        if not self._fails:
            return self._tls.write(data)
        self._tls.write(data[:RECORD_BYTES])
        error = ssl.SSLError(1, "no more")
        error.library, error.reason = "SSL", "NO_MORE"
        raise error

    def unwrap(self) -> None:
        self._tls.unwrap()


class TlsBench(Bench):
    """A poller with TLS connections."""

    def __init__(self, nursery: trio.Nursery, clock: Callable[[], float] | None = None) -> None:
        super().__init__(nursery, clock)
        self.transports: list[TlsTransport] = []
        self.outgoing: Any = ssl.MemoryBIO()
        """Of all connections, as in a server."""

    async def secured(
        self,
        context: ssl.SSLContext,
        *first: bytes,
        version: ssl.TLSVersion = ssl.TLSVersion.TLSv1_3,
        watch: bool = False,
        **settings: int,
    ) -> tuple[Connection, Peer]:
        """Return a connection after its handshake, and its peer. `first` is sent with the last bytes of that."""
        ours, theirs = socket.socketpair()
        ours.setblocking(False)
        peer = Peer(theirs, version)
        made: list[Secured] = []

        async def accept() -> None:
            made.append(await secure(ours, context, self.outgoing))

        async with trio.open_nursery() as nursery:
            nursery.start_soon(accept)
            await peer.shake_hands(*first)
        secured = made[0]
        if watch:
            pair: Any = Watched(secured.incoming), Watched(secured.outgoing)
            secured = Secured(secured.tls, pair[0], pair[1], secured.tickets)
        bounds = ConnectionSettings(1 << 23, max_unanswered=10, **settings)
        connection = Connection(self.handler, self.turn, self.nursery, HERE, HERE, bounds)
        transport = TlsTransport(self.poller, ours, connection, secured)
        self.transports.append(transport)
        self.poller.take_over(transport)
        return connection, peer

    def take_turn(self) -> None:
        self.poller._take_turn(self.poller._epoll.poll(0))

    def echo(self) -> None:
        self.handler.then = lambda connection, request: connection.answer(
            request, new_response(request, body=request.body)
        )


def bodies(data: bytes) -> list[bytes]:
    return [command.body for command in FrameDecoder().feed(data)]


@pytest.fixture
def bench(nursery: trio.Nursery) -> TlsBench:
    return TlsBench(nursery)


# -- what arrives ------------------------------------------------------------------------------------------------------


async def test_a_request_that_comes_with_the_end_of_the_handshake_is_handled_at_once(
    bench: TlsBench, context: ssl.SSLContext
) -> None:
    """Nothing would make the socket ready for it."""
    bench.echo()
    _, peer = await bench.secured(context, frame(b"first"), frame(b"second"))
    assert bench.handler.handled == [(0, b"first"), (0, b"second")]
    assert bodies(peer.receive()) == [b"first", b"second"]


async def test_half_a_record_that_comes_with_the_end_of_the_handshake_waits_for_the_other(
    bench: TlsBench, context: ssl.SSLContext
) -> None:
    connection, peer = await bench.secured(context)
    record = peer.records(frame(b"split"))
    for part in (record[:3], record[3:20], record[20:]):
        assert bench.handler.handled == []
        peer.sock.sendall(part)
        bench.take_turn()
    assert bench.handler.bodies == [b"split"]
    assert connection.is_open


@pytest.mark.parametrize("version", [ssl.TLSVersion.TLSv1_2, ssl.TLSVersion.TLSv1_3])
async def test_many_records_in_one_read_are_one_turn(
    bench: TlsBench, context: ssl.SSLContext, version: ssl.TLSVersion
) -> None:
    bench.echo()
    _, peer = await bench.secured(context, version=version)
    expected = [b"%d" % number for number in range(1500)]
    peer.send(*(frame(body) for body in expected))
    began = bench.handler.turns
    bench.turn.scheduler.turn_seconds = 1000
    bench.take_turn()
    assert bench.handler.handled == [(began, body) for body in expected]
    assert bodies(peer.receive(1 << 20)) == expected


async def test_a_frame_of_four_megabytes_passes_both_ways(bench: TlsBench, context: ssl.SSLContext) -> None:
    """OpenSSL's buffers keep the memory of the longest content for the life of the connection."""
    bench.echo()
    _, peer = await bench.secured(context, watch=True, high_water_bytes=1 << 23)
    body = bytes(range(256)) * (4 << 12)
    outgoing, decoder, received = memoryview(peer.records(frame(body))), FrameDecoder(), list[bytes]()

    def passed() -> bool:
        nonlocal outgoing
        with suppress(BlockingIOError):
            outgoing = outgoing[peer.sock.send(outgoing) :] if outgoing else outgoing
        received.extend(command.body for command in decoder.feed(peer.receive()))
        return bool(received)

    await run_for(bench, passed)
    assert received == [body]
    transport: Any = bench.transports[-1]
    assert transport._incoming.most <= RECORD_BYTES
    assert transport._outgoing.most <= PIECE_BYTES + PIECE_BYTES // RECORD_BYTES * RECORD_OVERHEAD_BYTES


async def test_a_connection_that_is_not_read_leaves_its_records_in_the_socket(
    bench: TlsBench, context: ssl.SSLContext
) -> None:
    connection, peer = await bench.secured(context)
    assert connection.transport is not None
    connection.transport.pause_reading()
    peer.send(frame(b"late"))
    bench.take_turn()
    assert bench.handler.handled == []
    connection.transport.resume_reading()
    bench.take_turn()
    assert bench.handler.bodies == [b"late"]


async def test_requests_that_a_long_turn_leaves_are_handled_in_slices(
    nursery: trio.Nursery, context: ssl.SSLContext
) -> None:
    now = [100.0]
    bench = TlsBench(nursery, lambda: now[0])

    def takes_long(*_: object) -> None:
        now[0] += 2 * bench.turn.scheduler.turn_seconds

    bench.handler.then = takes_long
    await bench.secured(context, *(frame(b"%d" % number) for number in range(4)))
    assert bench.handler.bodies == [b"0"]
    while len(bench.handler.handled) < 4:
        bench.turn.run_slice()
        bench.turn.end()
    assert bench.handler.bodies == [b"0", b"1", b"2", b"3"]


async def test_a_client_that_asks_one_thing_at_a_time_is_interactive(
    nursery: trio.Nursery, context: ssl.SSLContext
) -> None:
    bench = TlsBench(nursery, lambda: 0.0)  # on which every read is short, however busy the machine
    _, peer = await bench.secured(context)
    for _ in range(INTERACTIVE_READS):
        peer.send(frame(b"interactive"))
        bench.take_turn()
    assert bench.transports[-1].client.is_interactive
    peer.send(frame(b"interactive"))
    assert bench.poller.has_backlog()


async def test_bytes_are_counted_without_those_of_tls(bench: TlsBench, context: ssl.SSLContext) -> None:
    bench.echo()
    _, peer = await bench.secured(context, frame(b"x"))
    assert (bench.turn.received_requests, bench.turn.received_bytes) == (1, len(frame(b"x")))
    assert bench.turn.sent_bytes == len(peer.receive())


# -- what leaves -------------------------------------------------------------------------------------------------------


async def test_what_a_peer_does_not_read_leaves_in_order_when_it_does(bench: TlsBench, context: ssl.SSLContext) -> None:
    connection, peer = await bench.secured(context, high_water_bytes=500_000, low_water_bytes=1000)
    expected = [bytes([number]) * 400_000 for number in range(10)]
    for body in expected:
        assert connection.is_open
        connection._send(new_request(ECHO, body=body))
        bench.turn.end()
    assert connection.paused, "the socket took four megabytes"
    decoder, received = FrameDecoder(), list[bytes]()

    def read() -> bool:
        received.extend(command.body for command in decoder.feed(peer.receive()))
        return len(received) == len(expected)

    await run_for(bench, read)
    assert received == expected
    assert not connection.paused


@pytest.mark.parametrize("size", [1, RECORD_BYTES, RECORD_BYTES + 1, PIECE_BYTES, PIECE_BYTES + RECORD_BYTES + 1])
async def test_output_of_any_length_is_whole(bench: TlsBench, context: ssl.SSLContext, size: int) -> None:
    connection, peer = await bench.secured(context)
    assert connection.transport is not None
    data, received = bytes(number % 251 for number in range(size)), b""
    connection.transport.write(data)

    def read() -> bool:
        nonlocal received
        received += peer.receive()
        return len(received) == size

    await run_for(bench, read)
    assert received == data


async def test_a_response_is_encrypted_in_one_call(bench: TlsBench, context: ssl.SSLContext) -> None:
    connection, peer = await bench.secured(context)
    transport: Any = bench.transports[-1]
    transport._tls = WatchedTls(transport._tls)
    connection._send(new_request(ECHO, body=bytes(5 * RECORD_BYTES)))
    bench.turn.end()
    assert transport._tls.writes == 1
    assert bodies(peer.receive(1 << 20)) == [bytes(5 * RECORD_BYTES)]


async def test_nothing_follows_the_handshake_before_there_is_something_to_say(
    bench: TlsBench, context: ssl.SSLContext
) -> None:
    """A peer that only sends, and then closes, would leave session tickets unread. Its kernel would then reset the
    connection, and what it sent would be lost."""
    connection, peer = await bench.secured(context, frame(b"one way"))
    assert peer.receive() == b""
    assert peer.taken == 0
    peer.sock.close()
    await run_for(bench, lambda: not connection.is_open)
    assert bench.handler.bodies == [b"one way"]
    assert connection.close_reason == "closed by the peer"


async def test_session_tickets_come_with_the_first_response(bench: TlsBench, context: ssl.SSLContext) -> None:
    bench.echo()
    _, peer = await bench.secured(context, frame(b"ask"))
    assert bodies(peer.receive()) == [b"ask"]
    assert peer.tls.session is not None
    assert peer.tls.session.has_ticket


# -- how it ends -------------------------------------------------------------------------------------------------------


async def test_a_peer_that_hangs_up_without_a_word_has_closed(bench: TlsBench, context: ssl.SSLContext) -> None:
    connection, peer = await bench.secured(context)
    peer.sock.close()
    await run_for(bench, lambda: not connection.is_open)
    assert connection.close_reason == "closed by the peer"
    assert len(bench.poller) == 0


async def test_the_last_request_before_the_end_is_answered(bench: TlsBench, context: ssl.SSLContext) -> None:
    bench.echo()
    connection, peer = await bench.secured(context)
    last = peer.records(frame(b"last"))
    with suppress(ssl.SSLWantReadError):
        peer.tls.unwrap()
    peer.sock.sendall(last + peer.outgoing.read() + b"and what nobody may say now")
    bench.take_turn()
    assert (connection.is_open, connection.close_reason) == (False, "closed by the peer")
    assert bench.handler.bodies == [b"last"]
    assert bodies(peer.receive()) == [b"last"]


async def test_the_peer_is_told_when_the_server_ends(bench: TlsBench, context: ssl.SSLContext) -> None:
    connection, peer = await bench.secured(context)
    connection.close("stopped")
    assert peer.receive() == b""
    assert peer.has_ended
    assert peer.sock.recv(1) == b""


async def test_the_end_of_a_connection_is_no_part_of_output_that_waits(
    bench: TlsBench, context: ssl.SSLContext
) -> None:
    connection, peer = await bench.secured(context)
    assert connection.transport is not None
    connection.transport.write(bytes(8_000_000))
    connection.close("stopped")
    while data := peer.receive():
        assert not any(data)
    assert not peer.has_ended
    assert not peer.tls.pending()


async def test_garbage_costs_only_its_own_connection(bench: TlsBench, context: ssl.SSLContext) -> None:
    (bad, bad_peer), (good, good_peer) = await bench.secured(context), await bench.secured(context)
    bad_peer.sock.sendall(bad_peer.records(frame(b"before")) + b"GET / HTTP/1.1\r\n\r\n")
    good_peer.send(frame(b"good"))
    await run_for(bench, lambda: len(bench.handler.handled) == 2 and not bad.is_open)
    assert sorted(bench.handler.bodies) == [b"before", b"good"]
    assert str(bad.close_reason).startswith("read failed: what the peer sent is not TLS")
    assert good.close_reason == "stopped"
    with pytest.raises(ssl.SSLError, match="alert"):
        bad_peer.receive()


async def test_a_record_that_was_changed_on_its_way_ends_the_connection(
    bench: TlsBench, context: ssl.SSLContext
) -> None:
    connection, peer = await bench.secured(context)
    record = bytearray(peer.records(frame(b"changed")))
    record[-1] ^= 1
    peer.sock.sendall(record)
    bench.take_turn()
    assert bench.handler.handled == []
    assert "bad record mac" in str(connection.close_reason)


@pytest.mark.parametrize("waits", [False, True], ids=["nothing waits", "output waits"])
@pytest.mark.parametrize("how", ["read", "write", "end", "close"])
async def test_a_connection_that_ends_leaves_nothing_to_the_next_that_sends(
    bench: TlsBench, context: ssl.SSLContext, how: str, *, waits: bool
) -> None:
    """All connections of a server have one buffer behind OpenSSL."""
    bench.echo()
    bad, bad_peer = await bench.secured(context)
    transport: Any = bench.transports[-1]
    if waits:
        transport.write(bytes(1_000_000))
    if how == "read":
        bad_peer.sock.sendall(b"GET / HTTP/1.1\r\n\r\n")
        bench.take_turn()
    elif how == "write":
        transport._tls = WatchedTls(transport._tls, fails=True)
        transport.write(bytes(2 * RECORD_BYTES))
    elif how == "end":
        with suppress(ssl.SSLWantReadError):
            bad_peer.tls.unwrap()
        bad_peer.sock.sendall(bad_peer.outgoing.read())
        bench.take_turn()
    else:
        bad.close("stopped")
    assert not bad.is_open
    assert not bench.outgoing.pending
    _, peer = await bench.secured(context, frame(b"next"))
    assert bodies(peer.receive()) == [b"next"]


async def test_a_malformed_frame_ends_the_connection_after_the_requests_before_it(
    bench: TlsBench, context: ssl.SSLContext
) -> None:
    bench.echo()
    connection, peer = await bench.secured(context, frame(b"before") + b"\x7f\xff\xff\xff")
    assert str(connection.close_reason).startswith("malformed frame")
    assert bodies(peer.receive()) == [b"before"]


async def test_a_connection_that_comes_after_the_end_of_the_poller_is_closed(
    bench: TlsBench, context: ssl.SSLContext
) -> None:
    await run_for(bench, lambda: True)
    connection, _ = await bench.secured(context, frame(b"late"))
    assert connection.close_reason == "stopped"
    assert bench.handler.handled == []
    assert len(bench.poller) == 0


async def test_a_peer_that_is_refused_is_told_why(tmp_path: Path) -> None:
    authority = Authority(tmp_path)
    strict = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
    strict.load_cert_chain(*authority.issue("server"))
    strict.load_verify_locations(str(authority.certificate))
    strict.verify_mode = ssl.CERT_REQUIRED
    ours, theirs = socket.socketpair()
    ours.setblocking(False)
    peer, outgoing = Peer(theirs), ssl.MemoryBIO()
    async with trio.open_nursery() as nursery:
        nursery.start_soon(peer.shake_hands)
        with pytest.raises(HandshakeFailed, match="presented no certificate, and this side requires one"):
            await secure(ours, strict, outgoing)
    assert not outgoing.pending
    with pytest.raises(ssl.SSLError, match="CERTIFICATE_REQUIRED"):
        peer.receive()
    ours.close()


# -- peers of another make ---------------------------------------------------------------------------------------------


@asynccontextmanager
async def openssl_client(context: ssl.SSLContext, *options: str) -> AsyncIterator[trio.Process]:
    """A server that echoes, and `openssl s_client` connected to it."""

    async def tls_context() -> ssl.SSLContext:
        return context

    server = RemotingServer(ServerSettings(), Turn(), tls_mode="enforcing", tls_context=tls_context)
    table = ProcessorTable()
    table.register(ECHO, lambda connection, request: new_response(request, body=request.body))
    port = server.bind(0, table)
    command = ["openssl", "s_client", "-connect", f"127.0.0.1:{port}", "-msg", *options]
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        process = await trio.lowlevel.open_process(
            command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=subprocess.DEVNULL
        )
        try:
            yield process
        finally:
            process.kill()
            with trio.CancelScope(shield=True):
                await process.wait()
        nursery.cancel_scope.cancel()


class Said:
    """What the program has written so far."""

    def __init__(self, process: trio.Process) -> None:
        self._process = process
        self._text = b""

    async def says(self, text: bytes) -> None:
        """Wait for the text, behind the last one."""
        assert self._process.stdout is not None
        with trio.fail_after(30):
            while text not in self._text:
                data = await self._process.stdout.receive_some()
                assert data, self._text
                self._text += data
        self._text = self._text.partition(text)[2]


async def test_a_peer_may_update_its_keys(context: ssl.SSLContext) -> None:
    """OpenSSL puts its own new keys before the next response."""
    async with openssl_client(context, "-tls1_3") as process:
        assert process.stdin is not None
        said = Said(process)
        await said.says(b"Verify return code")
        await process.stdin.send_all(frame(b"before the update"))
        await said.says(b"before the update")
        await process.stdin.send_all(b"K\n")
        await said.says(b">>> TLS 1.3, Handshake [length 0005], KeyUpdate")
        await process.stdin.send_all(frame(b"behind the update"))
        await said.says(b"<<< TLS 1.3, Handshake [length 0005], KeyUpdate")
        await said.says(b"behind the update")


async def test_a_peer_may_not_negotiate_again(context: ssl.SSLContext) -> None:
    """What OpenSSL says to that leaves although nobody has anything to say."""
    async with openssl_client(context, "-tls1_2") as process:
        assert process.stdin is not None
        said = Said(process)
        await said.says(b"Verify return code")
        await process.stdin.send_all(b"R\n")
        await said.says(b"<<< TLS 1.2, Alert [length 0002], warning no_renegotiation")


async def test_a_peer_may_ask_for_short_records(context: ssl.SSLContext) -> None:
    """OpenSSL then takes one of them at a time."""
    async with openssl_client(context, "-maxfraglen", "512") as process:
        assert process.stdin is not None
        said = Said(process)
        await said.says(b"Verify return code")
        for size in (1000, 20_000):
            await process.stdin.send_all(frame(b"-" * size + b"the end of %d" % size))
            await said.says(b"the end of %d" % size)
