"""What a request would change, by its code: one function for each kind, which may read but not change.

A step has `action` and `text`; `before` and `after` where both are known; `confirm` is what a person must type where
messages would be lost.
"""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.errors import AdminError
from triomq.protocol import change_previews
from triomq.protocol.change_previews import Reply

TYPE_CHECKING = False
if TYPE_CHECKING:
    from collections.abc import Callable
    from typing import Any

    from triomq.admin.session import Session
    from triomq.protocol.change_previews import Question, Step

    Preview = Callable[[Session, str, dict[str, Any], bytes], list[Step]]


def _read(session: Session, address: str, code: int, fields: dict[str, Any] | None = None) -> Any:
    """Return a body, or an empty table if the peer refuses or cannot be reached: a preview shows what it can."""
    try:
        return bodies.loads(session.call(address, code, fields).body)
    except AdminError:
        return {}


# -- what the dashboard shows, too -------------------------------------------------------------------------------------


def _shared(code: int) -> Preview:
    make = change_previews.PREVIEWS[code]

    def preview(session: Session, address: str, fields: dict[str, Any], body: bytes) -> list[Step]:
        steps = make(address, fields, bodies.loads(body) if body else None)
        reply: Reply | None = None
        try:
            while True:
                reply = _replied(session, address, steps.send(reply))
        except StopIteration as end:
            found: list[Step] = end.value
            return found

    return preview


def _replied(session: Session, address: str, question: Question) -> Reply | None:
    """Return what a peer replies; None if it refuses or cannot be reached."""
    try:
        response = session.call(address, question.code, question.fields)
        return Reply(response.fields, bodies.loads(response.body) if response.body else {})
    except AdminError:
        return None


def _delete_route(_: Session, address: str, fields: dict[str, Any], __: bytes) -> list[Step]:
    return [
        {
            "action": "deleteRoute",
            "topic": fields["topic"],
            "text": f"remove the route of topic {fields['topic']} from NameServer {address}",
        }
    ]


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
    15: _shared(15),  # UPDATE_CONSUMER_OFFSET
    17: _shared(17),  # UPDATE_AND_CREATE_TOPIC
    25: _broker_setting,  # UPDATE_BROKER_CONFIG
    50: _account,  # UPDATE_AND_CREATE_ACL_CONFIG
    51: _delete_account,  # DELETE_ACL_CONFIG
    53: _white_list,  # UPDATE_GLOBAL_WHITE_ADDRS_CONFIG
    100: _put_kv,  # PUT_KV_CONFIG
    102: _delete_kv,  # DELETE_KV_CONFIG
    200: _shared(200),  # UPDATE_AND_CREATE_SUBSCRIPTIONGROUP
    205: _wipe,  # WIPE_WRITE_PERM_OF_BROKER
    207: _shared(207),  # DELETE_SUBSCRIPTIONGROUP
    215: _shared(215),  # DELETE_TOPIC_IN_BROKER
    216: _delete_route,  # DELETE_TOPIC_IN_NAMESRV
    222: _shared(222),  # INVOKE_BROKER_TO_RESET_OFFSET
    306: _cleaning("cleanQueues", "delete the expired files of consume queues"),
    309: _consume_directly,  # CONSUME_MESSAGE_DIRECTLY
    310: _send,  # SEND_MESSAGE_V2
    316: _cleaning("cleanTopics", "delete the queues of topics that no longer exist"),
    318: _name_server_setting,  # UPDATE_NAMESRV_CONFIG
    327: _allow,  # ADD_WRITE_PERM_OF_BROKER
    329: _cleaning("cleanLog", "delete the expired files of the commit log"),
    30_002: _shared(30_002),  # RELEASE_IN_FLIGHT
}
