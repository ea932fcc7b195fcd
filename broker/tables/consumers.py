"""ConsumerTable: the online consumer groups, their members and subscriptions (RocketMQ: ConsumerManager,
ConsumerGroupInfo).

Heartbeats fill it; unregistration, closed connections and expiry empty it. It lives in memory only, and only the event
loop touches it. It sends nothing; three callbacks, given at construction, report changes:

    on_change(group, members)         the members or their subscribed topics changed: the members should rebalance
    on_register(group, subscriptions) every heartbeat of a group
    on_gone(group)                    the last member left

Limits: `max_groups` groups, `max_channels` memberships over all groups, `max_topics_per_group` subscriptions each.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import TYPE_CHECKING, Final, TypeAlias

import structlog

from triomq.broker.errors import TableFull
from triomq.broker.tables import entry_costs
from triomq.broker.tables.client_channel import GROUPS_IN_A_STEP, NEVER, ClientChannel
from triomq.broker.tables.client_channel import Consumption as Consumption
from triomq.broker.tables.member_subscriptions import MOST_KEPT, Shared, Wanted, cost_of, kind_of, wanted_of
from triomq.protocol.clock import NowMs
from triomq.protocol.subscription import SubscriptionData
from triomq.remoting.table_memory import TableAccount, TableMemory

if TYPE_CHECKING:
    from triomq.remoting.connection import Connection

log = structlog.get_logger("triomq.broker.consumers")

MAX_GROUPS = 100_000
MAX_CHANNELS = 1_000_000
MAX_TOPICS_PER_GROUP = 10_000

DISAGREEMENT_MS: Final = 120_000
"""A difference between members is over when no heartbeat has shown it for this long: each sends one every 30 s."""

MOST_SHOWN: Final = 3
MOST_CHARACTERS: Final = 100
"""Of each name and expression in the text about a difference."""

MAX_READERS_PER_GROUP: Final = 2048
"""Queues of which is kept who committed an offset last."""

GroupChanged: TypeAlias = Callable[[str, list[ClientChannel]], None]
GroupRegistered: TypeAlias = Callable[[str, list[SubscriptionData]], None]
GroupGone: TypeAlias = Callable[[str], None]


class ConsumerGroup:
    """One group while it is online. The latest heartbeat determines all of its attributes. `speaker` is the client that
    sent it, `disagreement` what was seen of members with different subscriptions, at `disagreed_ms`. `wanted` is what
    the members subscribe to, each for itself; `readers` has the client that committed an offset of a queue last, and
    when. `changes` counts the changes of `subscriptions`."""

    __slots__ = (
        "changes", "channels", "consumption", "disagreed_ms", "disagreement", "held_bytes", "member_bytes", "name",
        "readers", "speaker", "subscription_bytes", "subscriptions", "wanted",
    )  # fmt: skip

    def __init__(self, name: str) -> None:
        self.name = name
        self.held_bytes = 0
        self.member_bytes = 0
        self.subscription_bytes = 0
        self.changes = 0
        self.consumption = Consumption()
        self.channels: dict[Connection, ClientChannel] = {}
        self.subscriptions: dict[str, SubscriptionData] = {}
        self.speaker = ""
        self.disagreement = ""
        self.disagreed_ms = 0
        self.wanted = Shared()
        self.readers: dict[tuple[str, int], tuple[str, int]] = {}

    def members(self) -> list[ClientChannel]:
        """Return the connected clients."""
        return list(self.channels.values())

    def client_ids(self) -> list[str]:
        """Return the ids of the connected clients, each once: a client that reconnects while its old connection still
        seems open must not count twice when queues are allocated. Nor does one that is leaving."""
        channels = self.channels.values()
        return list(dict.fromkeys(each.client_id for each in channels if each.client_id and each.connection.is_open))

    def member(self, client_id: str) -> ClientChannel | None:
        """Return the connected client with that id, over its newest connection."""
        for channel in reversed(self.channels.values()):
            if channel.client_id == client_id and channel.connection.is_open:
                return channel
        return None

    def disagreement_at(self, now_ms: int) -> str:
        """Return how members subscribe differently now, "" if they agree as far as heartbeats show."""
        return self.disagreement if now_ms - self.disagreed_ms <= DISAGREEMENT_MS else ""

    def compare(self, client_id: str, wanted: list[SubscriptionData], now_ms: int) -> bool:
        """Compare a heartbeat, before it is applied, with what the member before it subscribed to. Return whether it
        shows a difference that was not known."""
        speaker, self.speaker = self.speaker, client_id
        self.disagreement = self.disagreement_at(now_ms)
        if speaker in ("", client_id) or self.has_exactly(wanted):
            return False
        if all(channel.client_id != speaker for channel in self.channels.values()):
            return False  # it has left; this one may be its successor
        is_new = not self.disagreement
        if is_new:
            mine, theirs = self._differences(wanted)
            self.disagreement = (
                f"members of group {_cut(self.name)} subscribe differently: {_cut(client_id)} to {mine}, "
                f"{_cut(speaker)} or others to {theirs}. Messages are lost: give all members the same topics and "
                "expressions, or groups of their own"
            )
        self.disagreed_ms = now_ms
        return is_new

    def has_exactly(self, wanted: list[SubscriptionData]) -> bool:
        """Return whether a heartbeat subscribes to what the group subscribes to, in any version."""
        return all(map(self._agrees, wanted)) and len(wanted) == len(self.subscriptions)

    def heard_again(
        self,
        connection: Connection,
        client_id: str,
        wanted: Wanted,
        subscriptions: list[SubscriptionData],
        now_ms: int,
    ) -> bool:
        """Note a heartbeat that says what the last one of its member said, when the group had exactly that, and brings
        no newer version: nearly all of them. `compare` and `update_subscriptions` would change nothing. Return False,
        with nothing noted, for any other."""
        channel = self.channels.get(connection)
        if channel is None or channel.client_id != client_id or channel.agreed_at != self.changes:
            return False
        if self.disagreement or channel.wanted != wanted:
            return False
        known = self.subscriptions
        for each in subscriptions:
            if each.sub_version > known[each.topic].sub_version:
                return False
        self.speaker = client_id
        channel.last_update_ms = now_ms
        channel.since_ms = _newest(subscriptions)
        return True

    def _agrees(self, wanted: SubscriptionData) -> bool:
        known = self.subscriptions.get(wanted.topic)
        return known is not None and _kind_of(known) == _kind_of(wanted)

    def _differences(self, wanted: list[SubscriptionData]) -> tuple[str, str]:
        """Return what the heartbeat has and the group has not, and the other way round."""
        topics = {each.topic for each in wanted}
        mine = [each for each in wanted if not self._agrees(each)]
        differing = {each.topic for each in mine}
        theirs = [each for name, each in self.subscriptions.items() if name not in topics or name in differing]
        return _listed(mine), _listed(theirs)

    def update_subscriptions(self, wanted: Iterable[SubscriptionData]) -> bool:
        """Apply the subscriptions of a heartbeat. Return True if a topic was added or removed.

        Only a higher sub_version replaces a topic's subscription. If members have different subscriptions, which is an
        operator's mistake, the newest wins.
        """
        topics = set()
        came = False
        for subscription in wanted:
            topics.add(subscription.topic)
            known = self.subscriptions.get(subscription.topic)
            if known is None:
                came = True
            elif subscription.sub_version <= known.sub_version:
                continue
            self.subscriptions[subscription.topic] = subscription
            self.changes += 1
        gone = [topic for topic in self.subscriptions if topic not in topics]
        for topic in gone:
            del self.subscriptions[topic]
            self.changes += 1
        return came or bool(gone)


class ConsumerTable:
    """The online consumer groups."""

    def __init__(
        self,
        now_ms: NowMs,
        *,
        on_change: GroupChanged | None = None,
        on_register: GroupRegistered | None = None,
        on_gone: GroupGone | None = None,
        max_groups: int = MAX_GROUPS,
        max_channels: int = MAX_CHANNELS,
        max_topics_per_group: int = MAX_TOPICS_PER_GROUP,
        account: TableAccount | None = None,
    ) -> None:
        self._now_ms = now_ms
        self._on_change = on_change
        self._on_register = on_register
        self._on_gone = on_gone
        self._max_groups = max_groups
        self._max_channels = max_channels
        self._max_topics_per_group = max_topics_per_group
        self._groups: dict[str, ConsumerGroup] = {}
        self._groups_by_connection: dict[Connection, dict[str, None]] = {}  # in the order of joining
        self._channel_count = 0
        self._held_bytes = 0
        self._account = account if account is not None else TableMemory().account("consumers")

    def get(self, group: str) -> ConsumerGroup | None:
        """Return the group, None if it has no members."""
        return self._groups.get(group)

    def groups(self) -> list[ConsumerGroup]:
        """Return all online groups."""
        return list(self._groups.values())

    def subscription(self, group: str, topic: str) -> SubscriptionData | None:
        """Return the group's subscription to the topic, None if it is not online or does not subscribe to it."""
        found = self._groups.get(group)
        return found.subscriptions.get(topic) if found is not None else None

    def disagreement(self, group: str) -> str:
        """Return what is known of members of the group that subscribe differently; empty if they agree."""
        found = self._groups.get(group)
        return found.disagreement if found is not None else ""

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that subscribe to the topic now."""
        return [name for name, group in self._groups.items() if topic in group.subscriptions]

    def register(
        self,
        group: str,
        connection: Connection,
        client_id: str,
        language: int,
        version: int,
        consumption: Consumption,
        subscriptions: list[SubscriptionData],
        *,
        notify: bool = True,
    ) -> bool:
        """Apply a heartbeat. Return True if the members or the subscribed topics changed. Raises TableFull,
        MemoryShort."""
        entry = self._groups.get(group)
        if entry is None and len(self._groups) >= self._max_groups:
            raise TableFull("consumer groups", self._max_groups, f"group {group}")
        if len(subscriptions) > self._max_topics_per_group:
            raise TableFull(f"subscriptions of group {group}", self._max_topics_per_group, "heartbeat")
        if self._channel_count >= self._max_channels and (entry is None or connection not in entry.channels):
            raise TableFull("consumer connections", self._max_channels, f"client {client_id}")
        wanted = wanted_of(subscriptions)
        if entry is not None and entry.heard_again(connection, client_id, wanted, subscriptions, self._now_ms()):
            entry.consumption = consumption
            if self._on_register is not None:
                self._on_register(group, subscriptions)
            return False
        more = sum(map(_cost_of, subscriptions)) + _cost_of_member(client_id) + cost_of(wanted)
        if more > (entry.held_bytes if entry is not None else 0):
            self._account.check(more, f"group {group} of client {client_id}")
        if entry is None:
            entry = self._groups[group] = ConsumerGroup(group)
        entry.consumption = consumption
        joined = self._note_channel(entry, connection, client_id, language, version)
        _note_wanted(entry, entry.channels[connection], wanted, subscriptions)
        if entry.compare(client_id, subscriptions, self._now_ms()):
            log.warning("different subscriptions found within a group", group=group, reason=entry.disagreement)
        changed = entry.update_subscriptions(subscriptions) or joined
        agrees = len(wanted) <= MOST_KEPT and entry.has_exactly(subscriptions)  # of more, `wanted` lacks some
        entry.channels[connection].agreed_at = entry.changes if agrees else NEVER
        entry.subscription_bytes = sum(map(_cost_of, entry.subscriptions.values()))
        self._count(entry)
        if changed and notify and self._on_change is not None:
            self._on_change(group, entry.members())
        if self._on_register is not None:
            self._on_register(group, subscriptions)
        return changed

    def unregister(self, group: str, connection: Connection, *, notify: bool = True) -> bool:
        """Remove the connection from the group. Return True if it was a member."""
        entry = self._groups.get(group)
        channel = entry.channels.pop(connection, None) if entry is not None else None
        if entry is None or channel is None:
            return False
        self._channel_count -= 1
        entry.member_bytes -= _cost_of_member(channel.client_id)
        entry.wanted.release(channel.wanted)
        groups = self._groups_by_connection[connection]
        del groups[group]
        if not groups:
            del self._groups_by_connection[connection]
        self._count(entry)
        if not entry.channels:
            del self._groups[group]
            if self._on_gone is not None:
                self._on_gone(group)
        elif notify and self._on_change is not None:
            self._on_change(group, entry.members())
        return True

    def committed(self, group: str, connection: Connection, topic: str, queue_id: int) -> None:
        """Note which member committed an offset of a queue; nothing of those who are not members, and of more queues
        than there is room for."""
        entry = self._groups.get(group)
        channel = entry.channels.get(connection) if entry is not None else None
        if entry is None or channel is None:
            return
        key = topic, queue_id
        if key not in entry.readers:
            if len(entry.readers) >= MAX_READERS_PER_GROUP or not self._account.fits(entry_costs.READER):
                return
            self._held_bytes += entry_costs.READER
            entry.held_bytes += entry_costs.READER
            self._account.set(self._held_bytes)
        entry.readers[key] = channel.client_id, self._now_ms()

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
        for group in self._groups.values():
            for channel in group.channels.values():
                channel.last_update_ms += int(seconds * 1000)

    def expire(self) -> Iterator[None]:
        """Drop clients without a heartbeat for 120 s and close their connections. An item ends a step."""
        now_ms = self._now_ms()
        for number, (name, group) in enumerate(list(self._groups.items()), 1):
            if number % GROUPS_IN_A_STEP == 0:
                yield
            for channel in [each for each in group.channels.values() if each.is_silent(now_ms)]:
                self.unregister(name, channel.connection)
                channel.connection.close("no heartbeat of the consumer for 120 s")

    def _count(self, entry: ConsumerGroup) -> None:
        """Compute what the group takes: nothing without members."""
        before = entry.held_bytes
        entry.held_bytes = 0
        if entry.channels:
            entry.held_bytes = entry_costs.CONSUMER_GROUP + entry_costs.TEXT * len(entry.name) + entry.member_bytes
            entry.held_bytes += entry.subscription_bytes + entry_costs.TEXT * len(entry.disagreement)
            entry.held_bytes += entry.wanted.held_bytes + entry_costs.READER * len(entry.readers)
        self._held_bytes += entry.held_bytes - before
        self._account.set(self._held_bytes)

    def _note_channel(
        self, entry: ConsumerGroup, connection: Connection, client_id: str, language: int, version: int
    ) -> bool:
        known = entry.channels.get(connection)
        now_ms = self._now_ms()
        if known is None or known.client_id != client_id:
            entry.member_bytes += _cost_of_member(client_id) - (_cost_of_member(known.client_id) if known else 0)
            wanted = known.wanted if known is not None else entry.wanted.take(())
            entry.channels[connection] = ClientChannel(connection, client_id, language, version, now_ms, wanted)
        else:
            known.last_update_ms = now_ms
        if known is not None:
            return False
        self._groups_by_connection.setdefault(connection, {})[entry.name] = None
        self._channel_count += 1
        return True


def _note_wanted(
    entry: ConsumerGroup, channel: ClientChannel, wanted: Wanted, subscriptions: list[SubscriptionData]
) -> None:
    if channel.wanted != wanted:
        entry.wanted.release(channel.wanted)
        channel.wanted = entry.wanted.take(wanted)
    channel.since_ms = _newest(subscriptions)


def _newest(subscriptions: list[SubscriptionData]) -> int:
    return max([each.sub_version for each in subscriptions], default=0)


def _cost_of(subscription: SubscriptionData) -> int:
    tags = subscription.tags_set
    characters = len(subscription.topic) + len(subscription.sub_string) + sum(map(len, tags))
    items = 1 + len(tags) + len(subscription.code_set)
    return entry_costs.SUBSCRIPTION * items + entry_costs.TEXT * characters


def _cost_of_member(client_id: str) -> int:
    return entry_costs.CONSUMER + entry_costs.TEXT * len(client_id)


def _kind_of(subscription: SubscriptionData) -> tuple[str, str]:
    return kind_of(subscription), subscription.sub_string


def _listed(subscriptions: list[SubscriptionData]) -> str:
    shown = [f"{_cut(each.topic)} {_cut(each.sub_string)!r}" for each in subscriptions[:MOST_SHOWN]]
    more = len(subscriptions) - MOST_SHOWN
    return ", ".join(shown) + (f" and {more} more" if more > 0 else "") if shown else "nothing more"


def _cut(text: str) -> str:
    return text if len(text) <= MOST_CHARACTERS else f"{text[:MOST_CHARACTERS]}..."
