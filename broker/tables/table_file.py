"""TableFile: the interface through which a table loads and saves its JSON text; tests implement it in memory."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Protocol, TypeVar

from triomq.protocol.bodies.base import Body
from triomq.protocol.errors import BodyError

T = TypeVar("T")
B = TypeVar("B", bound=Body)


class TableFile(Protocol):
    """One configuration file with its backup."""

    def load(self, decode: Callable[[str], T]) -> T | None:
        """Return the result of `decode` for the file, or for its backup if the file is missing or unreadable; None
        without either.

        `decode` raises ValueError (or a subclass) for text it cannot decode.
        """

    def save(self, text: str) -> None:
        """Replace the content and keep the old content as backup; after a crash one of the two is whole."""

    def save_pieces(self, pieces: Sequence[bytes]) -> None:
        """Save an encoded text in pieces, as `save` does. A thread writes them and never holds the interpreter
        for long."""


class NoFile:
    """The file of a table that is not persisted: nothing is loaded, and saving does nothing."""

    def load(self, decode: Callable[[str], T]) -> T | None:
        return None

    def save(self, text: str) -> None:
        return None

    def save_pieces(self, pieces: Sequence[bytes]) -> None:
        return None


def decoder(kind: type[B]) -> Callable[[str], B]:
    """Return a `decode` function for records of `kind`."""

    def decode(text: str) -> B:
        try:
            return kind.decode(text.encode())
        except BodyError as error:
            raise ValueError(str(error)) from error

    return decode
