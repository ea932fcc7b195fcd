"""Archive topics, or the old segments of a store directory, to Parquet.

    DIR/topic=<topic>/date=<yyyy-mm-dd>/slice-<number>-....parquet     all columns of the source
    DIR/_manifest/<number>.json                                        what each slice holds, and where it ended

date is the UTC day of the store time. The job works in slices; a slice counts once its manifest file exists. Run again
with the same folder, the job removes what an interrupted run left behind and continues where the last slice ended, so
each message is archived once. From topics (-n, --topics) a slice is a range of offsets; from a store directory
(--store) it is one segment. --older-than-hours selects segments whose newest message is that old, which retention is
about to delete; the segment that is being written is never archived. Without --topics the job then notes in the store
directory (config/archived.json) which whole segments are archived; a broker with archiveBeforeDelete=true deletes no
others.
"""

from __future__ import annotations

import argparse
import json
import sys
import time
from itertools import pairwise, takewhile
from pathlib import Path
from typing import Any, Final

from triomq.spark import positions
from triomq.spark.cluster import Cluster
from triomq.spark.errors import OptionError
from triomq.spark.jobs.coverage import ArchiveMark, checksum, is_of
from triomq.spark.jobs.folders import Folder, open_folder
from triomq.spark.jobs.progress import Progress
from triomq.spark.jobs.session import (
    JobFailed,
    add_connection_options,
    check_folder,
    check_topics,
    connection_options,
    open_session,
)
from triomq.spark.options import SourceOptions, source_options
from triomq.spark.store_files import (
    MappedSegment,
    Segment,
    good_end,
    next_record,
    segments,
    store_timestamp,
    used_segments,
)

SUMMARY = "write topics or expired segments to Parquet"
MANIFEST: Final = "_manifest"
STAGING: Final = "_staging"


def add_arguments(parser: argparse.ArgumentParser) -> None:
    add_connection_options(parser)
    for action in parser._actions:
        if action.dest == "name_server":
            action.required = False
    parser.add_argument(
        "--topics", help="topics, separated by commas, or a regular expression between slashes: /Order.*/"
    )
    parser.add_argument("--store", help="archive this store directory instead of asking a broker")
    parser.add_argument(
        "--commit-log",
        metavar="DIRS",
        help="with --store: storePathCommitLog (and readOnlyCommitLogStorePaths) "
        "when it is not STORE/commitlog; several separated by commas",
    )
    parser.add_argument("--older-than-hours", type=float, default=0.0, metavar="H", help="with --store: only segments")
    parser.add_argument("--no-mark", action="store_true", help="with --store: write no mark for the broker")
    parser.add_argument("--to", required=True, metavar="DIR", help="output folder")
    parser.add_argument("--slice-rows", type=int, default=1_000_000, metavar="N", help="messages for each slice")


def run(arguments: argparse.Namespace) -> int:
    if (arguments.store is None) == (arguments.name_server is None):
        raise JobFailed("give either --name-server and --topics, or --store")
    if arguments.store is None and not arguments.topics:
        raise JobFailed("--topics is missing")
    if arguments.slice_rows < 1:
        raise JobFailed("--slice-rows must be at least 1")
    check_folder(arguments, arguments.to, "--to")
    if arguments.store is None:
        checked = _source_options(arguments)
        with Cluster(checked.connection) as cluster:
            named = [] if _is_pattern(arguments.topics) else arguments.topics.split(",")
            check_topics(cluster, [name.strip() for name in named if name.strip()], "--topics")
    else:
        _log_directories(arguments)
    spark = open_session("archive", arguments)
    archive = Archive(open_folder(spark, arguments.to), spark)
    archive.clean()
    if arguments.store is not None:
        rows, is_well = archive_store(archive, arguments)
    else:
        rows = archive_topics(archive, arguments)
        is_well = True
    sys.stdout.write(f"{rows:,} messages archived to {arguments.to}, {archive.total_rows():,} in all\n")
    return 0 if is_well else 1


class Archive:
    """An output folder and the manifest of its finished slices. Only `add` and `clean` change the folder."""

    def __init__(self, folder: Folder, spark: Any) -> None:
        self._folder = folder
        self._spark = spark
        self.slices: list[dict[str, Any]] = [
            json.loads(folder.read(f"{MANIFEST}/{name}"))
            for name in folder.names(MANIFEST)
            if name.endswith(".json") and not name.startswith(".")
        ]

    def total_rows(self) -> int:
        return sum(entry["rows"] for entry in self.slices)

    def clean(self) -> None:
        """Remove what an interrupted run left behind: staged files, and files of slices without a manifest."""
        self._folder.remove(STAGING)
        known = {path for entry in self.slices for path, _ in entry["files"]}
        next_prefix = f"slice-{len(self.slices):08d}-"
        for topic in self._folder.names():
            if topic.startswith("topic="):
                for path, _ in self._folder.files_below(topic):
                    if path.rpartition("/")[2].startswith(next_prefix) and f"{topic}/{path}" not in known:
                        self._folder.remove(f"{topic}/{path}")

    def add(self, table: Any, about: dict[str, Any]) -> int:
        """Write one slice, move it into place, and note it in the manifest with `about`. Return its number of rows."""
        from pyspark.sql import functions as F

        number = len(self.slices)
        staged = f"{STAGING}/{number:08d}"
        dated = table.withColumn("date", F.to_date("storeTimestamp"))
        dated.write.partitionBy("topic", "date").parquet(f"{self._folder.path}/{staged}", mode="overwrite")
        files = []
        for path, size in self._folder.files_below(staged):
            if path.endswith(".parquet") and not path.rpartition("/")[2].startswith((".", "_")):
                place, _, name = path.rpartition("/")
                target = f"{place}/slice-{number:08d}-{name}"
                self._folder.rename(f"{staged}/{path}", target)
                files.append((target, size))
        rows = self._count([path for path, _ in files])
        entry = {"slice": number, "rows": rows, "files": files, "archived_at_ms": time.time_ns() // 1_000_000, **about}
        self._folder.write(f"{MANIFEST}/{number:08d}.json", json.dumps(entry, indent=1))
        self._folder.remove(staged)
        self.slices.append(entry)
        return rows

    def _count(self, paths: list[str]) -> int:
        """Return the number of rows of Parquet files, from their footers."""
        if not paths:
            return 0
        return int(self._spark.read.parquet(*[f"{self._folder.path}/{path}" for path in paths]).count())


def _is_pattern(topics: str) -> bool:
    return topics.startswith("/") and topics.endswith("/")


def _options(arguments: argparse.Namespace) -> dict[str, str]:
    topics = arguments.topics
    chosen = {"subscribePattern": topics.strip("/")} if _is_pattern(topics) else {"subscribe": topics}
    return {**connection_options(arguments), **chosen}


def _source_options(arguments: argparse.Namespace) -> SourceOptions:
    """Raises OptionError, JobFailed."""
    return source_options({"failOnDataLoss": "true", **_options(arguments)}, streaming=False)


def _log_directories(arguments: argparse.Namespace) -> tuple[str, tuple[str, ...]]:
    """Return the store directory and those of its commit log. Raises JobFailed if one of them is not there."""
    root = arguments.store.rstrip("/") or "/"
    logs = tuple(part.strip() for part in (arguments.commit_log or f"{root}/commitlog").split(",") if part.strip())
    for directory in (root, *logs):
        if not Path(directory).is_dir():
            raise JobFailed(f"--store: {directory} is not a directory; --commit-log says where the log is")
    return root, logs


def archive_topics(archive: Archive, arguments: argparse.Namespace) -> int:
    """Archive from brokers, in slices of --slice-rows messages, up to the ends that the queues have at the start.
    Return the number of rows."""
    from triomq.spark.reading import Plan, latest  # here: it needs pyspark, and the help of the job does not

    options = _options(arguments)
    checked = _source_options(arguments)
    at: positions.Positions = {}
    for entry in archive.slices:
        if "until" not in entry:
            raise OptionError("--to: the folder holds an archive of a store directory")
        at.update(positions.from_tree(entry["until"], "manifest"))
    with Cluster(checked.connection) as cluster:
        plan = Plan(checked, cluster)
        queues = plan.queues()
        ends = latest(plan, queues)
        oldest = cluster.min_offsets(queues)
    starts = {queue: at.get(queue, oldest[queue]) for queue in queues}
    left = sum(ends[queue] - starts[queue] for queue in queues)
    progress = Progress("archive", left, unit=" messages", quiet=arguments.quiet)
    rows = 0
    while any(ends[queue] > starts[queue] for queue in queues):
        until = positions.limited(starts, ends, arguments.slice_rows)
        reader = archive._spark.read.format("rocketmq").options(**options)
        reader = reader.option("startingOffsets", json.dumps(positions.to_tree(starts)))
        table = reader.option("endingOffsets", json.dumps(positions.to_tree(until))).load()
        rows += archive.add(table, {"from": positions.to_tree(starts), "until": positions.to_tree(until)})
        starts = dict(until)
        progress.set(left - sum(ends[queue] - starts[queue] for queue in queues))
    progress.finish()
    return rows


def archive_store(archive: Archive, arguments: argparse.Namespace) -> tuple[int, bool]:
    """Archive a store directory, one slice per segment. Return the number of rows, and whether nothing was wrong."""
    if any("until_physical" not in entry for entry in archive.slices):
        raise OptionError("--to: the folder holds an archive of topics")
    if any(entry.get("topics") != arguments.topics for entry in archive.slices):
        raise OptionError("--topics: must be the same in all runs with this folder")
    root, logs = _log_directories(arguments)
    used = used_segments(segments(logs))
    ends = _archived_before(archive, used)
    found = used
    if arguments.older_than_hours:
        limit_ms = time.time() * 1000 - arguments.older_than_hours * 3_600_000
        found = list(takewhile(lambda segment: _is_done(segment, ends) or _newest_ms(segment) <= limit_ms, used[:-1]))
    found = [segment for segment in found if not _is_done(segment, ends)]
    mark = None
    if arguments.topics is None and not arguments.no_mark:
        mark = ArchiveMark(root, used, arguments.to)
    progress = Progress("archive", len(found), unit=" segments", quiet=arguments.quiet)
    rows = 0
    problems = [_move(mark, archive)]
    for before, after in pairwise(used):
        if before.end < after.start:
            where = f"from physical offset {before.end} to {after.start}"
            problems.append(f"there is no log file {where}; --commit-log takes several directories")
    for segment in found:
        begin = max((end for end in ends if segment.start < end <= segment.end), default=segment.start)
        until, has_blank = good_end(segment)
        if segment is not used[-1] and not has_blank and until < segment.end:
            problems.append(f"{segment.path}: no valid record at physical offset {until}; the rest is skipped")
        reader = archive._spark.read.format("rocketmq-store").option("startingOffset", begin)
        reader = reader.option("commitLogPath", ",".join(logs))
        if arguments.topics:
            reader = reader.option("subscribe", arguments.topics)
        if until > begin:
            about = {"segment": segment.path, "from_physical": begin, "until_physical": until}
            about["crc32"] = checksum(segment, begin, until)
            if arguments.topics:
                about["topics"] = arguments.topics
            rows += archive.add(reader.option("endingOffset", until).load(root), about)
            problems.append(_move(mark, archive))
        progress.advance(note=f"{rows:,} messages")
    problems.append(_move(mark, archive))
    progress.finish()
    told = sorted({problem for problem in problems if problem})
    sys.stderr.write("".join(f"mqpipeline archive: {problem}\n" for problem in told))
    return rows, not told


def _archived_before(archive: Archive, used: list[Segment]) -> list[int]:
    """Return where the slices of earlier runs end, sorted. Raises JobFailed when they are of another log."""
    if not archive.slices:
        return []
    last = max(archive.slices, key=lambda entry: int(entry["until_physical"]))
    done = int(last["until_physical"])
    if used and done > used[-1].end:
        raise JobFailed(f"--store: the log ends before physical offset {done}, up to which the folder has it")
    for segment in used:
        if segment.start < done <= segment.end and "crc32" in last and not is_of(segment, last):
            raise JobFailed(
                f"--store: {segment.path} is not what the folder has archived from physical offset "
                f"{last['from_physical']} to {done}: the log was truncated, or is another one; use a new folder"
            )
    return sorted(int(entry["until_physical"]) for entry in archive.slices)


def _is_done(segment: Segment, ends: list[int]) -> bool:
    """Return whether a slice ends in the segment and nothing was added after it, since a later segment is archived."""
    return bool(ends) and segment.end <= ends[-1] and any(segment.start < end <= segment.end for end in ends)


def _move(mark: ArchiveMark | None, archive: Archive) -> str:
    """Move the mark that tells the broker how far the archive is. Return what went wrong, or an empty string."""
    try:
        if mark is not None:
            mark.move(archive.slices)
    except OSError as error:
        return f"the mark for the broker cannot be written (--no-mark skips it): {error}"
    return ""


def _newest_ms(segment: Segment) -> int:
    """Return the store time of the last record of a full segment, in ms."""
    newest = 0
    with MappedSegment(segment) as data:
        at = 0
        while (size := next_record(data, at, segment.size_bytes)) > 0:
            newest = max(newest, store_timestamp(data, at))
            at += size
    return newest
