"""OffsetTable: how far each consumer group has consumed each queue (RocketMQ: ConsumerOffsetManager).

Clients commit into it, and the broker itself for its transaction checks. Only the event loop touches it. A task
persists it in consumerOffset.json every few seconds: after a crash groups consume those seconds again. What it names is
on disk before the file is, or a power failure would leave groups behind messages that they never got.

An entry has the key "topic@group", as in the file, and maps queue id to the queue offset of the next message to
consume. Two indexes return the topics of a group and the groups of a topic without a walk over all entries. A commit
may move an offset backwards or name an unknown topic, because that is how offsets are reset. With `enable_lmq`, groups
whose name begins with %LMQ% have one offset per topic, kept separately.

Limits: `max_entries` entries, `max_queues_per_entry` queues in each, and `max_table_bytes` of the table as it is sent,
since a slave fetches it in one frame. A table that a file brings above a limit stays; only new entries and queues are
refused. Names have RocketMQ's longest lengths.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping
from typing import Final

import msgspec
import structlog
import trio

from triomq.broker.errors import TableFull, TableTooLarge
from triomq.broker.tables import entry_costs
from triomq.broker.tables.fragments import Fragments, compact, member
from triomq.broker.tables.logged import LogOfTable
from triomq.broker.tables.table_file import NoFile, TableFile, decoder
from triomq.broker.tables.write_behind import Covered, WriteBehind
from triomq.protocol.bodies.fastjson import dumps, dumps_pretty
from triomq.protocol.bodies.offset import ConsumerOffsetSerializeWrapper
from triomq.protocol.system_topics import check_group_length, check_topic_length, is_lmq
from triomq.remoting.table_memory import TableAccount, TableMemory
from triomq.store.disk.worker_thread import Offload

log = structlog.get_logger("triomq.broker.offsets")

NO_OFFSET = -1
MAX_ENTRIES = 1_000_000
MAX_QUEUES_PER_ENTRY = 65_536
MAX_TABLE_BYTES = 15 * 1024**2
ENTRIES_IN_A_STEP: Final = 128
"""Entries that are rendered in half a millisecond when each has a few queues."""
_ENTRY_BYTES = 4
_QUEUE_BYTES = 33
"""No entry takes more besides its key, and no queue: an Int32, a colon, an Int64 and a comma."""


class OffsetTable:
    """Consumer offsets of all groups."""

    def __init__(
        self,
        file: TableFile | None = None,
        *,
        enable_lmq: bool = False,
        max_entries: int = MAX_ENTRIES,
        max_queues_per_entry: int = MAX_QUEUES_PER_ENTRY,
        max_table_bytes: Callable[[], int] = lambda: MAX_TABLE_BYTES,
        account: TableAccount | None = None,
        covered: Covered | None = None,
        offload: Offload = trio.to_thread.run_sync,
    ) -> None:
        """`covered` as in WriteBehind: the file, which `offload` writes, is never ahead of the log."""
        self._offload = offload
        self._file = file if file is not None else NoFile()
        self._enable_lmq = enable_lmq
        self._max_entries = max_entries
        self._max_queues_per_entry = max_queues_per_entry
        self._max_table_bytes = max_table_bytes
        self._account = account if account is not None else TableMemory().account("consumer offsets")
        self.sent_bytes = 0
        self._entries: dict[str, dict[int, int]] = {}
        self._lmq_entries: dict[str, int] = {}
        self._topics_by_group: dict[str, set[str]] = {}
        self._groups_by_topic: dict[str, set[str]] = {}
        self._fragments: Fragments[str] = Fragments(self._entry_text, ENTRIES_IN_A_STEP)
        self._writer = WriteBehind(self._file, self._pieces, self._fragments.render, covered)
        self._persisting = trio.Lock()
        self.log: LogOfTable | None = None

    # -- reading -----------------------------------------------------------------------------------------------------

    def query(self, group: str, topic: str, queue_id: int) -> int:
        """Return the committed queue offset, -1 if there is none."""
        key = f"{topic}@{group}"
        if self._enable_lmq and is_lmq(group):
            return self._lmq_entries.get(key, NO_OFFSET)
        entry = self._entries.get(key)
        return entry.get(queue_id, NO_OFFSET) if entry is not None else NO_OFFSET

    def queues(self, group: str, topic: str) -> dict[int, int]:
        """Return queue id -> committed offset of a group for a topic; empty if there is none."""
        key = f"{topic}@{group}"
        if self._enable_lmq and is_lmq(group):
            return {0: self._lmq_entries[key]} if key in self._lmq_entries else {}
        return dict(self._entries.get(key, {}))

    def groups(self) -> list[str]:
        """Return the groups that have committed offsets."""
        return list(self._topics_by_group)

    def topics_of_group(self, group: str) -> list[str]:
        """Return the topics for which the group has committed offsets."""
        return sorted(self._topics_by_group.get(group, ()))

    def groups_of_topic(self, topic: str) -> list[str]:
        """Return the groups that have committed offsets for the topic."""
        return sorted(self._groups_by_topic.get(topic, ()))

    def smallest_of_all_groups(self, topic: str, *, without: Iterable[str] = ()) -> dict[int, list[int]]:
        """Return queue id -> offsets that the groups of the topic committed, except the groups in `without`."""
        found: dict[int, list[int]] = {}
        for group in self._groups_by_topic.get(topic, set()).difference(without):
            for queue_id, queue_offset in self._entries.get(f"{topic}@{group}", {}).items():
                found.setdefault(queue_id, []).append(queue_offset)
        return found

    def is_empty(self) -> bool:
        """Return True if no offset is committed."""
        return not self._entries and not self._lmq_entries

    # -- writing -----------------------------------------------------------------------------------------------------

    def commit(self, group: str, topic: str, queue_id: int, queue_offset: int) -> None:
        """Store an offset, whatever the previous one. Raises TableFull, TableTooLarge, TopicTooLong, GroupTooLong."""
        key = f"{topic}@{group}"
        if self._enable_lmq and is_lmq(group):
            if key not in self._lmq_entries:
                self._add_name(topic, group)
            self._lmq_entries[key] = queue_offset
            self._count()
            self._changed(key)
            return
        entry = self._entries.get(key)
        if entry is None:
            self._add_name(topic, group)
            entry = self._entries[key] = {}
            self._count()
        elif queue_id not in entry:
            if len(entry) >= self._max_queues_per_entry:
                raise TableFull(f"offsets of {key}", self._max_queues_per_entry, f"queue {queue_id}")
            self._take_room(_QUEUE_BYTES, group, topic)
            self._count()
        entry[queue_id] = queue_offset
        self._changed(key)

    def set_back(self, max_offset: Callable[[str, int], int]) -> None:
        """Set offsets behind the end of their queue, which `max_offset` returns, back to it: a slave has copied them
        from a master whose log was longer, and their places will have other messages."""
        for group in self.groups():
            for topic in self.topics_of_group(group):
                for queue_id, queue_offset in self.queues(group, topic).items():
                    end = max(0, max_offset(topic, queue_id))
                    if queue_offset > end:
                        log.warning(
                            "committed offset set back to the end of its queue",
                            group=group,
                            topic=topic,
                            queue_id=queue_id,
                            committed=queue_offset,
                            end=end,
                        )
                        self.commit(group, topic, queue_id, end)

    def clone(self, source_group: str, target_group: str, topic: str) -> None:
        """Replace the target group's offsets for the topic by those of the source group."""
        queues = self.queues(source_group, topic)
        if queues:
            self.remove(target_group, topic)
            for queue_id, queue_offset in queues.items():
                self.commit(target_group, topic, queue_id, queue_offset)

    def remove(self, group: str, topic: str | None = None) -> None:
        """Remove the group's offsets for the topic, or for all topics."""
        topics = self.topics_of_group(group) if topic is None else [topic]
        for name in topics:
            key = f"{name}@{group}"
            entry = self._entries.pop(key, None)
            lmq_offset = self._lmq_entries.pop(key, None)
            if entry is not None:
                self.sent_bytes -= _bytes_of(key, len(entry))
            if lmq_offset is not None:
                self.sent_bytes -= _bytes_of(key, 1)
            if entry is not None or lmq_offset is not None:
                self._remove_name(name, group)
                self._changed(key)
        self._count()

    def remove_topic(self, topic: str) -> None:
        """Remove the offsets of all groups for the topic."""
        for group in self.groups_of_topic(topic):
            self.remove(group, topic)

    def remove_outlived(self, topic: str, max_offset: Callable[[str, int], int]) -> None:
        """Remove what groups committed for an earlier topic of the same name: the queues of a new topic are empty.
        Offsets for queues with messages stay."""
        for group in self.groups_of_topic(topic):
            if not any(max_offset(topic, queue_id) for queue_id in self.queues(group, topic)):
                self.remove(group, topic)

    def merge(self, offsets: Mapping[str, Mapping[int, int]]) -> None:
        """Replace whole "topic@group" entries. Slaves do this with their master's table."""
        for key, entry in offsets.items():
            known = self._entries.get(key)
            if known is None:
                self._check_count(*_names(key))
                self._index(*_names(key))
            else:
                self.sent_bytes -= _bytes_of(key, len(known))
            self.sent_bytes += _bytes_of(key, len(entry))
            self._entries[key] = dict(entry)
            self._fragments.touch(key)
        self._count()
        self._writer.mark()

    # -- the log of a group --------------------------------------------------------------------------------------------

    def logged_names(self) -> list[str]:
        """See LoggedTable. A name is "topic@group"."""
        return [*self._entries, *self._lmq_entries]

    def logged_entry(self, name: str) -> bytes | None:
        """See LoggedTable: an object of queue id and offset."""
        entry = self._entries.get(name)
        if entry is None and name in self._lmq_entries:
            entry = {0: self._lmq_entries[name]}
        return msgspec.json.encode(entry) if entry is not None else None

    def take_logged(self, name: str, entry: bytes | None) -> None:
        """See LoggedTable."""
        topic, group = _names(name)
        if entry is None:
            self.remove(group, topic)
            return
        queues = msgspec.json.decode(entry, type=dict[int, int])
        if self._enable_lmq and is_lmq(group):
            for queue_offset in queues.values():
                self.commit(group, topic, 0, queue_offset)
        elif queues != self._entries.get(name):
            self.merge({name: queues})

    async def settled(self) -> None:
        """Wait until a quorum of the group has the offsets committed so far. Raises NotReplicated."""
        if self.log is not None:
            await self.log.settled()

    # -- the file ----------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the file; without one the table is empty."""
        loaded = self._file.load(decoder(ConsumerOffsetSerializeWrapper))
        if loaded is None:
            return
        self._entries = loaded.offset_table
        self._lmq_entries = loaded.lmq_offset_table or {}
        for key in (*self._entries, *self._lmq_entries):
            topic, group = _names(key)
            self._topics_by_group.setdefault(group, set()).add(topic)
            self._groups_by_topic.setdefault(topic, set()).add(group)
        for key in self._entries:
            self._fragments.touch(key)
        self.sent_bytes = sum(_bytes_of(key, len(entry)) for key, entry in self._entries.items())
        self.sent_bytes += sum(_bytes_of(key, 1) for key in self._lmq_entries)
        self._count()
        if self.sent_bytes > self._max_table_bytes():
            log.warning(
                "maxOffsetTableBytes exceeded by the offsets on file; new ones are refused", bytes=self.sent_bytes
            )
        log.info("consumer offsets loaded", entries=len(self._entries) + len(self._lmq_entries))

    @property
    def is_written(self) -> bool:
        """Return whether the file has all changes."""
        return not self._writer.is_dirty

    def mark_unsaved(self) -> None:
        """Let the next write of the file happen although nothing changed: there is none yet."""
        self._writer.mark()

    async def persist(self) -> bool:
        """Write the file if anything changed since the last write, after what it speaks of is on disk. Return True if
        it was written. Raises OSError."""
        if self._persisting.locked():
            return False
        return await self.persist_all()

    async def persist_all(self) -> bool:
        """Write the file as `persist` does, but wait for another call that is writing: it may lack the last changes."""
        async with self._persisting:
            return await self._writer.save_offloaded(self._offload)

    async def save(self) -> None:
        """Return when the file has all changes so far. Raises OSError if it cannot have them."""
        await self._writer.save_all(self._offload)

    def encode(self) -> bytes:
        """Return the whole table as it is sent (GET_ALL_CONSUMER_OFFSET)."""
        return compact(self._pieces())

    def wrapper(self) -> ConsumerOffsetSerializeWrapper:
        """Return the whole table as it is sent and persisted; it shares the table's memory."""
        return ConsumerOffsetSerializeWrapper(
            lmq_offset_table=self._lmq_entries if self._enable_lmq else None, offset_table=self._entries
        )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _changed(self, key: str) -> None:
        self._fragments.touch(key)
        self._writer.mark()
        if self.log is not None:
            self.log.changed(key)

    def _add_name(self, topic: str, group: str) -> None:
        self._check_count(topic, group)
        check_group_length(group)
        check_topic_length(topic)
        self._take_room(_bytes_of(f"{topic}@{group}", 1), group, topic, entry_costs.OFFSETS)
        self._index(topic, group)

    def _check_count(self, topic: str, group: str) -> None:
        if len(self._entries) + len(self._lmq_entries) >= self._max_entries:
            raise TableFull("consumer offsets", self._max_entries, f"commit of {group} for {topic}")

    def _take_room(self, more_bytes: int, group: str, topic: str, cost: int = 0) -> None:
        limit_bytes = self._max_table_bytes()
        if self.sent_bytes + more_bytes > limit_bytes:
            what = f"commit of {group} for {topic}"
            raise TableTooLarge("consumer offsets", "maxOffsetTableBytes", limit_bytes, what)
        self._account.check(cost + entry_costs.SENT * more_bytes, f"commit of {group} for {topic}")
        self.sent_bytes += more_bytes

    def _count(self) -> None:
        entries = len(self._entries) + len(self._lmq_entries)
        self._account.set(entry_costs.OFFSETS * entries + entry_costs.SENT * self.sent_bytes)

    def _index(self, topic: str, group: str) -> None:
        self._topics_by_group.setdefault(group, set()).add(topic)
        self._groups_by_topic.setdefault(topic, set()).add(group)

    def _remove_name(self, topic: str, group: str) -> None:
        for index, key, other in ((self._topics_by_group, group, topic), (self._groups_by_topic, topic, group)):
            members = index.get(key)
            if members is not None:
                members.discard(other)
                if not members:
                    del index[key]

    def _entry_text(self, key: str) -> str | None:
        entry = self._entries.get(key)
        if not entry:
            return None if entry is None else member(key, "{}")
        offsets = ",".join([f"{queue_id}:{queue_offset}" for queue_id, queue_offset in entry.items()])
        return member(key, "{" + offsets + "\n}")

    def _pieces(self) -> list[bytes]:
        lmq = b""
        if self._enable_lmq:
            table = dumps_pretty(self._lmq_entries).replace(b"\n", b"\n\t")
            lmq = b'\n\t"lmqOffsetTable":%b,' % table
        return [b'{%b\n\t"offsetTable":' % lmq, *self._fragments.object(), b"\n}"]


def _bytes_of(key: str, queue_count: int) -> int:
    return len(dumps(key)) + _ENTRY_BYTES + queue_count * _QUEUE_BYTES


def _names(key: str) -> tuple[str, str]:
    """Return topic and group of "topic@group"."""
    topic, _, group = key.partition("@")
    return topic, group
