"""FilterTable: the compiled SQL92 filters of consumer groups (RocketMQ: ConsumerFilterManager).

Heartbeats add filters. When a group goes offline or no longer subscribes to a topic, its filter is marked dead, kept
for a day in case the group returns (its bits are still in the stored bit maps), then dropped. A task persists the table
in consumerFilter.json. Only the event loop touches it. It reads no messages; it returns the filter of a group, or the
bit map of all filters of a topic.

Limits: `max_filters`, and `max_characters` of their expressions, over all topics.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import structlog

from triomq.broker import optional
from triomq.broker.errors import EvaluationError, FilterError, TableFull
from triomq.broker.filters.bloom import BloomFilter, set_bits
from triomq.broker.tables import entry_costs
from triomq.broker.tables.table_file import NoFile, TableFile, decoder
from triomq.protocol.bodies.consumer_filter import (
    BloomFilterData,
    ConsumerFilterData,
    ConsumerFilterWrapper,
    FilterDataMapByTopic,
)
from triomq.protocol.clock import NowMs
from triomq.protocol.outage import Outages
from triomq.protocol.stored_properties import StoredProperties
from triomq.protocol.subscription import SQL92, SubscriptionData
from triomq.remoting.table_memory import TableAccount, TableMemory

if TYPE_CHECKING:
    from triomq.broker.filters.expression import BooleanExpression, Properties

log = structlog.get_logger("triomq.broker.filters")

MAX_FILTERS = 100_000
MAX_REASON_CHARACTERS = 300
MAX_CHARACTERS = 4_000_000
"""A compiled filter takes some 40 bytes for each character of its expression."""

_DEAD_ON_LOAD_MS = 30_000


class ConsumerFilter:
    """The compiled filter of one group on one topic. Times in ms; dead when `dead_time` >= `born_time`."""

    __slots__ = (
        "bits",
        "born_time",
        "client_version",
        "compiled",
        "conditions",
        "dead_time",
        "expression",
        "group",
        "topic",
    )

    def __init__(
        self, topic: str, group: str, expression: str, client_version: int, born_time: int, bits: BloomFilterData | None
    ) -> None:
        """Compile the expression. Raises FilterError if it is invalid."""
        self.topic = topic
        self.group = group
        self.expression = expression
        self.compiled: BooleanExpression = optional.sql92.compile_expression(expression)
        self.conditions = optional.conditions.encode_conditions(self.compiled)
        self.client_version = client_version
        self.born_time = born_time
        self.dead_time = 0
        self.bits = bits

    @property
    def is_dead(self) -> bool:
        """Return True if no group uses the filter any more."""
        return self.dead_time >= self.born_time

    def matches(self, properties: Properties) -> bool:
        """Return whether a message with these properties passes; False if the expression cannot be evaluated."""
        try:
            return self.compiled.evaluate(properties) is True
        except EvaluationError:
            return False

    def data(self) -> ConsumerFilterData:
        """Return the filter as it is persisted and shown."""
        return ConsumerFilterData(
            bloom_filter_data=self.bits,
            born_time=self.born_time,
            client_version=self.client_version,
            consumer_group=self.group,
            dead=self.is_dead,
            dead_time=self.dead_time,
            expression=self.expression,
            expression_type=SQL92,
            topic=self.topic,
        )


class FilterTable:
    """Filters by topic and group."""

    def __init__(
        self,
        bloom: BloomFilter,
        file: TableFile | None = None,
        *,
        now_ms: NowMs,
        clean_after_ms: Callable[[], int] = lambda: 86_400_000,
        max_filters: int = MAX_FILTERS,
        max_characters: int = MAX_CHARACTERS,
        account: TableAccount | None = None,
    ) -> None:
        self.bloom = bloom
        self._file = file if file is not None else NoFile()
        self._now_ms = now_ms
        self._clean_after_ms = clean_after_ms
        self._max_filters = max_filters
        self._max_characters = max_characters
        self._by_topic: dict[str, dict[str, ConsumerFilter]] = {}
        self._topics_of: dict[str, dict[str, None]] = {}  # of each group
        self._filter_count = 0
        self._characters = 0
        self._saved = ""
        self._outages = Outages()
        self._account = account if account is not None else TableMemory().account("SQL92 filters")

    def get(self, topic: str, group: str) -> ConsumerFilter | None:
        """Return the filter of a group on a topic, dead or alive."""
        return self._by_topic.get(topic, {}).get(group)

    def of_topic(self, topic: str) -> list[ConsumerFilter]:
        """Return all filters on a topic."""
        return list(self._by_topic.get(topic, {}).values())

    def bit_map(self, topic: str, properties: Properties) -> bytes | None:
        """Return the bit map of a message, with the bits of every filter it passes; None if its topic has no
        filters."""
        filters = self._by_topic.get(topic)
        if not filters:
            return None
        bit_map = bytearray(self.bloom.size_bytes)
        for entry in filters.values():
            if entry.bits is not None and entry.matches(properties):
                set_bits(bit_map, entry.bits)
        return bytes(bit_map)

    def stored_bit_map(self, topic: str, properties: StoredProperties) -> bytes | None:
        """Return the `bit_map` of a message as it is dispatched (`DefaultMessageStore.compute_bit_maps`). Its
        properties are decoded only if its topic has filters."""
        return self.bit_map(topic, properties.table()) if topic in self._by_topic else None

    def register(self, group: str, subscriptions: list[SubscriptionData]) -> None:
        """Apply the subscriptions of a heartbeat; filters of topics that are not among them die."""
        for subscription in subscriptions:
            if subscription.expression_type == SQL92 and subscription.sub_string:
                self._register(group, subscription)
        if group not in self._topics_of:
            return
        topics = {subscription.topic for subscription in subscriptions}
        now_ms = self._now_ms()
        for entry in self._of_group(group):
            if entry.topic not in topics and not entry.is_dead:
                entry.dead_time = now_ms
                log.info("filter no longer subscribed", topic=entry.topic, group=group)

    def group_gone(self, group: str) -> None:
        """Mark the group's filters dead because its last member left."""
        now_ms = self._now_ms()
        for entry in self._of_group(group):
            if not entry.is_dead:
                entry.dead_time = now_ms

    def _of_group(self, group: str) -> list[ConsumerFilter]:
        return [self._by_topic[topic][group] for topic in self._topics_of.get(group, ())]

    def is_new(self, group: str, subscription: SubscriptionData) -> bool:
        """Return whether `register` would compile this subscription."""
        if subscription.expression_type != SQL92:
            return False
        known = self.get(subscription.topic, group)
        return known is None or (
            subscription.sub_version > known.client_version and subscription.sub_string != known.expression
        )

    def _register(self, group: str, subscription: SubscriptionData) -> None:
        topic, version = subscription.topic, subscription.sub_version
        known = self.get(topic, group)
        if known is not None and version <= known.client_version:
            if version == known.client_version and known.is_dead:
                known.dead_time = 0
            return
        if known is not None and known.expression == subscription.sub_string and self.bloom.fits(known.bits):
            known.client_version = version
            known.dead_time = 0
            return
        if known is None and self._filter_count >= self._max_filters:
            raise TableFull("SQL92 filters", self._max_filters, f"filter of group {group} on {topic}")
        more = len(subscription.sub_string) - (len(known.expression) if known is not None else 0)
        if self._characters + more > self._max_characters:
            raise TableFull("characters of SQL92 filters", self._max_characters, f"filter of group {group} on {topic}")
        cost = entry_costs.FILTER + entry_costs.FILTER_CHARACTER * len(subscription.sub_string)
        self._account.check(cost, f"filter of group {group} on {topic}")
        try:
            entry = ConsumerFilter(
                topic, group, subscription.sub_string, version, self._now_ms(), self.bloom.positions(group, topic)
            )
        except FilterError as error:
            reason = str(error)[:MAX_REASON_CHARACTERS]
            if self._outages.failed(f"{topic} {group} {reason}", self._now_ms() / 1000):
                log.warning("filter not compiled", topic=topic, group=group, reason=reason)
            if known is not None:
                self._drop(topic, group)
            return
        self._put(entry)
        log.info("filter registered", topic=topic, group=group, expression=subscription.sub_string)

    def _put(self, entry: ConsumerFilter) -> None:
        if self.get(entry.topic, entry.group) is not None:
            self._drop(entry.topic, entry.group)
        self._by_topic.setdefault(entry.topic, {})[entry.group] = entry
        self._topics_of.setdefault(entry.group, {})[entry.topic] = None
        self._count(1, len(entry.expression))

    def _drop(self, topic: str, group: str) -> None:
        filters, topics = self._by_topic[topic], self._topics_of[group]
        entry = filters.pop(group)
        if not filters:
            del self._by_topic[topic]
        del topics[topic]
        if not topics:
            del self._topics_of[group]
        self._count(-1, -len(entry.expression))

    def _count(self, filters: int, characters: int) -> None:
        """Add to the number of filters and of characters in their expressions, and tell the memory account. Counted
        here, so that a heartbeat need not look at the filters of other groups."""
        self._filter_count += filters
        self._characters += characters
        self._account.set(entry_costs.FILTER * self._filter_count + entry_costs.FILTER_CHARACTER * self._characters)

    # -- the file ----------------------------------------------------------------------------------------------------

    def load(self) -> None:
        """Load the file, unless it was made for another bloom filter."""
        wrapper = self._file.load(decoder(ConsumerFilterWrapper))
        if wrapper is None:
            return
        kept = [
            data for by_group in wrapper.filter_data_by_topic.values() for data in by_group.group_filter_data.values()
        ]
        if not all(data.bloom_filter_data is None or self.bloom.fits(data.bloom_filter_data) for data in kept):
            log.warning("stored filters ignored: they belong to a bloom filter of another size", filters=len(kept))
            return
        for data in kept:
            self._revive(data)

    def _revive(self, data: ConsumerFilterData) -> None:
        topic, group = data.topic or "", data.consumer_group or ""
        try:
            entry = ConsumerFilter(
                topic, group, data.expression or "", data.client_version, data.born_time, data.bloom_filter_data
            )
        except FilterError as error:
            log.warning("stored filter not compiled", topic=topic, group=group, reason=str(error))
            return
        # No client is connected yet: the filter is dead until its group sends a heartbeat.
        entry.dead_time = data.dead_time or max(data.born_time, self._now_ms() - _DEAD_ON_LOAD_MS)
        self._put(entry)

    def persist(self) -> bool:
        """Drop filters that have been dead for long, and write the file if it changed. Return True if it was
        written."""
        now_ms = self._now_ms()
        for entry in [entry for filters in self._by_topic.values() for entry in filters.values()]:
            if entry.is_dead and now_ms - entry.dead_time >= self._clean_after_ms():
                self._drop(entry.topic, entry.group)
        text = self.wrapper().encode_pretty().decode()
        if text == self._saved or (not self._by_topic and not self._saved):
            return False
        self._file.save(text)
        self._saved = text
        return True

    def wrapper(self) -> ConsumerFilterWrapper:
        """Return the whole table as it is persisted."""
        return ConsumerFilterWrapper(
            filter_data_by_topic={
                topic: FilterDataMapByTopic(
                    group_filter_data={group: entry.data() for group, entry in filters.items()}, topic=topic
                )
                for topic, filters in self._by_topic.items()
            }
        )
