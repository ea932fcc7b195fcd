"""One client as the producer and consumer tables know it."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from triomq.remoting.connection import Connection

CHANNEL_EXPIRY_MS = 120_000
"""A client without heartbeat for this long is dropped and its connection closed (ProducerManager, ConsumerManager)."""


@dataclass(slots=True, eq=False)
class ClientChannel:
    """A connection with the name its client gave itself. `last_update_ms` is the wall clock of its last heartbeat."""

    connection: Connection
    client_id: str
    language: int
    version: int
    last_update_ms: int

    @property
    def remote_text(self) -> str:
        """ip:port of the client."""
        return self.connection.remote.text
