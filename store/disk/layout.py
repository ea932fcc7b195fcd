"""The paths in a store directory, and the names of its files.

<root>/commitlog/<20 digits>                         start physical offset
<root>/consumequeue/<topic>/<queueId>/<20 digits>    start byte offset in the queue
<root>/consumequeue_ext/<topic>/<queueId>/<20 digits>
<root>/index/<yyyyMMddHHmmssSSS>                     local creation time
<root>/checkpoint   abort   lock   config/*.json
<root>/queuenote                                     ours: what a clean exit knew of the queues (queue_note.py)
<root>/queueends                                     ours: ends of queues whose files are being made again
<root>/unfinished                                    ours: a conversion into the directory has not ended
<root>/salvage/<20 digits>.bin                       ours: damaged log bytes that recovery took out (salvage.py)
<root>/salvage/<20 digits>-<end>.tail                ours: ends of the log that a slave cut (tail_cut.py)
"""

from __future__ import annotations

from datetime import datetime

from triomq.store.config import StoreSettings

NAME_DIGITS = 20
_INDEX_NAME_DIGITS = 17


class Layout:
    """The paths of one store, as text. Nothing here accesses a disk."""

    def __init__(self, settings: StoreSettings) -> None:
        root = settings.store_path_root_dir.rstrip("/") or "/"
        self.root = root
        self.commit_logs = paths_in(settings.store_path_commit_log) or [f"{root}/commitlog"]
        self.read_only_commit_logs = paths_in(settings.read_only_commit_log_store_paths)
        self.queues = f"{root}/consumequeue"
        self.queues_ext = f"{root}/consumequeue_ext"
        self.queue_note = f"{root}/queuenote"
        self.queue_ends = f"{root}/queueends"
        self.index = f"{root}/index"
        self.checkpoint = f"{root}/checkpoint"
        self.abort = f"{root}/abort"
        self.lock = f"{root}/lock"
        self.config = f"{root}/config"
        self.salvage = f"{root}/salvage"
        self.unfinished = f"{root}/unfinished"
        self.archive_mark = f"{self.config}/archived.json"

    def queue(self, topic: str, queue_id: int) -> str:
        return f"{self.queues}/{topic}/{queue_id}"

    def queue_ext(self, topic: str, queue_id: int) -> str:
        return f"{self.queues_ext}/{topic}/{queue_id}"


def paths_in(text: str | None) -> list[str]:
    """Return the directories of a setting that may be a list, without slashes at their ends."""
    return [path.strip().rstrip("/") for path in (text or "").split(",") if path.strip()]


def file_name(start_offset: int) -> str:
    """Return the name of a log or queue file that starts at this offset."""
    return f"{start_offset:0{NAME_DIGITS}d}"


def is_offset_name(name: str) -> bool:
    """Return whether this is the name of a log or queue file: the offset at which it starts."""
    return len(name) == NAME_DIGITS and name.isascii() and name.isdigit()


def index_name(now_ms: int) -> str:
    """Return the name of an index file created at `now_ms`, in local time."""
    return f"{datetime.fromtimestamp(now_ms // 1000):%Y%m%d%H%M%S}{now_ms % 1000:03d}"


def is_index_name(name: str) -> bool:
    """Return whether this is the name of an index file: digits that are a time."""
    if len(name) != _INDEX_NAME_DIGITS or not name.isascii() or not name.isdigit():
        return False
    try:
        month, day, hour, minute, second = [int(name[at : at + 2]) for at in range(4, 14, 2)]
        datetime(int(name[:4]), month, day, hour, minute, second)
    except ValueError:
        return False
    return True
