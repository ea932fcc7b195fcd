"""A topic as the target: messages are sent, then the offsets of a consumer group of the source say how far.

A kill between the two sends the messages of one commit again, which changes nothing for a reader of last messages.
"""

from __future__ import annotations

import os
import secrets
import time
from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa

from triomq.pipeline.tables.rows import RAW_SCHEMA, kinds_of
from triomq.pipeline.tables.target import About
from triomq.protocol.message_id import UniqKeyMaker
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.cluster import Cluster
from triomq.spark.outgoing import RowReader
from triomq.spark.positions import Positions
from triomq.spark.sending import Sender

PRODUCER_GROUP: Final = "MQPIPELINE_COMPACT"
BATCH_BYTES: Final = 256 * 1024
RETRIES: Final = 3
_FIELDS: Final = ("body", "tags", "keys", "properties", "shardingKey")


def group_of(topic: str, target: str) -> str:
    """Return the group whose offsets at the source are the positions."""
    return f"{PRODUCER_GROUP}_{topic}_{target}"[:255]


class TopicTarget:
    """See triomq.pipeline.tables.target.Target. `source`: the cluster that has the offsets; `cluster`: the one of
    `topic`, to which messages go."""

    def __init__(self, source: Cluster, about: About, cluster: Cluster, topic: str) -> None:
        self._source = source
        self._about = about
        self._cluster = cluster
        self._topic = topic
        self._group = group_of(about.topic, topic)
        maker = UniqKeyMaker(secrets.token_bytes(4), os.getpid(), 0)
        columns = {name: at for at, name in enumerate(_FIELDS)}
        self._rows = RowReader(columns, topic, None, lambda: maker.make(_now_ms()))

    def about(self) -> About | None:
        route = self._source.settled_route(self._about.topic)
        queues = sorted(route.subscribe) if route is not None else []
        return self._about if self.positions(queues) else None

    def kinds(self) -> dict[str, str]:
        return kinds_of(RAW_SCHEMA)

    def positions(self, queues: Sequence[MessageQueue]) -> Positions:
        return self._source.group_offsets(self._group, queues) if queues else {}

    def create(self, about: About, schema: Any, positions: Positions) -> None:
        self._source.store_group_offsets(self._group, positions)

    def add_columns(self, columns: dict[str, Any]) -> None:
        raise NotImplementedError("messages have no columns of their own")

    def commit(self, rows: Any, positions: Positions) -> None:
        sender = Sender(
            self._cluster, PRODUCER_GROUP, batch_bytes=BATCH_BYTES, retries=RETRIES, now_ms=_now_ms, stored=None
        )
        for batch in rows.to_batches():
            for message in self._rows.messages(_sent(batch)):
                sender.add(message)
        sender.flush()
        self._source.store_group_offsets(self._group, positions)

    def replace(self, rows: Any, key: str, positions: Positions) -> None:
        self.commit(rows, positions)

    def compact(self) -> None:
        """A topic has no small files."""

    def remove_before(self, day: date) -> None:
        """Retention is the broker's."""

    def close(self) -> None:
        """Both clusters belong to others."""


def _sent(batch: Any) -> Any:
    """Return the columns of RowReader. All messages of a key go to one queue, so that their order stays."""
    columns = [batch.column(name) for name in _FIELDS[:-1]]
    return pa.record_batch([*columns, batch.column("keys")], names=list(_FIELDS))


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
