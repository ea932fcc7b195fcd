"""One pass over the messages of a topic.

Each message is read once, in the order of its queue. What is missing between the offsets of a queue is a gap; what
retention had deleted before the pass began is none.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Final

import pyarrow as pa
import pyarrow.compute as pc

from triomq.pipeline.quality.figures import HOUR_MS, Figures, Gap, Seen, Spread, gaps_between, total_of
from triomq.pipeline.tables.rows import MESSAGE_SCHEMA
from triomq.pipeline.tables.sources import Source
from triomq.protocol.dead_letters import REASON
from triomq.protocol.property_names import RETRY_TOPIC
from triomq.spark.positions import Range

COLUMNS: Final = ("queueOffset", "body", "keys", "bornTimestamp", "storeTimestamp", "msgId")
LETTER_COLUMNS: Final = (*COLUMNS, "properties")
MOST_GAPS: Final = 20
"""Gaps of a topic that are named; all are counted."""
MOST_REASONS: Final = 1000
OTHER_REASONS: Final = "other reasons"
NO_REASON: Final = "no reason given"
"""Brokers give up without one, when all tries are used."""

Advance = Callable[[int], None]
"""Called with a number of messages that were read."""


@dataclass(frozen=True, slots=True)
class Window:
    """The store times in ms that count: from `begin`, before `end`."""

    begin: int = 0
    end: int = 1 << 62

    @property
    def is_all(self) -> bool:
        return self == Window()


@dataclass(slots=True)
class TopicScan:
    """What a pass found. `hours`: hour since 1970 -> figures. `looked_at`: keys and ids that were compared."""

    topic: str
    hours: dict[int, Figures] = field(default_factory=dict)
    gaps: list[Gap] = field(default_factory=list)
    gap_count: int = 0
    missing: int = 0
    ids_left_out: int = 0
    keys_left_out: int = 0
    stored: Any = None
    """Ids and store times (Seen.table), for what consumers did."""

    def hour(self, number: int) -> Figures:
        return self.hours.setdefault(number, Figures())

    def total(self) -> Figures:
        return total_of(self.hours)

    def lacks(self, gap: Gap) -> None:
        self.gap_count += 1
        self.missing += gap.missing
        if len(self.gaps) < MOST_GAPS:
            self.gaps.append(gap)


def schema_of(columns: Sequence[str]) -> Any:
    return pa.schema([MESSAGE_SCHEMA.field(name) for name in columns])


def scan_topic(
    source: Source, topic: str, ranges: Sequence[Range], window: Window, limit: int, advance: Advance
) -> TopicScan:
    """Read ranges of a topic, whose source has COLUMNS. At most `limit` ids, and as many keys, are compared."""
    found = TopicScan(topic)
    ids, keys = Seen(limit), Seen(limit)
    for batch in _batches(source, ranges, window, advance, found.lacks):
        stored = _milliseconds(batch, "storeTimestamp")
        latencies = pc.subtract(stored, _milliseconds(batch, "bornTimestamp"))
        sizes = pc.binary_length(batch.column("body")).cast(pa.int64())
        hours = pc.divide(stored, HOUR_MS)
        for hour in pc.unique(hours).to_pylist():
            chosen = pc.equal(hours, hour)
            found.hour(hour).add(sizes.filter(chosen), latencies.filter(chosen))
        ids.add(batch.column("msgId").to_pylist(), stored)
        _add_keys(keys, batch.column("keys"), stored)
    for hour, count in ids.repeats().items():
        found.hour(hour).repeated_ids += count
    for hour, count in keys.repeats().items():
        found.hour(hour).repeated_keys += count
    found.ids_left_out, found.keys_left_out = ids.left_out, keys.left_out
    found.stored = ids.table()
    return found


def scan_letters(source: Source, ranges: Sequence[Range], window: Window, advance: Advance) -> Counter[tuple[str, str]]:
    """Return (topic where it came from, reason) -> dead letters. The source has LETTER_COLUMNS."""
    found: Counter[tuple[str, str]] = Counter()
    for batch in _batches(source, ranges, window, advance, lambda _: None):
        for properties in batch.column("properties").to_pylist():
            known = dict(properties or ())
            which = known.get(RETRY_TOPIC, ""), known.get(REASON, NO_REASON)
            if which not in found and len(found) >= MOST_REASONS:
                which = "", OTHER_REASONS
            found[which] += 1
    return found


def add_consumed(found: TopicScan, consumed: Mapping[str, Any]) -> None:
    """Add what consumers did with the messages. consumed: group -> table of the columns hash and consumed (ms), one
    row for each message that was handed to it."""
    for group, table in consumed.items():
        joined = table.join(found.stored, "hash", join_type="inner")
        stored = joined["stored"].combine_chunks()
        latencies = pc.subtract(joined["consumed"].combine_chunks(), stored)
        hours = pc.divide(stored, HOUR_MS)
        for hour in pc.unique(hours).to_pylist():
            spread = found.hour(hour).consumed.setdefault(group, Spread())
            spread.add(latencies.filter(pc.equal(hours, hour)))


def _batches(
    source: Source, ranges: Sequence[Range], window: Window, advance: Advance, lacks: Callable[[Gap], None]
) -> Iterator[Any]:
    """Yield the record batches of ranges with only what is in the window; name the gaps between them."""
    for queue, begin, end in ranges:
        expected = begin
        for batch in source.batches(queue, begin, end):
            offsets = batch.column("queueOffset")
            for first, last in gaps_between(offsets, expected):
                lacks(Gap(queue.broker_name, queue.queue_id, first, last))
            expected = offsets[-1].as_py() + 1
            advance(len(batch))
            if not window.is_all:
                stored = _milliseconds(batch, "storeTimestamp")
                batch = batch.filter(pc.and_(pc.greater_equal(stored, window.begin), pc.less(stored, window.end)))
            if len(batch):
                yield batch
        if expected < end:
            lacks(Gap(queue.broker_name, queue.queue_id, expected, end))


def _milliseconds(batch: Any, name: str) -> Any:
    return pc.divide(batch.column(name).cast(pa.int64()), 1000)  # microseconds since 1970, in UTC


def _add_keys(keys: Seen, column: Any, stored: Any) -> None:
    """Add each key of each message; RocketMQ has them in one text, between spaces."""
    texts = column.to_pylist()
    if all(text is not None and " " not in text for text in texts):
        keys.add(texts, stored)
        return
    apart = [(key, at) for at, text in enumerate(texts) if text for key in dict.fromkeys(text.split(" ")) if key]
    keys.add([key for key, _ in apart], stored.take(pa.array([at for _, at in apart], pa.int64())))
