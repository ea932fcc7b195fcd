"""Where the consume offsets of a group are stored: at the brokers (clustering) or in a local file (broadcasting).

Both keep a table in memory (`offsets.OffsetTable`), which consuming updates without waiting, and store it
periodically. Owned by one consumer.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Protocol

import trio

from triomq.client.core import requests
from triomq.client.core.errors import MQClientError, OperationTimeout
from triomq.client.core.log import get_logger, report
from triomq.client.core.offsets import LocalOffsetFile, OffsetTable
from triomq.client.instance.client import Client
from triomq.protocol.message_queue import MessageQueue

log = get_logger("triomq.client.offsets")

REPEAT_ROUNDS = 12
MAX_UPDATES_AT_ONCE = 16


class OffsetStore(Protocol):
    """Stores the offsets of a group; they are those of the next message."""

    table: OffsetTable

    async def open(self) -> None:
        """Load what is needed before the first pull."""

    async def read(self, queue: MessageQueue) -> int | None:
        """Return the stored offset, which also becomes the one in memory; None when there is none."""

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> None:
        """Store what changed (of these queues, or of all). Failures are logged and tried again next time."""

    async def persist_now(self, queue: MessageQueue) -> None:
        """Store one queue's offset, and return when it is stored. Raises MQClientError."""

    async def store_again(self, broker_name: str) -> None:
        """Store all offsets that one broker holds, changed or not. Raises MQClientError if it does not take them."""


class BrokerOffsets:
    """Clustering: the master of each broker holds the group's offsets.

    Every update is confirmed and rounds never overlap, so an older offset cannot overtake a newer one. For the same
    reason pulls carry no offset here, unlike those of the Java client. A broker writes offsets to disk every 5 s, so
    one that crashed has lost some: `store_again` sends them when it is back, and every `REPEAT_ROUNDS` rounds all are
    sent.

    The first update of a topic is sent alone: RocketMQ creates the group's table of a topic on the first update, and of
    several that arrive at the same moment it may forget all but the last.
    """

    def __init__(self, client: Client, group: str) -> None:
        self.table = OffsetTable()
        self._client = client
        self._group = group
        self._storing = trio.Lock()
        self._round = 0

    async def open(self) -> None:
        return

    async def read(self, queue: MessageQueue) -> int | None:
        broker = await self._client.readable_broker(queue.broker_name, queue.topic)
        stored = await self._client.call(broker.address, requests.query_consumer_offset(self._group, queue))
        if stored is not None:
            self.table.restore(queue, stored)
        return stored

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> None:
        async with self._storing:
            due = self.table.changed()
            if queues is not None:
                wanted = set(queues)
                due = [one for one in due if one[0] in wanted]
            else:
                self._round += 1
                if self._round % REPEAT_ROUNDS == 0:
                    due = sorted(self.table.snapshot().items())
            by_table: dict[tuple[str, str], list[tuple[MessageQueue, int]]] = {}
            for queue, queue_offset in due:
                by_table.setdefault((queue.broker_name, queue.topic), []).append((queue, queue_offset))
            limit = trio.CapacityLimiter(MAX_UPDATES_AT_ONCE)
            async with trio.open_nursery() as nursery:
                for of_table in by_table.values():
                    nursery.start_soon(self._store_table, limit, of_table)

    async def store_again(self, broker_name: str) -> None:
        async with self._storing:
            of_broker = [one for one in sorted(self.table.snapshot().items()) if one[0].broker_name == broker_name]
            by_topic: dict[str, list[tuple[MessageQueue, int]]] = {}
            for queue, queue_offset in of_broker:
                by_topic.setdefault(queue.topic, []).append((queue, queue_offset))
            limit = trio.CapacityLimiter(MAX_UPDATES_AT_ONCE)
            for of_topic in by_topic.values():
                await self._store(*of_topic[0])
                async with trio.open_nursery() as nursery:
                    for queue, queue_offset in of_topic[1:]:
                        nursery.start_soon(self._store_or_log, limit, queue, queue_offset)

    async def _store_table(self, limit: trio.CapacityLimiter, due: Sequence[tuple[MessageQueue, int]]) -> None:
        await self._store_or_log(limit, *due[0])
        async with trio.open_nursery() as nursery:
            for queue, queue_offset in due[1:]:
                nursery.start_soon(self._store_or_log, limit, queue, queue_offset)

    async def _store_or_log(self, limit: trio.CapacityLimiter, queue: MessageQueue, queue_offset: int) -> None:
        async with limit:
            try:
                await self._store(queue, queue_offset)
            except MQClientError as error:
                report(log, "offset not stored", error, group=self._group, queue=str(queue))

    async def persist_now(self, queue: MessageQueue) -> None:
        seconds = self._client.config.request_timeout_seconds
        with trio.move_on_after(seconds):
            async with self._storing:  # a round at a broker that hangs takes long
                queue_offset = self.table.get(queue)
                if queue_offset is not None:
                    await self._store(queue, queue_offset)
            return
        raise OperationTimeout(f"storing the offset of {queue} took longer than {seconds:g} s")

    async def _store(self, queue: MessageQueue, queue_offset: int) -> None:
        broker = await self._client.readable_broker(queue.broker_name, queue.topic)
        await self._client.call(broker.address, requests.update_consumer_offset(self._group, queue, queue_offset))
        self.table.mark_stored(queue, queue_offset)


class FileOffsets:
    """Broadcasting: every member has its own offsets, in a file of this host."""

    def __init__(self, directory: Path, client_id: str, group: str) -> None:
        self.table = OffsetTable()
        self._file = LocalOffsetFile(directory, client_id, group)
        self._group = group
        self._writing = trio.Lock()

    async def open(self) -> None:
        """Raises LocalOffsetsUnreadable."""
        for queue, queue_offset in (await trio.to_thread.run_sync(self._file.load)).items():
            self.table.restore(queue, queue_offset)
        if self._file.damage is not None:
            log.warning("offsets restored from their backup", group=self._group, damaged=self._file.damage)

    async def read(self, queue: MessageQueue) -> int | None:
        return self.table.get(queue)

    async def persist(self, queues: Iterable[MessageQueue] | None = None) -> None:
        async with self._writing:
            changed = self.table.changed()
            if not changed:
                return
            try:
                await trio.to_thread.run_sync(self._file.save, self.table.snapshot())
            except OSError as error:
                log.warning("offsets not stored", group=self._group, path=str(self._file.path), error=str(error))
                return
            for queue, queue_offset in changed:
                self.table.mark_stored(queue, queue_offset)

    async def persist_now(self, queue: MessageQueue) -> None:
        await self.persist((queue,))

    async def store_again(self, broker_name: str) -> None:
        """Do nothing: the file is not the broker's."""
