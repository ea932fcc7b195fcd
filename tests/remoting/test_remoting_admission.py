"""Who gets a connection: limits in all and per address, silent peers, and descriptors that connections never take."""

from __future__ import annotations

import resource
import socket
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager

import pytest
import structlog
import trio
import trio.testing

from triomq.protocol.address import HostPort
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import encode_frame
from triomq.remoting.admission import FEWEST_CONNECTIONS, Admission, AdmissionLimits, Place, address_group
from triomq.remoting.certificates import ServerCertificates
from triomq.remoting.client import open_client
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer
from triomq.remoting.tls import TlsSettings
from triomq.remoting.turn import Turn

ECHO = 1
LIMITS = AdmissionLimits(in_all=6, per_address=3, silent_seconds=20, idle_seconds=120)


class Peer:
    """A connection as the admission sees it."""

    def __init__(self, accepted: float = 0) -> None:
        self.has_spoken = False
        self.last_active = accepted
        self.reasons: list[str] = []

    def close(self, reason: str) -> None:
        self.reasons.append(reason)


def fill(admission: Admission, count: int, ip: str = "10.0.0.{}", *, spoken: bool = False) -> list[Peer]:
    """Admit `count` peers, each from another address."""
    peers = [Peer() for _ in range(count)]
    for number, peer in enumerate(peers):
        assert admission.enter(ip.format(number), peer, 0) is not None
        peer.has_spoken = spoken
    return peers


def test_one_address_gets_its_share_and_no_more() -> None:
    admission = Admission(LIMITS)
    places = [admission.enter("10.0.0.1", Peer(), 0) for _ in range(3)]
    for place in places:
        assert place is not None
        place.holder.has_spoken = True
    assert admission.enter("10.0.0.1", Peer(), 0) is None
    assert admission.enter("10.0.0.2", Peer(), 0) is not None
    assert places[0] is not None
    places[0].leave()
    places[0].leave()
    assert len(admission) == 3
    last = admission.enter("10.0.0.1", Peer(), 0)
    assert last is not None
    last.holder.has_spoken = True
    assert admission.enter("10.0.0.1", Peer(), 0) is None


def test_a_silent_one_makes_room_for_its_own_address_first() -> None:
    admission = Admission(LIMITS)
    other = fill(admission, 1)[0]
    same = [Peer() for _ in range(3)]
    for peer in same:
        admission.enter("10.0.0.9", peer, 0)
    assert admission.enter("10.0.0.9", Peer(), 0) is not None
    assert ([len(peer.reasons) for peer in same], other.reasons, len(admission)) == ([1, 0, 0], [], 4)


def test_the_oldest_silent_one_makes_room() -> None:
    admission = Admission(LIMITS)
    peers = fill(admission, 6)
    peers[0].has_spoken = True
    assert admission.enter("10.0.1.1", Peer(), 1) is not None
    assert [len(peer.reasons) for peer in peers] == [0, 1, 0, 0, 0, 0]
    assert len(admission) == 6


def test_who_has_spoken_is_never_sent_away_for_another() -> None:
    admission = Admission(LIMITS)
    peers = fill(admission, 6, spoken=True)
    assert admission.enter("10.0.1.1", Peer(), 1) is None
    assert all(peer.reasons == [] for peer in peers)


def test_a_silent_peer_is_closed_and_one_that_dribbles_later() -> None:
    admission = Admission(LIMITS)
    mute, dribbling, speaking = fill(admission, 3)
    dribbling.last_active = 1
    speaking.last_active, speaking.has_spoken = 1, True
    admission.sweep(20)
    assert (mute.reasons, len(admission)) == ([], 3)
    admission.sweep(20.1)
    assert (mute.reasons, len(admission)) == (["silent for 20 s"], 2)
    dribbling.last_active = 119
    admission.sweep(120)
    assert dribbling.reasons == []
    admission.sweep(120.1)
    assert (dribbling.reasons, speaking.reasons, len(admission)) == (["no whole frame in 120 s"], [], 1)


def test_a_jump_of_the_clock_makes_nobody_silent() -> None:
    admission = Admission(LIMITS)
    peer = fill(admission, 1)[0]
    peer.last_active += 1000  # the server shifts it
    admission.time_jumped(1000)
    admission.sweep(1010)
    assert peer.reasons == []
    admission.sweep(1020.1)
    assert peer.reasons == ["silent for 20 s"]


def test_a_peer_whose_first_byte_was_read_elsewhere_is_not_silent() -> None:
    admission = Admission(LIMITS)
    place = admission.enter("10.0.0.1", Peer(), 0)
    assert isinstance(place, Place)
    served = Peer(19)
    place.hand_over(served, was_heard=True)
    admission.sweep(30)
    assert served.reasons == []
    place.hand_over(served)
    admission.sweep(30)
    assert served.reasons == ["silent for 20 s"]


def test_a_network_of_one_ipv6_host_is_one_address() -> None:
    assert address_group("2001:db8:1:2::1") == address_group("2001:db8:1:2:ffff::9") == "2001:db8:1:2::/64"
    assert address_group("2001:db8:1:3::1") != address_group("2001:db8:1:2::1")
    assert address_group("fe80::1%eth0") == "fe80::/64"
    assert address_group("::ffff:10.0.0.1") == "10.0.0.1"
    assert (address_group("10.0.0.1"), address_group("not:an:address")) == ("10.0.0.1", "not:an:address")


def test_refusals_are_one_line_a_sweep() -> None:
    admission = Admission(LIMITS)
    for _ in range(1000):
        place = admission.enter("10.0.0.1", Peer(), 0)
        if place is not None:
            place.holder.has_spoken = True
    with structlog.testing.capture_logs() as logs:
        admission.sweep(1)
        admission.sweep(2)
    assert [(entry["above_limit_per_address"], entry["last_remote"]) for entry in logs] == [(997, "10.0.0.1")]


@pytest.mark.parametrize(
    ("open_files", "in_all", "per_address", "reserved_from"),
    [
        (1 << 20, 50_000, 25_000, (1 << 20) - 2500),
        (20_000, 15_000, 7500, 17_500),
        (400, 200, 100, 300),
        (10, FEWEST_CONNECTIONS, FEWEST_CONNECTIONS, 8),
        (resource.RLIM_INFINITY, 50_000, 25_000, None),
    ],
)
def test_connections_leave_descriptors_for_the_files(
    open_files: int, in_all: int, per_address: int, reserved_from: int | None
) -> None:
    limits = AdmissionLimits.of(ServerSettings(), open_files)
    assert (limits.in_all, limits.per_address, limits.reserved_from) == (in_all, per_address, reserved_from)


def test_the_keys_set_the_limits() -> None:
    limits = AdmissionLimits.of(ServerSettings(max_connections=5, max_connections_per_address=2), 1 << 20)
    assert (limits.in_all, limits.per_address) == (5, 2)
    assert AdmissionLimits.of(ServerSettings(max_connections=5, max_connections_per_address=9), 1000).per_address == 5
    assert AdmissionLimits.of(ServerSettings(reserved_descriptors=100), 1000).in_all == 900


def test_a_reserved_descriptor_is_given_back_and_the_oldest_silent_one_leaves() -> None:
    admission = Admission(AdmissionLimits(6, 3, silent_seconds=20, idle_seconds=120, reserved_from=300))
    peers = fill(admission, 2)
    assert admission.enter("10.0.0.9", Peer(), 0, 300) is None
    assert [len(peer.reasons) for peer in peers] == [1, 0]
    assert admission.enter("10.0.0.9", Peer(), 0, 299) is not None


# With sockets.


def echo(_: Connection, request: RemotingCommand) -> RemotingCommand:
    return new_response(request, body=request.body)


@asynccontextmanager
async def serving(tls_mode: str, **settings: int) -> AsyncIterator[tuple[RemotingServer, int]]:
    tls = TlsSettings.from_values({"tls.server.mode": tls_mode})
    certificates = ServerCertificates(tls)
    server = RemotingServer(ServerSettings(**settings), Turn(), tls_mode=tls.mode, tls_context=certificates.context)
    table = ProcessorTable()
    table.register(ECHO, echo)
    port = server.bind(0, table)
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        yield server, port
        nursery.cancel_scope.cancel()


async def until(condition: Callable[[], bool]) -> None:
    with trio.fail_after(10):
        while not condition():
            await trio.lowlevel.checkpoint()


def is_closed(sock: socket.socket) -> bool:
    """Whether the other side has closed the connection."""
    sock.setblocking(False)
    try:
        return sock.recv(1) == b""
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


@pytest.mark.parametrize("tls_mode", ["disabled", "permissive", "enforcing"])
async def test_silent_connections_count_from_accept_and_keep_nobody_out(tls_mode: str) -> None:
    async with serving(tls_mode, max_connections=10, max_connections_per_address=10) as (server, port):
        silent = [socket.create_connection(("127.0.0.1", port)) for _ in range(50)]
        await until(lambda: sum(map(is_closed, silent)) == 40)
        assert len(server._admission) == 10
        if tls_mode != "enforcing":
            async with open_client() as client:
                for _ in range(3):
                    answer = await client.invoke(f"127.0.0.1:{port}", new_request(ECHO, body=b"hello"))
                    assert answer.body == b"hello"
            await until(lambda: len(server.connections) <= 9)
        for sock in silent:
            sock.close()
        await until(lambda: len(server._admission) == 0)


@pytest.mark.parametrize("tls_mode", ["disabled", "permissive"])
async def test_one_address_does_not_take_all_connections(tls_mode: str) -> None:
    """Connections that speak are never closed for another, so the address has a share of its own."""
    frame = encode_frame(new_request(ECHO, body=b"x"))
    async with serving(tls_mode, max_connections=10, max_connections_per_address=5) as (server, port):
        speaking = [socket.create_connection(("127.0.0.1", port)) for _ in range(5)]
        for sock in speaking:
            sock.sendall(frame)
        await until(lambda: sum(connection.has_spoken for connection in server.connections) == 5)
        late = socket.create_connection(("127.0.0.1", port))
        await until(lambda: is_closed(late))
        assert len(server.connections) == 5
        for sock in (*speaking, late):
            sock.close()


@pytest.mark.parametrize("tls_mode", ["disabled", "permissive"])
async def test_a_peer_that_says_nothing_is_closed(tls_mode: str, mock_clock: trio.testing.MockClock) -> None:
    async with serving(tls_mode) as (server, port):
        silent, half = (socket.create_connection(("127.0.0.1", port)) for _ in range(2))
        await until(lambda: len(server._admission) == 2)
        for second in range(20):
            await trio.testing.wait_all_tasks_blocked(0.001)
            mock_clock.jump(1)
            if second == 10:
                half.sendall(b"\0\0")
        assert not is_closed(silent)
        for _ in range(3):
            await trio.testing.wait_all_tasks_blocked(0.001)
            mock_clock.jump(1)
        await until(lambda: is_closed(silent))
        assert not is_closed(half)
        for _ in range(100):
            await trio.testing.wait_all_tasks_blocked(0.001)
            mock_clock.jump(1)
        await until(lambda: is_closed(half))
        assert len(server._admission) == 0
        silent.close()
        half.close()


async def test_a_tls_handshake_that_never_goes_on_makes_room(mock_clock: trio.testing.MockClock) -> None:
    async with serving("permissive", max_connections=1) as (server, port):
        stuck = socket.create_connection(("127.0.0.1", port))
        stuck.sendall(b"\x16\x03\x01")
        await until(lambda: len(server._admission) == 1)
        await trio.testing.wait_all_tasks_blocked(0.01)
        next_one = socket.create_connection(("127.0.0.1", port))
        await until(lambda: is_closed(stuck))
        assert len(server._admission) == 1
        stuck.close()
        next_one.close()


async def test_a_stream_that_finds_no_place_is_closed(autojump_clock: trio.testing.MockClock) -> None:
    here = HostPort("10.0.0.1", 1)
    async with serving("disabled", max_connections=4, max_connections_per_address=1) as (server, _):
        ours = []
        async with trio.open_nursery() as nursery:
            for _ in range(2):
                stream, theirs = trio.testing.memory_stream_pair()
                ours.append(stream)
                nursery.start_soon(server.serve_stream, theirs, ProcessorTable(), here, here)
                await stream.send_all(encode_frame(new_request(ECHO)))
                await trio.testing.wait_all_tasks_blocked()
            began = trio.current_time()
            assert await ours[1].receive_some(1) == b""
            assert (trio.current_time(), len(server.connections)) == (began, 1)
            nursery.cancel_scope.cancel()
