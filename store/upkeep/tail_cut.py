"""Truncating the end of a slave's log that its master does not have, with the queue and index entries derived from it.

The bytes are saved first (salvage.py): they may hold messages that a former master acknowledged. Then queues are
truncated before the log, so that a crash in between leaves queues that are behind their log, which recovery repairs.
Nothing is flushed meanwhile. Waits for offsets beyond the cut end with LogCut.

Only for stores of slaves: there is no other writer.
"""

from __future__ import annotations

import structlog
import trio

from triomq.protocol import record
from triomq.store.contents import Contents, Marks
from triomq.store.disk.layout import file_name
from triomq.store.disk.worker_thread import Offload
from triomq.store.errors import LogCut
from triomq.store.fail_stop import FailStop
from triomq.store.log.salvage import Salvage
from triomq.store.upkeep.flush import Flush

log = structlog.get_logger("triomq.store.tail_cut")

MAX_SAVED = 16
MAX_SAVED_BYTES = 4 << 30
_COPY_BYTES = 1 << 20
_STEPS_BETWEEN_LOOKS = 4096
_MAGIC = record.MESSAGE_MAGIC_BYTES
_BLANK_MAGIC = record.BLANK_MAGIC_BYTES


class TailCut:
    """Cuts the log of one store. `offload` runs a blocking function outside of the event loop."""

    def __init__(
        self,
        contents: Contents,
        marks: Marks,
        flush: Flush,
        fail_stop: FailStop,
        offload: Offload,
    ) -> None:
        self._contents = contents
        self._files = contents.files
        self._log = contents.log
        self._marks = marks
        self._flush = flush
        self._fail_stop = fail_stop
        self._offload = offload
        self._salvage = Salvage(contents.files, contents.paths, ".tail", max_files=MAX_SAVED, max_bytes=MAX_SAVED_BYTES)

    async def border(self, physical_offset: int) -> int:
        """Return the start of the record, complete or not, that holds the byte at this offset, or the offset itself if
        a record may begin there. Scans the log file from its start and yields to the event loop."""
        file = self._log.sequence.find(physical_offset)
        at = file.start if file is not None else physical_offset
        steps = 0
        while at < physical_offset:
            head = self._log.read_some(at, 8)
            behind = self._log.next_file_start(at)
            if head[4:8] == _MAGIC:
                behind = min(at + max(8, int.from_bytes(head[:4], "big")), behind)
            elif head[4:8] != _BLANK_MAGIC:
                return at
            if behind > physical_offset:
                return at
            at = behind
            steps += 1
            if steps % _STEPS_BETWEEN_LOOKS == 0:
                await trio.lowlevel.checkpoint()
        return at

    async def cut(self, physical_offset: int, *, are_queues_whole: bool = True) -> str:
        """End the log at this record border. Return the path of the file with the removed bytes. Raises OSError on
        failure: then nothing was changed, or the store is broken. Unless `are_queues_whole`, queues lack entries of
        records that stay: after a crash the next start then reads the whole log."""
        async with self._flush.halted():
            end = self._log.committed_offset
            saved = await self._save(physical_offset, end)
            refused: OSError | None = None
            with self._fail_stop.during("truncating the log"):
                try:
                    self._take_away(physical_offset, are_queues_whole)
                except OSError as error:
                    self._fail_stop.broke(f"the log cannot be truncated: {error}")
                    refused = error
            if refused is not None:
                raise refused
        log.error(
            "end of the log truncated: it differs from the master's",
            physical_offset=physical_offset,
            size_bytes=end - physical_offset,
            saved_as=saved,
        )
        return saved

    def _take_away(self, physical_offset: int, are_queues_whole: bool) -> None:
        self._contents.checkpoint.forget_offsets()
        self._cut_queues(physical_offset)
        self._log.sequence.truncate(physical_offset)
        self._end_at(physical_offset, are_queues_whole=are_queues_whole)

    def cut_derived(self, physical_offset: int) -> None:
        """Remove what was derived from records at or behind this offset, which the log itself has lost already."""
        self._contents.checkpoint.forget_offsets()
        self._cut_queues(physical_offset)
        self._end_at(physical_offset, are_queues_whole=True)

    def _end_at(self, physical_offset: int, *, are_queues_whole: bool) -> None:
        """Let index, checkpoint and watermarks know the new end of the log."""
        self._log.set_end(physical_offset)
        self._contents.index.cut(physical_offset)
        newest = self._contents.newest_store_timestamp if are_queues_whole else 0
        self._contents.checkpoint.lower(newest, physical_offset)
        self._contents.checkpoint.save()
        reason = LogCut(f"the log was truncated at {physical_offset}, where it differs from the master's")
        self._marks.committed.set_back(physical_offset, reason)
        if self._marks.flushed.value > physical_offset:
            self._marks.flushed.set_back(physical_offset, reason)

    def _cut_queues(self, physical_offset: int) -> None:
        for queue in self._contents.queues:
            if queue.max_physical_end > physical_offset:
                queue.end_mark.reject(LogCut(f"queue {queue.queue_id} of {queue.topic} was truncated"))
                queue.truncate_beyond(physical_offset)

    async def _save(self, begin: int, end: int) -> str:
        name = f"{file_name(begin)}-{end}"
        fd = self._salvage.begin(name, end - begin)
        try:
            at = begin
            while at < end:
                data = self._log.read_some(at, min(_COPY_BYTES, end - at))
                if not data:  # a log file is missing
                    at = min(self._log.next_file_start(at), end)
                    continue
                await self._offload(self._files.pwrite, fd, data, at - begin)
                at += len(data)
        except BaseException:
            self._salvage.give_up(name, fd)
            raise
        with trio.CancelScope(shield=True):  # `keep` closes the descriptor, so it must run to its end
            saved: str = await self._offload(self._salvage.keep, name, fd)
        return saved
