"""Converting the store of a stopped broker: a plain log to the ledger of a group's member, and back.

    source   locked, and read only
    target   <root>/unfinished     until the log and the tables are whole: no start accepts it
             <root>/abort          then: queues and index are made by the recovery that every start would run

Records get new physical offsets (moving.py says what else names them) and keep everything else. A queue whose messages
are all gone keeps its next queue offset, because consumers continue there.

Memory does not grow with the log: a MiB of records waits to be written, the places of half messages are in a file
(half_places.py), and of each queue its name and end are known.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass, field
from functools import partial
from typing import Final

from msgspec.structs import replace

from triomq.dledger.convert.half_places import HalfPlaces
from triomq.dledger.convert.moving import HALF_TOPIC, renamed, set_offset
from triomq.dledger.convert.sources import Found, MemberSource, PlainSource, Source
from triomq.dledger.convert.tables import copy_tables, keep_ends
from triomq.dledger.ledger.data_directories import data_settings, member_directory
from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.ledger.ledger_log import LedgerLog
from triomq.dledger.ledger.term_files import TermFiles
from triomq.dledger.wire import codes
from triomq.store.config import StoreSettings
from triomq.store.contents import MakeLog
from triomq.store.disk.directory_lock import DirectoryLock
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.errors import StoreRefused
from triomq.store.log.commit_log import CommitLog
from triomq.store.log.store_log import StoreLog
from triomq.store.message_store import DefaultMessageStore
from triomq.store.upkeep.offline import queue_ends
from triomq.store.upkeep.progress import Progress, ProgressListener

_PENDING_BYTES: Final = 1 << 20
_STEP_RECORDS: Final = 1024
_OPEN_FILES: Final = 64
_OF_THE_DISK: Final = "lost+found"
"""A file system of its own has this directory from the beginning, and it stays."""
_TERM: Final = 1
"""Of all converted entries. The first leader has a larger one."""


@dataclass(slots=True)
class Report:
    """What a conversion has done. `left_out`: what it could not convert, in sentences."""

    records: int = 0
    queues: int = 0
    left_out: list[str] = field(default_factory=list)


async def to_ledger(
    source: StoreSettings, target_root: str, self_id: str, listener: ProgressListener, files: Files | None = None
) -> Report:
    """Convert the log of a plain broker to the ledger of member `self_id`. Raises StoreError, OSError."""
    target = _settings_of(source, target_root)
    directory = member_directory(target_root, self_id)
    at = replace(target, store_path_commit_log=f"{directory}/data")
    with_ledger = _LedgerTarget(directory)
    conversion = Conversion(source, at, with_ledger.make_log, listener, files or Files())
    return await conversion.run(partial(PlainSource, source), with_ledger.finish)


async def to_plain(
    source: StoreSettings, target_root: str, self_id: str, listener: ProgressListener, files: Files | None = None
) -> Report:
    """Convert the log of member `self_id` to that of a plain broker: an older plain log, if it has one, and its ledger.
    Raises StoreError, OSError."""
    target = _settings_of(source, target_root)
    locked = data_settings(source, member_directory(source.store_path_root_dir, self_id), files or Files())
    conversion = Conversion(locked, target, CommitLog, listener, files or Files())
    return await conversion.run(partial(MemberSource, source, self_id), _finish_plain)


def _settings_of(source: StoreSettings, root: str) -> StoreSettings:
    """Return the settings of the target: the sizes of the source, and no path but the root."""
    return replace(
        source,
        store_path_root_dir=root,
        store_path_commit_log=None,
        store_path_dledger_commit_log=None,
        read_only_commit_log_store_paths=None,
        transient_store_pool_enable=False,
        warm_mapped_file_enable=False,
    )


class _LedgerTarget:
    """The ledger that is written, and opened again to make queues and index."""

    def __init__(self, directory: str) -> None:
        self._directory = directory
        self._ledger: Ledger

    def make_log(self, pool: OpenFiles, paths: Layout, file_size_bytes: int) -> LedgerLog:
        self._ledger = Ledger(pool.files, self._directory, file_size_bytes, pool=pool)
        made = LedgerLog(self._ledger)
        made.propose = _propose
        return made

    def finish(self, files: Files, log: StoreLog) -> None:
        """Bring the ledger to disk, all of it committed."""
        self._ledger.save_checkpoint(self._ledger.end_index)
        TermFiles(files, self._directory).save_term(_TERM, None)


def _propose(ticket: object, write: Callable[[int], None]) -> int:
    write(_TERM)
    return codes.SUCCESS


def _finish_plain(files: Files, log: StoreLog) -> None:
    for file in log.sequence.files:
        files.datasync(file.fd())
    for directory in log.unsynced_directories:
        files.sync_directory(directory)


class Conversion:
    """One conversion into an empty directory. `source` has the paths that are locked."""

    def __init__(
        self,
        source: StoreSettings,
        target: StoreSettings,
        make_log: MakeLog,
        listener: ProgressListener,
        files: Files,
    ) -> None:
        self._source = source
        self._target = target
        self._make_log = make_log
        self._listener = listener
        self._files = files
        self._paths = Layout(target)
        self._report = Report()
        self._queues: set[tuple[bytes, int]] = set()
        self._last_times: dict[int, int] = {}

    async def run(self, open_source: Callable[[], Source], finish_log: Callable[[Files, StoreLog], None]) -> Report:
        """Convert everything. Raises StoreError: the source cannot be read, or the target is not empty; OSError."""
        files = self._files
        paths = self._paths
        origin = Layout(self._source)
        if not files.exists(origin.root):
            raise StoreRefused(f"{origin.root} does not exist")
        real = f"{files.real_path(paths.root)}/"
        if real.startswith(f"{files.real_path(origin.root)}/"):
            raise StoreRefused(f"{paths.root} is in the source; choose a directory beside it")
        if [name for name in files.list_directory(paths.root) if name != _OF_THE_DISK]:
            raise StoreRefused(f"{paths.root} is not empty; choose a new directory, or remove what is in it")
        for path in origin.commit_logs:
            if not files.exists(path):
                raise StoreRefused(f"{path} does not exist: nothing there can be converted")
        source_lock = DirectoryLock(files, origin)
        source_lock.take()
        try:
            source = open_source()
            try:
                self._write_all(source, finish_log)
            finally:
                source.close()
        finally:
            source_lock.release()
        await self._derive()
        return self._report

    def _write_all(self, source: Source, finish_log: Callable[[Files, StoreLog], None]) -> None:
        files, paths = self._files, self._paths
        lock = DirectoryLock(files, paths)
        files.make_lasting_directories(paths.root)
        _write_mark(files, paths)
        lock.take()
        try:
            self._write_log(source, finish_log)
            copy_tables(files, Layout(self._source).config, paths.config)
            ends = {
                queue: end
                for queue, end in queue_ends(self._source).items()
                if (queue[0].encode(), queue[1]) not in self._queues
            }
            keep_ends(self._target, files, ends)
            lock.mark_unclean()
            files.unlink(paths.unfinished)
            files.sync_directory(paths.root)
        finally:
            lock.release()

    def _write_log(self, source: Source, finish_log: Callable[[Files, StoreLog], None]) -> None:
        files = self._files
        pool = OpenFiles(files, _OPEN_FILES)
        log = self._make_log(pool, self._paths, self._target.mapped_file_size_commit_log_bytes)
        halves = HalfPlaces(files, f"{self._paths.root}/half-messages")
        try:
            log.load()
            progress = Progress(self._listener, _now_ms, "converting the log", *source.range)
            for found in source.records():
                self._append(log, found, halves)
                if self._report.records % _STEP_RECORDS == 0:
                    progress.at(found.fields.physical_offset)
            log.write_pending()
            progress.over()
            finish_log(files, log)
            for file in log.sequence.files:
                files.set_modified(file.path, self._last_times.get(file.start, _now_ms()))
            self._report.left_out += source.left_out
        finally:
            halves.close()
            pool.close_all()

    def _append(self, log: StoreLog, found: Found, halves: HalfPlaces) -> None:
        fields = found.fields
        data = renamed(found.data, fields, halves.find)
        if len(data) > log.longest_record_bytes:
            raise StoreRefused(
                f"the message at {fields.physical_offset} has {len(data)} bytes, more than an entry of a ledger, or "
                "mappedFileSizeCommitLog, has room for"
            )
        offset = log.place(len(data))
        set_offset(data, offset)
        log.tail += data
        log.next_offset = offset + len(data)
        if log.pending_bytes > _PENDING_BYTES:
            log.write_pending()
        if fields.topic == HALF_TOPIC:
            halves.add(fields.physical_offset, offset)
        self._queues.add((fields.topic, fields.queue_id))
        self._last_times[offset - offset % log.file_size_bytes] = fields.store_timestamp
        self._report.records += 1

    async def _derive(self) -> None:
        """Make queues and index, as the recovery of any start would: by one."""
        store = DefaultMessageStore(self._target, now_ms=_now_ms, files=self._files, make_log=self._make_log)
        await store.load(self._listener)
        self._report.queues = store.contents.queues.count
        await store.close()


def _write_mark(files: Files, paths: Layout) -> None:
    text = b"a conversion into this directory has not ended\n"
    fd = files.create(paths.unfinished, len(text))
    try:
        files.pwrite(fd, text, 0)
        files.datasync(fd)
    finally:
        files.close(fd)
    files.sync_directory(paths.root)


def _now_ms() -> int:
    return time.time_ns() // 1_000_000
