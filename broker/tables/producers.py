"""ProducerTable: which connections belong to which producer group (RocketMQ: ProducerManager).

Filled by heartbeats, emptied by unregistration, closed connections and expiry. The broker needs it to call producers
back: transaction checks go to any producer of a group, replies to the one client that asked. It lives in memory only
and is touched only on the event loop. It never sends anything and knows no request.

Limits: `max_groups` groups and `max_channels` memberships over all groups.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from itertools import islice
from typing import TYPE_CHECKING

from triomq.broker.errors import TableFull
from triomq.broker.tables import entry_costs
from triomq.broker.tables.client_channel import GROUPS_IN_A_STEP, ClientChannel
from triomq.protocol.clock import NowMs
from triomq.remoting.table_memory import TableAccount, TableMemory

if TYPE_CHECKING:
    from triomq.remoting.connection import Connection

MAX_GROUPS = 100_000
MAX_CHANNELS = 1_000_000


class ProducerTable:
    """Producer groups and their connections."""

    def __init__(
        self,
        now_ms: NowMs,
        *,
        max_groups: int = MAX_GROUPS,
        max_channels: int = MAX_CHANNELS,
        account: TableAccount | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._max_groups = max_groups
        self._max_channels = max_channels
        self._channels_by_group: dict[str, dict[Connection, ClientChannel]] = {}
        self._groups_by_connection: dict[Connection, dict[str, None]] = {}  # in the order of joining
        self._connection_by_client_id: dict[str, Connection] = {}
        self._channel_count = 0
        self._text_bytes = 0
        self._next_pick = 0
        self._account = account if account is not None else TableMemory().account("producers")

    def register(self, group: str, connection: Connection, client_id: str, language: int, version: int) -> bool:
        """Record a heartbeat. Return True if the connection is new in the group. Raises TableFull,
        MemoryShort."""
        channels = self._channels_by_group.get(group)
        known = channels.get(connection) if channels is not None else None
        if known is not None:
            known.last_update_ms = self._now_ms()
            return False
        if channels is None and len(self._channels_by_group) >= self._max_groups:
            raise TableFull("producer groups", self._max_groups, f"group {group}")
        if self._channel_count >= self._max_channels:
            raise TableFull("producer connections", self._max_channels, f"client {client_id}")
        text_bytes = entry_costs.TEXT * (len(client_id) + len(group))
        cost = entry_costs.PRODUCER_GROUP + entry_costs.PRODUCER + text_bytes
        self._account.check(cost, f"group {group} of client {client_id}")
        channel = ClientChannel(connection, client_id, language, version, self._now_ms())
        self._channels_by_group.setdefault(group, {})[connection] = channel
        self._groups_by_connection.setdefault(connection, {})[group] = None
        self._connection_by_client_id[client_id] = connection
        self._channel_count += 1
        self._text_bytes += text_bytes
        self._count()
        return True

    def unregister(self, group: str, connection: Connection) -> bool:
        """Remove the connection from the group. Return True if it was a member."""
        channels = self._channels_by_group.get(group)
        channel = channels.pop(connection, None) if channels is not None else None
        if channels is None or channel is None:
            return False
        self._channel_count -= 1
        self._text_bytes -= entry_costs.TEXT * (len(channel.client_id) + len(group))
        if not channels:
            del self._channels_by_group[group]
        self._count()
        groups = self._groups_by_connection[connection]
        del groups[group]
        if not groups:
            del self._groups_by_connection[connection]
            if self._connection_by_client_id.get(channel.client_id) is connection:
                del self._connection_by_client_id[channel.client_id]
        return True

    def _count(self) -> None:
        groups = entry_costs.PRODUCER_GROUP * len(self._channels_by_group)
        self._account.set(groups + entry_costs.PRODUCER * self._channel_count + self._text_bytes)

    def leave(self, connection: Connection, most: int) -> bool:
        """Remove a connection from at most this number of its groups. Return whether it has more."""
        for group in list(islice(self._groups_by_connection.get(connection, ()), most)):
            self.unregister(group, connection)
        return connection in self._groups_by_connection

    def group_count(self, connection: Connection) -> int:
        """Return the number of groups that a connection is in."""
        return len(self._groups_by_connection.get(connection, ()))

    def is_member(self, group: str, connection: Connection) -> bool:
        """Return whether the connection is in the group."""
        return group in self._groups_by_connection.get(connection, ())

    def time_jumped(self, seconds: float) -> None:
        """Shift the clients' timestamps: the clock jumped ahead, but the clients were not silent during the jump."""
        for channels in self._channels_by_group.values():
            for channel in channels.values():
                channel.last_update_ms += int(seconds * 1000)

    def expire(self) -> Iterator[None]:
        """Drop clients without a heartbeat for 120 s and close their connections. An item ends a step."""
        now_ms = self._now_ms()
        for number, (group, channels) in enumerate(list(self._channels_by_group.items()), 1):
            if number % GROUPS_IN_A_STEP == 0:
                yield
            for channel in [each for each in channels.values() if each.is_silent(now_ms)]:
                self.unregister(group, channel.connection)
                channel.connection.close("no heartbeat of the producer for 120 s")

    def pick(self, group: str, suits: Callable[[Connection], bool] | None = None) -> ClientChannel | None:
        """Return a connected member of the group that suits, a different one on each call; None if there is none."""
        channels = self._channels_by_group.get(group)
        if not channels:
            return None
        members = list(channels.values())
        self._next_pick += 1
        for step in range(len(members)):
            channel = members[(self._next_pick + step) % len(members)]
            if channel.connection.is_open and (suits is None or suits(channel.connection)):
                return channel
        return None

    def connection_of_client(self, client_id: str) -> Connection | None:
        """Return the connection of the producer with this `client_id`, for replies."""
        return self._connection_by_client_id.get(client_id)

    def channels(self, group: str) -> list[ClientChannel] | None:
        """Return the members of a group, None if it is unknown."""
        channels = self._channels_by_group.get(group)
        return list(channels.values()) if channels is not None else None

    def items(self) -> Iterator[tuple[str, list[ClientChannel]]]:
        """Return all groups with their members."""
        for group, channels in self._channels_by_group.items():
            yield group, list(channels.values())
