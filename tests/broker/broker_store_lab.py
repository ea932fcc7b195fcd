"""A real store with the parts of a broker around it, for tests of what writes into it."""

from __future__ import annotations

from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio
import trio.testing
from broker_fakes import MemoryFile
from msgspec.structs import replace

from triomq.broker import redirection
from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.message_writer import AwaitedPut, MessageWriter
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.topics import TopicTable
from triomq.broker.undeliverable import Undeliverable
from triomq.protocol import record, stored_properties
from triomq.protocol.address import HostPort
from triomq.protocol.message import MessageExt
from triomq.store.config import StoreSettings
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore, PutResult

START_MS = 1_700_000_000_000
BORN_HOST = HostPort("10.0.0.9", 40000)
STORE_HOST = HostPort("10.0.0.1", 10911)


async def inline(function: Callable[..., Any], *arguments: Any) -> Any:
    """Run the function without a thread, so that the autojump clock sees no wait."""
    return function(*arguments)


class WallClock:
    """A wall clock that follows trio's clock until a test sets it."""

    def __init__(self, now_ms: int = START_MS) -> None:
        self._base_ms = now_ms - trio.current_time() * 1000

    def __call__(self) -> int:
        return int(self._base_ms + trio.current_time() * 1000)

    def turn(self, ms: int) -> None:
        """Set the clock forward or back without letting time pass."""
        self._base_ms += ms


class Lab:
    """A store, a writer and tables; `commits` counts the writes of the log."""

    def __init__(self, root: Path, now_ms: Callable[[], int], broker: dict[str, Any], store: dict[str, Any]) -> None:
        self.now_ms = now_ms
        settings = StoreSettings(
            **{
                "store_path_root_dir": str(root),
                "mapped_file_size_commit_log_bytes": 1 << 20,
                "mapped_file_size_consume_queue_bytes": 20_000,
                "max_hash_slot_num": 50,
                "max_index_num": 60,
                **store,
            }
        )
        self.configuration = Configuration(broker=BrokerSettings(**broker), store=settings)
        self.store = DefaultMessageStore(settings, now_ms=now_ms, offload=inline)
        self.writer = MessageWriter(self.configuration, self.store, self._wake)
        self.topics_file = MemoryFile()
        self.topics = TopicTable(self.topics_file, now_ms=now_ms)
        self.undeliverable = Undeliverable(self.writer, self.topics)
        self.offsets = OffsetTable(MemoryFile())
        self.producers = ProducerTable(now_ms)
        self.is_committing = True

    def _wake(self) -> None:
        """End the turn after each put."""
        if self.is_committing:
            self.store.commit()

    def change(self, **values: Any) -> None:
        """Change settings of the broker while it runs."""
        self.configuration.broker = replace(self.configuration.broker, **values)

    def deliver_one_by_one(self) -> None:
        """Let each delayed message that is due go through `DefaultMessageStore.append`, as if this process had
        written none of them."""
        self.store.delivering.written_from = 1 << 62

    async def put(self, topic: str, body: bytes = b"hello", queue_id: int = 0, **properties: str) -> PutResult:
        """Store a message as a producer would send it."""
        pending = AwaitedPut()
        message = self.message(topic, body, queue_id, properties)
        if "DELAY" in properties:
            redirection.delay(message, properties["DELAY"], self.store.delay_levels)
        self.writer.put(message, False, pending)
        return await pending.wait()

    async def put_half(self, topic: str, body: bytes = b"half", queue_id: int = 0, **properties: str) -> PutResult:
        properties = {"TRAN_MSG": "true", "PGROUP": "PID", **properties}
        pending = AwaitedPut()
        message = self.message(topic, body, queue_id, properties)
        redirection.hold(message)
        self.writer.put(message, False, pending)
        return await pending.wait()

    def message(self, topic: str, body: bytes, queue_id: int, properties: dict[str, str]) -> MessageToStore:
        return MessageToStore(
            topic,
            queue_id,
            body,
            stored_properties.of(properties),
            born_timestamp=self.now_ms(),
            born_host=BORN_HOST.packed,
            store_host=STORE_HOST.packed,
            flag=7,
        )

    def messages(self, topic: str, queue_id: int = 0) -> list[MessageExt]:
        """Return all messages of a queue."""
        found: list[MessageExt] = []
        offset = self.store.reading.min_offset(topic, queue_id)
        while offset < self.store.reading.max_offset(topic, queue_id):
            result = self.store.reading.get_messages(topic, queue_id, offset, 32)
            found += [record.decode_record(data) for data in result.records]
            offset = result.next_begin_offset
        return found

    def bodies(self, topic: str, queue_id: int = 0) -> list[bytes]:
        return [message.body for message in self.messages(topic, queue_id)]


@asynccontextmanager
async def open_lab(
    root: Path,
    *,
    now_ms: Callable[[], int] | None = None,
    broker: dict[str, Any] | None = None,
    store: dict[str, Any] | None = None,
) -> AsyncIterator[Lab]:
    """Open a lab with a loaded store; close it at the end."""
    lab = Lab(root, now_ms or WallClock(), broker or {}, store or {})
    await lab.store.load()
    try:
        yield lab
    finally:
        with trio.CancelScope(shield=True):
            await lab.store.close()


async def settle() -> None:
    """Let every task run until it waits for time or for another task."""
    await trio.testing.wait_all_tasks_blocked()
