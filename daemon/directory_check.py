"""Checks for --check whether a daemon could use a directory, without touching it."""

import os
from pathlib import Path


def directory_problem(path: Path) -> str | None:
    """Return why this account could not create files in `path`, or None. For a directory that does not exist yet, the
    nearest existing parent decides."""
    existing = path
    while not existing.exists() and not existing.is_symlink() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is not a directory"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} cannot be written by this account"
    return None
