"""One function for each question a producer or consumer asks a broker: typed arguments in, typed answers out.

`client` is an open `Client`, `address` a broker's "host:port". Groups and topics are wire names (with namespace). All
raise BrokerRefused, BrokerUnreachable and OperationTimeout.
"""

from __future__ import annotations

from collections.abc import Collection

from triomq.client.core.results import PullResult, PullStatus
from triomq.client.instance.client import Client
from triomq.protocol.bodies.heartbeat import CheckClientRequestBody
from triomq.protocol.bodies.name_list import GetConsumerListByGroupResponseBody
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.headers.client import GetConsumerListByGroupRequestHeader
from triomq.protocol.headers.offset import (
    GetEarliestMsgStoretimeRequestHeader,
    GetEarliestMsgStoretimeResponseHeader,
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    GetMinOffsetRequestHeader,
    GetMinOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    SearchOffsetRequestHeader,
    SearchOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.protocol.headers.send import ConsumerSendMsgBackRequestHeader
from triomq.protocol.message import MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import iterate_records
from triomq.protocol.subscription import SubscriptionData

PULL_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}


async def pull(client: Client, address: str, header: PullMessageRequestHeader, timeout_seconds: float) -> PullResult:
    """One PULL_MESSAGE; the messages are decoded and decompressed, not yet filtered."""
    response = await client.ask(
        address,
        new_request(RequestCode.PULL_MESSAGE, header),
        f"pulling from {header.topic} queue {header.queue_id}",
        timeout_seconds=timeout_seconds,
        accept=PULL_STATUS,
        vip=False,
    )
    answer = response.header(PullMessageResponseHeader)
    messages: list[MessageExt] = []
    if response.code == ResponseCode.SUCCESS:
        for message in iterate_records(response.body):
            message.broker_name = header.broker_name
            messages.append(message)
    return PullResult(
        PULL_STATUS[response.code],
        answer.next_begin_offset,
        answer.min_offset,
        answer.max_offset,
        messages,
        answer.suggest_which_broker_id,
    )


async def query_consumer_offset(client: Client, address: str, group: str, queue: MessageQueue) -> int | None:
    """The stored offset of a group; None when there is none."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    response = await client.ask(
        address,
        new_request(RequestCode.QUERY_CONSUMER_OFFSET, header),
        f"asking for the offset of group {group!r}",
        accept=(ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )
    if response.code == ResponseCode.QUERY_NOT_FOUND:
        return None
    return response.header(QueryConsumerOffsetResponseHeader).offset


async def update_consumer_offset(
    client: Client, address: str, group: str, queue: MessageQueue, queue_offset: int
) -> None:
    """Store the offset of a group and wait for the answer."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=queue_offset,
        broker_name=queue.broker_name,
    )
    request = new_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    await client.ask(address, request, f"storing the offset of group {group!r}")


async def max_offset(client: Client, address: str, queue: MessageQueue) -> int:
    """Queue offset of the next message to be stored."""
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    request = new_request(RequestCode.GET_MAX_OFFSET, header)
    response = await client.ask(address, request, f"asking for the end of {queue}")
    return response.header(GetMaxOffsetResponseHeader).offset


async def min_offset(client: Client, address: str, queue: MessageQueue) -> int:
    """Queue offset of the oldest message."""
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    request = new_request(RequestCode.GET_MIN_OFFSET, header)
    response = await client.ask(address, request, f"asking for the beginning of {queue}")
    return response.header(GetMinOffsetResponseHeader).offset


async def search_offset(client: Client, address: str, queue: MessageQueue, timestamp_ms: int) -> int:
    """Queue offset of the message stored nearest to `timestamp_ms`."""
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, broker_name=queue.broker_name
    )
    request = new_request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header)
    response = await client.ask(address, request, f"searching {queue} by time")
    return response.header(SearchOffsetResponseHeader).offset


async def earliest_store_time(client: Client, address: str, queue: MessageQueue) -> int:
    """When the oldest message was stored, in ms; -1 when there is none."""
    header = GetEarliestMsgStoretimeRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    request = new_request(RequestCode.GET_EARLIEST_MSG_STORETIME, header)
    response = await client.ask(address, request, f"asking for the age of {queue}")
    return response.header(GetEarliestMsgStoretimeResponseHeader).timestamp


async def consumer_ids(client: Client, address: str, group: str) -> list[str]:
    """Client ids of the members of a group, sorted; empty when the broker knows none."""
    response = await client.ask(
        address,
        new_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(consumer_group=group)),
        f"asking for the members of group {group!r}",
        accept=(ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
    )
    if response.code != ResponseCode.SUCCESS or not response.body:
        return []
    return sorted(GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list)


async def lock_queues(client: Client, address: str, group: str, queues: Collection[MessageQueue]) -> set[MessageQueue]:
    """Lock queues for this client; returns those it holds now."""
    body = LockBatchRequestBody(consumer_group=group, client_id=client.client_id, mq_set=frozenset(queues))
    response = await client.ask(address, new_request(RequestCode.LOCK_BATCH_MQ, None, body.encode()), "locking queues")
    return set(LockBatchResponseBody.decode(response.body).lock_ok_mq_set)


async def unlock_queues(client: Client, address: str, group: str, queues: Collection[MessageQueue]) -> None:
    """Give locks back, without an answer."""
    body = UnlockBatchRequestBody(consumer_group=group, client_id=client.client_id, mq_set=frozenset(queues))
    await client.tell(address, new_request(RequestCode.UNLOCK_BATCH_MQ, None, body.encode()), vip=True)


async def send_back(
    client: Client,
    address: str,
    group: str,
    message: MessageExt,
    *,
    delay_level: int = 0,
    max_reconsume_times: int = 16,
    timeout_seconds: float = 5.0,
) -> None:
    """Have the broker deliver a message again later. `delay_level` 0: a delay that grows with each time; below 0: to
    the dead letter topic at once."""
    header = ConsumerSendMsgBackRequestHeader(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=message.topic,
        unit_mode=client.config.unit_mode,
        max_reconsume_times=max_reconsume_times,
        broker_name=message.broker_name,
    )
    request = new_request(RequestCode.CONSUMER_SEND_MSG_BACK, header)
    await client.ask(address, request, "sending a message back", timeout_seconds=timeout_seconds)


async def check_subscription(client: Client, address: str, group: str, subscription: SubscriptionData) -> None:
    """Have a broker compile a SQL92 expression; raises BrokerRefused with its message when it does not."""
    body = CheckClientRequestBody(client_id=client.client_id, group=group, subscription_data=subscription)
    request = new_request(RequestCode.CHECK_CLIENT_CONFIG, None, body.encode())
    await client.ask(address, request, f"checking the subscription to {subscription.topic!r}")


async def queue_offset_bounds(client: Client, address: str, queue: MessageQueue) -> tuple[int, int]:
    """Oldest and next queue offset."""
    return await min_offset(client, address, queue), await max_offset(client, address, queue)
