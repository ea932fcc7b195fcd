"""The contents of one store directory, as values that the parts of the store share.

`Contents` has the objects over the files. They are created together, live as long as the store, and are never replaced;
the module of each describes its state and who may change it. `Marks` has the offsets for which others wait. `Opened` is
the result of recovery: `load` passes it to every part that needs it, so no part sets the state of another.
"""

from __future__ import annotations

from collections.abc import Callable

from msgspec import Struct

from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.log.checkpoint import Checkpoint
from triomq.store.log.commit_log import CommitLog
from triomq.store.log.store_log import StoreLog
from triomq.store.queues.index import Index
from triomq.store.queues.queue_table import QueueTable
from triomq.store.results import RecoveryReport
from triomq.store.watermark import Watermark

FEWEST_OPEN_FILES = 16

MakeLog = Callable[[OpenFiles, Layout, int], StoreLog]


class Contents(Struct, frozen=True):
    """The objects over the files. `open_files` bounds the number of descriptors of all the others."""

    files: Files
    paths: Layout
    open_files: OpenFiles
    log: StoreLog
    queues: QueueTable
    index: Index
    checkpoint: Checkpoint

    @classmethod
    def of(cls, settings: StoreSettings, files: Files, make_log: MakeLog | None = None) -> Contents:
        """Return the contents of the directory in `settings`, without reading it. `make_log` makes another log than
        the plain one."""
        paths = Layout(settings)
        # A file that is read has two descriptors, one of them for its mapping. Half of all are for connections.
        fitting = max(FEWEST_OPEN_FILES, files.descriptor_limit() // 4)
        open_files = OpenFiles(files, min(settings.max_open_files, fitting))
        ext_bytes = settings.mapped_file_size_consume_queue_ext_bytes if settings.enable_consume_queue_ext else 0
        return cls(
            files,
            paths,
            open_files,
            (make_log or CommitLog)(open_files, paths, settings.mapped_file_size_commit_log_bytes),
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
        """The store time in ms of the newest message that is in a queue; 0 if there is none."""
        entry = self.queues.newest_entry()
        return max(0, self.log.store_timestamp_at(entry[0])) if entry is not None else 0


class Marks(Struct, frozen=True):
    """Physical offsets. The log can be read up to `committed`, is in its files up to `written`, and is on disk up to
    `flushed`. Appended messages are in commits up to `accepted`, and count as stored up to `acknowledged`.

    `written`, `accepted` and `acknowledged` are `committed` itself, with two exceptions: a store with a write buffer
    accepts and acknowledges puts before it writes them; the log of a group writes them before they are committed, and
    acknowledges what is committed."""

    committed: Watermark
    written: Watermark
    accepted: Watermark
    acknowledged: Watermark
    flushed: Watermark

    @classmethod
    def of(cls, *, has_buffer: bool, has_quorum: bool = False) -> Marks:
        committed = Watermark()
        written = Watermark() if has_quorum else committed
        accepted = Watermark() if has_buffer else written
        return cls(committed, written, accepted, committed if has_quorum else accepted, Watermark())

    def all(self) -> list[Watermark]:
        """Return each of them once."""
        return list({id(mark): mark for mark in (self.committed, self.written, self.accepted, self.flushed)}.values())


class Opened(Struct, frozen=True):
    """The state of a newly opened store. `log_end` is the end of the log. Up to `synced_end` it is certainly on disk;
    the bytes from there on may be in the page cache only, so the first flush syncs them again. `last_store_timestamp`
    is the store time in ms of the newest message in a queue."""

    report: RecoveryReport
    log_end: int
    synced_end: int
    last_store_timestamp: int
