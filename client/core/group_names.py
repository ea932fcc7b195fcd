"""Names of producer and consumer groups (RocketMQ: Validators.checkGroup)."""

from __future__ import annotations

import re

from triomq.client.core.errors import ConfigurationError
from triomq.protocol.system_topics import DEFAULT_CONSUMER_GROUP

MAX_GROUP_LENGTH = 255

_LEGAL = re.compile(r"[%|a-zA-Z0-9_-]+")


def check_group(group: str, kind: str) -> None:
    """Raise ConfigurationError for a name that no broker accepts. `kind`: "producer" or "consumer"."""
    if not isinstance(group, str) or not group.strip():
        raise ConfigurationError(f"the {kind} group must have a name, not {group!r}")
    if _LEGAL.fullmatch(group) is None:
        raise ConfigurationError(
            f"the {kind} group {group!r} contains characters other than letters, digits and the four %, |, _ and -"
        )
    if len(group) > MAX_GROUP_LENGTH:
        raise ConfigurationError(
            f"the name of the {kind} group has {len(group)} characters, more than {MAX_GROUP_LENGTH}"
        )
    if kind == "consumer" and group == DEFAULT_CONSUMER_GROUP:
        raise ConfigurationError(f"the consumer group must have a name of its own, not {group!r}")
