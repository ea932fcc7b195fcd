"""The sizes of files that a store was made with, as its files tell them: who inspects a directory seldom has the
configuration of its broker."""

from __future__ import annotations

from itertools import pairwise

from triomq.store.disk.files import Files
from triomq.store.disk.layout import Layout, is_index_name, is_offset_name
from triomq.store.disk.listing import is_queue_directory, is_topic_directory, our_directories, our_files
from triomq.store.queues.index_file import ENTRY_BYTES, HEADER_BYTES, SLOT_BYTES

ENTRIES_PER_SLOT = 4
"""As in the defaults, and in each store of an embedded broker."""


def sizes_in(files: Files, layout: Layout) -> dict[str, str]:
    """Return key -> value for the sizes that the files of a store have; nothing for what has no files. Raises
    StoreRefused for a directory that cannot be read."""
    found: dict[str, int] = {}
    log = next((size for each in layout.commit_logs if (size := _file_size(files, each))), 0)
    if log:
        found["mappedFileSizeCommitLog"] = log
    queue = next((size for each in _queue_directories(files, layout) if (size := _file_size(files, each))), 0)
    if queue:
        found["mappedFileSizeConsumeQueue"] = queue
    slots = _slots(files, layout.index)
    if slots:
        found |= {"maxHashSlotNum": slots, "maxIndexNum": slots * ENTRIES_PER_SLOT}
    return {key: str(value) for key, value in found.items()}


def _file_size(files: Files, directory: str) -> int:
    """Return the size of the files of a sequence in bytes, 0 if there is none. Their names are offsets, so two of them
    tell it even if one was cut."""
    names = our_files(files, directory, is_offset_name, tells=False)
    if len(names) > 1:
        return min(int(later) - int(earlier) for earlier, later in pairwise(names))
    return files.path_size(f"{directory}/{names[0]}") if names else 0


def _queue_directories(files: Files, layout: Layout) -> list[str]:
    return [
        f"{layout.queues}/{topic}/{queue_id}"
        for topic in our_directories(files, layout.queues, is_topic_directory, tells=False)
        for queue_id in our_directories(files, f"{layout.queues}/{topic}", is_queue_directory, tells=False)
    ]


def _slots(files: Files, directory: str) -> int:
    """Return the number of slots of index files with four entries for each, 0 if there is no such file."""
    bytes_per_slot = SLOT_BYTES + ENTRIES_PER_SLOT * ENTRY_BYTES
    for name in our_files(files, directory, is_index_name, tells=False):
        slots, rest = divmod(files.path_size(f"{directory}/{name}") - HEADER_BYTES, bytes_per_slot)
        if slots > 0 and not rest:
            return slots
    return 0
