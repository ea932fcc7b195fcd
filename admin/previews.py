"""What a request would change, by its code: one function for each kind, which may read but not change.

A step has `action` and `text`; `before` and `after` where both are known; `confirm` is what a person must type where
messages would be lost.
"""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.errors import AdminError
from triomq.admin.routes import queue_items

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from triomq.admin.session import Session

    Step = dict[str, Any]
    Preview = Callable[[Session, str, dict[str, Any], bytes], list[Step]]

TOPIC_FIELDS = ("readQueueNums", "writeQueueNums", "perm", "topicSysFlag", "order")
LATEST = -1


def _read(session: Session, address: str, code: int, fields: dict[str, Any] | None = None) -> Any:
    """Return a body, or an empty table if the peer refuses or cannot be reached: a preview shows what it can."""
    try:
        return bodies.loads(session.call(address, code, fields).body)
    except AdminError:
        return {}


# -- topics ------------------------------------------------------------------------------------------------------------


def _topic(session: Session, address: str, fields: dict[str, Any], _: bytes) -> list[Step]:
    name = fields["topic"]
    present = _read(session, address, 21).get("topicConfigTable", {}).get(name)
    after = {key: fields.get(key) for key in TOPIC_FIELDS}
    if present is None:
        return [
            {
                "action": "createTopic",
                "topic": name,
                "text": f"create topic {name} at {address}",
                "before": None,
                "after": after,
            }
        ]
    before = {key: present.get(key) for key in TOPIC_FIELDS}
    return [
        {
            "action": "changeTopic",
            "topic": name,
            "text": f"change topic {name} at {address}",
            "before": before,
            "after": after,
        }
    ]


def _delete_topic(session: Session, address: str, fields: dict[str, Any], _: bytes) -> list[Step]:
    name = fields["topic"]
    table = queue_items(_read(session, address, 202, {"topic": name}).get("offsetTable", {}))
    messages = sum([max(0, offsets["maxOffset"] - offsets["minOffset"]) for _, offsets in table])
    groups = sorted(_read(session, address, 300, {"topic": name}).get("groupList", []))
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


def _delete_route(_: Session, address: str, fields: dict[str, Any], __: bytes) -> list[Step]:
    return [
        {
            "action": "deleteRoute",
            "topic": fields["topic"],
            "text": f"remove the route of topic {fields['topic']} from NameServer {address}",
        }
    ]


# -- groups and offsets ------------------------------------------------------------------------------------------------


def _group(session: Session, address: str, _: dict[str, Any], body: bytes) -> list[Step]:
    after = bodies.loads(body)
    name = after["groupName"]
    present = _read(session, address, 201).get("subscriptionGroupTable", {}).get(name)
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


def _delete_group(session: Session, address: str, fields: dict[str, Any], _: bytes) -> list[Step]:
    name = fields["groupName"]
    members = len(_read(session, address, 203, {"consumerGroup": name}).get("connectionSet", []))
    rows = queue_items(_read(session, address, 208, {"consumerGroup": name}).get("offsetTable", {}))
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


def _reset(session: Session, address: str, fields: dict[str, Any], __: bytes) -> list[Step]:
    """Show each queue as the broker would treat it: without `isForce` an offset only moves back."""
    topic = fields["topic"]
    group = fields["group"]
    moment = fields["timestamp"]
    stats = _read(session, address, 208, {"consumerGroup": group, "topic": topic})
    present = {queue[2]: row["consumerOffset"] for queue, row in queue_items(stats.get("offsetTable", {}))}
    table = queue_items(_read(session, address, 202, {"topic": topic}).get("offsetTable", {}))
    steps = []
    for (_, name, number), offsets in sorted(table, key=lambda item: item[0]):
        before = present.get(number)
        after = offsets["maxOffset"] if moment == LATEST else _offset_at(session, address, topic, number, moment)
        if not fields.get("isForce") and before is not None and after is not None:
            after = min(before, after)
        steps.append(offset_step(group, topic, name, number, before, after))
    return steps


def _offset_at(session: Session, address: str, topic: str, number: int, moment: int) -> int | None:
    try:
        found = session.call(address, 29, {"topic": topic, "queueId": number, "timestamp": moment})
    except AdminError:
        return None
    return int(found.fields["offset"])


def _offset(session: Session, address: str, fields: dict[str, Any], _: bytes) -> list[Step]:
    group = fields["consumerGroup"]
    topic = fields["topic"]
    number = fields["queueId"]
    try:
        asked = {"consumerGroup": group, "topic": topic, "queueId": number}
        before: int | None = int(session.call(address, 14, asked).fields["offset"])
    except AdminError:
        before = None
    return [offset_step(group, topic, address, number, before, fields["commitOffset"])]


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


# -- settings ----------------------------------------------------------------------------------------------------------


def _broker_setting(session: Session, address: str, _: dict[str, Any], body: bytes) -> list[Step]:
    return _settings(session, address, body, 26)


def _name_server_setting(session: Session, address: str, _: dict[str, Any], body: bytes) -> list[Step]:
    return _settings(session, address, body, 319)


def _settings(session: Session, address: str, body: bytes, reading_code: int) -> list[Step]:
    from triomq.protocol.java_properties import parse

    wanted = parse(body.decode("utf-8", "replace"))
    try:
        present = parse(session.call(address, reading_code).body.decode("utf-8", "replace"))
    except AdminError:
        present = {}
    return [
        {
            "action": "changeSetting",
            "key": key,
            "text": f"set {key} at {address}",
            "before": present.get(key),
            "after": value,
        }
        for key, value in wanted.items()
    ]


def _put_kv(session: Session, address: str, fields: dict[str, Any], _: bytes) -> list[Step]:
    place = f"{fields['namespace']}/{fields['key']}"
    return [
        {
            "action": "changeKv",
            "key": place,
            "text": f"set {place} at NameServer {address}",
            "before": _kv(session, address, fields),
            "after": fields["value"],
        }
    ]


def _delete_kv(session: Session, address: str, fields: dict[str, Any], _: bytes) -> list[Step]:
    place = f"{fields['namespace']}/{fields['key']}"
    return [
        {
            "action": "deleteKv",
            "key": place,
            "text": f"delete {place} at NameServer {address}",
            "before": _kv(session, address, fields),
            "after": None,
        }
    ]


def _kv(session: Session, address: str, fields: dict[str, Any]) -> str | None:
    try:
        found = session.call(address, 101, {"namespace": fields["namespace"], "key": fields["key"]})
    except AdminError:
        return None
    return found.fields.get("value")


def _wipe(_: Session, address: str, fields: dict[str, Any], __: bytes) -> list[Step]:
    name = fields["brokerName"]
    return [
        {
            "action": "wipeWritePerm",
            "broker": name,
            "text": f"stop producers from choosing broker {name}, at NameServer {address}",
        }
    ]


def _allow(_: Session, address: str, fields: dict[str, Any], __: bytes) -> list[Step]:
    name = fields["brokerName"]
    return [
        {
            "action": "addWritePerm",
            "broker": name,
            "text": f"let producers choose broker {name} again, at NameServer {address}",
        }
    ]


# -- accounts: never a secret ------------------------------------------------------------------------------------------


def _account(_: Session, address: str, fields: dict[str, Any], __: bytes) -> list[Step]:
    key = fields["accessKey"]
    return [{"action": "changeAccount", "accessKey": key, "text": f"create or change account {key} at {address}"}]


def _delete_account(_: Session, address: str, fields: dict[str, Any], __: bytes) -> list[Step]:
    key = fields["accessKey"]
    return [{"action": "deleteAccount", "accessKey": key, "text": f"delete account {key} at {address}"}]


def _white_list(session: Session, address: str, fields: dict[str, Any], _: bytes) -> list[Step]:
    return [
        {
            "action": "changeWhiteList",
            "text": f"change the white list at {address}",
            "before": _read(session, address, 54).get("globalWhiteAddrs"),
            "after": fields["globalWhiteAddrs"].split(","),
        }
    ]


# -- messages and cleaning ---------------------------------------------------------------------------------------------


def _send(_: Session, address: str, fields: dict[str, Any], body: bytes) -> list[Step]:
    topic = fields["b"]
    return [
        {
            "action": "sendMessage",
            "topic": topic,
            "bytes": len(body),
            "text": f"send a message of {len(body)} bytes to topic {topic} at {address}",
        }
    ]


def _consume_directly(_: Session, address: str, fields: dict[str, Any], __: bytes) -> list[Step]:
    text = f"have member {fields['clientId']} of group {fields['consumerGroup']} consume message {fields['msgId']}"
    return [{"action": "consumeMessage", "group": fields["consumerGroup"], "text": f"{text}, through {address}"}]


def _cleaning(action: str, text: str) -> Preview:
    def preview(_: Session, address: str, __: dict[str, Any], ___: bytes) -> list[Step]:
        return [{"action": action, "text": f"{text} at {address}"}]

    return preview


PREVIEWS: dict[int, Preview] = {
    15: _offset,  # UPDATE_CONSUMER_OFFSET
    17: _topic,  # UPDATE_AND_CREATE_TOPIC
    25: _broker_setting,  # UPDATE_BROKER_CONFIG
    50: _account,  # UPDATE_AND_CREATE_ACL_CONFIG
    51: _delete_account,  # DELETE_ACL_CONFIG
    53: _white_list,  # UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    100: _put_kv,  # PUT_KV_CONFIG
    102: _delete_kv,  # DELETE_KV_CONFIG
    200: _group,  # UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    205: _wipe,  # WIPE_WRITE_PERM_OF_BROKER
    207: _delete_group,  # DELETE_SUBSCRIPTIONGROUP
    215: _delete_topic,  # DELETE_TOPIC_IN_BROKER
    216: _delete_route,  # DELETE_TOPIC_IN_NAMESRV
    222: _reset,  # INVOKE_BROKER_TO_RESET_OFFSET
    306: _cleaning("cleanQueues", "delete the expired files of consume queues"),
    309: _consume_directly,  # CONSUME_MESSAGE_DIRECTLY
    310: _send,  # SEND_MESSAGE_V2
    316: _cleaning("cleanTopics", "delete the queues of topics that no longer exist"),
    318: _name_server_setting,  # UPDATE_NAMESRV_CONFIG
    327: _allow,  # ADD_WRITE_PERM_OF_BROKER
    329: _cleaning("cleanLog", "delete the expired files of the commit log"),
}
