"""When consumers were handed messages, by the message trace (RocketMQ: TraceDataEncoder, SubBefore)."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any, Final

import pyarrow as pa

from triomq.pipeline.quality.scan import Window
from triomq.pipeline.tables.sources import Source

_FIELD: Final = "\x01"
_RECORD: Final = "\x02"
_TIME, _GROUP, _ID, _RETRY = 1, 3, 5, 6
"""Places of the fields of a SubBefore record."""
TRACE_COLUMNS: Final = ("queueOffset", "body", "storeTimestamp")
LATEST_MS: Final = 3_600_000
"""Traces are sent in the background: those stored up to an hour behind the window may be of its messages."""


def first_deliveries(text: str) -> Iterator[tuple[str, str, int]]:
    """Yield (group, message id, ms since 1970) of the first tries in the body of one trace message."""
    for record in text.split(_RECORD):
        fields = record.split(_FIELD)
        if (
            fields[0] == "SubBefore"
            and len(fields) > _RETRY
            and fields[_RETRY] in ("", "0")
            and fields[_TIME].isdigit()
        ):
            yield fields[_GROUP].rpartition("%")[2], fields[_ID], int(fields[_TIME])


def consumed(source: Source, window: Window, limit: int, advance: Callable[[int], None]) -> tuple[dict[str, Any], int]:
    """Return group -> table of the columns hash (of a message id) and consumed (ms), and how many deliveries beyond
    `limit` were left out. The source has TRACE_COLUMNS."""
    hashes: dict[str, list[int]] = {}
    times: dict[str, list[int]] = {}
    count = left_out = 0
    queues = source.queues()
    begins, ends = source.begins(queues), source.ends(queues)
    for queue in queues:
        for batch in source.batches(queue, begins[queue], ends[queue]):
            advance(len(batch))
            for body in batch.column("body").to_pylist():
                for group, message_id, consumed_ms in first_deliveries(body.decode("utf-8", "replace")):
                    if not window.begin <= consumed_ms < window.end + LATEST_MS:
                        continue
                    if count >= limit:
                        left_out += 1
                        continue
                    count += 1
                    hashes.setdefault(group, []).append(hash(message_id))
                    times.setdefault(group, []).append(consumed_ms)
    found = {
        group: pa.table({"hash": pa.array(hashes[group], pa.int64()), "consumed": pa.array(times[group], pa.int64())})
        .group_by("hash")
        .aggregate([("consumed", "min")])
        .rename_columns(["hash", "consumed"])
        for group in hashes
    }
    return found, left_out
