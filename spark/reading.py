"""What batch and streaming reads share: the choice of queues, their bounds, and one range as Arrow batches.

The driver makes a `Plan`; each `QueuePart` travels to an executor, where `read_part` pulls it.
"""

from __future__ import annotations

import re
from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

from pyspark.sql.datasource import InputPartition

from triomq.client.core.cluster_requests import check_subscription
from triomq.protocol import property_names
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.properties import parse_bytes
from triomq.protocol.subscription import SQL92, SUB_ALL, TAG, build_subscription
from triomq.protocol.system_topics import SCHEDULE_TOPIC
from triomq.spark import positions
from triomq.spark.cluster import Cluster
from triomq.spark.data_loss import DataLoss, text_of
from triomq.spark.errors import BrokerError, OptionError
from triomq.spark.options import Bound, SourceOptions
from triomq.spark.positions import EARLIEST, LATEST, Positions
from triomq.spark.pulling import Pull, QueueRange
from triomq.spark.time_search import offsets_at_time


class QueuePart(InputPartition):  # type: ignore[misc, unused-ignore]
    """The offsets [begin, end) of one queue: the work of one task."""

    def __init__(self, topic: str, broker_name: str, queue_id: int, begin: int, end: int) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.begin = begin
        self.end = end


def read_part(part: Any, options: SourceOptions, names: Sequence[str], schema: Any) -> Iterator[Any]:
    """Yield the rows of one part as Arrow record batches. Spark's own empty part, which is not a QueuePart, has
    none."""
    if not isinstance(part, QueuePart):
        return
    # Imported here because Arrow's functions take a while to load and planning does not need them.
    from triomq.spark.queue_batches import queue_batches
    from triomq.spark.record_columns import RecordColumns

    queue = MessageQueue(part.topic, part.broker_name, part.queue_id)
    # The consume queue of a delayed message has its delivery time where others have the hash of their tags.
    is_hashed = part.topic != SCHEDULE_TOPIC or options.filter_type != TAG
    pull = Pull(
        options.group,
        options.filter if is_hashed else SUB_ALL,
        options.filter_type,
        options.pull_batch_size,
        options.pulls_in_flight,
        options.fail_on_data_loss,
        options.max_rate_per_task,
    )
    tags = wanted_tags(options)
    columns = RecordColumns(schema, names, part.broker_name)
    keeps = None if tags is None else lambda: parse_bytes(columns.last_properties).get(property_names.TAGS) in tags
    with Cluster(options.connection) as cluster:
        pulled = QueueRange(cluster, queue, part.begin, part.end, pull)
        yield from queue_batches(pulled, queue, columns, keeps)


def wanted_tags(options: SourceOptions) -> frozenset[str] | None:
    """Return the tags to compare here. The broker compares only their hashes, which different tags may share."""
    if options.filter_type != TAG or options.filter == SUB_ALL:
        return None
    return build_subscription("T", options.filter).tags_set


class Plan:
    """The queues of one source and their bounds. On the driver; one owner."""

    def __init__(self, options: SourceOptions, cluster: Cluster) -> None:
        self.options = options
        self.cluster = cluster
        self.loss = DataLoss(options.fail_on_data_loss)

    def queues(self, *, skip_missing: bool = False) -> list[MessageQueue]:
        """Return all queues to read, sorted. Raises OptionError when a topic or an assigned queue does not exist,
        unless `skip_missing`: the queues of a broker that is away are missing from the route."""
        options = self.options
        if options.topic_pattern is not None:
            topics = self.cluster.topics_matching(options.topic_pattern)
        else:
            topics = list(options.assigned) if options.assigned is not None else list(options.topics)
        queues = []
        for topic in topics:
            may_miss = skip_missing or options.topic_pattern is not None
            route = self.cluster.settled_route(topic) if may_miss else self.cluster.route(topic)
            if route is not None:
                queues += route.subscribe
        if options.assigned is not None:
            queues = self._assigned(queues, options.assigned, skip_missing)
        return sorted(queues)

    @staticmethod
    def _assigned(queues: list[MessageQueue], assigned: dict[str, Any], skip_missing: bool) -> list[MessageQueue]:
        chosen = []
        for topic, wanted in assigned.items():
            theirs = [queue for queue in queues if queue.topic == topic]
            brokers = wanted if isinstance(wanted, dict) else {queue.broker_name: wanted for queue in theirs}
            for broker, ids in brokers.items():
                for queue_id in ids:
                    queue = MessageQueue(topic, broker, queue_id)
                    if queue in theirs:
                        chosen.append(queue)
                    elif not skip_missing:
                        raise OptionError(f"option assign: {topic}: no readable queue {queue_id} at broker {broker!r}")
        return chosen

    def check_filter(self, queues: Sequence[MessageQueue]) -> None:
        """Have each broker compile the SQL92 expression: RocketMQ's brokers pass every message when they cannot. Raises
        OptionError."""
        options = self.options
        if options.filter_type != SQL92:
            return
        brokers = {queue.broker_name: queue.topic for queue in queues}
        for broker_name, topic in brokers.items():
            subscription = build_subscription(topic, options.filter, SQL92, sub_version=1)
            check = partial(check_subscription, "spark", options.group, subscription)
            try:
                self.cluster.ask(topic, broker_name, check)
            except BrokerError as error:
                if not error.code:
                    raise
                raise OptionError(f"option filter: {error}") from None

    def bound(self, bound: Bound, queues: list[MessageQueue], option: str) -> Positions:
        """Return the offsets of one end of the read. `option`: "starting" or "ending"."""
        if bound.timestamp_ms is not None or bound.timestamps is not None:
            return self._by_time(bound, queues, f"{option}OffsetsByTimestamp")
        edges: dict[int, Positions] = {}

        def edge(queue: MessageQueue, which: int) -> int:
            if which not in edges:
                edges[which] = (self.cluster.min_offsets if which == EARLIEST else self.cluster.max_offsets)(queues)
            return edges[which][queue]

        name = f"{option}Offsets"
        wanted = positions.from_tree(bound.offsets, f"option {name}") if bound.offsets is not None else None
        return positions.resolve(wanted, queues, bound.default, name, edge)

    def _by_time(self, bound: Bound, queues: list[MessageQueue], option: str) -> Positions:
        times: dict[MessageQueue, int] = {}
        missing: list[MessageQueue] = []
        for queue in queues:
            wanted: Any = bound.timestamp_ms
            if bound.timestamps is not None:
                wanted = bound.timestamps.get(queue.topic)
                if isinstance(wanted, dict):
                    wanted = wanted.get(queue.broker_name)
                if isinstance(wanted, dict):
                    wanted = wanted.get(str(queue.queue_id))
            if wanted is None:
                missing.append(queue)
                continue
            if type(wanted) is not int:
                raise OptionError(f"option {option}: {queue.topic}: expected a time in ms, found {wanted!r}")
            times[queue] = wanted
        positions.check_named(missing, option, "0 means earliest")
        earliest = [queue for queue in queues if times[queue] == 0]
        timed = [queue for queue in queues if times[queue] != 0]
        found = offsets_at_time(self.cluster, times, self.options.group, timed) if timed else {}
        if earliest:
            found |= self.cluster.min_offsets(earliest)
        return found

    def parts(self, starts: Positions, ends: Positions) -> list[QueuePart]:
        """Return the parts between two positions. Queues that are not in `starts` are new and begin at 0."""
        begins = self.checked_starts({queue: starts.get(queue, 0) for queue in ends}, ends)
        ranges = [(queue, begins[queue], ends[queue]) for queue in sorted(ends)]
        return [
            QueuePart(queue.topic, queue.broker_name, queue.queue_id, begin, end)
            for queue, begin, end in positions.split(
                ranges, self.options.min_partitions, self.options.max_records_per_partition
            )
        ]

    def checked_starts(self, starts: Positions, ends: Positions) -> Positions:
        """Return `starts`, moved to the oldest message where that is later. Raises DataLost unless
        failOnDataLoss=false."""
        busy = [queue for queue in starts if ends[queue] > starts[queue]]
        oldest = self.cluster.min_offsets(busy) if busy else {}
        checked = dict(starts)
        for queue, first in oldest.items():
            if first > starts[queue]:
                self.loss.found(
                    f"offsets {starts[queue]} to {min(first, ends[queue])} of {text_of(queue)} were deleted before "
                    "they were read"
                )
                checked[queue] = min(first, ends[queue])
        return checked

    def checked_end(self, queue: MessageQueue, begin: int, end: int) -> int:
        """Return the end of a queue that was read up to `begin`. It is behind its own beginning if the queue is shorter
        now. Raises DataLost."""
        if end < begin:
            self.loss.found(
                f"offsets {end} to {begin} of {text_of(queue)} were read before and are gone: the queue is shorter now"
            )
        return end

    def ends_of_missing(self, begins: Positions) -> Positions:
        """Return up to where to read queues that are not in the route. That is nowhere (`begins`), except for those
        that their broker does not have any more, whose successors are read from their beginning. Raises DataLost."""
        wanted = [queue for queue in begins if self.selects(queue)]
        brokers = self.cluster.brokers() if wanted else {}
        there = [queue for queue in wanted if queue.broker_name in brokers]
        ends = dict(begins)
        for queue, end in self.cluster.max_offsets(there).items() if there else ():
            begin = begins[queue]
            if end > begin:
                self.loss.found(
                    f"offsets {begin} to {end} of {text_of(queue)} were not read, and the queue is not in the route of "
                    "its topic any more (its readQueueNums was lowered)"
                )
            elif end < begin:
                self.loss.found(f"{text_of(queue)}, which was read up to offset {begin}, is gone")
                ends[queue] = end
        return ends

    def within_ends(self, offsets: Positions, bound: Bound) -> Positions:
        """Return the offsets of an option, none of them beyond the end of its queue. Raises DataLost."""
        if not bound.offsets:
            return offsets
        ends = self.cluster.max_offsets(list(offsets))
        for queue, offset in offsets.items():
            if offset > ends[queue]:
                self.loss.found(
                    f"offset {offset} of {text_of(queue)} is beyond the end of the queue, which is {ends[queue]}"
                )
        return {queue: min(offset, ends[queue]) for queue, offset in offsets.items()}

    def selects(self, queue: MessageQueue) -> bool:
        """Return whether the options name the topic of a queue."""
        options = self.options
        if options.topic_pattern is not None:
            return re.fullmatch(options.topic_pattern, queue.topic) is not None
        return queue.topic in (options.assigned if options.assigned is not None else options.topics)


def latest(plan: Plan, queues: list[MessageQueue]) -> Positions:
    """Return the present ends of all queues."""
    return plan.bound(Bound(LATEST), queues, "ending")
