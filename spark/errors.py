"""The exceptions of this package. Each message is one line that names what is wrong and what to change.

MQSparkError
├── OptionError        an option, schema or column is invalid; nothing was read or written
├── DataLost           messages in the requested range do not exist (any more); see the option failOnDataLoss
├── BrokerError        a broker or name server refused a request, or did not respond in time
│   ├── Unreachable    no name server responds, or none knows the broker at the moment
│   └── SendAborted    a message could not be stored
└── StoreDamaged       a store directory cannot be read as it is
"""

from __future__ import annotations


class MQSparkError(Exception):
    """Base of all exceptions that `triomq.spark` raises on purpose."""


class OptionError(MQSparkError, ValueError):
    """An option, schema or column is invalid; the message names it."""


class DataLost(MQSparkError):
    """Messages in the requested range are gone. With `failOnDataLoss=false` a read continues after the gap."""

    def __init__(self, what: str) -> None:
        super().__init__(f"{what}. Set failOnDataLoss=false to continue without them")


class BrokerError(MQSparkError):
    """A broker or name server refused a request, or did not respond in time. `code`: its response code, 0 without a
    response."""

    def __init__(self, what: str, code: int = 0) -> None:
        super().__init__(what)
        self.code = code


class Unreachable(BrokerError):
    """No name server responds, or none knows the broker at the moment: both may come back."""


class SendAborted(BrokerError):
    """All attempts to store a message failed."""


class StoreDamaged(MQSparkError):
    """Files of a store directory are missing or inconsistent; the message names file and position."""
