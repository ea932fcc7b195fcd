"""The file of a backup, backup.json: its format, its checks, and how it is written. docs/how-to/backup.md describes it.

A directory with backup.json is complete: that file is written last, under another name first.
"""

from __future__ import annotations

import json
import os

from triomq.admin.errors import AdminError, UsageError

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    Backup = dict[str, Any]

NAME = "backup.json"
FORMAT, VERSION = "mqadmin-backup", 1
MAX_BYTES = 256 * 1024 * 1024
MAX_LINE_BYTES = 64 * 1024 * 1024

# The kinds of the values: {"*": kind} is a table with any names, [kind] a list, a tuple has alternatives.
_ACCOUNTS = {"whiteAddresses": [str], "accounts": [{"*": (str, bool, None, [str])}]}
_BROKER = {
    "settings": {"*": str},
    "topics": {"*": {"*": (str, bool, int, None, {"*": str})}},
    "groups": {"*": {"*": (str, bool, int, None, {"*": str})}},
    "offsets": {"*": {"*": {"*": int}}},
    "acl": (_ACCOUNTS, None),
}
_WHOLE = {
    "format": str,
    "version": int,
    "createdAt": str,
    "nameServers": str,
    "withSecrets": bool,
    "clusters": {"*": [str]},
    "brokers": {"*": _BROKER},
    "kv": {"*": {"*": str}},
    "messages": {"*": {"file": str, "count": int}},
}


def encoded(backup: Backup) -> bytes:
    """Return the text of the file: names in order, so that two files of one state are equal but for their time."""
    return (json.dumps(backup, indent=1, sort_keys=True, ensure_ascii=False) + "\n").encode()


def decoded(data: bytes, name: str) -> Backup:
    """Return the content of a file. Raises UsageError that names what is wrong."""
    try:
        backup: Backup = json.loads(data)
    except (ValueError, RecursionError):
        raise UsageError(f"{name} is not JSON: `mqadmin backup` writes such files") from None
    if not isinstance(backup, dict) or backup.get("format") != FORMAT:
        raise UsageError(f"{name} is not a backup: its format is not {FORMAT!r}")
    if backup.get("version") != VERSION:
        raise UsageError(f"{name} has version {backup.get('version')!r}; this mqadmin reads version {VERSION}")
    _check(backup, _WHOLE, name)
    for broker in backup["brokers"].values():
        for topics in broker["offsets"].values():
            for queues in topics.values():
                if any(not number.isdecimal() or offset < 0 for number, offset in queues.items()):
                    raise UsageError(f"{name}: an offset has a queue number and is at least 0")
    for entry in backup["messages"].values():
        if os.path.basename(entry["file"]) != entry["file"] or entry["file"] in ("", ".", ".."):
            raise UsageError(f"{name}: {entry['file']!r} is not the name of a file in its directory")
    return backup


def _check(value: object, kind: Any, where: str) -> None:
    """Raise UsageError for a value of another kind."""
    if isinstance(kind, tuple):
        for each in kind:
            try:
                _check(value, each, where)
            except UsageError:
                continue
            return
        raise UsageError(f"{where} has the wrong kind of value")
    if isinstance(kind, dict):
        if not isinstance(value, dict):
            raise UsageError(f"{where} must be an object")
        names = value if "*" in kind else kind
        for each in names:
            if each not in value:
                raise UsageError(f"{where} lacks {each!r}")
            _check(value[each], kind.get(each, kind.get("*")), f"{where}: {each}")
    elif isinstance(kind, list):
        if not isinstance(value, list):
            raise UsageError(f"{where} must be a list")
        for number, each in enumerate(value):
            _check(each, kind[0], f"{where}: entry {number}")
    elif not (value is None if kind is None else type(value) is kind):
        raise UsageError(f"{where} must be {'null' if kind is None else kind.__name__}")


# -- files -------------------------------------------------------------------------------------------------------------


def read(directory: str) -> Backup:
    """Return the backup in a directory. Raises AdminError and UsageError."""
    path = os.path.join(directory, NAME)
    try:
        with open(path, "rb") as file:
            data = file.read(MAX_BYTES + 1)
    except OSError as error:
        raise AdminError(f"cannot read {path}: {error.strerror}") from error
    if len(data) > MAX_BYTES:
        raise UsageError(f"{path} has more than {MAX_BYTES} bytes")
    return decoded(data, path)


def make_directory(directory: str) -> None:
    """Make the directory, for its owner alone. Raises AdminError if it is there and not empty."""
    try:
        os.makedirs(directory, mode=0o700, exist_ok=True)
        if os.listdir(directory):
            raise AdminError(f"{directory} is not empty: a backup overwrites nothing, give it a directory of its own")
    except OSError as error:
        raise AdminError(f"cannot make {directory}: {error.strerror}") from error


def write_private(path: str, parts: Iterator[bytes]) -> None:
    """Write a new file that only its owner reads, under another name until it is complete and on the disk."""
    partial = f"{path}.partial"
    try:
        with os.fdopen(os.open(partial, os.O_WRONLY | os.O_CREAT | os.O_EXCL, 0o600), "wb") as file:
            for part in parts:
                file.write(part)
            file.flush()
            os.fsync(file.fileno())
        os.rename(partial, path)
    except OSError as error:
        raise AdminError(f"cannot write {path}: {error.strerror}") from error
