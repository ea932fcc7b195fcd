"""How many frames that achieve nothing a peer may send.

Most floods of HTTP/2 (rapid reset, empty frames, PING, SETTINGS, WINDOW_UPDATE of one byte) are frames that the
protocol permits and that cost the receiver more than the sender. An honest peer sends such frames, too, but in
proportion to the work: it answers data with window updates, and cancels what it began. So each of them costs patience,
work gives some back, and so does time (`replenish`, which the owner of the connection calls each second, since nothing
here reads a clock). Who uses it up loses the connection.
"""

from __future__ import annotations

from typing import Final

from triomq.http2.errors import ConnectionFault, ErrorCode

MAX_IDLE_FRAMES: Final = 2000
"""Frames in a burst that achieve nothing. More than the streams of a connection, which all may be reset at once."""
IDLE_FRAMES_PER_SECOND: Final = 400


class Patience:
    """What is left for one peer."""

    def __init__(self) -> None:
        self._left = MAX_IDLE_FRAMES

    def spend(self, count: int, what: str) -> None:
        """Count `count` frames. Raise ConnectionFault if that is one too many."""
        self._left -= count
        if self._left < 0:
            reason = f"too many frames that achieve nothing; the last: {what}"
            raise ConnectionFault(ErrorCode.ENHANCE_YOUR_CALM, reason)

    def earn(self, count: int) -> None:
        """Forgive `count` frames because work was done."""
        self._left = min(self._left + count, MAX_IDLE_FRAMES)

    def replenish(self) -> None:
        """Forgive the frames of a second."""
        self.earn(IDLE_FRAMES_PER_SECOND)
