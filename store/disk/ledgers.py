"""The ledgers of members of groups (docs/internals/dledger.md) in a store directory.

<root>/dledger-<id>/data/<20 digits>     the log of a member, instead of commitlog
<root>/dledger-<id>/index/<20 digits>    its index, also if the log lies elsewhere
"""

from __future__ import annotations

import re
from typing import Final

from triomq.store.disk.files import Files
from triomq.store.disk.layout import is_offset_name
from triomq.store.disk.listing import our_directories, our_files

_LEDGER: Final = re.compile(r"dledger-(n[0-9]+)")


def members_in(files: Files, root: str) -> list[str]:
    """Return the ids of the members that have a directory in a store directory. A copy, with another name, is none.
    Raises StoreRefused, OSError."""
    names = our_directories(files, root, lambda name: _LEDGER.fullmatch(name) is not None, tells=False)
    return [name.removeprefix("dledger-") for name in names]


def ledgers_in(files: Files, root: str) -> list[str]:
    """Return the ids of the members whose ledgers a store directory has. Raises StoreRefused, OSError."""
    return [
        member
        for member in members_in(files, root)
        if any(has_files(files, f"{root}/dledger-{member}/{part}") for part in ("data", "index"))
    ]


def has_files(files: Files, directory: str) -> bool:
    """Return whether a directory has files of the log or the index of a ledger. Raises StoreRefused, OSError."""
    return bool(our_files(files, directory, is_offset_name, tells=False))
