"""Pulling: PULL_MESSAGE (RocketMQ: PullMessageProcessor).

The path of a pull: header, permission, subscription and filter, quota, store, response. Where it finds something to
wait for (pulls/nothing_new.py, over_quota.py, on_disk.py), it may be held in `LongPolling`, which runs it again.
"""

from __future__ import annotations

from collections.abc import Callable, Coroutine
from functools import partial
from time import perf_counter
from typing import Any, Final, TypeAlias

import structlog
from msgspec.structs import replace

from triomq.broker.configuration import Configuration
from triomq.broker.filters.limits import REMEMBERED_CHARACTERS
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.metrics.store_metrics import StoreMetrics
from triomq.broker.processors.steps import compile_first
from triomq.broker.pulls.long_polling import LongPolling, ParkedPull
from triomq.broker.pulls.nothing_new import NothingNew
from triomq.broker.pulls.on_disk import OnDisk
from triomq.broker.pulls.over_quota import OverQuota
from triomq.broker.pulls.selection import FilterChooser
from triomq.broker.put_responses import FAQ
from triomq.broker.quotas.quotas import Quotas
from triomq.broker.tables.metadata import Metadata
from triomq.broker.topic_lives import is_outlived
from triomq.protocol import permission, sys_flag
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.errors import RequestRefused
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.response_template import ResponseTemplate, TemplatedResponse
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import Pool, error_response
from triomq.store.message_store import DefaultMessageStore
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

Reason: TypeAlias = NothingNew | OverQuota | OnDisk
"""What a pull may wait for."""

Tried: TypeAlias = RemotingCommand | Reason
"""The response to a pull, or what it may wait for."""


class PullProcessor:
    """Handles pulls of consumers, on a master or a slave."""

    def __init__(
        self,
        configuration: Configuration,
        store: DefaultMessageStore,
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
        self._quotas: Quotas | None = None  # None while there is no quota
        self.long_polling = LongPolling(store, pool)

    def quotas(self) -> Quotas | None:
        """Return the quotas that pulls count on; None while there are none."""
        return self._quotas

    def use_quotas(self, quotas: Quotas | None) -> None:
        """Count and delay pulls by these quotas from now on; None while there are none."""
        self._quotas = quotas

    def __call__(
        self, connection: Connection, request: RemotingCommand
    ) -> RemotingCommand | Coroutine[Any, Any, RemotingCommand | None] | None:
        """Return the response, None for a pull that is held, or what compiles its long expression first."""
        header = request.header(PullMessageRequestHeader)
        expression = header.subscription
        if expression is not None and len(expression) > REMEMBERED_CHARACTERS and self._must_compile(header):
            self._check(connection, header)
            self._commit(header)  # now: an offset that is committed while this waits is a later one
            header = replace(header, sys_flag=header.sys_flag & ~sys_flag.PULL_COMMIT_OFFSET)
            return compile_first(connection, expression, partial(self._pull, connection, request, header))
        return self._pull(connection, request, header)

    def _must_compile(self, header: PullMessageRequestHeader) -> bool:
        if not header.sys_flag & sys_flag.PULL_SUBSCRIPTION:
            return False
        wanted = header.topic, header.consumer_group, header.subscription, header.expression_type
        return self._filters.must_compile(*wanted)

    def _pull(
        self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader
    ) -> RemotingCommand | None:
        if self.long_polling.has_ended:
            raise self.long_polling.refusal()
        tried = self._attempt(connection, request, header)
        self._commit(header)
        if isinstance(tried, RemotingCommand):
            return tried
        patience_end = self.long_polling.patience_end(self._wait_ms(header))
        return self._hold(tried, ParkedPull(connection, request, header, patience_end, self._pull_again))

    def _pull_again(self, parked: ParkedPull) -> None:
        """Process a held pull again: the same, but without committing offsets."""
        connection, request = parked.connection, parked.request
        response: RemotingCommand | None
        try:
            tried = self._attempt(connection, request, parked.header)
            response = tried if isinstance(tried, RemotingCommand) else self._hold(tried, parked.again())
        except Exception as error:
            response = error_response(connection, request, error)
        if response is not None:
            connection.answer(request, response, parked.since)

    def _hold(self, reason: Reason, pull: ParkedPull) -> RemotingCommand | None:
        """Hold a pull, or return the response that there was something to wait for."""
        return None if reason.hold(self.long_polling, pull) else reason.response(pull)

    def _attempt(self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader) -> Tried:
        """Return the response, or what the pull may wait for. Raises RequestRefused."""
        group = self._check(connection, header)
        message_filter = self._filters.choose(header)
        quotas = self._quotas
        if quotas is not None:
            excess = quotas.excess_of_pull(connection, request, header.consumer_group)
            if excess is not None:
                if not self._wait_ms(header):
                    raise quotas.refusal(excess, connection.remote)
                return OverQuota(quotas, excess, partial(self._nothing_yet, request, header, group))
        result = self._read(header, message_filter)
        if result.missing is not None:
            return OnDisk(self._store.reading.cold, result.missing, partial(self._nothing_yet, request, header, group))
        code = self._code(header, result)
        if code == _PULL_NOT_FOUND:
            response = partial(self._response, request, header, group, result, code, connection)
            return NothingNew(message_filter, response)
        return self._response(request, header, group, result, code, connection)

    def _commit(self, header: PullMessageRequestHeader) -> None:
        """Store the offset that a pull carries, unless it belongs to an earlier life of its topic."""
        if not header.sys_flag & sys_flag.PULL_COMMIT_OFFSET or self._is_slave:
            return
        topic = header.topic
        queue_id = header.queue_id
        queue_offset = header.commit_offset
        if not is_outlived(self._topics, self._store.reading, topic, queue_id, queue_offset):
            self._offsets.commit(header.consumer_group, topic, queue_id, queue_offset)

    def _wait_ms(self, header: PullMessageRequestHeader) -> int:
        """Return how long the client lets a pull wait for news or a quota."""
        if not header.sys_flag & sys_flag.PULL_SUSPEND:
            return 0
        broker = self._configuration.broker
        wait_ms = header.suspend_timeout_millis if broker.long_polling_enable else broker.short_polling_time_ms
        return max(0, min(wait_ms, MAX_WAIT_MS))

    def _nothing_yet(
        self, request: RemotingCommand, header: PullMessageRequestHeader, group: SubscriptionGroupConfig, remark: str
    ) -> RemotingCommand:
        """Return the response to a pull whose time is over before its quota has room, or the disk has read what it
        wants: it finds nothing, at the offset that it asked for, and its client pulls again."""
        reading = self._store.reading
        low = reading.min_offset(header.topic, header.queue_id)
        high = reading.max_offset(header.topic, header.queue_id)
        broker_id = group.broker_id if self._configuration.broker.slave_read_enable else 0
        values = (broker_id, header.queue_offset, max(0, low), max(0, high))
        return TemplatedResponse(_TEMPLATE, request, _PULL_NOT_FOUND, values, remark, b"")

    @property
    def _is_slave(self) -> bool:
        return self._configuration.role.is_slave

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
            header.topic, header.queue_id, header.queue_offset, header.max_msg_nums, message_filter, may_wait=True
        )
        if result.missing is not None:
            return result
        elapsed_ms = int((perf_counter() - began) * 1000)
        if elapsed_ms:  # rare, so nearly every pull costs only the clock reading
            self._read_took(header, result, elapsed_ms)
        if result.status is not _FOUND:
            if result.status is GetStatus.OFFSET_OVERFLOW_BADLY and not self._is_slave:
                self._begin_anew(header, result)
            self._stats.get_missed(header.consumer_group, header.topic, header.queue_id, result.next_begin_offset)
        return result

    def _begin_anew(self, header: PullMessageRequestHeader, result: GetResult) -> None:
        """Redirect a consumer of an earlier life of the topic to the first message of this one. RocketMQ redirects it
        to the end, behind messages that it never got."""
        if self._topics.was_made_again(header.topic):
            result.next_begin_offset = result.min_offset

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
        connection: Connection,
    ) -> RemotingCommand:
        body = b""
        if code == _SUCCESS:
            runs = result.runs
            body = runs[0] if len(runs) == 1 else b"".join(runs)
            self._stats.group_get(
                header.consumer_group,
                header.topic,
                header.queue_id,
                result.message_count,
                result.size_bytes,
                result.next_begin_offset,
            )
            if self._quotas is not None:
                self._quotas.pulled(connection, request, header.consumer_group, result.message_count, len(body))
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
