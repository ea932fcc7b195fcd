"""Receiving: POP_MESSAGE, PEEK_MESSAGE, NOTIFICATION, POLLING_INFO (RocketMQ: PopMessageProcessor,
PeekMessageProcessor, NotificationProcessor, PollingInfoProcessor).

The path of a receive: header, permission, filter, quota, deliveries, response. Where it finds something to wait for
(broker/pop/waiting.py, pulls/over_quota.py, on_disk.py), it may be held in `LongPolling`, which runs it again.
"""

from __future__ import annotations

import random
from collections.abc import Callable, Coroutine, Sequence
from functools import partial
from typing import Any, Final, TypeAlias

import trio

from triomq.broker.configuration import Configuration
from triomq.broker.errors import TableFull
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.pop.dead_letters import DeadLetters
from triomq.broker.pop.looking import Received, Wanted
from triomq.broker.pop.waiting import ParkedReceive, Waiting
from triomq.broker.processors.steps import compile_first
from triomq.broker.pulls.long_polling import LongPolling, Parked
from triomq.broker.pulls.on_disk import OnDisk
from triomq.broker.pulls.over_quota import OverQuota
from triomq.broker.pulls.selection import FilterChooser
from triomq.broker.put_responses import FAQ
from triomq.broker.quotas.quotas import Quotas
from triomq.broker.tables.metadata import Metadata
from triomq.protocol import permission, record
from triomq.protocol.codes import (
    INVALID_PARAMETER,
    POLLING_FULL,
    POLLING_TIMEOUT,
    RequestCode,
    ResponseCode,
)
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pop import (
    NotificationRequestHeader,
    NotificationResponseHeader,
    PeekMessageRequestHeader,
    PollingInfoRequestHeader,
    PollingInfoResponseHeader,
    PopMessageRequestHeader,
)
from triomq.protocol.receipt_handle import kind_of
from triomq.protocol.response_template import ResponseTemplate, TemplatedResponse
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Processor, error_response
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import GetStatus

MAX_MESSAGES: Final = 32
MIN_INVISIBLE_MS: Final = 1000
MAX_INVISIBLE_MS: Final = 12 * 3600 * 1000
MAX_WAIT_MS: Final = 120_000
"""The longest time a receive is held, whatever time it requests."""
FROM_FIRST: Final = 0
ORDERED: Final = 999
"""The revive queue in handles of ordered receives (RocketMQ: KeyBuilder.POP_ORDER_REVIVE_QUEUE)."""
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_PULL_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
# A text, because it takes as long to ask an enum for the name of a member as to read a queue entry.
_FOUND: Final = GetStatus.FOUND.name

_FIELDS: Final[tuple[str, ...]] = (
    "popTime",
    "invisibleTime",
    "reviveQid",
    "restNum",
    "startOffsetInfo",
    "msgOffsetInfo",
)
_TEMPLATE: Final = ResponseTemplate(_FIELDS)
_TEMPLATE_IN_ORDER: Final = ResponseTemplate((*_FIELDS, "orderCountInfo"))
"""PopMessageResponseHeader, without and with its last field."""


class NothingReady:
    """A receive that finds nothing: it waits for a message of any of its queues, as long as its client allows."""

    __slots__ = ("_waiting",)

    def __init__(self, waiting: Waiting) -> None:
        self._waiting = waiting

    def hold(self, polling: LongPolling, receive: Parked) -> bool:
        """Hold a receive, unless its time is over. Return whether it is held."""
        assert isinstance(receive, ParkedReceive)
        if receive.patience_end <= trio.current_time():
            return False
        receive.waited_for = self
        self._waiting.hold(receive)
        return True

    def response(self, receive: Parked) -> RemotingCommand:
        """Return the response to a receive that is not held."""
        assert isinstance(receive, ParkedReceive)
        return nothing(receive)


Reason: TypeAlias = NothingReady | OverQuota | OnDisk
"""What a receive may wait for."""

Tried: TypeAlias = RemotingCommand | Reason
"""The response to a receive, or what it may wait for."""


class PopProcessor:
    """Handles receives of consumers."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
        metadata: Metadata,
        filters: FilterChooser,
        waiting: Waiting,
        dead_letters: DeadLetters,
        *,
        stats: BrokerStats,
        quotas: Callable[[], Quotas | None],
    ) -> None:
        """`quotas` returns None while there are none."""
        self._configuration = configuration
        self._store = store
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self._filters = filters
        self._deliveries = waiting.deliveries
        self._waiting = waiting
        self._dead_letters = dead_letters
        self._polling = waiting.polling
        self._stats = stats
        self._quotas = quotas

    def processors(self) -> dict[int, Processor]:
        """Return request code -> processor."""
        return {
            RequestCode.POP_MESSAGE: self.receive,
            RequestCode.PEEK_MESSAGE: self.peek,
            RequestCode.NOTIFICATION: self.notify,
            RequestCode.POLLING_INFO: self.count_waiting,
        }

    # -- POP_MESSAGE ---------------------------------------------------------------------------------------------------

    def receive(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand | None] | None:
        """Return the response, None for a receive that is held, or what compiles its long expression first."""
        header = request.header(PopMessageRequestHeader)
        if self._offsets.log is not None:
            queue_ids = self._check(connection, header.topic, header.consumer_group, header.queue_id)
            if not self._deliveries.has_begun(header.topic, header.consumer_group, queue_ids):
                return self._begin(connection, request, header, queue_ids)
        if self._filters.must_compile(header.topic, header.consumer_group, header.exp, header.exp_type):
            assert header.exp is not None
            self._check(connection, header.topic, header.consumer_group, header.queue_id)
            return compile_first(connection, header.exp, partial(self._receive, connection, request, header))
        return self._receive(connection, request, header)

    def _receive(
        self, connection: Connection, request: RemotingCommand, header: PopMessageRequestHeader
    ) -> RemotingCommand | None:
        if self._polling.has_ended:
            raise self._polling.refusal()
        _check_count(header.max_msg_nums)
        check_invisible_time(header.invisible_time)
        queue_ids = self._check(connection, header.topic, header.consumer_group, header.queue_id)
        end = self._patience_end(header.poll_time)
        parked = ParkedReceive(connection, request, header, end, queue_ids, self._receive_again)
        tried = self._attempt(parked, header)
        return tried if isinstance(tried, RemotingCommand) else self._hold(tried, parked)

    async def _begin(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PopMessageRequestHeader,
        queue_ids: Sequence[int],
    ) -> RemotingCommand | None:
        """Receive as soon as a quorum knows where the group begins: a new leader that did not know would let it begin
        behind what it has received here. Raises RequestRefused."""
        topic, group = header.topic, header.consumer_group
        self._deliveries.choose_begin(topic, group, queue_ids, begins_first=header.init_mode == FROM_FIRST)
        await self._offsets.settled()
        self._deliveries.begin(topic, group, queue_ids)
        response = self.receive(connection, request)
        return await response if isinstance(response, Coroutine) else response

    def _receive_again(self, parked: ParkedReceive) -> None:
        """Process a held receive again."""
        header = parked.header
        assert isinstance(header, PopMessageRequestHeader)

        def attempt() -> Tried:
            begun = self._deliveries.has_begun(header.topic, header.consumer_group, parked.queue_ids)
            # In a group it begins in a queue that is new with the client's next receive.
            return self._attempt(parked, header) if begun or self._offsets.log is None else nothing(parked)

        self._answer(parked, attempt)

    def _answer(self, parked: ParkedReceive, attempt: Callable[[], Tried]) -> None:
        """Run a held receive again, if it may still read its queues, and send the response."""
        connection, request = parked.connection, parked.request
        response: RemotingCommand | None
        try:
            header = parked.header
            parked.queue_ids = self._check(connection, header.topic, header.consumer_group, header.queue_id)
            tried = attempt()
            response = tried if isinstance(tried, RemotingCommand) else self._hold(tried, parked.again())
        except Exception as error:
            response = error_response(connection, request, error)
        if response is not None:
            connection.answer(request, response, parked.since)

    def _hold(self, reason: Reason, receive: ParkedReceive) -> RemotingCommand | None:
        """Hold a receive, or return the response that there was something to wait for."""
        return None if reason.hold(self._polling, receive) else reason.response(receive)

    def _attempt(self, parked: ParkedReceive, header: PopMessageRequestHeader) -> Tried:
        """Return the response, or what the receive may wait for. Raises RequestRefused."""
        connection, request, group = parked.connection, parked.request, header.consumer_group
        most_attempts = self._most_attempts(group)
        quotas = self._quotas()
        if quotas is not None:
            excess = quotas.excess_of_pull(connection, request, group)
            if excess is not None:
                if not header.poll_time:
                    raise quotas.refusal(excess, connection.remote)
                return OverQuota(quotas, excess, lambda remark: nothing(parked, remark))
        message_filter = self._filters.of_request(header.topic, group, header.exp or "*", header.exp_type)
        wanted = Wanted(
            header.max_msg_nums,
            header.invisible_time,
            most_attempts,
            message_filter,
            header.init_mode == FROM_FIRST,
            header.order,
            header.attempt_id or "",
        )
        try:
            received = self._deliveries.receive(header.topic, group, _in_turn(parked.queue_ids), wanted)
        except TableFull as error:
            return new_response(request, POLLING_FULL, error.remark)
        for dead in received.dead:
            self._dead_letters.put(dead, received.popped_ms)
        if received.records:
            return self._response(parked, header, received)
        if received.missing is not None:
            return OnDisk(self._store.reading.cold, received.missing, lambda remark: nothing(parked, remark))
        return NothingReady(self._waiting)

    def _most_attempts(self, group_name: str) -> int:
        group = self._groups.get(group_name)
        return max(0, group.retry_max_times if group is not None else 0) + 1

    def _response(self, parked: ParkedReceive, header: PopMessageRequestHeader, received: Received) -> RemotingCommand:
        topic, group = header.topic, header.consumer_group
        records, body = received.records, b"".join(received.records)
        for queue_id, offsets in received.offsets.items():
            size_bytes = received.sizes[queue_id]
            next_offset = self._deliveries.next_offset(topic, group, queue_id)
            self._stats.group_get(group, topic, queue_id, len(offsets), size_bytes, next_offset)
        quotas = self._quotas()
        if quotas is not None:
            quotas.pulled(parked.connection, parked.request, group, len(records), len(body))
        kind = kind_of(topic)
        rest = self._deliveries.ready_count(topic, group, parked.queue_ids)
        first, every = _starts(kind, received.offsets), _offsets(kind, received.offsets)
        revive_queue = ORDERED if header.order else 0
        values = received.popped_ms, header.invisible_time, revive_queue, rest, first, every
        if header.order:
            in_order = (*values, _times(kind, received))
            return TemplatedResponse(_TEMPLATE_IN_ORDER, parked.request, _SUCCESS, in_order, _FOUND, body)
        return TemplatedResponse(_TEMPLATE, parked.request, _SUCCESS, values, _FOUND, body)

    # -- the others ----------------------------------------------------------------------------------------------------

    def peek(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle PEEK_MESSAGE: return new messages that the group has not received, and change nothing."""
        header = request.header(PeekMessageRequestHeader)
        _check_count(header.max_msg_nums)
        topic, group = header.topic, header.consumer_group
        queue_ids = self._check(connection, topic, group, header.queue_id)
        found: dict[int, list[int]] = {}
        records: list[bytes] = []
        rest = 0
        for queue_id in _in_turn(queue_ids):
            begin = self._deliveries.next_offset(topic, group, queue_id)
            room = header.max_msg_nums - len(records)
            if room:
                result = self._store.reading.get_messages(topic, queue_id, begin, room)
                if result.status is GetStatus.FOUND:
                    records += result.records
                    found[queue_id] = [record.queue_offset_of(each) for each in result.records]
                    begin = result.next_begin_offset
            rest += max(0, self._store.reading.max_offset(topic, queue_id) - begin)
        if not records:
            return new_response(request, _PULL_NOT_FOUND, GetStatus.NO_MESSAGE_IN_QUEUE.name)
        kind = kind_of(topic)
        values = 0, 0, 0, rest, _starts(kind, found), _offsets(kind, found)
        return TemplatedResponse(_TEMPLATE, request, _SUCCESS, values, _FOUND, b"".join(records))

    def notify(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Handle NOTIFICATION: tell whether there is a message to receive, as soon as there is one."""
        if self._polling.has_ended:
            raise self._polling.refusal()
        header = request.header(NotificationRequestHeader)
        queue_ids = self._check(connection, header.topic, header.consumer_group, header.queue_id)
        end = self._patience_end(header.poll_time)
        parked = ParkedReceive(connection, request, header, end, queue_ids, self._notify_again)
        tried = self._look(parked)
        return tried if isinstance(tried, RemotingCommand) else self._hold(tried, parked)

    def _notify_again(self, parked: ParkedReceive) -> None:
        self._answer(parked, lambda: self._look(parked))

    def _look(self, parked: ParkedReceive) -> Tried:
        header = parked.header
        if self._deliveries.ready_count(header.topic, header.consumer_group, parked.queue_ids):
            return new_response(parked.request, header=NotificationResponseHeader(has_msg=True))
        return NothingReady(self._waiting)

    def count_waiting(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        """Handle POLLING_INFO: return how many receives wait for a queue."""
        header = request.header(PollingInfoRequestHeader)
        self._check(connection, header.topic, header.consumer_group, header.queue_id)
        waiting = self._waiting.count(header.topic, header.consumer_group, header.queue_id)
        return new_response(request, header=PollingInfoResponseHeader(polling_num=waiting))

    # -- checks --------------------------------------------------------------------------------------------------------

    def _patience_end(self, poll_time_ms: int) -> float:
        return self._polling.patience_end(max(0, min(poll_time_ms, MAX_WAIT_MS)))

    def _check(self, connection: Connection, topic_name: str, group_name: str, queue_id: int) -> Sequence[int]:
        """Return the ids of the queues that a request of a group wants, if it may read them. Raises RequestRefused."""
        broker = self._configuration.broker
        if not permission.is_readable(broker.broker_permission):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.broker_ip1}] pop message is forbidden"
            )
        check_is_master(self._configuration, self._store)
        topic = self._topics.get(topic_name)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{topic_name}] not exist, apply first please! \n{FAQ}"
            )
        if not permission.is_readable(topic.perm):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{topic_name}] pop message is forbidden")
        if queue_id >= topic.read_queue_nums:
            raise RequestRefused(
                INVALID_PARAMETER,
                f"queueId[{queue_id}] is illegal, topic:[{topic_name}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[{connection.remote.text}]",
            )
        group = self._groups.find(group_name)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST, f"subscription group [{group_name}] does not exist, \n{FAQ}"
            )
        if not group.consume_enable:
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"subscription group no permission, {group_name}")
        return (queue_id,) if queue_id >= 0 else range(topic.read_queue_nums)


def _starts(kind: str, offsets: dict[int, list[int]]) -> bytes:
    return ";".join([f"{kind} {queue_id} {min(each)}" for queue_id, each in offsets.items()]).encode()


def _offsets(kind: str, offsets: dict[int, list[int]]) -> bytes:
    return ";".join([f"{kind} {queue_id} {','.join(map(str, each))}" for queue_id, each in offsets.items()]).encode()


def _times(kind: str, received: Received) -> bytes:
    """Return how often each message was received before, as clients of RocketMQ 5 read it: they take the times of a
    queue for messages that are not named."""
    queues = [f"{kind} {queue_id} 0" for queue_id in received.offsets]
    again = [f"{kind} qo{queue_id}%{queue_offset} {times}" for queue_id, queue_offset, times in received.repetitions]
    return ";".join([*queues, *again]).encode()


def nothing(receive: ParkedReceive, remark: str = GetStatus.NO_MESSAGE_IN_QUEUE.name) -> RemotingCommand:
    """Return the response to a receive that found nothing."""
    header = receive.header
    if isinstance(header, NotificationRequestHeader):
        return new_response(receive.request, header=NotificationResponseHeader(has_msg=False))
    return new_response(receive.request, POLLING_TIMEOUT if header.poll_time > 0 else _PULL_NOT_FOUND, remark)


def check_is_master(configuration: Configuration, store: DefaultMessageStore) -> None:
    """Raise RequestRefused on a slave, and on a member of a group that does not lead, or does not any more."""
    reason = store.role_refusal or ("this broker is a slave" if configuration.role.is_slave else None)
    if reason is not None:
        raise RequestRefused(ResponseCode.SLAVE_NOT_AVAILABLE, f"{reason}: only the master knows what is in flight")


def _check_count(count: int) -> None:
    if not 0 < count <= MAX_MESSAGES:
        raise RequestRefused(INVALID_PARAMETER, f"maxMsgNums={count}: from 1 to {MAX_MESSAGES}")


def check_invisible_time(invisible_ms: int) -> None:
    """Raise RequestRefused unless a message may be invisible for this time."""
    if not MIN_INVISIBLE_MS <= invisible_ms <= MAX_INVISIBLE_MS:
        raise RequestRefused(
            INVALID_PARAMETER, f"invisibleTime={invisible_ms}: from {MIN_INVISIBLE_MS} to {MAX_INVISIBLE_MS} ms"
        )


def _in_turn(queue_ids: Sequence[int]) -> Sequence[int]:
    """Return the queues from a random one on."""
    if len(queue_ids) < 2:
        return queue_ids
    first = int(random.random() * len(queue_ids))  # randrange takes as long as everything else that chooses the queues
    return [*queue_ids[first:], *queue_ids[:first]]
