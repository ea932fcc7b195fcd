"""Bad input over raw sockets: the response has RocketMQ's code and a helpful sentence, or the connection is closed.

No other client notices anything. Apache responds with the first NullPointerException that a missing field causes, if
any, so only TrioMQ's remarks are checked.
"""

from __future__ import annotations

import contextlib
import random
import struct
import time
from collections.abc import Iterator
from typing import Any

import pytest
from interop_cluster import Cluster
from interop_wire import Answer, Wire, ask, frame, lenient_json, request, request_header

SEND_MESSAGE = 10
PULL_MESSAGE = 11
SEND_MESSAGE_V2 = 310
GET_MAX_OFFSET = 30
SYSTEM_ERROR = 1
REQUEST_CODE_NOT_SUPPORTED = 3
MESSAGE_ILLEGAL = 13
TOPIC_NOT_EXIST = 17
SUBSCRIPTION_NOT_EXIST = 24
MIB = 1024 * 1024


@pytest.fixture(scope="module")
def topic(cluster: Cluster) -> str:
    return cluster.create_topic("BadInput", queues=2)


@pytest.fixture
def bystander(cluster: Cluster, topic: str) -> Iterator[Wire]:
    """A connection opened before the bad input, and used before and after it."""
    with Wire(cluster.broker_address) as wire:
        assert good_send(wire, topic).code == 0
        yield wire
        assert good_send(wire, topic).code == 0


def send_fields(topic: str, /, **changes: Any) -> dict[str, Any]:
    """Return the header of SEND_MESSAGE; a change to None omits the field."""
    fields: dict[str, Any] = {
        "producerGroup": "bad_input",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": int(time.time() * 1000),
        "flag": 0,
        "properties": "",
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }
    fields.update(changes)
    return {name: value for name, value in fields.items() if value is not None}


def pull_fields(topic: str, /, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "consumerGroup": "bad_input_group",
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
    fields.update(changes)
    return {name: value for name, value in fields.items() if value is not None}


def good_send(wire: Wire, topic: str) -> Answer:
    return wire.call(SEND_MESSAGE, send_fields(topic), b"good")


def assert_names(cluster: Cluster, answer: Answer, field: str) -> None:
    if cluster.target == "triomq":
        assert answer.code == SYSTEM_ERROR
        assert field in answer.remark


BROKEN_FRAMES = {
    "longer-than-16-MiB": struct.pack(">I", 17 * MIB) + b"\0" * 64,
    "negative-length": struct.pack(">i", -1) + b"\0" * 64,
    "most-negative-length": struct.pack(">i", -(2**31)) + b"\0" * 64,
    "zero-length": struct.pack(">I", 0) + b"\0" * 64,
    "header-longer-than-frame": struct.pack(">II", 20, 100) + b"{" * 16,
    "header-is-not-json": frame(b"this is no JSON at all"),
    "header-is-an-array": frame(b"[1,2,3]"),
    "header-is-empty": frame(b""),
    "header-is-torn": frame(request_header(SEND_MESSAGE, {"topic": "x"})[:40]),
    "header-is-not-utf8": frame(b'{"code":10,"extFields":{"topic":"\xff\xfe"}'),
    "unknown-codec": frame(request_header(SEND_MESSAGE), serialize_type=77),
    "binary-header-too-short": frame(b"\0\x0a\0", serialize_type=1),
    "binary-header-lies-about-lengths": frame(
        struct.pack(">hBhiii", 10, 0, 407, 1, 0, 2**31 - 1) + b"x" * 20, serialize_type=1
    ),
    "http": b"GET / HTTP/1.1\r\nHost: localhost\r\n\r\n",
    "deep-json": frame(b'{"code":10,"extFields":' + b'{"a":' * 20_000),
}


@pytest.mark.parametrize("daemon", ["broker", "namesrv"])
@pytest.mark.parametrize("name", BROKEN_FRAMES)
def test_a_broken_frame_costs_only_its_connection(cluster: Cluster, bystander: Wire, name: str, daemon: str) -> None:
    address = cluster.broker_address if daemon == "broker" else cluster.namesrv_address
    with Wire(address) as wire:
        wire.send(BROKEN_FRAMES[name])
        wire.socket.settimeout(0.5)
        try:
            answer = wire.receive(0.5)
            assert answer is None or answer.code != 0
        except TimeoutError:
            pass  # still waiting for the rest of the frame
    assert ask(cluster.namesrv_address, 106).code == 0


def test_frames_that_can_never_become_whole_are_closed(cluster: Cluster) -> None:
    for name in ("longer-than-16-MiB", "negative-length", "unknown-codec", "header-is-not-json"):
        for address in (cluster.broker_address, cluster.namesrv_address):
            with Wire(address) as wire:
                wire.send(BROKEN_FRAMES[name])
                assert wire.is_closed_by_peer(), f"{name} was not closed by {address}"


def test_half_a_frame_and_a_hang_up(cluster: Cluster, bystander: Wire, topic: str) -> None:
    whole = request(SEND_MESSAGE, send_fields(topic), b"never whole" * 100)
    for cut in (0, 1, 3, 4, 7, 8, 50, len(whole) - 1):
        for address in (cluster.broker_address, cluster.namesrv_address):
            with Wire(address) as wire:
                wire.send(whole[:cut])
    assert good_send(bystander, topic).code == 0


def test_a_frame_byte_by_byte_is_a_frame(cluster: Cluster, topic: str) -> None:
    with Wire(cluster.broker_address) as wire:
        for byte in request(SEND_MESSAGE, send_fields(topic), b"slow"):
            wire.send(bytes([byte]))
        answer = wire.receive()
        assert answer is not None
        assert answer.code == 0


def test_random_and_mutated_frames(cluster: Cluster, bystander: Wire, topic: str) -> None:
    chance = random.Random(20240607)
    seeds = [
        request(SEND_MESSAGE, send_fields(topic, topic="BadInputRandom"), b"body"),
        request(PULL_MESSAGE, pull_fields(topic)),
        request(GET_MAX_OFFSET, {"topic": topic, "queueId": 0}),
        request(105, {"topic": topic}),
        request(34, None, b'{"clientID":"x","producerDataSet":[],"consumerDataSet":[]}'),
    ]
    for number in range(150):
        if number % 3 == 0:
            data = chance.randbytes(chance.randint(1, 200))
        else:
            mutated = bytearray(chance.choice(seeds))
            for _ in range(chance.randint(1, 6)):
                mutated[chance.randrange(len(mutated))] = chance.randrange(256)
            data = bytes(mutated)
        with Wire(chance.choice([cluster.broker_address, cluster.namesrv_address])) as wire:
            wire.send(data)
            if number % 10 == 0:
                with contextlib.suppress(TimeoutError):
                    wire.receive(0.05)
    assert good_send(bystander, topic).code == 0
    assert ask(cluster.namesrv_address, 106).code == 0


@pytest.mark.parametrize("code", [9999, 0, -1, 32767])
def test_an_unknown_request_is_refused_by_name(cluster: Cluster, topic: str, code: int) -> None:
    with Wire(cluster.broker_address) as wire:
        answer = wire.call(code)
        assert answer.code == REQUEST_CODE_NOT_SUPPORTED
        assert answer.remark == f" request type {code} not supported"
        assert good_send(wire, topic).code == 0


def test_the_nameserver_lives_on_after_an_unknown_request(cluster: Cluster) -> None:
    with Wire(cluster.namesrv_address) as wire:
        wire.send(request(9999))
        wire.send(request(106))
        answers = [wire.receive()]
        if answers[0] is not None and answers[0].code == REQUEST_CODE_NOT_SUPPORTED:
            answers.append(wire.receive())
        assert answers[-1] is not None
        assert answers[-1].code == 0


@pytest.mark.parametrize(
    "field", ["producerGroup", "topic", "defaultTopic", "defaultTopicQueueNums", "queueId", "sysFlag"]
)
def test_a_missing_field_is_named(cluster: Cluster, bystander: Wire, topic: str, field: str) -> None:
    answer = bystander.call(SEND_MESSAGE, send_fields(topic, **{field: None}), b"x")
    assert_names(cluster, answer, field)
    assert good_send(bystander, topic).code == 0


@pytest.mark.parametrize("field", ["consumerGroup", "topic", "queueId", "queueOffset", "maxMsgNums", "sysFlag"])
def test_a_missing_pull_field_is_named(cluster: Cluster, bystander: Wire, topic: str, field: str) -> None:
    answer = bystander.call(PULL_MESSAGE, pull_fields(topic, **{field: None}))
    assert_names(cluster, answer, field)


def test_a_missing_field_of_the_short_header_is_named(cluster: Cluster, bystander: Wire) -> None:
    answer = bystander.call(
        SEND_MESSAGE_V2, {"a": "group", "c": "TBW102", "d": 4, "e": 0, "f": 0, "g": 1, "h": 0}, b"x"
    )
    assert answer.code == SYSTEM_ERROR
    assert "<b>" in answer.remark or "topic" in answer.remark


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("queueId", "zero"),
        ("queueId", "99999999999"),
        ("sysFlag", ""),
        ("bornTimestamp", "1.5"),
        ("defaultTopicQueueNums", "x"),
    ],
)
def test_a_field_of_the_wrong_type_is_named(
    cluster: Cluster, bystander: Wire, topic: str, field: str, value: str
) -> None:
    answer = bystander.call(SEND_MESSAGE, send_fields(topic, **{field: value}), b"x")
    assert_names(cluster, answer, field)
    assert good_send(bystander, topic).code == 0


@pytest.mark.parametrize(
    ("name", "sentence"),
    [
        ("bad topic!", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("schöne_topic", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("../../etc/passwd", "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ("", "The specified topic is blank."),
        ("t" * 128, "The specified topic is longer than topic max length."),
    ],
    ids=["blank-inside", "umlaut", "path", "empty", "128-characters"],
)
def test_an_illegal_topic_is_refused(cluster: Cluster, bystander: Wire, name: str, sentence: str) -> None:
    answer = bystander.call(SEND_MESSAGE, send_fields(name), b"x")
    assert answer.code == SYSTEM_ERROR
    assert answer.remark == sentence


def test_a_topic_of_127_characters_is_fine(cluster: Cluster, bystander: Wire) -> None:
    assert bystander.call(SEND_MESSAGE, send_fields("t" * 127), b"x").code == 0


def test_a_queue_that_does_not_exist(cluster: Cluster, bystander: Wire, topic: str) -> None:
    answer = bystander.call(SEND_MESSAGE, send_fields(topic, queueId=77), b"x")
    assert answer.code == SYSTEM_ERROR
    assert answer.remark.startswith(f"request queueId[77] is illegal, TopicConfig [topicName={topic}, readQueueNums=2")
    answer = bystander.call(PULL_MESSAGE, pull_fields(topic, queueId=77))
    assert answer.code == SYSTEM_ERROR
    assert answer.remark.startswith(f"queueId[77] is illegal, topic:[{topic}] topicConfig.readQueueNums:[2] consumer:[")


def test_pulling_what_is_not_there(cluster: Cluster, bystander: Wire, topic: str) -> None:
    answer = bystander.call(PULL_MESSAGE, pull_fields("NoSuchTopicAnywhere"))
    assert answer.code == TOPIC_NOT_EXIST
    assert answer.remark.startswith("topic[NoSuchTopicAnywhere] not exist, apply first please!")
    answer = bystander.call(PULL_MESSAGE, pull_fields(topic, sysFlag=0, subscription=None))
    assert answer.code == SUBSCRIPTION_NOT_EXIST
    assert answer.remark.startswith("the consumer's group info not exist")


TOO_LONG = (
    "the message is illegal, maybe msg body or properties length not matched. msg body length limit 4194304B, "
    "msg properties length limit 32KB."
)


def test_a_body_over_4_mib_is_refused(cluster: Cluster, bystander: Wire, topic: str) -> None:
    answer = bystander.call(SEND_MESSAGE, send_fields(topic), b"x" * (4 * MIB + 1))
    assert (answer.code, answer.remark) == (MESSAGE_ILLEGAL, TOO_LONG)
    assert bystander.call(SEND_MESSAGE, send_fields(topic), b"x" * (4 * MIB - 2048)).code == 0


def test_properties_over_32_kib_are_refused(cluster: Cluster, bystander: Wire, topic: str) -> None:
    answer = bystander.call(SEND_MESSAGE, send_fields(topic, properties="p\x01" + "v" * 33_000), b"x")
    assert (answer.code, answer.remark) == (MESSAGE_ILLEGAL, TOO_LONG)
    assert bystander.call(SEND_MESSAGE, send_fields(topic, properties="p\x01" + "v" * 30_000), b"x").code == 0


def test_a_broken_batch_is_refused_or_taken_but_harms_nobody(cluster: Cluster, bystander: Wire, topic: str) -> None:
    before = int(ask(cluster.broker_address, GET_MAX_OFFSET, {"topic": topic, "queueId": 1}).fields["offset"])
    for body in (b"\xff" * 40, b"\0" * 40, struct.pack(">i", -5) + b"x" * 30, struct.pack(">iiiii", 20, 0, 0, 0, 100)):
        with Wire(cluster.broker_address) as wire:
            assert wire.call(SEND_MESSAGE, send_fields(topic, batch="true", queueId=1), body).code != 0
    after = int(ask(cluster.broker_address, GET_MAX_OFFSET, {"topic": topic, "queueId": 1}).fields["offset"])
    assert after == before


def test_no_slowloris_starves_the_others(cluster: Cluster, topic: str) -> None:
    """Hundreds of connections never finish a frame while another one works normally."""
    idle = [Wire(cluster.broker_address) for _ in range(200)]
    try:
        for wire in idle:
            wire.send(b"\0\0\x01")
        with Wire(cluster.broker_address) as wire:
            for _ in range(20):
                assert good_send(wire, topic).code == 0
    finally:
        for wire in idle:
            wire.socket.close()


def test_nothing_of_the_bad_input_became_a_topic(cluster: Cluster) -> None:
    answer = ask(cluster.namesrv_address, 206)
    assert answer.code == 0
    topics = lenient_json(answer.body)["topicList"]
    assert not [topic for topic in topics if not topic.isascii() or "/" in topic or " " in topic]
