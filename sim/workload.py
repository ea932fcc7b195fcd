"""What the clients of a simulated cluster do, and what they remember of it for the checks.

Every message has a key of its own, which says who sent it and as which one. Clients are nodes like the brokers: they
are killed and return, too.
"""

from __future__ import annotations

from collections import defaultdict
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field
from functools import partial
from random import Random
from typing import Any

import trio

from sim.cluster import NAME_SERVER_PORT, Node, now_ms
from sim.network import Host
from sim.trace import Trace
from triomq import Message, MessageExt
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.config import ClientOptions
from triomq.client.core.errors import MQClientError
from triomq.client.core.results import ConsumeFromWhere, LocalTransactionState, SendResult, SendStatus
from triomq.client.produce.producer import Producer
from triomq.client.produce.transaction_producer import TransactionProducer
from triomq.protocol import property_names

PLAIN, ORDERED, DELAYED, TRANSACTIONAL = "Plain", "Ordered", "Delayed", "Transactional"
TOPICS = {PLAIN: 4, ORDERED: 3, DELAYED: 2, TRANSACTIONAL: 2}
DELAY_SECONDS = {1: 1, 2: 5, 3: 10, 4: 30}
PAUSE_SECONDS = 3.0
"""The longest pause between two messages of a producer."""
LONG_WORK_SECONDS = 10.0
SHARE_FAILED = 0.03
"""How often a listener fails."""


@dataclass(frozen=True)
class Acknowledged:
    """A broker's promise for one message."""

    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    at: float


@dataclass(frozen=True)
class Consumed:
    """One delivery to one listener."""

    group: str
    topic: str
    broker: str
    queue_id: int
    queue_offset: int
    at: float
    is_first_try: bool


@dataclass
class History:
    """Everything that clients know. Times are seconds of the run."""

    sent: dict[str, tuple[str, bytes, float]] = field(default_factory=dict)
    """key -> (topic, body, when)"""
    acknowledged: dict[str, Acknowledged] = field(default_factory=dict)
    consumed: dict[str, list[Consumed]] = field(default_factory=lambda: defaultdict(list))
    seen: dict[tuple[str, str, int], list[int]] = field(default_factory=lambda: defaultdict(list))
    """(group, broker, queue of the ordered topic) -> offsets in the order in which listeners got them"""
    delays: dict[str, int] = field(default_factory=dict)
    """key -> delay level"""
    outcomes: dict[str, bool] = field(default_factory=dict)
    """key of a transaction -> whether it commits; decided when it runs, the same in every check"""
    asked: dict[str, list[float]] = field(default_factory=lambda: defaultdict(list))
    """key of a transaction -> when a broker asked for its outcome"""
    wrong: list[str] = field(default_factory=list)
    """What a client saw that may never be."""


class ClientNode(Node):
    """A program with one client."""

    def __init__(
        self, host: Host, trace: Trace, nursery: trio.Nursery, choose: Random, history: History, name_servers: str
    ) -> None:
        super().__init__(host, trace, nursery)
        self.choose = choose
        self.history = history
        self.share_failed = SHARE_FAILED
        self.is_finished = False
        """The producers send nothing more."""
        self._name_servers = name_servers
        self._lives = 0

    def options(self) -> ClientOptions:
        """Return the client's settings; each life of the program is another client."""
        self._lives += 1
        return {
            "name_server": self._name_servers,
            "instance_name": f"{self.name}-{self._lives}",
            "client_ip": self.host.ip,
            "now_ms": now_ms,
        }


def name_server_address(host: Host) -> str:
    return f"{host.ip}:{NAME_SERVER_PORT}"


class Sending(ClientNode):
    """A producer of all kinds of messages."""

    _numbers = 0

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        group = f"{self.name}-group"
        async with TransactionProducer(group, self._execute, self._check, **self.options()) as producer:
            task_status.started()
            async with trio.open_nursery() as nursery:
                # Brokers ask only producers that they know for outcomes, and a new one has sent nothing yet.
                nursery.start_soon(self._introduce, producer)
                plain, ordered = partial(self._at_once, PLAIN), partial(self._at_once, ORDERED)
                for send in (plain, plain, ordered, self._delayed, self._transaction):
                    nursery.start_soon(self._repeatedly, send, producer)
            await trio.sleep_forever()

    async def _repeatedly(
        self, send: Callable[[TransactionProducer], Awaitable[None]], producer: TransactionProducer
    ) -> None:
        while not self.is_finished:
            await trio.sleep(self.choose.random() ** 2 * PAUSE_SECONDS)
            try:
                await send(producer)
            except MQClientError as error:
                self._trace.add(f"{self.name}: not acknowledged: {type(error).__name__}")
                await trio.sleep(self.choose.random())

    async def _introduce(self, producer: Producer) -> None:
        while True:
            with suppress(MQClientError):
                await producer.make_known(TRANSACTIONAL)
            await trio.sleep(10.0)

    def _new(self, topic: str) -> tuple[str, Message]:
        self._numbers += 1
        key = f"{self.name}.{self._numbers}"
        size = self.choose.choice((0, 10, 100, 1000, 9000))
        body = f"{key} ".encode() + self.choose.randbytes(size)
        self.history.sent[key] = (topic, body, trio.current_time())
        return key, Message(topic, body, keys=key)

    def _acknowledged(self, key: str, topic: str, result: SendResult) -> None:
        if result.status is not SendStatus.SEND_OK:
            self._trace.add(f"{self.name}: {key} {result.status.name}")
            return
        queue = result.queue
        place = Acknowledged(topic, queue.broker_name, queue.queue_id, result.queue_offset, trio.current_time())
        self.history.acknowledged[key] = place
        self._trace.add(f"{self.name}: {key} at {queue.broker_name} {topic} {queue.queue_id}:{result.queue_offset}")

    async def _at_once(self, topic: str, producer: Producer) -> None:
        key, message = self._new(topic)
        self._acknowledged(key, topic, await producer.send(message))

    async def _delayed(self, producer: Producer) -> None:
        key, message = self._new(DELAYED)
        level = self.choose.choice(list(DELAY_SECONDS))
        message.delay_level = level
        self.history.delays[key] = level
        result = await producer.send(message)
        if result.status is SendStatus.SEND_OK:
            # The offset is that of the schedule's queue, so only the arrival is checked.
            place = Acknowledged(DELAYED, result.queue.broker_name, -1, -1, trio.current_time())
            self.history.acknowledged[key] = place
            self._trace.add(f"{self.name}: {key} delayed by level {level} at {result.queue.broker_name}")

    async def _transaction(self, producer: TransactionProducer) -> None:
        key, message = self._new(TRANSACTIONAL)
        self.history.outcomes[key] = self.choose.random() < 0.6
        result = await producer.send_in_transaction(message, key)
        if result.send.status is SendStatus.SEND_OK:
            place = Acknowledged(TRANSACTIONAL, result.send.queue.broker_name, -1, -1, trio.current_time())
            self.history.acknowledged[key] = place
            self._trace.add(f"{self.name}: {key} half at {place.broker}, {result.state.name}")

    async def _execute(self, message: Message, key: Any) -> LocalTransactionState:
        await trio.sleep(self.choose.random() * 0.1)
        return LocalTransactionState.UNKNOW if self.choose.random() < 0.3 else self._outcome(key)

    async def _check(self, message: MessageExt) -> LocalTransactionState:
        key = message.keys or ""
        self._trace.add(f"{self.name}: asked for {key}")
        self.history.asked[key].append(trio.current_time())
        return self._outcome(key)

    def _outcome(self, key: str) -> LocalTransactionState:
        # Any producer of the group may be asked, also one that was started later; all know all outcomes.
        commits = self.history.outcomes[key]
        return LocalTransactionState.COMMIT_MESSAGE if commits else LocalTransactionState.ROLLBACK_MESSAGE


class Consuming(ClientNode):
    """A member of the group of one topic."""

    topic = PLAIN

    @property
    def group(self) -> str:
        return f"{self.topic}-readers"

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        consumer = PushConsumer(
            self.group,
            ordered=self.topic == ORDERED,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            **self.options(),
        )
        async with consumer:
            consumer.subscribe(self.topic)
            consumer.listen(self._consume)
            task_status.started()
            await trio.sleep_forever()

    async def _consume(self, message: MessageExt) -> None:
        history, key = self.history, message.keys or ""
        is_first_try = message.reconsume_times == 0 and property_names.RETRY_TOPIC not in message.properties
        delivery = Consumed(
            self.group,
            message.topic,
            message.broker_name or "",
            message.queue_id,
            message.queue_offset,
            trio.current_time(),
            is_first_try,
        )
        known = history.sent.get(key)
        if known is None or known[:2] != (self.topic, message.body):
            history.wrong.append(f"{self.name} got {key!r} of {message.topic}, which nobody sent so")
        self._trace.add(f"{self.name}: got {key} {delivery.broker} {delivery.queue_id}:{delivery.queue_offset}")
        if self.topic == ORDERED:
            history.seen[self.group, delivery.broker, delivery.queue_id].append(delivery.queue_offset)
        longest = LONG_WORK_SECONDS if self.choose.random() < 0.05 else 0.1
        await trio.sleep(self.choose.random() * longest)
        if self.choose.random() < self.share_failed:
            self._trace.add(f"{self.name}: fails with {key}")
            raise RuntimeError("the listener fails")
        history.consumed[key].append(delivery)
