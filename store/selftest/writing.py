"""The messages of self-tests: their content follows from their number, so that a change of one byte is detected.

`python -m triomq.store.selftest.writing DIR FLUSH FIRST` is the process that the kill test kills. It writes until then,
and prints the numbers of each commit once they are acknowledged.
"""

from __future__ import annotations

import sys
import time
from pathlib import Path
from typing import Final

import trio

from triomq.protocol import record, stored_properties
from triomq.protocol.address import HostPort
from triomq.store.config import FlushDiskType, StoreSettings
from triomq.store.message_store import DefaultMessageStore
from triomq.store.results import MessageToStore

TOPIC: Final = "SelfTest"
QUEUES: Final = 4
MESSAGES_PER_COMMIT: Final = 64
BODY_BYTES: Final = 1024
LOG_FILE_BYTES: Final = 8 * 1024 * 1024
_HOST: Final = HostPort("127.0.0.1", 10911).packed


def now_ms() -> int:
    return time.time_ns() // 1_000_000


def scratch_settings(root: Path, flush: FlushDiskType) -> StoreSettings:
    """Return settings with files small enough for a scratch directory."""
    return StoreSettings(
        store_path_root_dir=str(root),
        mapped_file_size_commit_log_bytes=LOG_FILE_BYTES,
        mapped_file_size_consume_queue_bytes=20 * 50_000,
        max_hash_slot_num=50_000,
        max_index_num=200_000,
        flush_disk_type=flush,
    )


def body_of(number: int) -> bytes:
    seed = number.to_bytes(8, "big")
    return seed * (BODY_BYTES // len(seed))


def message_of(number: int) -> MessageToStore:
    key = str(number)
    return MessageToStore(
        TOPIC,
        number % QUEUES,
        body_of(number),
        stored_properties.of({"UNIQ_KEY": key}),
        born_timestamp=now_ms(),
        born_host=_HOST,
        store_host=_HOST,
    )


async def write_commit(store: DefaultMessageStore, first: int) -> range:
    """Write one commit of messages and wait as long as the flush setting requires. Return their numbers. Raises
    RuntimeError if the store refuses one (a full disk), StoreFailed if a write or sync fails.
    """
    numbers = range(first, first + MESSAGES_PER_COMMIT)
    for number in numbers:
        put = store.append(message_of(number))
        if not put.is_ok:
            raise RuntimeError(f"the store refused a message: {put.reason}")
    store.commit()
    if store.settings.flush_disk_type is FlushDiskType.SYNC_FLUSH:
        await store.flushed.wait_beyond(put.last_offset)
    else:
        await store.committed.wait_beyond(put.last_offset)
        await trio.lowlevel.checkpoint()
    return numbers


def stored_numbers(store: DefaultMessageStore) -> set[int]:
    """Return the numbers of all messages in the store. Raises ValueError for one that is altered, duplicated or out of
    place.
    """
    found: set[int] = set()
    for queue_id in range(QUEUES):
        offset = 0
        while offset < store.reading.max_offset(TOPIC, queue_id):
            result = store.reading.get_messages(TOPIC, queue_id, offset, 32)
            for data in result.records:
                stored = record.decode_record(data)
                number = int(stored.uniq_key or "-1")
                if stored.queue_offset != offset or number % QUEUES != queue_id or number in found:
                    raise ValueError(f"message {number} is out of place: queue {queue_id}, offset {offset}")
                if stored.body != body_of(number):
                    raise ValueError(f"message {number} is altered")
                found.add(number)
                offset += 1
            if not result.records:
                raise ValueError(f"queue {queue_id} cannot be read from offset {offset}")
    return found


async def write_until_killed(root: Path, flush: FlushDiskType, first: int) -> None:
    store = DefaultMessageStore(scratch_settings(root, flush), now_ms=now_ms)
    await store.load()
    async with trio.open_nursery() as nursery:
        await nursery.start(store.run)
        while True:
            numbers = await write_commit(store, first)
            sys.stdout.write(f"{numbers[0]}\n")
            sys.stdout.flush()  # raises if the parent is gone, which ends this process
            first = numbers[-1] + 1


if __name__ == "__main__":
    import structlog

    structlog.configure(logger_factory=structlog.PrintLoggerFactory(sys.stderr))
    trio.run(write_until_killed, Path(sys.argv[1]), FlushDiskType[sys.argv[2]], int(sys.argv[3]))
