"""The C functions of store/, when they are built; see protocol/speedups.py. Parameters are positional only."""

import mmap
from typing import Any

SOURCE_CRC: int
MESSAGE_MAGIC: int
FIXED_BYTES: int
BORN_HOST_V6: int
STORE_HOST_V6: int
HEADER_BYTES: int
SLOT_BYTES: int
ENTRY_BYTES: int
PAGE_BYTES: int
HEAD_BYTES: int
LEDGER_HEADER_BYTES: int
LEDGER_UNIT_BYTES: int
LEDGER_BLANK_BYTES: int
LONGEST_LEDGER_ENTRY_BYTES: int
LEDGER_MAGIC: int
RECORD_OFFSET_AT: int
TRANSACTION_MASK: int
MAX_TOPIC_BYTES: int
MAX_PROPERTIES: int
MAX_PROPERTIES_BYTES: int
MAX_QUEUE_ID_DIGITS: int
QUEUE_HEAD_BYTES: int
MAX_NAMES: int
MAX_STACK: int

def key_hash(topic: str, key: str, /) -> int: ...
def write_keys(
    slots: mmap.mmap | bytearray,
    dirty_pages: bytearray,
    entries: bytearray,
    slot_count: int,
    number: int,
    entry_limit: int,
    begin_timestamp: int,
    messages: list[tuple[str, str | None, str | None, int, int]],
    start: int,
    /,
) -> tuple[int, int]: ...
def add_queue_entry(buffer: bytearray, physical_offset: int, size_bytes: int, tags_code: int, /) -> None: ...
def scan_record(
    data: bytes, at: int, end: int, /
) -> tuple[int, int, int, int, int, int, int, int, bytes, bytes] | None: ...
def take_records(
    entries: bytes,
    at: int,
    count: int,
    first_room: int,
    room: int,
    most: int,
    log: mmap.mmap | bytes,
    start: int,
    low: int,
    high: int,
    checked_before: int,
    queue_id: int,
    topic: bytes,
    codes: bytes,
    conditions: bytes,
    /,
) -> tuple[int, int, bytes]: ...
def deliver_records(
    entries: bytes,
    at: int,
    room: int,
    due: int,
    log: mmap.mmap | bytes,
    start: int,
    low: int,
    high: int,
    to: tuple[bytearray, dict[bytes, tuple[Any, bytearray]], list[Any], int, int, int, int],
    /,
) -> tuple[int, bytes]: ...
def entries_of(records: bytes, at: int, index: int, term: int, pos: int, room: int, /) -> tuple[bytes, bytes, int]: ...
