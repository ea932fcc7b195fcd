"""Storing messages: in order within each queue, in batches where the protocol allows them.

Each queue has one request at a time. Delayed and very large messages are sent alone. A request whose response was lost
may or may not have been stored: an idempotent write then searches the queue (triomq.spark.markers) before it sends the
rest again; any other write sends everything again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Final

from triomq.client.core.errors import BrokerRefused
from triomq.client.core.outgoing import Outgoing
from triomq.client.core.queue_choice import by_sharding_key
from triomq.client.core.results import SendResult
from triomq.client.core.retry import RETRIED_SENDS
from triomq.client.core.send_requests import SendRequests, send_result
from triomq.protocol import property_names as names
from triomq.protocol.codes import RequestCode
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.properties import parse_bytes
from triomq.protocol.record import BatchUnit, encode_batch_units
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC, SCHEDULE_TOPIC
from triomq.spark.cluster import CONNECTION_ERRORS, NEW_TOPIC_QUEUES, Cluster
from triomq.spark.errors import OptionError, SendAborted, Unreachable
from triomq.spark.markers import StoredRows
from triomq.spark.outgoing import OutgoingMessage

MESSAGES_PER_BATCH: Final = 2000


class Sender:
    """Collects messages by queue and stores them. Call `flush` at the end. One owner, one thread."""

    def __init__(
        self,
        cluster: Cluster,
        group: str,
        *,
        batch_bytes: int,
        retries: int,
        now_ms: Callable[[], int],
        stored: StoredRows | None,
        max_rate: int = 0,
        first_queue: int = 0,
    ) -> None:
        """`max_rate`: messages a second, 0 for no limit. `first_queue`: number of the queue where round robin
        starts."""
        self._max_rate = max_rate
        self._cluster = cluster
        self._started = cluster.clock()
        self._requests = SendRequests(group, template_topic=AUTO_CREATE_TOPIC, default_topic_queues=NEW_TOPIC_QUEUES)
        self._batch_bytes = batch_bytes
        self._retries = retries
        self._now_ms = now_ms
        self._stored = stored
        self._turn = first_queue
        self._queues: dict[str, list[MessageQueue]] = {}
        self._buffers: dict[MessageQueue, list[OutgoingMessage]] = {}
        self._buffered_bytes: dict[MessageQueue, int] = {}
        self._fill: dict[str, MessageQueue] = {}
        self._delayed_queues: dict[str, list[MessageQueue]] = {}
        self.sent = 0
        self.skipped = 0

    def queues(self, topic: str) -> list[MessageQueue]:
        """Return the sorted writable queues of a topic. A topic that does not exist has those that the first message
        will create. Raises OptionError when there are none."""
        queues = self._queues.get(topic)
        if queues is None:
            route = self._cluster.publish_route(topic)
            if route is None:
                raise OptionError(f"sink: topic {topic!r} does not exist, and no broker creates topics by itself")
            if not route.publish:
                raise OptionError(f"sink: topic {topic!r} has no queue that can be written")
            self._queues[topic] = sorted(route.publish)
            if self._stored is not None:
                self._stored.look_into(self._queues[topic])
        return self._queues[topic]

    def used_queues(self) -> list[MessageQueue]:
        """Return all queues of all topics written to, including those of delayed messages."""
        return [queue for queues in (*self._queues.values(), *self._delayed_queues.values()) for queue in queues]

    def _delayed(self, broker_name: str) -> list[MessageQueue]:
        """Return the queues in which a broker keeps delayed messages, where this task finds its own again."""
        queues = self._delayed_queues.get(broker_name)
        if queues is None:
            route = self._cluster.route(SCHEDULE_TOPIC)
            queues = [queue for queue in route.subscribe if queue.broker_name == broker_name]
            self._delayed_queues[broker_name] = queues
            if self._stored is not None:
                self._stored.look_into(queues)
        return queues

    def add(self, message: OutgoingMessage) -> None:
        """Add one message, and send a batch when its queue has enough."""
        queue = self._choose(message)
        if message.delay_level and self._stored is not None:
            self._delayed(queue.broker_name)
        if self._stored is not None and self._stored.take(message.digest):
            self.skipped += 1
            return
        if message.delay_level:
            self._flush_queue(queue)
            self._store(queue, [message])
            return
        buffer = self._buffers.setdefault(queue, [])
        size = self._buffered_bytes.get(queue, 0)
        if buffer and size + message.size_bytes > self._batch_bytes:
            self._flush_queue(queue)
            size = 0
            if message.queue_id is None and message.sharding_key is None:
                queue = self._next_queue(message.topic)
                buffer = self._buffers.setdefault(queue, [])
                size = self._buffered_bytes.get(queue, 0)
            else:
                buffer = self._buffers.setdefault(queue, [])
        buffer.append(message)
        self._buffered_bytes[queue] = size + message.size_bytes
        if len(buffer) >= MESSAGES_PER_BATCH:
            self._flush_queue(queue)

    def flush(self) -> None:
        """Store everything that was added."""
        for queue in list(self._buffers):
            self._flush_queue(queue)

    def _choose(self, message: OutgoingMessage) -> MessageQueue:
        queues = self.queues(message.topic)
        if message.queue_id is not None:
            return self._named(message, queues)
        if message.sharding_key is not None:
            return by_sharding_key(queues, message.sharding_key)
        queue = self._fill.get(message.topic)
        return queue if queue is not None else self._next_queue(message.topic)

    def _next_queue(self, topic: str) -> MessageQueue:
        queues = self.queues(topic)
        self._turn += 1
        queue = self._fill[topic] = queues[self._turn % len(queues)]
        return queue

    @staticmethod
    def _named(message: OutgoingMessage, queues: list[MessageQueue]) -> MessageQueue:
        fitting = [
            queue
            for queue in queues
            if queue.queue_id == message.queue_id and message.broker_name in (None, queue.broker_name)
        ]
        if len(fitting) == 1:
            return fitting[0]
        where = f"topic {message.topic!r}, queueId {message.queue_id}"
        if not fitting:
            raise OptionError(f"sink: {where}: there is no such queue")
        brokers = ", ".join(queue.broker_name for queue in fitting)
        raise OptionError(f"sink: {where}: several brokers have it ({brokers}); name one in the column brokerName")

    def _flush_queue(self, queue: MessageQueue) -> None:
        messages = self._buffers.pop(queue, None)
        self._buffered_bytes.pop(queue, None)
        if not messages:
            return
        if not self._max_rate:
            self._store(queue, messages)
            return
        step = max(self._max_rate // 10, 1)  # ten requests a second, not one burst
        for first in range(0, len(messages), step):
            self._cluster.pause(self._started + self.sent / self._max_rate - self._cluster.clock())
            self._store(queue, messages[first : first + step])

    def _store(self, queue: MessageQueue, messages: list[OutgoingMessage]) -> None:
        """Send until all are stored. Raises SendAborted."""
        deadline = self._cluster.clock() + self._cluster.options.retry_timeout_ms / 1000
        refusals = 0
        while messages:
            try:
                self._confirm(queue, messages, self._attempt(queue, messages))
                return
            except (*CONNECTION_ERRORS, Unreachable) as error:
                failure = SendAborted(f"sending to {queue.topic}/{queue.broker_name} failed: {error}")
            except BrokerRefused as error:
                failure = SendAborted(f"{error} ({_largest(messages)})", error.code)
                refusals += 1
                if error.code not in RETRIED_SENDS or refusals > self._retries:
                    raise failure from None
            if self._cluster.clock() > deadline:
                raise failure
            self._cluster.pause()
            messages = self._not_stored(queue, messages)

    def _attempt(self, queue: MessageQueue, messages: Sequence[OutgoingMessage]) -> SendResult:
        """Send once. Raises BrokerRefused, Unreachable, and what the connection raises."""
        outgoing = _one_request(messages)
        address = ""
        try:
            address = self._cluster.address(queue.topic, queue.broker_name)
            request = self._requests.request(outgoing, queue, self._now_ms())
            response = self._cluster.connection(address).call(request)
        except (*CONNECTION_ERRORS, Unreachable):
            self._cluster.drop(address)
            raise
        return send_result(outgoing, queue, response, topic=queue.topic, address=address)

    def _confirm(self, queue: MessageQueue, messages: Sequence[OutgoingMessage], result: SendResult) -> None:
        self.sent += len(messages)
        if self._stored is not None and not messages[0].delay_level:
            self._stored.confirm(queue, result.queue_offset + len(messages))
        elif self._stored is not None:
            # The response does not say which delay queue it went to, so all of them are accounted for.
            self._stored.of_lost_response(self._delayed(queue.broker_name))

    def _not_stored(self, queue: MessageQueue, messages: list[OutgoingMessage]) -> list[OutgoingMessage]:
        """Return those of `messages`, for which no response came, that must be sent again."""
        if self._stored is None:
            return messages
        is_delayed = bool(messages[0].delay_level)
        found = self._stored.of_lost_response(self._delayed(queue.broker_name) if is_delayed else [queue])
        left = []
        for message in messages:
            if found[message.digest] > 0:
                found[message.digest] -= 1
                self.sent += 1
            else:
                left.append(message)
        return left


def _one_request(messages: Sequence[OutgoingMessage]) -> Outgoing:
    """One message, or a batch of several, as a send request carries it. UNIQ_KEY is in the properties of each."""
    if len(messages) == 1:
        [message] = messages
        code = RequestCode.SEND_MESSAGE_V2
        body = message.body
        properties = message.properties.decode()
    else:
        units = [BatchUnit(0, message.body, message.properties) for message in messages]
        code = RequestCode.SEND_BATCH_MESSAGE
        body = encode_batch_units(units)
        properties = ""
    return Outgoing(
        code=code,
        topic=messages[0].topic,
        body=body,
        flag=0,
        sys_flag=0,
        properties=properties,
        message_id="",
        is_batch=len(messages) > 1,
    )


def _largest(messages: Sequence[OutgoingMessage]) -> str:
    """Return which row of a request that was refused is the largest: a request is mostly refused for one."""
    largest = max(messages, key=lambda message: message.size_bytes)
    keys = parse_bytes(largest.properties).get(names.KEYS)
    which = f"the largest of {len(messages)} rows" if len(messages) > 1 else "the row"
    named = f" with keys {keys[:64]!r}" if keys else ""
    return f"{which}{named} has {len(largest.body)} bytes of body and {len(largest.properties)} of properties"
