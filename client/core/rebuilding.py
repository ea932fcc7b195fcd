"""Errors that survive `pickle` and `copy`, although their constructors take other arguments than the text.

Python rebuilds an exception by calling its class with its `args`. In a worker of multiprocessing or concurrent.futures
such an error would break the pool instead of reaching the caller.
"""

from __future__ import annotations

from typing import Any


class Rebuilt(Exception):
    """Base of errors that are rebuilt from their text and attributes; the `__cause__` stays behind."""

    def __reduce__(self) -> tuple[Any, ...]:
        return rebuild, (type(self), self.args), self.__dict__

    def __eq__(self, other: object) -> bool:
        return type(self) is type(other) and self.args == other.args and self.__dict__ == other.__dict__

    def __hash__(self) -> int:
        return hash((type(self), self.args))


def rebuild(kind: type[Rebuilt], args: tuple[Any, ...]) -> Rebuilt:
    """Return an error without calling its constructor."""
    return kind.__new__(kind, *args)
