"""The members of a group as its page shows them: who reads each queue, and what each of them subscribes to.

A broker is not told who owns a queue: members share the queues out among themselves. It knows who locked a queue
(ordered consumers), whose pull waits at it, and who committed its offset last. The page says which of these it is.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Generator, Sequence
from typing import Final, TypeVar

from triomq.broker.assembly.serving import Serving
from triomq.broker.processors.consume_admin import language_name
from triomq.broker.tables.client_channel import ClientChannel
from triomq.broker.tables.consumers import ConsumerGroup
from triomq.broker.tables.member_subscriptions import MOST_KEPT, Wanted
from triomq.dashboard.views import Data
from triomq.protocol.codes import version_name
from triomq.protocol.errors import BodyError
from triomq.protocol.message_queue import MessageQueue

MOST_MEMBERS: Final = 500
MOST_SUBSCRIPTIONS: Final = 500
"""Rows of the table of subscriptions."""
MOST_WAITING: Final = 2048
"""The number of waiting pulls of one member that are examined."""
MOST_READERS: Final = 8
"""Members of one queue that are named."""
_STEP_MEMBERS: Final = 16
T = TypeVar("T")

Waiting = dict[tuple[str, int], list[str]]
"""The clients whose pulls wait, by topic and queue id."""


class Members:
    def __init__(self, serving: Serving) -> None:
        self._serving = serving
        self._name = serving.tables.configuration.broker.broker_name

    def rows(self, online: ConsumerGroup | None) -> list[Data]:
        """Return the members with their clients."""
        return [self.row(member) for member in _shown(online)]

    def row(self, member: ClientChannel) -> Data:
        """Return one member."""
        return {
            "client": member.client_id,
            "address": member.remote_text,
            "language": language_name(member.language) or "",
            "version": version_name(member.version),
            "heartbeat_seconds": max(0, self._serving.tables.now_ms() - member.last_update_ms) / 1000,
        }

    def waiting(self, online: ConsumerGroup | None) -> Generator[None, None, Waiting]:
        """Return whose pulls wait at which queue; an item ends a step."""
        found: Waiting = {}
        for number, member in enumerate(_shown(online), 1):
            group = online.name if online is not None else ""
            for key in self._serving.pull.long_polling.queues_of(member.connection, group, MOST_WAITING):
                clients = found.setdefault(key, [])
                if member.client_id not in clients and len(clients) < MOST_READERS:
                    clients.append(member.client_id)
            if number % _STEP_MEMBERS == 0:
                yield
        return found

    def reader(self, group: str, topic: str, queue_id: int, waiting: Waiting) -> Data:
        """Return who reads a queue, and how that is known: `by` is "lock", "waiting pull", "commit", or "" if nobody
        is known."""
        tables = self._serving.tables
        holder = tables.queue_locks.holder(group, MessageQueue(topic, self._name, queue_id))
        if holder is not None:
            return {"clients": [holder], "by": "lock", "seconds": None}
        pulling = waiting.get((topic, queue_id))
        if pulling:
            return {"clients": pulling, "by": "waiting pull", "seconds": None}
        online = tables.metadata.consumers.get(group)
        client, at_ms = online.readers.get((topic, queue_id), ("", 0)) if online is not None else ("", 0)
        if online is None or not client or online.member(client) is None:
            return {"clients": [], "by": "", "seconds": None}
        return {"clients": [client], "by": "commit", "seconds": max(0, tables.now_ms() - at_ms) / 1000}


def decoded(decode: Callable[[bytes], T], body: bytes, most_bytes: int) -> T:
    """Return what the response of a client says, which may be anything. Raises BodyError with a sentence for a page."""
    if len(body) > most_bytes:
        raise BodyError(f"its response has {len(body)} bytes, and up to {most_bytes} are read")
    try:
        return decode(body)
    except BodyError:
        raise BodyError(f"its response cannot be read ({len(body)} bytes)") from None


def _shown(online: ConsumerGroup | None) -> list[ClientChannel]:
    return online.members()[:MOST_MEMBERS] if online is not None else []


def subscriptions_of(online: ConsumerGroup | None) -> Generator[None, None, list[Data]]:
    """Return what each member subscribes to, those first that differ from most members; an item ends a step.
    `expression` is None for a topic that the member lacks and others have. `since_ms` is by the client's clock."""
    members = _shown(online)
    topics, counts = _counted([member.wanted for member in members])
    differing: list[Data] = []
    others: list[Data] = []
    for number, member in enumerate(members, 1):
        has = {topic: (kind, expression) for topic, kind, expression in member.wanted}
        for topic in topics:
            mine = has.get(topic)
            differs = 2 * counts[topic, mine] <= len(members)
            if mine is None and not differs:
                continue
            (differing if differs else others).append(
                {
                    "client": member.client_id,
                    "topic": topic,
                    "type": mine[0] if mine is not None else "",
                    "expression": mine[1] if mine is not None else None,
                    "since_ms": member.since_ms,
                    "differs": differs,
                }
            )
        if number % _STEP_MEMBERS == 0:
            yield
    return differing + others


def _counted(wanted: Sequence[Wanted]) -> tuple[list[str], Counter[tuple[str, tuple[str, str] | None]]]:
    """Return the topics that all members are known to have or to lack, and how many members want the same of each."""
    topics = sorted({topic for one in wanted for topic, _, _ in one})[:MOST_KEPT]
    known_until = [one[MOST_KEPT - 1][0] for one in wanted if len(one) > MOST_KEPT]
    topics = [topic for topic in topics if all(topic <= last for last in known_until)]
    counts: Counter[tuple[str, tuple[str, str] | None]] = Counter()
    for one in wanted:
        has = {topic: (kind, expression) for topic, kind, expression in one}
        counts.update([(topic, has.get(topic)) for topic in topics])
    return topics, counts
