"""TopicTable: the topics of this broker (RocketMQ: TopicConfigManager).

It holds one TopicConfig per topic: the built-in topics, those created by administrators and those created by use.
Changes go to topics.json in the background; `data_version` tells NameServers and slaves whether anything changed. Only
the event loop touches it. It sends nothing, but tells others of changes (TopicEvents). What depends on a topic that use
has made waits until it is registered (new_names.py). The file keeps the names of deleted topics (`deletedTopics`) and
of those that were made again (`topicsMadeAgain`); RocketMQ ignores both. A deleted one that is there, too, is being
deleted (topic_deletion.py).

Limits: `max_topics`, and `max_table_bytes` of the table as it is sent: a registration or a slave's fetch carries all
topics in one frame of 16 MiB at most, and a broker whose frame is larger disappears from its NameServers. A table that
a file brings above a limit stays; only new topics are refused. System topics are always made.
"""

from __future__ import annotations

from collections import deque
from collections.abc import Callable, Collection, Iterable

import msgspec
import structlog
from msgspec import Struct

from triomq.broker.errors import TableFull, TableTooLarge
from triomq.broker.tables import entry_costs
from triomq.broker.tables.fragments import compact
from triomq.broker.tables.kept_table import KeptTable, ignored
from triomq.broker.tables.logged import check_leads
from triomq.broker.tables.table_file import TableFile, decoder
from triomq.broker.tables.write_behind import Covered
from triomq.protocol import permission
from triomq.protocol.bodies.base import replace
from triomq.protocol.bodies.fastjson import dumps
from triomq.protocol.bodies.topic_config import TopicConfig, TopicConfigSerializeWrapper
from triomq.protocol.clock import NowMs
from triomq.protocol.codes import ResponseCode
from triomq.protocol.errors import RequestRefused
from triomq.protocol.system_topics import (
    AUTO_CREATE_TOPIC,
    SYSTEM_TOPICS,
    TRANS_CHECK_MAX_TIME_TOPIC,
    TRANS_HALF_TOPIC,
    UNDELIVERABLE_TOPIC,
    TopicIllegal,
    check_topic_length,
    is_retry_topic,
)

log = structlog.get_logger("triomq.broker.topics")

MAX_TOPICS = 100_000
MAX_QUEUES = 65_536
"""Queues of one topic. What walks over the queues of a topic takes time for each."""
MAX_DELETED = 1_000
"""How many deleted topics are remembered, the last ones: their late consumers are few."""
MAX_TABLE_BYTES = 12 * 1024**2


class StoredTopics(TopicConfigSerializeWrapper, frozen=True, kw_only=True):
    """The content of topics.json."""

    deleted_topics: list[str] = []
    topics_made_again: list[str] = []


class TopicEvents(Struct, frozen=True, kw_only=True):
    """Who hears of topics; nobody, as long as nothing is given. All are called in the step of the change."""

    changed: Callable[[str], None] = ignored
    """A topic was made, changed or deleted: a registration under the table's new data version must include it."""
    made_by_use: Callable[[], None] = ignored
    """Use has made topics, or given some more queues: they must be registered soon. What administrators make is not
    among them, as their requests wait for the registration."""
    made_again: Callable[[str], None] = ignored
    """A topic that was deleted comes into being again; called before the table has it."""
    before_create: Callable[[str], None] = ignored
    """A new topic would fit into the table; raises RequestRefused to refuse it."""


class TopicTable(KeptTable):
    """The topics of a broker, by name."""

    kind = "topic"
    entries_name = "topicConfigTable"
    entry_bytes = 200
    entry_cost = entry_costs.TOPIC

    def __init__(
        self,
        file: TableFile | None = None,
        *,
        now_ms: NowMs,
        built_in: Iterable[TopicConfig] = (),
        auto_create: Callable[[], bool] = lambda: True,
        max_topics: int = MAX_TOPICS,
        max_table_bytes: Callable[[], int] = lambda: MAX_TABLE_BYTES,
        covered: Covered | None = None,
    ) -> None:
        """`covered` as in WriteBehind: no topic is gone from the file before its deletion is on disk in the log.

        `auto_create` returns whether topics may be created from the template TBW102; it is called each time.

        `built_in` topics exist from the start (see `built_in_topics`) and count as system topics."""
        super().__init__(file, now_ms, covered)
        self._auto_create = auto_create
        self._max_topics = max_topics
        self._max_table_bytes = max_table_bytes
        self._events = TopicEvents()
        self._deleted: deque[str] = deque(maxlen=MAX_DELETED)
        self._made_again: deque[str] = deque(maxlen=MAX_DELETED)
        self._leaving: set[str] = set()
        self._topics: dict[str, TopicConfig] = {}
        for topic in built_in:
            self._put(topic)
        self.system_topics = SYSTEM_TOPICS | frozenset(self._topics)

    def tell(self, events: TopicEvents) -> None:
        """Tell these of topics from now on."""
        self._events = events

    # -- reading -----------------------------------------------------------------------------------------------------

    def get(self, topic: str) -> TopicConfig | None:
        """Return the configuration of a topic."""
        return self._topics.get(topic)

    def reachable_queue(self, topic: str, queue_id: int) -> int:
        """Return the queue in which consumers find a message that was meant for `queue_id` some time ago: another one
        if the topic has lost that queue since."""
        config = self._topics.get(topic)
        if config is None or queue_id < config.read_queue_nums:
            return queue_id
        return queue_id % both_ways(config)

    def names(self) -> Collection[str]:
        """Return the names of all topics."""
        return self._topics.keys()

    def configs(self) -> Collection[TopicConfig]:
        """Return all topics."""
        return self._topics.values()

    def is_ordered(self, topic: str) -> bool:
        """Return True for a topic listed in the NameServers' ORDER_TOPIC_CONFIG."""
        config = self._topics.get(topic)
        return config is not None and config.order

    def wrapper(self) -> TopicConfigSerializeWrapper:
        """Return the whole table as it is sent and persisted."""
        return TopicConfigSerializeWrapper(data_version=self.data_version, topic_config_table=dict(self._topics))

    # -- topics that come into being by use --------------------------------------------------------------------------

    def create_on_send(
        self, topic: str, default_topic: str, remote_text: str, queue_count: int, topic_sys_flag: int
    ) -> TopicConfig | None:
        """Return the topic that a producer at `remote_text` sends to, created from the template `default_topic` if it
        is new.

        Return None if the template is missing or may not be inherited from. A retry topic needs no template. The queue
        count is the smaller of the producer's and the template's. Raises TableFull.
        """
        known = self._topics.get(topic)
        if known is not None:
            return known
        template = self._topics.get(default_topic)
        is_closed = not self._auto_create() and default_topic == AUTO_CREATE_TOPIC
        if template is not None and is_closed and permission.is_inherited(template.perm):
            # The template comes from an old file: close it, so that routes no longer offer it to producers.
            template = self._put(replace(template, perm=permission.READ_WRITE))
            self._changed()
        if template is not None and permission.is_inherited(template.perm):
            queues = max(0, min(queue_count, template.write_queue_nums))
            config = replace(
                template,
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=template.perm & ~permission.INHERIT,
                topic_sys_flag=topic_sys_flag,
                order=False,
            )
        elif is_retry_topic(topic):
            return self.create_on_send_back(topic, 1, permission.READ_WRITE, topic_sys_flag)
        else:
            log.warning("topic not created", topic=topic, template=default_topic, remote=remote_text)
            return None
        log.info("topic created by use", topic=topic, queues=queues, template=default_topic, remote=remote_text)
        return self._create(config)

    def create_on_send_back(self, topic: str, queue_count: int, perm: int, topic_sys_flag: int) -> TopicConfig:
        """Return a retry or dead letter topic, created if it is new. A retry topic has at least the queues that its
        group wants now. Raises TableFull."""
        known = self._topics.get(topic)
        queues = max(0, min(queue_count, MAX_QUEUES))  # a group on file may have any number
        if known is not None:
            return self._grown(known, queues) if is_retry_topic(topic) else known
        return self._create(
            TopicConfig(
                topic_name=topic,
                read_queue_nums=queues,
                write_queue_nums=queues,
                perm=perm,
                topic_sys_flag=topic_sys_flag,
            )
        )

    def _grown(self, config: TopicConfig, queues: int) -> TopicConfig:
        """Return the topic after giving it this number of queues, if it has fewer: consumers read those in its
        route."""
        if queues <= min(config.read_queue_nums, config.write_queue_nums):
            return config
        check_leads(self.log)
        config = self._put(
            replace(
                config,
                read_queue_nums=max(queues, config.read_queue_nums),
                write_queue_nums=max(queues, config.write_queue_nums),
            )
        )
        self._changed()
        self._made_by_use(config.topic_name)
        return config

    def half_topic(self) -> TopicConfig:
        """Return RMQ_SYS_TRANS_HALF_TOPIC, which the first transaction check creates."""
        return self.create_on_send_back(TRANS_HALF_TOPIC, 1, permission.READ_WRITE, 0)

    def check_max_time_topic(self) -> TopicConfig:
        """Return TRANS_CHECK_MAX_TIME_TOPIC, created on first use."""
        return self.create_on_send_back(TRANS_CHECK_MAX_TIME_TOPIC, 1, permission.READ_WRITE, 0)

    def undeliverable_topic(self) -> TopicConfig:
        """Return UNDELIVERABLE_TOPIC, created on first use."""
        return self.create_on_send_back(UNDELIVERABLE_TOPIC, 1, permission.READ_WRITE, 0)

    # -- changes -----------------------------------------------------------------------------------------------------

    def update(self, config: TopicConfig) -> None:
        """Create a topic or replace its configuration. Raises TableFull."""
        self._check_room(config.topic_name)
        self._announce(config.topic_name)
        known = self._topics.get(config.topic_name)
        self._put(config)
        self._changed()
        if known is None or known.write_queue_nums < config.write_queue_nums:
            self.new_names.made(config.topic_name)
        log.info("topic updated", topic=config.topic_name, config=str(config))

    def is_deleted(self, topic: str) -> bool:
        """Return whether the topic was deleted and not made again since, as far as that is remembered."""
        return topic not in self._topics and topic in self._deleted

    def deleted(self) -> list[str]:
        """Return the topics that were deleted and not made again since, as far as they are remembered."""
        return [topic for topic in self._deleted if topic not in self._topics]

    def was_made_again(self, topic: str) -> bool:
        """Return whether the topic was ever deleted and made again, as far as that is remembered."""
        return topic in self._made_again

    def being_deleted(self) -> list[str]:
        """Return the topics whose deletion has begun."""
        return [topic for topic in self._deleted if topic in self._topics]

    def remember_deleted(self, topic: str) -> None:
        """Note that the master of the group has deleted the topic, whose entry goes with the next record."""
        if topic not in self._deleted:
            self._deleted.append(topic)
            self._writer.changed()

    def begin_deletion(self, topic: str) -> None:
        """Note, also in the file, that the topic is to be deleted. Until `end_deletion` it cannot be made again. Raises
        RequestRefused if that was noted before."""
        self._check_leaving(topic)
        self._leaving.add(topic)
        if topic in self._topics and topic not in self._deleted:
            self._deleted.append(topic)
            self._writer.changed()

    def keep(self, topic: str) -> None:
        """Note that the topic is not deleted after all."""
        if topic in self._topics and topic in self._deleted:
            self._deleted.remove(topic)
            self._writer.changed()

    def end_deletion(self, topic: str) -> None:
        """Let the topic be made again."""
        self._leaving.discard(topic)

    def delete(self, topic: str) -> bool:
        """Remove a topic. Return True if it existed."""
        if self._topics.pop(topic, None) is None:
            return False
        if topic not in self._deleted:
            self._deleted.append(topic)
        self._count_out(topic)
        self._touch(topic)
        self._changed()
        log.info("topic deleted", topic=topic)
        return True

    def replace_all(self, wrapper: TopicConfigSerializeWrapper) -> bool:
        """Adopt the master's table if its version differs (slaves). Return True if it was adopted."""
        if wrapper.data_version == self.data_version:
            return False
        for topic in self._topics.keys() - wrapper.topic_config_table.keys():
            del self._topics[topic]
            self._count_out(topic)
            self._touch(topic)
        for config in wrapper.topic_config_table.values():
            self._put(config)
        self.data_version = wrapper.data_version
        self._writer.changed()
        return True

    def logged_names(self) -> Collection[str]:
        """See LoggedTable."""
        return self._topics.keys()

    def logged_entry(self, name: str) -> bytes | None:
        """See LoggedTable."""
        config = self._topics.get(name)
        return config.encode() if config is not None else None

    def take_logged(self, name: str, entry: bytes | None) -> None:
        """See LoggedTable."""
        if entry is None:  # perhaps it was never acknowledged; that it is deleted is a record of its own
            if self._topics.pop(name, None) is not None:
                self._count_out(name)
                self._touch(name)
                self._changed()
            return
        config = msgspec.json.decode(entry, type=TopicConfig)
        if config == self._topics.get(name):
            return
        self._announce(name)
        self._put(config)
        self._changed()

    def update_order_topics(self, ordered: Collection[str]) -> bool:
        """Set the order flag of the named topics and clear it for all others. Return True if one changed (RocketMQ:
        updateOrderTopicConfig)."""
        changed = False
        for topic, config in list(self._topics.items()):
            wanted = topic in ordered
            if config.order != wanted:
                self._put(replace(config, order=wanted))
                changed = True
        if changed:
            self._changed()
        return changed

    # -- the file ----------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the file; its topics replace built-in ones of the same name."""
        wrapper = self._file.load(decoder(StoredTopics))
        if wrapper is None:
            return
        for config in wrapper.topic_config_table.values():
            self._put(config)
        self._deleted.extend(wrapper.deleted_topics)
        self._made_again.extend(wrapper.topics_made_again)
        self.data_version = wrapper.data_version
        log.info("topics loaded", topics=len(self._topics))
        if self.sent_bytes > self._max_table_bytes():
            log.warning(
                "maxTopicTableBytes exceeded by the topics on file; new ones are refused", bytes=self.sent_bytes
            )

    # -- inside ------------------------------------------------------------------------------------------------------

    def _create(self, config: TopicConfig) -> TopicConfig:
        self._check_room(config.topic_name)
        self._announce(config.topic_name)
        self._put(config)
        self._changed()
        self._made_by_use(config.topic_name)
        return config

    def _made_by_use(self, topic: str) -> None:
        self.new_names.made(topic)
        self._events.made_by_use()

    def _announce(self, topic: str) -> None:
        """Tell of a topic that is made again. Clients may use the offsets of a topic before its first life begins."""
        if topic in self._deleted and topic not in self._topics:
            self._deleted.remove(topic)
            if topic not in self._made_again:
                self._made_again.append(topic)
            self._events.made_again(topic)

    def encode(self) -> bytes:
        """Return the table as slaves and tools receive it: without the deleted topics."""
        return compact(super()._pieces())

    def _pieces(self) -> list[bytes]:
        pieces = super()._pieces()
        for name, topics in ((b"topicsMadeAgain", self._made_again), (b"deletedTopics", self._deleted)):
            if topics:
                pieces[0] = b'{\n\t"%b":%b,%b' % (name, dumps(list(topics)), pieces[0][1:])
        return pieces

    def _check_leaving(self, topic: str) -> None:
        if topic in self._leaving:
            raise RequestRefused(ResponseCode.SERVICE_NOT_AVAILABLE, f"topic[{topic}] is being deleted, try again")

    def _put(self, config: TopicConfig) -> TopicConfig:
        if config.topic_name not in self._topics:
            self._count_in(config.topic_name)
        self._topics[config.topic_name] = config
        self._touch(config.topic_name)
        return config

    def _touch(self, topic: str) -> None:
        super()._touch(topic)
        self._events.changed(topic)

    def _entry_text(self, topic: str) -> str | None:
        config = self._topics.get(topic)
        return config.encode_pretty().decode() if config is not None else None

    def _check_room(self, topic: str) -> None:
        check_leads(self.log)
        # Consumers choose the names of retry topics, and nothing checked them; a topic's name is also a directory's
        # name.
        if not topic or "/" in topic or "\0" in topic:
            raise TopicIllegal(f"The specified topic {topic[:200]!r} cannot be stored under that name.")
        if topic in self._topics or topic in self.system_topics:
            return
        self._check_leaving(topic)
        check_topic_length(topic)
        if len(self._topics) >= self._max_topics:
            raise TableFull("topics", self._max_topics, f"topic {topic}")
        limit_bytes = self._max_table_bytes()
        if self.sent_bytes + self._bytes_of(topic) > limit_bytes:
            raise TableTooLarge("topics", "maxTopicTableBytes", limit_bytes, f"topic {topic}")
        self._check_memory(topic, f"topic {topic}")
        self._events.before_create(topic)


def both_ways(config: TopicConfig) -> int:
    """Return how many queues are both written and read, from 0 on, at least 1: the broker chooses among them."""
    return max(1, min(config.read_queue_nums, config.write_queue_nums))
