"""The progress of consumer groups, and connected clients."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.errors import AdminError, NotFound
from triomq.admin.java_text import date_time, front, hash_ordered, iso_time, plain, string_hash
from triomq.admin.routes import RETRY_PREFIX, all_topics, any_address, queue_items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run

Queue = tuple[str, str, int]

OFFLINE = 206
PUSH, PULL = "CONSUME_PASSIVELY", "CONSUME_ACTIVELY"


class Stats:
    """ConsumeStats of a group over all brokers: rows by queue in MessageQueue's order, and the rate."""

    def __init__(self) -> None:
        self.rows: list[tuple[Queue, dict[str, Any]]] = []
        self.tps = 0.0

    @property
    def backlog(self) -> int:
        return sum(row["brokerOffset"] - row["consumerOffset"] for _, row in self.rows)


def consume_stats(run: Run, group: str, topic: str | None = None) -> Stats:
    """Query GET_CONSUME_STATS at each broker of the group's retry topic. Raises NotFound if none has offsets."""
    stats = Stats()
    try:
        brokers = run.session.route(RETRY_PREFIX + group)["brokerDatas"]
    except NotFound:
        raise NotFound(
            f"group {group!r} has no retry topic, which its first member creates: `mqadmin lag {group}` shows the "
            "offsets of a group that had no member"
        ) from None
    for data in brokers:
        fields = {"consumerGroup": group, "topic": topic}
        body = bodies.loads(run.session.call(any_address(data), 208, fields, timeout_seconds=15).body)
        stats.rows += queue_items(body.get("offsetTable", {}))
        stats.tps += body.get("consumeTps", 0.0)
    if not stats.rows:
        raise NotFound(f"group {group!r} has no offsets: it consumes no message yet, or it is a broadcasting group")
    stats.rows.sort(key=lambda row: row[0])
    return stats


def consumer_connections(run: Run, group: str, broker: str = "") -> dict[str, Any]:
    """Query GET_CONSUMER_CONNECTION_LIST at one broker. Raises NotFound if no member is online."""
    address = broker or any_address(run.session.route(RETRY_PREFIX + group)["brokerDatas"][0])
    body: dict[str, Any] = bodies.loads(run.session.call(address, 203, {"consumerGroup": group}).body)
    if not body.get("connectionSet"):
        raise NotFound("Not found the consumer group connection")
    return body


def version_name(ordinal: int) -> str:
    from triomq.protocol.codes import version_name as name_of

    return name_of(ordinal)


# -- consumerProgress --------------------------------------------------------------------------------------------------


def consumer_progress(run: Run) -> None:
    if run.has("g"):
        _progress_of_group(run, run.get("g"), run.flag("s"))
    else:
        _progress_of_all(run)


def _progress_of_group(run: Run, group: str, with_clients: bool) -> None:
    stats = consume_stats(run, group)
    clients = _clients_of_queues(run, group) if with_clients else {}
    layout = "%-64s  %-32s  %-4s  %-20s  %-20s  " + ("%-20s " if with_clients else "") + "%-20s  %s"
    names = ["#Topic", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime"]
    if with_clients:
        names.insert(5, "#Client IP")
    run.out.header(layout % tuple(names))
    for queue, row in stats.rows:
        topic, name, number = queue
        difference = row["brokerOffset"] - row["consumerOffset"]
        last = row.get("lastTimestamp", 0)
        cells: list[Any] = [front(topic, 64), front(name, 32), number, row["brokerOffset"], row["consumerOffset"]]
        if with_clients:
            cells.append(clients.get(queue, "N/A"))
        run.out.line(layout % (*cells, difference, date_time(last) if last else "N/A"))
        run.out.item(
            group=group,
            topic=topic,
            brokerName=name,
            queueId=number,
            brokerOffset=row["brokerOffset"],
            consumerOffset=row["consumerOffset"],
            diff=difference,
            lastTimestamp=last,
            lastTime=iso_time(last),
            **({"clientIp": clients.get(queue)} if with_clients else {}),
        )
    run.out.line()
    run.out.line(f"Consume TPS: {stats.tps:.2f}")
    run.out.line(f"Diff Total: {stats.backlog}")


def _clients_of_queues(run: Run, group: str) -> dict[Queue, str]:
    """Return the address of the member that has each queue, according to all members."""
    found: dict[Queue, str] = {}
    try:
        connections = consumer_connections(run, group)["connectionSet"]
    except AdminError:
        return found
    for connection in connections:
        try:
            info = running_info(run, group, connection["clientId"])
        except AdminError as error:
            run.failed(str(error))
            continue
        for queue, _ in queue_items(info.get("mqTable", {})):
            found[queue] = connection["clientId"].partition("@")[0]
    return found


def running_info(run: Run, group: str, client_id: str, *, with_stacks: bool = False) -> dict[str, Any]:
    """Return GET_CONSUMER_RUNNING_INFO of one member, through a broker to which it is connected."""
    fields = {"consumerGroup": group, "clientId": client_id, "jstackEnable": with_stacks}
    address = any_address(run.session.route(RETRY_PREFIX + group)["brokerDatas"][0])
    info: dict[str, Any] = bodies.loads(run.session.call(address, 307, fields, timeout_seconds=15).body)
    return info


def _progress_of_all(run: Run) -> None:
    layout = "%-64s  %-6s  %-24s %-5s  %-14s  %-7s  %s"
    run.out.header(layout % ("#Group", "#Count", "#Version", "#Type", "#Model", "#TPS", "#Diff Total"))
    for topic in all_topics(run.session):
        if not topic.startswith(RETRY_PREFIX):
            continue
        group = topic.removeprefix(RETRY_PREFIX)
        try:
            stats = consume_stats(run, group)
            tps, backlog = int(stats.tps), stats.backlog
        except AdminError:
            tps, backlog = 0, 0
        count, version, kind, model = _members(run, group)
        run.out.line(layout % (front(group, 64), count, version, kind, model, tps, backlog))
        run.out.item(
            group=group,
            count=count,
            version=version,
            type=kind or None,
            model=model or None,
            tps=tps,
            diffTotal=backlog,
        )


def _members(run: Run, group: str) -> tuple[int, str, str, str]:
    """Return (number of members, lowest version, PUSH or PULL, model)."""
    try:
        body = consumer_connections(run, group)
    except AdminError:
        return 0, "OFFLINE", "", ""
    connections = body["connectionSet"]
    lowest = min(connection.get("version", 0) for connection in connections)
    is_push = body.get("consumeType") == PUSH
    return len(connections), version_name(lowest), "PUSH" if is_push else "PULL", plain(body.get("messageModel"))


# -- brokerConsumeStats ------------------------------------------------------------------------------------------------


def broker_consume_stats(run: Run) -> None:
    timeout_seconds = run.number("t", 50_000) / 1000
    least = run.number("l", 0)
    response = run.session.call(run.get("b"), 317, {"isOrder": run.flag("o")}, timeout_seconds=timeout_seconds)
    layout = "%-64s  %-64s  %-32s  %-4s  %-20s  %-20s  %-20s  %s"
    names = ("#Topic", "#Group", "#Broker Name", "#QID", "#Broker Offset", "#Consumer Offset", "#Diff", "#LastTime")
    run.out.header(layout % names)
    total = 0
    for table in bodies.loads(response.body).get("consumeStatsList", []):
        for group, every in table.items():
            for stats in every:
                for queue, row in sorted(queue_items(stats.get("offsetTable", {})), key=lambda item: item[0]):
                    difference = row["brokerOffset"] - row["consumerOffset"]
                    last = row.get("lastTimestamp", 0)
                    if difference < least or last <= 0:
                        continue
                    total += difference
                    cells = (front(queue[0], 64), group, front(queue[1], 32), queue[2])
                    offsets = (row["brokerOffset"], row["consumerOffset"], difference, date_time(last))
                    run.out.line(layout % (*cells, *offsets))
                    run.out.item(
                        topic=queue[0],
                        group=group,
                        brokerName=queue[1],
                        queueId=queue[2],
                        brokerOffset=row["brokerOffset"],
                        consumerOffset=row["consumerOffset"],
                        diff=difference,
                        lastTimestamp=last,
                        lastTime=iso_time(last),
                    )
    run.out.line()
    run.out.line(f"Diff Total: {total}")


# -- connections -------------------------------------------------------------------------------------------------------


def consumer_connection(run: Run) -> None:
    body = consumer_connections(run, run.get("g"), run.get("b"))
    layout = "%-36s %-22s %-10s %s"
    run.out.header(layout % ("#ClientId", "#ClientAddr", "#Language", "#Version"))
    for connection in _by_client(body["connectionSet"]):
        version = version_name(connection["version"])
        run.out.line(layout % (connection["clientId"], connection["clientAddr"], connection["language"], version))
    run.out.line()
    run.out.line("Below is subscription:")
    run.out.line("%-20s %s" % ("#Topic", "#SubExpression"))
    table = body.get("subscriptionTable", {})
    for topic in hash_ordered(table, [string_hash(topic) for topic in table]):
        run.out.line("%-20s %s" % (table[topic]["topic"], table[topic]["subString"]))
    run.out.line()
    for name in ("ConsumeType", "MessageModel", "ConsumeFromWhere"):
        run.out.line(f"{name}: {plain(body.get(name[0].lower() + name[1:]))}")
    run.out.item(group=run.get("g"), **body)


def _by_client(connections: list[dict[str, Any]]) -> list[dict[str, Any]]:
    return sorted(connections, key=lambda connection: str(connection["clientId"]))


def producer_connection(run: Run) -> None:
    group = run.get("g")
    address = any_address(run.session.route(run.get("t"))["brokerDatas"][0])
    connections = bodies.loads(run.session.call(address, 204, {"producerGroup": group}).body).get("connectionSet")
    if not connections:
        raise NotFound("Not found the producer group connection")
    for number, connection in enumerate(_by_client(connections), 1):
        version = version_name(connection["version"])
        shown = (number, connection["clientId"], connection["clientAddr"], connection["language"], version)
        run.out.line("%04d  %-32s %-22s %-8s %s" % shown)
        run.out.item(group=group, **{**connection, "version": version})


def producer(run: Run) -> None:
    table = bodies.loads(run.session.call(run.get("b"), 328).body).get("data") or {}
    for group in hash_ordered(table, [string_hash(group) for group in table]):
        if not table[group]:
            run.out.line(f"producer group ({group}) instances are empty")
        for each in table[group]:
            run.out.line(
                f"producer group ({group}) instance : clientId={each['clientId']},remoteIP={each['remoteIP']}, "
                f"language={each['language']}, version={each['version']}, "
                f"lastUpdateTimestamp={each['lastUpdateTimestamp']}"
            )
            run.out.item(group=group, **each)
