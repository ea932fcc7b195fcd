"""Values that are what their constructors received."""

from __future__ import annotations

from typing import Any


class ByArguments:
    """Base of values without fields of their own to compare: equal are those of one class with equal arguments."""

    def _arguments(self) -> tuple[Any, ...]:
        """Return what distinguishes this value from others of its class; it appears in the repr."""
        return ()

    def __eq__(self, other: object) -> bool:
        return isinstance(other, ByArguments) and type(self) is type(other) and self._arguments() == other._arguments()

    def __hash__(self) -> int:
        return hash(type(self))  # an argument may be a list

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(map(repr, self._arguments()))})"
