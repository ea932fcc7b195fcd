"""An Iceberg table in a SQL catalog, by default in DIR/catalog.db. Positions are in the properties of the snapshot, and
in those of the table by the same commit, since snapshots expire."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from datetime import date
from pathlib import Path
from typing import Any, Final

import pyarrow as pa
from pyiceberg.catalog import load_catalog
from pyiceberg.exceptions import CommitFailedException, NoSuchTableError, TableAlreadyExistsError
from pyiceberg.expressions import And, EqualTo, In, LessThan
from pyiceberg.types import BinaryType, BooleanType, DateType, DoubleType, LongType, StringType, TimestamptzType
from sqlalchemy.exc import SQLAlchemyError

from triomq.pipeline.tables.keyed import ORDER_COLUMN, QUEUE_COLUMNS, without_earlier
from triomq.pipeline.tables.rows import PARTITION_COLUMNS, kinds_of
from triomq.pipeline.tables.target import About, Conflict, failures_at
from triomq.pipeline.tables.upkeep import MERGED_BYTES, SMALL_BYTES
from triomq.protocol.message_queue import MessageQueue
from triomq.spark.jobs.session import JobFailed
from triomq.spark.positions import Positions, from_tree, to_tree

NAMESPACE: Final = "topics"
_TOPIC: Final = "triomq.topic"
_CLUSTER: Final = "triomq.cluster"
_KEY: Final = "triomq.key"
_POSITIONS: Final = "triomq.positions"
_TYPES: Final[dict[str, Any]] = {
    "string": StringType(),
    "bigint": LongType(),
    "double": DoubleType(),
    "boolean": BooleanType(),
    "timestamp": TimestamptzType(),
    "date": DateType(),
    "binary": BinaryType(),
}
# Their types do not know the positional arguments.
_equal: Final[Any] = EqualTo
_less: Final[Any] = LessThan
_in: Final[Any] = In
# A retry of PyIceberg's would append the same rows again on top of what another run has committed.
_NO_RETRY: Final = {"commit.retry.num-retries": "0"}


class IcebergTarget:
    """See triomq.pipeline.tables.target.Target. `catalog`: properties of PyIceberg's catalog, which replace those of
    the default one."""

    def __init__(self, url: str, topic: str, catalog: dict[str, str]) -> None:
        self._url = url
        self._name = f"{NAMESPACE}.{re.sub(r'[^A-Za-z0-9_]', '_', topic)}"
        self._table: Any = None
        with failures_at(url, SQLAlchemyError):
            if not catalog:
                folder = Path(url.removeprefix("file://")).absolute()
                folder.mkdir(parents=True, exist_ok=True)
                catalog = {"type": "sql", "uri": f"sqlite:///{folder}/catalog.db", "warehouse": folder.as_uri()}
            self._catalog = load_catalog("triomq", **catalog)
            self._catalog.create_namespace_if_not_exists(NAMESPACE)

    def about(self) -> About | None:
        with failures_at(self._url, SQLAlchemyError):
            try:
                self._table = self._catalog.load_table(self._name)
            except NoSuchTableError:
                return None
        properties = self._table.properties
        if _POSITIONS not in properties:
            raise JobFailed(f"--to {self._url}: table {self._name} was not made by this job")
        return About(properties[_TOPIC], properties[_CLUSTER], properties.get(_KEY, ""))

    def kinds(self) -> dict[str, str]:
        return kinds_of(self._table.schema().as_arrow())

    def positions(self, queues: Sequence[MessageQueue]) -> Positions:
        found = from_tree(json.loads(self._table.properties[_POSITIONS]), f"table {self._name}")
        return {queue: found[queue] for queue in queues if queue in found}

    def create(self, about: About, schema: Any, positions: Positions) -> None:
        properties = {_TOPIC: about.topic, _CLUSTER: about.cluster, _POSITIONS: _text(positions), **_NO_RETRY}
        if about.key:
            properties[_KEY] = about.key
        with failures_at(self._url, SQLAlchemyError):
            try:
                with (
                    self._catalog.create_table_transaction(self._name, schema, properties=properties) as made,
                    made.update_spec() as spec,
                ):
                    for name in PARTITION_COLUMNS:
                        spec.add_identity(name)
            except (TableAlreadyExistsError, CommitFailedException) as error:
                raise Conflict from error
            self._table = self._catalog.load_table(self._name)

    def add_columns(self, columns: dict[str, Any]) -> None:
        with failures_at(self._url, SQLAlchemyError):
            try:
                with self._table.update_schema() as update:
                    for name, kind in kinds_of(pa.schema(list(columns.items()))).items():
                        update.add_column(name, _TYPES[kind])
            except CommitFailedException as error:
                raise Conflict from error

    def commit(self, rows: Any, positions: Positions) -> None:
        everything = from_tree(json.loads(self._table.properties[_POSITIONS])) | positions
        text = _text(everything)
        with failures_at(self._url, SQLAlchemyError):
            try:
                with self._table.transaction() as transaction:
                    transaction.append(rows, snapshot_properties={_POSITIONS: text})
                    transaction.set_properties({_POSITIONS: text, **_NO_RETRY})
            except CommitFailedException as error:
                raise Conflict from error

    def replace(self, rows: Any, key: str, positions: Positions) -> None:
        text = _text(from_tree(json.loads(self._table.properties[_POSITIONS])) | positions)
        with failures_at(self._url, SQLAlchemyError):
            columns = (key, *QUEUE_COLUMNS, ORDER_COLUMN)
            present = self._table.scan(row_filter=_in(key, rows[key].to_pylist()), selected_fields=columns).to_arrow()
            rows = without_earlier(rows, present, key)
            try:
                with self._table.transaction() as transaction:
                    if len(present):
                        replaced = _in(key, rows[key].to_pylist())
                        transaction.overwrite(rows, replaced, snapshot_properties={_POSITIONS: text})
                    else:
                        transaction.append(rows, snapshot_properties={_POSITIONS: text})
                    transaction.set_properties({_POSITIONS: text, **_NO_RETRY})
            except CommitFailedException as error:
                raise Conflict from error

    def compact(self) -> None:
        positions = {_POSITIONS: self._table.properties[_POSITIONS]}
        with failures_at(self._url, SQLAlchemyError):
            for day, topic in self._scattered():
                part = And(_equal("date", day.isoformat()), _equal("topic", topic))
                rows = self._table.scan(row_filter=part).to_arrow()
                try:
                    self._table.overwrite(rows, overwrite_filter=part, snapshot_properties=positions)
                except CommitFailedException as error:
                    raise Conflict from error

    def _scattered(self) -> list[tuple[date, str]]:
        """Return the partitions with several small files that fit into memory."""
        return [
            key
            for key, each in sorted(self._sizes().items())
            if sum(size < SMALL_BYTES for size in each) > 1 and sum(each) <= MERGED_BYTES
        ]

    def _sizes(self) -> dict[tuple[date, str], list[int]]:
        """Return the sizes of the files of each partition, in bytes."""
        sizes: dict[tuple[date, str], list[int]] = {}
        for file in self._table.inspect.files().select(["partition", "file_size_in_bytes"]).to_pylist():
            key = file["partition"]["date"], file["partition"]["topic"]
            sizes.setdefault(key, []).append(file["file_size_in_bytes"])
        return sizes

    def remove_before(self, day: date) -> None:
        if not any(each < day for each, _ in self._sizes()):
            return  # PyIceberg would commit and warn
        positions = {_POSITIONS: self._table.properties[_POSITIONS]}
        with failures_at(self._url, SQLAlchemyError):
            try:
                self._table.delete(_less("date", day.isoformat()), snapshot_properties=positions)
            except CommitFailedException as error:
                raise Conflict from error

    def close(self) -> None:
        with failures_at(self._url, SQLAlchemyError):
            self._catalog.close()


def _text(positions: Positions) -> str:
    return json.dumps(to_tree(positions))
