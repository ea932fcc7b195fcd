"""A JSON file under config/ that survives crashes (ConfigManager).

Save: write `<name>.tmp` and sync it, keep the present file as `<name>.bak`, rename. Load: `<name>`, or `<name>.bak` if
`<name>` is missing, empty or cannot be parsed. If only broken files are left, that is an error: an empty table would
skip messages or repeat them. A caller that takes the loss begins with an empty one; the files are renamed
(`<name>.broken`), since saving it would destroy the last copy.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Final, Generic, TypeVar

import structlog

from triomq.store.disk.files import Files, no_access
from triomq.store.errors import StoreRefused

log = structlog.get_logger("triomq.store.config")

Table = TypeVar("Table")

WRITE_BYTES: Final = 256 * 1024
"""Small pieces are written together. A thread that joins this much holds no other up."""


class JsonFile(Generic[Table]):
    """One file. `parse` turns bytes into the table and raises any exception for invalid bytes."""

    __slots__ = ("_files", "_parse", "path")

    def __init__(self, files: Files, path: str, parse: Callable[[bytes], Table]) -> None:
        self._files = files
        self._parse = parse
        self.path = path

    def load(self, *, takes_loss: bool = False) -> Table | None:
        """Return the table from the file or its .bak, or None if there is neither. If no whole one is left, return None
        as well if the caller `takes_loss`. Raises OSError; StoreRefused for a loss that is not taken."""
        broken: list[str] = []
        reasons: list[str] = []
        for path in (self.path, f"{self.path}.bak"):
            try:
                data = self._files.read_file(path)
            except FileNotFoundError:
                continue
            except PermissionError as error:
                raise StoreRefused(no_access(error)) from error
            except IsADirectoryError:
                raise StoreRefused(f"{path} is a directory, and a table has this name: move it away") from None
            if not data.strip():
                continue
            try:
                table = self._parse(data)
            except Exception as error:  # a damaged file may make the parser raise anything
                broken.append(path)
                reasons.append(f"{type(error).__name__}: {error}")
                log.error("configuration file not read", path=path, error=reasons[-1])
                continue
            if path != self.path:
                log.warning("configuration file restored from its backup", path=self.path, backup=path)
            return table
        if broken and not takes_loss:
            raise StoreRefused(
                f"neither {self.path} nor {self.path}.bak can be read ({'; '.join(reasons)[:500]}): restore one of "
                "them, or set startWithoutUnreadableTables=true to begin with an empty table, which may skip messages "
                "or repeat them"
            )
        for path in broken:
            self._files.rename(path, f"{path}.broken")
            log.error("damaged file of a table renamed; the table starts empty", path=f"{path}.broken")
        return None

    def peek(self) -> Table | None:
        """Return the table like `load`, for a reader that does not own the file: nothing is logged or renamed."""
        for path in (self.path, f"{self.path}.bak"):
            try:
                return self._parse(self._files.read_file(path))
            except Exception:  # missing or broken: its owner logs that
                continue
        return None

    def save(self, *pieces: bytes) -> None:
        """Replace the file by one that has these pieces. Raises OSError with the old file still in place."""
        directory = self.path.rpartition("/")[0]
        self._files.make_lasting_directories(directory)
        temporary = f"{self.path}.tmp"
        fd = self._files.create(temporary, sum(map(len, pieces)))
        try:
            position = 0
            for data in _joined(pieces):
                self._files.pwrite(fd, data, position)
                position += len(data)
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
        self._keep_backup()
        self._files.rename(temporary, self.path)
        self._files.sync_directory(directory)

    def _keep_backup(self) -> None:
        """Copy the present file to the backup, unless it is missing or cannot be parsed."""
        try:
            present = self._files.read_file(self.path)
            self._parse(present)
        except FileNotFoundError:
            return
        except Exception:
            log.warning("backup not replaced; the present configuration file is damaged", path=self.path)
            return
        temporary = f"{self.path}.bak.tmp"
        fd = self._files.create(temporary, len(present))
        try:
            self._files.pwrite(fd, present, 0)
            self._files.datasync(fd)
        finally:
            self._files.close(fd)
        self._files.rename(temporary, f"{self.path}.bak")


def _joined(pieces: tuple[bytes, ...]) -> Iterator[bytes]:
    """Join small pieces to larger ones."""
    joined: list[bytes] = []
    size = 0
    for piece in pieces:
        joined.append(piece)
        size += len(piece)
        if size >= WRITE_BYTES:
            yield b"".join(joined)
            joined, size = [], 0
    if joined:
        yield b"".join(joined)
