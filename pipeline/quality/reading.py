"""Where topics are read from: the brokers of a cluster, or the files of one broker's store."""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import Final

from triomq.client.core import cluster_requests
from triomq.pipeline.copying.selection import Names, chosen_topics
from triomq.pipeline.quality.scan import Window, schema_of
from triomq.pipeline.tables.sources import BrokerSource, Source, StoreSource
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.system_topics import DLQ_PREFIX
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError
from triomq.spark.jobs.lag import sample
from triomq.spark.jobs.session import JobFailed, connection_options, pairs
from triomq.spark.options import OptionTable, store_options
from triomq.spark.options import connection_options as checked_connection
from triomq.spark.positions import Range
from triomq.spark.store_files import queue_directories
from triomq.spark.time_search import offsets_at_time

GROUP: Final = "QUALITY_SOURCE"


class Topics:
    """The topics of a source. `place`: what it is, for the report."""

    place = ""

    def names(self) -> list[str]:
        raise NotImplementedError

    def brokers(self) -> set[str]:
        """Names of brokers and clusters, which have topics of their own."""
        return set()

    def source(self, topic: str, columns: Sequence[str]) -> Source:
        raise NotImplementedError

    def ranges(self, source: Source, window: Window) -> list[Range]:
        """Return the offsets of each queue that may have messages of the window."""
        queues = source.queues()
        begins, ends = source.begins(queues), source.ends(queues)
        return [(queue, begins[queue], ends[queue]) for queue in queues]

    def backlogs(self, topics: Sequence[str], now_ms: int) -> dict[str, tuple[int, int]] | None:
        """Return group -> messages of these topics that it has not read, and how long in ms the oldest waits; None
        where that is not known."""
        return None

    def chosen(self, wanted: tuple[str, ...]) -> list[str]:
        """Return the topics of these names and patterns. Raises JobFailed for a name that does not exist."""
        known = self.names()
        names = Names(wanted)
        for name in names.exact():
            if name not in known:
                raise JobFailed(f"--topics: topic {name!r} does not exist at {self.place}")
        found = chosen_topics(names, known, self.brokers())
        return sorted({*found, *names.exact()})

    def letters(self) -> list[str]:
        """Return the topics of dead letters."""
        return sorted(name for name in self.names() if name.startswith(DLQ_PREFIX))


class BrokerTopics(Topics):
    """The topics of a cluster."""

    def __init__(self, cluster: Cluster, name_server: str) -> None:
        self._cluster = cluster
        self.place = name_server

    @staticmethod
    @contextmanager
    def opened(arguments: argparse.Namespace) -> Iterator[BrokerTopics]:
        with Cluster(checked_connection(OptionTable(connection_options(arguments), ()))) as cluster:
            yield BrokerTopics(cluster, arguments.name_server)

    def names(self) -> list[str]:
        return self._cluster.topics_matching(".*")

    def brokers(self) -> set[str]:
        info = self._cluster.ask_name_servers(cluster_requests.cluster_info)
        return {*info.broker_addr_table, *info.cluster_addr_table}

    def source(self, topic: str, columns: Sequence[str]) -> Source:
        return BrokerSource(self._cluster, topic, fails=False, schema=schema_of(columns))

    def ranges(self, source: Source, window: Window) -> list[Range]:
        found = super().ranges(source, window)
        queues = [queue for queue, _, _ in found]
        begins, ends = self._at(queues, window.begin), self._at(queues, window.end)
        return [(queue, max(begin, begins.get(queue, begin)), ends.get(queue, end)) for queue, begin, end in found]

    def _at(self, queues: Sequence[MessageQueue], moment: int) -> dict[MessageQueue, int]:
        """Return the first offset of each queue at a time or later; nothing for a time that excludes none."""
        if not 0 < moment <= time.time_ns() // 1_000_000:
            return {}
        return offsets_at_time(self._cluster, dict.fromkeys(queues, moment), GROUP, queues)

    def backlogs(self, topics: Sequence[str], now_ms: int) -> dict[str, tuple[int, int]] | None:
        try:
            rows = sample(self._cluster, set(), with_retry=False, now_ms=now_ms)
        except BrokerError:
            return None
        found: dict[str, tuple[int, int]] = {}
        for _, group, topic, _, _, lag, delay_ms in rows:
            if topic in topics:
                known, longest = found.get(group, (0, 0))
                found[group] = known + lag, max(longest, delay_ms)
        return found


class StoreTopics(Topics):
    """The topics in a store directory."""

    def __init__(self, arguments: argparse.Namespace) -> None:
        given = {"path": arguments.store, "failOnDataLoss": "false", **pairs(arguments.option, "--option")}
        self._options = store_options(given)
        self.place = str(arguments.store)

    def names(self) -> list[str]:
        return sorted({topic for topic, _, _ in queue_directories(self._options.root)})

    def source(self, topic: str, columns: Sequence[str]) -> Source:
        return StoreSource(self._options, topic, schema_of(columns))
