"""What `python -m triomq.dledger members` asks: the members' own ports, and the brokers that are members."""

from __future__ import annotations

from collections.abc import Iterable
from contextlib import suppress

import trio

from triomq.dledger import status
from triomq.dledger.member.asking import CALL_SECONDS
from triomq.dledger.member.client import GroupClient, GroupFailed
from triomq.dledger.status import Status
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.route import ClusterInfo
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.errors import ProtocolError
from triomq.remoting.client import RemotingClient
from triomq.remoting.errors import RemotingError


async def statuses(
    client: RemotingClient,
    group: str,
    members: dict[str, str],
    brokers: Iterable[str],
    brokers_client: RemotingClient,
) -> list[Status]:
    """Return the status of each member. `brokers` are addresses, of which some may be of other groups; they are called
    with `brokers_client`, since their ports have other TLS settings."""
    leaders: dict[str, str | None] = {}
    infos: dict[str, dict[str, str]] = {}
    asking = GroupClient(client, group, members)

    async def ask_member(member: str) -> None:
        with suppress(GroupFailed):  # shown as not reachable
            leaders[member] = (await asking.metadata(member)).leader_id

    async def ask_broker(address: str) -> None:
        body = await _answer(brokers_client, address, RequestCode.GET_BROKER_RUNTIME_INFO)
        if body is not None:
            infos[address] = dict(KVTable.decode(body).table)

    async with trio.open_nursery() as nursery:
        for member in members:
            nursery.start_soon(ask_member, member)
        for address in brokers:
            nursery.start_soon(ask_broker, address)
    return status.statuses(members, status.groups_of(infos).get(group, {}), leaders)


async def brokers_at(client: RemotingClient, name_servers: Iterable[str]) -> list[str]:
    """Return the addresses of all brokers that a NameServer knows; of the first one that responds."""
    for address in name_servers:
        body = await _answer(client, address, RequestCode.GET_BROKER_CLUSTER_INFO)
        if body is not None:
            table = ClusterInfo.decode(body).broker_addr_table
            return sorted({one for data in table.values() for one in data.broker_addrs.values()})
    return []


async def _answer(client: RemotingClient, address: str, code: RequestCode) -> bytes | None:
    """Return the body of a response; None if there is none, or it is a refusal."""
    try:
        response = await client.invoke(address, new_request(code), CALL_SECONDS)
    except (RemotingError, ProtocolError):
        return None
    return bytes(response.body) if response.code == ResponseCode.SUCCESS else None
