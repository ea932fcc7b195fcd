"""Subscriptions as consumers make them, checked at once, with an error that names the expression."""

from __future__ import annotations

from triomq.client.core.errors import ConfigurationError
from triomq.client.instance.client import Client
from triomq.protocol.subscription import SubscriptionData, SubscriptionError, build_subscription


def subscription(
    client: Client, wire_topic: str, expression: str, expression_type: str, *, sub_version: int | None = None
) -> SubscriptionData:
    """Return the subscription to a topic (wire name). Its version is the time, unless given. Raises
    ConfigurationError."""
    version = client.config.now_ms() if sub_version is None else sub_version
    try:
        return build_subscription(wire_topic, expression, expression_type, sub_version=version)
    except SubscriptionError as error:
        raise ConfigurationError(f"subscription to {client.namespace.unwrap(wire_topic)!r}: {error}") from error
