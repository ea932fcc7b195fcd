"""Inspecting and rebuilding a store directory that no broker has open: verify, dump, rebuild.

Verifying opens no file for writing and changes nothing. Rebuilding moves consume queues and index aside, and the next
recovery of the store rebuilds them from the log.
"""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

from triomq.protocol import record, sys_flag
from triomq.protocol.record import RecordFields
from triomq.protocol.system_topics import LMQ_PREFIX
from triomq.store.config import StoreSettings
from triomq.store.disk import layout
from triomq.store.disk.file_sequence import FileSequence
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.listing import IsOurs, our_files
from triomq.store.disk.log_directories import LogDirectories
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.log.commit_log import CommitLog
from triomq.store.log.deletion_record import deleted_topic
from triomq.store.log.log_scan import ALL_SYNCED, LogScan
from triomq.store.log.scanned_record import ScannedRecord
from triomq.store.log.store_log import StoreLog
from triomq.store.queues.consume_queue import ENTRY, ENTRY_BYTES, FILLER_SIZE_BYTES, ConsumeQueue
from triomq.store.queues.index_file import IndexFile, file_size_bytes
from triomq.store.queues.queue_table import queues_in
from triomq.store.upkeep.progress import Progress, StartProgress, unseen
from triomq.store.upkeep.queue_floors import note_ends

# Progress is reported once per this many records.
_STEP_RECORDS = 1024
_OPEN_FILES = 256


class ReadOnlyFiles(Files):
    """Files for reading only: every file is opened for reading, and the calls that write raise PermissionError."""

    def open(self, path: str, *, write: bool = True) -> int:
        return super().open(path, write=False)

    def create(self, path: str, size_bytes: int) -> int:
        raise PermissionError(f"{path}: opened for reading only")

    def pwrite(self, fd: int, data: bytes | bytearray | memoryview, at: int) -> None:
        raise PermissionError("the store is opened for reading only")

    def truncate(self, fd: int, size_bytes: int) -> None:
        raise PermissionError("the store is opened for reading only")

    def unlink(self, path: str) -> None:
        raise PermissionError(f"{path}: opened for reading only")


class Findings:
    """The findings of `verify`. `problems` are sentences; an empty list means that there are none."""

    def __init__(self) -> None:
        self.log_begin = 0
        self.log_end = 0
        self.records = 0
        self.queues = 0
        self.queue_entries = 0
        self.missing_entries = 0
        self.problems: list[str] = []


def load_whole_files(sequence: FileSequence, directories: LogDirectories) -> list[str]:
    """Load the files of a log that have their whole length, as a mapping cannot be longer than its file. Return a
    sentence about each other one. Raises StoreRefused if file sizes do not fit the settings."""
    short = [file for directory in directories.every for file in sequence.load(directory)]
    sequence.files = [file for file in sequence.files if file not in short]
    return [f"{file.path} is shorter than mappedFileSizeCommitLog" for file in short]


class OfflineLog:
    """The log of a directory, opened for reading only. `problems` and `about` are sentences: what is wrong with its
    files, and what else to say of it. Records from `queued_end` on need not be in a queue yet."""

    def __init__(self, paths: Layout, pool: OpenFiles, log: StoreLog, problems: list[str]) -> None:
        self.paths = paths
        self.pool = pool
        self.log = log
        self.problems = problems
        self.about: list[str] = []
        self.queued_end = ALL_SYNCED

    @classmethod
    def plain(cls, settings: StoreSettings) -> OfflineLog:
        """Open the log of a plain broker. Raises StoreRefused if file sizes do not fit the settings."""
        paths = Layout(settings)
        pool = OpenFiles(ReadOnlyFiles(), 256)
        log = CommitLog(pool, paths, settings.mapped_file_size_commit_log_bytes)
        problems = load_whole_files(log.sequence, log.directories)
        last = log.sequence.last
        if last is not None:
            log.set_end(last.end)
        return cls(paths, pool, log, problems)

    def close(self) -> None:
        self.pool.close_all()

    def progress(self, start_progress: StartProgress, begin: int) -> Progress:
        """Start the progress of a scan from `begin` to the end of the log."""
        last = self.log.sequence.last
        return start_progress("reading the log", begin, last.likely_end if last is not None else begin)

    def records(self, start: int | None = None) -> Iterator[tuple[RecordFields, bytes]]:
        """Yield fields and body of every valid record from `start`, by default from the start of the log."""
        scan = LogScan(self.log, max(0, self.log.min_offset) if start is None else start, check_crc=True)
        for found in scan.records():
            data = self.log.record_at(found.physical_offset)
            if data is not None:
                fields = record.read_fields(data, 0, len(data))
                yield fields, data[fields.body_at : fields.body_at + fields.body_length]


class _QueueCheck:
    """One queue and the comparison with its records in the log.

    Messages before the one of its first entry are ignored: they are older than the queue's files, or belong to a topic
    that was deleted and created again.
    """

    def __init__(self, queue: ConsumeQueue) -> None:
        self.queue = queue
        first = queue.entry(queue.first_in_files) if queue.end > queue.first_in_files else None
        self.begin_physical = first[0] if first is not None and first[1] != FILLER_SIZE_BYTES else 0
        self.found = 0
        self.missing = 0
        self.first_missing = -1
        self.wrong = 0
        self.first_wrong = -1

    @property
    def size_bytes(self) -> int:
        return (self.queue.end - self.queue.first_in_files) * ENTRY_BYTES

    def compare(self, fields: ScannedRecord, queued_end: int) -> None:
        queue_offset = fields.queue_offset
        if fields.physical_offset < self.begin_physical:
            return
        if queue_offset >= self.queue.end:
            if fields.physical_offset >= queued_end:
                return
            self.missing += 1
            self.first_missing = queue_offset if self.first_missing < 0 else self.first_missing
            return
        entry = self.queue.entry(queue_offset)
        if entry is not None and entry[:2] == (fields.physical_offset, fields.size_bytes):
            self.found += 1
        elif entry is not None:
            self.wrong += 1
            self.first_wrong = queue_offset if self.first_wrong < 0 else self.first_wrong


def verify(
    settings: StoreSettings, start_progress: StartProgress = unseen, offline: OfflineLog | None = None
) -> Findings:
    """Read the whole log, compare it with every queue, and check the index headers. `offline` is the log, by default
    that of a plain broker. Raises StoreRefused if file sizes do not fit the settings."""
    offline = offline or OfflineLog.plain(settings)
    findings = Findings()
    findings.log_begin = max(0, offline.log.min_offset)
    findings.problems += offline.problems
    checks = _load_queues(settings, offline)
    gone = _verify_log(offline, findings, checks, offline.progress(start_progress, findings.log_begin))
    for (topic, queue_id), count in sorted(gone.items()):
        findings.problems.append(
            f"queue {topic}/{queue_id} has no files, but {count} messages in the log (lost files, or a topic that "
            "RocketMQ deleted)"
        )
    progress = start_progress("checking queues", 0, sum(check.size_bytes for check in checks.values()))
    for check in checks.values():
        _verify_queue(check, findings)
        progress.at(findings.queue_entries * ENTRY_BYTES)
    progress.over()
    _verify_index(settings, offline, findings)
    offline.close()
    return findings


def _load_queues(settings: StoreSettings, offline: OfflineLog) -> dict[tuple[str, int], _QueueCheck]:
    files = ReadOnlyFiles()
    size = (settings.mapped_file_size_consume_queue_bytes + ENTRY_BYTES - 1) // ENTRY_BYTES * ENTRY_BYTES
    checks: dict[tuple[str, int], _QueueCheck] = {}
    for topic, queue_ids in queues_in(files, offline.paths.queues):
        for queue_id in queue_ids:
            queue = ConsumeQueue(offline.pool, offline.paths.queue(topic, queue_id), size, topic, queue_id)
            queue.peek()
            if queue.sequence.files:  # else a foreign file keeps the directory of a queue that was deleted
                checks[topic, queue_id] = _QueueCheck(queue)
    return checks


def _verify_log(
    offline: OfflineLog, findings: Findings, checks: dict[tuple[str, int], _QueueCheck], progress: Progress
) -> dict[tuple[str, int], int]:
    """Return (topic, queue id) -> number of messages, for the queues that have messages but no files."""
    gone: dict[tuple[str, int], int] = {}
    scan = LogScan(offline.log, findings.log_begin, check_crc=True)
    for fields in scan.records():
        findings.records += 1
        if not fields.sys_flag & sys_flag.TRANSACTION_PREPARED:
            queue = (fields.topic.decode("utf-8", "replace"), fields.queue_id)
            check = checks.get(queue)
            if check is not None:
                check.compare(fields, offline.queued_end)
            elif fields.physical_offset < offline.queued_end:
                gone[queue] = gone.get(queue, 0) + 1
        elif topic := deleted_topic(fields.topic.decode("utf-8", "replace"), fields.sys_flag, fields.properties):
            gone = {queue: count for queue, count in gone.items() if queue[0] != topic}
        if findings.records % _STEP_RECORDS == 0:
            progress.at(scan.offset)
    progress.over()
    findings.log_end = scan.end
    for damage in scan.damages:
        findings.problems.append(
            f"log damaged from {damage.begin} to {damage.end} ({damage.end - damage.begin} bytes): {damage.reason}"
        )
    for earlier, later in zip(offline.log.sequence.files, offline.log.sequence.files[1:], strict=False):
        if earlier.end != later.start:
            findings.problems.append(f"log files are missing between {earlier.path} and {later.path}")
    return gone


def _verify_queue(check: _QueueCheck, findings: Findings) -> None:
    queue = check.queue
    findings.queues += 1
    fillers = 0
    ahead = 0
    good = 0
    queue_offset = queue.first_in_files
    while queue_offset < queue.end:
        entries = list(ENTRY.iter_unpack(queue.entries(queue_offset, 1000)))
        for physical_offset, size, _ in entries:
            if size == FILLER_SIZE_BYTES:
                fillers += 1
            elif physical_offset + size > findings.log_end:
                ahead += 1
            elif physical_offset >= findings.log_begin:
                good += 1
        queue_offset = queue_offset + len(entries) if entries else queue.next_file_offset(queue_offset)
        findings.queue_entries += len(entries)
    where = f"queue {queue.topic}/{queue.queue_id}"
    if not check.wrong and check.found < good and not queue.topic.startswith(LMQ_PREFIX):
        check.wrong, check.first_wrong = good - check.found, queue.first_in_files
    if check.wrong:
        findings.problems.append(
            f"{where}: {check.wrong} entries do not point to their messages, the first at {check.first_wrong}"
        )
    if ahead:
        findings.problems.append(f"{where}: {ahead} entries point beyond the end of the log")
    if fillers:
        findings.problems.append(f"{where}: {fillers} entries replace lost messages")
    if check.missing:
        findings.missing_entries += check.missing
        findings.problems.append(
            f"{where}: {check.missing} messages of the log are not in it, from {check.first_missing} on"
        )


def _verify_index(settings: StoreSettings, offline: OfflineLog, findings: Findings) -> None:
    files = ReadOnlyFiles()
    wanted = file_size_bytes(settings.max_hash_slot_num, settings.max_index_num)
    end = -1
    for name in our_files(files, offline.paths.index, layout.is_index_name):
        path = f"{offline.paths.index}/{name}"
        if files.path_size(path) != wanted:
            findings.problems.append(f"{path} has {files.path_size(path)} bytes instead of {wanted}")
            continue
        file = IndexFile(offline.pool, offline.paths.index, name, settings.max_hash_slot_num, settings.max_index_num)
        file.load()
        if not file.is_empty:
            end = max(end, file.end_physical_offset)
    if end >= findings.log_end:
        findings.problems.append(f"the index points to {end}, beyond the end of the log at {findings.log_end}")


def dump(
    settings: StoreSettings,
    start: int | None = None,
    start_progress: StartProgress = unseen,
    offline: OfflineLog | None = None,
) -> Iterator[str]:
    """Yield one line of JSON per record, without bodies. `offline` as in `verify`."""
    import json

    offline = offline or OfflineLog.plain(settings)
    progress = offline.progress(start_progress, max(0, offline.log.min_offset) if start is None else start)
    for number, (fields, body) in enumerate(offline.records(start)):
        if number % _STEP_RECORDS == 0:
            progress.at(fields.physical_offset)
        yield json.dumps(
            {
                "physicalOffset": fields.physical_offset,
                "size": fields.size_bytes,
                "topic": fields.topic.decode("utf-8", "replace"),
                "queueId": fields.queue_id,
                "queueOffset": fields.queue_offset,
                "sysFlag": fields.sys_flag,
                "bornTimestamp": fields.born_timestamp,
                "storeTimestamp": fields.store_timestamp,
                "bodyLength": len(body),
                "bodyCrc": record.body_crc(body),
                "properties": fields.properties.decode("utf-8", "replace").replace("\x01", "=").replace("\x02", " "),
            },
            ensure_ascii=False,
        )
    progress.over()
    offline.close()


def queue_ends(settings: StoreSettings) -> dict[tuple[str, int], int]:
    """Return (topic, queue id) -> next queue offset, of every queue that has had a message. Reads only."""
    files = ReadOnlyFiles()
    paths = Layout(settings)
    pool = OpenFiles(files, _OPEN_FILES)
    size = (settings.mapped_file_size_consume_queue_bytes + ENTRY_BYTES - 1) // ENTRY_BYTES * ENTRY_BYTES
    ends: dict[tuple[str, int], int] = {}
    for topic, queue_ids in queues_in(files, paths.queues, tells=False):
        for queue_id in queue_ids:
            queue = ConsumeQueue(pool, paths.queue(topic, queue_id), size, topic, queue_id)
            queue.peek()
            if queue.end:
                ends[topic, queue_id] = queue.end
    pool.close_all()
    return ends


def clear_derived(settings: StoreSettings) -> list[str]:
    """Move the files of consume queues, ext and index aside and mark the store as not cleanly closed; the next `load`
    rebuilds them from the whole log. What is not the store's stays where it is. The ends of the queues are
    noted before: the log does not tell those of queues whose messages have expired. Return the paths of the old ones.
    Raises OSError, StoreRefused."""
    paths = Layout(settings)
    files = Files()
    note_ends(files, paths, queue_ends(settings))
    # First: a start must not trust what is left if this is killed halfway.
    Path(paths.abort).touch()
    Path(paths.checkpoint).unlink(missing_ok=True)
    moved: list[str] = []
    for path in (paths.queues, paths.queues_ext, paths.index):
        if Path(path).exists():
            target = f"{path}.before-rebuild"
            number = 1
            while Path(target).exists():
                number += 1
                target = f"{path}.before-rebuild-{number}"
            Path(target).mkdir()
            if path == paths.index:
                _move_files(files, path, target, layout.is_index_name)
            else:
                _move_queues(files, path, target)
            moved.append(target)
    return moved


def _move_queues(files: Files, source: str, target: str) -> None:
    for topic, queue_ids in queues_in(files, source, tells=False):
        for queue_id in queue_ids:
            Path(f"{target}/{topic}/{queue_id}").mkdir(parents=True)
            _move_files(files, f"{source}/{topic}/{queue_id}", f"{target}/{topic}/{queue_id}", layout.is_offset_name)
        files.remove_directory(f"{source}/{topic}")


def _move_files(files: Files, source: str, target: str, is_ours: IsOurs) -> None:
    for name in our_files(files, source, is_ours, tells=False):
        files.rename(f"{source}/{name}", f"{target}/{name}")
    files.remove_directory(source)
