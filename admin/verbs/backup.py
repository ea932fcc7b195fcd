"""backup: topics, groups, offsets, accounts, settings and key-value configuration of a cluster as files; messages of
chosen topics, too.
"""

from __future__ import annotations

import base64
import json
import os
import time

from triomq.admin import backup_file, bodies
from triomq.admin.cluster_view import master_table, topic_queues
from triomq.admin.commands.exports import SYSTEM_GROUPS
from triomq.admin.commands.name_servers import properties_of
from triomq.admin.commands.topics import ORDER_NAMESPACE
from triomq.admin.errors import AdminError, UsageError
from triomq.admin.java_text import iso_time
from triomq.admin.messages import OFFSET_ILLEGAL, Queue, pull
from triomq.admin.progress_line import ProgressLine
from triomq.admin.session import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Iterator
    from typing import Any

    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt

MAX_MESSAGES = 100_000
SECRET_WORDS = ("secret", "password", "passwd", "token", "credential")
ADDED_BY_PULLS = {"MIN_OFFSET", "MAX_OFFSET"}


def backup(run: Run) -> None:
    directory = run.get("DIR")
    saved = _saved_cluster(run)
    run.change("makeDirectory", f"make the directory {directory}", lambda: backup_file.make_directory(directory))
    for number, topic in enumerate(dict.fromkeys(run.every("messages"))):
        queues, count = _counted(run, topic)
        saved["messages"][topic] = {"file": f"messages-{number}.jsonl", "count": count}
        _save_messages(run, os.path.join(directory, f"messages-{number}.jsonl"), topic, queues)
    path = os.path.join(directory, backup_file.NAME)
    data = backup_file.encoded(saved)
    run.change("writeFile", f"write {path}", lambda: backup_file.write_private(path, iter([data])))
    items = [_summary(name, broker) for name, broker in saved["brokers"].items()]
    columns = {
        "brokerName": "BROKER",
        "topics": "TOPICS",
        "groups": "GROUPS",
        "offsets": "OFFSETS",
        "accounts": "ACCOUNTS",
    }
    run.out.table(columns, [{"path": directory, **item} for item in items])
    for topic, entry in saved["messages"].items():
        run.out.line(f"{entry['count']} messages of topic {topic}")
    if not saved["withSecrets"] and any(item["accounts"] for item in items):
        run.out.line("The accounts have no secrets in it: --secrets keeps them, in plain text.")


def _summary(name: str, broker: dict[str, Any]) -> dict[str, Any]:
    offsets = sum([len(queues) for topics in broker["offsets"].values() for queues in topics.values()])
    accounts = len(broker["acl"]["accounts"]) if broker["acl"] else 0
    return {
        "brokerName": name,
        "topics": len(broker["topics"]),
        "groups": len(broker["groups"]),
        "offsets": offsets,
        "accounts": accounts,
    }


def _saved_cluster(run: Run) -> backup_file.Backup:
    masters = master_table(run)
    clusters = run.session.cluster_info().get("clusterAddrTable", {})
    if run.has("cluster"):
        names = run.session.broker_names(run.get("cluster"))
        masters = {name: address for name, address in masters.items() if name in names}
        clusters = {run.get("cluster"): names}
    namespaces = dict.fromkeys([ORDER_NAMESPACE, *run.every("namespace")])
    return {
        "format": backup_file.FORMAT,
        "version": backup_file.VERSION,
        "createdAt": iso_time(time.time_ns() // 1_000_000),
        "nameServers": ";".join(run.session.name_servers),
        "withSecrets": run.has("secrets"),
        "clusters": {name: sorted(each for each in names if each in masters) for name, names in clusters.items()},
        "brokers": {name: saved_broker(run, address, run.has("secrets")) for name, address in masters.items()},
        "kv": {name: table for name in namespaces if (table := kv_table(run, name))},
        "messages": {},
    }


# -- what a broker has; `restore` compares with the same --------------------------------------------------------------


def saved_broker(run: Run, address: str, with_secrets: bool) -> dict[str, Any]:
    """Return what a backup keeps of one broker."""
    settings = properties_of(run.session.call(address, 26).body)
    acl_is_on = settings.get("aclEnable") == "true"
    if not with_secrets:
        settings = {key: text for key, text in settings.items() if not any(w in key.lower() for w in SECRET_WORDS)}
    topics = saved_topics(run, address)
    return {
        "settings": settings,
        "topics": topics,
        "groups": saved_groups(run, address),
        "offsets": saved_offsets(run, address, topics),
        "acl": saved_accounts(run, address, with_secrets) if acl_is_on else None,
    }


def saved_topics(run: Run, address: str) -> dict[str, dict[str, Any]]:
    """Return the topics that users and groups made."""
    system = set(bodies.loads(run.session.call(address, 305).body).get("topicList", []))
    table = bodies.loads(run.session.call(address, 21).body).get("topicConfigTable", {})
    return {name: config for name, config in table.items() if name not in system}


def saved_groups(run: Run, address: str) -> dict[str, dict[str, Any]]:
    table = bodies.loads(run.session.call(address, 201).body).get("subscriptionGroupTable", {})
    return {name: config for name, config in table.items() if name not in SYSTEM_GROUPS}


def saved_offsets(run: Run, address: str, topics: dict[str, Any]) -> dict[str, dict[str, dict[str, int]]]:
    """Return group -> topic -> queue -> offset, of topics that exist."""
    found: dict[str, dict[str, dict[str, int]]] = {}
    for key, queues in bodies.loads(run.session.call(address, 43).body).get("offsetTable", {}).items():
        topic, _, group = key.partition("@")
        if topic in topics and group and group not in SYSTEM_GROUPS and queues:
            found.setdefault(group, {})[topic] = {str(number): int(offset) for number, offset in queues.items()}
    return found


def saved_accounts(run: Run, address: str, with_secrets: bool) -> dict[str, Any]:
    body = bodies.loads(run.session.call(address, 54).body)
    accounts = [
        {key: value for key, value in account.items() if with_secrets or key != "secretKey"}
        for account in body.get("plainAccessConfigs") or []
    ]
    return {
        "whiteAddresses": sorted(body.get("globalWhiteAddrs") or []),
        "accounts": sorted(accounts, key=lambda account: str(account.get("accessKey"))),
    }


def kv_table(run: Run, namespace: str) -> dict[str, str]:
    """Return the pairs of a namespace; empty if there is none."""
    try:
        table: dict[str, str] = bodies.loads(run.session.ask_name_server(219, {"namespace": namespace}).body)["table"]
    except Refused as error:
        if error.code != 22:
            raise
        return {}
    return table


# -- messages ----------------------------------------------------------------------------------------------------------


def _counted(run: Run, topic: str) -> tuple[list[tuple[Queue, int, int]], int]:
    """Return the queues with their ends, and how many messages there are. Raises UsageError for too many."""
    limit = run.number("atMost", MAX_MESSAGES)
    queues = [
        (Queue(topic, name, number, address), first, end)
        for name, number, address, first, end in topic_queues(run, topic)
    ]
    count = sum([end - first for _, first, end in queues])
    if count > limit:
        raise UsageError(f"topic {topic!r} has {count} messages, more than {limit}: --atMost allows more")
    return queues, count


def _save_messages(run: Run, path: str, topic: str, queues: list[tuple[Queue, int, int]]) -> None:
    total = sum([end - first for _, first, end in queues])
    text = f"write {total} messages of topic {topic} to {path}"

    def save() -> None:
        with ProgressLine(f"backup of topic {topic}") as line:
            backup_file.write_private(path, _lines(run, queues, line, total))

    run.change("writeFile", text, save)


def _lines(run: Run, queues: list[tuple[Queue, int, int]], line: ProgressLine, total: int) -> Iterator[bytes]:
    done = 0
    for queue, first, end in queues:
        offset = first
        while offset < end:
            status, after, messages = pull(run, queue, offset)
            kept = [message for message in messages if message.queue_offset < end]
            yield from [_line(message, queue) for message in kept]
            done += len(kept)
            line.show(f"{done} of {total} messages")
            if after <= offset or (status == OFFSET_ILLEGAL and after < first):
                raise AdminError(f"{queue} has no message at offset {offset}, though it ends at {end}")
            offset = after


def _line(message: MessageExt, queue: Queue) -> bytes:
    item: dict[str, Any] = {
        "brokerName": queue.broker_name,
        "queueId": queue.queue_id,
        "queueOffset": message.queue_offset,
        "bornTimestamp": message.born_timestamp,
        "flag": message.flag,
        "properties": {name: text for name, text in message.properties.items() if name not in ADDED_BY_PULLS},
        "body": base64.b64encode(bytes(message.body)).decode(),
    }
    return (json.dumps(item, ensure_ascii=False) + "\n").encode()
