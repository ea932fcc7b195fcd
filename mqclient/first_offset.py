"""Where a group begins in a queue: at its stored offset, or else where the consumer says (RebalancePushImpl)."""

from __future__ import annotations

from datetime import datetime

from mqclient import calls
from mqclient.client import Client
from mqclient.offset_store import OffsetStore
from mqclient.results import ConsumeFromWhere
from protocol import system_topics
from protocol.message_queue import MessageQueue


async def first_offset(
    client: Client, offsets: OffsetStore, queue: MessageQueue, start: ConsumeFromWhere, moment: datetime | None
) -> int:
    """Queue offset of the first pull. `moment`: for CONSUME_FROM_TIMESTAMP. Raises MQClientError."""
    stored = await offsets.read(queue)
    if stored is not None:
        return stored
    is_retry = system_topics.is_retry_topic(queue.topic)
    if start is ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET:
        return 0
    if is_retry and start is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET:
        # What failed must not be skipped.
        return 0
    address = await client.master_of(queue.broker_name, queue.topic)
    if start is ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET or is_retry or moment is None:
        return await calls.max_offset(client, address, queue)
    return await calls.search_offset(client, address, queue, int(moment.timestamp() * 1000))
