"""Keep a table of a topic, as Delta, Iceberg or Parquet. Needs no Spark and no JVM.

Each row is a message: topic, brokerName, queueId, queueOffset, body, tags, keys, properties, bornTimestamp,
storeTimestamp, msgId, and date, the UTC day of the store time. The table is cut by date and topic. The positions up to
which the topic is read are committed with the rows in the table itself, so the job can be killed at any moment and
started again: it neither loses nor repeats a row.

With --value json, avro or protobuf each field of a body is a column instead. The first bodies, or --schema for JSON,
decide the type of a column, and a new field adds one. A message that does not fit goes to the table of dead rows, with
the reason.

With --once the job ends when the table has what was in the topic at the start. Without, it runs until SIGTERM or
Ctrl-C, and commits every --commit-seconds, or when --commit-rows messages wait; a signal ends it after the commit in
hand.

--compact and --retention-days merge small files and remove old days, hourly, or at the end with --once.

Exit codes: 0 done; 2 not done, with one line that says why.
"""

from __future__ import annotations

import argparse
import os
import signal
import sys
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from triomq.pipeline.tables.metrics import Figures, served
from triomq.pipeline.tables.upkeep import Upkeep
from triomq.protocol.extras import install_hint
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError
from triomq.spark.jobs.progress import Progress
from triomq.spark.jobs.session import JobFailed, add_connection_options, connection_options, pairs
from triomq.spark.options import OptionTable, store_options
from triomq.spark.options import connection_options as checked_connection

if TYPE_CHECKING:
    from triomq.pipeline.tables.codecs import Decoder
    from triomq.pipeline.tables.keeper import Keeper
    from triomq.pipeline.tables.shapes import Shape
    from triomq.pipeline.tables.sources import Source
    from triomq.pipeline.tables.target import Target

SUMMARY = "keep a table of a topic: Delta, Iceberg or Parquet"
NEEDS_SPARK = False
FORMATS = ("delta", "iceberg", "parquet")
VALUES = ("raw", "json", "avro", "protobuf")
LOOK_SECONDS = 1.0
_NEEDED = ("fastavro", "pyarrow", "deltalake", "pyiceberg", "sqlalchemy")


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_source_arguments(parser)
    parser.add_argument("--to", required=True, metavar="DIR", help="folder of the table; for delta also a URL")
    parser.add_argument("--format", required=True, choices=FORMATS, help="format of the table")
    add_table_arguments(parser)
    parser.set_defaults(key="", to_topic=None)


def add_source_arguments(parser: argparse.ArgumentParser) -> None:
    """Add what is read."""
    add_connection_options(parser, is_required=False)
    parser.add_argument("--store", metavar="DIR", help="read this store directory instead of asking a broker")
    parser.add_argument("--topic", required=True, help="the topic")


def add_table_arguments(parser: argparse.ArgumentParser) -> None:
    """Add how a table is kept, but for its place and format."""
    parser.add_argument("--once", action="store_true", help="end when the table has what is in the topic now")
    parser.add_argument("--dry-run", action="store_true", help="show what would be read from each queue, and end")
    parser.add_argument("--commit-seconds", type=float, default=60.0, metavar="S", help="time between commits (60)")
    parser.add_argument(
        "--commit-rows", type=int, default=250_000, metavar="N", help="messages in a commit, at most (250000)"
    )
    parser.add_argument(
        "--storage-option",
        action="append",
        default=[],
        metavar="NAME=VALUE",
        help="delta: option of the object store; iceberg: property of a PyIceberg catalog; may be repeated",
    )
    parser.add_argument(
        "--value", choices=VALUES, default="raw", help="what bodies are: their fields are columns (raw)"
    )
    parser.add_argument(
        "--schema", metavar="FILE", help='json: {"column": "type"}; avro: a schema; protobuf: a FileDescriptorSet'
    )
    parser.add_argument("--message", metavar="NAME", help="protobuf: full name of the message")
    parser.add_argument("--dead", metavar="DIR", help="table of the messages that do not fit (DIR of --to with _dead)")
    parser.add_argument("--compact", action="store_true", help="merge small files: hourly, or at the end with --once")
    parser.add_argument(
        "--retention-days", type=int, metavar="N", help="remove the days before the last N, as --compact"
    )
    parser.add_argument(
        "--metrics-port", type=int, default=0, metavar="PORT", help="serve /metrics for Prometheus on 127.0.0.1"
    )
    parser.add_argument("--quiet", action="store_true", help="no progress")


def run(arguments: argparse.Namespace) -> int:
    if arguments.commit_rows < 1 or arguments.commit_seconds <= 0:
        raise JobFailed("--commit-rows and --commit-seconds must be more than 0")
    if arguments.retention_days is not None and arguments.retention_days < 1:
        raise JobFailed("--retention-days must be more than 0")
    if (arguments.store is None) == (arguments.name_server is None):
        raise JobFailed("give either --name-server or --store")
    try:
        with ExitStack() as opened:
            source = _source(arguments, opened)
            source.queues()  # what is wrong here is said before anything is made
            if arguments.to is not None:
                _check_folder(arguments.to)
            if arguments.dry_run:
                _preview(arguments, source)
                return 0
            keeper, unkeyed = _run(arguments, source, opened)
    except ImportError as error:
        if not (error.name or "").startswith(_NEEDED):
            raise
        raise JobFailed(f"{error.name} is not installed: {install_hint('tables')}") from error
    more = f", {keeper.dead_rows:,} dead rows to {_dead_url(arguments)}" if keeper.dead_rows else ""
    more += f", {unkeyed:,} had no key" if unkeyed else ""
    what = "messages compacted into" if arguments.key else "rows committed to"
    sys.stdout.write(f"{keeper.committed:,} {what} {arguments.to_topic or arguments.to}{more}\n")
    return 0


def _source(arguments: argparse.Namespace, opened: ExitStack) -> Source:
    """The topic. Its connections are opened in `opened`."""
    if arguments.store is not None:
        given = store_options({"path": arguments.store, **pairs(arguments.option, "--option")})
        from triomq.pipeline.tables.sources import StoreSource

        return StoreSource(given, arguments.topic)
    table = OptionTable(connection_options(arguments), ())
    options = checked_connection(table)
    from triomq.pipeline.tables.sources import BrokerSource

    cluster = opened.enter_context(Cluster(options))
    return BrokerSource(cluster, arguments.topic, table.flag("failOnDataLoss", True))


def _run(arguments: argparse.Namespace, source: Source, opened: ExitStack) -> tuple[Keeper, int]:
    """Keep the table until the end. Return its keeper, which has counted, and how many messages had no key."""
    from triomq.pipeline.tables.keeper import Keeper
    from triomq.pipeline.tables.keyed import KeyedTarget

    target = _target(arguments, source, opened)
    keyed = KeyedTarget(target, arguments.key) if arguments.key else None
    target = keyed or target
    shape = _shape(arguments, opened)
    keeper = Keeper(source, target, arguments.commit_rows, shape=shape, key=arguments.key)
    keeper.open()
    upkeep = Upkeep([target, *shape.beside()], arguments.compact, arguments.retention_days)
    figures = Figures(arguments.topic)
    opened.enter_context(served(figures, arguments.metrics_port))
    stop = opened.enter_context(_until_signal())
    _keep(keeper, arguments, figures, stop, upkeep.run_if_due)
    if arguments.once and not stop.is_set():
        upkeep.run()
    return keeper, keyed.unkeyed if keyed is not None else 0


def _target(arguments: argparse.Namespace, source: Source, opened: ExitStack) -> Target:
    """The table, or the topic of `compact`. What it needs is opened in `opened`."""
    if arguments.to_topic is None:
        return opened.enter_context(_opened(arguments))
    from triomq.pipeline.compacting.topic_target import TopicTarget
    from triomq.pipeline.tables.sources import BrokerSource

    assert isinstance(source, BrokerSource), "compact has refused --store"
    there = source.cluster
    if arguments.to_name_server is not None:
        options = {**connection_options(arguments), "nameServer": arguments.to_name_server}
        there = opened.enter_context(Cluster(checked_connection(OptionTable(options, ()))))
    return TopicTarget(source.cluster, replace(source.about(), key=arguments.key), there, arguments.to_topic)


def _shape(arguments: argparse.Namespace, opened: ExitStack) -> Shape:
    """What the rows are. The table of dead rows is opened in `opened`."""
    from triomq.pipeline.tables.shapes import RawRows, ValueRows

    if (arguments.message is not None) != (arguments.value == "protobuf"):
        raise JobFailed("--value protobuf and --message need each other")
    if arguments.value == "raw":
        if arguments.schema or arguments.dead:
            raise JobFailed("--schema and --dead need --value")
        return RawRows()
    decode, given = _decoder(arguments)
    return ValueRows(decode, given, opened.enter_context(_opened(arguments, of_dead=True)))


def _decoder(arguments: argparse.Namespace) -> tuple[Decoder, dict[str, str]]:
    """Return what makes fields of bodies, and the columns that are given."""
    if arguments.value == "json":
        from triomq.pipeline.tables.values import json_object, schema_file

        return json_object, schema_file(arguments.schema) if arguments.schema else {}
    if not arguments.schema:
        raise JobFailed(f"--value {arguments.value} needs --schema FILE")
    from triomq.pipeline.tables.codecs import avro, protobuf

    if arguments.value == "avro":
        return avro(arguments.schema), {}
    return protobuf(arguments.schema, arguments.message), {}


def _dead_url(arguments: argparse.Namespace) -> str:
    """Return where dead rows go. Iceberg has both tables in one catalog."""
    if arguments.dead or arguments.format == "iceberg":
        return str(arguments.dead or arguments.to)
    return f"{arguments.to.rstrip('/')}_dead"


@contextmanager
def _opened(arguments: argparse.Namespace, *, of_dead: bool = False) -> Iterator[Target]:
    """The table, whose libraries are loaded only for its format."""
    url = _dead_url(arguments) if of_dead else arguments.to
    storage = pairs(arguments.storage_option, "--storage-option")
    target: Target
    if arguments.format == "delta":
        from triomq.pipeline.tables.delta import DeltaTarget

        target = DeltaTarget(url, storage)
    elif arguments.format == "iceberg":
        from triomq.pipeline.tables.iceberg import IcebergTarget

        target = IcebergTarget(url, arguments.topic + "_dead" * of_dead, storage)
    else:
        from triomq.pipeline.tables.parquet import ParquetTarget

        target = ParquetTarget(url)
    try:
        yield target
    finally:
        target.close()


def _check_folder(url: str) -> None:
    """Raise JobFailed for a folder that cannot be written, before anything is read."""
    if "://" in url and not url.startswith("file://"):
        return
    local = Path(url.removeprefix("file://")).absolute()
    present = next(each for each in (local, *local.parents) if each.exists())
    if not present.is_dir():
        raise JobFailed(f"--to: {present} is not a directory")
    if not os.access(present, os.W_OK | os.X_OK):
        raise JobFailed(f"--to: {present} cannot be written by this account")


@contextmanager
def _until_signal() -> Iterator[threading.Event]:
    """An event that SIGTERM and SIGINT set, instead of ending the process."""
    stop = threading.Event()
    previous = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    try:
        for number in previous:
            signal.signal(number, lambda _number, _frame: stop.set())
        yield stop
    finally:
        for number, handler in previous.items():
            signal.signal(number, handler)


def _keep(
    keeper: Keeper,
    arguments: argparse.Namespace,
    figures: Figures,
    stop: threading.Event,
    between: Callable[[], object],
) -> None:
    """Commit until the end of the topic, or until a signal. `between` is called between commits when nothing is due."""
    progress = Progress(arguments.job, unit=" rows", quiet=arguments.quiet)
    ends = keeper.ends()
    if arguments.once:
        total = sum(end - begin for begin, end in keeper.ranges(ends).values())
        progress.set(0, total=total)
    due_at = time.monotonic()
    said = ""
    while not stop.is_set():
        rows, is_due = 0, False
        try:
            if not arguments.once:
                ends = keeper.ends()
            waiting = sum(end - begin for begin, end in keeper.ranges(ends).values())
            is_due = arguments.once or waiting >= arguments.commit_rows or time.monotonic() >= due_at
            if is_due:
                rows = keeper.commit(ends)
                due_at = time.monotonic() + arguments.commit_seconds
        except BrokerError as error:
            if arguments.once:
                raise
            if str(error) != said:
                said = str(error)
                sys.stderr.write(f"mqpipeline {arguments.job}: {said}; trying again\n")
            figures.failures += 1
            stop.wait(LOOK_SECONDS)
            continue
        figures.follow(keeper, waiting - rows)
        if is_due and waiting:
            progress.set(keeper.committed, f"{waiting - rows:,} waiting")
        elif arguments.once:
            break
        else:
            between()
            stop.wait(min(LOOK_SECONDS, arguments.commit_seconds))
    progress.finish()


def _preview(arguments: argparse.Namespace, source: Source) -> None:
    """Print what a run would read from each queue. Makes nothing."""
    from triomq.pipeline.tables.keeper import Keeper
    from triomq.pipeline.tables.sources import everything

    place = str(arguments.to).removeprefix("file://")
    if arguments.to_topic is not None or "://" in place or Path(place).exists():
        with ExitStack() as opened:
            target = _target(arguments, source, opened)
            shape = _shape(arguments, opened)
            lines = Keeper(source, target, arguments.commit_rows, shape=shape, key=arguments.key).preview()
    else:
        lines = everything(source)
    total = 0
    for queue, begin, end in lines:
        total += end - begin
        sys.stdout.write(f"{queue.broker_name} queue {queue.queue_id}: {end - begin:,} rows ({begin} to {end})\n")
    sys.stdout.write(f"{total:,} rows would be read\n")
