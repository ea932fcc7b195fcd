"""Brokers that were registered and are not now, or displace each other: QUERY_DEPARTED_BROKERS (TrioMQ only)."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Int64


class DepartedBroker(Body, frozen=True, kw_only=True):
    """A broker that a NameServer knew within a day. `seen_ms_ago`: how long ago it registered last. `orderly`: it
    unregistered, as one does that is stopped. `topics`: some of its topics that have no route without it."""

    broker_addr: str = ""
    broker_id: Int64 = 0
    broker_name: str = ""
    cluster: str = ""
    orderly: bool = False
    seen_ms_ago: Int64 = 0
    topics: list[str] = []


class ContestedBroker(Body, frozen=True, kw_only=True):
    """A broker name and id that several addresses take from each other, as two masters do that were given one name."""

    broker_addrs: list[str] = []
    broker_id: Int64 = 0
    broker_name: str = ""


class QueryDepartedBrokersResponseBody(Body, frozen=True, kw_only=True):
    """QUERY_DEPARTED_BROKERS response; those that left first come first. NameServers of older builds leave out
    `contested`."""

    brokers: list[DepartedBroker] = []
    contested: list[ContestedBroker] = []
