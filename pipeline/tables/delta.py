"""A Delta table. The position of each queue is the version of an application transaction of that queue, in the commit
that has the rows; Delta keeps the last version of each application through checkpoints and compaction."""

from __future__ import annotations

from collections.abc import Sequence
from datetime import date
from typing import Any, Final

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Field, Transaction, write_deltalake
from deltalake.exceptions import CommitFailedError, DeltaError
from deltalake.schema import PrimitiveType

from triomq.pipeline.tables.rows import PARTITION_COLUMNS, kinds_of
from triomq.pipeline.tables.target import About, Conflict, failures_at
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.data_loss import text_of
from triomq.spark.jobs.session import JobFailed
from triomq.spark.positions import Positions

_TOPIC: Final = "triomq.topic"
_CLUSTER: Final = "triomq.cluster"
_KEY: Final = "triomq.key"
_IS_LATER: Final = "(s.brokerName = t.brokerName AND s.queueId = t.queueId) OR s.storeTimestamp >= t.storeTimestamp"
_PRIMITIVES: Final = {"bigint": "long"} | {
    name: name for name in ("string", "double", "boolean", "timestamp", "date", "binary")
}


class DeltaTarget:
    """See triomq.pipeline.tables.target.Target."""

    def __init__(self, url: str, storage: dict[str, str]) -> None:
        self._url = url
        self._storage = storage
        self._table: Any = None

    def about(self) -> About | None:
        with failures_at(self._url, DeltaError):
            if not DeltaTable.is_deltatable(self._url, self._storage):
                return None
            self._table = DeltaTable(self._url, storage_options=self._storage)
            properties = self._table.metadata().configuration
        if _TOPIC not in properties:
            raise JobFailed(f"--to {self._url}: a table that this job has not made")
        return About(properties[_TOPIC], properties.get(_CLUSTER, ""), properties.get(_KEY, ""))

    def kinds(self) -> dict[str, str]:
        return kinds_of(pa.schema(self._table.schema().to_arrow()))

    def positions(self, queues: Sequence[MessageQueue]) -> Positions:
        found = {queue: self._table.transaction_version(_application(queue)) for queue in queues}
        return {queue: offset for queue, offset in found.items() if offset is not None}

    def create(self, about: About, schema: Any, positions: Positions) -> None:
        with failures_at(self._url, DeltaError):
            if DeltaTable.is_deltatable(self._url, self._storage):
                raise Conflict
            try:
                self._table = DeltaTable.create(
                    self._url,
                    schema,
                    partition_by=list(PARTITION_COLUMNS),
                    configuration={_TOPIC: about.topic, _CLUSTER: about.cluster, _KEY: about.key},
                    storage_options=self._storage,
                    commit_properties=_with_positions(positions),
                    raise_if_key_not_exists=False,
                )
            except CommitFailedError as error:
                raise Conflict from error

    def add_columns(self, columns: dict[str, Any]) -> None:
        fields = [
            Field(name, PrimitiveType(_PRIMITIVES[kind]), nullable=True)
            for name, kind in kinds_of(pa.schema(list(columns.items()))).items()
        ]
        with failures_at(self._url, DeltaError):
            try:
                self._table.alter.add_columns(fields, commit_properties=CommitProperties(max_commit_retries=0))
            except CommitFailedError as error:
                raise Conflict from error

    def commit(self, rows: Any, positions: Positions) -> None:
        with failures_at(self._url, DeltaError):
            try:
                write_deltalake(self._table, rows, mode="append", commit_properties=_with_positions(positions))
            except CommitFailedError as error:
                raise Conflict from error

    def replace(self, rows: Any, key: str, positions: Positions) -> None:
        with failures_at(self._url, DeltaError):
            merge = self._table.merge(
                rows,
                predicate=f"t.`{key}` = s.`{key}`",
                source_alias="s",
                target_alias="t",
                commit_properties=_with_positions(positions),
            )
            try:
                merge.when_matched_update_all(predicate=_IS_LATER).when_not_matched_insert_all().execute()
            except CommitFailedError as error:
                raise Conflict from error

    def compact(self) -> None:
        with failures_at(self._url, DeltaError):
            try:
                self._table.optimize.compact(commit_properties=CommitProperties(max_commit_retries=0))
            except CommitFailedError as error:
                raise Conflict from error
            self._table.vacuum(dry_run=False)  # files that no version of the last seven days names

    def remove_before(self, day: date) -> None:
        with failures_at(self._url, DeltaError):
            try:
                self._table.delete(f"date < '{day}'", commit_properties=CommitProperties(max_commit_retries=0))
            except CommitFailedError as error:
                raise Conflict from error

    def close(self) -> None:
        self._table = None


def _application(queue: MessageQueue) -> str:
    return f"triomq:{text_of(queue)}"


def _with_positions(positions: Positions) -> Any:
    # Without retries: a retry on top of another commit is refused by its transactions, but this does not rest on it.
    transactions = [Transaction(_application(queue), offset) for queue, offset in sorted(positions.items())]
    return CommitProperties(app_transactions=transactions, max_commit_retries=0)
