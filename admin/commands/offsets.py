"""Offsets of consumer groups: copy them, and move them to a time."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.commands.progress import consume_stats
from triomq.admin.errors import AdminError, NotFound
from triomq.admin.java_text import front, hash_ordered, queue_hash
from triomq.admin.messages import NEWEST, offset_at
from triomq.admin.routes import any_address, queue_items
from triomq.admin.session import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from triomq.admin.run import Run

CONSUMER_NOT_ONLINE = 206


def clone_group_offset(run: Run) -> None:
    """Copy all topics of the source group, whatever -t says, as RocketMQ does."""
    source = run.get("s")
    target = run.get("d")
    topic = run.get("t")
    addresses = {data["brokerName"]: any_address(data) for data in run.session.route(topic)["brokerDatas"]}
    for (queue_topic, name, number), row in consume_stats(run, source).rows:
        offset = row["consumerOffset"]
        if offset >= 0 and name in addresses:
            set_offset(run, addresses[name], target, queue_topic, number, offset)
            run.out.item(group=target, topic=queue_topic, brokerName=name, queueId=number, offset=offset)
    run.out.text(f"clone group offset success. srcGroup[{source}], destGroup=[{target}], topic[{topic}]")


def set_offset(run: Run, address: str, group: str, topic: str, queue_id: int, offset: int) -> None:
    """Store one offset (UPDATE_CONSUMER_OFFSET) and wait for the response."""
    fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
    run.session.call(address, 15, fields)


def reset_offset_by_time(run: Run) -> None:
    group = run.get("g")
    topic = run.get("t")
    text = run.get("s")
    moment = NEWEST if text == "now" else run.time("s", NEWEST)
    force = run.flag("f", True)
    head = f"force[{str(force).lower()}], timestamp(string)[{text}], timestamp(long)[{moment}]"
    _reset(run, group, topic, moment, force, head)


def skip_accumulated_message(run: Run) -> None:
    _reset(run, run.get("g"), run.get("t"), NEWEST, run.flag("f", True), "")


def _reset(run: Run, group: str, topic: str, moment: int, force: bool, head: str) -> None:
    """Reset the offsets through the members if some are online, else in the brokers' own table."""
    language = "CPP" if run.has("c") else "PYTHON"
    table: dict[tuple[str, str, int], int] = {}
    try:
        for data in run.session.route(topic)["brokerDatas"]:
            fields = {"topic": topic, "group": group, "timestamp": moment, "isForce": force}
            address = any_address(data)
            response = run.session.request(address, 222, fields, timeout_seconds=15, language=language)
            if response.code != 0:
                raise Refused(address, response)
            if response.body:
                table.update(queue_items(bodies.loads(response.body).get("offsetTable") or {}))
    except Refused as error:
        if error.code != CONSUMER_NOT_ONLINE:
            raise
        _reset_offline(run, group, topic, moment, force, head)
        return
    if head:
        run.out.line(f"rollback consumer offset by specified group[{group}], topic[{topic}], {head}")
    run.out.header("%-40s  %-40s  %-40s" % ("#brokerName", "#queueId", "#offset"))
    for queue in hash_ordered(table, [queue_hash(*each) for each in table]):
        run.out.line("%-40s  %-40d  %-40d" % (front(queue[1], 32), queue[2], table[queue]))
        run.out.item(group=group, topic=topic, brokerName=queue[1], queueId=queue[2], offset=table[queue])


def _reset_offline(run: Run, group: str, topic: str, moment: int, force: bool, head: str) -> None:
    if head:
        run.out.line(f"rollback consumer offset by specified consumerGroup[{group}], topic[{topic}], {head}")
    layout = "%-20s  %-20s  %-20s  %-20s  %-20s  %-20s"
    names = ("#brokerName", "#queueId", "#brokerOffset", "#consumerOffset", "#timestampOffset", "#rollbackOffset")
    run.out.header(layout % names)
    for data in run.session.route(topic)["brokerDatas"]:
        address = any_address(data)
        for number, broker_offset, consumer_offset in _present_offsets(run, address, group, topic):
            wanted = offset_at(run, address, topic, number, moment)
            moved = wanted if force or wanted < consumer_offset else consumer_offset
            if moved != consumer_offset or force:
                set_offset(run, address, group, topic, number, moved)
            name = data["brokerName"]
            run.out.line(layout % (front(name, 20), number, broker_offset, consumer_offset, wanted, moved))
            run.out.item(
                group=group,
                topic=topic,
                brokerName=name,
                queueId=number,
                brokerOffset=broker_offset,
                consumerOffset=consumer_offset,
                timestampOffset=wanted,
                rollbackOffset=moved,
            )


def _present_offsets(run: Run, address: str, group: str, topic: str) -> list[tuple[int, int, int]]:
    """Return (queue id, end of the queue, offset of the group) at one broker, in HashMap's order. For a group without
    offsets they are in the order of the queue ids, and 0.
    """
    try:
        stats = bodies.loads(run.session.call(address, 208, {"consumerGroup": group, "topic": topic}).body)
        rows = queue_items(stats.get("offsetTable", {}))
    except AdminError:
        rows = []
    if rows:
        rows = hash_ordered(rows, [queue_hash(*queue) for queue, _ in rows])
        return [(queue[2], row["brokerOffset"], row["consumerOffset"]) for queue, row in rows]
    table = bodies.loads(run.session.call(address, 202, {"topic": topic}).body).get("offsetTable", {})
    if not table:
        raise NotFound(f"topic {topic!r} has no queues at {address}")
    return sorted((queue[2], offsets["maxOffset"], 0) for queue, offsets in queue_items(table))
