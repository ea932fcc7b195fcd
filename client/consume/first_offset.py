"""Where a group begins in a queue in which it has no offset yet (RebalancePushImpl)."""

from __future__ import annotations

from datetime import datetime

from triomq.client.core import requests
from triomq.client.core.results import ConsumeFromWhere
from triomq.client.instance.client import Client
from triomq.protocol import system_topics
from triomq.protocol.message_queue import MessageQueue


async def begin_offset(client: Client, queue: MessageQueue, start: ConsumeFromWhere, moment: datetime | None) -> int:
    """Return the queue offset of the first pull of a group that has no offset in this queue. `moment`: for
    CONSUME_FROM_TIMESTAMP. Raises MQClientError."""
    is_retry = system_topics.is_retry_topic(queue.topic)
    if start is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if is_retry and start is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        # Messages that failed must not be skipped.
        return 0
    address = await client.master_of(queue.broker_name, queue.topic)
    if start is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET or is_retry or moment is None:
        return await client.call(address, requests.max_offset(queue))
    return await client.call(address, requests.search_offset(queue, int(moment.timestamp() * 1000)))
