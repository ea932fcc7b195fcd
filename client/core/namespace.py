"""Namespaces: a prefix on topics and groups that keeps tenants apart (RocketMQ: NamespaceUtil). Pure text.

orders              <->  INST_1%orders
%RETRY%group        <->  %RETRY%INST_1%group
system names stay as they are
"""

from __future__ import annotations

from triomq.protocol import system_topics

SEPARATOR = "%"


class Namespace:
    """Adds the prefix (`wrap`) and removes it (`unwrap`); without a name both do nothing."""

    def __init__(self, name: str | None = None) -> None:
        self.name = name or None

    def wrap(self, resource: str) -> str:
        """Return the name that brokers know. Names that have the prefix already, and system names, stay."""
        if self.name is None or not resource or _is_system(resource):
            return resource
        kind, bare = _split_kind(resource)
        prefix = self.name + SEPARATOR
        return resource if bare.startswith(prefix) else f"{kind}{prefix}{bare}"

    def unwrap(self, resource: str) -> str:
        """Return the name that the application knows."""
        if self.name is None:
            return resource
        kind, bare = _split_kind(resource)
        return kind + bare.removeprefix(self.name + SEPARATOR)


def _split_kind(resource: str) -> tuple[str, str]:
    for kind in (system_topics.RETRY_PREFIX, system_topics.DLQ_PREFIX):
        if resource.startswith(kind):
            return kind, resource[len(kind) :]
    return "", resource


def _is_system(resource: str) -> bool:
    return (
        system_topics.is_system_topic(resource)
        or resource in system_topics.SYSTEM_GROUPS
        or resource.startswith(system_topics.SYSTEM_GROUP_PREFIX)
        or resource == system_topics.CLIENT_INNER_PRODUCER_GROUP
    )
