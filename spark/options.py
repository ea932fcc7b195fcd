"""Options of the sources and the sink: parsed and checked once, immutable and picklable (they travel to executors).

Names are case-insensitive, as everywhere in Spark. Every error is one line that begins with the name of the option.
"""

from __future__ import annotations

import difflib
import re
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Final

from triomq.protocol.secret_text import SecretError
from triomq.protocol.subscription import SQL92, SUB_ALL, TAG, SubscriptionError, build_subscription
from triomq.remoting.secret_file import read_secret
from triomq.spark import positions
from triomq.spark.columns import chosen_columns, default_columns
from triomq.spark.errors import OptionError

DEFAULT_SOURCE_GROUP: Final = "SPARK_SOURCE"
DEFAULT_SINK_GROUP: Final = "SPARK_SINK"
_CONNECTION: Final = (
    "nameServer",
    "accessKey",
    "secretKey",
    "secretKeyFile",
    "securityToken",
    "tls.enable",
    "tls.client.trustCertPath",
    "tls.client.certPath",
    "tls.client.keyPath",
    "tls.client.keyPassword",
    "tls.client.authServer",
    "requestTimeoutMs",
    "retryTimeoutMs",
)
SOURCE_OPTIONS: Final = (
    *_CONNECTION,
    "subscribe",
    "subscribePattern",
    "assign",
    "startingOffsets",
    "endingOffsets",
    "startingTimestamp",
    "endingTimestamp",
    "startingOffsetsByTimestamp",
    "endingOffsetsByTimestamp",
    "maxOffsetsPerTrigger",
    "minOffsetsPerTrigger",
    "maxTriggerDelayMs",
    "minPartitions",
    "failOnDataLoss",
    "includeProperties",
    "filter",
    "filterType",
    "rowFormat",
    "consumerGroup",
    "commitOffsets",
    "pullBatchSize",
    "pullsInFlight",
    "maxRatePerTask",
    "pushDownFilters",
    "maxRecordsPerPartition",
    "columns",
)
STORE_OPTIONS: Final = (
    "path",
    "commitLogPath",
    "subscribe",
    "subscribePattern",
    "split",
    "logEnd",
    "minPartitions",
    "failOnDataLoss",
    "includeProperties",
    "rowFormat",
    "brokerName",
    "startingTimestamp",
    "endingTimestamp",
    "pushDownFilters",
    "startingOffset",
    "endingOffset",
    "maxRecordsPerPartition",
    "columns",
)
SINK_OPTIONS: Final = (
    *_CONNECTION,
    "topic",
    "producerGroup",
    "retries",
    "batchBytes",
    "idempotence",
    "writeId",
    "maxRatePerTask",
    "checkpointLocation",
)


class OptionTable:
    """The given options by lower-case name, with typed access."""

    def __init__(self, given: Mapping[str, str], known: tuple[str, ...]) -> None:
        self._given = {str(name).lower(): str(value) for name, value in given.items()}
        names = {name.lower(): name for name in known}
        for name in self._given:
            close = [] if name in names else difflib.get_close_matches(name, names, 1, 0.85)
            if close:
                raise OptionError(f"option {name}: unknown; did you mean {names[close[0]]}?")

    def text(self, name: str) -> str | None:
        value = self._given.get(name.lower())
        return value.strip() if value is not None and value.strip() else None

    def json(self, name: str) -> Any:
        text = self.text(name)
        return None if text is None else positions.parse(text, name)

    def number(self, name: str, default: int, minimum: int = 0) -> int:
        text = self.text(name)
        if text is None:
            return default
        try:
            number = int(text)
        except ValueError:
            raise OptionError(f"option {name}: {text!r} is not a whole number") from None
        if number < minimum:
            raise OptionError(f"option {name}: {number} is less than {minimum}")
        return number

    def optional_number(self, name: str, minimum: int = 0) -> int | None:
        return None if self.text(name) is None else self.number(name, minimum, minimum)

    def flag(self, name: str, default: bool) -> bool:
        text = (self.text(name) or str(default)).lower()
        if text not in ("true", "false"):
            raise OptionError(f"option {name}: {text!r} is neither true nor false")
        return text == "true"

    def choice(self, name: str, default: str, choices: tuple[str, ...]) -> str:
        text = self.text(name) or default
        for choice in choices:
            if text.lower() == choice.lower():
                return choice
        raise OptionError(f"option {name}: {text!r} is not one of {', '.join(choices)}")

    def pattern(self, name: str) -> str | None:
        text = self.text(name)
        if text is not None:
            try:
                re.compile(text)
            except re.error as error:
                raise OptionError(f"option {name}: {text!r} is not a regular expression: {error}") from None
        return text


@dataclass(frozen=True, slots=True)
class ConnectionOptions:
    """How to reach a cluster. Times in ms."""

    name_servers: tuple[str, ...]
    access_key: str | None = None
    secret_key: str | None = field(default=None, repr=False)
    security_token: str | None = field(default=None, repr=False)
    tls: bool = False
    tls_trust_path: str | None = None
    tls_cert_path: str | None = None
    tls_key_path: str | None = None
    tls_key_password: str | None = field(default=None, repr=False)
    tls_auth_server: bool = False
    request_timeout_ms: int = 5000
    retry_timeout_ms: int = 60_000


def connection_options(table: OptionTable) -> ConnectionOptions:
    given = table.text("nameServer")
    if given is None:
        raise OptionError('option nameServer: missing; give "host:9876", several separated by ";"')
    name_servers = tuple(part for part in re.split(r"[;,\s]+", given) if part)
    for part in name_servers:
        host, _, port = part.rpartition(":")
        if not host or not port.isdigit():
            raise OptionError(f"option nameServer: {part!r} is not host:port")
    secret_key = _secret_key(table)
    if (table.text("accessKey") is None) != (secret_key is None):
        raise OptionError("option accessKey: accessKey and secretKey must be given together")
    return ConnectionOptions(
        name_servers,
        table.text("accessKey"),
        secret_key,
        table.text("securityToken"),
        table.flag("tls.enable", False),
        table.text("tls.client.trustCertPath"),
        table.text("tls.client.certPath"),
        table.text("tls.client.keyPath"),
        table.text("tls.client.keyPassword"),
        table.flag("tls.client.authServer", False),
        table.number("requestTimeoutMs", 5000, 1),
        table.number("retryTimeoutMs", 60_000, 0),
    )


def _secret_key(table: OptionTable) -> str | None:
    """Return the secret key, which may be in a file: options are seen in the list of processes and in Spark's pages."""
    text = table.text("secretKey")
    path = table.text("secretKeyFile")
    if path is None:
        return text
    if text is not None:
        raise OptionError("options secretKey and secretKeyFile are both given: remove one")
    try:
        return read_secret(Path(path))
    except SecretError as error:
        raise OptionError(f"option secretKeyFile: {error}") from None


@dataclass(frozen=True, slots=True)
class Bound:
    """One end of a read: EARLIEST or LATEST for all queues, offsets of single queues, or a time."""

    default: int
    offsets: dict[str, Any] | None = None
    timestamp_ms: int | None = None
    timestamps: dict[str, Any] | None = None


@dataclass(frozen=True, slots=True)
class SourceOptions:
    """What the source `rocketmq` reads, and how."""

    connection: ConnectionOptions
    topics: tuple[str, ...]
    topic_pattern: str | None
    assigned: dict[str, Any] | None
    starting: Bound
    ending: Bound
    max_rows_per_trigger: int | None
    min_rows_per_trigger: int | None
    max_trigger_delay_ms: int
    min_partitions: int
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_properties: bool
    filter: str
    filter_type: str
    row_format: str
    group: str
    commit_offsets: bool
    pull_batch_size: int
    pulls_in_flight: int
    max_rate_per_task: int
    push_down_filters: bool


def _bound(table: OptionTable, side: str, default: int) -> Bound:
    """`side` is "starting" or "ending"."""
    given = [name for name in (f"{side}Offsets", f"{side}Timestamp", f"{side}OffsetsByTimestamp") if table.text(name)]
    if len(given) > 1:
        raise OptionError(f"option {given[1]}: cannot be given together with {given[0]}")
    if not given:
        return Bound(default)
    if given[0].endswith("ByTimestamp"):
        return Bound(default, timestamps=_mapping(table.json(given[0]), given[0]))
    if given[0].endswith("Timestamp"):
        return Bound(default, timestamp_ms=table.number(given[0], 0))
    text = (table.text(given[0]) or "").lower()
    if text in ("earliest", "latest"):
        if side == "ending" and text == "earliest":
            raise OptionError("option endingOffsets: earliest would read nothing; give latest or offsets as JSON")
        return Bound(positions.EARLIEST if text == "earliest" else positions.LATEST)
    if not text.startswith("{"):
        raise OptionError(f"option {given[0]}: {text!r} is neither earliest, latest nor offsets as JSON")
    tree = table.json(given[0])
    positions.from_tree(tree, f"option {given[0]}")
    return Bound(default, offsets=tree)


def _mapping(value: Any, option: str) -> dict[str, Any]:
    if not isinstance(value, dict):
        raise OptionError(f'option {option}: expected {{"topic": ...}} as JSON, found {value!r}')
    return value


def source_options(given: Mapping[str, str], *, streaming: bool) -> SourceOptions:
    """Return the checked options of one read. Raises OptionError."""
    table = OptionTable(given, SOURCE_OPTIONS)
    subscribed = [name for name in ("subscribe", "subscribePattern", "assign") if table.text(name)]
    if len(subscribed) != 1:
        found = " and ".join(subscribed) or "none of them"
        raise OptionError(f"option subscribe: give exactly one of subscribe, subscribePattern, assign (found {found})")
    row_format = table.choice("rowFormat", "rocketmq", ("rocketmq", "kafka"))
    filter_type = table.choice("filterType", TAG, (TAG, SQL92))
    expression = table.text("filter") or SUB_ALL
    try:
        build_subscription("T", expression, filter_type)
    except SubscriptionError as error:
        raise OptionError(f"option filter: {error}") from None
    max_rows = table.optional_number("maxOffsetsPerTrigger", 1)
    min_rows = table.optional_number("minOffsetsPerTrigger", 1)
    if max_rows is not None and min_rows is not None and min_rows > max_rows:
        raise OptionError(f"option minOffsetsPerTrigger: {min_rows} is more than maxOffsetsPerTrigger ({max_rows})")
    if streaming and any(table.text(f"ending{what}") for what in ("Offsets", "Timestamp", "OffsetsByTimestamp")):
        raise OptionError("option endingOffsets: a stream has no end; use it with spark.read, or Trigger.AvailableNow")
    return SourceOptions(
        connection=connection_options(table),
        topics=_names(table.text("subscribe")),
        topic_pattern=table.pattern("subscribePattern"),
        assigned=_assigned(table),
        starting=_bound(table, "starting", positions.LATEST if streaming else positions.EARLIEST),
        ending=_bound(table, "ending", positions.LATEST),
        max_rows_per_trigger=max_rows,
        min_rows_per_trigger=min_rows,
        max_trigger_delay_ms=table.number("maxTriggerDelayMs", 900_000, 0),
        min_partitions=table.number("minPartitions", 1, 1),
        max_records_per_partition=table.optional_number("maxRecordsPerPartition", 1),
        fail_on_data_loss=table.flag("failOnDataLoss", True),
        include_properties=table.flag("includeProperties", row_format == "rocketmq"),
        filter=expression,
        filter_type=filter_type,
        row_format=row_format,
        group=table.text("consumerGroup") or DEFAULT_SOURCE_GROUP,
        commit_offsets=table.flag("commitOffsets", False),
        pull_batch_size=table.number("pullBatchSize", 32, 1),
        pulls_in_flight=table.number("pullsInFlight", 8, 1),
        max_rate_per_task=table.number("maxRatePerTask", 0),
        push_down_filters=table.flag("pushDownFilters", False),
    )


def columns_to_read(table: OptionTable, *, of_store: bool = False) -> dict[str, str]:
    """Return column name -> Spark type for reads without a schema. Raises OptionError."""
    row_format = table.choice("rowFormat", "rocketmq", ("rocketmq", "kafka"))
    text = table.text("columns")
    if text is None:
        includes = table.flag("includeProperties", row_format == "rocketmq")
        return default_columns(row_format, includes, of_store=of_store)
    names = [name.strip() for name in text.split(",")]
    return chosen_columns(list(dict.fromkeys(names)), row_format)


def _names(text: str | None) -> tuple[str, ...]:
    return tuple(sorted({name.strip() for name in (text or "").split(",") if name.strip()}))


def _assigned(table: OptionTable) -> dict[str, Any] | None:
    """{"topic": [queue ids]} (of every broker) or {"topic": {"broker": [queue ids]}}."""
    tree = table.json("assign")
    if tree is None:
        return None
    for topic, queues in _mapping(tree, "assign").items():
        lists = list(queues.values()) if isinstance(queues, dict) else [queues]
        if not lists or not all(isinstance(ids, list) and all(type(id_) is int for id_ in ids) for ids in lists):
            raise OptionError(
                f'option assign: {topic}: expected [queue ids] or {{"broker": [queue ids]}}, not {queues!r}'
            )
    return dict(tree)


@dataclass(frozen=True, slots=True)
class StoreOptions:
    """What the source `rocketmq-store` reads, and how."""

    root: str
    commit_log_paths: tuple[str, ...]
    topics: tuple[str, ...]
    topic_pattern: str | None
    split: str
    log_end: str
    min_partitions: int
    max_records_per_partition: int | None
    fail_on_data_loss: bool
    include_properties: bool
    row_format: str
    broker_name: str | None
    begin_ms: int | None
    end_ms: int | None
    begin_physical: int | None
    end_physical: int | None
    push_down_filters: bool


def store_options(given: Mapping[str, str]) -> StoreOptions:
    """Return the checked options of one read of a store directory. Raises OptionError."""
    table = OptionTable(given, STORE_OPTIONS)
    root = table.text("path")
    if root is None:
        raise OptionError('option path: missing; give the store directory: .load("/data/store")')
    if table.text("subscribe") and table.text("subscribePattern"):
        raise OptionError("option subscribePattern: cannot be given together with subscribe")
    row_format = table.choice("rowFormat", "rocketmq", ("rocketmq", "kafka"))
    root = root.removeprefix("file://").rstrip("/") or "/"
    return StoreOptions(
        root=root,
        commit_log_paths=_names(table.text("commitLogPath")) or (f"{root}/commitlog",),
        topics=_names(table.text("subscribe")),
        topic_pattern=table.pattern("subscribePattern"),
        split=table.choice("split", "segment", ("segment", "queue")),
        log_end=table.choice("logEnd", "readable", ("readable", "recovered")),
        min_partitions=table.number("minPartitions", 1, 1),
        max_records_per_partition=table.optional_number("maxRecordsPerPartition", 1),
        fail_on_data_loss=table.flag("failOnDataLoss", True),
        include_properties=table.flag("includeProperties", row_format == "rocketmq"),
        row_format=row_format,
        broker_name=table.text("brokerName"),
        begin_ms=table.optional_number("startingTimestamp"),
        end_ms=table.optional_number("endingTimestamp"),
        begin_physical=table.optional_number("startingOffset"),
        end_physical=table.optional_number("endingOffset"),
        push_down_filters=table.flag("pushDownFilters", False),
    )


@dataclass(frozen=True, slots=True)
class SinkOptions:
    """Where the sink writes, and with which guarantee."""

    connection: ConnectionOptions
    topic: str | None
    group: str
    retries: int
    batch_bytes: int
    is_idempotent: bool
    write_id: str | None
    max_rate_per_task: int


def sink_options(given: Mapping[str, str]) -> SinkOptions:
    """Return the checked options of one write. Raises OptionError."""
    table = OptionTable(given, SINK_OPTIONS)
    return SinkOptions(
        connection=connection_options(table),
        topic=table.text("topic"),
        group=table.text("producerGroup") or DEFAULT_SINK_GROUP,
        retries=table.number("retries", 3),
        batch_bytes=table.number("batchBytes", 256 * 1024, 1024),
        is_idempotent=table.choice("idempotence", "batch", ("batch", "none")) == "batch",
        write_id=table.text("writeId"),
        max_rate_per_task=table.number("maxRatePerTask", 0),
    )
