"""The workloads of the hot path benchmark: what clients send in each turn, as ready-made frames."""

from __future__ import annotations

from dataclasses import dataclass

from triomq.protocol import sys_flag
from triomq.protocol.bodies.heartbeat import (
    CLUSTERING,
    CONSUME_FROM_FIRST_OFFSET,
    CONSUME_PASSIVELY,
    ConsumerData,
    HeartbeatData,
    SubscriptionData,
)
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import JSON, ROCKETMQ, RemotingCommand
from triomq.protocol.frame import encode_frame
from triomq.protocol.headers.pop import PopMessageResponseHeader
from triomq.protocol.receipt_handle import ReceiptHandle
from triomq.protocol.record import BatchUnit, encode_batch_units

TOPIC = "HotPath"
GROUP = "hot-path"
QUEUES = 4
STORED_FOR_PULLS = 16_384
TAGS = 10
SQL = "k = 3 AND region IN ('eu', 'us')"
DELAY_LEVEL = 1
MEMBERS = 8
ROUTED_TOPICS = [f"topic-{number}" for number in range(64)]

Turns = list[list[bytes]]
"""Turn by turn, the bytes that each connection's read returns."""


@dataclass(frozen=True)
class Workload:
    """`connections` bring `window` requests each with one read, all in one turn. Sends have as many `tags`, and values
    of the property k; pulls get one message of that number. A request of a kind other than these has one message:

    batch         one request sends `batch` messages
    transaction   a half message, and in a later turn the request that commits it
    delayed       a message with a delay
    delivery      a delayed message that has fallen due goes to its topic; sending it is not measured
    long poll     a pull of each connection, all of different groups, that is parked, and in a later turn the message
                  that they wait for
    receive       a message that is received by itself (POP), by a group that has received none of it before, and in a
                  later turn its acknowledgement
    heartbeat     no message: a consumer says again that it is there, in a group of MEMBERS connections
    route         no message: a client asks a NameServer for the brokers of a topic

    Sends go to one of `topics` after another. `is_tls`: the connections are encrypted.
    """

    name: str
    kind: str
    serialize_type: int
    connections: int
    window: int
    body_bytes: int = 1024
    topics: int = 1
    batch: int = 1
    requests: int = 8192
    tags: int = 0
    subscription: str = "*"
    expression_type: str = "TAG"
    is_tls: bool = False


WORKLOADS = (
    Workload("send json 4x64", "send", JSON, 4, 64),
    Workload("send binary 4x64", "send", ROCKETMQ, 4, 64),
    Workload("send json 64x1", "send", JSON, 64, 1),
    Workload("send binary 128 B", "send", ROCKETMQ, 4, 64, body_bytes=128),
    Workload("send 1,000 topics", "send", JSON, 4, 64, topics=1000),
    Workload("send TLS 64x1", "send", JSON, 64, 1, is_tls=True),
    Workload("batch send 32", "batch", JSON, 4, 4, batch=32, requests=256),
    Workload("transaction 4x64", "transaction", JSON, 4, 64, requests=4096),
    Workload("delayed send 4x64", "delayed", JSON, 4, 64),
    Workload("delayed, due at once", "delivery", JSON, 4, 64),
    Workload("long poll", "long poll", JSON, 1, 1, requests=2048),
    Workload("long poll, 10 groups", "long poll", JSON, 10, 1, requests=10_240),
    Workload("receive and ack 64x1", "receive", JSON, 64, 1, requests=4096),
    Workload("heartbeat", "heartbeat", JSON, 64, 1),
    Workload("route", "route", JSON, 4, 64),
    Workload("pull batch 32", "pull", JSON, 4, 1, batch=32, requests=512),
    Workload("pull batch 1", "pull", JSON, 4, 1, requests=4096),
    Workload("pull TLS batch 32", "pull", JSON, 4, 1, batch=32, requests=512, is_tls=True),
    Workload("pull tag 1 of 10", "pull", JSON, 4, 1, batch=32, requests=512, tags=TAGS, subscription="t3"),
    Workload(
        "pull SQL92 1 of 10",
        "pull",
        JSON,
        4,
        1,
        batch=32,
        requests=256,
        tags=TAGS,
        subscription=SQL,
        expression_type="SQL92",
    ),
)


def send_frame(workload: Workload, number: int) -> bytes:
    """SEND_MESSAGE_V2, or a SEND_BATCH_MESSAGE for a batch."""
    text = f"{_properties(number)}WAIT\x01true\x02TAGS\x01t"
    flags = 0
    if workload.tags:
        tag = number // QUEUES % workload.tags
        text += f"{tag}\x02k\x01{tag}\x02region\x01eu"
    if workload.kind in ("delayed", "delivery"):
        text += f"\x02DELAY\x01{DELAY_LEVEL}"
    if workload.kind == "transaction":
        text += f"\x02TRAN_MSG\x01true\x02PGROUP\x01{GROUP}"
        flags = sys_flag.TRANSACTION_PREPARED
    text += "\x02"
    body = b"x" * workload.body_bytes
    code = RequestCode.SEND_MESSAGE_V2
    if workload.kind == "batch":
        numbers = range(number * workload.batch, (number + 1) * workload.batch)
        body = encode_batch_units([BatchUnit(0, body, _properties(each).encode()) for each in numbers])
        code = RequestCode.SEND_BATCH_MESSAGE
    topic = topic_name(workload, number)
    queue, born = str(number // workload.topics % QUEUES), str(1_700_000_000_000 + number)
    values = (GROUP, topic, "TBW102", str(QUEUES), queue, str(flags), born, "0", text)
    is_batch = "true" if workload.kind == "batch" else "false"
    fields = {**dict(zip("abcdefghi", values, strict=True)), "j": "0", "k": "false", "m": is_batch}
    return _frame(workload, code, number, fields, body)


def topic_name(workload: Workload, number: int) -> str:
    """Return the topic that the message of this number is sent to."""
    return TOPIC if workload.topics == 1 else f"{TOPIC}-{number % workload.topics}"


def _properties(number: int) -> str:
    return f"UNIQ_KEY\x01{_unique_key(number)}\x02KEYS\x01k{number}\x02"


def _unique_key(number: int) -> str:
    return f"{number % 4:016X}{number:016X}"


def commit_frame(workload: Workload, number: int, queue_offset: int, physical_offset: int) -> bytes:
    """END_TRANSACTION for the half message at these offsets."""
    fields = {
        "producerGroup": GROUP,
        "tranStateTableOffset": str(queue_offset),
        "commitLogOffset": str(physical_offset),
        "commitOrRollback": str(sys_flag.TRANSACTION_COMMIT),
        "fromTransactionCheck": "false",
        "msgId": _unique_key(number),
    }
    return _frame(workload, RequestCode.END_TRANSACTION, number, fields, b"")


def pull_frame(workload: Workload, number: int) -> bytes:
    """PULL_MESSAGE of what is stored for pulls."""
    looked_at = workload.batch * max(1, workload.tags)
    stored = STORED_FOR_PULLS // QUEUES // looked_at * looked_at
    return _pull(workload, GROUP, number, number // QUEUES * looked_at % stored, 0)


def waiting_pull_frames(workload: Workload, number: int, queue_offset: int) -> list[bytes]:
    """For each connection, PULL_MESSAGE that may wait for a message at this offset."""
    groups = [f"{GROUP}-{connection}" for connection in range(workload.connections)]
    return [_pull(workload, group, number, queue_offset, 15_000) for group in groups]


def receive_frame(workload: Workload, group: str, number: int) -> bytes:
    """POP_MESSAGE of one message, of any queue."""
    fields = {
        "consumerGroup": group,
        "topic": TOPIC,
        "queueId": "-1",
        "maxMsgNums": "1",
        "invisibleTime": "60000",
        "pollTime": "15000",
        "bornTime": str(1_700_000_000_000 + number),
        "initMode": "0",
        "expType": "TAG",
        "exp": "*",
        "order": "false",
    }
    return _frame(workload, RequestCode.POP_MESSAGE, number, fields, b"")


def ack_frame(workload: Workload, group: str, received: RemotingCommand) -> bytes:
    """ACK_MESSAGE of the one message in this response."""
    header = received.header(PopMessageResponseHeader)
    assert header.start_offset_info is not None
    kind, queue_id, queue_offset = header.start_offset_info.split(" ")
    handle = ReceiptHandle(header.pop_time, header.invisible_time, kind, "broker-a", int(queue_id), int(queue_offset))
    fields = {
        "consumerGroup": group,
        "topic": TOPIC,
        "queueId": queue_id,
        "extraInfo": handle.text(),
        "offset": queue_offset,
    }
    return _frame(workload, RequestCode.ACK_MESSAGE, received.opaque, fields, b"")


def heartbeat_frame(workload: Workload, number: int) -> bytes:
    """HEART_BEAT of the connection whose turn it is."""
    connection = number // workload.window % workload.connections
    body = HeartbeatData(
        client_id=f"client-{connection}@4711",
        consumer_data_set=[
            ConsumerData(
                consume_from_where=CONSUME_FROM_FIRST_OFFSET,
                consume_type=CONSUME_PASSIVELY,
                group_name=f"group-{connection // MEMBERS}",
                message_model=CLUSTERING,
                subscription_data_set=[SubscriptionData(topic=TOPIC)],
            )
        ],
    )
    return _frame(workload, RequestCode.HEART_BEAT, number, None, body.encode())


def route_frame(workload: Workload, number: int) -> bytes:
    """GET_ROUTEINFO_BY_TOPIC."""
    fields = {"topic": ROUTED_TOPICS[number % len(ROUTED_TOPICS)]}
    return _frame(workload, RequestCode.GET_ROUTEINFO_BY_TOPIC, number, fields, b"")


def _pull(workload: Workload, group: str, number: int, queue_offset: int, wait_ms: int) -> bytes:
    fields = {
        "consumerGroup": group,
        "topic": TOPIC,
        "queueId": str(number % QUEUES),
        "queueOffset": str(queue_offset),
        "maxMsgNums": str(workload.batch),
        "sysFlag": "6" if wait_ms else "4",  # 4: the subscription is here, 2: may wait
        "commitOffset": "0",
        "suspendTimeoutMillis": str(wait_ms),
        "subscription": workload.subscription,
        "subVersion": "0",
        "expressionType": workload.expression_type,
    }
    return _frame(workload, RequestCode.PULL_MESSAGE, number, fields, b"")


def _frame(workload: Workload, code: int, number: int, fields: dict[str, str] | None, body: bytes) -> bytes:
    return encode_frame(
        RemotingCommand(
            code, opaque=number, body=body, serialize_type=workload.serialize_type, ext_fields=fields, language=0
        )
    )


def reads(workload: Workload) -> Turns:
    """Return the turns of all requests of a workload."""
    make = {"pull": pull_frame, "heartbeat": heartbeat_frame, "route": route_frame}.get(workload.kind, send_frame)
    return in_turns(workload, [make(workload, number) for number in range(workload.requests)])


def in_turns(workload: Workload, frames: list[bytes]) -> Turns:
    """Divide frames among the turns and connections of a workload."""
    turn = workload.connections * workload.window
    return [
        [b"".join(frames[at : at + workload.window]) for at in range(begin, begin + turn, workload.window)]
        for begin in range(0, len(frames), turn)
    ]
