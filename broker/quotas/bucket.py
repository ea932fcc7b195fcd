"""Bucket: a token bucket. It fills at `rate` tokens a second up to `burst` and passes a request while it holds a token.

A request that passes takes all that it needs at once, also more than there is: the bucket is then in debt, and nothing
passes until that is refilled. So a message larger than the burst passes, too, and in T seconds at most
rate * T + burst pass, and what the last request takes beyond that. A client that stays below the sum without that last
part is never refused.

It refills by the time that has passed whenever it is used, so an idle bucket costs nothing. Pure: the time is
passed in, in seconds.
"""

from __future__ import annotations

from typing import Final

_ROUNDING: Final = 1e-6
"""Tokens by which sums of fractions may be wrong."""


class Bucket:
    """See the module's docstring. A new bucket is full."""

    __slots__ = ("_burst", "_level", "_rate", "_since")

    def __init__(self, rate: float, burst: float, now: float) -> None:
        self._rate = rate
        self._burst = max(1.0, burst)
        self._level = self._burst
        self._since = now

    def wait_seconds(self, now: float) -> float:
        """Return the time until a request passes; 0.0 if one passes now."""
        missing = 1.0 - self._level_at(now)
        return missing / self._rate if missing > _ROUNDING else 0.0

    def take(self, amount: int, now: float) -> None:
        """Take the tokens of a request that passes, or has passed."""
        self._level = self._level_at(now) - amount
        self._since = now

    def used(self, now: float) -> float:
        """Return which part of a full bucket is missing: 0.0 none of it; nothing passes near 1.0 and above."""
        return (self._burst - self._level_at(now)) / self._burst

    def _level_at(self, now: float) -> float:
        return min(self._burst, self._level + max(0.0, now - self._since) * self._rate)
