"""From the records of a pull to the requests that send them. Pure.

Bodies stay as they are stored, compressed or not. Properties stay, except those that would make the broker delay or
hide the message once more. A request has the born time of its message; several messages are one request only if their
born times agree.
"""

from __future__ import annotations

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass
from typing import Final

from triomq.client.core.outgoing import Outgoing
from triomq.protocol import properties, sys_flag
from triomq.protocol import property_names as names
from triomq.protocol.codes import RequestCode
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import BatchUnit, encode_batch_units, read_fields
from triomq.protocol.system_topics import is_retry_topic

POSITION: Final = "COPY_SOURCE"
"""The property that says where a message comes from: NAME/TOPIC/BROKER/QUEUE/OFFSET."""
CLUSTERS: Final = "COPY_CLUSTERS"
"""The property that names the clusters in which a message was before, separated by commas."""
BATCH_BYTES: Final = 256 * 1024
BATCH_MESSAGES: Final = 1024
_KEPT_FLAGS: Final = sys_flag.COMPRESSED | sys_flag.COMPRESSION_MASK | sys_flag.MULTI_TAGS
_DROPPED: Final = (names.DELAY, names.TRANSACTION_PREPARED)


class SameNames(Exception):
    """A message was in a cluster that may be the target or the source: both have this name."""


@dataclass(frozen=True, slots=True)
class Marks:
    """The properties of copies. `source`, `target`: names of the clusters. `has_position`: with --exactly-once."""

    source: str
    target: str
    has_position: bool

    def position(self, queue: MessageQueue) -> str:
        """Return what the positions of a source queue begin with."""
        return f"{self.source}/{queue.topic}/{queue.broker_name}/{queue.queue_id}/"

    def is_returning(self, record: Record) -> bool:
        """Return whether a message was in the target cluster before. Raises SameNames."""
        text = record.properties.get(CLUSTERS)
        if text is None or self.target not in text.split(","):
            return False
        if self.source == self.target:
            raise SameNames(self.target)
        return True

    def table(self, record: Record, queue: MessageQueue) -> dict[str, str]:
        """Return the properties of the copy of a message of this source queue."""
        table = {name: value for name, value in record.properties.items() if name not in _DROPPED}
        before = table.get(CLUSTERS, "")
        if self.source not in before.split(","):
            table[CLUSTERS] = f"{before},{self.source}" if before else self.source
        if self.has_position:
            table[POSITION] = f"{self.position(queue)}{record.offset}"
        return table


@dataclass(frozen=True, slots=True)
class Record:
    """One message at the source. `born_ms`: wall clock."""

    offset: int
    body: bytes
    properties: dict[str, str]
    flag: int
    sys_flag: int
    born_ms: int
    reconsume_times: int

    @property
    def size_bytes(self) -> int:
        return len(self.body) + 32 + sum(len(name) + len(value) + 2 for name, value in self.properties.items())


@dataclass(frozen=True, slots=True)
class Unit:
    """One request to be: `records` has one message, or several that a batch can hold."""

    outgoing: Outgoing
    born_ms: int
    offsets: tuple[int, ...]


def read_records(data: bytes, begin: int, end: int) -> list[Record]:
    """Return the records of a response with queue offsets in [begin, end). Raises RecordError."""
    found = []
    at = 0
    while at < len(data):
        fields = read_fields(data, at, len(data))
        at += fields.size_bytes
        if begin <= fields.queue_offset < end:
            found.append(
                Record(
                    fields.queue_offset,
                    data[fields.body_at : fields.body_at + fields.body_length],
                    properties.parse_bytes(fields.properties),
                    fields.flag,
                    fields.sys_flag & _KEPT_FLAGS,
                    fields.born_timestamp,
                    fields.reconsume_times,
                )
            )
    return found


def units(
    records: Iterable[Record], queue: MessageQueue, topic: str, marks: Marks, born_within_ms: int
) -> Iterator[Unit]:
    """Yield the requests that send these records of a source queue to a topic, in order. `born_within_ms`: how far born
    times may differ in a batch, which has that of its first message."""
    run: list[Record] = []
    run_bytes = 0
    for record in records:
        fits = (
            run
            and _may_share(record, topic)
            and abs(record.born_ms - run[0].born_ms) <= born_within_ms
            and run_bytes + record.size_bytes <= BATCH_BYTES
            and len(run) < BATCH_MESSAGES
            and _may_share(run[0], topic)
        )
        if run and not fits:
            yield _unit(run, queue, topic, marks)
            run, run_bytes = [], 0
        run.append(record)
        run_bytes += record.size_bytes
    if run:
        yield _unit(run, queue, topic, marks)


def _may_share(record: Record, topic: str) -> bool:
    return not record.sys_flag and not record.reconsume_times and not topic.startswith("%")


def _unit(run: Sequence[Record], queue: MessageQueue, topic: str, marks: Marks) -> Unit:
    first = run[0]
    tables = [marks.table(record, queue) for record in run]
    if len(run) > 1:
        parts = [
            BatchUnit(record.flag, record.body, properties.encode(table))
            for record, table in zip(run, tables, strict=True)
        ]
        outgoing = Outgoing(
            code=RequestCode.SEND_BATCH_MESSAGE,
            topic=topic,
            body=encode_batch_units(parts),
            flag=0,
            sys_flag=0,
            properties="",
            message_id="",
            is_batch=True,
        )
    else:
        outgoing = Outgoing(
            code=RequestCode.SEND_MESSAGE_V2,
            topic=topic,
            body=first.body,
            flag=first.flag,
            sys_flag=first.sys_flag,
            properties=properties.format(tables[0]),
            message_id="",
            reconsume_times=first.reconsume_times,
            # the source has kept it for another delivery, so the target does, whatever the limit of its group
            max_reconsume_times=first.reconsume_times + 1 if is_retry_topic(topic) else None,
        )
    return Unit(outgoing, first.born_ms, tuple(record.offset for record in run))


def position_of(record: Record, position: str) -> int | None:
    """Return the source offset that a copied record carries, if it comes from the queue of `position`."""
    text = record.properties.get(POSITION, "")
    number = text.removeprefix(position)
    return int(number) if text.startswith(position) and number.isdecimal() else None
