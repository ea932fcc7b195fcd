"""Messages in commands: decoded from responses, pulled, and printed as Java prints them."""

from __future__ import annotations

from triomq.admin.errors import AdminError, NotFound
from triomq.admin.java_text import date_time_ms, hash_ordered, iso_time, map_text, plain, queue_hash, string_map
from triomq.admin.routes import any_address
from triomq.admin.session import Refused

TYPE_CHECKING = False
if TYPE_CHECKING:
    from typing import Any

    from triomq.admin.run import Run
    from triomq.protocol.message import MessageExt

TOOLS_GROUP = "TOOLS_CONSUMER"
BATCH = 32
NEWEST = -1  # stands for the end of a queue

FOUND, NO_NEW_MSG, NO_MATCHED_MSG, OFFSET_ILLEGAL = "FOUND", "NO_NEW_MSG", "NO_MATCHED_MSG", "OFFSET_ILLEGAL"
_STATUS = {0: FOUND, 19: NO_NEW_MSG, 20: NO_MATCHED_MSG, 21: OFFSET_ILLEGAL}


class Queue:
    """A queue of a topic, and the address of its broker."""

    __slots__ = ("address", "broker_name", "queue_id", "topic")

    def __init__(self, topic: str, broker_name: str, queue_id: int, address: str) -> None:
        self.topic = topic
        self.broker_name = broker_name
        self.queue_id = queue_id
        self.address = address

    def __str__(self) -> str:
        return f"MessageQueue [topic={self.topic}, brokerName={self.broker_name}, queueId={self.queue_id}]"


def queues_of(run: Run, topic: str) -> list[Queue]:
    """Return the readable queues, in the order of Java's HashSet (fetchSubscribeMessageQueues)."""
    route = run.session.route(topic)
    addresses = {data["brokerName"]: any_address(data) for data in route["brokerDatas"]}
    queues = [
        Queue(topic, data["brokerName"], number, addresses[data["brokerName"]])
        for data in route["queueDatas"]
        if data["perm"] & 4 and data["brokerName"] in addresses
        for number in range(data["readQueueNums"])
    ]
    return hash_ordered(queues, [queue_hash(each.topic, each.broker_name, each.queue_id) for each in queues])


def queue_of(run: Run, topic: str, broker_name: str, queue_id: int) -> Queue:
    for data in run.session.route(topic)["brokerDatas"]:
        if data["brokerName"] == broker_name:
            return Queue(topic, broker_name, queue_id, any_address(data))
    raise NotFound(f"The broker[{broker_name}] not exist: it has no queue of topic {topic!r}")


def end_offset(run: Run, queue: Queue, code: int) -> int:
    """Return the first (31) or the next (30) queue offset."""
    fields = {"topic": queue.topic, "queueId": queue.queue_id}
    return int(run.session.call(queue.address, code, fields).fields["offset"])


def offset_at(run: Run, address: str, topic: str, queue_id: int, moment: int) -> int:
    """Return the queue offset of a time; -1 is the end of the queue."""
    fields: dict[str, object] = {"topic": topic, "queueId": queue_id}
    if moment == NEWEST:
        return int(run.session.call(address, 30, fields).fields["offset"])
    return int(run.session.call(address, 29, {**fields, "timestamp": moment}).fields["offset"])


def offset_range(run: Run, queue: Queue, begin_ms: int, end_ms: int) -> tuple[int, int]:
    """Return the first and the next offset of a queue, or those of two times that are not 0."""
    place = (queue.address, queue.topic, queue.queue_id)
    first = offset_at(run, *place, begin_ms) if begin_ms else end_offset(run, queue, 31)
    last = offset_at(run, *place, end_ms) if end_ms else end_offset(run, queue, 30)
    return first, last


def pull(
    run: Run,
    queue: Queue,
    offset: int,
    count: int = BATCH,
    *,
    tags: str = "*",
    group: str = TOOLS_GROUP,
    kind: str = "TAG",
) -> tuple[str, int, list[MessageExt]]:
    """Pull once. Return (status, next offset, messages). The broker neither holds the pull nor stores an offset.
    With a `kind` other than TAG, `tags` is an expression of that kind, which the broker alone evaluates.
    """
    from triomq.protocol.record import iterate_records

    fields = {
        "consumerGroup": group,
        "topic": queue.topic,
        "queueId": queue.queue_id,
        "queueOffset": offset,
        "maxMsgNums": count,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": tags,
        "subVersion": 0,
        "expressionType": kind,
    }
    response = run.session.request(queue.address, 11, fields)
    status = _STATUS.get(response.code)
    if status is None:
        raise Refused(queue.address, response)
    messages = list(iterate_records(response.body)) if status == FOUND else []
    wanted = {tag.strip() for tag in tags.split("||")}
    if kind == "TAG" and "*" not in wanted:
        messages = [message for message in messages if message.tags in wanted]
    for message in messages:
        message.broker_name = queue.broker_name
        message.properties["MIN_OFFSET"] = response.fields.get("minOffset", "0")
        message.properties["MAX_OFFSET"] = response.fields.get("maxOffset", "0")
    return status, int(response.fields.get("nextBeginOffset", offset)), messages


# -- as text -----------------------------------------------------------------------------------------------------------


def message_text(message: MessageExt) -> str:
    """Return the text of MessageExt.toString."""
    body = ", ".join([str(byte - 256 if byte > 127 else byte) for byte in message.body])
    return (
        f"MessageExt [brokerName={plain(message.broker_name)}, queueId={message.queue_id}, "
        f"storeSize={message.store_size_bytes}, queueOffset={message.queue_offset}, sysFlag={message.sys_flag}, "
        f"bornTimestamp={message.born_timestamp}, bornHost=/{message.born_host}, "
        f"storeTimestamp={message.store_timestamp}, storeHost=/{message.store_host}, msgId={message.offset_msg_id}, "
        f"commitLogOffset={message.physical_offset}, bodyCRC={message.body_crc}, "
        f"reconsumeTimes={message.reconsume_times}, "
        f"preparedTransactionOffset={message.prepared_transaction_offset}, "
        f"toString()=Message{{topic='{message.topic}', flag={message.flag}, "
        f"properties={map_text(string_map(message.properties))}, body=[{body}], transactionId='null'}}]"
    )


def message_lines(message: MessageExt, body_path: str, *, with_offset_id: bool = True) -> list[str]:
    """Return one line per fact about a message (QueryMsgByIdSubCommand)."""
    pairs: list[tuple[str, object]] = [("OffsetID:", message.offset_msg_id)] if with_offset_id else []
    pairs += [
        ("Topic:", message.topic),
        ("Tags:", f"[{plain(message.tags)}]"),
        ("Keys:", f"[{plain(message.properties.get('KEYS'))}]"),
        ("Queue ID:", message.queue_id),
        ("Queue Offset:", message.queue_offset),
        ("CommitLog Offset:", message.physical_offset),
        ("Reconsume Times:", message.reconsume_times),
        ("Born Timestamp:", date_time_ms(message.born_timestamp)),
        ("Store Timestamp:", date_time_ms(message.store_timestamp)),
        ("Born Host:", message.born_host),
        ("Store Host:", message.store_host),
        ("System Flag:", message.sys_flag),
        ("Properties:", map_text(string_map(message.properties))),
        ("Message Body Path:", body_path),
    ]
    return ["%-20s %s" % pair for pair in pairs]


def message_item(message: MessageExt, *, with_body: bool = True) -> dict[str, Any]:
    """Return a message as JSON; a body that is not UTF-8 is in Base64."""
    item: dict[str, Any] = {
        "topic": message.topic,
        "brokerName": message.broker_name,
        "queueId": message.queue_id,
        "queueOffset": message.queue_offset,
        "commitLogOffset": message.physical_offset,
        "msgId": message.msg_id,
        "offsetMsgId": message.offset_msg_id,
        "tags": message.tags,
        "keys": message.properties.get("KEYS"),
        "reconsumeTimes": message.reconsume_times,
        "bornTimestamp": message.born_timestamp,
        "bornTime": iso_time(message.born_timestamp),
        "storeTimestamp": message.store_timestamp,
        "storeTime": iso_time(message.store_timestamp),
        "bornHost": str(message.born_host),
        "storeHost": str(message.store_host),
        "sysFlag": message.sys_flag,
        "flag": message.flag,
        "properties": dict(message.properties),
    }
    if with_body:
        try:
            item["body"] = bytes(message.body).decode()
        except UnicodeDecodeError:
            import base64

            item["bodyBase64"] = base64.b64encode(bytes(message.body)).decode()
    return item


def print_messages(run: Run, messages: list[MessageExt], *, charset: str = "UTF-8", with_body: bool = True) -> None:
    for message in messages:
        if with_body:
            try:
                body = bytes(message.body).decode(charset, "replace")
            except LookupError:
                raise AdminError(f"there is no charset {charset!r}") from None
        else:
            body = "NOT PRINT BODY"
        run.out.line(f"MSGID: {message.msg_id} {message_text(message)} BODY: {body}")
        run.out.item(**message_item(message, with_body=with_body))
