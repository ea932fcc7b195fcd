"""Send the same requests to TrioMQ and to the real broker: only the differences listed in EXCUSED are permitted."""

from __future__ import annotations

import json
import struct
import time
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack
from pathlib import Path
from typing import Any, TypeAlias

import pytest
from interop_cluster import running_cluster
from interop_pair import Both, Difference, Each, Excused, Link, Talk, conversation, helps

# (name of the request, place in the response) -> why TrioMQ responds differently.
EXCUSED = Excused(
    {
        # -- refused with a sentence --
        # Bodies that cannot be a batch get MESSAGE_ILLEGAL, so that no client tries the next broker; Apache throws.
        ("batch of *", "code"): "MESSAGE_ILLEGAL",
        ("torn batch", "code"): "MESSAGE_ILLEGAL",
        ("SEND_* batch='TRUE'", "code"): "MESSAGE_ILLEGAL",
        ("SEND_* m='TRUE'", "code"): "MESSAGE_ILLEGAL",
        # The offset of a time is that of the first message stored at or after it, or the end, as in RocketMQ 5.
        ("search 'DiffOffset' 0 later", "fields.offset"): "the end, not the last message",
        ("search 'DiffOffset' 0 4611686018427387904", "fields.offset"): "the end, not the last message",
        # A request without these names would lock, register or create something without a name.
        ("lock 41 b'{*", "*"): "TrioMQ requires a group for a lock",
        ("heartbeat: empty*", "*"): "TrioMQ refuses a heartbeat without clientID",
        # The response says that members subscribe differently; Apache lets them lose messages in silence.
        ("heartbeat two*", "remark"): "members subscribe differently",
        ("heartbeat, *", "remark"): "members subscribe differently",
        ("group: empty name", "*"): "TrioMQ requires a name for a group",
        ("group: b'null'", "*"): "Apache does nothing and reports success",
        ("group: b'[]'", "*"): "Apache does nothing and reports success",
        ("check: b'null'", "*"): "Apache does nothing and reports success",
        # A retry topic is a directory of the store; a name with a slash would leave that directory.
        ("heartbeat: group that is a path", "*"): "refused",
        ("*topics", "body.topicConfigTable.%RETRY%DiffClient/a"): "TrioMQ refused to create it",
        ("check: unknown type", "remark"): "the same code; Apache's remark is a NullPointerException",
        ("update b'[\\]xff*", "*"): "bytes that are not UTF-8; Apache reads each byte as a character",
        # A group's name fills tables and topic names; clients accept 255 characters, too.
        ("pull: long group", "*"): "refused",
        ("in the end: groups", "body.subscriptionGroupTable.gggg*"): "TrioMQ refused to create it",
        # Topics that no client can use.
        ("topic: negative queues", "*"): "refused",
        ("topic: perm 9", "*"): "refused",
        ("topic: perm -1", "*"): "refused",
        ("*topics*", "body.topicConfigTable.DiffTopicN"): "TrioMQ refused to create it",
        ("*topics*", "body.topicConfigTable.DiffTopicP?"): "TrioMQ refused to create it",
        ("in the end: topics", "body.dataVersion.counter"): "TrioMQ refused four topics",
        # -- served, where Apache fails --
        ("pull: minus one wanted", "*"): "Apache throws; TrioMQ pulls one message",
        ("pull: many wanted", "*"): "Apache runs out of memory; TrioMQ fills one response",
        ("query: minus one wanted", "*"): "Apache throws; TrioMQ finds nothing",
        ("query: many wanted", "*"): "Apache runs out of memory; TrioMQ fills one response",
        # TrioMQ refuses an expression that does not compile or has an unknown type; Apache then passes every message.
        ("pull: by a type that is none", "*"): "refused",
        # -- other results, on purpose --
        (
            "time span of nothing",
            "body.consumeTimeSpanSet.*.delayTime",
        ): "Apache counts from 1970, TrioMQ from the first message",
        ("clone: *, in the table", "*"): "without a topic TrioMQ clones all topics, Apache none",
        ("in the end: offsets", "*DiffClone[23]"): "without a topic TrioMQ clones all topics",
        ("*groups*", "*.DiffClientZ"): "TrioMQ does not create a group that a client leaves",
        ("in the end: groups", "body.dataVersion.counter"): "TrioMQ does not create a group that a client leaves",
        ("ACL: version", "*"): "TrioMQ responds with a sentence; Apache does not respond",
        ("ACL: everything", "*"): "TrioMQ responds with a sentence; Apache does not respond",
        ("ACL: *", "remark"): "the same code; Apache's remark is a NullPointerException",
        ("back: too often, delayed", "*"): "TrioMQ stores it as a dead letter at once, Apache after the delay",
    }
)

SYSTEM_ERROR = 1
BORN_MS = 1_600_000_000_000
# The clock must not store anything in between, or the two logs would differ: delays are 1 s, which the test waits for,
# or hours.
SETTINGS = {
    "transactionCheckInterval": "600000",
    "transactionTimeOut": "600000",
    "configUpdateWithoutAcl": "true",
    "messageDelayLevel": "1s " + " ".join(f"{hours}h" for hours in range(1, 18)),
}
Converse: TypeAlias = Callable[[], AbstractContextManager[Talk]]

SPEC = json.loads((Path(__file__).parents[1] / "broker" / "broker_spec.json").read_text())
KNOWN_KEYS = {key for keys in SPEC["config"].values() for key in keys}


@pytest.fixture(scope="module")
def addresses(peer: Path, tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[str, str]]:
    """Both brokers, empty, each with a NameServer of its own kind."""
    with ExitStack() as stack:
        ours, theirs = (
            stack.enter_context(running_cluster(target, tmp_path_factory.mktemp(target), SETTINGS))
            for target in ("triomq", "apache")
        )
        yield ours.broker_address, theirs.broker_address


@pytest.fixture
def converse(addresses: tuple[str, str]) -> Converse:
    return lambda: conversation(addresses, EXCUSED)


def create(link: Link, topic: str, queues: int = 2, *, perm: int = 6, write_queues: int | None = None) -> str:
    link.call("create topic", 17, topic_fields(topic, queues, perm=perm, write_queues=write_queues))
    return topic


def topic_fields(topic: str, queues: int = 2, *, perm: int = 6, write_queues: int | None = None) -> dict[str, Any]:
    return {
        "topic": topic,
        "defaultTopic": "TBW102",
        "readQueueNums": queues,
        "writeQueueNums": queues if write_queues is None else write_queues,
        "perm": perm,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }


def send_fields(topic: str, /, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": BORN_MS,
        "flag": 0,
        "properties": "KEYS\x01k1 k2\x02TAGS\x01TagA\x02WAIT\x01true\x02UNIQ_KEY\x01U0001",
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }
    return {**fields, **changes}


def v2(fields: dict[str, Any]) -> dict[str, Any]:
    """Return the fields under the letters of SEND_MESSAGE_V2."""
    names = ("producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag", "bornTimestamp")
    names += ("flag", "properties", "reconsumeTimes", "unitMode", "maxReconsumeTimes", "batch", "bname")  # type: ignore[assignment]
    return {letter: fields[name] for letter, name in zip("abcdefghijklmn", names, strict=True) if name in fields}


def pull_fields(topic: str, group: str, /, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "consumerGroup": group,
        "topic": topic,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 1,
        "expressionType": "TAG",
    }
    return {**fields, **changes}


def subscription(topic: str, expression: str = "*", *, kind: str = "TAG", version: int = 1) -> dict[str, Any]:
    tags = [] if expression == "*" or kind != "TAG" else [tag.strip() for tag in expression.split("||")]
    return {
        "classFilterMode": False,
        "codeSet": [java_hash(tag) for tag in tags],
        "expressionType": kind,
        "subString": expression,
        "subVersion": version,
        "tagsSet": tags,
        "topic": topic,
    }


def java_hash(text: str) -> int:
    value = 0
    for letter in text:
        value = (value * 31 + ord(letter)) & 0xFFFFFFFF
    return value - (1 << 32) if value >> 31 else value


def heartbeat(
    client_id: str, group: str | None = None, *subscriptions: dict[str, Any], producer: str | None = None, **more: Any
) -> bytes:
    consumers = []
    if group is not None:
        consumer = {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": group,
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": list(subscriptions),
            "unitMode": False,
        }
        consumers.append({**consumer, **more})
    producers = [] if producer is None else [{"groupName": producer}]
    body = {"clientID": client_id, "consumerDataSet": consumers, "producerDataSet": producers}
    return json.dumps(body).encode()


def batch(*bodies: bytes, properties: str = "TAGS\x01TagB") -> bytes:
    units = []
    for body in bodies:
        text = properties.encode()
        inner = struct.pack(">iiii", 0, 0, 7, len(body)) + body + struct.pack(">h", len(text)) + text
        units.append(struct.pack(">i", len(inner) + 4) + inner)
    return b"".join(units)


def send(
    link: Link, topic: str, body: bytes = b"hello", label: str = "send", *, compare: bool = True, **changes: Any
) -> Both:
    if compare:
        return link.call(label, 10, send_fields(topic, **changes), body)
    both = link.ask(10, send_fields(topic, **changes), body)
    assert both is not None
    return both


def test_sending(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic = create(link, "DiffSend", 4)
        for code in (10, 310):
            for changes in (
                {},
                {"queueId": 3},
                {"flag": 5, "sysFlag": 0},
                {"properties": ""},
                {"properties": None},
                {"properties": "novalue\x02x\x01\x02\x01y\x02a\x01b\x01c\x02last\x01one"},
                {"properties": "WAIT\x01false"},
                {"properties": "CLUSTER\x01Other\x02A\x01\u00fcnicode \U0001f600"},
                {"reconsumeTimes": 3},
                {"maxReconsumeTimes": 3, "reconsumeTimes": 5},
                {"unitMode": "true"},
                {"bornTimestamp": -1},
                {"producerGroup": ""},
                {"bname": "broker-a"},
                {"unknownField": "x"},
            ):
                fields = send_fields(topic, **changes)
                label = f"send {code} {sorted(changes)}"
                link.call(label, code, fields if code == 10 else v2(fields), b"body")
        link.call("empty body", 10, send_fields(topic), b"")
        for name in ("", " ", "bad topic", "\u00fcmlaut", "../x", "x" * 127, "x" * 128, "TBW102", "%RETRY%x"):
            link.call(f"topic {name[:12]!r} {len(name)}", 10, send_fields(name), b"x")
        for name in ("SCHEDULE_TOPIC_XXXX", "RMQ_SYS_TRANS_HALF_TOPIC", "OFFSET_MOVED_EVENT", "SELF_TEST_TOPIC"):
            link.call(f"topic {name}", 10, send_fields(name), b"x")
        for name in ("RMQ_SYS_TRACE_TOPIC", "rmq_sys_wheel_timer", "DefaultCluster", "broker-a", "BenchmarkTest"):
            link.call(f"topic {name}", 10, send_fields(name), b"x")
        for queue_id in (4, 77, 2**31 - 1):
            send(link, topic, label=f"queue {queue_id}", queueId=queue_id)
        send(link, "DiffAuto", label="automatic topic", defaultTopicQueueNums=3)
        send(link, "DiffAuto2", label="automatic topic, no template", defaultTopic="NoTemplate")
        send(link, "DiffAuto3", label="automatic topic, template without inheritance", defaultTopic="DiffSend")
        send(link, "DiffAuto4", label="automatic topic of 0 queues", defaultTopicQueueNums=0)
        send(link, "DiffAuto5", label="automatic topic of -3 queues", defaultTopicQueueNums=-3)
        send(link, "DiffAuto6", label="automatic topic of many queues", defaultTopicQueueNums=100)
        send(link, "%RETRY%DiffNoGroup", label="retry topic of an unknown group", reconsumeTimes=1)
        send(link, topic, label="too large", body=b"x" * (4 * 1024 * 1024 + 1))
        send(link, topic, label="long properties", properties="a\x01" + "v" * 33_000)
        create(link, "DiffNoWrite", 1, perm=4)
        send(link, "DiffNoWrite", label="no write permission")
        create(link, "DiffWriteMore", 1, write_queues=3)
        send(link, "DiffWriteMore", queueId=2, label="more write queues")
        for queue_id in range(4):
            link.call("pull what was sent", 11, pull_fields(topic, "DiffSendG", queueId=queue_id))
        for name in ("DiffAuto", "DiffAuto2", "DiffAuto3", "DiffAuto4", "DiffAuto5", "DiffAuto6", "DiffNoWrite"):
            link.call(f"pull {name}", 11, pull_fields(name, "DiffSendG"))
        link.call("all topics", 21, only="DiffAuto")


def test_batches(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic = create(link, "DiffBatch", 2)
        good = batch(b"one", b"two", b"three")
        for label, body, changes in (
            ("batch", good, {"batch": "true"}),
            ("batch with properties", good, {"batch": "true", "properties": "KEYS\x01a\x02WAIT\x01true"}),
            ("batch of one", batch(b"only"), {"batch": "true"}),
            ("batch of nothing", b"", {"batch": "true"}),
            ("no batch by name", good, {"batch": "false"}),
            ("batch to a queue that is none", good, {"batch": "true", "queueId": 9}),
            ("delayed batch", batch(b"d", properties="DELAY\x011"), {"batch": "true"}),
            ("torn batch", good[:-3], {"batch": "true"}),
            ("batch of noise", b"\xff" * 40, {"batch": "true"}),
            ("batch of zeros", b"\0" * 40, {"batch": "true"}),
            ("batch that is too large", batch(b"x" * (4 * 1024 * 1024)), {"batch": "true"}),
            ("batch to a retry topic", good, {"batch": "true", "topic": "%RETRY%DiffBatchG"}),
            ("batch with a keys", batch(b"k", properties="KEYS\x01bk\x02UNIQ_KEY\x01BU1"), {"batch": "true"}),
        ):
            fields = send_fields(topic, **changes)
            link.call(label, 320, v2(fields), body)
        link.call("batch by code 10", 10, send_fields(topic, batch="true"), good)
        for queue_id in range(2):
            link.call("pull batches", 11, pull_fields(topic, "DiffBatchG", queueId=queue_id))


def test_pulling(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic = create(link, "DiffPull", 2)
        for number in range(6):
            tag = "AB"[number % 2]
            send(link, topic, b"m%d" % number, properties=f"TAGS\x01Tag{tag}\x02n\x01{number}")
        group = "DiffPullG"
        for label, changes in (
            ("all", {}),
            ("some", {"maxMsgNums": 2}),
            ("one", {"maxMsgNums": 1, "queueOffset": 5}),
            ("none wanted", {"maxMsgNums": 0}),
            ("minus one wanted", {"maxMsgNums": -1}),
            ("many wanted", {"maxMsgNums": 2**31 - 1}),
            ("at the end", {"queueOffset": 6}),
            ("behind the end", {"queueOffset": 7}),
            ("far behind the end", {"queueOffset": 2**62}),
            ("in front", {"queueOffset": -1}),
            ("far in front", {"queueOffset": -(2**62)}),
            ("empty queue", {"queueId": 1}),
            ("empty queue, later", {"queueId": 1, "queueOffset": 5}),
            ("by tag", {"subscription": "TagB"}),
            ("by tags", {"subscription": "TagA || TagB"}),
            ("by a tag that is none", {"subscription": "TagC"}),
            ("by an empty expression", {"subscription": ""}),
            ("by no expression", {"subscription": None}),
            ("by bars", {"subscription": "||"}),
            ("by SQL", {"subscription": "n > 3", "expressionType": "SQL92"}),
            ("by a type that is none", {"subscription": "n > 3", "expressionType": "XPATH"}),
            ("without type", {"expressionType": None}),
            ("queue that is none", {"queueId": 2}),
            ("negative queue", {"queueId": -1}),
            ("unknown topic", {"topic": "DiffNoSuchTopic"}),
            ("empty topic", {"topic": ""}),
            ("illegal topic", {"topic": "a b/c"}),
            ("no subscription", {"sysFlag": 0}),
            ("no subscription, may be held", {"sysFlag": 2}),
            ("class filter", {"sysFlag": 12}),
            ("lite", {"sysFlag": 20}),
            ("commits", {"sysFlag": 5, "commitOffset": 4}),
            ("commits a negative offset", {"sysFlag": 5, "commitOffset": -4, "queueId": 1}),
            ("with bname", {"bname": "broker-a"}),
            ("illegal group", {"consumerGroup": "a b/\u00fc"}),
            ("empty group", {"consumerGroup": ""}),
            ("long group", {"consumerGroup": "g" * 300}),
        ):
            link.call(f"pull: {label}", 11, pull_fields(topic, group, **changes))
        link.call("offset after the commit", 14, {"consumerGroup": group, "topic": topic, "queueId": 0})
        link.call("offset after the negative commit", 14, {"consumerGroup": group, "topic": topic, "queueId": 1})
        create(link, "DiffNoRead", 1, perm=2)
        link.call("pull: no read permission", 11, pull_fields("DiffNoRead", group))
        link.call("pull: on the fast port", 11, pull_fields(topic, group))
        fast = talk.connect(-2)
        fast.call("pull: on the fast port", 11, pull_fields(topic, group))
        send(fast, topic, label="send on the fast port")
        link.call("moved offsets are told", 11, pull_fields("OFFSET_MOVED_EVENT", group))
        link.call("groups", 201, only="DiffPull")


def test_long_polls(converse: Converse) -> None:
    with converse() as talk:
        link, other = talk.connect(), talk.connect()
        topic = create(link, "DiffPoll", 1)
        send(link, topic, b"first")
        link.call("first is there", 30, {"topic": topic, "queueId": 0})
        held = pull_fields(topic, "DiffPollG", sysFlag=6, queueOffset=1, suspendTimeoutMillis=15_000)
        assert link.ask(11, held, timeout_seconds=0.5) is None
        send(other, topic, b"second")
        both = Both(*(end.answer(link._opaque, 10) for end in link._ends))  # type: ignore[arg-type]
        talk.compare("held pull, then a message", 11, both)
        short = {**held, "queueOffset": 2, "suspendTimeoutMillis": 300}
        link.call("held pull, nothing comes", 11, short, timeout_seconds=15)
        link.call("held pull behind the end", 11, {**held, "queueOffset": 9}, timeout_seconds=15)


def test_subscribed_pulls(converse: Converse) -> None:
    with converse() as talk:
        link, admin = talk.connect(), talk.connect()
        topic = create(link, "DiffSub", 1)
        for number in range(4):
            send(link, topic, b"s%d" % number, properties=f"TAGS\x01Tag{'AB'[number % 2]}\x02n\x01{number}")
        group = "DiffSubG"
        subscribed = pull_fields(topic, group, sysFlag=0, subscription=None, subVersion=5)
        link.call("sub: not online", 11, subscribed)
        link.call("heartbeat", 34, None, heartbeat("diff@1", group, subscription(topic, "TagB", version=5)))
        link.call("sub: by tag", 11, subscribed)
        link.call("sub: older version", 11, {**subscribed, "subVersion": 4})
        link.call("sub: newer version", 11, {**subscribed, "subVersion": 6})
        link.call("sub: another topic", 11, {**subscribed, "topic": create(link, "DiffSubOther", 1)})
        sql = subscription(topic, "n >= 2", kind="SQL92", version=7)
        link.call("heartbeat SQL", 34, None, heartbeat("diff@1", group, sql))
        link.call("sub: by SQL", 11, {**subscribed, "subVersion": 7, "expressionType": "SQL92"})
        link.call("sub: newer SQL", 11, {**subscribed, "subVersion": 8, "expressionType": "SQL92"})
        bad = subscription(topic, "n >=", kind="SQL92", version=9)
        link.call("heartbeat bad SQL", 34, None, heartbeat("diff@1", group, bad))
        link.call("sub: by bad SQL", 11, {**subscribed, "subVersion": 9, "expressionType": "SQL92"})
        model = heartbeat("diff@1", "DiffSubB", subscription(topic), messageModel="BROADCASTING")
        link.call("heartbeat broadcasting", 34, None, model)
        config = {"groupName": "DiffSubB", "consumeBroadcastEnable": False}
        admin.call("no broadcasting", 200, None, json.dumps(config).encode())
        link.call("sub: broadcasting refused", 11, {**subscribed, "consumerGroup": "DiffSubB", "subVersion": 1})
        admin.call("no consuming", 200, None, json.dumps({"groupName": group, "consumeEnable": False}).encode())
        link.call("sub: group disabled", 11, subscribed)
        link.call("groups after", 201, only="DiffSub")
        link.call("topics after", 21, only="DiffSub")


def test_offsets(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic = create(link, "DiffOffset", 2)
        stored = [send(link, topic, b"o%d" % number) for number in range(5)]
        for name in (topic, "DiffOffsetNone", "", "bad topic"):
            for queue_id in (0, 1, 9, -1):
                where = {"topic": name, "queueId": queue_id}
                for code in (30, 31, 32):
                    link.call(f"offsets {code} {name!r} {queue_id}", code, where)
                for moment in (0, -1, 2**62, int(time.time() * 1000) + 60_000):
                    label = f"search {name!r} {queue_id} {'later' if 0 < moment < 2**60 else moment}"
                    link.call(label, 29, {**where, "timestamp": moment})
        group = "DiffOffsetG"
        for label, queue_id, commit in (("first", 0, 3), ("back", 0, 1), ("negative", 1, -5), ("huge", 1, 2**62)):
            fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id}
            link.call(f"no offset yet {label}", 14, fields)
            link.call(f"commit {label}", 15, {**fields, "commitOffset": commit})
            link.call(f"offset {label}", 14, fields)
        unknown = {"consumerGroup": group, "topic": "DiffOffsetNone", "queueId": 7}
        link.call("commit to an unknown topic", 15, {**unknown, "commitOffset": 3})
        link.call("offset of an unknown topic", 14, unknown)
        link.call("offset of an unknown group", 14, {**unknown, "consumerGroup": "DiffOffsetNobody"})
        link.call("offset of an empty group", 14, {**unknown, "consumerGroup": ""})
        link.oneway(15, {"consumerGroup": group, "topic": topic, "queueId": 0, "commitOffset": 4})
        time.sleep(0.2)
        link.call("offset after oneway", 14, {"consumerGroup": group, "topic": topic, "queueId": 0})
        link.call("all offsets", 43, only="DiffOffset")
        physical = stored[2].physical_offset
        inside = Each(physical.ours + 1, physical.theirs + 1)
        for label, offset in (("there", physical), ("inside", inside), ("behind", 2**40), ("negative", -1)):
            link.call(f"view {label}", 33, {"offset": offset})
        link.call("time span", 303, {"topic": topic, "group": group})
        link.call("time span of nothing", 303, {"topic": topic, "group": "DiffOffsetNobody"})
        link.call("time span, unknown topic", 303, {"topic": "DiffOffsetNone2", "group": group})
        for filters in (None, "", "DiffOffsetNobody"):
            compared = {"filterGroups": filters, "compareGroup": group, "topic": topic}
            link.call(f"correction {filters!r}", 308, compared)
        link.call("correction of nothing", 308, {"compareGroup": "DiffOffsetNobody", "topic": topic})
        link.call("correction, unknown topic", 308, {"compareGroup": group, "topic": "DiffOffsetNone2"})
        for label, cloned in (
            ("all", {"srcGroup": group, "destGroup": "DiffClone1", "topic": topic, "offline": "true"}),
            ("unknown group", {"srcGroup": "DiffOffsetNobody", "destGroup": "DiffClone4", "topic": topic}),
            ("unknown topic", {"srcGroup": group, "destGroup": "DiffClone5", "topic": "DiffOffsetNone2"}),
        ):
            link.call(f"clone: {label}", 314, cloned)
        link.call("all offsets after cloning", 43, only="DiffOffset")
        for changes in ({}, {"topic": topic}, {"topic": "DiffOffsetNone2"}, {"topic": ""}):
            for name in (group, "DiffOffsetNobody"):
                link.call(f"consume stats {name} {changes}", 208, {"consumerGroup": name, **changes})
        link.call("topic stats", 202, {"topic": topic})
        link.call("topic stats of nothing", 202, {"topic": "DiffOffsetNone2"})
        for is_order in ("true", "false"):
            link.call(f"broker consume stats {is_order}", 317, {"isOrder": is_order}, only="DiffOffset")
        link.call("groups of a topic", 300, {"topic": topic})
        link.call("groups of no topic", 300, {"topic": "DiffOffsetNone2"})
        link.call("clone: no topic", 314, {"srcGroup": group, "destGroup": "DiffClone2"})
        link.call("clone: empty topic", 314, {"srcGroup": group, "destGroup": "DiffClone3", "topic": ""})
        link.call("clone: no topic, in the table", 43, only="DiffClone")


def test_queries(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic = create(link, "DiffQuery", 2)
        for number in range(4):
            properties = f"KEYS\x01same only{number}\x02UNIQ_KEY\x01QUNIQ{number}\x02TAGS\x01TagA"
            send(link, topic, b"q%d" % number, queueId=number % 2, properties=properties)
        everything = {"topic": topic, "key": "same", "maxNum": 10, "beginTimestamp": 0, "endTimestamp": 2**63 - 1}
        for label, changes in (
            ("same", {}),
            ("two of the same", {"maxNum": 2}),
            ("only one", {"key": "only2"}),
            ("by unique key", {"key": "QUNIQ1"}),
            ("by unique key, marked", {"key": "QUNIQ1", "_UNIQUE_KEY_QUERY": "true", "maxNum": 1}),
            ("nothing", {"key": "nothing"}),
            ("unknown topic", {"topic": "DiffQueryNone"}),
            ("empty key", {"key": ""}),
            ("none wanted", {"maxNum": 0}),
            ("minus one wanted", {"maxNum": -1}),
            ("many wanted", {"maxNum": 2**31 - 1}),
            ("before", {"endTimestamp": BORN_MS}),
            ("after", {"beginTimestamp": 2**62}),
            ("backwards", {"beginTimestamp": 2**62, "endTimestamp": 0}),
        ):
            link.call(f"query: {label}", 12, {**everything, **changes})
        queue = {"topic": topic, "queueId": 0, "index": 0, "count": 10}
        for label, fields in (
            ("all", queue),
            ("one", {**queue, "count": 1, "index": 1}),
            ("none", {**queue, "count": 0}),
            ("behind", {**queue, "index": 100}),
            ("negative", {**queue, "index": -1}),
            ("negative count", {**queue, "count": -1}),
            ("unknown queue", {**queue, "queueId": 8}),
            ("unknown topic", {**queue, "topic": "DiffQueryNone"}),
            ("group offline", {**queue, "consumerGroup": "DiffQueryG"}),
        ):
            link.call(f"queue: {label}", 321, fields)
        link.call("heartbeat", 34, None, heartbeat("diff@q", "DiffQueryG", subscription(topic, "TagA")))
        link.call("queue: group online", 321, {**queue, "consumerGroup": "DiffQueryG"})


def test_locks(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()

        def body(client: str, *queues: int, group: str = "DiffLockG", topic: str = "DiffLock") -> bytes:
            wanted = [{"brokerName": "broker-a", "queueId": queue_id, "topic": topic} for queue_id in queues]
            return json.dumps({"clientId": client, "consumerGroup": group, "mqSet": wanted}).encode()

        link.call("lock two", 41, None, body("one", 0, 1))
        link.call("lock again", 41, None, body("one", 1))
        link.call("lock what is locked", 41, None, body("two", 1, 2))
        link.call("lock of another group", 41, None, body("two", 0, 1, group="DiffLockH"))
        link.call("lock nothing", 41, None, body("two"))
        link.call("unlock what others locked", 42, None, body("two", 0))
        link.call("unlock", 42, None, body("one", 0, 9))
        link.call("unlock of an unknown group", 42, None, body("one", 0, group="DiffLockNone"))
        link.call("lock after", 41, None, body("two", 0, 1))
        for code in (41, 42):
            for noise in (b"", b"{}", b"[]", b"null", b"noise", b'{"clientId":5}', b'{"mqSet":null,"clientId":"x"}'):
                link.call(f"lock {code} {noise!r}", code, None, noise)
            link.call(f"lock {code} twice the same", code, None, body("one", 5, 5))


def test_clients(converse: Converse) -> None:
    with converse() as talk:
        one, two = talk.connect(), talk.connect()
        topic = create(one, "DiffClient", 2)
        group = "DiffClientG"
        one.call("list before", 38, {"consumerGroup": group})
        one.call("connections before", 203, {"consumerGroup": group})
        one.call("producers before", 204, {"producerGroup": "DiffClientP"})
        one.call("heartbeat one", 34, None, heartbeat("diff@one", group, subscription(topic), producer="DiffClientP"))
        one.pushed("one is told of itself")
        two.call("heartbeat two", 34, None, heartbeat("diff@two", group, subscription(topic, "TagA || TagB")))
        two.pushed("two is told")
        one.pushed("one is told of two")
        two.call("heartbeat two again", 34, None, heartbeat("diff@two", group, subscription(topic, "TagA || TagB")))
        two.pushed("nobody is told", 0)
        one.call("list", 38, {"consumerGroup": group})
        one.call("connections", 203, {"consumerGroup": group})
        one.call("producers", 204, {"producerGroup": "DiffClientP"})
        one.call("all producers", 328, {}, only="DiffClient")
        one.call("all producers, no fields", 328, only="DiffClient")
        newer = subscription(topic, "TagC", version=9)
        two.call("heartbeat, new subscription", 34, None, heartbeat("diff@two", group, newer))
        two.pushed("a change of tags is not told", 0)
        one.call("connections after", 203, {"consumerGroup": group})
        other = heartbeat("diff@two", group, newer, consumeType="CONSUME_ACTIVELY", messageModel="BROADCASTING")
        two.call("heartbeat, another kind", 34, None, other)
        one.call("connections of the other kind", 203, {"consumerGroup": group})
        one.forget_pushed()
        two.forget_pushed()
        two.call("unregister", 35, {"clientID": "diff@two", "consumerGroup": group})
        one.pushed("one is told that two left")
        two.pushed("two is not told", 0)
        two.call("unregister again", 35, {"clientID": "diff@two", "consumerGroup": group})
        two.call("unregister from nothing", 35, {"clientID": "diff@two"})
        two.call("unregister an unknown", 35, {"clientID": "x", "producerGroup": "y", "consumerGroup": "DiffClientZ"})
        one.call("list after", 38, {"consumerGroup": group})
        one.call("unregister the producer", 35, {"clientID": "diff@one", "producerGroup": "DiffClientP"})
        one.call("producers after", 204, {"producerGroup": "DiffClientP"})
        one.call("unregister the last", 35, {"clientID": "diff@one", "consumerGroup": group})
        one.call("list at the end", 38, {"consumerGroup": group})
        one.call("connections at the end", 203, {"consumerGroup": group})
        for label, body in (
            ("nothing", b""),
            ("null", b"null"),
            ("no object", b"[]"),
            ("noise", b"noise"),
            ("empty", b"{}"),
            ("no sets", b'{"clientID":"x"}'),
            ("empty id", b'{"clientID":"","consumerDataSet":[],"producerDataSet":[]}'),
            ("no name", b'{"clientID":"x","consumerDataSet":[{"subscriptionDataSet":[]}]}'),
            ("no subscriptions", b'{"clientID":"x","consumerDataSet":[{"groupName":"DiffClientN"}]}'),
            ("unknown words", heartbeat("x", "DiffClientW", consumeType="EATS", messageModel="?", more=1)),
            ("bad group", heartbeat("x", "a b \u00fc", subscription(topic))),
            ("group that is a path", heartbeat("x", "DiffClient/a", subscription(topic))),
            ("unit mode", heartbeat("x", "DiffClientU", subscription(topic), unitMode=True)),
            ("wrong types", b'{"clientID":5,"consumerDataSet":{},"producerDataSet":7}'),
        ):
            one.call(f"heartbeat: {label}", 34, None, body)
        one.call("groups", 201, only="DiffClient")
        one.call("topics", 21, only="DiffClient")
        for label, wanted in (
            ("tags", subscription(topic)),
            ("SQL", subscription(topic, "a > 5", kind="SQL92")),
            ("bad SQL", subscription(topic, "a >", kind="SQL92")),
            ("unknown type", subscription(topic, "a", kind="XPATH")),
        ):
            check = {"clientId": "x", "group": group, "subscriptionData": wanted}
            one.call(f"check: {label}", 46, None, json.dumps(check).encode())
        for noise in (b"", b"{}", b"null", b"noise"):
            one.call(f"check: {noise!r}", 46, None, noise)


def test_a_hang_up_is_told(converse: Converse) -> None:
    with converse() as talk:
        one, two = talk.connect(), talk.connect()
        create(one, "DiffHangUp", 1)
        one.call("heartbeat one", 34, None, heartbeat("diff@1", "DiffHangUpG", subscription("DiffHangUp")))
        two.call("heartbeat two", 34, None, heartbeat("diff@2", "DiffHangUpG", subscription("DiffHangUp")))
        one.pushed("one is told of both", 2)
        two.close()
        one.pushed("one is told of the hang-up")
        one.call("list", 38, {"consumerGroup": "DiffHangUpG"})


def test_sending_back(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic, group = create(link, "DiffBack", 1), "DiffBackG"
        stored = send(link, topic, b"again", properties="TAGS\x01TagA\x02KEYS\x01back\x02UNIQ_KEY\x01BACK1")
        offset = stored.physical_offset
        back: dict[str, Any] = {
            "offset": offset,
            "group": group,
            "delayLevel": 0,
            "originMsgId": "BACK1",
            "originTopic": topic,
        }
        back |= {"unitMode": "false", "maxReconsumeTimes": 16}
        link.call("back: unknown group made", 36, back)
        link.call("back: to the DLQ", 36, {**back, "delayLevel": -1})
        link.call("back: tried too often", 36, {**back, "maxReconsumeTimes": 0})
        link.call("back: tried too often, old client", 36, {**back, "maxReconsumeTimes": 0}, version=100)
        link.call("back: by level", 36, {**back, "delayLevel": 1})
        held = pull_fields(f"%RETRY%{group}", group, sysFlag=6, suspendTimeoutMillis=10_000)
        link.call("retry topic", 11, held)
        link.call("back: by a level that is none", 36, {**back, "delayLevel": 100})
        link.call("back: unit mode", 36, {**back, "unitMode": "true"})
        link.call("back: few fields", 36, {"offset": offset, "group": group, "delayLevel": 0})
        link.call("back: nothing there", 36, {**back, "offset": 2**40})
        link.call("back: negative", 36, {**back, "offset": -1})
        link.call("back: empty group", 36, {**back, "group": ""})
        link.call("back: odd group", 36, {**back, "group": "a b \u00fc"})
        link.call("schedule", 11, pull_fields("SCHEDULE_TOPIC_XXXX", group, queueId=2))
        link.call("schedule of level one", 11, pull_fields("SCHEDULE_TOPIC_XXXX", group, queueId=0))
        link.call("DLQ", 11, pull_fields(f"%DLQ%{group}", "DiffBackDlqG"))
        config = {"groupName": "DiffBackN", "retryQueueNums": 0}
        link.call("group without retry queues", 200, None, json.dumps(config).encode())
        link.call("back: no retry queues", 36, {**back, "group": "DiffBackN"})
        config = {"groupName": "DiffBackM", "retryQueueNums": 4, "retryMaxTimes": 0}
        link.call("group without retries", 200, None, json.dumps(config).encode())
        link.call("back: no retries", 36, {**back, "group": "DiffBackM", "maxReconsumeTimes": None})
        retry = send_fields(f"%RETRY%{group}", reconsumeTimes=20, properties="TAGS\x01TagA")
        link.call("send to a retry topic too often", 10, retry, b"x")
        link.call("send to a retry topic with a limit", 10, {**retry, "maxReconsumeTimes": 30}, b"x")
        link.call("DLQ after", 11, pull_fields(f"%DLQ%{group}", "DiffBackDlqG"))
        link.call("retry topic after", 11, held)
        link.call("topics", 21, only="DiffBack")
        link.call("groups", 201, only="DiffBack")


def test_delays(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic = create(link, "DiffDelay", 2)
        for level in ("1", "0", "-1", "99", "x", "", "18"):
            properties = f"TAGS\x01TagA\x02DELAY\x01{level}\x02UNIQ_KEY\x01D{level}"
            send(link, topic, b"late", label=f"delay {level!r}", properties=properties)
        send(link, topic, b"late", label="delay of queue 1", queueId=1, properties="DELAY\x011\x02KEYS\x01dk")
        for queue_id in (0, 17):
            link.call("schedule", 11, pull_fields("SCHEDULE_TOPIC_XXXX", "DiffDelayG", queueId=queue_id))
        for queue_id, first in ((0, 3), (1, 0)):
            where = {"queueId": queue_id, "queueOffset": first, "sysFlag": 6, "suspendTimeoutMillis": 10_000}
            link.call("delivered", 11, pull_fields(topic, "DiffDelayG", **where))
        link.call("all of queue 0", 11, pull_fields(topic, "DiffDelayG"))


def test_transactions(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic = create(link, "DiffTx", 1)
        half: dict[str, Any] = {
            "properties": "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01TX1\x02KEYS\x01tx\x02WAIT\x01true",
            "sysFlag": 4,
        }
        ends = []
        for number in range(4):
            stored = send(link, topic, b"half%d" % number, label="half", **half)
            ends.append(
                {
                    "producerGroup": "P",
                    "tranStateTableOffset": stored.field("queueOffset"),
                    "commitLogOffset": stored.physical_offset,
                    "commitOrRollback": 8,
                    "fromTransactionCheck": "false",
                    "msgId": "TX1",
                    "transactionId": "TX1",
                }
            )
        # A second commit is not compared: Apache stores the message again, and the two logs would not be the same.
        link.call("end: commit", 37, ends[0])
        link.call("end: roll back", 37, {**ends[1], "commitOrRollback": 12})
        link.call("end: of a check", 37, {**ends[2], "fromTransactionCheck": "true"})
        link.call("end: another group", 37, {**ends[3], "producerGroup": "Q"})
        link.call("end: another queue offset", 37, {**ends[3], "tranStateTableOffset": 77})
        link.call("end: another log offset", 37, {**ends[3], "commitLogOffset": 2**40})
        link.call("end: a negative log offset", 37, {**ends[3], "commitLogOffset": -1})
        link.call("end: what is none", 37, {**ends[3], "commitOrRollback": 5})
        assert link.ask(37, {**ends[3], "commitOrRollback": 0}, timeout_seconds=0.5) is None
        link.call("committed", 11, pull_fields(topic, "DiffTxG"))
        link.call("halves", 11, pull_fields("RMQ_SYS_TRANS_HALF_TOPIC", "DiffTxG"))
        link.call("ops", 11, pull_fields("RMQ_SYS_TRANS_OP_HALF_TOPIC", "DiffTxG"))
        link.call("resume", 323, {"msgId": stored.field("msgId")})
        link.call("resume nothing", 323, {"msgId": "7F00000100002A9F00000000FFFFFFFF"})
        link.call("resume noise", 323, {"msgId": "xyz"})
        link.call("resume without id", 323, {})
        link.call("halves after", 11, pull_fields("RMQ_SYS_TRANS_HALF_TOPIC", "DiffTxG"))


LEVELLED: list[int] = []
"""The bytes by which Apache's messages were made larger."""


def level_logs(link: Link, topic: str) -> None:
    """Let both logs end at the same offset again: the deletion of a topic is a record in ours."""
    there = send(link, topic, compare=False).physical_offset
    gap = there.ours - there.theirs
    assert gap > 0
    both = link.ask(10, send_fields(topic), Each(b"", b"x" * gap))
    assert both is not None and both.code == 0
    LEVELLED.append(gap)


def test_topic_administration(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        good = topic_fields("DiffTopic", 3)
        for label, changes in (
            ("made", {}),
            ("made again", {}),
            ("more queues", {"readQueueNums": 5, "writeQueueNums": 4}),
            ("no queues", {"topic": "DiffTopic0", "readQueueNums": 0, "writeQueueNums": 0}),
            ("negative queues", {"topic": "DiffTopicN", "readQueueNums": -1, "writeQueueNums": -1}),
            ("many queues", {"topic": "DiffTopicM", "readQueueNums": 2000, "writeQueueNums": 2000}),
            ("perm 0", {"topic": "DiffTopicP0", "perm": 0}),
            ("perm 9", {"topic": "DiffTopicP9", "perm": 9}),
            ("perm -1", {"topic": "DiffTopicP1", "perm": -1}),
            ("multi tag", {"topic": "DiffTopicMulti", "topicFilterType": "MULTI_TAG"}),
            ("no filter type", {"topic": "DiffTopicF", "topicFilterType": "NO_TAG"}),
            ("empty filter type", {"topic": "DiffTopicF", "topicFilterType": ""}),
            ("absent filter type", {"topic": "DiffTopicF", "topicFilterType": None}),
            ("sys flag", {"topic": "DiffTopicS", "topicSysFlag": 3}),
            ("order", {"topic": "DiffTopicO", "order": "true"}),
            ("absent order", {"topic": "DiffTopicOA", "order": None}),
            ("empty", {"topic": ""}),
            ("blank", {"topic": " "}),
            ("illegal", {"topic": "a b"}),
            ("too long", {"topic": "x" * 128}),
            ("system", {"topic": "TBW102"}),
            ("system by prefix", {"topic": "rmq_sys_x"}),
            ("system schedule", {"topic": "SCHEDULE_TOPIC_XXXX"}),
            ("retry", {"topic": "%RETRY%DiffTopicG"}),
            ("cluster", {"topic": "DefaultCluster"}),
            ("broker", {"topic": "broker-a"}),
        ):
            link.call(f"topic: {label}", 17, {**good, **changes})
        link.call("topics", 21, only="DiffTopic")
        send(link, "DiffTopicMulti", label="send to a multi tag topic")
        link.call("pull a multi tag topic", 11, pull_fields("DiffTopicMulti", "DiffTopicG"))
        send(link, "DiffTopic", queueId=1)
        # Apache's process dies if it dispatches a message to a queue that is being deleted.
        link.call("it is dispatched", 30, {"topic": "DiffTopic", "queueId": 1})
        for name in ("DiffTopic", "DiffTopicNone", "", "a b", "TBW102", "x" * 128, "rmq_sys_x"):
            link.call(f"delete {name[:10]!r} {len(name)}", 215, {"topic": name})
        level_logs(link, "DiffTopicMulti")
        link.call("pull what is deleted", 11, pull_fields("DiffTopic", "DiffTopicG", queueId=1))
        send(link, "DiffTopic", label="send to what was deleted", queueId=1, defaultTopicQueueNums=2)
        link.call("pull it again", 11, pull_fields("DiffTopic", "DiffTopicG", queueId=1))
        link.call("topics after", 21, only="DiffTopic")
        link.call("system topics", 305)
        for code in (306, 316, 329):
            link.call(f"clean {code}", code)


def test_group_administration(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        for label, config in (
            ("named", {"groupName": "DiffGroup"}),
            ("full", {"groupName": "DiffGroup", "retryQueueNums": 3, "retryMaxTimes": 5, "brokerId": 1}),
            ("no name", {"retryQueueNums": 3}),
            ("empty name", {"groupName": ""}),
            ("odd name", {"groupName": "a b/\u00fc"}),
            ("unknown member", {"groupName": "DiffGroupU", "colour": "red"}),
            ("wrong types", {"groupName": "DiffGroupW", "retryQueueNums": "7", "consumeEnable": "true"}),
            ("wrong number", {"groupName": "DiffGroupX", "retryQueueNums": "many"}),
            ("huge number", {"groupName": "DiffGroupY", "retryQueueNums": 2**40}),
        ):
            link.call(f"group: {label}", 200, None, json.dumps(config).encode())
        for noise in (b"", b"{}", b"null", b"[]", b"noise"):
            link.call(f"group: {noise!r}", 200, None, noise)
        link.call("groups", 201, only="DiffGroup")
        fields = {"consumerGroup": "DiffGroup", "topic": "DiffGroupT", "queueId": 0}
        link.call("commit", 15, {**fields, "commitOffset": 4})
        link.call("delete", 207, {"groupName": "DiffGroup"})
        link.call("offset stays", 14, fields)
        link.call("delete with offsets", 207, {"groupName": "DiffGroup", "removeOffset": "true"})
        link.call("offset is gone", 14, fields)
        link.call("delete an unknown", 207, {"groupName": "DiffGroupNone"})
        link.call("delete an empty", 207, {"groupName": ""})
        link.call("groups after", 201, only="DiffGroup")


def test_asking_consumers(converse: Converse) -> None:
    with converse() as talk:
        client, admin = talk.connect(), talk.connect()
        topic, group = create(admin, "DiffAsk", 2), "DiffAskG"
        stored = send(admin, topic, b"ask")
        admin.call("in the queue", 30, {"topic": topic, "queueId": 0})  # a reset to the end reads where Apache's ends
        message_id = stored.field("msgId")
        reset = {"topic": topic, "group": group, "timestamp": -1, "isForce": "true"}
        admin.call("reset: not online", 222, reset)
        admin.call("reset: unknown topic", 222, {**reset, "topic": "DiffAskNone"})
        admin.call("status: never seen", 223, {"topic": topic, "group": group})
        running = {"consumerGroup": group, "clientId": "diff@c", "jstackEnable": "false"}
        admin.call("running: not online", 307, running)
        directly = {"consumerGroup": group, "clientId": "diff@c", "msgId": message_id}
        admin.call("directly: not online", 309, directly)
        client.call("heartbeat", 34, None, heartbeat("diff@c", group, subscription(topic)))
        client.pushed("told of itself")
        admin.call("reset: no offsets", 222, reset)
        for queue_id in (0, 1):
            where = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": 0}
            admin.call("commit", 15, where)
        for label, changes in (
            ("to the end", {}),
            ("not forced", {"isForce": "false"}),
            ("to a time", {"timestamp": 0}),
            ("without force", {"isForce": None}),
        ):
            admin.call(f"reset: {label}", 222, {**reset, **changes})
            client.pushed(f"reset: {label}, told")
        admin.call("reset: by C++", 222, reset, language="CPP")
        client.pushed("reset: by C++, told")
        admin.call("status: another client", 223, {"topic": topic, "group": group, "clientAddr": "other"})
        for code, label, fields, answer in (
            (
                223,
                "status",
                {"topic": topic, "group": group},
                b'{"consumerTable":{},"messageQueueTable":{{"brokerName":"broker-a","queueId":0,"topic":"DiffAsk"}:1}}',
            ),
            (
                223,
                "status of one",
                {"topic": topic, "group": group, "clientAddr": "diff@c"},
                b'{"consumerTable":{},"messageQueueTable":{}}',
            ),
            (307, "running", running, b'{"properties":{},"subscriptionSet":[]}'),
            (
                309,
                "directly",
                directly,
                b'{"autoCommit":true,"consumeResult":"CR_SUCCESS","order":false,"spentTimeMills":3}',
            ),
        ):
            asked_and_answered(talk, admin, client, label, code, fields, answer)
        admin.call("running: an unknown client", 307, {**running, "clientId": "nobody"})
        admin.call("directly: an unknown client", 309, {**directly, "clientId": "nobody"})
        admin.call("directly: a message that is none", 309, {**directly, "msgId": "7F00000100002A9F00000000FFFFFFFF"})
        admin.call("directly: noise", 309, {**directly, "msgId": "noise"})
        admin.call("directly: no message", 309, {**directly, "msgId": None})
        old = talk.connect()
        admin.call("unregister", 35, {"clientID": "diff@c"})
        client.call("unregister", 35, {"clientID": "diff@c", "consumerGroup": group})
        old.call("heartbeat of an old client", 34, None, heartbeat("diff@c", group, subscription(topic)), version=10)
        admin.call("reset: old client", 222, reset)
        admin.call("status: old client", 223, {"topic": topic, "group": group})
        admin.call("running: old client", 307, running)


def asked_and_answered(
    talk: Talk, admin: Link, client: Link, label: str, code: int, fields: dict[str, Any], answer: bytes
) -> None:
    """The broker queries the client before it responds to the admin."""
    admin._opaque += 1
    for side in (0, 1):
        admin._send(side, code, fields, b"", 0, 407, "JAVA")
    for request in client.pushed(f"{label}, asked"):
        client.respond(request, 0, "not set any response code", answer)
    both = Both(*(end.answer(admin._opaque, 10) for end in admin._ends))  # type: ignore[arg-type]
    talk.compare(label, code, both)


def test_replies(converse: Converse) -> None:
    with converse() as talk:
        asker, replier = talk.connect(), talk.connect()
        asker.call("heartbeat", 34, None, heartbeat("diff@asker", producer="DiffReplyP"))
        properties = "CORRELATION_ID\x01c1\x02REPLY_TO_CLIENT\x01diff@asker\x02MSG_TYPE\x01reply\x02ARRIVE_TIME\x015"
        reply = send_fields("DefaultCluster_REPLY_TOPIC", properties=properties)
        replier._opaque += 1
        for side in (0, 1):
            replier._send(side, 325, v2(reply), b"answer", 0, 407, "JAVA")
        for request in asker.pushed("reply, pushed"):
            asker.respond(request, 0)
        both = Both(*(end.answer(replier._opaque, 10) for end in replier._ends))  # type: ignore[arg-type]
        talk.compare("reply", 325, both)
        for label, changes in (
            ("nobody", {"properties": "REPLY_TO_CLIENT\x01nobody"}),
            ("no property", {"properties": ""}),
            ("illegal topic", {"topic": "a b"}),
            ("queue that is none", {"queueId": 5}),
        ):
            replier.call(f"reply: {label}", 325, v2({**reply, **changes}), b"x")
            replier.call(f"reply by 324: {label}", 324, {**reply, **changes}, b"x")
        replier.call("replies", 11, pull_fields("DefaultCluster_REPLY_TOPIC", "DiffReplyG"))


def test_statistics_and_configuration(converse: Converse) -> None:
    with converse() as talk:
        link = talk.connect()
        topic = create(link, "DiffStats", 1)
        send(link, topic)
        link.call("stats", 315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": topic})
        link.call("stats of nothing", 315, {"statsName": "TOPIC_PUT_NUMS", "statsKey": "DiffStatsNone"})
        link.call("stats that are none", 315, {"statsName": "NO_STATS", "statsKey": topic})
        runtime(link)
        configuration(link)
        for body in (b"", b"unknownKey=5\n", b"\xff\xfe", b"no pair at all", b"traceOn=true\n"):
            link.call(f"update {body!r}", 25, None, body)
        link.call("ACL: update", 50, {"accessKey": "abcdefgh", "secretKey": "12345678"})
        link.call("ACL: delete", 51, {"accessKey": "abcdefgh"})
        link.call("ACL: addresses", 53, {"globalWhiteAddrs": "10.0.0.1"})
        link.call("ACL: version", 52, {}, timeout_seconds=0.5)
        link.call("ACL: everything", 54, {}, timeout_seconds=0.5)


# Keys that only TrioMQ reports: the lag of its event loop and its syncs. Clients show keys that they do not know.
OF_OUR_OWN = ("eventLoopLagMax", "syncTimes", "syncLatency99", "syncLatencyMax", "product", "productVersion")
# Values of GET_BROKER_RUNTIME_INFO that depend on times, rates, the machine and the moment.
MOVING = (
    *("bootTimestamp", "runtime", "getFoundTps", "getMissTps", "getTotalTps", "getTransferedTps", "putTps"),
    *("putMessageEntireTimeMax", "putMessageDistributeTime", "putLatency99", "putLatency999", "pageCacheLockTimeMills"),
    *("getMessageEntireTimeMax", "remainHowManyDataToFlush", "msgGetTotalTodayNow", "earliestMessageTimeStamp"),
    "putMessageFailedTimes",  # Apache also counts a message that it refused before the store
    *("startAcceptSendRequestTimeStamp", "commitLogDirCapacity", "dispatchBehindBytes", "scheduleMessageOffset_3"),
)


def runtime(link: Link) -> None:
    ours, theirs = (reply.json()["table"] for reply in link.ask_both(28))
    assert set(OF_OUR_OWN) <= ours.keys()
    total = int(theirs["putMessageSizeTotal"]) - sum(LEVELLED)
    theirs["putMessageSizeTotal"] = str(total)
    theirs["putMessageAverageSize"] = str(total / int(theirs["putMessageTimesTotal"]))
    assert {key.partition("_/")[0] for key in ours} - set(OF_OUR_OWN) == {key.partition("_/")[0] for key in theirs}
    differing = {key: (ours[key], theirs[key]) for key in ours if key in theirs and ours[key] != theirs[key]}
    moved = {key: pair for key, pair in differing.items() if key.partition("_/")[0] not in MOVING}
    assert not moved, moved


# Keys of the listing that differ: paths, ports; TrioMQ also lists a few keys of its own.
OF_THE_PLACE = {"rocketmqHome", "namesrvAddr", "brokerIP2", "storePathRootDir", "storePathCommitLog", "listenPort"}
# The port of the test, and a default that Apache overwrites with the length of its bloom filter.
OF_THE_PLACE |= {"haListenPort", "bitMapLengthConsumeQueueExt"}


def configuration(link: Link) -> None:
    listings = []
    for reply in link.ask_both(26):
        lines = reply.body.decode().splitlines()
        listed = dict(line.split("=", 1) for line in lines)
        listings.append({key: value for key, value in listed.items() if key in KNOWN_KEYS})
    ours, theirs = listings
    assert ours.keys() == theirs.keys()
    differing = {key: (ours[key], theirs[key]) for key in ours.keys() & theirs.keys() if ours[key] != theirs[key]}
    assert differing.keys() <= OF_THE_PLACE, differing


def test_codes_that_nobody_handles(converse: Converse) -> None:
    with converse() as talk:
        for link in (talk.connect(), talk.connect(-2)):
            for code in [*map(int, SPEC["unanswered"]), 0, -1, 999, 9999, 32767]:
                link.call(f"code {code}", code, {})


def test_tables_in_the_end(converse: Converse) -> None:
    """Compare the whole tables that the tests above produced."""
    with converse() as talk:
        link = talk.connect()
        for label, code in (("topics", 21), ("groups", 201), ("offsets", 43), ("delays", 45)):
            link.call(f"in the end: {label}", code)


def test_what_writes_other_messages_here(converse: Converse) -> None:
    """Run this last, because from here on the two logs differ."""
    with converse() as talk:
        link = talk.connect()
        create(link, "DiffLast", 1)
        retry = send_fields("%RETRY%DiffLastG", reconsumeTimes=20, properties="TAGS\x01TagA\x02DELAY\x013")
        link.call("group", 200, None, b'{"groupName":"DiffLastG"}')
        link.call("back: too often, delayed", 10, retry, b"x")


def good_requests(link: Link) -> dict[int, dict[str, Any]]:
    """Return request code -> fields with which the request succeeds, for all codes that have fields."""
    create(link, "DiffBad", 1)
    sent = send(link, "DiffBad", b"bad", compare=False)
    sending = send_fields("DiffBad", maxReconsumeTimes=3, bname="broker-a")
    queue = {"topic": "DiffBad", "queueId": 0}
    offset = {"consumerGroup": "DiffBadG", **queue}
    reset = {"topic": "DiffBad", "group": "DiffBadG", "timestamp": 0, "isForce": "true"}
    client = {"consumerGroup": "DiffBadG", "clientId": "c"}
    end = {"tranStateTableOffset": 0, "commitLogOffset": sent.physical_offset, "commitOrRollback": 8, "msgId": "U1"}
    back = {"offset": sent.physical_offset, "group": "DiffBadG", "delayLevel": 5, "originMsgId": "U1"}
    query = {"topic": "DiffBad", "key": "k1", "maxNum": 3, "beginTimestamp": 0, "endTimestamp": 2**62}
    return {
        10: sending,
        11: pull_fields("DiffBad", "DiffBadG"),
        12: query,
        14: offset,
        15: {**offset, "commitOffset": 1},
        17: topic_fields("DiffBad", 1),
        29: {**queue, "timestamp": 0},
        30: queue,
        31: queue,
        32: queue,
        33: {"offset": sent.physical_offset},
        35: {"clientID": "c", "producerGroup": "P", "consumerGroup": "DiffBadG"},
        36: {**back, "originTopic": "DiffBad", "unitMode": "false", "maxReconsumeTimes": 3},
        37: {"producerGroup": "P", **end, "fromTransactionCheck": "false", "transactionId": "U1"},
        38: {"consumerGroup": "DiffBadG"},
        50: {"accessKey": "abcdefgh", "secretKey": "12345678", "admin": "false"},
        51: {"accessKey": "abcdefgh"},
        53: {"globalWhiteAddrs": "10.0.0.1"},
        202: {"topic": "DiffBad"},
        203: {"consumerGroup": "DiffBadG"},
        204: {"producerGroup": "P"},
        207: {"groupName": "DiffBadNone", "removeOffset": "true"},
        208: {"consumerGroup": "DiffBadG", "topic": "DiffBad"},
        215: {"topic": "DiffBadNone"},
        222: reset,
        223: {"topic": "DiffBad", "group": "DiffBadG", "clientAddr": "c"},
        300: {"topic": "DiffBad"},
        303: {"topic": "DiffBad", "group": "DiffBadG"},
        307: {**client, "jstackEnable": "false"},
        308: {"filterGroups": "x", "compareGroup": "DiffBadG", "topic": "DiffBad"},
        309: {**client, "msgId": sent.field("msgId")},
        310: v2(sending),
        314: {"srcGroup": "DiffBadG", "destGroup": "DiffBadH", "topic": "DiffBad", "offline": "true"},
        315: {"statsName": "TOPIC_PUT_NUMS", "statsKey": "DiffBad"},
        317: {"isOrder": "false"},
        320: v2({**sending, "batch": "false"}),
        321: {**queue, "index": 0, "count": 3, "consumerGroup": "DiffBadG"},
        323: {"msgId": sent.field("msgId")},
        324: sending,
        325: v2(sending),
    }


WRONG = {
    "Integer": ("x", "", "1.5", " 1", str(2**31), str(-(2**31) - 1), str(2**70)),
    "Long": ("x", "", "1.5", str(2**63), str(2**70)),
    "Boolean": ("maybe", "", "TRUE", "1"),
    "String": (),
}


def test_missing_and_wrong_fields(converse: Converse) -> None:
    """Fields that are missing, of the wrong type or too large: the code is the same. TrioMQ names the field where
    Apache names an exception.

    Apache only logs a required field that is missing, and takes a bad number for none. Where that does no harm it goes
    on; TrioMQ always refuses, naming the field, since what the caller meant is not what would happen.
    """
    with converse() as talk:
        link = talk.connect()
        good = good_requests(link)
        assert set(good) == {int(code) for code, entry in SPEC["requests"].items() if entry["fields"]}
        for code, fields in good.items():
            entry = SPEC["requests"][str(code)]
            ask_wrongly(talk, link, code, f"{entry['name']} without fields", None, lambda remark: "missing" in remark)
            for name, kind, is_required in entry["fields"]:
                named = f"the header field <{name}> of "
                if name in fields and is_required:
                    wrong = {**fields, name: None}
                    ask_wrongly(talk, link, code, f"{entry['name']} {name}", wrong, lambda r, n=named: r.startswith(n))  # type: ignore[misc]
                for value in WRONG[kind]:
                    label = f"{entry['name']} {name}={value!r}"
                    wrong = {**fields, name: value}
                    ask_wrongly(talk, link, code, label, wrong, lambda r, n=named: r.startswith(n))  # type: ignore[misc]


def ask_wrongly(
    talk: Talk, link: Link, code: int, label: str, fields: dict[str, Any] | None, is_refusal: Callable[[str], bool]
) -> None:
    both = link.ask(code, fields, b"x", timeout_seconds=1)
    if both is None:
        return
    ours, theirs = both.ours, both.theirs
    if ours.code == SYSTEM_ERROR and is_refusal(ours.remark or ""):
        return
    if ours.code != theirs.code:
        talk.differ(Difference(label, "code", (ours.code, ours.remark), (theirs.code, theirs.remark)))
    elif ours.code and ours.remark != theirs.remark and not helps(ours.remark):
        talk.differ(Difference(label, "remark", ours.remark, theirs.remark))


def test_every_excuse_is_needed() -> None:
    """Run this after the other tests: fail for an excuse that none of them used."""
    unused = [key for key in EXCUSED.table if key not in EXCUSED.used]
    if len(unused) > len(EXCUSED.table) // 2:
        pytest.skip("not the whole file was run")
    assert not unused
