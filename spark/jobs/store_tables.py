"""A store directory as Spark tables: records, queue entries, index entries, findings, segments. All files are walked in
parallel, with one task per file or group of queues."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Final

from triomq.protocol.bodies import fastjson
from triomq.protocol.errors import BodyError
from triomq.protocol.java_properties import parse as parse_java_properties
from triomq.spark.errors import OptionError
from triomq.spark.jobs.pieces import run_pieces
from triomq.spark.jobs.session import parallelism
from triomq.spark.jobs.store_walk import Finding, IndexEntry, QueueEntry, SegmentWalk, index_entries, queue_entries
from triomq.spark.store_files import Segment, queue_directories, segments, used_segments
from triomq.store.config import StoreSettings
from triomq.store.delay import DelayLevels

TASKS_PER_CORE: Final = 3
FINDING: Final = "area string, kind string, place string, text string"
RECORD: Final = (
    "topic string, queueId int, queueOffset bigint, physicalOffset bigint, size int, tagsCode bigint, sysFlag int, "
    "storeMs bigint"
)
ENTRY: Final = "topic string, queueId int, queueOffset bigint, physicalOffset bigint, size int, tagsCode bigint"
INDEX_ENTRY: Final = "file string, keyHash int, physicalOffset bigint, isReachable boolean"
SEGMENT: Final = "start bigint, sizeBytes bigint, usedBytes bigint, records bigint, firstMs bigint, lastMs bigint"


@dataclass(frozen=True, slots=True)
class StoreFacts:
    """The settings of a store directory: from its broker.conf if there is one, else RocketMQ's defaults."""

    root: str
    commit_logs: tuple[str, ...]
    delay_levels: str
    hash_slots: int | None
    index_entries: int | None
    queue_file_bytes: int
    topics: frozenset[str]
    configured_topics: frozenset[str]
    indexes: bool

    @classmethod
    def of(cls, root: str, commit_log: str | None = None) -> StoreFacts:
        """Raises OptionError when there is no commit log."""
        root = root.rstrip("/") or "/"
        settings = {}
        for path in (Path(root) / "broker.conf", Path(root).parent / "broker.conf"):
            if path.is_file():
                settings = parse_java_properties(path.read_text("utf-8", "replace"))
                break
        logs = tuple(part.strip() for part in (commit_log or f"{root}/commitlog").split(",") if part.strip())
        if not used_segments(segments(logs)):
            raise OptionError(f"no commit log files in {', '.join(logs)}")
        defaults = StoreSettings()
        slots = settings.get("maxHashSlotNum")
        limit = settings.get("maxIndexNum")
        size = int(settings.get("mappedFileSizeConsumeQueue") or _queue_file_bytes(root) or 6_000_000)
        return cls(
            root,
            logs,
            settings.get("messageDelayLevel", defaults.message_delay_level),
            int(slots) if slots else None,
            int(limit) if limit else None,
            -(-size // 20) * 20,
            frozenset(topic for topic, _, _ in queue_directories(root)),
            _configured_topics(root),
            settings.get("messageIndexEnable", "true") == "true",
        )

    @property
    def segments(self) -> list[Segment]:
        return used_segments(segments(self.commit_logs))

    @property
    def all_segments(self) -> list[Segment]:
        """All segments, including the empty ones at the end."""
        return segments(self.commit_logs)

    @property
    def index_files(self) -> list[str]:
        directory = Path(self.root) / "index"
        names = [path for path in directory.iterdir() if path.name.isdigit()] if directory.is_dir() else []
        return [str(path) for path in sorted(names)]


def _configured_topics(root: str) -> frozenset[str]:
    """Return the topics of config/topics.json, or of its backup."""
    for name in ("topics.json", "topics.json.bak"):
        path = Path(root) / "config" / name
        try:
            table = fastjson.loads(path.read_bytes()).get("topicConfigTable") or {}
        except (OSError, ValueError, AttributeError, BodyError):
            continue
        return frozenset(table)
    return frozenset()


def _queue_file_bytes(root: str) -> int | None:
    for _, _, directory in queue_directories(root):
        files = segments((directory,))
        if files:
            return files[0].size_bytes
    return None


# One walk yields records (or entries) and findings; both become rows of one table.
LOG_ROWS: Final = f"row string, {RECORD}, keyHash int, {FINDING}, {SEGMENT}"
QUEUE_ROWS: Final = f"row string, {ENTRY}, {FINDING}"
INDEX_ROWS: Final = f"row string, {INDEX_ENTRY}, {FINDING}"
_NO_RECORD = (None,) * 8
_NO_ENTRY = (None,) * len(QueueEntry._fields)
_NO_INDEX_ENTRY = (None,) * len(IndexEntry._fields)
_NO_FINDING = (None,) * len(Finding._fields)
_NO_SEGMENT = (None,) * 6


def log_rows(spark: Any, facts: StoreFacts) -> Any:
    """Return rows of kind `record`, `key` (one per index entry of a record), `finding` and `segment` of the whole
    log."""
    found = facts.segments
    pieces = [(segment, facts.delay_levels, segment is found[-1]) for segment in found]
    return run_pieces(spark, _walk_segment, pieces, LOG_ROWS)


def _walk_segment(piece: tuple[Segment, str, bool]) -> Iterator[tuple[Any, ...]]:
    segment, delay_levels, is_last = piece
    walk = SegmentWalk(segment, DelayLevels(delay_levels), is_last=is_last)
    count = 0
    first_ms = last_ms = None
    for record in walk.records():
        count += 1
        last_ms = record.store_timestamp
        first_ms = last_ms if first_ms is None else first_ms
        yield ("record", *record[:8], None, *_NO_FINDING, *_NO_SEGMENT)
        for code in set(record.key_hashes):
            yield ("key", *_NO_RECORD[:3], record.physical_offset, *_NO_RECORD[4:], code, *_NO_FINDING, *_NO_SEGMENT)
    for finding in walk.findings:
        yield ("finding", *_NO_RECORD, None, *finding, *_NO_SEGMENT)
    summary = (segment.start, segment.size_bytes, walk.end, count, first_ms, last_ms)
    yield ("segment", *_NO_RECORD, None, *_NO_FINDING, *summary)


def queue_rows(spark: Any, facts: StoreFacts) -> Any:
    """Return rows of kind `entry` and `finding` of all consume queues. A broker may have thousands of small ones, so
    they are distributed over a few tasks per core."""
    directories = list(queue_directories(facts.root))
    count = min(len(directories), TASKS_PER_CORE * parallelism(spark))
    return run_pieces(spark, _walk_queues, [directories[at::count] for at in range(count)], QUEUE_ROWS)


def _walk_queues(piece: list[tuple[str, int, str]]) -> Iterator[tuple[Any, ...]]:
    findings: list[Finding] = []
    for directory in piece:
        for entry in queue_entries(*directory, findings):
            yield ("entry", *entry, *_NO_FINDING)
    for finding in findings:
        yield ("finding", *_NO_ENTRY, *finding)


def index_rows(spark: Any, facts: StoreFacts) -> Any:
    """Return rows of kind `entry` and `finding` of all index files."""
    pieces = [(path, facts.hash_slots) for path in facts.index_files]
    return run_pieces(spark, _walk_index, pieces, INDEX_ROWS)


def _walk_index(piece: tuple[str, int | None]) -> Iterator[tuple[Any, ...]]:
    findings: list[Finding] = []
    for entry in index_entries(*piece, findings):
        yield ("entry", *entry, *_NO_FINDING)
    for finding in findings:
        yield ("finding", *_NO_INDEX_ENTRY, *finding)
