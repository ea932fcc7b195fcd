"""What the clients of a simulated cluster do: producers of every kind of message, and consumers.

Every message has a key of its own, which says who sent it and as which one. Clients are nodes like the brokers: they
are killed and return, too. What they know is in `History`.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from pathlib import Path
from random import Random
from typing import Any

import trio

from sim.cluster import NAME_SERVER_PORT, Node, now_ms
from sim.history import Acknowledged, Consumed, History
from sim.network import Host
from sim.plan import BROADCAST, DELAYED, FILTERED, GUEST, ORDERED, PLAIN, TOPICS, TRANSACTIONAL
from sim.trace import Trace
from triomq import Message, MessageExt
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.config import ClientOptions, Credentials
from triomq.client.core.errors import BrokerRefused, MQClientError
from triomq.client.core.results import (
    ConsumeFromWhere,
    LocalTransactionState,
    MessageModel,
    SendResult,
    SendStatus,
    TransactionSendResult,
)
from triomq.client.produce.producer import Producer
from triomq.client.produce.transaction_producer import TransactionProducer
from triomq.protocol import property_names
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.headers.transaction import EndTransactionRequestHeader
from triomq.protocol.message_id import parse_offset_message_id
from triomq.protocol.message_queue import MessageQueue

DELAY_SECONDS = {1: 1, 2: 5, 3: 10}
PAUSE_SECONDS = 2.0
"""The longest pause between two messages of a stream of a producer."""
GUEST_PAUSE_SECONDS = 0.1
LONG_WORK_SECONDS = 8.0
SHARE_LONG = {ORDERED: 0.1, FILTERED: 0.0}
SHARE_FAILED = 0.03
"""How often a listener fails."""
MOST_FAILURES = 3
"""How often one message fails at most: the broker waits 10, 30 and 60 seconds, then minutes that no run has."""
WANTED_TAG = "wanted"
APPLICATION = Credentials("application", "a long secret")
OPERATOR = Credentials("operator", "another long secret")
STRANGER = Credentials("guest-account", "a third long secret")


class ClientNode(Node):
    """A program with one client. `account` signs its requests, if the cluster has accounts."""

    account = APPLICATION

    def __init__(
        self, host: Host, trace: Trace, nursery: trio.Nursery, choose: Random, history: History, name_servers: str
    ) -> None:
        super().__init__(host, trace, nursery)
        self.choose = choose
        self.history = history
        self.share_failed = SHARE_FAILED
        self.has_account = False
        self.is_finished = False
        """The producers send nothing more."""
        self._name_servers = name_servers
        self._lives = 0

    def options(self) -> ClientOptions:
        """Return the client's settings; each life of the program is another client."""
        self._lives += 1
        options: ClientOptions = {
            "name_server": self._name_servers,
            "instance_name": f"{self.name}-{self._lives}",
            "client_ip": self.host.ip,
            "now_ms": now_ms,
        }
        if self.has_account:
            options["credentials"] = self.account
        return options


def name_server_address(host: Host) -> str:
    return f"{host.ip}:{NAME_SERVER_PORT}"


class Sending(ClientNode):
    """A producer of all kinds of messages."""

    streams: tuple[str, ...] = ()
    _numbers = 0

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        group = f"{self.name}-group"
        async with TransactionProducer(group, self._execute, self._check, **self.options()) as producer:
            task_status.started()
            async with trio.open_nursery() as nursery:
                # Brokers ask only producers that they know for outcomes, and a new one has sent nothing yet.
                if TRANSACTIONAL in self.streams:
                    nursery.start_soon(self._introduce, producer)
                special = {DELAYED: self._delayed, TRANSACTIONAL: self._transaction}
                for stream in self.streams:
                    if stream != GUEST:
                        send = special.get(stream, partial(self._at_once, stream))
                        for _ in range(2):
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
        message = Message(topic, body, keys=key)
        if topic == FILTERED:
            message.tags = self.history.tags[key] = self.choose.choice((WANTED_TAG, "unwanted", "other"))
        return key, message

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
            if self.choose.random() < 0.3:
                await self._end_again(producer, result)

    async def _end_again(self, producer: TransactionProducer, result: TransactionSendResult) -> None:
        """End a transaction a second time, as clients do that got no response."""
        half = result.send
        _, physical_offset = parse_offset_message_id(half.offset_message_id)
        if result.state is LocalTransactionState.UNKNOW:
            return
        header = EndTransactionRequestHeader(
            producer_group=producer.group,
            tran_state_table_offset=half.queue_offset,
            commit_log_offset=physical_offset,
            commit_or_rollback=int(result.state),
            msg_id=half.message_id,
            transaction_id=half.transaction_id,
            broker_name=half.queue.broker_name,
        )
        await trio.sleep(self.choose.random() * 3)
        with suppress(MQClientError):
            address = await producer.client.master_of(half.queue.broker_name, TRANSACTIONAL)
            await producer.client.tell(address, new_request(RequestCode.END_TRANSACTION, header, oneway=True))

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


class Guest(ClientNode):
    """A producer whose account may send at some times, and at others not."""

    account = STRANGER
    brokers: tuple[str, ...] = ()
    _numbers = 0

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        async with Producer("guests", **self.options()) as producer:
            task_status.started()
            while not self.is_finished:
                await trio.sleep(self.choose.random() * GUEST_PAUSE_SECONDS)
                queue = MessageQueue(GUEST, self.choose.choice(self.brokers), self.choose.randrange(TOPICS[GUEST]))
                await self._send(producer, queue)
            await trio.sleep_forever()

    async def _send(self, producer: Producer, queue: MessageQueue) -> None:
        self._numbers += 1
        key, began = f"{self.name}.{self._numbers}", trio.current_time()
        self.history.sent[key] = (GUEST, b"of a guest", began)
        try:
            result = await producer.send(Message(GUEST, b"of a guest", keys=key), queue=queue)
        except MQClientError as error:
            refusal = error if isinstance(error, BrokerRefused) else error.__cause__
            is_refused = isinstance(refusal, BrokerRefused) and refusal.code == ResponseCode.NO_PERMISSION
            self._trace.add(f"{self.name}: {key} {'refused' if is_refused else 'not acknowledged'}")
            if is_refused:
                self.history.refused.append((queue.broker_name, began, trio.current_time()))
            else:
                await trio.sleep(self.choose.random())
            return
        if result.status is SendStatus.SEND_OK:
            place = Acknowledged(GUEST, queue.broker_name, queue.queue_id, result.queue_offset, trio.current_time())
            self.history.acknowledged[key] = place
            self._trace.add(f"{self.name}: {key} at {queue.broker_name} {queue.queue_id}:{result.queue_offset}")


class Consuming(ClientNode):
    """A member of a group of one topic."""

    topic = PLAIN
    group = ""
    directory = Path()

    @property
    def _is_broadcasting(self) -> bool:
        return self.topic == BROADCAST

    async def stop(self) -> None:
        if self.is_running:
            self.history.left.append((self.name, trio.current_time()))
        await super().stop()

    def options(self) -> ClientOptions:
        options = super().options()
        if self._is_broadcasting:  # such a client continues where it stopped
            options["instance_name"] = self.name
            options["offset_directory"] = self.directory / self.name
        return options

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        consumer = PushConsumer(
            self.group,
            ordered=self.topic == ORDERED,
            model=MessageModel.BROADCASTING if self._is_broadcasting else MessageModel.CLUSTERING,
            consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET,
            **self.options(),
        )
        async with consumer:
            consumer.subscribe(self.topic, WANTED_TAG if self.topic == FILTERED else "*")
            consumer.listen(self._consume)
            task_status.started()
            await trio.sleep_forever()

    async def _consume(self, message: MessageExt) -> None:
        history, key = self.history, message.keys or ""
        is_retry = message.reconsume_times > 0 or property_names.RETRY_TOPIC in message.properties
        delivery = Consumed(
            key,
            self.name if self._is_broadcasting else self.group,
            self.name,
            message.topic,
            message.broker_name or "",
            message.queue_id,
            message.queue_offset,
            trio.current_time(),
        )
        known = history.sent.get(key)
        if known is None or known[:2] != (self.topic, message.body):
            history.wrong.append(f"{self.name} got {key!r} of {message.topic}, which nobody sent so")
        if self.topic == FILTERED and history.tags.get(key) != WANTED_TAG:
            history.wrong.append(f"{self.name} got {key}, whose tag it did not ask for")
        self._trace.add(f"{self.name}: got {key} {delivery.broker} {delivery.queue_id}:{delivery.queue_offset}")
        if not is_retry:
            history.deliveries.append(delivery)
        if self.topic == ORDERED:
            with self._alone(delivery):
                await self._work()
        else:
            await self._work()
        delivery.until = trio.current_time()
        may_fail = message.reconsume_times < MOST_FAILURES
        if not self._is_broadcasting and self.choose.random() < self.share_failed and may_fail:
            self._trace.add(f"{self.name}: fails with {key}")
            raise RuntimeError("the listener fails")
        history.consumed[delivery.group, key].append(delivery)

    @contextmanager
    def _alone(self, delivery: Consumed) -> Iterator[None]:
        """No two members of a group may have messages of one ordered queue."""
        queue = (delivery.group, delivery.broker, delivery.queue_id)
        self.history.seen[queue].append(delivery.queue_offset)
        holders = self.history.holding[queue]
        if holders - {self.name}:
            self.history.wrong.append(f"{self.name} and {sorted(holders)} have {queue} at {trio.current_time():.2f} s")
        holders.add(self.name)
        try:
            yield
        finally:
            holders.discard(self.name)

    async def _work(self) -> None:
        is_long = self.choose.random() < SHARE_LONG.get(self.topic, 0.05)
        await trio.sleep(self.choose.random() * (LONG_WORK_SECONDS if is_long else 0.1))
