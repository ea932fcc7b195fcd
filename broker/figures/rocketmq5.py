"""The families of RocketMQ 5 that have a meaning for this broker, under the names that its Prometheus endpoint exposes.

Counters and sizes come from BrokerStats, which counts by topic and queue. So `message_type` is that of the topic: delay
and transaction for the topics where such messages wait, fifo for ordered topics, else normal.
"""

from __future__ import annotations

import shutil
from collections import Counter
from collections.abc import Callable, Iterator

from triomq.broker.figures.parts import Parts
from triomq.broker.figures.snapshot import PairFigures, Snapshot
from triomq.broker.metrics import stats_names as names
from triomq.broker.metrics.sampling import SIZE_EDGES_BYTES
from triomq.monitoring.answers import Answers
from triomq.monitoring.exposition import Family, Sample, Samples, Value, bounded, counter, gauge, histogram
from triomq.monitoring.histogram import Histogram
from triomq.protocol.codes import LanguageCode, RequestCode, ResponseCode, version_name
from triomq.protocol.system_topics import (
    DLQ_PREFIX,
    RETRY_PREFIX,
    SCHEDULE_TOPIC,
    TRANS_HALF_TOPIC,
    is_system_topic,
)

_SYSTEM_GROUP = "CID_RMQ_SYS_"
_MODES = {"CONSUME_ACTIVELY": "pull", "CONSUME_PASSIVELY": "push"}
_SIZE_EDGES = [float(edge) for edge in SIZE_EDGES_BYTES]
_STORAGE = {"storage_type": "local", "storage_medium": "disk"}


class RocketMq5Figures:
    def __init__(self, parts: Parts, answers: Answers) -> None:
        self._parts = parts
        self._answers = answers

    def families(self, snapshot: Snapshot) -> Iterator[Family]:
        """Yield all families; the snapshot is computed already."""
        yield from self._flows()
        yield from self._lags(snapshot)
        yield from self._clients()
        yield from self._broker()
        yield from self._storage()
        yield self._latencies()

    def _latencies(self) -> Family:
        samples: list[tuple[str, Histogram]] = []
        for (request_code, response_code, is_held), times in sorted(self._answers.times.items()):
            text = self._parts.rocketmq5_labels(
                protocol_type="remoting",
                request_code=_code_name(RequestCode, request_code),
                response_code=_code_name(ResponseCode, response_code),
                is_long_polling=_truth(is_held),
                result="success",
            )
            samples.append((text, times))
        return histogram(
            "rocketmq_rpc_latency_milliseconds",
            "From the arrival of a request to the end of the turn that sends its response.",
            samples,
        )

    # -- counted by topic and group ------------------------------------------------------------------------------------

    def _flows(self) -> Iterator[Family]:
        stats, parts = self._parts.serving.tables.stats, self._parts

        def stored(value: Callable[[str], Value]) -> Samples:
            def sample(topic: str) -> Sample | None:
                if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                    return None
                text = parts.rocketmq5_labels(
                    topic=topic, message_type=self._message_type(topic), is_system=_truth(is_system_topic(topic))
                )
                return text, value(topic)

            return bounded(stats.keys(names.TOPIC_PUT_NUMS), parts.limit, sample)

        def total(name: str) -> Callable[[str], Value]:
            return lambda topic: stats.total(name, topic)

        def sizes(topic: str) -> Value:
            counts = stats.message_sizes(topic)
            return Histogram.of(_SIZE_EDGES, counts, float(stats.total(names.TOPIC_PUT_SIZE, topic)))

        def handed_out(name: str) -> Samples:
            def sample(key: str) -> Sample | None:
                topic, _, group = key.partition("@")
                if topic.startswith((RETRY_PREFIX, DLQ_PREFIX)):
                    return None
                return parts.rocketmq5_labels(topic=topic, **_of_group(group)), stats.total(name, key)

            return bounded(stats.keys(names.GROUP_GET_NUMS), parts.limit, sample)

        def dead() -> Samples:
            topics = [topic for topic in self._topic_names() if topic.startswith(DLQ_PREFIX)]

            def sample(topic: str) -> Sample:
                total = sum(self._parts.serving.store.reading.ends(topic).values())
                return parts.rocketmq5_labels(topic=topic, **_of_group(topic.removeprefix(DLQ_PREFIX))), total

            return bounded(topics, parts.limit, sample)

        puts = total(names.TOPIC_PUT_NUMS)
        put_bytes = total(names.TOPIC_PUT_SIZE)
        yield counter("rocketmq_messages_in_total", "Messages stored for producers.", stored(puts))
        yield counter("rocketmq_throughput_in_total", "Bytes of their records.", stored(put_bytes))
        yield histogram(
            "rocketmq_message_size", "Bytes of the record of a message; of a batch their average.", stored(sizes)
        )
        yield counter("rocketmq_messages_out_total", "Messages handed to consumers.", handed_out(names.GROUP_GET_NUMS))
        yield counter("rocketmq_throughput_out_total", "Their bytes.", handed_out(names.GROUP_GET_SIZE))
        yield counter("rocketmq_send_to_dlq_messages_total", "Messages in the topic of dead letters.", dead())

    def _topic_names(self) -> list[str]:
        return list(self._parts.serving.tables.metadata.topics.names())

    def _message_type(self, topic: str) -> str:
        if topic == SCHEDULE_TOPIC:
            return "delay"
        if topic == TRANS_HALF_TOPIC:
            return "transaction"
        return "fifo" if self._parts.serving.tables.metadata.topics.is_ordered(topic) else "normal"

    # -- groups --------------------------------------------------------------------------------------------------------

    def _lags(self, snapshot: Snapshot) -> Iterator[Family]:
        def of_pairs(value: Callable[[PairFigures], int]) -> Samples:
            for pair in snapshot.pairs:
                if pair.is_broadcasting:
                    yield 0
                    continue
                text = self._parts.rocketmq5_labels(
                    topic=pair.topic, is_retry=_truth(pair.is_retry), **_of_group(pair.group)
                )
                yield text, value(pair)
            yield snapshot.pairs_left_out

        yield gauge(
            "rocketmq_consumer_lag_messages", "Messages that the group has not consumed.", of_pairs(lambda p: p.lag)
        )
        yield gauge(
            "rocketmq_consumer_lag_latency_milliseconds",
            "Age of the oldest of them, 0 if there is none.",
            of_pairs(lambda pair: pair.age_ms),
        )
        yield gauge(
            "rocketmq_consumer_inflight_messages",
            "Messages that the group has pulled and not committed.",
            of_pairs(lambda pair: pair.inflight),
        )
        yield gauge(
            "rocketmq_consumer_ready_messages",
            "Messages that the group has not pulled.",
            of_pairs(lambda pair: pair.ready),
        )
        yield gauge(
            "rocketmq_consumer_queueing_latency_milliseconds",
            "Age of the oldest of them, 0 if there is none.",
            of_pairs(lambda pair: pair.ready_age_ms),
        )

    def _clients(self) -> Iterator[Family]:
        metadata, parts = self._parts.serving.tables.metadata, self._parts
        producers = Counter(
            (_language(channel.language), version_name(channel.version).lower())
            for _, channels in metadata.producers.items()
            for channel in channels
        )
        yield gauge(
            "rocketmq_producer_connections",
            "Connected producers.",
            [
                (parts.rocketmq5_labels(language=language, version=version, protocol_type="remoting"), count)
                for (language, version), count in producers.items()
            ],
        )

        def consumers() -> Samples:
            shown = 0
            for group in metadata.consumers.groups():
                kinds = Counter(
                    (_language(member.language), version_name(member.version).lower()) for member in group.members()
                )
                mode = _MODES.get(group.consumption.consume_type, "push")
                for (language, version), count in kinds.items():
                    shown += 1
                    if shown > parts.limit:
                        yield 1
                        continue
                    text = parts.rocketmq5_labels(
                        language=language,
                        version=version,
                        consume_mode=mode,
                        protocol_type="remoting",
                        **_of_group(group.name),
                    )
                    yield text, count

        yield gauge("rocketmq_consumer_connections", "Connected consumers.", consumers())

    # -- the broker ----------------------------------------------------------------------------------------------------

    def _broker(self) -> Iterator[Family]:
        serving, parts = self._parts.serving, self._parts
        tables = serving.tables
        plain = parts.rocketmq5_labels()
        held = len(serving.pull.long_polling)
        yield gauge(
            "rocketmq_processor_watermark",
            "Unfinished requests of a pool, without held pulls.",
            [
                (
                    parts.rocketmq5_labels(processor=_POOLS[pool.name]),
                    max(0, pool.in_flight - held) if pool.name == "pull" else pool.in_flight,
                )
                for pool in tables.pools.all()
            ],
        )
        yield gauge(
            "rocketmq_broker_permission",
            "2: write, 4: read, 6: both.",
            [(plain, tables.configuration.broker.broker_permission)],
        )
        yield gauge("rocketmq_topic_number", "Topics.", [(plain, len(tables.metadata.topics.names()))])
        groups = len(tables.metadata.groups.names())
        yield gauge("rocketmq_consumer_group_number", "Consumer groups.", [(plain, groups)])

    def _storage(self) -> Iterator[Family]:
        store, tables = self._parts.serving.store, self._parts.serving.tables
        text = self._parts.rocketmq5_labels(**_STORAGE)
        try:
            used = shutil.disk_usage(store.paths.root).used
        except OSError:
            used = 0
        yield gauge("rocketmq_storage_size_bytes", "Used bytes of the disk of the store.", [(text, used)])
        behind = max(0, store.reading.max_physical_offset - store.flushed.value)
        yield gauge("rocketmq_storage_flush_behind_bytes", "Bytes that are not yet synced.", [(text, behind)])
        yield gauge("rocketmq_storage_dispatch_behind_bytes", "Bytes without queue entries; always 0.", [(text, 0)])
        oldest_ms = store.reading.earliest_log_time()
        age_ms = max(0, tables.now_ms() - oldest_ms) if oldest_ms >= 0 else 0
        name = "rocketmq_storage_message_reserve_time_milliseconds"
        yield gauge(name, "Age of the oldest message.", [(text, age_ms)])


_POOLS = {
    "send": "send",
    "put": "async_put",
    "pull": "pull",
    "reply": "reply",
    "query": "query_message",
    "heartbeat": "heartbeat",
    "client": "client_manager",
    "consumer": "consumer_manager",
    "transaction": "transaction",
    "admin": "admin",
}
"""Pool -> RocketMQ 5's name for it."""


def _of_group(group: str) -> dict[str, str]:
    return {"consumer_group": group, "is_system": _truth(group.startswith(_SYSTEM_GROUP))}


def _truth(value: bool) -> str:
    return "true" if value else "false"


def _language(code: int) -> str:
    try:
        return LanguageCode(code).name.lower()
    except ValueError:
        return "other"


def _code_name(codes: type[RequestCode] | type[ResponseCode], code: int) -> str:
    try:
        return codes(code).name.lower()
    except ValueError:
        return "other"
