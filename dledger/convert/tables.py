"""What a conversion takes over beside the log: the tables of the broker, and where its empty queues end."""

from __future__ import annotations

from typing import Final

from triomq.protocol.system_topics import LMQ_PREFIX
from triomq.store.config import StoreSettings
from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout
from triomq.store.disk.listing import our_files
from triomq.store.disk.mapped_file import OpenFiles
from triomq.store.queues.queue_table import QueueTable

_OPEN_FILES: Final = 64
_ABOUT_THE_LOG: Final = ("archived.json", "copied.json")
"""Tables of physical offsets: how far an archive is, and which part of the log came from a master."""


def copy_tables(files: Files, source: str, target: str) -> None:
    """Copy the tables of a broker and their backups, and bring them to disk. Raises StoreRefused, OSError."""
    files.make_lasting_directories(target)
    for name in our_files(files, source, _is_table):
        if not name.startswith(_ABOUT_THE_LOG):
            data = files.read_file(f"{source}/{name}")
            fd = files.create(f"{target}/{name}", len(data))
            try:
                files.pwrite(fd, data, 0)
                files.datasync(fd)
            finally:
                files.close(fd)
    files.sync_directory(target)


def _is_table(name: str) -> bool:
    return name.endswith((".json", ".json.bak")) and not name.startswith(".")


def keep_ends(settings: StoreSettings, files: Files, ends: dict[tuple[str, int], int]) -> None:
    """Make queues without messages, each with the next queue offset that it had. Light queues, whose messages are those
    of other queues, are left to the recovery. Raises OSError."""
    pool = OpenFiles(files, _OPEN_FILES)
    ext_bytes = settings.mapped_file_size_consume_queue_ext_bytes if settings.enable_consume_queue_ext else 0
    queues = QueueTable(pool, files, Layout(settings), settings.mapped_file_size_consume_queue_bytes, ext_bytes)
    try:
        for (topic, queue_id), end in ends.items():
            if topic.startswith(LMQ_PREFIX):
                continue
            queue = queues.get(topic, queue_id)
            files.make_lasting_directories(Layout(settings).queue(topic, queue_id))
            queue.keep_end(end)
            queue.write(set())
            for file in queue.sequence.files:
                files.datasync(file.fd())
            files.sync_directory(Layout(settings).queue(topic, queue_id))
    finally:
        pool.close_all()
