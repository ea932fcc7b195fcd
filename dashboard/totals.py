"""Totals: the topics and groups of all masters of a cluster, added up when somebody opens a page of them.

A round asks NameServers for the masters, and each master with one request for all that it has (QUERY_BROKER_TOTALS),
all at once, as others.py does; its result is kept for KEPT_SECONDS. Rows are kept by name with the master that said
them, and a page adds up those that it shows. What is read of a response is a step of a few rows.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from dataclasses import dataclass, field
from math import inf
from typing import Final

import trio

from triomq.dashboard.others import (
    KEPT_SECONDS,
    MOST_BROKERS,
    MOST_NAME_SERVERS,
    Asks,
    NameServer,
    Peer,
    ask_cluster,
    asked,
    brokers_of,
    cut,
    dashboard_of,
)
from triomq.protocol.bodies.broker_totals import BrokerTotals, GroupTotals, TopicTotals, documents
from triomq.protocol.codes import RequestCode
from triomq.protocol.errors import BodyError

MOST_ROWS: Final = 100_000
"""Rows of all brokers that are kept: some 40 MiB."""


@dataclass(slots=True)
class Master(Peer):
    """One broker. Figures are sums of its rows, without the broker's own topics and groups of tools."""

    name: str = ""
    is_own: bool = False
    topics: int = 0
    groups: int = 0
    lag: int = 0
    dead_letters: int = 0
    stored_per_second: float = 0.0
    read_per_second: float = 0.0
    left_out: int = 0
    """Topics and groups that it did not send, or that were not kept."""


@dataclass(slots=True)
class TopicSum:
    """`brokers`: how many have it."""

    name: str
    kind: str
    brokers: int
    read_queues: int
    write_queues: int
    messages: int
    per_second: float
    bytes_per_second: float


@dataclass(slots=True)
class GroupSum:
    """`members` counts each client once. `has_all_members` is false if a broker had too many to name: there may be more
    members then. `age_ms` is that of the oldest message at any broker."""

    name: str
    brokers: int
    members: int
    has_all_members: bool
    lag: int
    in_flight: int
    age_ms: int
    per_second: float
    dead_letters: int


@dataclass(slots=True)
class Sums:
    """One round. `problem` says why no NameServer told which masters there are."""

    masters: list[Master] = field(default_factory=list)
    masters_left_out: int = 0
    problem: str = ""
    rows: int = 0
    users_topics: int = 0
    """Names that count, each once, as `users_groups`."""
    users_groups: int = 0
    topics: dict[str, list[tuple[Master, TopicTotals]]] = field(default_factory=dict)
    groups: dict[str, list[tuple[Master, GroupTotals]]] = field(default_factory=dict)

    def topic(self, name: str) -> TopicSum | None:
        """Return the sum of a topic; None if no broker has it."""
        found = [row for _, row in self.topics.get(name, ())]
        if not found:
            return None
        return TopicSum(
            name,
            found[0].kind,
            len(found),
            sum([row.read_queues for row in found]),
            sum([row.write_queues for row in found]),
            sum([row.messages for row in found]),
            round(sum([row.per_second for row in found]), 2),
            round(sum([row.bytes_per_second for row in found]), 2),
        )

    def group(self, name: str) -> GroupSum | None:
        """Return the sum of a group; None if no broker has it."""
        found = [row for _, row in self.groups.get(name, ())]
        if not found:
            return None
        ids = {client_id for row in found for client_id in row.client_ids}
        return GroupSum(
            name,
            len(found),
            max(len(ids), *[row.members for row in found]),
            all(len(row.client_ids) == row.members for row in found),
            sum([row.lag for row in found]),
            sum([row.in_flight for row in found]),
            max([row.age_ms for row in found]),
            round(sum([row.per_second for row in found]), 2),
            sum([row.dead_letters for row in found]),
        )


class Totals:
    """See the module's docstring. `own` makes the documents of this broker, named `name`; it returns None while this
    broker is a slave, which is not asked. `is_shown` says of a topic's kind, and of a group's name, whether it counts
    among the users' own. `here` as in Others."""

    def __init__(
        self,
        client: Asks,
        name_servers: Callable[[], list[str]],
        own: Callable[[], Iterable[BrokerTotals] | None],
        *,
        name: str,
        cluster: str,
        counts: tuple[Callable[[str], bool], Callable[[str], bool]],
        here: str | None,
    ) -> None:
        self._client = client
        self._name_servers = name_servers
        self._own = own
        self._name = name
        self._cluster = cluster
        self._counts_kind, self._counts_group = counts
        self._here = here
        self._lock = trio.Lock()
        self._looked_at = -inf
        self.seen = Sums()

    async def look(self) -> None:
        """Ask, unless the last round is recent enough."""
        async with self._lock:
            if trio.current_time() - self._looked_at >= KEPT_SECONDS:
                self.seen = await self._round()
                self._looked_at = trio.current_time()

    async def _round(self) -> Sums:
        sums = Sums()
        name_servers = [NameServer(address) for address in self._name_servers()[:MOST_NAME_SERVERS]]
        async with trio.open_nursery() as nursery:
            for name_server in name_servers:
                nursery.start_soon(ask_cluster, self._client, name_server)
        infos = [one.known for one in name_servers if one.known is not None]
        if name_servers and not infos:
            sums.problem = name_servers[0].why
        masters = {
            one.name: Master(one.address, name=one.name)
            for one in brokers_of(infos)
            if one.broker_id == 0 and one.cluster == self._cluster
        }
        own = self._own()
        if own is not None:
            masters.pop(self._name, None)
            sums.masters.append(Master("", name=self._name, is_own=True))
        others = list(masters.values())
        sums.masters += others[:MOST_BROKERS]
        sums.masters_left_out = max(0, len(others) - MOST_BROKERS)
        async with trio.open_nursery() as nursery:
            for master in sums.masters:
                if not master.is_own:
                    nursery.start_soon(self._ask, master, sums)
                elif own is not None:
                    nursery.start_soon(self._add_all, master, own, sums)
        return sums

    async def _ask(self, master: Master, sums: Sums) -> None:
        response = await asked(self._client, master, RequestCode.QUERY_BROKER_TOTALS)
        if response is None:
            return
        try:
            await self._add_all(master, documents(response.body), sums)
        except BodyError as error:
            master.why = cut(str(error))

    async def _add_all(self, master: Master, said: Iterable[BrokerTotals], sums: Sums) -> None:
        """Add what a broker says, with other tasks in between."""
        for document in said:
            self._add(master, document, sums)
            await trio.lowlevel.checkpoint()

    def _add(self, master: Master, said: BrokerTotals, sums: Sums) -> None:
        if said.dashboard:
            master.dashboard, master.dashboard_note = dashboard_of(said.dashboard, master.address, self._here)
        master.stored_per_second += said.stored_per_second
        master.read_per_second += said.read_per_second
        master.left_out += said.topics_left_out + said.groups_left_out
        room = max(0, MOST_ROWS - sums.rows)
        topics, groups = said.topics[:room], said.groups[: max(0, room - len(said.topics))]
        master.left_out += len(said.topics) + len(said.groups) - len(topics) - len(groups)
        sums.rows += len(topics) + len(groups)
        for topic in topics:
            parts = sums.topics.setdefault(topic.name, [])
            if any(one is master for one, _ in parts):
                continue  # no broker that works says a name twice
            parts.append((master, topic))
            if self._counts_kind(topic.kind):
                master.topics += 1
                sums.users_topics += len(parts) == 1
        for group in groups:
            found = sums.groups.setdefault(group.name, [])
            if any(one is master for one, _ in found):
                continue
            found.append((master, group))
            if self._counts_group(group.name):
                master.groups += 1
                master.lag += group.lag
                master.dead_letters += group.dead_letters
                sums.users_groups += len(found) == 1
