"""Bodies that list names of topics, groups or clients."""

from __future__ import annotations

from triomq.protocol.bodies.base import Body


class TopicList(Body, frozen=True, kw_only=True):
    """Topic names. Only responses to GET_SYSTEM_TOPIC_LIST_FROM_NS have a `broker_addr` ("ip:port")."""

    broker_addr: str | None = None
    topic_list: list[str] = []


class GroupList(Body, frozen=True, kw_only=True):
    """Consumer groups of a topic."""

    group_list: list[str] = []


class GetConsumerListByGroupResponseBody(Body, frozen=True, kw_only=True):
    """Client ids of a group's members."""

    consumer_id_list: list[str] = []
