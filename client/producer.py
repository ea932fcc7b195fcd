"""Sending messages.

    async with Producer("orders", name_server="127.0.0.1:9876") as producer:
        result = await producer.send(Message("Orders", b"...", tags="new", keys="order-17"))

A send goes to the next writable queue (round robin over the brokers), waits for the broker's answer, and is tried again
at another broker when it failed. It may therefore be stored twice: consumers tell by the message id or a key of their
own. Any number of tasks may send through one producer at the same time.
"""

from __future__ import annotations

import socket
from collections import deque
from collections.abc import Callable, Iterable, Sequence
from contextlib import AsyncExitStack
from math import inf
from types import TracebackType
from typing import Any, Self, Unpack

import msgspec
import trio

from triomq.client.client import Client, translated
from triomq.client.config import ClientConfig, ClientOptions
from triomq.client.errors import (
    BrokerRefused,
    ClientClosed,
    ConfigurationError,
    MQClientError,
    NoRoute,
    OperationTimeout,
    SendFailed,
)
from triomq.client.hooks import SendContext, SendHook
from triomq.client.latency import LatencyFaults
from triomq.client.log import get_logger
from triomq.client.outgoing import MessagePreparer, Outgoing, SendRules
from triomq.client.pipeline import Pipeline
from triomq.client.results import SendResult, SendStatus
from triomq.client.routes import TopicRoute
from triomq.protocol import property_names as names
from triomq.protocol import sys_flag
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.base import encode_header
from triomq.protocol.headers.send import SendMessageRequestHeaderV2, SendMessageResponseHeader
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from triomq.protocol.java import string_hash
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC, TRACE_TOPIC
from triomq.remoting.errors import RemotingError

__all__ = ["Message", "MessageQueue", "Producer", "SendResult", "SendStatus"]

log = get_logger("triomq.client.producer")

QueueSelector = Callable[[Sequence[MessageQueue], Message, Any], MessageQueue]
"""Chooses one of the queues (sorted by broker name and id) for a message; the last argument is the caller's own."""

STATUS: dict[int, SendStatus] = {
    ResponseCode.SUCCESS: SendStatus.SEND_OK,
    ResponseCode.FLUSH_DISK_TIMEOUT: SendStatus.FLUSH_DISK_TIMEOUT,
    ResponseCode.FLUSH_SLAVE_TIMEOUT: SendStatus.FLUSH_SLAVE_TIMEOUT,
    ResponseCode.SLAVE_NOT_AVAILABLE: SendStatus.SLAVE_NOT_AVAILABLE,
}
RETRIED: frozenset[int] = frozenset(
    {
        ResponseCode.TOPIC_NOT_EXIST,
        ResponseCode.SERVICE_NOT_AVAILABLE,
        ResponseCode.SYSTEM_ERROR,
        ResponseCode.SYSTEM_BUSY,
        ResponseCode.NO_PERMISSION,
        ResponseCode.NO_BUYER_ID,
        ResponseCode.NOT_IN_CURRENT_UNIT,
    }
)
"""Refusals after which another broker (or another try) may do better."""

BUSY_PAUSE_SECONDS = 0.15
"""Before a broker that just shed load (SYSTEM_BUSY) is asked again: longer than it does so after a slow write."""
MAX_QUEUE_FIELDS = 4096

_WIRE_NAMES = {field.name: field.encode_name for field in msgspec.structs.fields(SendMessageRequestHeaderV2)}
_SYS_FLAG, _BORN_TIMESTAMP, _FLAG, _PROPERTIES, _RECONSUME_TIMES, _MAX_RECONSUME_TIMES, _BATCH = (
    _WIRE_NAMES[name]
    for name in (
        "sys_flag",
        "born_timestamp",
        "flag",
        "properties",
        "reconsume_times",
        "max_reconsume_times",
        "batch",
    )
)
"""What these fields of a send are called on the wire (one letter each)."""


class _SendAnswer(SendMessageResponseHeader, frozen=True, kw_only=True):
    """With what brokers add to the header; traceOn is a text that is true unless it says "false"."""

    region_id: str | None = msgspec.field(default=None, name=names.MSG_REGION)
    trace_on: str | None = msgspec.field(default=None, name=names.TRACE_ON)


class Producer:
    """See the module's text. `group` names the producers that send the same kind of messages.

    `client`: share this open client instead of making one; then the client options are not allowed.
    `send_timeout_seconds`: limit of one send with all its attempts. `retries`: attempts after the first.
    `retry_when_not_stored_ok`: try another broker also when the message is stored but not flushed or replicated in
    time. `default_topic_queues`: queues of a topic that the first send creates. `rules`: sizes and compression.
    `latency_faults`: avoid brokers that were slow or failed. `max_in_flight`: sends that may wait for an answer at
    once; more wait for their turn.
    """

    def __init__(
        self,
        group: str,
        *,
        client: Client | None = None,
        send_timeout_seconds: float = 3.0,
        retries: int = 2,
        retry_when_not_stored_ok: bool = False,
        default_topic_queues: int = 4,
        template_topic: str = AUTO_CREATE_TOPIC,
        rules: SendRules | None = None,
        latency_faults: bool = False,
        max_in_flight: int = 10_000,
        send_hooks: Iterable[SendHook] = (),
        trace: bool | str = False,
        **options: Unpack[ClientOptions],
    ) -> None:
        if not group.strip():
            raise ConfigurationError("the producer group must have a name")
        if client is not None and options:
            raise ConfigurationError(f"options of the shared client cannot be changed here: {', '.join(options)}")
        if retries < 0 or max_in_flight < 1 or not send_timeout_seconds > 0:
            raise ConfigurationError("retries must not be negative; max_in_flight and the time limit must be positive")
        self._client = client if client is not None else Client(ClientConfig(**options))
        self._owns_client = client is None
        self.group_name = group
        self.group = self._client.namespace.wrap(group)
        self.send_timeout_seconds = send_timeout_seconds
        self.retries = retries
        self.retry_when_not_stored_ok = retry_when_not_stored_ok
        self.faults = LatencyFaults(latency_faults)
        self.send_hooks: list[SendHook] = list(send_hooks)
        self._trace_topic = TRACE_TOPIC if trace is True else trace or None
        self._template_topic = template_topic
        self._default_topic_queues = default_topic_queues
        ip = self._client.client_id.partition("@")[0]
        self._preparer = MessagePreparer(
            rules or SendRules(), self._client.namespace, _packed_ip(ip), self._client.config.now_ms
        )
        self._in_flight = 0
        self._max_in_flight = max_in_flight
        self._waiting: deque[trio.Event] = deque()
        self._queue_fields: dict[tuple[str, str, int], dict[str, str]] = {}
        self._clock: Callable[[], float] = trio.current_time
        self._stack = AsyncExitStack()
        self._open = False

    @property
    def client(self) -> Client:
        return self._client

    async def __aenter__(self) -> Self:
        if self._open:
            raise ClientClosed("this producer is already open")
        self._clock = trio.lowlevel.current_clock().current_time  # a third of what trio.current_time costs
        async with AsyncExitStack() as stack:
            if self._owns_client:
                await stack.enter_async_context(self._client)
            elif not self._client.is_open:
                raise ClientClosed("the shared client is not open")
            if self._trace_topic is not None:
                from triomq.client.trace import TraceSender

                self.send_hooks.append(await stack.enter_async_context(TraceSender(self._client, self._trace_topic)))
            self._client.add_producer(self)
            stack.push_async_callback(self._leave)
            await self._client.heartbeat_all()
            self._stack = stack.pop_all()
        self._open = True
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._open = False
        await self._stack.aclose()

    async def _leave(self) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + 3):
            await self._client.remove_producer(self.group)
        self._client.producers.pop(self.group, None)

    # Sending.

    async def send(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_argument: Any = None,
        sharding_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send one message and wait until the broker has it.

        `queue`, `selector` or `sharding_key` fix the queue (messages with the same key go to the same queue, in the
        order they are sent one after the other); such a send is tried once. Raises InvalidMessage, NoRoute, SendFailed,
        BrokerRefused, OperationTimeout, NameServersUnreachable.
        """
        outgoing = self._preparer.single(message)
        chosen = await self._fixed_queue(message, outgoing.topic, queue, selector, selector_argument, sharding_key)
        return await self._deliver(outgoing, (message,), chosen, timeout_seconds)

    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_argument: Any = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send one message without waiting for an answer: fast, and nobody tells when it got lost."""
        self._check_open()
        outgoing = self._preparer.single(message)
        chosen = await self._fixed_queue(message, outgoing.topic, queue, selector, selector_argument, sharding_key)
        if chosen is None:
            route = await self._publish_route(outgoing.topic)
            chosen = self._next_queue(route, None)
        address = await self._client.master_of(chosen.broker_name, outgoing.topic)
        await self._client.tell(address, self._request(outgoing, chosen), vip=True)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        max_batch_bytes: int = 1024 * 1024,
        timeout_seconds: float | None = None,
    ) -> list[SendResult]:
        """Send many messages of one topic in as few requests as their size allows; one result for each request, in
        order.

        The messages of a request are stored together or not at all; requests before one that fails are stored.
        """
        self._check_open()
        results: list[SendResult] = []
        for run in self._preparer.batches(messages, max_batch_bytes):
            outgoing = self._preparer.batch(run)
            chosen = None if queue is None else self._wire_queue(queue)
            results.append(await self._deliver(outgoing, run, chosen, timeout_seconds))
        return results

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        in_flight: int = 256,
        sharding_key: Callable[[Message], str] | None = None,
        timeout_seconds: float | None = None,
    ) -> list[SendResult]:
        """Send every message in a request of its own, up to `in_flight` of them at once; the results in the messages'
        order. Messages are taken from the iterable as they are sent, so it may be long.

        `sharding_key` gives the key of each message, as for `send`; messages with the same key then keep their order,
        at the price of one at a time for each key. Stops at the first failure, which is raised when those in flight
        have ended; what was stored stays stored. For the highest rate see `send_batch`.
        """
        if in_flight < 1:
            raise ConfigurationError(f"in_flight must be positive, not {in_flight}")
        self._check_open()
        return await Pipeline(self, messages, sharding_key, timeout_seconds).run(in_flight)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """The queues one may send to, sorted by broker name and id. Raises NoRoute."""
        self._check_open()
        route = await self._publish_route(self._client.namespace.wrap(topic))
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in route.publish]

    async def make_known(self, topic: str) -> None:
        """Make sure that the brokers of a topic have heard of this producer, so that they can ask or push something."""
        route = await self._publish_route(self._client.namespace.wrap(topic))
        await self._client.make_known(route.topic)

    async def request(
        self, message: Message, *, timeout_seconds: float = 3.0, sharding_key: str | None = None
    ) -> MessageExt:
        """Send a message and wait for its reply; see request_reply.py. Raises RequestTimedOut, and what `send`
        raises."""
        from triomq.client import request_reply

        return await request_reply.request(self, message, timeout_seconds=timeout_seconds, sharding_key=sharding_key)

    # The way of one message.

    async def _deliver(
        self, outgoing: Outgoing, messages: Sequence[Message], queue: MessageQueue | None, timeout_seconds: float | None
    ) -> SendResult:
        self._check_open()
        limit = self.send_timeout_seconds if timeout_seconds is None else timeout_seconds
        deadline = self._clock() + limit
        await self._take_turn(deadline)
        try:
            if queue is not None:
                return await self._attempt(outgoing, messages, queue, deadline)
            return await self._attempts(outgoing, messages, deadline)
        finally:
            self._give_turn()

    async def _attempts(self, outgoing: Outgoing, messages: Sequence[Message], deadline: float) -> SendResult:
        route = self._client.known_publish_route(outgoing.topic) or await self._publish_route(outgoing.topic, deadline)
        failures: list[str] = []
        last_error: MQClientError | None = None
        last_result: SendResult | None = None
        avoid: str | None = None
        busy: str | None = None
        for _ in range(1 + self.retries):
            if failures and self._clock() >= deadline:
                break
            queue = self._next_queue(route, avoid)
            avoid = queue.broker_name
            if avoid == busy:
                await trio.sleep(min(BUSY_PAUSE_SECONDS, deadline - self._clock()))
            try:
                result = await self._attempt(outgoing, messages, queue, deadline)
            except BrokerRefused as error:
                if error.code not in RETRIED:
                    raise
                last_error = error
                failures.append(f"{queue.broker_name}: {error}")
                busy = queue.broker_name if error.code == ResponseCode.SYSTEM_BUSY else None
                continue
            except MQClientError as error:
                last_error = error
                failures.append(f"{queue.broker_name}: {error}")
                route = await self._route_after_failure(outgoing.topic, route)
                continue
            if result.status is SendStatus.SEND_OK or not self.retry_when_not_stored_ok:
                return result
            last_result = result
        if last_result is not None:
            return last_result
        if len(failures) == 1 and last_error is not None:
            raise last_error
        raise SendFailed(self._client.namespace.unwrap(outgoing.topic), failures) from last_error

    async def _attempt(
        self, outgoing: Outgoing, messages: Sequence[Message], queue: MessageQueue, deadline: float
    ) -> SendResult:
        """One request to one queue. Raises MQClientError."""
        began = self._clock()
        address = await self._client.master_of(queue.broker_name, outgoing.topic)
        context = self._before_send(messages, queue, address, outgoing.sys_flag)
        try:
            left = deadline - self._clock()
            if left <= 0:
                raise OperationTimeout("the time limit of the send was over before this attempt")
            try:
                response = await self._client.invoke(address, self._request(outgoing, queue), left, vip=True)
            except RemotingError as error:
                raise translated(error, f"sending to {queue.broker_name} ({address})") from error
            result = self._result(outgoing, queue, address, response)
        except BaseException as error:
            if self.faults.enabled:
                self.faults.record(queue.broker_name, self._ms_since(began), self._ms_since(0), failed=True)
            if context is not None:
                self._after_send(context, None, error, self._ms_since(began))
            raise
        if self.faults.enabled:
            self.faults.record(queue.broker_name, self._ms_since(began), self._ms_since(0))
        if context is not None:
            self._after_send(context, result, None, self._ms_since(began))
        return result

    def _request(self, outgoing: Outgoing, queue: MessageQueue) -> RemotingCommand:
        """The request: a copy of the queue's fields, and the message's own."""
        key = (outgoing.topic, queue.broker_name, queue.queue_id)
        common = self._queue_fields.get(key)
        if common is None:
            common = self._fields_of_queue(outgoing.topic, queue)
            if len(self._queue_fields) >= MAX_QUEUE_FIELDS:
                self._queue_fields.clear()
            self._queue_fields[key] = common
        fields = common.copy()
        fields[_SYS_FLAG] = str(outgoing.sys_flag)
        fields[_BORN_TIMESTAMP] = str(self._client.config.now_ms())
        fields[_PROPERTIES] = outgoing.properties
        if outgoing.flag:
            fields[_FLAG] = str(outgoing.flag)
        if outgoing.is_batch:
            fields[_BATCH] = "true"
        if outgoing.reconsume_times:
            fields[_RECONSUME_TIMES] = str(outgoing.reconsume_times)
        if outgoing.max_reconsume_times is not None:
            fields[_MAX_RECONSUME_TIMES] = str(outgoing.max_reconsume_times)
        return RemotingCommand(outgoing.code, body=outgoing.body, ext_fields=fields)

    def _fields_of_queue(self, topic: str, queue: MessageQueue) -> dict[str, str]:
        return encode_header(
            SendMessageRequestHeaderV2(
                producer_group=self.group,
                topic=topic,
                default_topic=self._template_topic,
                default_topic_queue_nums=self._default_topic_queues,
                queue_id=queue.queue_id,
                sys_flag=0,
                born_timestamp=0,
                flag=0,
                properties="",
                reconsume_times=0,
                unit_mode=self._client.config.unit_mode,
                batch=False,
                broker_name=queue.broker_name,
            )
        )

    def _result(self, outgoing: Outgoing, queue: MessageQueue, address: str, response: RemotingCommand) -> SendResult:
        status = STATUS.get(response.code)
        if status is None:
            raise BrokerRefused(
                response.code, response.remark, address=address, action=f"sending to topic {outgoing.topic!r}"
            )
        header = response.header(_SendAnswer)
        return SendResult(
            status=status,
            message_id=outgoing.message_id,
            queue=MessageQueue(self._client.namespace.unwrap(outgoing.topic), queue.broker_name, header.queue_id),
            queue_offset=header.queue_offset,
            offset_message_id=header.msg_id,
            transaction_id=header.transaction_id,
            region_id=header.region_id,
            trace_on=header.trace_on != "false",
        )

    # Choosing a queue.

    async def _publish_route(self, topic: str, deadline: float = inf) -> TopicRoute:
        with trio.move_on_at(deadline):
            return await self._client.publish_route(topic, self._template_topic, self._default_topic_queues)
        asked = ", ".join(self._client.name_servers.addresses)
        raise OperationTimeout(f"the time limit of the send was over before a name server answered (asked: {asked})")

    def _next_queue(self, route: TopicRoute, avoid: str | None) -> MessageQueue:
        queue = route.next_queue(self.faults, self._ms_since(0) if self.faults.enabled else 0, avoid)
        if queue is None:
            raise NoRoute(route.topic, self._client.name_servers.addresses, "it has no writable queue")
        return queue

    async def _route_after_failure(self, topic: str, route: TopicRoute) -> TopicRoute:
        """The freshest route there is, so that the next attempt does not go to a broker that has gone."""
        try:
            await self._client.update_route(topic)
        except MQClientError as error:
            log.debug("route not refreshed after a failed send", topic=topic, error=str(error))
        known = self._client.routes.get(topic)
        return known if known is not None and known.publish else route

    async def _fixed_queue(
        self,
        message: Message,
        topic: str,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        argument: Any,
        sharding_key: str | None,
    ) -> MessageQueue | None:
        self._check_open()
        if queue is None and selector is None and sharding_key is None:
            return None
        if sum(one is not None for one in (queue, selector, sharding_key)) > 1:
            raise ConfigurationError("give only one of queue, selector and sharding_key")
        if queue is not None:
            if queue.topic not in (message.topic, topic):
                raise ConfigurationError(f"the queue is of topic {queue.topic!r}, the message of {message.topic!r}")
            return self._wire_queue(queue)
        queues = await self.queues(message.topic)
        if selector is not None:
            return self._wire_queue(selector(queues, message, argument))
        return self._wire_queue(by_hash(queues, message, sharding_key))

    def _wire_queue(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._client.namespace.wrap(queue.topic), queue.broker_name, queue.queue_id)

    # Bounds, hooks, state.

    async def _take_turn(self, deadline: float) -> None:
        if self._in_flight < self._max_in_flight:
            self._in_flight += 1
            return
        turn = trio.Event()
        self._waiting.append(turn)
        try:
            with trio.move_on_at(deadline):
                await turn.wait()
        finally:
            if not turn.is_set():
                self._waiting.remove(turn)
        if not turn.is_set():
            raise OperationTimeout(f"{self._max_in_flight} sends of this producer wait for their answers")

    def _give_turn(self) -> None:
        # A waiting send takes over the place, so the count stays; a cancelled one hands it on in its own finally.
        if self._waiting:
            self._waiting.popleft().set()
        else:
            self._in_flight -= 1

    def _before_send(
        self, messages: Sequence[Message], queue: MessageQueue, address: str, flags: int
    ) -> SendContext | None:
        if not self.send_hooks:
            return None
        is_half = sys_flag.transaction_type(flags) == sys_flag.TRANSACTION_PREPARED
        context = SendContext(self.group, messages[0], messages, queue, address, self._client.config.now_ms(), is_half)
        for hook in self.send_hooks:
            try:
                hook.before_send(context)
            except Exception:
                log.exception("a send hook failed")
        return context

    def _after_send(
        self, context: SendContext, result: SendResult | None, error: BaseException | None, cost_ms: int
    ) -> None:
        context.result, context.error, context.cost_ms = result, error, cost_ms
        for hook in self.send_hooks:
            try:
                hook.after_send(context)
            except Exception:
                log.exception("a send hook failed")

    def _ms_since(self, began: float) -> int:
        return int((self._clock() - began) * 1000)

    def _check_open(self) -> None:
        if not self._open:
            raise ClientClosed("this producer is closed: use it inside `async with Producer(...) as producer`")

    async def check_transaction(
        self, broker_address: str, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        """A plain producer has no transactions; the broker asks again, or another member."""
        log.warning("asked for a transaction, but this is no TransactionProducer", group=self.group)


def by_hash(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
    """Same argument, same queue (RocketMQ: SelectMessageQueueByHash); texts hash as in Java, so clients may be
    mixed."""
    value = string_hash(argument) if isinstance(argument, str) else hash(argument)
    return queues[abs(value) % len(queues)]


def by_random(queues: Sequence[MessageQueue], message: Message, argument: Any) -> MessageQueue:
    """Any queue (RocketMQ: SelectMessageQueueByRandom)."""
    import random

    return random.choice(queues)


def _packed_ip(ip: str) -> bytes:
    try:
        return socket.inet_pton(socket.AF_INET6 if ":" in ip else socket.AF_INET, ip)
    except OSError:
        import secrets

        return secrets.token_bytes(4)
