"""The reasons why puts are refused at present: at most one text for each cause.

Each part of the store that has a cause sets its own ("disk", "broken", "closed" ...) and removes it again; no part can
end the refusal of another. Only the event loop's thread touches it.
"""

from __future__ import annotations


class Refusals:
    """`first` is the text of the oldest cause, or None while puts are accepted; every append reads it."""

    __slots__ = ("_texts", "first")

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self.first: str | None = None

    def set(self, cause: str, text: str | None) -> None:
        """Refuse puts for this cause; with None, end its refusal."""
        if text is None:
            self._texts.pop(cause, None)
        else:
            self._texts[cause] = text
        self.first = next(iter(self._texts.values()), None)

    def texts(self) -> dict[str, str]:
        """Return cause -> text, the oldest first."""
        return dict(self._texts)

    def has(self, cause: str) -> bool:
        return cause in self._texts
