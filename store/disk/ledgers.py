"""The ledgers of members of groups (docs/internals/dledger.md) in a store directory.

<root>/dledger-<id>/data/<20 digits>     the log of a member, instead of commitlog
<root>/dledger-<id>/index/<20 digits>    its index, also if the log lies elsewhere
"""

from __future__ import annotations

from triomq.store.disk.files import Files
from triomq.store.disk.layout import start_offset

_PREFIX = "dledger-"


def ledgers_in(files: Files, root: str) -> list[str]:
    """Return the ids of the members whose ledgers a store directory has. Raises OSError."""
    return [
        name.removeprefix(_PREFIX)
        for name in _names_in(files, root)
        if name.startswith(_PREFIX) and any(has_files(files, f"{root}/{name}/{part}") for part in ("data", "index"))
    ]


def has_files(files: Files, directory: str) -> bool:
    """Return whether a directory has files of the log or the index of a ledger. Raises OSError."""
    return any(start_offset(name) is not None for name in _names_in(files, directory))


def _names_in(files: Files, path: str) -> list[str]:
    try:
        return files.list_directory(path)
    except NotADirectoryError:
        return []
