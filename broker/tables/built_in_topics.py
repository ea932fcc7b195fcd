"""The topics that every broker has from the start (RocketMQ: TopicConfigManager)."""

from __future__ import annotations

from triomq.protocol import permission
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.system_topics import (
    AUTO_CREATE_TOPIC,
    BENCHMARK_TOPIC,
    OFFSET_MOVED_EVENT,
    SCHEDULE_TOPIC,
    SELF_TEST_TOPIC,
    reply_topic,
)

SCHEDULE_QUEUES = 18
BENCHMARK_QUEUES = 1024
CLUSTER_TOPIC_QUEUES = 16
_TEMPLATE_PERM = permission.READ_WRITE | permission.INHERIT


def built_in_topics(
    *,
    cluster: str,
    broker_name: str,
    default_queue_count: int,
    auto_create: bool = True,
    cluster_topic_enable: bool = True,
    broker_topic_enable: bool = True,
    trace_topic: str | None = None,
) -> list[TopicConfig]:
    """Return the topics that every broker has from the start; `trace_topic` is given if message tracing is on."""
    topics = [_topic(SELF_TEST_TOPIC, 1)]
    if auto_create:
        topics.append(_topic(AUTO_CREATE_TOPIC, default_queue_count, _TEMPLATE_PERM))
    topics += [
        _topic(BENCHMARK_TOPIC, BENCHMARK_QUEUES),
        _topic(cluster, CLUSTER_TOPIC_QUEUES, _TEMPLATE_PERM if cluster_topic_enable else permission.INHERIT),
        _topic(broker_name, 1, _TEMPLATE_PERM if broker_topic_enable else permission.INHERIT),
        _topic(OFFSET_MOVED_EVENT, 1),
        _topic(SCHEDULE_TOPIC, SCHEDULE_QUEUES),
    ]
    if trace_topic is not None:
        topics.append(_topic(trace_topic, 1))
    topics.append(_topic(reply_topic(cluster), 1))
    return topics


def _topic(name: str, queue_count: int, perm: int = permission.READ_WRITE) -> TopicConfig:
    return TopicConfig(topic_name=name, read_queue_nums=queue_count, write_queue_nums=queue_count, perm=perm)
