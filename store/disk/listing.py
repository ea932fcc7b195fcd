"""What of a directory is the store's: the files, or the directories, whose names are those that the store gives.

Everything else (lost+found, what NFS, editors and backups leave) belongs to somebody else. It is named in one line of
the log, and neither read, counted, moved nor deleted. A name of ours counts only with its kind: a directory named like
a log file is not one, nor is a link that leads nowhere.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Final

import structlog

from triomq.protocol.system_topics import is_legal_name
from triomq.store.disk.files import Files, no_access
from triomq.store.errors import StoreRefused

log = structlog.get_logger("triomq.store.directories")

IsOurs = Callable[[str], bool]
_MOST_NAMED: Final = 5


def our_files(files: Files, directory: str, is_ours: IsOurs, *, tells: bool = True) -> list[str]:
    """Return the sorted names of the regular files of ours; a missing directory has none. Without `tells` nothing is
    logged, for a caller that does not open the directory. Raises StoreRefused if it cannot be read."""
    return _ours(files, directory, is_ours, tells, is_directory=False)


def our_directories(files: Files, directory: str, is_ours: IsOurs, *, tells: bool = True) -> list[str]:
    """Return the sorted names of the directories of ours, as `our_files` does."""
    return _ours(files, directory, is_ours, tells, is_directory=True)


def is_topic_directory(name: str) -> bool:
    """Return whether a topic's queues may lie in a directory with this name. Names that brokers make of others begin
    with % and may have what is in those: retry topics the letters of a group, light queues those of a client."""
    return name.startswith("%") or is_legal_name(name)


def is_queue_directory(name: str) -> bool:
    """Return whether this is the name of a queue's directory: its id as the store writes it, so "00" is not."""
    return name.isascii() and name.isdigit() and str(int(name)) == name


def reason(error: Exception) -> str:
    """Return the text of an error for the user of a command, with the cure where access is missing."""
    return no_access(error) if isinstance(error, PermissionError) else str(error)


@contextmanager
def naming_no_access() -> Iterator[None]:
    """Raise StoreRefused with the cure in place of PermissionError."""
    try:
        yield
    except PermissionError as error:
        raise StoreRefused(no_access(error)) from error


def _ours(files: Files, directory: str, is_ours: IsOurs, tells: bool, *, is_directory: bool) -> list[str]:
    try:
        found = files.list_kinds(directory)
    except PermissionError as error:
        raise StoreRefused(no_access(error)) from None
    except NotADirectoryError:
        raise StoreRefused(f"{directory} is not a directory: move it away, the store makes its own") from None
    ours = [name for name, kind in found if kind is is_directory and is_ours(name)]
    if tells and len(ours) < len(found):
        known = frozenset(ours)
        others = [name for name, _ in found if name not in known]
        more = f" and {len(others) - _MOST_NAMED} more" if len(others) > _MOST_NAMED else ""
        names = ", ".join(others[:_MOST_NAMED]) + more
        log.warning("files not of the store left alone", directory=directory, names=names)
    return ours
