"""The failed attempts of one send: which brokers to leave for last, how long to pause, and what the error says.

A broker that restarts is away for a second or two, much longer than a few refused connections take. So an attempt that
certainly stored nothing does not count as one of the send's `retries`: it is repeated until the send's time limit. An
attempt that may have been stored counts. Both pause, longer each time, before a broker that has failed is tried again;
all others are tried first, without a pause. A broker that responds with a refusal gets none, unless it sheds load.

Holds the failures of one send. May not live here: waiting, sending, routes.
"""

from __future__ import annotations

from triomq.client.core.errors import BrokerRefused, BrokerUnknown, MQClientError, NameServersUnreachable, NoRoute
from triomq.client.core.retry import NOT_READY
from triomq.remoting.errors import ConnectFailed

FIRST_PAUSE_SECONDS = 0.05
LONGEST_PAUSE_SECONDS = 0.5
"""Pauses before a broker that failed is tried again; each is twice as long as the one before (librdkafka:
retry.backoff.ms, retry.backoff.max.ms)."""
BUSY_PAUSE_SECONDS = 0.15
"""The least pause after a broker shed load (SYSTEM_BUSY) or was starting: longer than a broker sheds load after one
slow write."""


def stored_nothing(error: MQClientError) -> bool:
    """Return whether this failed attempt certainly reached no broker, so that repeating it cannot store it twice."""
    if isinstance(error, BrokerUnknown | NoRoute | NameServersUnreachable):
        return True
    return isinstance(error.__cause__, ConnectFailed)


class Failures:
    """See the module's docstring."""

    def __init__(self) -> None:
        self.brokers: set[str] = set()
        """Names of the brokers that failed since the last pause."""
        self.counted = 0
        """Attempts that may have been stored, or were refused."""
        self.last: MQClientError | None = None
        self._attempts: list[str] = []
        self._unreached: dict[str, int] = {}
        self._least_seconds = 0.0
        self._next_seconds = FIRST_PAUSE_SECONDS

    def add(self, broker_name: str, error: MQClientError) -> None:
        """Note how an attempt at a broker failed."""
        self.last = error
        self.brokers.add(broker_name)
        text = f"{broker_name}: {error}"
        if stored_nothing(error):
            self._unreached[text] = self._unreached.get(text, 0) + 1
        else:
            self.counted += 1
            self._attempts.append(text)
        if not isinstance(error, BrokerRefused):
            self._least_seconds = max(self._least_seconds, FIRST_PAUSE_SECONDS)
        elif error.code in NOT_READY:
            self._least_seconds = BUSY_PAUSE_SECONDS

    def add_doubtful(self, broker_name: str) -> None:
        """Note an attempt that was stored, but not as durably as it should be."""
        self.counted += 1
        self.brokers.add(broker_name)

    def pause_before(self, broker_name: str) -> float:
        """Return how many seconds to wait before an attempt at this broker: 0 for one that has not failed, and after
        refusals that a pause does not change. Then every broker has a new chance."""
        if broker_name not in self.brokers:
            return 0.0
        self.brokers.clear()
        if not self._least_seconds:
            return 0.0
        seconds = max(self._next_seconds, self._least_seconds)
        self._next_seconds = min(2 * self._next_seconds, LONGEST_PAUSE_SECONDS)
        self._least_seconds = 0.0
        return seconds

    def texts(self) -> list[str]:
        """Return one text for each counted attempt, then one for each way in which a broker was not reached."""
        return [*self._attempts, *(f"{text} ({count} times)" for text, count in self._unreached.items())]
