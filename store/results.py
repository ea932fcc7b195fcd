"""Arguments and results of the store. Statuses have RocketMQ's names (PutMessageStatus, GetMessageStatus)."""

from __future__ import annotations

from enum import Enum
from typing import Final, Protocol

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


class MessageToStore:
    """One message on its way into the log (MessageExtBrokerInner). Delay and transaction rewriting is already done.

    `properties` is the stored text in UTF-8. `tags_code`, `uniq_key` and `keys` repeat values from it, so that the
    store need not parse it. Hosts are packed (8 or 20 bytes). `tags_code` is the Java hash of the TAGS text, or the
    delivery time for SCHEDULE_TOPIC_XXXX (see store.delay). The store time is known only at the append, so with
    `deliver_after_ms` > 0 the store uses STORETIMESTAMP + `deliver_after_ms` instead of `tags_code`.
    """

    __slots__ = (
        "body",
        "born_host",
        "born_timestamp",
        "deliver_after_ms",
        "flag",
        "keys",
        "multi_queues",
        "prepared_transaction_offset",
        "properties",
        "queue_id",
        "reconsume_times",
        "store_host",
        "sys_flag",
        "tags_code",
        "topic",
        "uniq_key",
    )

    def __init__(
        self,
        topic: str,
        queue_id: int,
        body: bytes,
        properties: bytes = b"",
        *,
        born_timestamp: int,
        born_host: bytes,
        store_host: bytes,
        flag: int = 0,
        sys_flag: int = 0,
        reconsume_times: int = 0,
        prepared_transaction_offset: int = 0,
        tags_code: int = 0,
        uniq_key: str | None = None,
        keys: str | None = None,
        deliver_after_ms: int = 0,
        multi_queues: str | None = None,
    ) -> None:
        """`multi_queues` is the text of INNER_MULTI_DISPATCH: the store appends INNER_MULTI_QUEUE_OFFSET to the
        properties and one entry to each of these queues (enableMultiDispatch)."""
        self.topic = topic
        self.queue_id = queue_id
        self.body = body
        self.properties = properties
        self.born_timestamp = born_timestamp
        self.born_host = born_host
        self.store_host = store_host
        self.flag = flag
        self.sys_flag = sys_flag
        self.reconsume_times = reconsume_times
        self.prepared_transaction_offset = prepared_transaction_offset
        self.tags_code = tags_code
        self.uniq_key = uniq_key
        self.keys = keys
        self.deliver_after_ms = deliver_after_ms
        self.multi_queues = multi_queues


class PutResult:
    """The offsets of a message (of a batch: of its first message), or the reason why it was refused.

    A result of `append` is provisional until the next commit: if its write fails, `status` changes and the waiters of
    `store.committed` receive the error. `physical_offsets` has one offset per message of a batch.
    """

    __slots__ = (
        "message_count",
        "physical_offset",
        "physical_offsets",
        "queue_offset",
        "reason",
        "size_bytes",
        "status",
        "store_timestamp",
    )

    def __init__(
        self,
        status: PutStatus,
        physical_offset: int = -1,
        size_bytes: int = 0,
        queue_offset: int = -1,
        store_timestamp: int = 0,
        message_count: int = 0,
        physical_offsets: list[int] | None = None,
        reason: str = "",
    ) -> None:
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


class GetResult:
    """The result of a pull. `records` are whole stored records; joined they are the body of a pull response."""

    __slots__ = (
        "max_offset",
        "message_count",
        "min_offset",
        "next_begin_offset",
        "records",
        "size_bytes",
        "status",
        "suggest_slave",
    )

    def __init__(self, status: GetStatus, next_begin_offset: int, min_offset: int, max_offset: int) -> None:
        self.status = status
        self.next_begin_offset = next_begin_offset
        self.min_offset = min_offset
        self.max_offset = max_offset
        self.records: list[bytes] = []
        self.size_bytes = 0
        self.message_count = 0
        self.suggest_slave = False

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
    number of characters of the expression that the last `matches_record` evaluated."""

    cost: int

    def matches_entry(self, tags_code: int, ext: ExtUnit | None) -> bool: ...

    def matches_record(self, record: bytes) -> bool: ...


class RecoveryReport:
    """The findings and changes of one recovery, for the log and for tests. Offsets are physical."""

    __slots__ = (
        "added_entries",
        "damages",
        "log_begin",
        "log_end",
        "rebuilt_queues",
        "records",
        "scanned_from",
        "truncated_entries",
        "was_clean",
    )

    def __init__(self) -> None:
        self.was_clean = True
        self.log_begin = 0
        self.log_end = 0
        self.scanned_from = 0
        self.records = 0
        self.added_entries = 0
        self.truncated_entries = 0
        self.rebuilt_queues: list[str] = []
        self.damages: list[Damage] = []
