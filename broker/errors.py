"""Errors of the broker, named by who is at fault and whether the connection survives.

RequestRefused (protocol)
├── TableFull              a table reached its limit: answered with SYSTEM_BUSY, the connection survives
├── TableTooLarge          likewise, by the size of the table when it is sent
├── TooManyFailures        an address signed wrongly too often: answered with SYSTEM_BUSY, the connection survives
├── QuotaExceeded          a quota is used up for now: answered with SYSTEM_BUSY, the connection survives
├── NotReplicated          no quorum of the group is known to have a change: it may take effect, or not
├── TransactionEnded       END_TRANSACTION contradicts how the transaction ended, or that is no longer known
└── (others are raised as RequestRefused with RocketMQ's code and remark)
FilterError                an SQL92 expression does not compile
EvaluationError            an SQL92 expression cannot be evaluated: the message does not match
AccessDenied               the ACL refuses a request: answered with SYSTEM_ERROR as RocketMQ does
"""

from __future__ import annotations

import math

from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused


class TableFull(RequestRefused):
    """A table of the broker is full; the text names the table and the limit."""

    def __init__(self, table: str, limit: int, what: str) -> None:
        super().__init__(
            ResponseCode.SYSTEM_BUSY,
            f"the broker's table of {table} is full ({limit} entries), {what} refused; remove unused ones or spread "
            "the clients over more brokers",
        )


class TableTooLarge(RequestRefused):
    """A table of the broker has no room for another entry: it would take too much memory, or not fit into one frame."""

    def __init__(self, table: str, key: str, limit_bytes: int, what: str) -> None:
        super().__init__(
            ResponseCode.SYSTEM_BUSY,
            f"the broker's table of {table} is full ({limit_bytes} bytes, the limit {key}), {what} refused; "
            "remove unused ones or spread the clients over more brokers",
        )


class TooManyFailures(RequestRefused):
    """An address signed wrongly for an account too often; the text says how long it has to wait."""

    def __init__(self, access_key: str, ip: str, seconds: float) -> None:
        super().__init__(
            ResponseCode.SYSTEM_BUSY,
            f"too many wrong signatures for accessKey={access_key} from {ip}: correct the secret key of the clients "
            f"there and wait {math.ceil(seconds)} s (aclFailuresPerMinute)",
        )


class QuotaExceeded(RequestRefused):
    """An account, an address or a group has used up a quota; the text names it, its limit, and the time to wait."""

    def __init__(self, remark: str) -> None:
        super().__init__(ResponseCode.SYSTEM_BUSY, remark)


class NotReplicated(RequestRefused):
    """A change of a table in a group is not known to be on a quorum: the client asks again."""

    def __init__(self, reason: str) -> None:
        super().__init__(ResponseCode.SERVICE_NOT_AVAILABLE, f"the change may take effect, or not: {reason}; try again")


class TransactionEnded(RequestRefused):
    """A producer ends a transaction in another way than it ended already, or long after it was checked."""

    def __init__(self, reason: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, reason)


class FilterError(ValueError):
    """An SQL92 expression does not compile; the text gives the place and the reason."""


class EvaluationError(ValueError):
    """The expression cannot be evaluated with the properties of this message."""


class AccessDenied(RequestRefused):
    """The ACL refuses a request. The remark keeps the form that Java clients and tools know."""

    def __init__(self, reason: str) -> None:
        super().__init__(ResponseCode.SYSTEM_ERROR, f"org.apache.rocketmq.acl.common.AclException: {reason}")
        self.reason = reason
