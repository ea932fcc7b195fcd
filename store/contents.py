"""What one store directory holds, as values that its parts share.

`Contents` are the objects over the files. They are made together, live as long as the store, and nobody replaces one;
what each of them holds, and who may change that, its own module says. `Marks` are the offsets that others wait for.
`Opened` is what recovery found: `load` hands it to every part that begins with it, and no part is written to from
outside.
"""

from __future__ import annotations

from dataclasses import dataclass

from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.log.checkpoint import Checkpoint
from triomq.store.log.commit_log import CommitLog
from triomq.store.queues.index import Index
from triomq.store.queues.queue_table import QueueTable
from triomq.store.results import RecoveryReport
from triomq.store.watermark import Watermark


@dataclass(frozen=True, slots=True)
class Contents:
    """`open_files` bounds the descriptors of all the others."""

    files: Files
    paths: Layout
    open_files: OpenFiles
    log: CommitLog
    queues: QueueTable
    index: Index
    checkpoint: Checkpoint

    @classmethod
    def of(cls, settings: StoreSettings, files: Files) -> Contents:
        """The contents of the directory that `settings` name, not read yet."""
        paths = Layout(settings)
        open_files = OpenFiles(files, settings.max_open_files)
        ext_bytes = settings.mapped_file_size_consume_queue_ext_bytes if settings.enable_consume_queue_ext else 0
        return cls(
            files,
            paths,
            open_files,
            CommitLog(open_files, paths, settings.mapped_file_size_commit_log_bytes),
            QueueTable(open_files, files, paths, settings.mapped_file_size_consume_queue_bytes, ext_bytes),
            Index(
                open_files,
                files,
                paths,
                settings.max_hash_slot_num,
                settings.max_index_num,
                settings.message_index_enable,
            ),
            Checkpoint(files, paths.checkpoint),
        )

    @property
    def newest_store_timestamp(self) -> int:
        """Store time in ms of the newest message that is in a queue, 0 when there is none."""
        entry = self.queues.newest_entry()
        return max(0, self.log.store_timestamp_at(entry[0])) if entry is not None else 0


@dataclass(frozen=True, slots=True)
class Marks:
    """Physical offsets: `committed` can be read, `flushed` is on disk, up to `accepted` puts are taken. `accepted` is
    `committed` itself, except in a store with a write buffer, which takes puts before it writes them."""

    committed: Watermark
    accepted: Watermark
    flushed: Watermark

    @classmethod
    def of(cls, *, has_buffer: bool) -> Marks:
        committed = Watermark()
        return cls(committed, Watermark() if has_buffer else committed, Watermark())


@dataclass(frozen=True, slots=True)
class Opened:
    """`log_end` is where the log ends. Up to `synced_end` it is on disk for certain; what recovery read behind that may
    be in the page cache only, so the first flush covers it again. `last_store_timestamp` is that of the newest message
    in a queue, in ms."""

    report: RecoveryReport
    log_end: int
    synced_end: int
    last_store_timestamp: int
