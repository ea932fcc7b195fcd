"""Sending messages.

    async with Producer("orders", name_server="127.0.0.1:9876") as producer:
        result = await producer.send(Message("Orders", b"...", tags="new", keys="order-17"))

A send goes to the next writable queue (round robin over the brokers), waits for the broker's response, and is tried
again at another broker when it fails. A message may therefore be stored twice: consumers recognize it by its id or by a
key of the application. Any number of tasks may send through one producer at the same time.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterable, Mapping
from contextlib import AsyncExitStack
from datetime import timedelta
from typing import Any, Generic, Self, TypeVar, Unpack

import trio

from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import ClientClosed, ConfigurationError, InvalidMessage, MQClientError
from triomq.client.core.group_names import check_group
from triomq.client.core.hooks import SendHook
from triomq.client.core.log import get_logger
from triomq.client.core.outgoing import SendRules
from triomq.client.core.queue_choice import QueueSelector, by_hash, by_random
from triomq.client.core.results import SendResult, SendStatus
from triomq.client.core.routes import TopicRoute
from triomq.client.core.type_variables import T
from triomq.client.instance.client import Client
from triomq.client.instance.event_loop import check_in_trio
from triomq.client.instance.own_client import OpenedWithClient
from triomq.client.payloads.decoder import Decoder
from triomq.client.payloads.kinds import classes_of, names_of
from triomq.client.payloads.serializer import Bytes, Serializer
from triomq.client.produce import request_reply
from triomq.client.produce.only_messages import takes_message
from triomq.client.produce.pipeline import Pipeline
from triomq.client.produce.sender import Attempts, Sender
from triomq.client.produce.trace import TraceSender
from triomq.protocol.headers.transaction import CheckTransactionStateRequestHeader
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC, TRACE_TOPIC

__all__ = ["Message", "MessageQueue", "Producer", "QueueSelector", "SendResult", "SendStatus", "by_hash", "by_random"]

log = get_logger("triomq.client.producer")

LEAVE_SECONDS = 3.0

V = TypeVar("V")


class Producer(OpenedWithClient, Generic[T]):
    """Sends messages (RocketMQ: DefaultMQProducer). Use it as `async with Producer(group) as producer`.

    `group` names the producers that send the same kind of messages. `client`: share this open client instead of
    creating one; then no client options are allowed. `send_timeout_seconds`: limit of one send with all its attempts.
    `retries`: attempts after the first; those that reach no broker do not count. `retry_when_not_stored_ok`: also try
    another broker when the message is stored but not flushed or replicated in time. `default_topic_queues`: number of
    queues of a topic that the first send creates, with the settings of `template_topic`. `rules`: sizes and
    compression. `latency_faults`: avoid brokers that were slow or failed. `max_in_flight`: sends that may wait for a
    response at once; others wait for their turn. `send_hooks` see every attempt. `trace`: send message trace to the
    usual topic, or to the one named. `serializer`: makes bodies of the values that `message`, `send_value`,
    `request_value` and `reply_value` take.
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
        serializer: Serializer[T] | None = None,
        **options: Unpack[ClientOptions],
    ) -> None:
        check_group(group, "producer")
        if retries < 0 or max_in_flight < 1 or not send_timeout_seconds > 0:
            raise ConfigurationError("retries must not be negative; max_in_flight and the time limit must be positive")
        super().__init__(client, options)
        self.group_name = group
        self.group = self._client.namespace.wrap(group)
        self._sender = Sender(
            self._client,
            self.group,
            attempts=Attempts(
                timeout_seconds=send_timeout_seconds,
                retries=retries,
                retry_when_not_stored_ok=retry_when_not_stored_ok,
                default_topic_queues=default_topic_queues,
                template_topic=template_topic,
            ),
            rules=rules,
            hooks=send_hooks,
            latency_faults=latency_faults,
            max_in_flight=max_in_flight,
        )
        self._serializer: Serializer[Any] = Bytes() if serializer is None else serializer
        self._classes = classes_of(self._serializer.value_type())
        self._trace_topic = TRACE_TOPIC if trace is True else trace or None

    async def __aenter__(self) -> Self:
        check_in_trio(type(self).__name__)
        if self._is_open:
            raise ClientClosed("this producer is already open")
        self._sender.use_current_clock()
        if type(self._serializer).connect is not Serializer.connect:
            await trio.to_thread.run_sync(self._serializer.connect)
        async with AsyncExitStack() as stack:
            await self._enter_client(stack)
            if self._trace_topic is not None:
                trace = await stack.enter_async_context(TraceSender(self._client, self._trace_topic))
                self._sender.hooks.append(trace)
                stack.callback(self._sender.hooks.remove, trace)
            self._client.add_producer(self)
            stack.push_async_callback(self._leave)
            await self._client.heartbeat_all()
            self._stack = stack.pop_all()
        self._opening_task = trio.lowlevel.current_task()
        return self

    async def _leave(self) -> None:
        with trio.CancelScope(shield=True, deadline=trio.current_time() + LEAVE_SECONDS):
            await self._client.remove_producer(self.group)
        self._client.producers.pop(self.group, None)

    # Sending.

    @takes_message
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
        """Send one message and wait until the broker has stored it.

        `queue`, `selector` or `sharding_key` fix the queue; such a send is tried once, and repeated only while its
        broker cannot be reached. Messages with the same key go to the same queue, in the order in which they are sent
        one after the other. Raises InvalidMessage, NoRoute,
        SendFailed, BrokerRefused, OperationTimeout, NameServersUnreachable.
        """
        with self._client.spans.sending((message,)) as span:
            outgoing = self._sender.preparer.single(message, span.carried)
            deadline = self._sender.deadline(timeout_seconds)
            chosen = await self._fixed_queue(message, queue, selector, selector_argument, sharding_key, deadline)
            result = await self._sender.deliver_until(deadline, outgoing, (message,), chosen)
            span.stored(result)
            return result

    @takes_message
    async def send_oneway(
        self,
        message: Message,
        *,
        queue: MessageQueue | None = None,
        selector: QueueSelector | None = None,
        selector_argument: Any = None,
        sharding_key: str | None = None,
    ) -> None:
        """Send one message without waiting for a response: fast, but a lost message goes unnoticed."""
        await trio.lowlevel.checkpoint()
        with self._client.spans.sending((message,)) as span:
            outgoing = self._sender.preparer.single(message, span.carried)
            deadline = self._sender.deadline(None)
            chosen = await self._fixed_queue(message, queue, selector, selector_argument, sharding_key, deadline)
            await self._sender.tell(outgoing, chosen)

    async def send_batch(
        self,
        messages: Iterable[Message],
        *,
        queue: MessageQueue | None = None,
        max_batch_bytes: int = 1024 * 1024,
        timeout_seconds: float | None = None,
    ) -> list[SendResult]:
        """Send many messages of one topic in as few requests as their size allows; return one result for each request,
        in order.

        The messages of a request are stored together or not at all; requests before one that fails are stored.
        """
        self._check_open()
        results: list[SendResult] = []
        spans, preparer = self._client.spans, self._sender.preparer
        chosen = None if queue is None else self._wire_queue(queue)
        for run in preparer.batches(messages, max_batch_bytes, spans.carried_bytes()):
            with spans.sending(run) as span:
                outgoing = preparer.batch(run, span.carried)
                result = await self._sender.deliver(outgoing, run, chosen, timeout_seconds)
                span.stored(result)
            results.append(result)
        return results

    async def send_many(
        self,
        messages: Iterable[Message],
        *,
        in_flight: int = 256,
        sharding_key: Callable[[Message], str] | None = None,
        timeout_seconds: float | None = None,
    ) -> list[SendResult]:
        """Send every message in a request of its own, up to `in_flight` of them at once; return the results in the
        order of the messages. Messages are taken from the iterable as they are sent, so it may be long.

        `sharding_key` gives the key of each message, as for `send`; messages with the same key then keep their order,
        at the price of one at a time for each key. Stops at the first failure, which is raised when the sends in flight
        have ended; what was stored stays stored. For the highest rate see `send_batch`.
        """
        if in_flight < 1:
            raise ConfigurationError(f"in_flight must be positive, not {in_flight}")
        self._check_open()

        def send(message: Message, key: str | None) -> Awaitable[SendResult]:
            return self.send(message, sharding_key=key, timeout_seconds=timeout_seconds)

        return await Pipeline(send, messages, sharding_key).run(in_flight)

    async def queues(self, topic: str) -> list[MessageQueue]:
        """Return the writable queues of a topic, sorted by broker name and id. Raises NoRoute."""
        await trio.lowlevel.checkpoint()
        self._check_open()
        route = await self._sender.publish_route(self._client.namespace.wrap(topic))
        return self._bare_queues(topic, route)

    async def _queues_to_send(self, message: Message, *, timeout_seconds: float | None = None) -> list[MessageQueue]:
        """Return the queues among which a selector chooses for this message, within the time limit of its send."""
        self._check_open()
        return await self._queues_until(message.topic, self._sender.deadline(timeout_seconds))

    async def _queues_until(self, topic: str, deadline: float) -> list[MessageQueue]:
        route = await self._sender.wait_for_route(self._client.namespace.wrap(topic), deadline)
        return self._bare_queues(topic, route)

    @staticmethod
    def _bare_queues(topic: str, route: TopicRoute) -> list[MessageQueue]:
        return [MessageQueue(topic, queue.broker_name, queue.queue_id) for queue in route.publish]

    async def make_known(self, topic: str) -> None:
        """Make sure that the brokers of a topic know this producer, so that they can send it requests and replies."""
        route = await self._sender.publish_route(self._client.namespace.wrap(topic))
        await self._client.make_known(route.topic)

    @takes_message
    async def request(
        self, message: Message, *, timeout_seconds: float = 3.0, sharding_key: str | None = None
    ) -> MessageExt:
        """Send a message and wait for the reply to it, which a consumer sends with `reply_to`. Raises RequestTimedOut,
        and what `send` raises."""

        async def send(asking: Message) -> SendResult:
            # The broker pushes the reply to a client that it knows by its heartbeats.
            await self.make_known(message.topic)
            return await self.send(asking, timeout_seconds=timeout_seconds, sharding_key=sharding_key)

        return await request_reply.request(
            send, message, self._client.client_id, self._client.replies, timeout_seconds=timeout_seconds
        )

    # Typed messages.

    def message(
        self,
        topic: str,
        value: T,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        delay: timedelta | None = None,
    ) -> Message:
        """Return a message whose body the serializer makes of `value`, to be sent in any way: in a batch, in a
        transaction, later. Raises InvalidMessage for a value that it cannot write, or of another type than its own, and
        what `Message` raises."""
        if self._classes is not None and not isinstance(value, self._classes):
            have, wanted = names_of(type(value), self._serializer.value_type())
            hint = "; other values need a serializer" if type(self._serializer) is Bytes else ""
            name = type(self._serializer).__name__
            raise InvalidMessage(f"{name} cannot write this {have}: expected {wanted}, got {have}{hint}")
        try:
            body = self._serializer.encode(value)
        except MQClientError:
            raise
        except Exception as error:
            name = type(self._serializer).__name__
            raise InvalidMessage(f"{name} cannot write this {type(value).__name__}: {error}") from error
        return Message(topic, body, tags=tags, keys=keys, properties=properties, delay_level=delay_level, delay=delay)

    async def send_value(
        self,
        topic: str,
        value: T,
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        properties: Mapping[str, str] | None = None,
        delay_level: int = 0,
        delay: timedelta | None = None,
        sharding_key: str | None = None,
        timeout_seconds: float | None = None,
    ) -> SendResult:
        """Send a value, as `send` does with a message. Raises what `message` and `send` raise."""
        message = self.message(
            topic, value, tags=tags, keys=keys, properties=properties, delay_level=delay_level, delay=delay
        )
        return await self.send(message, sharding_key=sharding_key, timeout_seconds=timeout_seconds)

    async def request_value(
        self,
        topic: str,
        value: T,
        reply: Serializer[V],
        *,
        tags: str | None = None,
        keys: str | Iterable[str] | None = None,
        timeout_seconds: float = 3.0,
    ) -> MessageExt[V]:
        """Send a value and wait for the reply, whose `value` the serializer `reply` reads. Raises what `request`
        raises, and WrongPayload for a reply that it cannot read."""
        answer = await self.request(self.message(topic, value, tags=tags, keys=keys), timeout_seconds=timeout_seconds)
        await Decoder(reply).decode(answer)
        return answer

    async def reply_value(self, asked: MessageExt, value: T, *, tags: str | None = None) -> SendResult:
        """Send a value as the reply to a request. Raises InvalidMessage when `asked` is not a request."""
        return await self.send(self._reply(asked, value, tags=tags))

    def _reply(self, asked: MessageExt, value: T, *, tags: str | None = None) -> Message:
        """Return the message that `reply_value` sends. Raises InvalidMessage when `asked` is not a request."""
        return request_reply.reply_to(asked, self.message(asked.topic, value).body, tags=tags)

    # Inside.

    async def _fixed_queue(
        self,
        message: Message,
        queue: MessageQueue | None,
        selector: QueueSelector | None,
        argument: Any,
        sharding_key: str | None,
        deadline: float,
    ) -> MessageQueue | None:
        """The queue that the caller wants, as a wire name; None when any queue will do."""
        self._check_open()
        if queue is None and selector is None and sharding_key is None:
            return None
        if sum(one is not None for one in (queue, selector, sharding_key)) > 1:
            raise ConfigurationError("give only one of queue, selector and sharding_key")
        if queue is not None:
            if queue.topic not in (message.topic, self._client.namespace.wrap(message.topic)):
                raise ConfigurationError(f"the queue is of topic {queue.topic!r}, the message of {message.topic!r}")
            return self._wire_queue(queue)
        queues = await self._queues_until(message.topic, deadline)
        if selector is not None:
            return self._wire_queue(selector(queues, message, argument))
        return self._wire_queue(by_hash(queues, message, sharding_key))

    def _wire_queue(self, queue: MessageQueue) -> MessageQueue:
        return MessageQueue(self._client.namespace.wrap(queue.topic), queue.broker_name, queue.queue_id)

    def _check_open(self) -> None:
        if not self._is_open:
            raise ClientClosed("this producer is closed: use it inside `async with Producer(...) as producer`")

    async def check_transaction(
        self, broker_address: str, header: CheckTransactionStateRequestHeader, message: MessageExt
    ) -> None:
        """Log it: a plain producer has no transactions. The broker asks again, perhaps another member of the group."""
        log.warning("transaction check ignored: this producer is not a TransactionProducer", group=self.group)
