"""Groups: made at the target with their settings; their offsets translated repeatedly.

A group's offset at the target only grows. It stays as it is while the group has members there, which consume already.
"""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from typing import Any

from triomq.client.core import requests
from triomq.client.core.requests import Call
from triomq.pipeline.copying.state import QueueCopy
from triomq.pipeline.copying.targets import groups_at, make_group
from triomq.protocol.bodies import fastjson
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import new_request
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster


def known_groups(cluster: Cluster, masters: Mapping[str, str]) -> dict[str, SubscriptionGroupConfig]:
    """Return all groups of a cluster with their settings, as the last broker that has them says."""
    found: dict[str, SubscriptionGroupConfig] = {}
    for address in masters.values():
        found |= groups_at(cluster, address)
    return found


def missing_groups(
    cluster: Cluster, masters: Mapping[str, str], groups: Iterable[SubscriptionGroupConfig]
) -> list[tuple[SubscriptionGroupConfig, str]]:
    """Return (group, address) of the masters that lack a group."""
    wanted = list(groups)
    lacking = []
    for address in masters.values():
        there = groups_at(cluster, address)
        lacking += [(config, address) for config in wanted if config.group_name not in there]
    return lacking


def make_groups(cluster: Cluster, lacking: Iterable[tuple[SubscriptionGroupConfig, str]]) -> None:
    for config, address in lacking:
        make_group(cluster, config, address)


def consumed(cluster: Cluster, masters: Mapping[str, str]) -> dict[tuple[str, MessageQueue], int]:
    """Return (group, queue) -> offset, as the brokers keep them."""

    def offsets() -> Call[Any]:
        request = new_request(RequestCode.GET_ALL_CONSUMER_OFFSET)
        return Call(request, "asking for all consumer offsets", lambda response: fastjson.loads(response.body))

    found = {}
    for broker, address in masters.items():
        action = "asking for all consumer offsets"
        table = cluster.until_done(action, lambda address=address: cluster.call(address, offsets()))  # type: ignore[misc]
        for name, queues in (table.get("offsetTable") or {}).items():
            topic, _, group = name.rpartition("@")
            for queue_id, offset in queues.items():
                found[group, MessageQueue(topic, broker, int(queue_id))] = int(offset)
    return found


def translated(
    offsets: Mapping[tuple[str, MessageQueue], int], copies: Mapping[MessageQueue, QueueCopy], groups: Iterable[str]
) -> dict[str, dict[MessageQueue, int]]:
    """Return group -> target queue -> offset from which the group continues there. Pure."""
    wanted = set(groups)
    found: dict[str, dict[MessageQueue, int]] = {}
    for (group, queue), offset in offsets.items():
        copy = copies.get(queue)
        if group not in wanted or copy is None:
            continue
        place = copy.offsets.translate(offset)
        if place is not None:
            found.setdefault(group, {})[copy.target] = place
    return found


def has_members(cluster: Cluster, masters: Mapping[str, str], group: str) -> bool:
    """Return whether a member of the group is connected to one of the brokers."""
    return any(
        cluster.until_done(
            "asking for members",
            lambda address=address: cluster.call(address, requests.consumer_ids(group)),  # type: ignore[misc]
        )
        for address in masters.values()
    )


class FollowedOffsets:
    """Offsets that follow at the target. One owner, one thread."""

    def __init__(self) -> None:
        self._stored: dict[tuple[str, MessageQueue], int] = {}

    def store(
        self,
        cluster: Cluster,
        masters: Mapping[str, str],
        offsets: Mapping[str, Mapping[MessageQueue, int]],
        *,
        force: bool,
    ) -> tuple[int, list[str]]:
        """Store offsets that are not smaller than those at the target; return how many groups have them, and which were
        left out since they have members there. Raises BrokerError.

        An equal one is stored the first time: brokers say 0 of a queue of which they have no offset of the group."""
        done, busy = 0, []
        for group, places in offsets.items():
            changed = {queue: at for queue, at in places.items() if self._stored.get((group, queue), -1) != at}
            if changed and not force and has_members(cluster, masters, group):
                busy.append(group)
                continue
            queues = sorted(changed)
            present, ends = cluster.group_offsets(group, queues), cluster.max_offsets(queues)
            cluster.store_group_offsets(
                group, {queue: at for queue, at in changed.items() if present.get(queue, 0) <= at <= ends[queue]}
            )
            self._stored |= {(group, queue): at for queue, at in changed.items() if at <= ends[queue]}
            done += 1
        return done, busy
