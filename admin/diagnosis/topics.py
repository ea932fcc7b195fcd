"""Topics: the same queues at every broker, permissions, dead letters."""

from __future__ import annotations

from triomq.admin.cluster_view import attempt, now_ms
from triomq.admin.dead_letters import count_waiting
from triomq.admin.diagnosis import INFORMATION, WARNING, Finding
from triomq.admin.java_text import perm_text
from triomq.admin.routes import DLQ_PREFIX, RETRY_PREFIX, all_topics, any_address, queue_items
from triomq.protocol import findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from triomq.admin.run import Run

READ, WRITE = 4, 2
DEFAULT = "DefaultCluster"


def examine_topics(run: Run) -> Iterator[Finding]:
    for topic in sorted(all_topics(run.session)):
        if topic.startswith(RETRY_PREFIX):
            continue
        route = run.session.route(topic)
        if topic.startswith(DLQ_PREFIX):
            yield from _dead_letters(run, topic, route)
        else:
            yield from _queues(topic, route)
            yield from _permissions(run, topic, route)


def _queues(topic: str, route: dict[str, Any]) -> Iterator[Finding]:
    counts = {data["brokerName"]: (data["readQueueNums"], data["writeQueueNums"]) for data in route["queueDatas"]}
    clusters = {data["brokerName"]: data["cluster"] for data in route["brokerDatas"]}
    yield from findings.queue_counts(topic, counts, next(iter(clusters.values()), DEFAULT), clusters.values())
    for name, (read, write) in counts.items():
        yield from findings.unread_queues(topic, name, read, write, clusters.get(name, DEFAULT))


def _permissions(run: Run, topic: str, route: dict[str, Any]) -> Iterator[Finding]:
    for data in route["queueDatas"]:
        perm = data["perm"]
        if perm & READ and perm & WRITE:
            continue
        broker = next((each for each in route["brokerDatas"] if each["brokerName"] == data["brokerName"]), None)
        own = attempt(run, any_address(broker), 21) if broker else None
        config = (own or {}).get("topicConfigTable", {}).get(topic, {})
        if config.get("perm", perm) & WRITE and not perm & WRITE:
            yield Finding(
                WARNING,
                "wiped",
                data["brokerName"],
                f"producers do not choose broker {data['brokerName']} for {topic}",
                "its write permission was wiped at the NameServer, perhaps for maintenance",
                f"`mqadmin addWritePerm -b {data['brokerName']}`",
            )
        else:
            yield Finding(
                INFORMATION,
                "permission",
                topic,
                f"topic {topic} at {data['brokerName']} is {perm_text(perm)}",
                "it cannot be both written and read",
                f"`mqadmin updateTopicPerm -t {topic} -p 6 -c {_cluster(broker)}`",
            )


def _cluster(broker: dict[str, Any] | None) -> str:
    return str((broker or {}).get("cluster", DEFAULT))


def _dead_letters(run: Run, topic: str, route: dict[str, Any]) -> Iterator[Finding]:
    group = topic.removeprefix(DLQ_PREFIX)
    queues: list[tuple[str, int, str, int, int]] = []
    last = 0
    for data in route["brokerDatas"]:
        address = any_address(data)
        body = attempt(run, address, 202, {"topic": topic}) or {}
        for (_, name, number), offsets in queue_items(body.get("offsetTable", {})):
            if offsets["maxOffset"] > offsets["minOffset"]:
                queues.append((name, number, address, offsets["minOffset"], offsets["maxOffset"]))
                last = max(last, offsets.get("lastUpdateTimestamp", 0))
    if queues and now_ms() - last < findings.RECENT_MS:
        waiting = count_waiting(run, topic, queues)
        if waiting:
            yield findings.dead_letters(group, waiting)
