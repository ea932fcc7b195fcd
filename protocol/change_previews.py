"""What an administrator's request would change at a broker, told from requests that only read.

A preview is a generator: it yields what it wants to know (`Question`), receives the reply (`Reply`, or None if the
broker refuses or cannot be reached: a preview shows what it can), and returns the steps. `mqadmin` asks over a
connection, the dashboard inside the broker, and both show the same numbers.

A step has `action` and `text`; `before` and `after` where both are known; `confirm` is what a person must type where
messages would be lost.
"""

from __future__ import annotations

from triomq.protocol.queue_keys import queue_items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping
    from typing import Any

    Step = dict[str, Any]
    Fields = dict[str, Any]
    Steps = Generator["Question", "Reply | None", list[Step]]
    Preview = Callable[[str, Fields, Any], Steps]

TOPIC_FIELDS = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag", "order")
LATEST = -1
EARLIEST = -2
"""Instead of a time in ms."""


class Question:
    """A request that only reads."""

    __slots__ = ("code", "fields")

    def __init__(self, code: int, fields: Fields | None = None) -> None:
        self.code = code
        self.fields: Fields = fields or {}


class Reply:
    """A response of SUCCESS. `content` is its body as decoded JSON, {} if there is none."""

    __slots__ = ("content", "fields")

    def __init__(self, fields: Mapping[str, str], content: Any) -> None:
        self.fields = fields
        self.content = content


def _part(reply: Reply | None, name: str) -> Any:
    """Return a member of a reply that is a table or a list; an empty table if it is missing."""
    return (reply.content.get(name) or {}) if reply is not None else {}


# -- topics ------------------------------------------------------------------------------------------------------------


def topic_change(address: str, fields: Fields, _: Any) -> Steps:
    """UPDATE_AND_CREATE_TOPIC."""
    name = fields["topic"]
    present = _part((yield Question(21)), "topicConfigTable").get(name)
    after = {key: fields.get(key) for key in TOPIC_FIELDS}
    is_new = present is None
    step: Step = {
        "action": "createTopic" if is_new else "changeTopic",
        "topic": name,
        "text": f"{'create' if is_new else 'change'} topic {name} at {address}",
        "before": None if is_new else {key: present.get(key) for key in TOPIC_FIELDS},
        "after": after,
    }
    return [step]


def topic_deletion(address: str, fields: Fields, _: Any) -> Steps:
    """DELETE_TOPIC_IN_BROKER."""
    name = fields["topic"]
    table = queue_items(_part((yield Question(202, {"topic": name})), "offsetTable"))
    messages = sum([max(0, offsets["maxOffset"] - offsets["minOffset"]) for _, offsets in table])
    groups = sorted(_part((yield Question(300, {"topic": name})), "groupList"))
    readers = f", read by {', '.join(groups)}" if groups else ""
    step: Step = {
        "action": "deleteTopic",
        "topic": name,
        "queues": len(table),
        "messages": messages,
        "groups": groups,
        "text": f"delete topic {name} at {address}: {len(table)} queues, {messages} messages{readers}",
    }
    if messages:
        step["confirm"] = name
    return [step]


# -- groups and offsets ------------------------------------------------------------------------------------------------


def group_change(address: str, _: Fields, after: Any) -> Steps:
    """UPDATE_AND_CREATE_SUBSCRIPTIONGROUP; `after` is its body."""
    name = after["groupName"]
    present = _part((yield Question(201)), "subscriptionGroupTable").get(name)
    before = None if present is None else {key: present.get(key) for key in after}
    action = "createGroup" if present is None else "changeGroup"
    return [
        {
            "action": action,
            "group": name,
            "text": f"{action[:6]} group {name} at {address}",
            "before": before,
            "after": after,
        }
    ]


def group_deletion(address: str, fields: Fields, _: Any) -> Steps:
    """DELETE_SUBSCRIPTIONGROUP."""
    name = fields["groupName"]
    members = len(_part((yield Question(203, {"consumerGroup": name})), "connectionSet"))
    rows = queue_items(_part((yield Question(208, {"consumerGroup": name})), "offsetTable"))
    kept = "also its offsets" if fields.get("removeOffset") else "its offsets stay"
    return [
        {
            "action": "deleteGroup",
            "group": name,
            "members": members,
            "queues": len(rows),
            "text": f"delete group {name} at {address}: {members} members online, offsets of {len(rows)} queues, "
            f"{kept}",
        }
    ]


def offsets_by_time(_: str, fields: Fields, __: Any) -> Steps:
    """INVOKE_BROKER_TO_RESET_OFFSET: each queue as the broker would treat it: without `isForce` an offset only moves
    back."""
    topic = fields["topic"]
    group = fields["group"]
    moment = fields["timestamp"]
    stats = _part((yield Question(208, {"consumerGroup": group, "topic": topic})), "offsetTable")
    present = {queue[2]: row["consumerOffset"] for queue, row in queue_items(stats)}
    table = queue_items(_part((yield Question(202, {"topic": topic})), "offsetTable"))
    steps = []
    for (_topic, name, number), offsets in sorted(table, key=lambda item: item[0]):
        before = present.get(number)
        after: int | None = offsets["maxOffset"]
        if moment != LATEST:
            found = yield Question(29, {"topic": topic, "queueId": number, "timestamp": moment})
            after = int(found.fields["offset"]) if found is not None else None
        if not fields.get("isForce") and before is not None and after is not None:
            after = min(before, after)
        steps.append(offset_step(group, topic, name, number, before, after))
    return steps


def offsets_reset(_: str, fields: Fields, __: Any) -> Steps:
    """UPDATE_CONSUMER_OFFSET for each queue of a topic: how a group without members is reset, to EARLIEST, LATEST or a
    time. A group is put behind a queue whose messages are all older; brokers name the last of them."""
    topic, group, moment = fields["topic"], fields["group"], fields["timestamp"]
    # a question with a topic in it would also get the queues of a topic that the group never read
    rows = queue_items(_part((yield Question(208, {"consumerGroup": group})), "offsetTable"))
    present = {queue[2]: row["consumerOffset"] for queue, row in rows if queue[0] == topic}
    table = queue_items(_part((yield Question(202, {"topic": topic})), "offsetTable"))
    steps = []
    for (_topic, name, number), offsets in sorted(table, key=lambda item: item[0]):
        first, end = offsets["minOffset"], offsets["maxOffset"]
        after = first if moment == EARLIEST else end
        if moment >= 0:
            found = yield Question(29, {"topic": topic, "queueId": number, "timestamp": moment})
            if found is None:
                continue
            after = int(found.fields["offset"])
            if after == end - 1 and offsets["lastUpdateTimestamp"] < moment:
                after = end
        steps.append(offset_step(group, topic, name, number, present.get(number), max(first, min(after, end))))
    return steps


def offset_of_queue(address: str, fields: Fields, _: Any) -> Steps:
    """UPDATE_CONSUMER_OFFSET. `address` stands for a broker that does not tell its name."""
    group, topic, number = fields["consumerGroup"], fields["topic"], fields["queueId"]
    # QUERY_CONSUMER_OFFSET would reply 0 for a queue without an offset whose first messages are still there
    rows = queue_items(_part((yield Question(208, {"consumerGroup": group})), "offsetTable"))
    before = next((row["consumerOffset"] for queue, row in rows if (queue[0], queue[2]) == (topic, number)), None)
    table = queue_items(_part((yield Question(202, {"topic": topic})), "offsetTable"))
    broker = next((name for (_topic, name, _number), _ends in table), address)
    return [offset_step(group, topic, broker, number, before, fields["commitOffset"])]


def offset_step(group: str, topic: str, broker: str, number: int, before: int | None, after: int | None) -> Step:
    return {
        "action": "setOffset",
        "group": group,
        "topic": topic,
        "broker": broker,
        "queueId": number,
        "text": f"set the offset of group {group} in topic {topic}, broker {broker}, queue {number}",
        "before": before,
        "after": after,
    }


# -- single messages (POP) ---------------------------------------------------------------------------------------------


def release(address: str, fields: Fields, _: Any) -> Steps:
    """RELEASE_IN_FLIGHT: each queue that has something in flight."""
    group, number = fields["consumerGroup"], fields["queueId"]
    wanted = {name: value for name, value in fields.items() if name != "queueId"}
    queues = _part((yield Question(30_001, wanted)), "queues")
    return [
        {
            "action": "releaseMessages",
            "group": group,
            "topic": queue["topic"],
            "queueId": queue["queueId"],
            "messages": queue["inFlight"],
            "text": f"let {queue['inFlight']} messages in flight of topic {queue['topic']}, queue {queue['queueId']}, "
            f"be received again by group {group} at {address}",
        }
        for queue in queues
        if queue["inFlight"] and number in (-1, queue["queueId"])
    ]


PREVIEWS: dict[int, Preview] = {
    15: offset_of_queue,  # UPDATE_CONSUMER_OFFSET
    17: topic_change,  # UPDATE_AND_CREATE_TOPIC
    200: group_change,  # UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    207: group_deletion,  # DELETE_SUBSCRIPTIONGROUP
    215: topic_deletion,  # DELETE_TOPIC_IN_BROKER
    222: offsets_by_time,  # INVOKE_BROKER_TO_RESET_OFFSET
    30_002: release,  # RELEASE_IN_FLIGHT
}
