"""Arguments and results of the store. Statuses have RocketMQ's names (PutMessageStatus, GetMessageStatus)."""

from __future__ import annotations

from collections.abc import Sequence
from enum import Enum
from typing import Final, Protocol

from triomq.protocol.message_to_store import MessageToStore as MessageToStore
from triomq.protocol.message_to_store import Place
from triomq.store.disk.mapped_file import MappedFile
from triomq.store.log.log_scan import Damage


class PutStatus(Enum):
    PUT_OK = 0
    FLUSH_DISK_TIMEOUT = 1
    FLUSH_SLAVE_TIMEOUT = 2
    SLAVE_NOT_AVAILABLE = 3
    SERVICE_NOT_AVAILABLE = 4
    CREATE_MAPEDFILE_FAILED = 5
    MESSAGE_ILLEGAL = 6
    PROPERTIES_SIZE_EXCEEDED = 7
    OS_PAGECACHE_BUSY = 8
    UNKNOWN_ERROR = 9
    LMQ_CONSUME_QUEUE_NUM_EXCEEDED = 10


class GetStatus(Enum):
    FOUND = 0
    NO_MATCHED_MESSAGE = 1
    MESSAGE_WAS_REMOVING = 2
    OFFSET_FOUND_NULL = 3
    OFFSET_OVERFLOW_BADLY = 4
    OFFSET_OVERFLOW_ONE = 5
    OFFSET_TOO_SMALL = 6
    NO_MATCHED_LOGIC_QUEUE = 7
    NO_MESSAGE_IN_QUEUE = 8
    OFFSET_RESET = 9


class PutResult(Place):
    """The place of a message, or the reason why it was refused.

    The place of a batch is that of its first message, with the size of all of them; `physical_offsets` has one offset
    per message. A result of `append` is provisional until the next commit: if its write fails, `status` changes and the
    waiters of `store.committed` receive the error.
    """

    __slots__ = ("message_count", "physical_offsets", "reason", "status")

    def __init__(
        self,
        status: PutStatus,
        physical_offset: int = -1,
        size_bytes: int = 0,
        queue_offset: int = -1,
        store_timestamp: int = 0,
        message_count: int = 0,
        physical_offsets: Sequence[int] | None = None,
        reason: str = "",
    ) -> None:
        # Sets the place itself: each message would pay for the call, and in Python 3.11 for keywords, too.
        self.status = status
        self.physical_offset = physical_offset
        self.size_bytes = size_bytes
        self.queue_offset = queue_offset
        self.store_timestamp = store_timestamp
        self.message_count = message_count
        self.physical_offsets = physical_offsets
        self.reason = reason

    @property
    def is_ok(self) -> bool:
        return self.status is PutStatus.PUT_OK

    @property
    def end_offset(self) -> int:
        """The physical offset after the last byte, which a slave reports when it has the whole message."""
        return self.physical_offset + self.size_bytes

    @property
    def last_offset(self) -> int:
        """The physical offset of the last byte, for `await store.flushed.wait_beyond(result.last_offset)`."""
        return self.physical_offset + self.size_bytes - 1

    def __repr__(self) -> str:
        return (
            f"PutResult({self.status.name}, physical_offset={self.physical_offset}, size_bytes={self.size_bytes}, "
            f"queue_offset={self.queue_offset}, message_count={self.message_count}, reason={self.reason!r})"
        )


class Missing:
    """Blocks of files of the log or a queue (cold_reads.BLOCK_BYTES, counted from 0) that are not in memory.
    `reads_on`: the consumer has read the block before them, and so will read those behind them."""

    __slots__ = ("blocks", "reads_on")

    def __init__(self, blocks: list[tuple[MappedFile, int]], *, reads_on: bool) -> None:
        self.blocks = blocks
        self.reads_on = reads_on


class GetResult:
    """The result of a pull. `runs` are each one or more whole stored records, together `message_count` records of
    `size_bytes`; joined they are the body of a pull response. `missing`: nothing was read, because this is on the disk
    only (store/reading/cold_reads.py)."""

    __slots__ = (
        "max_offset",
        "message_count",
        "min_offset",
        "missing",
        "next_begin_offset",
        "runs",
        "size_bytes",
        "status",
        "suggest_slave",
    )

    def __init__(self, status: GetStatus, next_begin_offset: int, min_offset: int, max_offset: int) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.runs: list[bytes] = []
        self.size_bytes = 0
        self.message_count = 0
        self.suggest_slave = False
        self.missing: Missing | None = None

    def add(self, count: int, run: bytes) -> None:
        """Add a run of this number of records."""
        self.runs.append(run)
        self.size_bytes += len(run)
        self.message_count += count

    @property
    def body(self) -> bytes:
        """The records joined."""
        return self.runs[0] if len(self.runs) == 1 else b"".join(self.runs)

    @property
    def records(self) -> list[bytes]:
        """Each record by itself."""
        body = self.body
        records: list[bytes] = []
        at = 0
        while at < len(body):
            size = int.from_bytes(body[at : at + 4], "big") or len(body)  # each begins with its size, which is not 0
            records.append(body[at : at + size])
            at += size
        return records

    def __repr__(self) -> str:
        return (
            f"GetResult({self.status.name}, next={self.next_begin_offset}, min={self.min_offset}, "
            f"max={self.max_offset}, {self.message_count} messages, {self.size_bytes} bytes)"
        )


class QueryResult:
    """Records found by key, ascending by physical offset, and the offset and time of the index's newest message."""

    __slots__ = ("index_end_physical_offset", "index_end_timestamp", "physical_offsets", "records")

    def __init__(self) -> None:
        self.records: list[bytes] = []
        self.physical_offsets: list[int] = []
        self.index_end_timestamp = 0
        self.index_end_physical_offset = 0


EXT_UNIT_FIXED_BYTES: Final = 20
"""The size of an ext unit without its bit map."""


class ExtUnit:
    """One unit of a ConsumeQueueExt file."""

    __slots__ = ("bit_map", "store_timestamp", "tags_code")

    def __init__(self, tags_code: int, store_timestamp: int, bit_map: bytes | None) -> None:
        self.tags_code = tags_code
        self.store_timestamp = store_timestamp
        self.bit_map = bit_map


class MessageFilter(Protocol):
    """Decides which messages a pull returns: first by the consume queue entry, then by the whole record. `cost` is the
    number of characters of the expression that the last `matches_record` evaluated.

    `tag_codes` and `conditions` say the same in bytes, so that many entries can be passed over at once; both are empty
    where they cannot say all of it. Tag codes are int32, big endian, ascending: an entry without an ext unit matches if
    its code is among them, and then its record matches. Conditions (broker/filters/conditions.py) decide about records
    whose entries have no ext unit."""

    cost: int
    tag_codes: bytes
    conditions: bytes

    def matches_entry(self, tags_code: int, ext: ExtUnit | None) -> bool: ...

    def matches_record(self, record: bytes) -> bool: ...


class RecoveryReport:
    """The findings and changes of one recovery, for the log and for tests. Offsets are physical."""

    def __init__(self) -> None:
        self.was_clean = True
        self.is_as_noted = False
        self.log_begin = 0
        self.log_end = 0
        self.scanned_from = 0
        self.records = 0
        self.added_entries = 0
        self.truncated_entries = 0
        self.rebuilt_queues: list[str] = []
        self.damages: list[Damage] = []

    def note_accepted(self, log_end: int) -> None:
        """Log, queues and index are as the note of a clean shutdown says, and nothing was read or changed."""
        self.is_as_noted = True
        self.log_end = self.scanned_from = log_end
