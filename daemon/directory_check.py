"""Whether a daemon could use a directory, found out without touching it, for --check."""

import os
from pathlib import Path


def directory_problem(path: Path) -> str | None:
    """Why this account could not create files in `path`, or None. A directory that does not exist yet is judged by the
    nearest one above it that does."""
    existing = path
    while not existing.exists() and not existing.is_symlink() and existing != existing.parent:
        existing = existing.parent
    if not existing.is_dir():
        return f"{existing} is not a directory"
    if not os.access(existing, os.W_OK | os.X_OK):
        return f"{existing} cannot be written by this account"
    return None
