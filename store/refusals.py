"""The reasons why puts are refused at present: at most one text for each cause.

Each part of the store that has a cause sets its own ("disk", "broken", "closed" ...) and removes it again; no part can
end the refusal of another. A cause that can end without the store's doing, such as a full disk, has a *look*: a put
that is about to be refused looks again first, so the first put after the end of the cause is taken. Only the event
loop's thread touches it.
"""

from __future__ import annotations

from collections.abc import Callable

import trio


class Refusals:
    """`first` is the text of the oldest cause, or None while puts are accepted; every append reads it."""

    def __init__(self) -> None:
        self._texts: dict[str, str] = {}
        self._looks: dict[str, _Look] = {}
        self.first: str | None = None

    def set(self, cause: str, text: str | None) -> None:
        """Refuse puts for this cause; with None, end its refusal."""
        if text is None:
            self._texts.pop(cause, None)
        else:
            self._texts[cause] = text
        self.first = next(iter(self._texts.values()), None)

    def look_with(self, cause: str, look: Callable[[], None], pause_seconds: float = 0.0) -> None:
        """Let puts that this cause refuses call `look`, which sets the cause again or ends it. A look that may wait for
        the disk runs once in `pause_seconds`, however many puts are refused."""
        self._looks[cause] = _Look(look, pause_seconds)

    def after_a_look(self) -> str | None:
        """Look again at every cause that may have ended. Return the text of the oldest that remains, or None."""
        for cause in list(self._texts):
            if cause in self._looks:
                self._looks[cause].run()
        return self.first

    def texts(self) -> dict[str, str]:
        """Return cause -> text, the oldest first."""
        return dict(self._texts)

    def text(self, cause: str) -> str | None:
        """Return the text of a cause, None if it refuses nothing."""
        return self._texts.get(cause)

    def has(self, cause: str) -> bool:
        return cause in self._texts


class _Look:
    """A function that looks at one cause, and when it may run again."""

    __slots__ = ("_due", "_function", "_pause_seconds")

    def __init__(self, function: Callable[[], None], pause_seconds: float) -> None:
        self._function = function
        self._pause_seconds = pause_seconds
        self._due = 0.0

    def run(self) -> None:
        now = trio.current_time()
        if now >= self._due:
            self._due = now + self._pause_seconds
            self._function()
