"""The requests of producers and consumers, and the readers of their responses. Pure: no clock, no connection.

Each function returns a `Call`: the request to send, the response codes that are results, and how to read one. A driver
sends the request in its own way (a trio connection, a plain socket) and hands the response to `Call.result`:

    call = requests.max_offset(queue)
    offset = call.result(connection.invoke(address, call.request), address)

Groups and topics are wire names (with namespace). A call is sent once: create another one to ask again.
"""

from __future__ import annotations

from collections.abc import Callable, Collection
from dataclasses import dataclass
from typing import Generic, TypeVar

from triomq.client.core.errors import BrokerRefused
from triomq.client.core.results import PullResult, PullStatus
from triomq.protocol.bodies.heartbeat import HeartbeatData
from triomq.protocol.bodies.name_list import GetConsumerListByGroupResponseBody
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody, LockBatchResponseBody, UnlockBatchRequestBody
from triomq.protocol.bodies.route import TopicRouteData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.client import GetConsumerListByGroupRequestHeader, UnregisterClientRequestHeader
from triomq.protocol.headers.namesrv import GetRouteInfoRequestHeader
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
from triomq.protocol.record import decode_records

T = TypeVar("T")

SUCCESS: frozenset[int] = frozenset({ResponseCode.SUCCESS})

SEND_BACK_SECONDS = 5.0

PULL_STATUS: dict[int, PullStatus] = {
    ResponseCode.SUCCESS: PullStatus.FOUND,
    ResponseCode.PULL_NOT_FOUND: PullStatus.NO_NEW_MSG,
    ResponseCode.PULL_RETRY_IMMEDIATELY: PullStatus.NO_MATCHED_MSG,
    ResponseCode.PULL_OFFSET_MOVED: PullStatus.OFFSET_ILLEGAL,
}
"""Response codes of a pull. Any other code is a refusal."""


@dataclass(frozen=True, slots=True)
class Call(Generic[T]):
    """One request and the reader of its response.

    `action` says what is wanted, for error messages. `accept`: response codes that are results. `is_vip`: whether the
    request may go to the broker's second port (listenPort - 2). `timeout_seconds`: the time limit where that of the
    client is not right.
    """

    request: RemotingCommand
    action: str
    read: Callable[[RemotingCommand], T]
    accept: Collection[int] = SUCCESS
    is_vip: bool = True
    timeout_seconds: float | None = None

    def result(self, response: RemotingCommand, address: str = "") -> T:
        """Read the response that came from `address`. Raises BrokerRefused, and ProtocolError for one that cannot be
        read."""
        if response.code not in self.accept:
            raise BrokerRefused(response.code, response.remark, address=address, action=self.action)
        return self.read(response)


def _nothing(response: RemotingCommand) -> None:
    """The response says no more than its code."""


# Routes and membership.


def topic_route(topic: str) -> Call[TopicRouteData | None]:
    """Ask a name server for the route of a topic; None when it does not know the topic."""

    def read(response: RemotingCommand) -> TopicRouteData | None:
        if response.code == ResponseCode.TOPIC_NOT_EXIST or not response.body:
            return None
        return TopicRouteData.decode(response.body)

    return Call(
        new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, GetRouteInfoRequestHeader(topic=topic)),
        f"asking for the route of topic {topic!r}",
        read,
        (ResponseCode.SUCCESS, ResponseCode.TOPIC_NOT_EXIST),
    )


def heartbeat(data: HeartbeatData) -> Call[tuple[int, str]]:
    """Tell a broker which groups are members here; its protocol version, and what it remarks about them."""
    request = new_request(RequestCode.HEART_BEAT, None, data.encode())
    return Call(request, "heartbeat", lambda response: (response.version, response.remark or ""), is_vip=False)


def unregister(client_id: str, *, producer_group: str | None = None, consumer_group: str | None = None) -> Call[None]:
    """Tell a broker that a group has no member at this client any more."""
    header = UnregisterClientRequestHeader(
        client_id=client_id, producer_group=producer_group, consumer_group=consumer_group
    )
    request = new_request(RequestCode.UNREGISTER_CLIENT, header)
    return Call(request, "unregistering this client", _nothing, is_vip=False)


def consumer_ids(group: str) -> Call[list[str]]:
    """Client ids of the members of a group, sorted; empty when the broker knows none."""

    def read(response: RemotingCommand) -> list[str]:
        if response.code != ResponseCode.SUCCESS or not response.body:
            return []
        return sorted(GetConsumerListByGroupResponseBody.decode(response.body).consumer_id_list)

    return Call(
        new_request(RequestCode.GET_CONSUMER_LIST_BY_GROUP, GetConsumerListByGroupRequestHeader(consumer_group=group)),
        f"asking for the members of group {group!r}",
        read,
        (ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR),
    )


# Messages.


def pull(header: PullMessageRequestHeader) -> Call[PullResult]:
    """Pull messages; they are decoded and decompressed, not yet filtered by the text of their tags."""

    def read(response: RemotingCommand) -> PullResult:
        found = response.header(PullMessageResponseHeader)
        messages: list[MessageExt] = []
        if response.code == ResponseCode.SUCCESS:
            messages = decode_records(response.body, header.broker_name)
        return PullResult(
            PULL_STATUS[response.code],
            found.next_begin_offset,
            found.min_offset,
            found.max_offset,
            messages,
            found.suggest_which_broker_id,
        )

    return Call(
        new_request(RequestCode.PULL_MESSAGE, header),
        f"pulling from {header.topic} queue {header.queue_id}",
        read,
        PULL_STATUS,
        is_vip=False,
    )


def send_back(
    group: str,
    message: MessageExt,
    *,
    delay_level: int = 0,
    max_reconsume_times: int = 16,
    unit_mode: bool = False,
) -> Call[None]:
    """Have the broker deliver a message again later. `delay_level` 0: after a delay that grows with each delivery;
    below 0: to the dead letter topic at once."""
    header = ConsumerSendMsgBackRequestHeader(
        offset=message.physical_offset,
        group=group,
        delay_level=delay_level,
        origin_msg_id=message.msg_id,
        origin_topic=message.topic,
        unit_mode=unit_mode,
        max_reconsume_times=max_reconsume_times,
        broker_name=message.broker_name,
    )
    return Call(
        new_request(RequestCode.CONSUMER_SEND_MSG_BACK, header),
        "sending a message back",
        _nothing,
        timeout_seconds=SEND_BACK_SECONDS,
    )


# Offsets. All are queue offsets.


def max_offset(queue: MessageQueue) -> Call[int]:
    """Offset of the next message to be stored."""
    header = GetMaxOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    return Call(
        new_request(RequestCode.GET_MAX_OFFSET, header),
        f"asking for the end of {queue}",
        lambda response: response.header(GetMaxOffsetResponseHeader).offset,
    )


def min_offset(queue: MessageQueue) -> Call[int]:
    """Offset of the oldest message."""
    header = GetMinOffsetRequestHeader(topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name)
    return Call(
        new_request(RequestCode.GET_MIN_OFFSET, header),
        f"asking for the beginning of {queue}",
        lambda response: response.header(GetMinOffsetResponseHeader).offset,
    )


def search_offset(queue: MessageQueue, timestamp_ms: int) -> Call[int]:
    """Offset of the first message stored at `timestamp_ms` or later (Apache 4.9: of the one stored nearest to it)."""
    header = SearchOffsetRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, timestamp=timestamp_ms, broker_name=queue.broker_name
    )
    return Call(
        new_request(RequestCode.SEARCH_OFFSET_BY_TIMESTAMP, header),
        f"searching {queue} by time",
        lambda response: response.header(SearchOffsetResponseHeader).offset,
    )


def earliest_store_time(queue: MessageQueue) -> Call[int]:
    """When the oldest message was stored, in ms; -1 when there is none."""
    header = GetEarliestMsgStoretimeRequestHeader(
        topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )
    return Call(
        new_request(RequestCode.GET_EARLIEST_MSG_STORETIME, header),
        f"asking for the age of {queue}",
        lambda response: response.header(GetEarliestMsgStoretimeResponseHeader).timestamp,
    )


def query_consumer_offset(group: str, queue: MessageQueue) -> Call[int | None]:
    """The stored offset of a group; None when there is none."""
    header = QueryConsumerOffsetRequestHeader(
        consumer_group=group, topic=queue.topic, queue_id=queue.queue_id, broker_name=queue.broker_name
    )

    def read(response: RemotingCommand) -> int | None:
        if response.code == ResponseCode.QUERY_NOT_FOUND:
            return None
        return response.header(QueryConsumerOffsetResponseHeader).offset

    return Call(
        new_request(RequestCode.QUERY_CONSUMER_OFFSET, header),
        f"asking for the offset of group {group!r}",
        read,
        (ResponseCode.SUCCESS, ResponseCode.QUERY_NOT_FOUND),
    )


def update_consumer_offset(group: str, queue: MessageQueue, queue_offset: int) -> Call[None]:
    """Store the offset of a group. The broker responds when its table has it; it writes the table every 5 s."""
    header = UpdateConsumerOffsetRequestHeader(
        consumer_group=group,
        topic=queue.topic,
        queue_id=queue.queue_id,
        commit_offset=queue_offset,
        broker_name=queue.broker_name,
    )
    request = new_request(RequestCode.UPDATE_CONSUMER_OFFSET, header)
    return Call(request, f"storing the offset of group {group!r}", _nothing)


# Locks of ordered consumers.


def lock_queues(group: str, client_id: str, queues: Collection[MessageQueue]) -> Call[set[MessageQueue]]:
    """Lock queues of one broker for a client; the queues it holds now."""
    body = LockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=frozenset(queues))
    return Call(
        new_request(RequestCode.LOCK_BATCH_MQ, None, body.encode()),
        "locking queues",
        lambda response: set(LockBatchResponseBody.decode(response.body).lock_ok_mq_set),
    )


def unlock_queues(group: str, client_id: str, queues: Collection[MessageQueue]) -> RemotingCommand:
    """Return the request that gives locks back. It is sent one-way, so there is no response to read."""
    body = UnlockBatchRequestBody(consumer_group=group, client_id=client_id, mq_set=frozenset(queues))
    return new_request(RequestCode.UNLOCK_BATCH_MQ, None, body.encode())
