"""The clusters of this process whose clock jumps, and the consumers of this process that a jump must not pass.

    watched = virtual_time.begin("127.0.0.1:9876", exists)      # the cluster; then virtual_time.end(...)
    watched = virtual_time.watched_at(["127.0.0.1:9876"])       # its clients; None if the clock is like any other
    watched.join(consumer); watched.leave(consumer)

A consumer needs real time to find its queues. A clock that jumped hours meanwhile would leave its test without a
message.

State: the address of a cluster's NameServer -> who is watched there. A lock guards both tables, since clusters and
clients run in threads of their own. May not live here: consumers of other processes, which nobody can ask.
"""

from __future__ import annotations

import threading
from collections.abc import Callable, Iterable
from typing import Protocol


class WatchedConsumer(Protocol):
    """A consumer that can say, in any thread, what it waits for."""

    group_name: str

    def topics_without_queues(self) -> list[str]:
        """Return the topics, by wire names, of which this member has no share yet."""


class Watched:
    """The open consumers of this process in one cluster. `exists` returns whether the cluster has a topic: a consumer
    of one that does not exist may wait for as long as it likes."""

    def __init__(self, exists: Callable[[str], bool]) -> None:
        self._exists = exists
        self._lock = threading.Lock()
        self._members: list[WatchedConsumer] = []

    def join(self, member: WatchedConsumer) -> None:
        with self._lock:
            self._members.append(member)

    def leave(self, member: WatchedConsumer) -> None:
        with self._lock:
            self._members.remove(member)

    def waits_of(self, member: WatchedConsumer) -> list[str]:
        """Return the topics that exist and of which this consumer has no queues yet."""
        return [topic for topic in member.topics_without_queues() if self._exists(topic)]

    def waiting(self) -> list[str]:
        """Return a line for each consumer that has no queues of a topic that exists."""
        with self._lock:
            members = list(self._members)
        return [line(one.group_name, topics) for one in members if (topics := self.waits_of(one))]

    def without_queues(self) -> list[str]:
        """Return a line for each consumer that has no queues of some topic, whether that exists or not."""
        with self._lock:
            members = list(self._members)
        return [line(one.group_name, topics) for one in members if (topics := one.topics_without_queues())]


def line(who: str, topics: Iterable[str]) -> str:
    """Return what to say of a consumer without queues."""
    return f"{who} has no queues of {', '.join(topics)}"


_lock = threading.Lock()
_clusters: dict[str, Watched] = {}


def begin(name_server: str, exists: Callable[[str], bool]) -> Watched:
    """Begin to watch the consumers of a cluster, by the address of its NameServer."""
    with _lock:
        made = _clusters[name_server] = Watched(exists)
    return made


def end(name_server: str) -> None:
    with _lock:
        _clusters.pop(name_server, None)


def watched_at(name_servers: Iterable[str]) -> Watched | None:
    """Return who is watched in the cluster with one of these NameServers; None if its clock is like any other."""
    with _lock:
        return next((_clusters[each] for each in name_servers if each in _clusters), None)
