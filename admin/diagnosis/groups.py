"""Groups: somebody reads what waits, from offsets that exist; members agree on what they read, and each queue has an
owner."""

from __future__ import annotations

from triomq.admin.cluster_view import backlog, group_names, members, progress
from triomq.admin.commands.progress import running_info
from triomq.admin.diagnosis import WARNING, Finding
from triomq.admin.errors import AdminError
from triomq.admin.routes import queue_items
from triomq.protocol import findings

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from triomq.admin.cluster_view import QueueKey
    from triomq.admin.run import Run

MAX_MEMBERS_ASKED = 100
BROADCASTING = "BROADCASTING"


def examine_groups(run: Run) -> Iterator[Finding]:
    for group in group_names(run):
        rows = progress(run, group)
        online = members(run, group)
        waiting = sum(map(backlog, rows.values()))
        yield from _beyond(group, rows)
        if not online:
            if waiting > 0:
                yield findings.nobody_reads(group, waiting, _cluster_of(run))
            continue
        infos = _infos(run, group, list(online)[:MAX_MEMBERS_ASKED])
        yield from _subscriptions(group, infos)
        if len(infos) == len(online) and not _broadcasts(infos):
            yield from _owners(group, rows, infos)


def _cluster_of(run: Run) -> str:
    """Return the cluster for a command, as far as there is only one."""
    clusters = list(run.session.cluster_info().get("clusterAddrTable", {}))
    return clusters[0] if len(clusters) == 1 else "CLUSTER"


def _beyond(group: str, rows: dict[QueueKey, dict[str, Any]]) -> Iterator[Finding]:
    beyond = {queue: row for queue, row in rows.items() if row["consumerOffset"] > row["brokerOffset"]}
    by_topic: dict[str, list[tuple[str, int, int, int]]] = {}
    for (topic, name, number), row in beyond.items():
        by_topic.setdefault(topic, []).append((name, number, row["consumerOffset"], row["brokerOffset"]))
    for topic, queues in by_topic.items():
        yield findings.beyond_end(group, topic, queues)


def _infos(run: Run, group: str, clients: list[str]) -> dict[str, dict[str, Any]]:
    """Return what each member reports; clients that cannot report, as those of old versions, are left out."""
    found: dict[str, dict[str, Any]] = {}
    for client in clients:
        try:
            found[client] = running_info(run, group, client)
        except AdminError:
            continue
    return found


def _broadcasts(infos: dict[str, dict[str, Any]]) -> bool:
    return any(info.get("properties", {}).get("messageModel") == BROADCASTING for info in infos.values())


def _subscriptions(group: str, infos: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    sets: dict[str, list[str]] = {}
    for client, info in infos.items():
        texts = sorted(f"{each['topic']}: {each['subString']}" for each in info.get("subscriptionSet", ()))
        sets.setdefault("; ".join(texts), []).append(client)
    if len(sets) > 1:
        shown = " -- ".join([f"{names[0]} has {text or 'nothing'}" for text, names in list(sets.items())[:3]])
        yield findings.subscriptions_differ(group, f"members of group {group} subscribe to different things: {shown}")


def _owners(group: str, rows: dict[QueueKey, dict[str, Any]], infos: dict[str, dict[str, Any]]) -> Iterator[Finding]:
    owned = {queue for info in infos.values() for queue, _ in queue_items(info.get("mqTable", {}))}
    topics = {each["topic"] for info in infos.values() for each in info.get("subscriptionSet", ())}
    missing = sorted(queue for queue in rows if queue[0] in topics and queue not in owned)
    if missing:
        shown = ", ".join([f"{topic} {name}/{number}" for topic, name, number in missing[:5]])
        yield Finding(
            WARNING,
            "no-owner",
            group,
            f"{len(missing)} queues of group {group} belong to no member: {shown}",
            "their messages wait",
            f"wait 20 s for the next rebalance; then `mqadmin consumerStatus -g {group}`, and restart the members",
        )
