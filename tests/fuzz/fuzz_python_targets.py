"""The fuzz targets in Python: readers of files and texts that others wrote, coverage by lines.

A target accepts any bytes and fails if its reader raises anything but the error that it declares. Those over the files
of a store open a whole store, because recovery reads all of them together.
"""

from __future__ import annotations

import contextlib
import shutil
import struct
import sys
import zlib
from collections.abc import Callable, Sequence
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any, TypeVar

import trio

from triomq.broker import delay
from triomq.broker.acl import accounts, acl_file, addresses, spelling
from triomq.broker.acl.errors import AclFileError
from triomq.broker.errors import EvaluationError, FilterError
from triomq.broker.filters import expression, java_values, sql92
from triomq.broker.filters.bloom import BloomFilter
from triomq.broker.replication import copied
from triomq.broker.replication.copied import CopiedPart
from triomq.broker.tables import filters, groups, offsets, queue_locks, table_file, topics
from triomq.broker.tables.delay_offsets import DelayOffsets
from triomq.broker.tables.filters import FilterTable
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.topics import TopicTable
from triomq.broker.transactions import records as transaction_records
from triomq.protocol import stored_properties
from triomq.protocol.bodies import fastjson_reader, fastjson_writer
from triomq.protocol.errors import BodyError, RecordError
from triomq.protocol.record import read_fields
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.errors import StoreError
from triomq.store.log import checkpoint, commit_log, damage_repair, log_scan
from triomq.store.message_store import DefaultMessageStore
from triomq.store.queues import consume_queue, consume_queue_ext, index, index_file
from triomq.store.results import MessageToStore
from triomq.store.upkeep import queue_recovery, recovery

Target = Callable[[bytes], None]
T = TypeVar("T")

NOW_MS = 1_700_000_000_000
HOST = bytes([10, 0, 0, 1, 0, 0, 0, 1])
MAP_BYTES = 1 << 15
PROPERTIES = {"a": "1", "b": "x", "color": "red", "price": "-2.5e3", "empty": "", "big": str(2**63)}


class LineCoverage:
    """The lines of some modules that ran, each with the line before it, as a map of hits: the same lines in another
    order are another path.
    """

    def __init__(self, modules: tuple[ModuleType, ...]) -> None:
        names = [module.__file__ for module in modules if module.__file__ is not None]
        self.hits = bytearray(MAP_BYTES)
        self._bases = {name: zlib.crc32(Path(name).name.encode()) for name in names}
        self._last = 0

    def traced(self, target: Target) -> Target:
        def run(data: bytes) -> None:
            self._last = 0
            sys.settrace(self._called)
            try:
                target(data)
            finally:
                sys.settrace(None)

        return run

    def _called(self, frame: FrameType, event: str, argument: Any) -> Any:
        return self._line if frame.f_code.co_filename in self._bases else None

    def _line(self, frame: FrameType, event: str, argument: Any) -> Any:
        line = (self._bases[frame.f_code.co_filename] + frame.f_lineno * 37) % MAP_BYTES
        self.hits[line ^ self._last] = 1
        self._last = line >> 1
        return self._line


class OneText:
    """A table's file with this content."""

    def __init__(self, text: str) -> None:
        self._text = text

    def load(self, decode: Callable[[str], T]) -> T | None:
        with contextlib.suppress(ValueError):
            return decode(self._text)
        return None

    def save(self, text: str) -> None:
        """Keep nothing."""

    def save_pieces(self, pieces: Sequence[bytes]) -> None:
        self.save(b"".join(pieces).decode())


class OneFile(Files):
    """Files of which each has this content."""

    def __init__(self, data: bytes) -> None:
        self._data = data

    def read_file(self, path: str) -> bytes:
        return self._data


def sql92_expression(data: bytes) -> None:
    """What compiles has a value for any properties, or cannot be evaluated for them."""
    try:
        compiled = sql92.compile_expression(data.decode("utf-8", "replace"))
    except FilterError:
        return
    for properties in ({}, PROPERTIES):
        with contextlib.suppress(EvaluationError):
            assert compiled.evaluate(properties) in (True, False, None)


def fastjson_text(data: bytes) -> None:
    """What is read can be written, and reads as the same."""
    try:
        value = fastjson_reader.loads(data)
    except BodyError:
        return
    with contextlib.suppress(BodyError):
        fastjson_reader.loads_lenient(data)
    text = fastjson_writer.dumps(value)
    assert fastjson_writer.dumps(fastjson_reader.loads(text)) == text


def acl_yaml(data: bytes) -> None:
    with contextlib.suppress(AclFileError):
        acl_file.parse(Path("plain_acl.yml"), data, NOW_MS)


def checkpoint_file(data: bytes) -> None:
    found = checkpoint.Checkpoint(OneFile(data), "checkpoint")
    found.load()
    assert found.safe_ms >= 0


def json_tables(data: bytes) -> None:
    """Each table is loaded from each text; one that is none leaves the table empty."""
    file = OneText(data.decode("utf-8", "replace"))
    tables: list[Any] = [
        OffsetTable(file),
        TopicTable(file, now_ms=lambda: NOW_MS),
        GroupTable(file, now_ms=lambda: NOW_MS),
        DelayOffsets(file),
        FilterTable(BloomFilter(20, 32), file, now_ms=lambda: NOW_MS),
        QueueLockTable(lambda: NOW_MS, file=file),
    ]
    for table in tables:
        table.load()
    assert CopiedPart(file).follows(1000) <= 1000


def transaction_records_of_a_queue(data: bytes) -> None:
    """A record in the half queue or the op queue is read, or is none."""
    op = transaction_records.op_message(data)
    assert op is None or op.half_offset is None or op.half_offset >= 0
    with contextlib.suppress(RecordError):
        half = transaction_records.half_message(data, read_fields(data, 0, len(data)))
        message = transaction_records.real_message(half)
        assert message.queue_id >= 0
        assert message.topic


class StoreFiles:
    """A small store, of which an input overwrites a part of one file:

    number of the file, with 0x80 for a crash @0 | place uint16 @1 | bytes @3
    """

    def __init__(self, directory: Path) -> None:
        self._root = directory / "store"
        trio.run(self._fill)
        self._files = sorted(path for path in self._root.rglob("*") if path.is_file() and path.stat().st_size)
        self._contents = [path.read_bytes() for path in self._files]

    def __call__(self, data: bytes) -> None:
        if len(data) < 3:
            return
        number, place = struct.unpack_from(">BH", data)
        shutil.rmtree(self._root)
        for at, (path, content) in enumerate(zip(self._files, self._contents, strict=True)):
            path.parent.mkdir(parents=True, exist_ok=True)
            if at == (number & 0x7F) % len(self._files):
                place %= len(content)
                content = (content[:place] + data[3:] + content[place + len(data) - 3 :])[: len(content)]
            path.write_bytes(content)
        if number & 0x80:
            (self._root / "abort").touch()
        trio.run(self._open_twice)

    def _store(self) -> DefaultMessageStore:
        settings = StoreSettings(
            store_path_root_dir=str(self._root),
            mapped_file_size_commit_log_bytes=1024,
            mapped_file_size_consume_queue_bytes=100,
            max_hash_slot_num=8,
            max_index_num=20,
            max_message_size_bytes=800,
        )
        return DefaultMessageStore(settings, now_ms=lambda: NOW_MS, offload=_inline)

    async def _fill(self) -> None:
        store = self._store()
        await store.load()
        for number in range(16):
            _put(store, f"T{number % 2}", f"k{number}")
        store.commit()
        await store.close()

    async def _open_twice(self) -> None:
        """A store that opens can be read and written, and opens again."""
        for _ in range(2):
            store = self._store()
            try:
                await store.load()
            except StoreError:
                return
            for topic, ids in store.reading.queues().items():
                for queue_id in ids:
                    for offset in range(min(100, store.reading.max_offset(topic, queue_id))):
                        store.reading.get_messages(topic, queue_id, offset, 2)
            store.reading.query_by_key("T0", "k0", 4, 0, 1 << 62)
            with contextlib.suppress(StoreError):
                _put(store, "T0", "more")
                store.commit()
            await store.close()


def _put(store: DefaultMessageStore, topic: str, key: str) -> None:
    properties = stored_properties.of({"KEYS": key})
    store.append(
        MessageToStore(topic, 0, key.encode() * 9, properties, born_timestamp=NOW_MS, born_host=HOST, store_host=HOST)
    )


async def _inline(function: Callable[..., Any], *arguments: Any) -> Any:
    return function(*arguments)


def python_targets(directory: Path) -> dict[str, tuple[Target, tuple[ModuleType, ...]]]:
    """Return name -> target, and the modules whose lines count. Files are written below `directory`."""
    store_modules = (
        *(checkpoint, commit_log, damage_repair, log_scan, consume_queue, consume_queue_ext, index, index_file),
        *(queue_recovery, recovery),
    )
    found: dict[str, tuple[Target, tuple[ModuleType, ...]]] = {
        "sql92_expression": (sql92_expression, (sql92, expression, java_values)),
        "fastjson_text": (fastjson_text, (fastjson_reader, fastjson_writer)),
        "acl_yaml": (acl_yaml, (acl_file, accounts, addresses, spelling)),
        "checkpoint_file": (checkpoint_file, (checkpoint,)),
        "json_tables": (json_tables, (offsets, topics, groups, delay, filters, queue_locks, copied, table_file)),
        "transaction_records": (transaction_records_of_a_queue, (transaction_records,)),
        "store_files": (StoreFiles(directory), store_modules),
    }
    return found
