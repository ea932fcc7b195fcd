"""The families of rocketmq-exporter, with its names, labels and units, so that dashboards and alerts made for it work.

All are gauges, also those that only grow, as the exporter has them. Those of topics and groups come from a snapshot,
those of the statistics from BrokerStats, `rocketmq_brokeruntime_*` from what GET_BROKER_RUNTIME_INFO responds.
"""

from __future__ import annotations

import shutil
from collections.abc import Callable, Iterator

from triomq.broker.figures.parts import Parts
from triomq.broker.figures.runtime_names import RUNTIME_FAMILIES, runtime_numbers
from triomq.broker.figures.snapshot import PairFigures, Snapshot
from triomq.broker.metrics import stats_names as names
from triomq.monitoring.exposition import Family, Sample, Samples, Value, bounded, gauge, labels
from triomq.protocol.codes import V4_9_7, version_name
from triomq.protocol.system_topics import DLQ_PREFIX, RETRY_PREFIX

CLUSTERING, BROADCASTING = "1", "0"
_HIDDEN = (RETRY_PREFIX, DLQ_PREFIX)


class ExporterFigures:
    def __init__(self, parts: Parts) -> None:
        self._parts = parts

    def families(self, snapshot: Snapshot) -> Iterator[Family]:
        """Yield all families. The first of topics computes the snapshot."""
        yield from self._of_topics(snapshot)
        yield from self._of_groups(snapshot)
        yield from self._of_statistics()
        yield from self._of_clients()
        yield from self._of_broker()
        yield from self._runtime()

    # -- topics and groups -------------------------------------------------------------------------------------------

    def _of_topics(self, snapshot: Snapshot) -> Iterator[Family]:
        parts = self._parts

        def offsets(begins: Callable[[str], bool], label: str, cut: int) -> Samples:
            for topic in snapshot.topics:
                if begins(topic.name):
                    yield parts.exporter_labels(**{label: topic.name[cut:]}), topic.end
            yield snapshot.topics_left_out

        def first() -> Samples:
            yield from snapshot.steps()
            yield from offsets(lambda topic: not topic.startswith(_HIDDEN), "topic", 0)

        yield gauge("rocketmq_producer_offset", "Sum of the max offsets of the topic's queues.", first())
        yield gauge(
            "rocketmq_topic_retry_offset",
            "The same for a topic of retries.",
            offsets(lambda topic: topic.startswith(RETRY_PREFIX), "topic", 0),
        )
        yield gauge(
            "rocketmq_topic_dlq_offset",
            "The same for a topic of dead letters, by its group.",
            offsets(lambda topic: topic.startswith(DLQ_PREFIX), "group", len(DLQ_PREFIX)),
        )

    def _of_groups(self, snapshot: Snapshot) -> Iterator[Family]:
        def of_pairs(sample: Callable[[PairFigures], Sample | None]) -> Samples:
            for pair in snapshot.pairs:
                yield sample(pair) or 0
            yield snapshot.pairs_left_out

        def lag(pair: PairFigures, *, is_retry: bool) -> Sample | None:
            if pair.is_broadcasting or pair.is_retry is not is_retry:
                return None
            text = labels(
                group=pair.group,
                topic=pair.topic,
                countOfOnlineConsumers=str(pair.members),
                msgModel=CLUSTERING,
            )
            return text, pair.lag

        def of_broker(pair: PairFigures, value: int) -> Sample | None:
            if pair.is_broadcasting:
                return None
            return self._parts.exporter_labels(topic=pair.topic, group=pair.group), value

        yield gauge(
            "rocketmq_group_diff",
            "Messages of this broker that the group has not consumed.",
            of_pairs(lambda pair: lag(pair, is_retry=False)),
        )
        yield gauge(
            "rocketmq_group_retrydiff",
            "The same for the group's retries.",
            of_pairs(lambda pair: lag(pair, is_retry=True)),
        )
        yield gauge(
            "rocketmq_consumer_offset",
            "Sum of the offsets that the group has committed.",
            of_pairs(lambda pair: of_broker(pair, pair.consumed)),
        )
        yield gauge(
            "rocketmq_group_get_latency_by_storetime",
            "Age in ms of the oldest message that the group has not consumed, 0 if there is none.",
            of_pairs(lambda pair: of_broker(pair, pair.age_ms)),
        )
        yield gauge(
            "rocketmq_group_count",
            "Connected members of a consumer group.",
            bounded(self._parts.serving.tables.metadata.groups.names(), self._parts.limit, self._members),
        )

    def _members(self, group: str) -> Sample:
        online = self._parts.serving.tables.metadata.consumers.get(group)
        members = online.members() if online is not None else []
        addresses = ",".join([member.remote_text for member in members])
        return labels(caddr=addresses, localaddr=",".join([m.client_id for m in members]), group=group), len(members)

    # -- statistics of the last minute ---------------------------------------------------------------------------------

    def _of_statistics(self) -> Iterator[Family]:
        stats, parts = self._parts.serving.tables.stats, self._parts

        def by_topic(name: str) -> Samples:
            keys = [topic for topic in stats.keys(names.TOPIC_PUT_NUMS) if not topic.startswith(_HIDDEN)]

            def sample(topic: str) -> Sample:
                return parts.exporter_labels(topic=topic), round(stats.per_second(name, topic), 2)

            return bounded(keys, parts.limit, sample)

        def by_group(key_name: str, value: Callable[[str], Value]) -> Samples:
            def sample(key: str) -> Sample | None:
                topic, _, group = key.partition("@")
                if topic.startswith(_HIDDEN):
                    return None
                return parts.exporter_labels(topic=topic, group=group), value(key)

            return bounded(stats.keys(key_name), parts.limit, sample)

        def rate(name: str) -> Callable[[str], Value]:
            return lambda key: round(stats.per_second(name, key), 2)

        def sent_back(key: str) -> Value:
            found = stats.snapshot(names.SNDBCK_PUT_NUMS, key)
            return found.stats_minute.sum if found is not None else 0

        yield gauge("rocketmq_producer_tps", "Messages stored a second, last minute.", by_topic(names.TOPIC_PUT_NUMS))
        yield gauge(
            "rocketmq_producer_message_size", "Bytes stored a second, last minute.", by_topic(names.TOPIC_PUT_SIZE)
        )
        yield gauge(
            "rocketmq_consumer_tps",
            "Messages handed to the group a second, last minute.",
            by_group(names.GROUP_GET_NUMS, rate(names.GROUP_GET_NUMS)),
        )
        yield gauge(
            "rocketmq_consumer_message_size",
            "Bytes handed to the group a second, last minute.",
            by_group(names.GROUP_GET_NUMS, rate(names.GROUP_GET_SIZE)),
        )
        yield gauge(
            "rocketmq_send_back_nums",
            "Messages that the group sent back in the last minute.",
            by_group(names.SNDBCK_PUT_NUMS, sent_back),
        )

    # -- clients and the broker ----------------------------------------------------------------------------------------

    def _of_clients(self) -> Iterator[Family]:
        parts = self._parts
        producers = parts.serving.tables.metadata.producers

        def connections(group: str) -> Sample:
            return parts.exporter_labels(group=group), len(producers.channels(group) or ())

        yield gauge(
            "rocketmq_producer_count",
            "Connected producers of a group.",
            bounded([group for group, _ in producers.items() if group], parts.limit, connections),
        )
        yield from parts.clients.families(parts.limit)

    def _of_broker(self) -> Iterator[Family]:
        serving, parts = self._parts.serving, self._parts
        stats, cluster = serving.tables.stats, parts.cluster

        def own(address: str = serving.address) -> str:
            return labels(cluster=cluster, brokerIP=address, broker=parts.name)

        puts, gets = (stats.per_second(name, cluster) for name in (names.BROKER_PUT_NUMS, names.BROKER_GET_NUMS))
        yield gauge("rocketmq_broker_tps", "Messages stored a second, last minute.", [(own(), round(puts, 2))])
        yield gauge("rocketmq_broker_qps", "Messages handed out a second, last minute.", [(own(), round(gets, 2))])
        end = serving.store.reading.max_physical_offset
        behind: dict[str, int] = {}
        if not serving.tables.configuration.role.is_slave:
            for link in serving.replication.log_server.links:
                if not link.is_silent:
                    address = link.remote.rpartition(":")[0]
                    behind[address] = max(behind.get(address, 0), end - link.reported)
        yield gauge(
            "rocketmq_broker_commitlog_diff",
            "Bytes of the log that a slave lacks.",
            [(own(address), lag) for address, lag in sorted(behind.items())],
        )

    def _runtime(self) -> Iterator[Family]:
        serving = self._parts.serving
        values = self._parts.info.values()
        store = serving.store
        try:
            usage = shutil.disk_usage(store.paths.commit_logs[0])
            exact = {"commitlogdir_capacity_total": usage.total, "commitlogdir_capacity_free": usage.free}
        except OSError:
            exact = {"commitlogdir_capacity_total": 0, "commitlogdir_capacity_free": 0}
        exact["remain_howmanydata_toflush"] = max(0, store.reading.max_physical_offset - store.flushed.value)
        numbers = {**runtime_numbers(values), **exact}
        text = labels(
            cluster=self._parts.cluster,
            brokerIP=serving.address,
            brokerHost="",
            des=version_name(V4_9_7),
            boottime=values["bootTimestamp"],
            broker_version=str(V4_9_7),
        )
        for name, meaning in RUNTIME_FAMILIES.items():
            yield gauge(f"rocketmq_brokeruntime_{name}", meaning, [(text, numbers[name])])
