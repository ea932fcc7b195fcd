"""Typed bodies: the texts that RocketMQ's classes write, the compressed registration, and what is refused."""

from __future__ import annotations

import importlib
import inspect
import json
import pkgutil
import zlib
from pathlib import Path
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st
from registrations_read import compressed_registration

import triomq.protocol.bodies
from triomq.protocol.bodies.acl import PlainAccessConfig
from triomq.protocol.bodies.base import Body, decode_body, replace
from triomq.protocol.bodies.consume_stats import ConsumeStats, OffsetWrapper
from triomq.protocol.bodies.fastjson import dumps, loads
from triomq.protocol.bodies.heartbeat import HeartbeatData
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.offset import ConsumerOffsetSerializeWrapper, ResetOffsetBody, ResetOffsetBodyForC
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody
from triomq.protocol.bodies.route import ClusterInfo, TopicRouteData
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.bodies.topic_config import (
    DataVersion,
    RegisterBrokerBody,
    TopicConfig,
    TopicConfigSerializeWrapper,
)
from triomq.protocol.errors import BodyError
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SubscriptionData

FACTS: dict[str, Any] = json.loads((Path(__file__).parent / "wire_facts.json").read_text())
EXAMPLES = [
    (name, which, text) for name, examples in FACTS["body_examples"].items() for which, text in examples.items()
]


def body_classes() -> dict[str, type[Any]]:
    found: dict[str, type[Any]] = {"SubscriptionData": SubscriptionData}
    for module in pkgutil.iter_modules(triomq.protocol.bodies.__path__):
        for name, value in vars(importlib.import_module(f"triomq.protocol.bodies.{module.name}")).items():
            if inspect.isclass(value) and issubclass(value, Body) and value is not Body:
                found[name] = value
    return found


CLASSES = body_classes()


@pytest.mark.parametrize(("name", "which", "text"), EXAMPLES, ids=[f"{name}-{which}" for name, which, _ in EXAMPLES])
def test_examples_read_and_write_exactly(name: str, which: str, text: str) -> None:
    value = decode_body(CLASSES[name], text.encode())
    written = value.encode_standard() if which == "example_standard" else dumps(value)
    assert written.decode() == text
    if which != "example_standard":
        assert dumps(loads(text.encode())).decode() == text
    # Every member of the text is a field of the class, so none was ignored.
    known = {field.encode_name for field in msgspec.structs.fields(CLASSES[name])}
    assert set(loads(text.encode())) <= known


@pytest.mark.parametrize("name", CLASSES)
def test_every_body_reads_from_an_empty_object_and_has_sorted_fields(name: str) -> None:
    cls = CLASSES[name]
    assert isinstance(decode_body(cls, b"{}"), cls)
    names = [field.encode_name for field in msgspec.structs.fields(cls)]
    assert names == sorted(names)


@pytest.mark.parametrize(("name", "which", "text"), EXAMPLES, ids=[f"{name}-{which}" for name, which, _ in EXAMPLES])
def test_truncated_examples_are_refused(name: str, which: str, text: str) -> None:
    for length in range(len(text)):
        with pytest.raises(BodyError, match=name):
            decode_body(CLASSES[name], text[:length].encode())


def test_lenient_reading() -> None:
    text = b'{"order":null,"perm":"6","readQueueNums":4,"topicName":"T","unknown":{"a":[1]},}'
    assert TopicConfig.decode(text) == TopicConfig(topic_name="T", read_queue_nums=4)
    assert TopicRouteData.decode(b'{"brokerDatas":[{"brokerAddrs":{"0":"a"}}]}') == TopicRouteData.decode(
        b'{"brokerDatas":[{"brokerAddrs":{0:"a"}}],"queueDatas":null}'
    )
    assert ConsumerOffsetSerializeWrapper.decode(b'{"offsetTable":{"T@G":{"0":5}}}').offset_table == {"T@G": {0: 5}}


def test_references_between_bodies() -> None:
    text = b'{"topicConfigTable":{"A":{"topicName":"A","perm":4},"B":{"$ref":"$.topicConfigTable.A"}}}'
    table = TopicConfigSerializeWrapper.decode(text).topic_config_table
    assert table["A"] == table["B"] == TopicConfig(topic_name="A", perm=4)


@pytest.mark.parametrize(
    ("text", "place"),
    [
        (b"", "ends too early"),
        (b"[]", "object"),
        (b'{"perm":"six"}', "perm"),
        (b'{"perm":99999999999}', "perm"),
        (b'{"perm":{}}', "perm"),
        (b'{"topicName":5}', "topicName"),
        (b'{"order":[' + b"[" * 5000, "nested"),
        (b"\xff", "UTF-8"),
    ],
)
def test_refusals_name_class_and_place(text: bytes, place: str) -> None:
    with pytest.raises(BodyError, match=f"not a valid TopicConfig: .*{place}"):
        TopicConfig.decode(text)


def test_heartbeat_without_client_id() -> None:
    assert HeartbeatData.decode(b"{}").client_id is None
    assert HeartbeatData.decode(b'{"clientID":"c"}').client_id == "c"
    assert HeartbeatData.decode(b'{"clientId":"c"}').client_id is None


def test_sets_of_queues() -> None:
    text = b'{"mqSet":[{"brokerName":"b","queueId":1,"topic":"T"},{"brokerName":"b","queueId":1,"topic":"T"}]}'
    assert LockBatchRequestBody.decode(text).mq_set == {MessageQueue("T", "b", 1)}


def test_cluster_info_keeps_every_broker_name() -> None:
    info = ClusterInfo(cluster_addr_table={"C": frozenset(f"b-{number}" for number in range(50))})
    assert ClusterInfo.decode(info.encode()) == info


def test_reset_offsets_for_cpp_clients() -> None:
    body = ResetOffsetBody(offset_table={MessageQueue("T", "b-a", 0): 5})
    assert ResetOffsetBodyForC.of(body).encode().decode() == FACTS["body_examples"]["ResetOffsetBodyForC"]["example"]


def test_values() -> None:
    assert DataVersion(counter=3, timestamp=5).next_version(9) == DataVersion(counter=4, timestamp=9)
    assert replace(TopicConfig(topic_name="T"), perm=4) == TopicConfig(topic_name="T", perm=4)
    stats = ConsumeStats(
        offset_table={
            MessageQueue("T", "b", 0): OffsetWrapper(broker_offset=10, consumer_offset=7),
            MessageQueue("T", "b", 1): OffsetWrapper(broker_offset=4, consumer_offset=4),
        }
    )
    assert stats.total_diff() == 3
    assert "secret" not in repr(PlainAccessConfig(access_key="key", secret_key="secret"))
    assert str(TopicConfig(topic_name="WireA", read_queue_nums=2, write_queue_nums=2)) == (
        "TopicConfig [topicName=WireA, readQueueNums=2, writeQueueNums=2, perm=RW-, topicFilterType=SINGLE_TAG, "
        "topicSysFlag=0, order=false]"
    )


def test_records_write_what_the_general_writer_writes() -> None:
    for name in ("T", 'a"b\\', "\x01\x1f\x7f", "体\u2028\x85", "%RETRY%G"):
        topic = TopicConfig(topic_name=name, topic_filter_type=name, order=True)
        fields = {"order": True, "perm": 6, "readQueueNums": 16, "topicFilterType": name, "topicName": name}
        assert topic.encode() == dumps({**fields, "topicSysFlag": 0, "writeQueueNums": 16})
    group = SubscriptionGroupConfig(group_name="G")
    assert group.encode().decode() == FACTS["body_examples"]["SubscriptionGroupConfig"]["example"]


@given(st.dictionaries(st.text(), st.text()))
def test_tables_of_any_text(table: dict[str, str]) -> None:
    body = KVTable(table=table)
    assert KVTable.decode(body.encode()) == body
    assert KVTable.decode(body.encode_pretty()) == body


def test_compressed_registration_example() -> None:
    inflated = bytes.fromhex(FACTS["compressed_registration_hex"])
    body = RegisterBrokerBody.decode(FACTS["body_examples"]["RegisterBrokerBody"]["example"].encode())
    assert zlib.decompress(body.encode_compressed()) == inflated
    assert body.encode_compressed()[:2] == b"\x78\xda"
    assert compressed_registration(zlib.compress(inflated)) == body


def test_compressed_registration_without_filter_servers() -> None:
    inflated = bytes.fromhex(FACTS["compressed_registration_hex"])[:-6] + b"\x00\x00\x00\x04null"
    assert compressed_registration(zlib.compress(inflated)).filter_server_list == []


def test_compressed_registration_refusals() -> None:
    inflated = bytes.fromhex(FACTS["compressed_registration_hex"])
    for length in range(len(inflated)):
        with pytest.raises(BodyError):
            compressed_registration(zlib.compress(inflated[:length]))
    packed = zlib.compress(inflated)
    for length in range(len(packed)):
        with pytest.raises(BodyError):
            compressed_registration(packed[:length])
    with pytest.raises(BodyError, match="inflated"):
        compressed_registration(b"no zlib")
    for line in ("T 16 16 6", "T 16 16 6 SINGLE_TAG x", "T a 16 6 SINGLE_TAG"):
        with pytest.raises(BodyError, match="topic line"):
            TopicConfig.decode_line(line)


@given(
    st.dictionaries(
        st.text("%|abcXYZ019_-", min_size=1),
        st.tuples(st.integers(0, 9999), st.integers(0, 9999), st.integers(0, 7)),
    ),
    st.lists(st.text()),
    st.integers(0, 2**63 - 1),
)
def test_compressed_registration_survives(
    topics: dict[str, tuple[int, int, int]], filter_servers: list[str], counter: int
) -> None:
    table = {
        name: TopicConfig(topic_name=name, read_queue_nums=read, write_queue_nums=write, perm=perm)
        for name, (read, write, perm) in topics.items()
    }
    wrapper = TopicConfigSerializeWrapper(data_version=DataVersion(counter=counter), topic_config_table=table)
    body = RegisterBrokerBody(filter_server_list=filter_servers, topic_config_serialize_wrapper=wrapper)
    assert compressed_registration(body.encode_compressed()) == body
    assert RegisterBrokerBody.decode(body.encode()) == body
