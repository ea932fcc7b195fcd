"""The port of dLegerPeers: whom it serves, and what peers can do to a group there who mean it no good."""

from __future__ import annotations

import socket
from collections.abc import Awaitable, Callable
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
from member_lab import GROUP, PORT, MemberLab, ask, group_client, reports_of, run_lab
from trio.testing import MockClock

from triomq.broker.settings.group import GroupSettings
from triomq.dledger.member.calls import Calls
from triomq.dledger.member.guard import FIRST_FRAME_SECONDS, LEAST_PLACES, PLACES_OF_MEMBER, SILENT_SECONDS, PortGuard
from triomq.dledger.member.hosts import AGAIN_SECONDS, PAUSE_SECONDS, MemberHosts, PeerAddresses
from triomq.dledger.member.requests import FAR
from triomq.dledger.member.sense import LARGEST, LARGEST_INDEX, MAX_FIRST_TERM, MAX_TERMS_AHEAD, furthest_term
from triomq.dledger.rules.actions import Role, Send
from triomq.dledger.rules.core import Setup
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import (
    REQUEST_CODES,
    Entry,
    GetRequest,
    GetResponse,
    HeartBeatRequest,
    MetadataRequest,
    MetadataResponse,
    PushRequest,
    Request,
    Response,
    TransferRequest,
    VoteRequest,
    VoteResponse,
)
from triomq.protocol.address import HostPort
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import encode_frame
from triomq.protocol.settings import SettingError
from triomq.remoting import network
from triomq.remoting.admission import STRANGER
from triomq.remoting.client import RemotingClient
from triomq.remoting.config import ServerSettings
from triomq.remoting.connection import Connection
from triomq.remoting.errors import RemotingError
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import RemotingServer
from triomq.remoting.turn import Turn
from triomq.store.config import StoreSettings

HERE = HostPort("10.0.0.1", 40911)


def from_host(ip: str, port: int = 50000) -> HostPort:
    return HostPort(ip, port)


class Names(trio.abc.HostnameResolver):
    """A resolver that knows these names; None: it is silent."""

    def __init__(self, **known: str | None) -> None:
        self.known = known
        self.asked = 0

    async def getaddrinfo(self, host: Any, port: Any, family: int = 0, *rest: int) -> Any:
        self.asked += 1
        await trio.lowlevel.checkpoint()
        ip = self.known.get(host if isinstance(host, str) else host.decode(), "")
        if ip is None:
            await trio.sleep_forever()
        if not ip:
            raise socket.gaierror(socket.EAI_NONAME, "unknown")
        return [(socket.AF_INET, socket.SOCK_STREAM, 6, "", (ip, 0))]

    async def getnameinfo(self, *arguments: Any) -> Any:
        raise NotImplementedError


# -- whose connections are served --------------------------------------------------------------------------------------


def test_a_group_elects_and_serves_its_own_hosts_and_no_stranger(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        with structlog.testing.capture_logs() as logs:
            leader = await lab.start()
            request = MetadataRequest(group=GROUP, remote_id=leader.name).encode()
            for _ in range(50):
                with pytest.raises(RemotingError):
                    await ask(client, lab.addresses[leader.name], codes.METADATA, request)
        assert leader.member.refused_connections == {STRANGER: 50}
        refused = [entry for entry in logs if entry["event"] == "connection to the port of dLegerPeers refused"]
        assert 0 < len(refused) < 10, "strangers cannot fill the log"
        assert refused[0]["remote"].startswith(f"{lab.stranger.ip}:") and "dLegerPeerAddresses" in refused[0]["reason"]

    run_lab(tmp_path, scenario, addresses=PeerAddresses())


@pytest.mark.parametrize("allowed", ["*", "10.0.0.4", "192.168.0.1, 10.0.0.0/24"])
def test_an_address_that_is_allowed_is_served_as_a_members_host_is(tmp_path: Path, allowed: str) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        assert lab.stranger.ip == "10.0.0.4"
        leader = await lab.start()
        request = MetadataRequest(group=GROUP, remote_id=leader.name)
        found = await ask(client, lab.addresses[leader.name], codes.METADATA, request.encode())
        assert MetadataResponse.decode(found.body).leader_id == leader.name
        assert not leader.member.refused_connections

    run_lab(tmp_path, scenario, addresses=PeerAddresses(allowed))


@pytest.mark.parametrize(
    ("ip", "local", "is_served"),
    [
        ("10.0.0.2", "10.0.0.1", True),
        ("10.0.0.22", "10.0.0.1", False),
        ("::ffff:10.0.0.2", "10.0.0.1", True),
        ("::ffff:10.0.0.9", "10.0.0.1", False),
        ("fd00::3", "fd00::1", True),
        ("fd00::33", "fd00::1", False),
        ("10.0.0.4", "10.0.0.1", True),
        ("127.0.0.1", "127.0.0.1", True),
        ("127.0.0.7", "10.0.0.1", True),
        ("::1", "::1", True),
        ("192.168.5.5", "192.168.5.5", True),  # this machine, by another of its addresses
        ("192.168.5.6", "192.168.5.5", False),
    ],
)
async def test_the_source_address_of_a_connection_decides(ip: str, local: str, is_served: bool) -> None:
    members = ["10.0.0.1:40911", "10.0.0.2:40911", "[fd00:0::3]:40911", "[::ffff:10.0.0.4]:40911"]
    assert MemberHosts(members, PeerAddresses()).may_connect(from_host(ip), from_host(local)) is is_served


async def test_a_member_whose_name_gets_another_address_is_served_there_soon(autojump_clock: MockClock) -> None:
    names = Names(one="10.0.0.1", two="10.0.0.2")
    trio.socket.set_custom_hostname_resolver(names)
    hosts = MemberHosts(["one:40911", "two:40911"], PeerAddresses())
    assert not hosts.may_connect(from_host("10.0.0.2"), HERE), "no name is resolved yet"
    async with trio.open_nursery() as nursery:
        await nursery.start(hosts.run)
        assert hosts.may_connect(from_host("10.0.0.2"), HERE)
        names.known["two"] = "10.0.0.7"
        await trio.sleep(PAUSE_SECONDS + 0.1)
        began = trio.current_time()
        while not hosts.may_connect(from_host("10.0.0.7"), HERE):  # noqa: ASYNC110 (as a member that tries again)
            await trio.sleep(0.2)
        assert trio.current_time() - began < 2 * PAUSE_SECONDS + 0.5
        assert not hosts.may_connect(from_host("10.0.0.2"), HERE), "what a name does not mean any more is a stranger's"
        names.known["one"] = "10.0.0.8"
        await trio.sleep(AGAIN_SECONDS + PAUSE_SECONDS)
        assert hosts.may_connect(from_host("10.0.0.8"), HERE), "nobody had to be refused for it"
        asked = names.asked
        for _ in range(1000):
            hosts.may_connect(from_host("10.0.0.66"), HERE)
            await trio.sleep(0.001)
        assert names.asked - asked <= 2 * (1 + 1 / PAUSE_SECONDS), "strangers do not make the resolver busy"
        nursery.cancel_scope.cancel()


async def test_a_resolver_that_is_silent_or_forgets_costs_no_member_its_place(autojump_clock: MockClock) -> None:
    names = Names(one="10.0.0.1", two="10.0.0.2")
    trio.socket.set_custom_hostname_resolver(names)
    hosts = MemberHosts(["one:40911", "two:40911"], PeerAddresses())
    await hosts.resolve()
    names.known.update(one=None, two="")
    began = trio.current_time()
    await hosts.resolve()
    assert trio.current_time() - began < 5
    assert hosts.may_connect(from_host("10.0.0.1"), HERE)
    assert hosts.may_connect(from_host("10.0.0.2"), HERE)


class Closed(PortGuard):
    """Lets nobody in."""

    def may_connect(self, remote: HostPort, local: HostPort) -> bool:
        return False


async def test_a_refused_socket_is_closed_when_it_is_accepted() -> None:
    server = RemotingServer(
        ServerSettings(bind_address="127.0.0.1"), Turn(), guard=Closed({"n0": "10.0.0.1:1"}, PeerAddresses())
    )
    port = server.bind(0, ProcessorTable())
    async with trio.open_nursery() as nursery:
        await nursery.start(server.serve)
        with trio.fail_after(10):
            stream = await trio.open_tcp_stream("127.0.0.1", port)
            async with stream:
                assert await stream.receive_some() == b""
        assert server.refused_connections == {STRANGER: 1}
        assert not server.connections
        nursery.cancel_scope.cancel()


@pytest.mark.parametrize("text", ["10.0.0.0/33", "n1.example", "10.0.0.1;10.0.0.2"])
def test_addresses_that_are_none_are_refused_with_their_key(text: str) -> None:
    store = StoreSettings(
        dleger_group="G", dleger_self_id="n0", dleger_peers="n0-10.0.0.1:40911", dleger_peer_addresses=text
    )
    with pytest.raises(SettingError, match=r"dLegerPeerAddresses.*separated by commas"):
        GroupSettings.of(store)


# -- what they can ask -------------------------------------------------------------------------------------------------


def test_the_port_of_a_broker_gives_no_message_to_anybody(tmp_path: Path) -> None:
    """Messages are read at the broker's own port, where accounts count."""

    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        leader = await lab.start()
        leader.member.propose("t", lambda term: leader.ledger.append(term, [b"secret"]))
        await lab.agree()
        request = GetRequest(begin_index=0, group=GROUP, remote_id=leader.name).encode()
        answer = await ask(client, lab.addresses[leader.name], codes.GET, request)
        assert GetRequest.decode(answer.body).code == codes.UNSUPPORTED
        assert GetResponse.decode(answer.body).entries == []

    run_lab(tmp_path, scenario, serves_clients=False)


def test_the_port_of_a_member_without_a_broker_gives_entries(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        await lab.start()
        group = group_client(lab, client)
        assert (await group.get(await group.append(b"one"))).body == b"one"

    run_lab(tmp_path, scenario)


OVER_WIRE: dict[str, Any] = {"group": GROUP, "leader_id": "n1", "local_id": "n1", "remote_id": "n0"}


@pytest.mark.parametrize("kind", [VoteRequest, HeartBeatRequest, PushRequest])
@pytest.mark.parametrize("term", [MAX_TERMS_AHEAD + 100, 1 << 40, (1 << 62) - 1])
def test_a_term_that_is_far_ahead_changes_nothing(tmp_path: Path, kind: type[Request], term: int) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        leader = await lab.start()
        index = await group_client(lab, client).append(b"one")
        before = leader.member.term
        with structlog.testing.capture_logs() as logs:
            for node in lab.running():
                other = next(name for name in lab.nodes if name != node.name)
                request = kind(
                    **{**OVER_WIRE, "remote_id": node.name, "leader_id": other, "local_id": other}, term=term
                )
                answer = await ask(client, lab.addresses[node.name], REQUEST_CODES[kind], request.encode())
                assert answer.code == ResponseCode.SYSTEM_ERROR
                assert f"term {term} is more than {before + MAX_TERMS_AHEAD}" in str(answer.remark)
        assert [entry["event"] for entry in logs].count(FAR) == len(lab.nodes)
        assert {node.member.term for node in lab.running()} == {before}
        assert leader.member.role is Role.LEADER
        assert await group_client(lab, client).append(b"two") == index + 1

    run_lab(tmp_path, scenario)


def test_a_term_that_a_member_may_have_missed_is_believed(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        leader = await lab.start()
        await group_client(lab, client).append(b"one")
        name = leader.name
        other = next(node for node in lab.running() if node is not leader).name
        term = leader.member.term + MAX_TERMS_AHEAD
        request = HeartBeatRequest(group=GROUP, leader_id=other, local_id=other, remote_id=name, term=term)
        await ask(client, lab.addresses[name], codes.HEART_BEAT, request.encode())
        assert leader.member.term == term

    run_lab(tmp_path, scenario)


def test_a_member_without_a_term_takes_that_of_its_group_and_none_that_leaves_no_room() -> None:
    assert furthest_term(0, -1) == MAX_FIRST_TERM < LARGEST // 1024
    assert furthest_term(0, 5) == furthest_term(0, 0) == MAX_TERMS_AHEAD
    assert furthest_term(7, -1) == 7 + MAX_TERMS_AHEAD


def test_an_answer_with_a_term_that_is_far_ahead_is_none(tmp_path: Path) -> None:
    """It would depose a leader."""

    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        def answer(connection: Connection, request: RemotingCommand) -> RemotingCommand:
            return new_response(request, codes.SUCCESS, body=VoteResponse(term=terms.pop()).encode())

        table = ProcessorTable()
        table.register(codes.VOTE, answer)
        server = RemotingServer(ServerSettings(), Turn())
        with lab.nodes["n1"].host.entered():
            server.bind(PORT, table)
            await lab.nursery.start(server.serve)
        terms = [1 << 62, 1001, 1000, 3]
        found: list[Response | None] = []
        calls = Calls(client, Setup(GROUP, "n0", lab.addresses), lambda call, one: found.append(one), lambda: 1000)
        for at in range(4):
            calls.send(Send(at, "n1", VoteRequest()), lab.nursery)
            await trio.sleep(1)
        assert [one.term if one is not None else None for one in found] == [3, 1000, None, None]
        lab.nursery.cancel_scope.cancel()

    run_lab(tmp_path, scenario)


def pushed(**changes: Any) -> bytes:
    entry = Entry(**{"body": b"x", "size": 49, "index": 0, "pos": 0, "term": 1, **changes})
    return PushRequest(**OVER_WIRE, term=1, count=1, entry=entry).encode()


@pytest.mark.parametrize(
    ("code", "body"),
    [
        (codes.VOTE, VoteRequest(**OVER_WIRE, term=-2).encode()),
        (codes.VOTE, VoteRequest(**OVER_WIRE, term=1, ledger_end_index=1 << 57).encode()),
        (codes.VOTE, VoteRequest(**OVER_WIRE, term=1, ledger_end_term=1 << 62).encode()),
        (codes.VOTE, b'{"term":1.5}'),
        (codes.VOTE, b'{"term":1e400}'),
        (codes.VOTE, b'{"term":"NaN"}'),
        (codes.VOTE, b'{"term":%d}' % (1 << 63)),
        (codes.VOTE, b'{"term":-%d}' % (1 << 64)),
        (codes.VOTE, b'{"term":%s}' % (b"9" * 5000)),
        (codes.VOTE, b'{"term":[1]}'),
        (codes.VOTE, b"\xff\xfe\x00"),
        (codes.VOTE, b""),
        (codes.VOTE, b"[" * 100_000),
        (codes.HEART_BEAT, b"{" * 100_000),
        (codes.PUSH, pushed(index=1 << 57)),
        (codes.PUSH, pushed(index=-1)),
        (codes.PUSH, pushed(pos=1 << 62)),
        (codes.PUSH, pushed(term=1 << 62)),
        (codes.PUSH, pushed(size=1 << 31)),
        (codes.PUSH, PushRequest(**OVER_WIRE, term=1, commit_index=1 << 57, type="COMMIT").encode()),
        (codes.LEADERSHIP_TRANSFER, TransferRequest(**OVER_WIRE, take_leadership_ledger_index=1 << 57).encode()),
        (codes.GET, GetRequest(group=GROUP, remote_id="n0", begin_index=1 << 57).encode()),
    ],
)
def test_numbers_that_no_file_holds_and_broken_texts_are_refused(tmp_path: Path, code: int, body: bytes) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        leader = await lab.start()
        term = leader.member.term
        answer = await ask(client, lab.addresses["n0"], code, body)
        assert answer.code == ResponseCode.SYSTEM_ERROR, answer.remark
        await group_client(lab, client).append(b"one")
        assert {node.member.term for node in lab.running()} == {term}

    run_lab(tmp_path, scenario)


def test_the_largest_index_and_position_that_are_taken_cost_no_member_its_life(tmp_path: Path) -> None:
    """A program on a member's host may speak as the leader; the member refuses, or has them and continues."""

    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        leader = await lab.start()
        await group_client(lab, client).append(b"one")
        await lab.agree()
        follower = next(node for node in lab.running() if node is not leader)
        file_bytes = lab.options.file_bytes
        for pos in (LARGEST // file_bytes * file_bytes, 0):
            entry = Entry(body=b"x", size=49, index=LARGEST_INDEX, pos=pos, term=leader.member.term)
            over_wire = {**OVER_WIRE, "leader_id": leader.name, "local_id": leader.name, "remote_id": follower.name}
            request = PushRequest(**over_wire, term=leader.member.term, count=1, entry=entry, type="TRUNCATE")
            answer = await ask(client, lab.addresses[follower.name], codes.PUSH, request.encode())
            assert answer.code == codes.SUCCESS
        await group_client(lab, client).append(b"two")
        await lab.agree()
        assert [reports_of(node).errors for node in lab.running()] == [[], [], []]

    run_lab(tmp_path, scenario)


# -- how many there are, and how slow they are -------------------------------------------------------------------------


async def connected(lab: MemberLab, name: str) -> trio.abc.Stream:
    host, _, port = lab.addresses[name].rpartition(":")
    return await network.connect(host, int(port))


def test_a_flood_of_connections_that_speak_keeps_no_member_out(tmp_path: Path) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        leader = await lab.start()
        await lab.agree()
        frame = encode_frame(new_request(codes.METADATA, body=MetadataRequest(group=GROUP, remote_id="n0").encode()))
        streams = []
        for _ in range(600):
            stream = await connected(lab, leader.name)
            await stream.send_all(frame)
            await stream.receive_some()
            streams.append(stream)
        assert 100 < leader.member.connections <= LEAST_PLACES
        ends = 0
        for stream in streams[:300]:
            with trio.move_on_after(1):
                ends += await stream.receive_some() == b""
        assert ends == 300, "the oldest made room"
        term = leader.member.term
        await group_client(lab, client).append(b"one")
        others = [node for node in lab.running() if node is not leader]
        for node in others:  # its connections are new ones then
            await node.kill()
            await node.start()
            await trio.sleep(5)
        await lab.agree()
        assert (leader.member.term, leader.member.role) == (term, Role.LEADER)

    run_lab(tmp_path, scenario)


@pytest.mark.parametrize(
    ("first", "again", "seconds"),
    [
        (b"", b"", SILENT_SECONDS + 2),
        (b"\0\0\1\0", b"x", FIRST_FRAME_SECONDS + 2),
        (b"\0\0", b"", FIRST_FRAME_SECONDS + 2),
        (b"\x7f\xff\xff\xff", b"", 1),
        (b"\xff\xff\xff\xff", b"", 1),
    ],
)
def test_a_frame_that_does_not_come_and_one_that_is_too_long_end_their_connection(
    tmp_path: Path, first: bytes, again: bytes, seconds: float
) -> None:
    async def scenario(lab: MemberLab, client: RemotingClient) -> None:
        await lab.nodes["n0"].start()
        stream = await connected(lab, "n0")

        async def send() -> None:
            await stream.send_all(first)
            while again:
                await trio.sleep(0.5)
                await stream.send_all(again)

        async with trio.open_nursery() as nursery:
            nursery.start_soon(ignoring_its_end, send)
            with trio.fail_after(seconds):
                with suppress(trio.BrokenResourceError):
                    assert await stream.receive_some() == b""
            nursery.cancel_scope.cancel()

    run_lab(tmp_path, scenario)


async def ignoring_its_end(send: Callable[[], Awaitable[None]]) -> None:
    with suppress(trio.BrokenResourceError, trio.ClosedResourceError):
        await send()


class Spoken:
    """A connection as the guard sees it."""

    is_open = True


def test_the_first_connections_of_a_member_keep_their_places_and_give_them_back() -> None:
    guard = PortGuard({"n0": "10.0.0.1:1", "n1": "10.0.0.2:1"}, PeerAddresses())
    first: list[Any] = [Spoken() for _ in range(PLACES_OF_MEMBER + 1)]
    for connection in first:
        guard.spoke_as(connection, "n1")
        guard.spoke_as(connection, "n1")
    assert [guard.keeps_place(connection) for connection in first] == [True] * PLACES_OF_MEMBER + [False]
    stranger: Any = Spoken()
    guard.spoke_as(stranger, "n7")
    assert not guard.keeps_place(stranger)
    guard.closed(first[0])
    guard.closed(first[0])
    guard.spoke_as(first[-1], "n1")
    assert guard.keeps_place(first[-1]) and not guard.keeps_place(first[0])
