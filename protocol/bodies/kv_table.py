"""Maps of text to text: responses to registrations, runtime info, namespaces of the NameServer, its kvConfig.json."""

from __future__ import annotations

from typing import Annotated, Final

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import TableKey, TableValue, in_frame

ORDER_TOPIC_CONFIG: Final = "ORDER_TOPIC_CONFIG"
"""The NameServer's namespace for ordered topics: topic -> "b-a:4;b-b:4"."""


class KVTable(Body, frozen=True, kw_only=True):
    """One table."""

    table: Annotated[dict[TableKey, TableValue], in_frame("ordered topics, and their queues")] = {}


class KVConfigSerializeWrapper(Body, frozen=True, kw_only=True):
    """kvConfig.json: namespace -> key -> value."""

    config_table: dict[str, dict[str, str]] = {}
