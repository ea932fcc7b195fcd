"""Allowances: what an account, an address or a group may use. Their text is that of the settings and of mqadmin:

    bytesIn=1048576,messagesIn=1000,connections=50

    bytesIn bytesOut           bytes a second in the bodies of sends, and of responses to pulls
    messagesIn messagesOut     messages a second
    connections                at once, of clients that send, consume or send heartbeats
    topicsPerHour              topics that sending or administration creates
    groupsPerHour              subscription groups that consuming or administration creates

A name that is missing has no limit by itself; 0 says that there is none, whatever a more general allowance says. Pure.
"""

from __future__ import annotations

import re
from collections.abc import Mapping
from typing import Final

ACCOUNT: Final = "account"
ADDRESS: Final = "address"
GROUP: Final = "group"

BYTES_IN: Final = "bytesIn"
MESSAGES_IN: Final = "messagesIn"
BYTES_OUT: Final = "bytesOut"
MESSAGES_OUT: Final = "messagesOut"
CONNECTIONS: Final = "connections"
TOPICS: Final = "topicsPerHour"
GROUPS: Final = "groupsPerHour"

RATES: Final = (BYTES_IN, MESSAGES_IN, BYTES_OUT, MESSAGES_OUT)
MAKES: Final = (TOPICS, GROUPS)
QUOTAS: Final = {
    ACCOUNT: (*RATES, CONNECTIONS, *MAKES),
    ADDRESS: (*RATES, CONNECTIONS, *MAKES),
    GROUP: RATES,  # requests only name a group: who is connected, and who creates something, are clients
}
"""Kind -> the quotas that it may have."""

MAX_LIMIT: Final = 1 << 53
MAX_DIGITS: Final = 16
MAX_TEXT: Final = 1000
_SEPARATORS = re.compile(r"[,\s]+")

Allowance = Mapping[str, int]
"""Quota -> limit."""


def parse(text: str, kind: str) -> Allowance:
    """Return the allowance that a text gives to a kind. Raises ValueError saying what is wrong."""
    if len(text) > MAX_TEXT:
        raise ValueError(f"it has {len(text)} characters, {MAX_TEXT} are allowed")
    limits: dict[str, int] = {}
    for part in _SEPARATORS.split(text.strip()):
        if not part:
            continue
        quota, _, value = part.partition("=")
        if quota not in QUOTAS[kind]:
            raise ValueError(f"{quota[:50]!r} is not a quota of this kind; there are {', '.join(QUOTAS[kind])}")
        if not (value.isascii() and value.isdigit() and len(value) <= MAX_DIGITS) or int(value) > MAX_LIMIT:
            raise ValueError(f"{quota} must be a number from 0 to {MAX_LIMIT}, not {value[:50]!r}")
        if quota in limits:
            raise ValueError(f"{quota} is given twice")
        limits[quota] = int(value)
    return limits


def to_text(allowance: Allowance, kind: str) -> str:
    """Return the text that `parse` reads."""
    return ",".join(f"{quota}={allowance[quota]}" for quota in QUOTAS[kind] if quota in allowance)
