"""Producers, consumers and subscriptions that a client reports: HEART_BEAT and CHECK_CLIENT_CONFIG."""

from __future__ import annotations

from typing import Annotated, Final

import msgspec

from triomq.protocol.bodies.base import Body
from triomq.protocol.bounds import Bound, ClientId, EnumName, EnumOrdinal, GroupName
from triomq.protocol.subscription import SubscriptionData

__all__ = [
    "BROADCASTING",
    "CLUSTERING",
    "CONSUME_ACTIVELY",
    "CONSUME_FROM_FIRST_OFFSET",
    "CONSUME_FROM_LAST_OFFSET",
    "CONSUME_FROM_TIMESTAMP",
    "CONSUME_FROM_WHERES",
    "CONSUME_PASSIVELY",
    "CONSUME_TYPES",
    "MESSAGE_MODELS",
    "CheckClientRequestBody",
    "ConsumerData",
    "HeartbeatData",
    "ProducerData",
    "SubscriptionData",
    "enum_name",
]

CONSUME_ACTIVELY: Final = "CONSUME_ACTIVELY"  # pull
CONSUME_PASSIVELY: Final = "CONSUME_PASSIVELY"  # push
BROADCASTING: Final = "BROADCASTING"
CLUSTERING: Final = "CLUSTERING"
CONSUME_FROM_LAST_OFFSET: Final = "CONSUME_FROM_LAST_OFFSET"
CONSUME_FROM_FIRST_OFFSET: Final = "CONSUME_FROM_FIRST_OFFSET"
CONSUME_FROM_TIMESTAMP: Final = "CONSUME_FROM_TIMESTAMP"


CONSUME_TYPES: Final = (CONSUME_ACTIVELY, CONSUME_PASSIVELY)
MESSAGE_MODELS: Final = (BROADCASTING, CLUSTERING)
CONSUME_FROM_WHERES: Final = (
    CONSUME_FROM_LAST_OFFSET,
    "CONSUME_FROM_LAST_OFFSET_AND_FROM_MIN_WHEN_BOOT_FIRST",
    "CONSUME_FROM_MIN_OFFSET",
    "CONSUME_FROM_MAX_OFFSET",
    CONSUME_FROM_FIRST_OFFSET,
    CONSUME_FROM_TIMESTAMP,
)
"""In the order of Java's enums: some C++ clients send ordinals, which fastjson accepts in place of names."""


_TEST: Final = "tests/broker/test_broker_client_processors.py::test_a_heartbeat_beyond_a_limit_registers_nothing"
_GROUPS: Final = Bound(
    "groups of one client", limit="of consumers and producers", key="maxGroupsPerClient",
    beyond="refused as SYSTEM_BUSY", test=_TEST,
    clients="far beyond one consumer or producer group, the usual one of a client of Java, Go or C++",
)  # fmt: skip
_SUBSCRIPTIONS: Final = Bound(
    "subscriptions of one client", limit="2,000 in all its groups", beyond="refused as SYSTEM_BUSY", test=_TEST,
    clients="far beyond a topic and the retry topic, what a consumer of Java, Go or C++ has of each group",
)  # fmt: skip


def enum_name(value: str | int | None, names: tuple[str, ...], default: str) -> str:
    """Return the name of an enum member given as name or ordinal, or `default` if it is None or unknown."""
    if isinstance(value, int):
        return names[value] if 0 <= value < len(names) else default
    return value if value in names else default


class ConsumerData(Body, frozen=True, kw_only=True):
    """One consumer group of a client. The three enums are names, or ordinals from C++ clients (see `enum_name`)."""

    consume_from_where: EnumName | EnumOrdinal | None = None
    consume_type: EnumName | EnumOrdinal | None = None
    group_name: GroupName = ""
    message_model: EnumName | EnumOrdinal | None = None
    subscription_data_set: Annotated[list[SubscriptionData], _SUBSCRIPTIONS] = []
    unit_mode: bool = False


class ProducerData(Body, frozen=True, kw_only=True):
    """One producer group of a client."""

    group_name: GroupName = ""


class HeartbeatData(Body, frozen=True, kw_only=True):
    """A heartbeat. `client_id` is None if the text lacks it; a broker refuses such a heartbeat."""

    client_id: ClientId | None = msgspec.field(default=None, name="clientID")
    consumer_data_set: Annotated[list[ConsumerData], _GROUPS] = []
    producer_data_set: Annotated[list[ProducerData], _GROUPS] = []


class CheckClientRequestBody(Body, frozen=True, kw_only=True):
    """CHECK_CLIENT_CONFIG: asks the broker whether the expression of a subscription compiles."""

    client_id: ClientId | None = None
    group: GroupName | None = None
    subscription_data: SubscriptionData | None = None
