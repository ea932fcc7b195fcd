"""StoredFile: a table's file in the store's config directory; adapts the tables' text to the store's JsonFile."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import TypeVar

from triomq.store.disk.files import Files
from triomq.store.disk.json_config import JsonFile

T = TypeVar("T")


class StoredFile:
    """One file under `<store>/config/` with its backup (implements TableFile). `takes_loss` as in JsonFile.load."""

    def __init__(self, files: Files, path: str, *, takes_loss: bool = False) -> None:
        self._files = files
        self._path = path
        self._takes_loss = takes_loss

    @property
    def is_absent(self) -> bool:
        """Whether there is neither the file nor its backup."""
        return not self._files.exists(self._path) and not self._files.exists(f"{self._path}.bak")

    def load(self, decode: Callable[[str], T]) -> T | None:
        """Return the result of `decode` for the file or its backup; None without either. Raises
        StoreRefused if there is one and none can be decoded."""
        file = JsonFile(self._files, self._path, lambda data: decode(data.decode()))
        return file.load(takes_loss=self._takes_loss)

    def save(self, text: str) -> None:
        """Replace the content; the old content becomes the backup. Raises OSError with the old file still in place."""
        self.save_pieces([text.encode()])

    def save_pieces(self, pieces: Sequence[bytes]) -> None:
        """Replace the content by an encoded text that comes in pieces; backup and errors are those of `save`."""
        JsonFile(self._files, self._path, _check_whole).save(*pieces)


def _check_whole(data: bytes) -> None:
    """Raise ValueError for a torn file, which ends in zeros or mid-way. A cheap check suffices for that."""
    if not data.rstrip().endswith(b"}"):
        raise ValueError("the file does not end with a closing brace")
