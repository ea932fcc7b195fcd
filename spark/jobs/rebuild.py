"""Rebuild consume queues and index of a store directory from its commit log.

The job walks the log in parallel; then one task writes each consume queue and another one the index. The files equal
those that a broker writes when it dispatches the same log: the same entries at the same positions. Only the names of
index files differ, which are times of creation. With enableConsumeQueueExt the tags codes are written in place of ext
addresses.

The job writes to --to, or with --in-place into the store itself, and then keeps the old directories as consumequeue.old
and index.old. In that case no broker may be running on the directory.
"""

from __future__ import annotations

import argparse
import fcntl
import shutil
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Final

from triomq.spark.errors import StoreDamaged
from triomq.spark.jobs.pieces import give_batches, run_pieces
from triomq.spark.jobs.progress import watching
from triomq.spark.jobs.session import JobFailed, check_folder, open_session, parallelism
from triomq.spark.jobs.store_tables import StoreFacts, log_rows
from triomq.spark.jobs.store_walk import SegmentWalk
from triomq.store.config import StoreSettings
from triomq.store.delay import DelayLevels
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.queues.consume_queue import ConsumeQueue
from triomq.store.queues.index import Index
from triomq.store.queues.index_file import IndexKeys

SUMMARY = "rebuild consume queues and index from the commit log"
OPEN_FILES: Final = 256
WRITE_EVERY: Final = 50_000
DEFAULT_SLOTS: Final = 5_000_000
DEFAULT_ENTRIES: Final = 20_000_000


def add_arguments(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("store", help="the store directory (storePathRootDir)")
    parser.add_argument("--commit-log", help="storePathCommitLog when it is not STORE/commitlog")
    target = parser.add_mutually_exclusive_group(required=True)
    target.add_argument("--to", metavar="DIR", help="write consumequeue/ and index/ there, where neither exists")
    target.add_argument("--in-place", action="store_true", help="write into the store; keep the old ones as *.old")
    parser.add_argument("--topics", help="only these topics, separated by commas (without the index)")
    parser.add_argument("--no-index", action="store_true", help="do not rebuild the index")


def run(arguments: argparse.Namespace) -> int:
    facts = StoreFacts.of(arguments.store, arguments.commit_log)
    target = facts.root + "/rebuilt" if arguments.in_place else arguments.to.rstrip("/")
    for name in ("consumequeue", "index"):
        if (Path(target) / name).exists():
            raise JobFailed(f"{target}/{name} is already there; give a new directory, or remove it")
    check_folder(arguments, target, "--to")
    lock = _locked(facts.root) if arguments.in_place else None
    spark = open_session("rebuild", arguments)
    topics = [topic for topic in (arguments.topics or "").split(",") if topic]
    with watching(spark, "rebuild", arguments.quiet):
        counts = rebuild(spark, facts, target, topics, with_index=not arguments.no_index and not topics)
    if arguments.in_place:
        _swap(facts.root, target, ["consumequeue", *([] if arguments.no_index or topics else ["index"])])
        if lock is not None:
            lock.close()
    where = facts.root if arguments.in_place else target
    sys.stdout.write(f"{counts['entries']:,} queue entries, {counts['keys']:,} index entries written to {where}\n")
    return 0


def _locked(root: str) -> Any:
    """Hold the lock file of the store. Raises JobFailed while a broker holds it."""
    handle = (Path(root) / "lock").open("ab")
    try:
        fcntl.lockf(handle, fcntl.LOCK_EX | fcntl.LOCK_NB, 1)
    except OSError:
        handle.close()
        raise JobFailed(f"{root} is in use by a broker; stop it first, or rebuild elsewhere with --to") from None
    return handle


def _swap(root: str, made: str, names: list[str]) -> None:
    for name in names:
        old, new = Path(root) / name, Path(made) / name
        if not new.exists():
            continue
        if old.exists():
            kept = Path(root) / f"{name}.old"
            if kept.exists():
                shutil.rmtree(kept)
            old.rename(kept)
        new.rename(old)
    shutil.rmtree(made, ignore_errors=True)


def rebuild(spark: Any, facts: StoreFacts, target: str, topics: list[str], *, with_index: bool) -> dict[str, int]:
    """Write everything below `target`. Return the numbers of entries."""
    from pyspark.sql import functions as F

    records = log_rows(spark, facts).where("row = 'record' and (sysFlag & 4) = 0")
    if topics:
        records = records.where(F.col("topic").isin(topics))
    entries = records.select("topic", "queueId", "queueOffset", "physicalOffset", "size", "tagsCode").persist()
    count = entries.count()
    partitions = parallelism(spark) * 2
    ordered = entries.repartition(partitions, "topic", "queueId").sortWithinPartitions(
        "topic", "queueId", "physicalOffset"
    )
    give_batches(ordered, write_queues, (target, facts.queue_file_bytes))
    entries.unpersist()
    keys = 0
    if with_index:
        rows = run_pieces(spark, write_index, [(facts, target)], "entries bigint").collect()
        keys = rows[0]["entries"]
    return {"entries": count, "keys": keys}


def write_queues(place: tuple[str, int], batches: Iterator[Any]) -> None:
    """Write the consume queue files of a partition, whose rows are sorted by queue and physical offset."""
    target, file_bytes = place
    files = Files()
    pool = OpenFiles(files, OPEN_FILES)
    queue: ConsumeQueue | None = None
    new_in: set[str] = set()
    for batch in batches:
        for row in zip(*[column.to_pylist() for column in batch.columns], strict=True):
            topic, queue_id, queue_offset, physical_offset, size, tags_code = row
            if queue is None or queue.topic != topic or queue.queue_id != queue_id:
                if queue is not None:
                    queue.write(new_in)
                directory = f"{target}/consumequeue/{topic}/{queue_id}"
                files.make_directories(directory)
                queue = ConsumeQueue(pool, directory, file_bytes, topic, queue_id)
            _add(queue, queue_offset, physical_offset, size, tags_code)
            if queue.buffered_count >= WRITE_EVERY:
                queue.write(new_in)
    if queue is not None:
        queue.write(new_in)
    pool.close_all()


def _add(queue: ConsumeQueue, queue_offset: int, physical_offset: int, size: int, tags_code: int) -> None:
    """Add an entry as a broker's dispatch does: fill a gap, skip an offset that is already taken."""
    expected = queue.end + queue.buffered_count
    if queue_offset < expected and expected > 0:
        return
    if queue_offset > expected:
        queue.fill(queue_offset)
    queue.add(physical_offset, size, tags_code)


def write_index(piece: tuple[StoreFacts, str]) -> Iterator[tuple[int]]:
    """Write the index files from one ordered walk through the whole log, and yield the number of entries."""
    facts, target = piece
    files = Files()
    slots = facts.hash_slots or DEFAULT_SLOTS
    limit = facts.index_entries or DEFAULT_ENTRIES
    index = Index(
        OpenFiles(files, OPEN_FILES), files, Layout(StoreSettings(store_path_root_dir=target)), slots, limit, True
    )
    count = 0
    delays = DelayLevels(facts.delay_levels)
    found = facts.segments
    for segment in found:
        walk = SegmentWalk(segment, delays, is_last=segment is found[-1])
        messages: list[IndexKeys] = []
        for record in walk.records():
            key_count = len(record.key_hashes)
            if key_count:
                place = record.place
                keys = record.topic, record.uniq_key, record.keys, place.physical_offset, place.store_timestamp
                messages.append(keys)
                count += key_count
                if len(messages) >= WRITE_EVERY:
                    index.add(messages)
                    messages = []
        index.add(messages)
        if any(finding.kind == "no record" for finding in walk.findings):
            raise StoreDamaged(
                f"{segment.path}: {walk.findings[0].place}: {walk.findings[0].text}; run the audit first"
            )
    index.write_out()
    index.close()
    yield (count,)
