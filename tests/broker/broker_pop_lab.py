"""The parts of POP around a real store, with trio's virtual clock, and clients without sockets."""

from __future__ import annotations

from collections.abc import AsyncIterator, Sequence
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, Final

import trio
from broker_fakes import FakeConnection, MemoryFile
from broker_metadata import metadata
from broker_store_lab import Lab, WallClock, inline

from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.pop.dead_letters import DeadLetters
from triomq.broker.pop.deliveries import Deliveries, DeliveryEvents
from triomq.broker.pop.log import InFlightLog
from triomq.broker.pop.waiting import Waiting
from triomq.broker.processors.ack import AckProcessor
from triomq.broker.processors.pop import PopProcessor
from triomq.broker.pulls.long_polling import LongPolling
from triomq.broker.pulls.selection import FilterChooser
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.message import MessageExt
from triomq.protocol.receipt_handle import NORMAL, ReceiptHandle
from triomq.protocol.record import decode_records
from triomq.remoting.processor_table import Pool
from triomq.remoting.table_memory import TableMemory
from triomq.store.disk.files import Files

INVISIBLE_MS: Final = 10_000


class Response:
    """A response to a receive, as a client reads it."""

    def __init__(self, response: RemotingCommand, at_seconds: float) -> None:
        self.code = response.code
        self.remark = response.remark or ""
        self.at_seconds = at_seconds
        self.fields = response.ext_fields or {}
        self.messages: list[MessageExt] = decode_records(response.body) if response.body else []

    @property
    def bodies(self) -> list[bytes]:
        return [message.body for message in self.messages]

    @property
    def popped_ms(self) -> int:
        return int(self.fields["popTime"])

    def handle(self, message: MessageExt) -> str:
        """Return the handle that a client makes of a message."""
        queues = [part.split(" ") for part in self.fields["msgOffsetInfo"].split(";")]
        starts = {part.split(" ")[1]: int(part.split(" ")[2]) for part in self.fields["startOffsetInfo"].split(";")}
        offsets = {queue: [int(each) for each in text.split(",")] for _, queue, text in queues}
        queue = str(message.queue_id)
        assert message.queue_offset in offsets[queue]
        return ReceiptHandle(
            self.popped_ms,
            int(self.fields["invisibleTime"]),
            NORMAL,
            "broker-a",
            message.queue_id,
            message.queue_offset,
            starts[queue],
        ).text()


class PopLab(Lab):
    """See the module's docstring. `topics_of` are made with that many queues."""

    def __init__(
        self,
        root: Path,
        topics_of: dict[str, int],
        *,
        files: Files | None = None,
        now_ms: Any = None,
        offsets_file: MemoryFile | None = None,
        broker: dict[str, Any] | None = None,
        store: dict[str, Any] | None = None,
    ) -> None:
        super().__init__(root, now_ms or WallClock(), broker or {}, store or {})
        self.files = files or Files()
        self.offsets = OffsetTable(offsets_file or MemoryFile())
        self.topics = TopicTable(now_ms=self.now_ms)
        self.groups = GroupTable(now_ms=self.now_ms, auto_create=lambda: True)
        self.tables = metadata(self.now_ms, topics=self.topics, groups=self.groups, offsets=self.offsets)
        for topic, queues in topics_of.items():
            self.topics.update(TopicConfig(topic_name=topic, read_queue_nums=queues, write_queue_nums=queues, perm=6))
        self.pool = Pool("pull", 1000)
        self.polling = LongPolling(self.store, self.pool)
        self.deliveries = Deliveries(
            self.store.reading,
            self.offsets,
            now_ms=self.now_ms,
            limits=lambda: (
                self.configuration.broker.pop_max_in_flight_of_group,
                self.configuration.broker.pop_max_in_flight,
            ),
            account=TableMemory().account("messages in flight"),
            is_recent=lambda topic, queue_id: True,
        )
        self.log = InFlightLog(
            self.files, f"{root}/pop", self.deliveries.state, sync_seconds=lambda: 0.5, offload=inline
        )
        self.deliveries.use(self.log)
        self.waiting = Waiting(self.deliveries, self.store.reading, self.polling, self.now_ms)
        self.deliveries.tell(DeliveryEvents(times_changed=self.waiting.times_changed, moved=self.waiting.wake))
        self.stats = BrokerStats("C", now_ms=self.now_ms)
        self.receives = PopProcessor(
            self.configuration,
            self.store,
            self.tables,
            FilterChooser(
                self.configuration, self.tables.consumers, self.groups, self.tables.filters, now_ms=self.now_ms
            ),
            self.waiting,
            DeadLetters(self.deliveries, self.topics, self.writer),
            stats=self.stats,
            quotas=lambda: None,
        )
        self.acks = AckProcessor(self.configuration, self.tables, self.store, self.deliveries, self.log)
        self.processors = {**self.receives.processors(), **self.acks.processors()}

    async def load(self) -> None:
        """Open the store and the log, as a start does."""
        await self.store.load()
        if self.deliveries.load(self.log.read()):
            self.log.begin()
            await self.log.sync()

    async def ask(self, code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
        """Return the response to a request, which may be held."""
        connection = FakeConnection()
        request = new_request(code, ext_fields={name: str(value) for name, value in fields.items()}, body=body)
        response = self.processors[code](connection, request)
        if response is not None and not isinstance(response, RemotingCommand):
            response = await response  # type: ignore[misc]
        if response is None:
            await connection.has_answered.wait()
            _, response = connection.answers[0]
        assert isinstance(response, RemotingCommand)
        return response

    async def receive(self, topic: str = "T", group: str = "G", **changes: Any) -> Response:
        fields = {
            "consumerGroup": group,
            "topic": topic,
            "queueId": -1,
            "maxMsgNums": 32,
            "invisibleTime": INVISIBLE_MS,
            "pollTime": 0,
            "bornTime": self.now_ms(),
            "initMode": 0,
            "expType": "TAG",
            "exp": "*",
            **changes,
        }
        response = await self.ask(RequestCode.POP_MESSAGE, fields)
        return Response(response, trio.current_time())

    async def ack(self, received: Response, message: MessageExt, group: str = "G") -> int:
        return (await self.ask(RequestCode.ACK_MESSAGE, ack_fields(received, message, group))).code

    async def change_time(self, received: Response, message: MessageExt, invisible_ms: int) -> RemotingCommand:
        fields = {**ack_fields(received, message, "G"), "invisibleTime": invisible_ms}
        return await self.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, fields)

    async def send(self, count: int, topic: str = "T", queue_id: int = 0, **properties: str) -> list[bytes]:
        """Store messages with the bodies b"0", b"1"..., counted in each queue."""
        first = self.store.reading.max_offset(topic, queue_id)
        bodies = [str(first + number).encode() for number in range(count)]
        for body in bodies:
            await self.put(topic, body, queue_id, **properties)
        return bodies

    def committed(self, topic: str = "T", queue_id: int = 0, group: str = "G") -> int:
        return self.offsets.query(group, topic, queue_id)


def ack_fields(received: Response, message: MessageExt, group: str) -> dict[str, Any]:
    return {
        "consumerGroup": group,
        "topic": message.topic,
        "queueId": message.queue_id,
        "extraInfo": received.handle(message),
        "offset": message.queue_offset,
    }


@asynccontextmanager
async def open_pop(root: Path, queues: int = 1, **given: Any) -> AsyncIterator[PopLab]:
    """Open a lab with the topic T, and run its tasks."""
    lab = PopLab(root, {"T": queues}, **given)
    await lab.load()
    async with trio.open_nursery() as nursery:
        for task in (lab.waiting.run, lab.polling.run, lab.log.run):
            nursery.start_soon(task)
        try:
            yield lab
        finally:
            nursery.cancel_scope.cancel()
            with trio.CancelScope(shield=True):
                await lab.log.close()
                await lab.store.close()


def all_bodies(responses: Sequence[Response]) -> list[bytes]:
    return [body for response in responses for body in response.bodies]
