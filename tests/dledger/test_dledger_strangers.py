"""The port of dLegerPeers: whom it serves, and what peers can do to a group there who mean it no good."""

from __future__ import annotations

import socket
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
from member_lab import GROUP, MemberLab, ask, group_client, run_lab
from trio.testing import MockClock

from triomq.broker.settings.group import GroupSettings
from triomq.dledger.member.hosts import AGAIN_SECONDS, PAUSE_SECONDS, MemberHosts, PeerAddresses
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import GetRequest, GetResponse, MetadataRequest, MetadataResponse
from triomq.protocol.address import HostPort
from triomq.protocol.settings import SettingError
from triomq.remoting.client import RemotingClient
from triomq.remoting.config import ServerSettings
from triomq.remoting.errors import RemotingError
from triomq.remoting.processor_table import ProcessorTable
from triomq.remoting.server import STRANGER, RemotingServer
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


async def test_a_refused_socket_is_closed_when_it_is_accepted() -> None:
    server = RemotingServer(
        ServerSettings(bind_address="127.0.0.1"), Turn(), may_connect=lambda remote, local: remote.ip != "127.0.0.1"
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
