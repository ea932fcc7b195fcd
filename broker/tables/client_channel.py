"""One client as the producer and consumer tables know it, and how its groups consume."""

from __future__ import annotations

from typing import TYPE_CHECKING

from msgspec import Struct

from triomq.broker.tables.member_subscriptions import Wanted

if TYPE_CHECKING:
    from triomq.remoting.connection import Connection

CHANNEL_EXPIRY_MS = 120_000
"""A client without a heartbeat for this long is dropped and disconnected (ProducerManager, ConsumerManager)."""

GROUPS_IN_A_STEP = 256
"""Groups whose members' heartbeats a step looks at."""


NEVER = -1


class Consumption(Struct, frozen=True):
    """How a group consumes, under RocketMQ's names (ConsumeType, MessageModel, ConsumeFromWhere)."""

    consume_type: str = "CONSUME_PASSIVELY"
    message_model: str = "CLUSTERING"
    consume_from_where: str = "CONSUME_FROM_LAST_OFFSET"


class ClientChannel(Struct, eq=False):
    """A connection and the client id its client chose. `last_update_ms` is the wall-clock time of its last heartbeat.
    A consumer's last heartbeat subscribed to `wanted`, of which the newest part was made at `since_ms` by its clock.
    Its group had exactly that when its `changes` were `agreed_at`, or NEVER."""

    connection: Connection
    client_id: str
    language: int
    version: int
    last_update_ms: int
    wanted: Wanted = ()
    since_ms: int = 0
    agreed_at: int = NEVER

    def is_silent(self, now_ms: int) -> bool:
        """Return whether the last heartbeat was too long ago. A time in the future is of a clock that was set back: it
        counts as now."""
        self.last_update_ms = min(self.last_update_ms, now_ms)
        return now_ms - self.last_update_ms > CHANNEL_EXPIRY_MS

    @property
    def remote_text(self) -> str:
        """Return the client's "ip:port"."""
        return self.connection.remote.text
