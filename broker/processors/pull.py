"""Pulling: PULL_MESSAGE (RocketMQ: PullMessageProcessor).

The path of a pull: header, permission, subscription and filter, store, response. If there is nothing new and the client
is willing to wait, the pull is parked in `LongPolling`, which runs it again when there is.
"""

from __future__ import annotations

from collections.abc import Callable
from time import perf_counter
from typing import Final

import structlog

from triomq.broker.configuration import Configuration
from triomq.broker.filters.selection import FilterChooser
from triomq.broker.long_polling import LongPolling, ParkedPull
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.store_metrics import StoreMetrics
from triomq.broker.put_responses import FAQ
from triomq.broker.tables.metadata import Metadata
from triomq.protocol import permission, sys_flag
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.response_template import ResponseTemplate, TemplatedResponse
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool, error_response
from triomq.store.config import BrokerRole
from triomq.store.message_store import MessageStore
from triomq.store.results import GetResult, GetStatus, MessageFilter

log = structlog.get_logger("triomq.broker.pull")

# Plain ints, because accessing an enum member takes three times as long.
_SUCCESS: Final = int(ResponseCode.SUCCESS)
_PULL_NOT_FOUND: Final = int(ResponseCode.PULL_NOT_FOUND)
_PULL_OFFSET_MOVED: Final = int(ResponseCode.PULL_OFFSET_MOVED)
_PULL_RETRY_IMMEDIATELY: Final = int(ResponseCode.PULL_RETRY_IMMEDIATELY)
_FOUND: Final = GetStatus.FOUND

_TEMPLATE: Final = ResponseTemplate(("suggestWhichBrokerId", "nextBeginOffset", "minOffset", "maxOffset"))

MAX_WAIT_MS = 120_000
"""The longest time a pull is held, whatever time it requests."""

OffsetMoved = Callable[[PullMessageRequestHeader, int], None]
"""Called when a consumer pulls outside its queue, with the request and the offset that the response suggests."""


class PullProcessor:
    """Handles pulls of consumers, on a master or a slave."""

    def __init__(
        self,
        configuration: Configuration,
        store: MessageStore,
        metadata: Metadata,
        filters: FilterChooser,
        stats: BrokerStats,
        pace: StoreMetrics,
        *,
        pool: Pool,
        offset_moved: OffsetMoved,
    ) -> None:
        self._configuration = configuration
        self._store = store
        self._topics = metadata.topics
        self._groups = metadata.groups
        self._offsets = metadata.offsets
        self._filters = filters
        self._stats = stats
        self._pace = pace
        self._offset_moved = offset_moved
        self.long_polling = LongPolling(store, pool, self._pull_again)

    def __call__(self, connection: Connection, request: RemotingCommand) -> RemotingCommand | None:
        """Return the response, or None for a pull that is held."""
        header = request.header(PullMessageRequestHeader)
        group = self._check(connection, header)
        message_filter = self._filters.choose(header)
        result = self._read(header, message_filter)
        if header.sys_flag & sys_flag.PULL_COMMIT_OFFSET and not self._is_slave:
            self._offsets.commit(header.consumer_group, header.topic, header.queue_id, header.commit_offset)
        code = self._code(header, result)
        if code == _PULL_NOT_FOUND and header.sys_flag & sys_flag.PULL_SUSPEND:
            self._hold(connection, request, header, message_filter)
            return None
        return self._response(request, header, group, result, code)

    def _hold(
        self,
        connection: Connection,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        message_filter: MessageFilter | None,
    ) -> None:
        broker = self._configuration.broker
        wait_ms = header.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_ms
        self.long_polling.park(connection, request, header, message_filter, max(0, min(wait_ms, MAX_WAIT_MS)) / 1000)

    def _pull_again(self, parked: ParkedPull) -> None:
        """Process a held pull again: the same checks, but without holding it again and without committing offsets."""
        request = parked.request
        header = parked.header
        try:
            group = self._check(parked.connection, header)
            result = self._read(header, self._filters.choose(header))
            response = self._response(request, header, group, result, self._code(header, result))
        except Exception as error:
            response = error_response(parked.connection, request, error)
        parked.connection.answer(request, response)

    @property
    def _is_slave(self) -> bool:
        return self._configuration.store.broker_role is BrokerRole.SLAVE

    def _check(self, connection: Connection, header: PullMessageRequestHeader) -> SubscriptionGroupConfig:
        """Return the group's settings if it may read this queue. Raises RequestRefused."""
        broker = self._configuration.broker
        if not permission.is_readable(broker.broker_permission):
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"the broker[{broker.broker_ip1}] pulling message is forbidden"
            )
        group = self._groups.find(header.consumer_group)
        if group is None:
            raise RequestRefused(
                ResponseCode.SUBSCRIPTION_GROUP_NOT_EXIST,
                f"subscription group [{header.consumer_group}] does not exist, \n{FAQ}",
            )
        if not group.consume_enable:
            raise RequestRefused(
                ResponseCode.NO_PERMISSION, f"subscription group no permission, {header.consumer_group}"
            )
        topic = self._topics.get(header.topic)
        if topic is None:
            raise RequestRefused(
                ResponseCode.TOPIC_NOT_EXIST, f"topic[{header.topic}] not exist, apply first please! \n{FAQ}"
            )
        if not permission.is_readable(topic.perm):
            raise RequestRefused(ResponseCode.NO_PERMISSION, f"the topic[{header.topic}] pulling message is forbidden")
        if not 0 <= header.queue_id < topic.read_queue_nums:
            raise RequestRefused(
                ResponseCode.SYSTEM_ERROR,
                f"queueId[{header.queue_id}] is illegal, topic:[{header.topic}] "
                f"topicConfig.readQueueNums:[{topic.read_queue_nums}] consumer:[/{connection.remote.text}]",
            )
        return group

    def _read(self, header: PullMessageRequestHeader, message_filter: MessageFilter | None) -> GetResult:
        began = perf_counter()
        result = self._store.reading.get_messages(
            header.topic, header.queue_id, header.queue_offset, header.max_msg_nums, message_filter
        )
        elapsed_ms = int((perf_counter() - began) * 1000)
        if elapsed_ms:  # rare, so nearly every pull costs only the clock reading
            self._read_took(header, result, elapsed_ms)
        if result.status is not _FOUND:
            self._stats.get_missed()
        return result

    def _read_took(self, header: PullMessageRequestHeader, result: GetResult, elapsed_ms: int) -> None:
        self._pace.get_took(elapsed_ms)
        if result.status is _FOUND:
            self._stats.get_latency(header.consumer_group, header.topic, header.queue_id, elapsed_ms)

    def _code(self, header: PullMessageRequestHeader, result: GetResult) -> int:
        """Return the response code for the store's result."""
        status = result.status
        if status is _FOUND:
            return _SUCCESS
        if status in (GetStatus.NO_MATCHED_MESSAGE, GetStatus.MESSAGE_WAS_REMOVING):
            return _PULL_RETRY_IMMEDIATELY
        if status in (GetStatus.OFFSET_FOUND_NULL, GetStatus.OFFSET_OVERFLOW_ONE):
            return _PULL_NOT_FOUND
        moved = status in (GetStatus.OFFSET_TOO_SMALL, GetStatus.OFFSET_OVERFLOW_BADLY)
        if not moved and header.queue_offset == 0:
            return _PULL_NOT_FOUND
        if self._is_slave and not self._configuration.store.offset_check_in_slave:
            return _PULL_RETRY_IMMEDIATELY
        return _PULL_OFFSET_MOVED

    def _response(
        self,
        request: RemotingCommand,
        header: PullMessageRequestHeader,
        group: SubscriptionGroupConfig,
        result: GetResult,
        code: int,
    ) -> RemotingCommand:
        body = b""
        if code == _SUCCESS:
            body = result.records[0] if result.message_count == 1 else b"".join(result.records)
            self._stats.group_get(
                header.consumer_group, header.topic, header.queue_id, result.message_count, result.size_bytes
            )
        elif code == _PULL_OFFSET_MOVED:
            self._offset_moved(header, result.next_begin_offset)
        values = (
            self._suggested_broker(group, result),
            result.next_begin_offset,
            result.min_offset,
            result.max_offset,
        )
        return TemplatedResponse(_TEMPLATE, request, code, values, result.status._name_, body)

    def _suggested_broker(self, group: SubscriptionGroupConfig, result: GetResult) -> int:
        """Return the broker id to suggest: 0 is the master. With slaveReadEnable it is the group's choice, and a slave
        if the messages are old."""
        if not self._configuration.broker.slave_read_enable:
            return 0
        return group.which_broker_when_consume_slowly if result.suggest_slave else group.broker_id
