"""Opening a store directory: load the files, recover, and return the state with which the parts begin.

The log is loaded first because everything else is derived from it. Queues and index are loaded as they are, and the
checkpoint tells recovery how much of them it can trust. Writes are allowed only after recovery.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Any

import structlog
import trio

from triomq.protocol.bodies import fastjson
from triomq.protocol.clock import NowMs
from triomq.protocol.system_topics import needs_no_config
from triomq.store.contents import Contents, Opened
from triomq.store.disk.directory_lock import DirectoryLock
from triomq.store.disk.json_config import JsonFile
from triomq.store.disk.ledgers import ledgers_in
from triomq.store.errors import StoreRefused
from triomq.store.live_settings import LiveSettings
from triomq.store.queues import queue_note
from triomq.store.queues.dispatch import Dispatch
from triomq.store.queues.queue_note import QueueNote
from triomq.store.results import RecoveryReport
from triomq.store.upkeep.progress import Progress, ProgressListener
from triomq.store.upkeep.queue_floors import QueueFloors
from triomq.store.upkeep.recovery import Recovery

log = structlog.get_logger("triomq.store")

_LOAD_FILES = 3
_AGAIN_BYTES = 1 << 18
"""Whole pages: a part of one would leave the rest as it is."""


class Opening:
    """One opening of one store, whose directory is locked."""

    def __init__(
        self,
        contents: Contents,
        settings: LiveSettings,
        directory: DirectoryLock,
        dispatch: Dispatch,
        listener: ProgressListener,
        now_ms: NowMs,
    ) -> None:
        self._contents = contents
        self._settings = settings
        self._directory = directory
        self._dispatch = dispatch
        self._listener = listener
        self._now_ms = now_ms
        self.report: RecoveryReport | None = None

    async def run(self) -> Opened:
        """Load, recover, mark the directory as in use. `report` is filled meanwhile. Raises StoreRefused, OSError."""
        contents = self._contents
        if contents.files.exists(contents.paths.unfinished):
            raise StoreRefused(
                f"{contents.paths.unfinished}: a conversion into this directory has not ended; remove the directory, "
                "convert again, and start then"
            )
        if not contents.log.needs_quorum:
            self._refuse_ledgers()
        was_clean = self._directory.was_clean
        contents.log.load()
        min_offset = contents.log.min_offset
        contents.checkpoint.load()
        uncorrected = contents.queues.load(_LOAD_FILES, min_offset, self._queue_note() if was_clean else None)
        contents.index.load()
        await trio.lowlevel.checkpoint()
        report = await self._recover(was_clean)
        if contents.checkpoint.safe_entries >= 0:
            contents.queues.cleaned_start = contents.checkpoint.safe_begin
        is_as_loaded = report.is_as_noted and contents.log.min_offset == min_offset
        for queue in uncorrected if is_as_loaded else contents.queues:
            queue.correct_min_offset(contents.log.min_offset)
        contents.index.open_for_writing()
        self._directory.mark_unclean()
        contents.log.recovered()
        if not was_clean:
            await self._write_again()
        log_end = contents.log.committed_offset
        log.info(
            "store loaded",
            root=contents.paths.root,
            min_offset=contents.log.min_offset,
            max_offset=log_end,
            queues=contents.queues.count,
            was_clean=was_clean,
            records_read=report.records,
        )
        return Opened(report, log_end, self._synced_end(report), contents.newest_store_timestamp)

    def _refuse_ledgers(self) -> None:
        """Raise StoreRefused if the messages are in the ledger of a group's member: the queues would be removed, and
        begin at 0."""
        root = self._contents.paths.root
        members = ledgers_in(self._contents.files, root)
        if members:
            raise StoreRefused(
                f"{root} has the ledger of {' and '.join(members)} of a group that elects its master, and "
                "enableDLegerCommitLog is not true. Set it, or convert the store with python -m triomq.dledger "
                f"convert-to-plain; to start without its messages, move dledger-{members[0]} away"
            )

    def _queue_note(self) -> QueueNote | None:
        """Return the note of the queues if it is of the exit of which the checkpoint has a note."""
        note = self._contents.checkpoint.note
        if note is None:
            return None
        return queue_note.load(self._contents.files, self._contents.paths.queue_note, note.digest)

    async def _write_again(self) -> None:
        """Write the bytes of the log that were never synced once more, where they are.

        The last process may have ended after a sync that failed. The kernel then holds pages that it counts as clean
        and that are not on disk: they can be read, a sync succeeds without them, and they are gone when memory is
        short. What is written again is synced by the next sync.
        """
        log, last = self._contents.log, self._contents.log.sequence.last
        if last is None:
            return
        begin = self._contents.checkpoint.synced_offset
        begin = begin if begin >= 0 else last.start  # of another broker's log the newest file
        for file in log.files_between(begin, log.written_offset):
            at = max(0, begin - file.start) // _AGAIN_BYTES * _AGAIN_BYTES
            end = min(file.size_bytes, log.written_offset - file.start)
            while at < end:
                data = file.pread(at, min(_AGAIN_BYTES, file.size_bytes - at))
                if data.strip(b"\0"):  # what was never written stays a hole
                    file.write(data, at)
                at += len(data)
                await trio.lowlevel.checkpoint()

    def _synced_end(self, report: RecoveryReport) -> int:
        """Return the offset up to which the log is on disk. After an unclean end that is not what recovery read or
        cleared, which is in the last file at least, nor the names of the files."""
        log, last = self._contents.log, self._contents.log.sequence.last
        if report.was_clean or last is None:
            return report.log_end
        log.unsynced_directories.update(file.directory for file in log.sequence.files)
        return min(report.scanned_from, last.start)

    async def _recover(self, was_clean: bool) -> RecoveryReport:
        recovery = Recovery(
            self._contents,
            self._settings.now,
            self._dispatch,
            is_live=self._live_topics(),
            begin_changes=self._directory.mark_unclean,
            start_progress=partial(Progress, self._listener, self._now_ms),
        )
        if not was_clean:
            log.warning("last run not ended cleanly; recovering", root=self._contents.paths.root)
        self.report = recovery.report
        for _ in recovery.steps(was_clean=was_clean):
            await trio.lowlevel.checkpoint()
        is_master = not self._settings.is_slave and not self._contents.log.needs_quorum
        if is_master and not recovery.report.is_as_noted:
            self._directory.mark_unclean()
            for _ in QueueFloors(self._contents, self._live_topics(with_leaving=False)).steps():
                await trio.lowlevel.checkpoint()
        return recovery.report

    def _live_topics(self, *, with_leaving: bool = True) -> Callable[[str], bool]:
        """Return a function that is True for topics that were not deleted, according to topics.json; without that
        file, for all topics. `with_leaving` includes topics whose deletion has begun."""
        path = f"{self._contents.paths.config}/topics.json"
        data: Any = JsonFile(self._contents.files, path, fastjson.loads).peek()
        try:
            topics = frozenset(data["topicConfigTable"])
            if not with_leaving:
                topics = topics.difference(data.get("deletedTopics", ()))
        except (KeyError, TypeError):
            return lambda topic: True
        return lambda topic: topic in topics or needs_no_config(topic)
