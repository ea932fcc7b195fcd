"""What this package raises, named by who is at fault. Every text is one line that says what to change.

MQSparkError
├── OptionError        an option, schema or column is not usable; nothing was read or written
├── DataLost           messages that were asked for are not there (any more); see the option failOnDataLoss
├── BrokerError        a broker or name server refused, or could not be reached in the time allowed
│   ├── Unreachable    no name server responds, or none knows the broker at the moment
│   └── SendAborted    a message could not be stored
└── StoreDamaged       a store directory cannot be read as it is
"""

from __future__ import annotations


class MQSparkError(Exception):
    """Base of everything that `triomq.spark` raises on purpose."""


class OptionError(MQSparkError, ValueError):
    """An option, schema or column that cannot be used; the text names it."""


class DataLost(MQSparkError):
    """Messages that should be read are gone. `failOnDataLoss=false` reads on behind the gap instead."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. Set failOnDataLoss=false to read on without them")


class BrokerError(MQSparkError):
    """A broker or name server refused a request, or did not respond in time. `code`: its response code, 0 without a
    response."""

    def __init__(self, what: str, code: int = 0) -> None:
        super().__init__(what)
        self.code = code


class Unreachable(BrokerError):
    """No name server responds, or none knows the broker at the moment: both may come back."""


class SendAborted(BrokerError):
    """A message could not be stored, after all attempts."""


class StoreDamaged(MQSparkError):
    """Files of a store directory are missing or do not fit together; the text names file and position."""
