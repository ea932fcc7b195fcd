"""What happens to a live broker whose registration another connection replaces or removes.

RocketMQ's NameServer tells it nothing: if the other one leaves, the topics of that broker have no route until its next
period, up to 30 s. Here the NameServer closes its connection, so it notices, and registers again.
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import cast

import structlog

from triomq.namesrv.brokers import BrokerKey
from triomq.remoting.connection import Connection

log = structlog.get_logger("triomq.namesrv.processor")


def close_displaced(
    before: Iterable[object], after: Iterable[object], connection: Connection, broker: BrokerKey
) -> None:
    """Close the connections that owned a registration of `broker` before the request of `connection`, and no longer do.

    before, after: `RouteTable.owners(broker)`, which are the connections that registered.
    """
    kept = {id(connection), *map(id, after)}
    for owner in cast(Iterable[Connection], before):
        if id(owner) not in kept:
            log.warning(
                "broker disconnected, so that it notices: another connection took its registration",
                name=broker.name,
                id=broker.id,
                address=broker.address,
                broker=owner.remote.text,
                by=connection.remote.text,
            )
            owner.close(f"{connection.remote.text} replaced or removed this broker's registration")
