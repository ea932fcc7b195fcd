"""Subscriptions as consumers make them, checked at once, with an error that names the expression."""

from __future__ import annotations

import re

from triomq.client.core.errors import ConfigurationError
from triomq.client.instance.client import Client
from triomq.protocol.subscription import TAG, SubscriptionData, SubscriptionError, build_subscription


def subscription(
    client: Client, wire_topic: str, expression: str, expression_type: str, *, sub_version: int | None = None
) -> SubscriptionData:
    """Return the subscription to a topic (wire name). Its version is the time, unless given. Raises
    ConfigurationError, also for tags that look like a condition: no message would have them."""
    if expression_type == TAG and (wrong := _condition_in(expression)):
        raise ConfigurationError(
            f"subscription to {client.namespace.unwrap(wire_topic)!r}: {wrong!r} is not a tag; did you mean "
            f"subscribe(topic, {expression!r}, sql=True)? Tags are separated by ||"
        )
    version = client.config.now_ms() if sub_version is None else sub_version
    try:
        return build_subscription(wire_topic, expression, expression_type, sub_version=version)
    except SubscriptionError as error:
        raise ConfigurationError(f"subscription to {client.namespace.unwrap(wire_topic)!r}: {error}") from error


# A tag may contain blanks, but hardly these.
_CONDITION = re.compile(r"[<>=]|\b(BETWEEN|IS\s+NULL|IS\s+NOT\s+NULL|IN\s*\()", re.IGNORECASE)


def _condition_in(expression: str) -> str | None:
    """Return what is not a tag but like a SQL92 condition; None if nothing is."""
    return next((tag.strip() for tag in expression.split("||") if _CONDITION.search(tag)), None)
