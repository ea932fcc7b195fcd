"""The processors for clients: heartbeats, offsets, locks, queries."""

import gc
import json
import re
from collections.abc import Coroutine
from typing import Any

import pytest
import trio
from broker_fakes import FakeConnection, FakeStore, request
from broker_metadata import metadata
from fake_clock import FakeClock
from golden_data import golden_frames

from triomq.broker.client_notifier import ClientNotifier
from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.processors.client import MAX_HEARTBEAT_BYTES, SHORT_HEARTBEAT_BYTES, ClientProcessor
from triomq.broker.processors.offset_admin import OffsetAdminProcessor
from triomq.broker.processors.offsets import OffsetProcessor
from triomq.broker.processors.query import QueryProcessor
from triomq.broker.processors.queue_locks import MAX_BODY_BYTES, QueueLockProcessor
from triomq.broker.tables.consumers import ConsumerTable, Consumption
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.queue_locks import QueueLockTable
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies.heartbeat import HeartbeatData
from triomq.protocol.command import ROCKETMQ, RemotingCommand
from triomq.protocol.errors import BodyError, HeaderFieldError, RequestRefused
from triomq.protocol.message_queue import MessageQueue

HEARTBEAT = {
    "clientID": "c1",
    "consumerDataSet": [
        {
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "consumeType": "CONSUME_PASSIVELY",
            "groupName": "G",
            "messageModel": "CLUSTERING",
            "subscriptionDataSet": [
                {
                    "classFilterMode": False,
                    "codeSet": [2598919],
                    "expressionType": "TAG",
                    "subString": "TagA",
                    "subVersion": 1700000000000,
                    "tagsSet": ["TagA"],
                    "topic": "T",
                }
            ],
            "unitMode": False,
        }
    ],
    "producerDataSet": [{"groupName": "P"}],
}


class Surroundings:
    """A broker's tables, wired as the controller wires them."""

    def __init__(self, **settings: Any) -> None:
        clock = FakeClock()
        self.configuration = Configuration(broker=BrokerSettings(broker_name="b-a", **settings))
        self.topics = TopicTable(now_ms=clock)
        self.groups = GroupTable(now_ms=clock)
        self.notifier = ClientNotifier(self.configuration)
        self.consumers = ConsumerTable(clock, on_change=self.notifier.consumer_ids_changed)
        self.producers = ProducerTable(clock)
        self.offsets = OffsetTable()
        self.store = FakeStore()
        self.client = ClientProcessor(
            self.configuration,
            metadata(clock, topics=self.topics, groups=self.groups, consumers=self.consumers, producers=self.producers),
        )

    def beat(self, connection: FakeConnection, **changes: Any) -> None:
        answer = self.client.heartbeat(connection, request(34, body=json.dumps({**HEARTBEAT, **changes}).encode()))
        assert isinstance(answer, RemotingCommand)
        assert (answer.code, answer.remark) == (0, None)


@pytest.fixture
def around() -> Surroundings:
    return Surroundings()


# -- clients ---------------------------------------------------------------------------------------------------------


def test_heartbeat_fills_the_tables_and_makes_the_retry_topic(around: Surroundings) -> None:
    connection = FakeConnection()
    around.beat(connection)
    group = around.consumers.get("G")
    assert group is not None
    member = group.member("c1")
    assert member is not None
    assert (member.language, member.version) == (0, 407)
    assert group.subscriptions["T"].tags_set == {"TagA"}
    assert around.groups.get("G") is not None
    retry = around.topics.get("%RETRY%G")
    assert retry is not None
    assert (retry.write_queue_nums, retry.perm, retry.topic_sys_flag) == (1, 6, 0)
    assert around.producers.connection_of_client("c1") is connection


def refused_beat(around: Surroundings, **changes: Any) -> RequestRefused:
    body = json.dumps({**HEARTBEAT, **changes}).encode()
    with pytest.raises(RequestRefused) as refusal:
        answer = around.client.heartbeat(FakeConnection(), request(34, body=body))
        if isinstance(answer, Coroutine):
            answer.send(None)
    return refusal.value


def consumers(*names: str, topics: int = 0) -> list[dict[str, object]]:
    subscriptions = [{"topic": f"T{number}", "subString": "*"} for number in range(topics)]
    return [{"groupName": name, "subscriptionDataSet": subscriptions} for name in names]


TOO_LONG = {"topic": "T", "subString": "a" * 32_768}
MANY_TAGS = {"topic": "T", "tagsSet": [f"t{number:07}" for number in range(4096)]}


@pytest.mark.parametrize(
    ("changes", "code", "reason"),
    [
        ({"consumerDataSet": consumers("a", "b", "c")}, 2, "4 groups, the limit .maxGroupsPerClient. is 3"),
        ({"consumerDataSet": consumers("a" * 256)}, 1, "256 characters, the longest is 255"),
        ({"producerDataSet": [{"groupName": "a" * 256}]}, 1, "256 characters, the longest is 255"),
        ({"consumerDataSet": consumers("a", "b", topics=1001)}, 2, "2002 subscriptions"),
        ({"consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [{"topic": "t" * 128}]}]}, 1, "longest is 127"),
        (
            {"consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [TOO_LONG]}]},
            2,
            "subscription to T has 32768 characters, the limit is 32767",
        ),
        (
            {"consumerDataSet": [{"groupName": "G", "subscriptionDataSet": [MANY_TAGS]}]},
            2,
            "the tags of the subscription to T have 32768 characters, the limit is 32767",
        ),
        ({"consumerDataSet": consumers("a", topics=4010)}, 2, "more than twice the groups .3, maxGroupsPerClient."),
        ({"unknown": "a" * MAX_HEARTBEAT_BYTES}, 2, f"bytes, the limit is {MAX_HEARTBEAT_BYTES}"),
    ],
)
def test_a_heartbeat_beyond_a_limit_registers_nothing(changes: dict[str, Any], code: int, reason: str) -> None:
    around = Surroundings(max_groups_per_client=3)
    before = len(around.groups.names())
    refusal = refused_beat(around, **changes)
    assert refusal.code == code
    assert re.search(reason, refusal.remark)
    assert len(around.groups.names()) == before
    assert around.consumers.get("a") is None
    assert around.producers.channels("P") is None


def test_a_connection_is_in_few_groups_however_many_heartbeats_name_them() -> None:
    around = Surroundings(max_groups_per_client=3)
    connection = FakeConnection()
    around.beat(connection, consumerDataSet=consumers("a", "b"), producerDataSet=[{"groupName": "P"}])
    before = len(around.groups.names())
    for changes in ({"producerDataSet": []}, {"consumerDataSet": []}):
        body = {**HEARTBEAT, "consumerDataSet": consumers("c", "a"), "producerDataSet": [{"groupName": "Q"}], **changes}
        with pytest.raises(RequestRefused, match=r"c1 is in 3 groups, the limit .maxGroupsPerClient.") as refusal:
            around.client.heartbeat(connection, request(34, body=json.dumps(body).encode()))
        assert refusal.value.code == 2
    assert around.consumers.get("c") is None
    assert around.producers.channels("Q") is None
    assert len(around.groups.names()) == before, "and no group and no retry topic is made"
    around.producers.unregister("P", connection)
    around.beat(connection, consumerDataSet=consumers("c"), producerDataSet=[])
    assert around.consumers.get("c") is not None


@pytest.mark.parametrize("kind", ["consumerDataSet", "producerDataSet"])
def test_a_refused_heartbeat_leaves_nothing_to_the_garbage_collector(kind: str) -> None:
    """A collection is rare, and hundreds of decoded heartbeats are hundreds of megabytes."""
    around = Surroundings(max_groups_per_client=3)
    connection = FakeConnection()
    around.beat(connection, consumerDataSet=consumers("a", "b", "c"), producerDataSet=[])
    body = json.dumps({**HEARTBEAT, "consumerDataSet": [], "producerDataSet": [], kind: consumers("d", "e")}).encode()
    gc.collect()
    gc.disable()
    try:
        remark = None
        try:
            around.client.heartbeat(connection, request(34, body=body))
        except RequestRefused as error:
            remark = error.remark
        assert remark is not None
        assert "maxGroupsPerClient" in remark
        left = [each for each in gc.get_objects() if type(each) in (RequestRefused, HeartbeatData)]
        assert left == []
    finally:
        gc.enable()


async def test_a_long_heartbeat_is_decoded_when_its_turn_has_come(monkeypatch: pytest.MonkeyPatch) -> None:
    """Decoded it takes several times its bytes, and a client may send many."""
    around = Surroundings()
    decoded: list[int] = []
    decode = HeartbeatData.decode_request.__func__  # type: ignore[attr-defined]

    def counted(cls: type[HeartbeatData], data: bytes) -> HeartbeatData:
        decoded.append(len(data))
        made: HeartbeatData = decode(cls, data)
        return made

    monkeypatch.setattr(HeartbeatData, "decode_request", classmethod(counted))
    connection = FakeConnection()
    long = json.dumps({**HEARTBEAT, "consumerDataSet": consumers(*[f"g{number}" * 10 for number in range(200)])})
    assert len(long) > SHORT_HEARTBEAT_BYTES
    waiting = [around.client.heartbeat(connection, request(34, body=long.encode())) for _ in range(5)]
    assert decoded == []
    async with trio.open_nursery() as nursery:
        for number, each in enumerate(waiting):
            assert isinstance(each, Coroutine)

            async def run(each: Coroutine[Any, Any, RemotingCommand] = each, number: int = number) -> None:
                assert (await each).code == 0
                assert len(decoded) == number + 1, "one after the other"

            nursery.start_soon(run)
    assert len(decoded) == 5


def test_the_longest_group_name_registers(around: Surroundings) -> None:
    around.beat(FakeConnection(), consumerDataSet=consumers("a" * 255))
    assert around.topics.get("%RETRY%" + "a" * 255) is not None


def test_a_full_table_refuses_new_groups_and_keeps_the_clients_others(around: Surroundings) -> None:
    around.beat(FakeConnection(), consumerDataSet=consumers("known"))
    full = GroupTable(now_ms=FakeClock(), max_table_bytes=lambda: around.groups.sent_bytes)
    full.find("known")
    around.client._groups = full
    refusal = refused_beat(around, consumerDataSet=consumers("new", "known"))
    assert refusal.code == 2
    assert refusal.remark is not None
    assert "maxGroupTableBytes" in refusal.remark
    assert around.consumers.get("new") is None
    group = around.consumers.get("known")
    assert group is not None
    assert len(group.members()) == 2


def test_heartbeat_of_a_unit_and_of_a_client_that_says_little(around: Surroundings) -> None:
    around.beat(FakeConnection(), consumerDataSet=[{"groupName": "G", "unitMode": True}], producerDataSet=[])
    retry = around.topics.get("%RETRY%G")
    group = around.consumers.get("G")
    assert retry is not None
    assert group is not None
    assert retry.topic_sys_flag == 2
    assert group.consumption.message_model == "CLUSTERING"


@pytest.mark.parametrize(
    ("members", "expected"),
    [
        (
            {"consumeType": 0, "messageModel": 0, "consumeFromWhere": 5},
            ("CONSUME_ACTIVELY", "BROADCASTING", "CONSUME_FROM_TIMESTAMP"),
        ),
        (
            {"consumeType": 1, "messageModel": 1, "consumeFromWhere": 4},
            ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_FIRST_OFFSET"),
        ),
        (
            {"consumeType": 9, "messageModel": "?", "consumeFromWhere": -1},
            ("CONSUME_PASSIVELY", "CLUSTERING", "CONSUME_FROM_LAST_OFFSET"),
        ),
    ],
)
def test_heartbeat_of_a_cpp_client(
    around: Surroundings, members: dict[str, object], expected: tuple[str, str, str]
) -> None:
    """rocketmq-client-cpp writes ordinals in place of names, text in place of numbers, and no empty lists."""
    subscription = {"topic": "T", "subString": "*", "subVersion": "1700000000000"}
    around.beat(
        FakeConnection(),
        consumerDataSet=[{"groupName": "G", "subscriptionDataSet": [subscription], **members}],
        producerDataSet=[],
    )
    group = around.consumers.get("G")
    assert group is not None
    assert group.consumption == Consumption(*expected)
    assert group.subscriptions["T"].sub_version == 1_700_000_000_000


def test_everybody_is_told_when_a_member_joins_or_leaves(around: Surroundings) -> None:
    first, second = FakeConnection("10.0.0.1:1"), FakeConnection("10.0.0.1:2")
    around.beat(first)
    around.beat(second, clientID="c2")
    assert [len(connection.oneways) for connection in (first, second)] == [2, 1]
    notice = second.oneways[0]
    assert (notice.code, notice.ext_fields, notice.is_oneway) == (40, {"consumerGroup": "G"}, True)
    around.client.unregister(second, request(35, {"clientID": "c2", "consumerGroup": "G", "producerGroup": "P"}))
    assert len(first.oneways) == 3
    assert [channel.client_id for channel in around.producers.channels("P") or []] == ["c1"]


def test_nobody_is_told_when_broker_or_group_do_not_want_it() -> None:
    silent = Surroundings(notify_consumer_ids_changed_enable=False)
    connection = FakeConnection()
    silent.beat(connection)
    assert connection.oneways == []


@pytest.mark.parametrize("body", [b"", b"{}", b'{"clientID":""}', b"nonsense"])
def test_heartbeat_without_client_id_is_refused(around: Surroundings, body: bytes) -> None:
    with pytest.raises((RequestRefused, BodyError)):
        around.client.heartbeat(FakeConnection(), request(34, body=body))


def test_farewell_needs_a_client_id(around: Surroundings) -> None:
    with pytest.raises(HeaderFieldError, match="clientID"):
        around.client.unregister(FakeConnection(), request(35, {"consumerGroup": "G"}))


@pytest.mark.parametrize(
    ("expression_type", "expression", "enabled", "code"),
    [
        ("TAG", "a", False, 0),
        (None, "a", False, 0),
        ("SQL92", "a > 5", True, 0),
        ("SQL92", "a > 5", False, 1),
        ("SQL92", "a >", True, 23),
    ],
)
def test_check_of_a_subscription(expression_type: str | None, expression: str, enabled: bool, code: int) -> None:
    around = Surroundings(enable_property_filter=enabled)
    body = {"subscriptionData": {"topic": "T", "subString": expression, "expressionType": expression_type}}
    checked = request(46, body=json.dumps(body).encode())
    if code == 0:
        assert around.client.check_config(FakeConnection(), checked).code == 0
    else:
        with pytest.raises(RequestRefused) as refused:
            around.client.check_config(FakeConnection(), checked)
        assert refused.value.code == code


def test_heartbeats_of_real_clients_are_taken(around: Surroundings) -> None:
    frames = golden_frames("clients_json", code_name="HEART_BEAT", type="request")
    assert frames
    for number, frame in enumerate(frames):
        beat = request(34, body=frame["body"].encode())
        answer = around.client.heartbeat(FakeConnection(f"10.0.0.1:{number + 1}"), beat)
        assert isinstance(answer, RemotingCommand)
        assert answer.code == 0
    assert around.consumers.groups()


# -- offsets ---------------------------------------------------------------------------------------------------------


def offsets(around: Surroundings, memory_bytes: int = 1000) -> OffsetProcessor:
    return OffsetProcessor(
        around.configuration, around.offsets, around.consumers, around.store, memory_bytes=memory_bytes
    )


QUEUE = {"consumerGroup": "G", "topic": "T", "queueId": "0"}


def test_commit_and_query(around: Surroundings) -> None:
    processor = offsets(around)
    committed = processor.update(FakeConnection(), request(15, {**QUEUE, "commitOffset": "7"}))
    assert (committed.code, committed.remark) == (0, None)
    answer = processor.query(FakeConnection(), request(14, QUEUE))
    assert answer.ext_fields == {"offset": "7"}


def test_new_group_starts_at_0_on_a_young_queue(around: Surroundings) -> None:
    processor = offsets(around)
    assert processor.query(FakeConnection(), request(14, QUEUE)).ext_fields == {"offset": "0"}
    around.store.fill("T", 0, 1, 2, 3)
    assert processor.query(FakeConnection(), request(14, QUEUE)).ext_fields == {"offset": "0"}


def test_new_group_decides_itself_on_an_old_queue(around: Surroundings) -> None:
    around.store.fill("T", 0, *range(5))
    with pytest.raises(RequestRefused) as old:
        offsets(around).query(FakeConnection(), request(14, QUEUE))
    assert (old.value.code, old.value.remark) == (
        22,
        "Not found, V3_0_6_SNAPSHOT maybe this group consumer boot first",
    )
    around.store.starts["T", 0] = 1
    with pytest.raises(RequestRefused):
        offsets(around, 10**9).query(FakeConnection(), request(14, QUEUE))


def test_members_of_a_group(around: Surroundings) -> None:
    processor = offsets(around)
    with pytest.raises(RequestRefused, match="no consumer for this group, G"):
        processor.list_consumers(FakeConnection(), request(38, {"consumerGroup": "G"}))
    around.beat(FakeConnection())
    answer = processor.list_consumers(FakeConnection(), request(38, {"consumerGroup": "G"}))
    assert answer.body == b'{"consumerIdList":["c1"]}'


def test_bounds_of_queues(around: Surroundings) -> None:
    around.store.fill("T", 0, 10, 20, 30)
    around.store.starts["T", 0] = 1
    processor = OffsetAdminProcessor(around.store, around.offsets, lambda: {1: 3})
    queue = {"topic": "T", "queueId": "0"}
    connection = FakeConnection()
    assert processor.max_offset(connection, request(30, queue)).ext_fields == {"offset": "3"}
    assert processor.min_offset(connection, request(31, queue)).ext_fields == {"offset": "1"}
    assert processor.by_time(connection, request(29, {**queue, "timestamp": "20"})).ext_fields == {"offset": "1"}
    assert processor.earliest_store_time(connection, request(32, queue)).ext_fields == {"timestamp": "20"}
    unknown = {"topic": "U", "queueId": "0"}
    assert processor.earliest_store_time(connection, request(32, unknown)).ext_fields == {"timestamp": "-1"}


def test_whole_offset_tables(around: Surroundings) -> None:
    delays: dict[int, int] = {}
    processor = OffsetAdminProcessor(around.store, around.offsets, lambda: delays)
    assert processor.all_consumer_offsets(FakeConnection(), request(43)).body == b'{"offsetTable":{}}'
    assert processor.all_delay_offsets(FakeConnection(), request(45)).body == b'{"offsetTable":{}}'
    around.offsets.commit("G", "T", 0, 5)
    delays[1] = 3
    assert processor.all_consumer_offsets(FakeConnection(), request(43)).body == b'{"offsetTable":{"T@G":{0:5}}}'
    assert processor.all_delay_offsets(FakeConnection(), request(45)).body == b'{"offsetTable":{1:3}}'


# -- locks -----------------------------------------------------------------------------------------------------------


async def test_a_queue_is_locked_by_one_client_until_it_unlocks() -> None:
    processor = QueueLockProcessor(QueueLockTable(FakeClock()))
    body = b'{"clientId":"c1","consumerGroup":"G","mqSet":[{"brokerName":"b-a","queueId":0,"topic":"T"}]}'
    held = await processor.lock(FakeConnection(), request(41, body=body))
    assert held.body == b'{"lockOKMQSet":[{"brokerName":"b-a","queueId":0,"topic":"T"}]}'
    other = body.replace(b"c1", b"c2")
    assert (await processor.lock(FakeConnection(), request(41, body=other))).body == b'{"lockOKMQSet":[]}'
    assert processor.unlock(FakeConnection(), request(42, body=body)).code == 0
    assert b"b-a" in (await processor.lock(FakeConnection(), request(41, body=other))).body
    with pytest.raises(RequestRefused, match="clientId"):
        await processor.lock(FakeConnection(), request(41, body=b"{}"))


@pytest.mark.parametrize(
    ("group", "topic", "count", "reason"),
    [
        ("G", "T", 4097, "4097 queues, the limit is 4096"),
        ("g" * 256, "T", 1, "256 characters"),
        ("G", "t" * 128, 1, "128 characters"),
    ],
)
async def test_a_lock_request_beyond_a_limit_locks_nothing(group: str, topic: str, count: int, reason: str) -> None:
    locks = QueueLockTable(FakeClock())
    queues = [{"brokerName": "b-a", "queueId": number, "topic": topic} for number in range(count)]
    body = json.dumps({"clientId": "c1", "consumerGroup": group, "mqSet": queues}).encode()
    with pytest.raises(RequestRefused, match=reason):
        await QueueLockProcessor(locks).lock(FakeConnection(), request(41, body=body))
    assert locks.holder(group, MessageQueue(topic, "b-a", 0)) is None


@pytest.mark.parametrize("is_lock", [True, False])
async def test_a_long_lock_request_is_refused_before_it_is_decoded(is_lock: bool) -> None:
    processor = QueueLockProcessor(QueueLockTable(FakeClock()))
    long = request(41 if is_lock else 42, body=b"no JSON" + b" " * MAX_BODY_BYTES)
    with pytest.raises(RequestRefused, match=f"the limit is {MAX_BODY_BYTES}") as refusal:
        await processor.lock(FakeConnection(), long) if is_lock else processor.unlock(FakeConnection(), long)
    assert refusal.value.code == 2


# -- queries ---------------------------------------------------------------------------------------------------------


def test_query_by_key_answers_in_json(around: Surroundings) -> None:
    processor = QueryProcessor(around.configuration, around.store)
    fields = {"topic": "T", "key": "k", "maxNum": "64", "beginTimestamp": "1", "endTimestamp": "9"}
    nothing = processor.by_key(FakeConnection(), request(12, fields, serialize_type=ROCKETMQ))
    assert (nothing.code, nothing.remark) == (22, "can not find message, maybe time range not correct")
    assert nothing.ext_fields == {"indexLastUpdateTimestamp": "0", "indexLastUpdatePhyoffset": "0"}
    around.store.found.records = [b"one", b"two"]
    around.store.found.index_end_timestamp = 5
    unique = {**fields, "_UNIQUE_KEY_QUERY": "true"}
    found = processor.by_key(FakeConnection(), request(12, unique, serialize_type=ROCKETMQ))
    assert (found.code, found.body, found.serialize_type) == (0, b"onetwo", 0)
    assert found.ext_fields == {"indexLastUpdateTimestamp": "5", "indexLastUpdatePhyoffset": "0"}
    assert around.store.queries == [("T", "k", 64, 1, 9), ("T", "k", 32, 1, 9)]


def test_view_by_offset(around: Surroundings) -> None:
    processor = QueryProcessor(around.configuration, around.store)
    around.store.records[8] = b"record"
    found = processor.by_offset(FakeConnection(), request(33, {"offset": "8"}, serialize_type=ROCKETMQ))
    assert (found.body, found.serialize_type) == (b"record", 0)
    with pytest.raises(RequestRefused, match="can not find message by the offset, 9"):
        processor.by_offset(FakeConnection(), request(33, {"offset": "9"}))
