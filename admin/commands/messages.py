"""Single messages: find them by id, key or offset, and show what each consumer group did with them."""

from __future__ import annotations

from triomq.admin import bodies
from triomq.admin.commands.progress import PULL, consume_stats, consumer_connections
from triomq.admin.commands.sending import Sender, result_text
from triomq.admin.errors import AdminError, NotFound, UsageError
from triomq.admin.java_text import plain
from triomq.admin.messages import FOUND, message_item, message_lines, pull, queue_of
from triomq.admin.routes import any_address, groups_of
from triomq.admin.session import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt

BODY_DIRECTORY = "/tmp/rocketmq/msgbodys"
LATEST = 2**63 - 1
OFFLINE = 206


# -- finding -----------------------------------------------------------------------------------------------------------


def message_of_id(run: Run, offset_id: str) -> MessageExt:
    """Return the message: VIEW_MESSAGE_BY_ID at the broker that the id names."""
    from triomq.protocol.errors import ProtocolError
    from triomq.protocol.message_id import parse_offset_message_id
    from triomq.protocol.record import decode_record

    try:
        host, offset = parse_offset_message_id(offset_id)
    except ProtocolError as error:
        raise UsageError(str(error)) from None
    return decode_record(run.session.call(str(host), 33, {"offset": offset}).body)


def messages_of_key(run: Run, topic: str, key: str, count: int, *, unique: bool = False) -> list[MessageExt]:
    """Return the messages: QUERY_MESSAGE at every broker of the topic, without entries whose key only has the same
    hash.
    """
    from triomq.protocol.record import iterate_records

    fields: dict[str, Any] = {"topic": topic, "key": key, "maxNum": count, "beginTimestamp": 0, "endTimestamp": LATEST}
    if unique:
        fields["_UNIQUE_KEY_QUERY"] = "true"
    found: list[MessageExt] = []
    for data in run.session.route(topic)["brokerDatas"]:
        try:
            response = run.session.call(any_address(data), 12, fields, timeout_seconds=15)
        except Refused as error:
            if error.code == 22:
                continue
            raise
        for message in iterate_records(response.body):
            keys = (message.properties.get("KEYS") or "").split(" ")
            if message.topic == topic and (message.properties.get("UNIQ_KEY") == key if unique else key in keys):
                message.broker_name = data["brokerName"]
                found.append(message)
    if not found:
        raise NotFound(f"query message by key finished, but no message of topic {topic!r} has the key {key!r}")
    return found


# -- commands ----------------------------------------------------------------------------------------------------------


def query_msg_by_id(run: Run) -> None:
    for offset_id in [text.strip() for text in run.get("i").split(",") if text.strip()]:
        if run.has("g") and run.has("d"):
            _push(run, message_of_id(run, offset_id), offset_id)
        elif run.flag("s"):
            _resend(run, message_of_id(run, offset_id), offset_id)
        elif not run.has("s"):
            _show(run, message_of_id(run, offset_id))


def query_msg_by_key(run: Run) -> None:
    messages = messages_of_key(run, run.get("t"), run.get("k"), 64)
    run.out.header("%-50s %4s %40s" % ("#Message ID", "#QID", "#Offset"))
    for message in messages:
        run.out.line("%-50s %4d %40d" % (message.msg_id, message.queue_id, message.queue_offset))
        run.out.item(**message_item(message))


def query_msg_by_unique_key(run: Run) -> None:
    messages = messages_of_key(run, run.get("t"), run.get("i"), 32, unique=True)
    messages.sort(key=lambda message: message.store_timestamp)
    if run.has("g") and run.has("d"):
        _push(run, messages[0], messages[0].offset_msg_id)
        return
    for index, message in enumerate(messages if run.has("a") else messages[:1]):
        _show(run, message, index=index if run.has("a") and len(messages) > 1 else 0, with_offset_id=False)


def query_msg_by_offset(run: Run) -> None:
    queue = queue_of(run, run.get("t"), run.get("b"), run.number("i", 0))
    status, _, messages = pull(run, queue, run.number("o", 0), 1)
    if status == FOUND and messages:
        _show(run, messages[0])


# -- one message -------------------------------------------------------------------------------------------------------


def _show(run: Run, message: MessageExt, *, index: int = 0, with_offset_id: bool = True) -> None:
    path = _write_body(run, message, index) if run.out.is_text else ""
    for line in message_lines(message, path, with_offset_id=with_offset_id):
        run.out.line(line)
    tracks = [_track(run, message, group) for group in groups_of(run.session, message.topic)]
    run.out.text("\n\n")
    run.out.text("".join([track_text(track) for track in tracks]) if tracks else "WARN: No Consumer")
    run.out.item(**message_item(message), tracks=tracks)


def _write_body(run: Run, message: MessageExt, index: int) -> str:
    path = f"{BODY_DIRECTORY}/{message.msg_id}" + (f"_{index}" if index else "")
    run.write_file(path, bytes(message.body))
    return path


def _push(run: Run, message: MessageExt, offset_id: str) -> None:
    """Have one member consume the message now (CONSUME_MESSAGE_DIRECTLY)."""
    from triomq.protocol.message_id import parse_offset_message_id

    host, _ = parse_offset_message_id(offset_id)
    fields = {"consumerGroup": run.get("g"), "clientId": run.get("d"), "msgId": offset_id}
    result = bodies.loads(run.session.call(str(host), 309, fields, timeout_seconds=15).body)
    pairs = [
        ("order", result.get("order", False)),
        ("autoCommit", result.get("autoCommit", True)),
        ("consumeResult", result.get("consumeResult")),
        ("remark", result.get("remark")),
        ("spentTimeMills", result.get("spentTimeMills", 0)),
    ]
    text = ", ".join([f"{name}={plain(value)}" for name, value in pairs])
    run.out.text(f"ConsumeMessageDirectlyResult [{text}]")
    run.out.item(msgId=message.msg_id, **dict(pairs))


def _resend(run: Run, message: MessageExt, offset_id: str) -> None:
    run.out.text(f"prepare resend msg. originalMsgId={offset_id}")
    result = Sender(run, "ReSendMsgById").send(message.topic, message.body, dict(message.properties), flag=message.flag)
    run.out.text(result_text(result))
    run.out.item(originalMsgId=offset_id, **result.item())


# -- what groups did with it (DefaultMQAdminExtImpl.messageTrackDetail) ------------------------------------------------


def _track(run: Run, message: MessageExt, group: str) -> dict[str, Any]:
    track: dict[str, Any] = {"consumerGroup": group, "trackType": "UNKNOWN", "exceptionDesc": None}
    try:
        connections = consumer_connections(run, group)
    except Refused as error:
        if error.code == OFFLINE:
            track["trackType"] = "NOT_ONLINE"
        track["exceptionDesc"] = f"CODE:{error.code} DESC:{error.remark}"
        return track
    except AdminError as error:
        track["exceptionDesc"] = str(error)
        return track
    if connections.get("consumeType") == PULL:
        track["trackType"] = "PULL"
    elif not _is_consumed(run, message, group):
        track["trackType"] = "NOT_CONSUME_YET"
    else:
        track["trackType"] = "CONSUMED" if _is_subscribed(message, connections) else "CONSUMED_BUT_FILTERED"
    return track


def _is_consumed(run: Run, message: MessageExt, group: str) -> bool:
    for (topic, name, number), row in consume_stats(run, group).rows:
        if topic == message.topic and number == message.queue_id:
            addresses = run.session.broker_addresses(name).values()
            if str(message.store_host) in addresses and row["consumerOffset"] > message.queue_offset:
                return True
    return False


def _is_subscribed(message: MessageExt, connections: dict[str, Any]) -> bool:
    subscription = connections.get("subscriptionTable", {}).get(message.topic)
    if subscription is None:
        return True
    tags = subscription.get("tagsSet") or []
    return not tags or "*" in tags or message.tags in tags


def track_text(track: dict[str, Any]) -> str:
    """Return the text of MessageTrack.toString."""
    return f"MessageTrack [{', '.join([f'{name}={plain(value)}' for name, value in track.items()])}]"
