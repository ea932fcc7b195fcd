"""Audit a store directory: check every file, and the files against each other.

The job walks the whole store in parallel and compares its parts:

  log      whole records, magic, lengths, body CRC, own offset, store times in order
  queues   each entry points to a record of that queue, size and tags code; none missing, no duplicates, no gaps
  index    header; chains: every entry is reachable from its slot and points to a record with that key; none missing

The directory is only read, and a running broker may use it; what it is writing at the moment may then show as missing.
The job prints a table, and writes a page with plots (--html) and all findings (--json). The exit code is 1 when
something is wrong.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

from triomq.protocol.system_topics import SCHEDULE_TOPIC
from triomq.spark.jobs import report
from triomq.spark.jobs.progress import watching
from triomq.spark.jobs.session import open_session
from triomq.spark.jobs.store_tables import StoreFacts, index_rows, log_rows, queue_rows
from triomq.spark.jobs.store_walk import EXT_ADDRESS_MAX

SUMMARY = "check a whole store directory"
NOTES = frozenset({"torn tail", "deleted topic"})
"""Kinds that are reported and are no damage: a killed broker leaves the first."""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", help="the store directory (storePathRootDir)")
    parser.add_argument("--commit-log", help="storePathCommitLog when it is not STORE/commitlog")
    parser.add_argument("--html", metavar="FILE", help="write a page with tables and plots")
    parser.add_argument("--json", metavar="FILE", help="write findings and counts as JSON")
    parser.add_argument("--show", type=int, default=10, metavar="N", help="findings printed for each kind (default 10)")
    parser.add_argument(
        "--keep", type=int, default=1000, metavar="N", help="findings kept for each kind (default 1000)"
    )


def run(arguments: argparse.Namespace) -> int:
    facts = StoreFacts.of(arguments.store, arguments.commit_log)
    spark = open_session("audit", arguments)
    with watching(spark, "audit", arguments.quiet):
        result = audit(spark, facts, arguments.keep)
    sys.stdout.write(report.as_text(result, arguments.show))
    if arguments.html:
        Path(arguments.html).write_text(report.as_html(result), "utf-8")
    if arguments.json:
        Path(arguments.json).write_text(json.dumps(result, indent=1), "utf-8")
    return 0 if result["is_sound"] else 1


def audit(spark: Any, facts: StoreFacts, keep: int = 1000) -> dict[str, Any]:
    """Return all results as plain values: counts, findings by kind (at most `keep` each), segments, topics."""
    log = log_rows(spark, facts).persist()
    queues = queue_rows(spark, facts).persist()
    index = index_rows(spark, facts).persist()
    try:
        records = log.where("row = 'record'")
        entries = queues.where("row = 'entry'")
        index_entries = index.where("row = 'entry'")
        tables = [
            table.where("row = 'finding'").select("area", "kind", "place", "text") for table in (log, queues, index)
        ]
        has_index = bool(facts.index_files)
        tables += [*_queue_findings(records, entries, facts), *_index_findings(log, index_entries, has_index)]
        findings = _file_findings(facts, has_keys=not log.where("row = 'key'").isEmpty()) + _collect(tables, keep)
        segments = (
            log.where("row = 'segment'")
            .select("start", "sizeBytes", "usedBytes", "records", "firstMs", "lastMs")
            .orderBy("start")
            .collect()
        )
        topics = records.groupBy("topic").count().orderBy("topic").collect()
        damage = sum(item["count"] for item in findings if item["kind"] not in NOTES)
        return {
            "store": facts.root,
            "is_sound": damage == 0,
            "counts": {
                "segments": len(segments),
                "records": sum(row["records"] for row in segments),
                "bytes": sum(row["usedBytes"] for row in segments),
                "queue entries": entries.count(),
                "index entries": index_entries.count(),
                "findings": sum(item["count"] for item in findings),
                "damage": damage,
            },
            "findings": findings,
            "segments": [row.asDict() for row in segments],
            "topics": [{"topic": row["topic"], "records": row["count"]} for row in topics],
        }
    finally:
        for table in (log, queues, index):
            table.unpersist()


def _file_findings(facts: StoreFacts, *, has_keys: bool) -> list[dict[str, Any]]:
    """Return the findings in names and sizes of files."""
    found = []
    files = facts.all_segments
    for before, after in pairwise(files):
        if before.size_bytes != after.size_bytes:
            text = f"{after.size_bytes} bytes, its predecessor has {before.size_bytes}; a broker refuses to start"
            found.append(("log", "file size", after.path, text))
        if before.start + files[0].size_bytes != after.start:
            text = f"no file between the offsets {before.start + files[0].size_bytes} and {after.start}"
            found.append(("log", "missing file", after.path, text))
    if has_keys and facts.indexes and not facts.index_files:
        found.append(("index", "no files", f"{facts.root}/index", "there is no index file"))
    return [
        {"area": area, "kind": kind, "count": 1, "examples": [{"place": place, "text": text}]}
        for area, kind, place, text in found
    ]


def _collect(tables: list[Any], keep: int) -> list[dict[str, Any]]:
    """Return the findings of all tables by area and kind, with at most `keep` examples each."""
    from functools import reduce

    from pyspark.sql import Window
    from pyspark.sql import functions as F

    table = reduce(lambda one, other: one.unionAll(other), tables).persist()
    try:
        counts = table.groupBy("area", "kind").count().collect()
        order = Window.partitionBy("area", "kind").orderBy("place", "text")
        kept = table.withColumn("number", F.row_number().over(order)).where(f"number <= {keep}")
        examples: dict[tuple[str, str], list[dict[str, str]]] = {}
        for row in kept.orderBy("area", "kind", "number").collect():
            examples.setdefault((row["area"], row["kind"]), []).append({"place": row["place"], "text": row["text"]})
    finally:
        table.unpersist()
    return [
        {"area": area, "kind": kind, "count": count, "examples": examples[area, kind]}
        for area, kind, count in sorted((row["area"], row["kind"], row["count"]) for row in counts)
    ]


def _findings(table: Any, area: str, place: str, checks: Sequence[tuple[str, str, str]]) -> Any:
    """Return the findings in a table's rows: for each row those `checks` (condition, kind, text) that hold. Condition
    and text are SQL expressions over the table's columns."""
    cases = ", ".join(
        f"case when {condition} then named_struct('kind', '{kind}', 'place', {place}, 'text', {text}) end"
        for condition, kind, text in checks
    )
    found = table.selectExpr(f"explode(filter(array({cases}), item -> item is not null)) as item")
    return found.selectExpr(f"'{area}' as area", "item.kind as kind", "item.place as place", "item.text as text")


def _queue_findings(records: Any, entries: Any, facts: StoreFacts) -> list[Any]:
    """Return the findings that need log and queues together."""
    from pyspark.sql import functions as F

    queued = records.where("(sysFlag & 4) = 0")  # prepared and rolled back messages are in no queue
    first, last = records.agg(F.min("physicalOffset"), F.max("physicalOffset")).first()
    first, last = first or 0, last or 0
    has_queues = F.col("topic").isin(sorted(facts.topics))
    is_live = F.col("topic").isin(sorted(facts.configured_topics))
    missing = queued.where(has_queues).join(entries, ["topic", "queueId", "physicalOffset"], "left_anti")
    lost = queued.where(~has_queues).groupBy("topic").count().withColumn("isLive", is_live)
    theirs = records.selectExpr(
        "physicalOffset",
        "topic as rTopic",
        "queueId as rQueueId",
        "queueOffset as rQueueOffset",
        "size as rSize",
        "tagsCode as rTagsCode",
    )
    both = entries.where(f"physicalOffset >= {first}").join(theirs, ["physicalOffset"], "left")
    place = "concat(topic, '/', queueId)"
    at = "concat('queue offset ', queueOffset"
    leads = f"{at}, ' points to physical offset ', physicalOffset"
    is_same = "topic = rTopic and queueId = rQueueId"
    has_plain_code = f"tagsCode > {EXT_ADDRESS_MAX} and topic <> '{SCHEDULE_TOPIC}'"
    no_entry = "concat('no entry for the record at physical offset ', physicalOffset)"
    records_of = "concat(count, ' records of a topic that has no consume queues')"
    checks = [
        (f"rTopic is null and physicalOffset <= {last}", "dangling", f"{leads}, ', where no record begins')"),
        (f"rTopic is null and physicalOffset > {last}", "beyond log", f"{leads}, ', beyond the end of the log')"),
        (
            f"not ({is_same}) and topic not like '\\%LMQ\\%%'",
            "wrong queue",
            f"{at}, ' points to a record of ', rTopic, '/', rQueueId)",
        ),
        (f"{is_same} and size <> rSize", "wrong size", f"{at}, ' says ', size, ' bytes, not ', rSize)"),
        (
            f"{is_same} and {has_plain_code} and tagsCode <> rTagsCode",
            "tags code",
            f"{at}, ' has ', tagsCode, ', not ', rTagsCode)",
        ),
        (f"{is_same} and queueOffset <> rQueueOffset", "gap", f"{at}, ' points to the record of ', rQueueOffset)"),
    ]
    return [
        _findings(missing, "queue", place, [("true", "entry missing", no_entry)]),
        _findings(
            lost,
            "queue",
            "topic",
            [("isLive", "queue missing", records_of), ("not isLive", "deleted topic", records_of)],
        ),
        _findings(both, "queue", place, checks),
    ]


def _index_findings(log: Any, entries: Any, has_index: bool) -> list[Any]:
    from pyspark.sql import functions as F

    if not has_index:
        return []
    keys = log.where("row = 'key'").select("physicalOffset", "keyHash")
    first = log.where("row = 'record'").agg(F.min("physicalOffset")).first()[0] or 0
    bounds = entries.agg(F.min("physicalOffset"), F.max("physicalOffset")).first()
    low, high = (bounds[0] or 0), (bounds[1] if bounds[1] is not None else -1)
    dangling = entries.where(f"physicalOffset >= {first}").join(keys, ["physicalOffset", "keyHash"], "left_anti")
    unindexed = keys.join(entries, ["physicalOffset", "keyHash"], "left_anti")
    place = "concat('physical offset ', physicalOffset)"
    no_record = f"concat('an entry points to ', {place}, ', where no record has that key')"
    no_chain = f"concat('no chain leads to ', {place})"
    of_key = "concat('key hash ', keyHash"
    return [
        _findings(entries, "index", "file", [("not isReachable", "unreachable", no_chain)]),
        _findings(dangling, "index", "file", [("true", "dangling", no_record)]),
        _findings(
            unindexed,
            "index",
            place,
            [
                (f"physicalOffset between {low} and {high}", "key missing", f"{of_key}, ' is in no index file')"),
                (f"physicalOffset > {high}", "behind", f"{of_key}, ': the index ends before')"),
            ],
        ),
    ]
