"""What a group receives one by one (POP), queue by queue, for its page: the figures of `mqadmin pop show`, and the
request mode that an administrator has set."""

from __future__ import annotations

from collections.abc import Generator, Iterable
from typing import TYPE_CHECKING, Final

from triomq.broker import optional
from triomq.broker.assembly.serving import Serving
from triomq.dashboard.views import Data
from triomq.protocol.bodies.assignment import POP, PULL

if TYPE_CHECKING:
    from triomq.broker.pop.deliveries import Deliveries

MOST_QUEUES: Final = 2048
_NOTHING: Final = dict.fromkeys(("queue", "in_flight", "ready", "oldest_age_ms", "most_attempts"))


def received_queues(
    serving: Serving, group: str, topics: Iterable[str]
) -> Generator[None, None, tuple[list[Data], int]]:
    """Return the queues of which the group receives, and how many more there are. Of `topics`, one in POP mode of which
    the group has received nothing is one entry, without a queue."""
    rows: list[Data] = []
    left_out = 0
    if serving.pop.parts is not None:
        left_out = yield from _add_queues(serving, serving.pop.parts.deliveries, group, rows)
    received = {row["topic"] for row in rows}
    for topic in topics:
        mode = _mode(serving, topic, group)
        if topic not in received and mode["mode"] == POP:
            rows.append({"topic": topic, **_NOTHING, **mode})
    return rows, left_out


def _add_queues(serving: Serving, deliveries: Deliveries, group: str, rows: list[Data]) -> Generator[None, None, int]:
    keys = deliveries.keys(group=group)
    reading, now_ms = serving.store.reading, serving.tables.now_ms
    for key in keys[:MOST_QUEUES]:
        queue = optional.in_flight.queue_in_flight(deliveries, reading, key, now_ms())
        if queue is not None:
            rows.append(
                {
                    "topic": key.topic,
                    "queue": key.queue_id,
                    "in_flight": queue.in_flight,
                    "ready": queue.ready,
                    "oldest_age_ms": queue.oldest_age_ms if queue.oldest_offset >= 0 else None,
                    "most_attempts": queue.most_attempts,
                    **_mode(serving, key.topic, group),
                }
            )
        yield  # a queue may have many messages in flight
    return max(0, len(keys) - MOST_QUEUES)


def _mode(serving: Serving, topic: str, group: str) -> Data:
    """Return the request mode of a topic and a group; `share` is popShareQueueNum, None for PULL."""
    mode = serving.tables.request_modes.get(topic, group)
    if mode is None or mode.mode != POP:
        return {"mode": PULL, "share": None}
    return {"mode": POP, "share": mode.pop_share_queue_num}
