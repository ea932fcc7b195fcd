"""Bodies that are little more than a list of names."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body


class TopicList(Body, frozen=True, kw_only=True):
    """Topic names. `broker_addr` ("ip:port") only in the answer of GET_SYSTEM_TOPIC_LIST_FROM_NS."""

    broker_addr: str | None = None
    topic_list: list[str] = []


class GroupList(Body, frozen=True, kw_only=True):
    """Consumer groups of a topic."""

    group_list: list[str] = []


class GetConsumerListByGroupResponseBody(Body, frozen=True, kw_only=True):
    """Client ids of a group's members."""

    consumer_id_list: list[str] = []
