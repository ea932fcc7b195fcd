"""The index: all index files, oldest first; the newest takes new entries (IndexService).

`end_physical_offset` is the offset of its newest message. Messages arrive in log order. The index may safely fall
behind, since it can be rebuilt from the log: when a write fails (disk full) it stops at `stalled_at`, and its owner
indexes the rest from the log once there is space.
"""

from __future__ import annotations

import time
from typing import Final

import structlog

from triomq.protocol.outage import Outage
from triomq.store.disk import layout
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.listing import our_files
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.queues.index_file import IndexFile, IndexKeys, file_size_bytes, key_hash, keys_of

log = structlog.get_logger("triomq.store.index")

# The bytes of new entries that the newest file buffers before it writes them. Each such write also writes most pages of
# the slots, 20 MB.
WRITE_OUT_BYTES: Final = 4 << 20


class Index:
    def __init__(
        self, pool: OpenFiles, files: Files, paths: Layout, slot_count: int, entry_limit: int, is_enabled: bool
    ) -> None:
        self._pool = pool
        self._files = files
        self._paths = paths
        self._slot_count = slot_count
        self._entry_limit = entry_limit
        self.is_enabled = is_enabled
        self.files: list[IndexFile] = []
        # Full files that are written out but not synced.
        self.filled: list[IndexFile] = []
        # Log offset of the first message that could not be indexed; -1 while the index is not stalled.
        self.stalled_at = -1
        self._outage = Outage()

    def failed(self, error: OSError) -> None:
        """Note that the index could not be written, and log that when it begins and once a minute."""
        if self._outage.failed(time.monotonic()):
            log.error("index not written; it catches up when it can", exc_info=error)

    def worked(self) -> None:
        """Note that what the index buffers could be written."""
        if self.stalled_at < 0 and self._outage.is_on and self._outage.worked(time.monotonic()):
            log.info("index written again")

    def load(self) -> None:
        """Read the headers. Files of a wrong size are removed: recovery rebuilds the index from the log."""
        wanted = file_size_bytes(self._slot_count, self._entry_limit)
        for name in our_files(self._files, self._paths.index, layout.is_index_name):
            path = f"{self._paths.index}/{name}"
            size = self._files.path_size(path)
            if size != wanted:
                log.warning("index file of another size removed; recovery rebuilds it", path=path, size_bytes=size)
                self._files.unlink(path)
                continue
            file = IndexFile(self._pool, self._paths.index, name, self._slot_count, self._entry_limit)
            file.load()
            self.files.append(file)

    def open_for_writing(self) -> None:
        if self.files and not self.files[-1].is_full:
            self.files[-1].open_for_writing(self._files)

    @property
    def end_physical_offset(self) -> int:
        """The log offset of the newest indexed message; -1 for an empty index."""
        for file in reversed(self.files):
            if not file.is_empty:
                return file.end_physical_offset
        return -1

    @property
    def end_timestamp(self) -> int:
        return self.files[-1].end_timestamp if self.files else 0

    def add(self, messages: list[IndexKeys]) -> None:
        """Index messages that it does not have, in the order of the log. Raises OSError if a new file cannot be created
        or buffered entries cannot be written; it is stalled then."""
        at = reached = 0
        try:
            while at < len(messages):
                reached = at
                if self.files and not self.files[-1].is_full:
                    file = self.files[-1]
                    at = file.put(messages, at)
                    if at > reached:
                        reached = at - 1
                        if file.buffered_bytes >= WRITE_OUT_BYTES:
                            file.write_out()
                        continue
                self._put_one_by_one(messages[at])
                at += 1
        except OSError:
            self._stall(messages[reached])
            raise

    def add_missing(self, message: IndexKeys) -> None:
        """Index the keys of one message that the index lacks (its newest message, when recovery replays it). Raises
        OSError, as `add` does."""
        topic, uniq_key, keys, physical_offset, store_timestamp = message
        try:
            for key in keys_of(uniq_key, keys):
                code = key_hash(topic, key)
                if not any(file.has(code, physical_offset) for file in self.files[-2:]):
                    self._put(topic, key, physical_offset, store_timestamp)
        except OSError:
            self._stall(message)
            raise

    def _stall(self, message: IndexKeys) -> None:
        _, _, _, self.stalled_at, _ = message

    def _put_one_by_one(self, message: IndexKeys) -> None:
        """Index a message whose keys the newest file has no room for: it may begin in one file and end in the next."""
        topic, uniq_key, keys, physical_offset, store_timestamp = message
        for key in keys_of(uniq_key, keys):
            self._put(topic, key, physical_offset, store_timestamp)

    def _put(self, topic: str, key: str, physical_offset: int, store_timestamp: int) -> None:
        files = self.files
        if not files or files[-1].is_full:
            self._roll(store_timestamp)
        file = files[-1]
        file.put([(topic, key, None, physical_offset, store_timestamp)])
        if file.buffered_bytes >= WRITE_OUT_BYTES:
            file.write_out()

    def _roll(self, now_ms: int) -> None:
        full = self.files[-1] if self.files else None
        name = layout.index_name(max(now_ms, 0))
        if full is not None and name <= full.name:
            name = f"{int(full.name) + 1:017d}"
        if full is not None:
            full.write_out()
        self._files.make_directories(self._paths.index)
        file = IndexFile(self._pool, self._paths.index, name, self._slot_count, self._entry_limit)
        file.create(full)
        file.open_for_writing(self._files)
        if full is not None:
            full.close()
            self.filled.append(full)
        self.files.append(file)

    def has_room(self) -> bool:
        """Try to write out the index. Return whether the disk accepts entries again."""
        try:
            self.write_out()
            if not self.files or self.files[-1].is_full:
                self._roll(self.end_timestamp)
        except OSError:
            return False
        return True

    def write_out(self) -> None:
        """Write the changes of the newest file. Raises OSError."""
        if self.files:
            self.files[-1].write_out()

    def write_part(self, page: int) -> int:
        """Write a part of the changes of the newest file: `IndexFile.write_part`."""
        return self.files[-1].write_part(page) if self.files else -1

    def find(self, topic: str, key: str, limit: int, begin_ms: int, end_ms: int) -> list[int]:
        """Return at most `limit` log offsets of messages with this key stored in a second that overlaps
        [begin_ms, end_ms], newest file first."""
        found: list[int] = []
        code = key_hash(topic, key)
        for file in reversed(self.files):
            if file.overlaps(begin_ms, end_ms):
                file.find(code, begin_ms, end_ms, limit, found)
            if file.begin_timestamp < begin_ms or len(found) >= limit:
                break
        return found

    def repair(self, until_ms: int, physical_end: int) -> None:
        """After a crash, reduce the index to the entries that were certainly on disk.

        A full file that ends by `until_ms` is kept, since its slots are no longer written. Other files lose their newer
        entries, and a file without entries is deleted. When a file loses entries, all files after it are deleted too,
        even if they look older (the clock was set back): rebuilding appends to the end, so the index must have no gap.
        """
        kept: list[IndexFile] = []
        has_lost = False
        for file in self.files:
            is_safe = file.is_full and file.end_timestamp <= until_ms and file.end_physical_offset < physical_end
            if not has_lost and not is_safe:
                count = file.index_count
                file.rewind(until_ms, physical_end)
                has_lost = file.index_count < count
                if file.is_empty:
                    file.delete()
                    continue
            elif has_lost:
                file.delete()
                continue
            kept.append(file)
        self.files = kept

    def cut(self, physical_end: int) -> bool:
        """Remove the messages at or beyond `physical_end`, the end of the log. Return whether there were any."""
        if self.end_physical_offset < physical_end:
            return False
        self.write_out()
        for file in self.files:
            file.close()
        self.repair(1 << 62, physical_end)
        self.filled = [file for file in self.filled if file in self.files]
        self.open_for_writing()
        return True

    def drop_before(self, log_min_offset: int) -> list[IndexFile]:
        """Take out and return the files that point only below the start of the log, oldest first and never the newest.
        The caller deletes them."""
        gone: list[IndexFile] = []
        while len(self.files) > 1 and self.files[0].end_physical_offset < log_min_offset:
            gone.append(self.files.pop(0))
        return gone

    def delete_all(self) -> None:
        for file in self.files:
            file.delete()
        self.files = []
        self.filled = []

    def close(self) -> None:
        for file in self.files:
            file.close()
