"""TopicTables: which broker name has which topics, with what queues. Pure.

    tables    broker name -> topic -> TopicQueues
    listing   topic -> names of the brokers that may have it

Only `tables` says what there is. A registration builds the next table of its broker beside the present one and puts it
in its place in one step, whatever its size. `listing` only makes the brokers of a topic quick to find: it has a name
before the table has the topic, and keeps it after a table went away, until `chores` have removed it. Those who look a
topic up ask the tables of the names that it lists.

Most topics differ only in their names, so equal TopicQueues of one registration are one object, and the names of topics
are interned, because all brokers of a cluster have the same.
"""

from __future__ import annotations

import sys
from collections import deque
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from typing import Final

from triomq.namesrv.route_limits import ROUTE_COST, TOPIC_COST, texts_bytes
from triomq.protocol.bodies.registration import TopicQueues, Topics
from triomq.protocol.system_topics import DLQ_PREFIX, RETRY_PREFIX, is_system_topic
from triomq.remoting.table_memory import TableAccount, TableMemory

STEP_TOPICS: Final = 128
"""Topics of one step of a long walk. With four times as many a route that somebody asks for beside a registration of
20,000 topics takes twice as long (benchmarks/README.md, *Under attack*)."""

SEARCHED_TOPICS: Final = 100
"""Topics among which `some` looks for those of applications."""
_OF_GROUPS: Final = (RETRY_PREFIX, DLQ_PREFIX)
_END: Final = object()


def _nothing() -> None:
    pass


class Table:
    """The topics of one broker name. `version` changes with them; a table that was replaced changes no more."""

    __slots__ = ("topics", "version")

    def __init__(self, topics: Topics) -> None:
        self.topics = topics
        self.version = 0


class TopicTables:
    """See the module's docstring. `on_chore` is called when `work` has something to do."""

    def __init__(self, account: TableAccount | None = None) -> None:
        self.tables: dict[str, Table] = {}
        self.route_count = 0  # entries of `_listing`
        self.name_bytes = 0
        self.incoming_account = account if account is not None else TableMemory().account("registrations")
        self._listing: dict[str, str | dict[str, None]] = {}
        self._incoming: dict[str, list[Incoming]] = {}
        self._chores: deque[Iterator[None]] = deque()
        self.on_chore: Callable[[], object] = _nothing

    @property
    def topic_count(self) -> int:
        return len(self._listing)

    @property
    def has_chores(self) -> bool:
        return bool(self._chores)

    def work(self) -> None:
        """Do a step of what is left to do."""
        chore = self._chores.popleft()
        if next(chore, _END) is not _END:
            self._chores.append(chore)

    def do(self, chore: Iterator[None]) -> None:
        """Do the first step of a chore now, and the others later. A short one has no others."""
        if next(chore, _END) is not _END:
            self._chores.append(chore)
            self.on_chore()

    # What is there.

    def get(self, name: str, topic: str) -> TopicQueues | None:
        table = self.tables.get(name)
        return table.topics.get(topic) if table is not None else None

    def names(self, topic: str) -> list[str]:
        """Return the brokers that have the topic, in the order in which they got it."""
        listed = self._listing.get(topic)
        if listed is None:
            return []
        return [name for name in ((listed,) if isinstance(listed, str) else listed) if self.get(name, topic)]

    def topics(self) -> list[str]:
        """Return all topics that a broker has."""
        if self._chores or self._incoming:
            return [topic for topic in self._listing if self.names(topic)]
        return list(self._listing)

    def unlisted(self, topics: Iterable[str]) -> list[str]:
        """Return the topics that no broker has, had until now, or is about to get."""
        return [topic for topic in topics if topic not in self._listing]

    # Changes.

    def enter(self, name: str, topics: Topics) -> None:
        """Add these topics to a broker, or change them."""
        table = self.tables.get(name)
        if table is None:
            table = self.tables[name] = Table({})
        self.list(name, [topic for topic in topics if topic not in table.topics])
        table.topics.update(topics)
        table.version += 1

    def replace(self, name: str, topics: Topics) -> None:
        """Put a new table into the place of a broker's present one. Its topics are listed."""
        self.tables[name] = Table(topics)

    def delete(self, name: str, topic: str) -> None:
        """Remove a topic of a broker, if it is there."""
        table = self.tables.get(name)
        if table is not None and table.topics.pop(topic, None) is not None:
            table.version += 1
            self._unlist(name, topic)

    def some(self, name: str, most: int) -> tuple[str, ...]:
        """Return some topics that applications have at a broker, at most as many."""
        table = self.tables.get(name)
        first = islice(table.topics if table is not None else (), SEARCHED_TOPICS)
        made = (
            each for each in first if each != name and not is_system_topic(each) and not each.startswith(_OF_GROUPS)
        )
        return tuple(islice(made, most))

    def remove(self, name: str) -> None:
        """Remove a broker's whole table. What lists it goes later, if it is long."""
        table = self.tables.pop(name, None)
        if table is not None:
            table.version += 1
            self.do(self.unlisting(name, table.topics))

    def list(self, name: str, topics: Iterable[str]) -> None:
        listing = self._listing
        for topic in topics:
            listed = listing.get(topic)
            if listed is None:
                listing[topic] = name
                self.name_bytes += texts_bytes((topic,))
            elif isinstance(listed, str):
                if listed == name:
                    continue
                listing[topic] = {listed: None, name: None}
            elif name in listed:
                continue
            else:
                listed[name] = None
            self.route_count += 1

    def unlisting(self, name: str, topics: Topics) -> Iterator[None]:
        """Remove a broker from the listing of these topics, in steps. It stays where it has the topic again."""
        while topics:
            for _ in range(min(len(topics), STEP_TOPICS)):
                topic, _queues = topics.popitem()
                self._unlist(name, topic)
            if topics:
                yield

    def _unlist(self, name: str, topic: str) -> None:
        if self.get(name, topic) or any(topic in one.changes for one in self._incoming.get(name, ())):
            return
        listed = self._listing.get(topic)
        if listed == name:
            del self._listing[topic]
            self.name_bytes -= texts_bytes((topic,))
        elif isinstance(listed, dict) and name in listed:
            del listed[name]
            if len(listed) == 1:
                self._listing[topic] = next(iter(listed))
        else:
            return
        self.route_count -= 1

    def arrives(self, incoming: Incoming) -> None:
        self._incoming.setdefault(incoming.name, []).append(incoming)

    def leaves(self, incoming: Incoming) -> None:
        """The registration has ended. What it listed and did not enter goes."""
        present = self._incoming[incoming.name]
        present.remove(incoming)
        if not present:
            del self._incoming[incoming.name]
        incoming.reserve(0)
        if incoming.changes:
            self.do(self.unlisting(incoming.name, incoming.changes))


class Incoming:
    """The topics of a registration that is read in parts, and what they change.

    Only what differs from the broker's table at the beginning (`is_current`) is kept. Call `end` in the end."""

    def __init__(self, tables: TopicTables, name: str) -> None:
        self.name = name
        self.changes: Topics = {}
        self.count = self.new_topics = self.new_routes = self.new_bytes = 0
        self._tables = tables
        self._reserved = 0
        self._shared: dict[TopicQueues, TopicQueues] = {}
        self._next: Topics | None = None
        self._table = tables.tables.get(name)
        self._version = self._table.version if self._table is not None else 0
        tables.arrives(self)

    def end(self) -> None:
        self._tables.leaves(self)

    @property
    def is_current(self) -> bool:
        """Return whether the broker's table is still as it was when this registration began."""
        table = self._tables.tables.get(self.name)
        return table is self._table and (table is None or table.version == self._version)

    def add(self, part: Topics) -> None:
        """Take a part. Raises MemoryShort."""
        self.count += len(part)
        before: Topics = self._table.topics if self._table is not None else {}
        if part.items() <= before.items() and not self.changes:
            return
        changes = self.changes
        fresh = part
        if before:
            fresh = {topic: queues for topic, queues in part.items() if topic in changes or before.get(topic) != queues}
        new = [topic for topic in fresh if topic not in before and topic not in changes]
        unlisted = self._tables.unlisted(new)
        self.new_routes += len(new)
        self.new_topics += len(unlisted)
        self.new_bytes += texts_bytes(unlisted)
        share = self._shared.setdefault
        changes.update(zip(map(sys.intern, fresh), map(share, fresh.values(), fresh.values()), strict=True))
        self.reserve(self._reserved + ROUTE_COST * len(fresh) + texts_bytes(fresh))

    def reserve(self, count: int) -> None:
        """Take this number of bytes of the memory of tables, until they are entered. Raises MemoryShort."""
        account = self._tables.incoming_account
        if count > self._reserved:
            account.check(count - self._reserved, f"registration of broker {self.name} with {self.count} topics")
        account.set(account.held_bytes + count - self._reserved)
        self._reserved = count

    def prepare(self) -> Iterator[None]:
        """List what is new and build the next table, in steps. Then `commit` is one step."""
        before: Topics = self._table.topics if self._table is not None else {}
        topics = iter(self.changes)
        while chunk := list(islice(topics, STEP_TOPICS)):
            self._tables.list(self.name, [topic for topic in chunk if topic not in before])
            if len(chunk) == STEP_TOPICS:
                yield
        if len(self.changes) > STEP_TOPICS and before:
            self._next = before.copy()
            items = iter(self.changes.items())
            while part := dict(islice(items, STEP_TOPICS)):
                self._next.update(part)
                yield

    def commit(self) -> bool:
        """Make the changes, in one step, if `is_current`. Return whether there are any."""
        changes, self.changes = self.changes, {}
        if not changes:
            return False
        if self._next is not None:
            self._tables.replace(self.name, self._next)
        elif self._table is None:
            self._tables.replace(self.name, changes)
        else:
            self._tables.enter(self.name, changes)
        return True


def route_memory(topics: TopicTables) -> int:
    """Return about the memory of all tables."""
    return TOPIC_COST * topics.topic_count + ROUTE_COST * topics.route_count + topics.name_bytes
