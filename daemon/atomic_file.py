"""Small files that are replaced atomically, never written in place (RocketMQ: MixAll.string2File)."""

import os
import shutil
import stat
from collections.abc import Iterable
from pathlib import Path


def write_atomically(path: Path, data: bytes | Iterable[bytes]) -> None:
    """Replace a file so that a crash leaves either the old or the new content. Keep the old content as <name>.bak.

    `data` may come in pieces, so that nothing large is copied while other threads wait for the interpreter.
    The new file has the permissions of the old one, since configuration files may hold passwords.
    """
    path.parent.mkdir(parents=True, exist_ok=True)
    temporary = path.with_name(path.name + ".tmp")
    with temporary.open("wb") as stream:
        if path.exists():
            os.fchmod(stream.fileno(), stat.S_IMODE(path.stat().st_mode))
        stream.writelines((data,) if isinstance(data, bytes) else data)
        stream.flush()
        os.fsync(stream.fileno())
    if path.exists():
        backup = path.with_name(path.name + ".bak")
        backup.unlink(missing_ok=True)
        try:
            os.link(path, backup)
        except OSError:
            shutil.copy(path, backup)  # a file system without hard links
    temporary.replace(path)
    directory = os.open(path.parent, os.O_RDONLY)
    try:
        os.fsync(directory)
    finally:
        os.close(directory)
