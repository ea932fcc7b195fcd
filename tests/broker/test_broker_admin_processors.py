"""The processors for administrators: topics, groups, progress, resets."""

import json
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from broker_fakes import FakeConnection, FakeStore, request
from broker_metadata import metadata
from fake_clock import FakeClock
from structlog.testing import capture_logs

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.filters.bloom import BloomFilter
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.consume_admin import ConsumeAdminProcessor
from triomq.broker.processors.group_admin import GroupAdminProcessor
from triomq.broker.processors.producer_admin import ProducerAdminProcessor
from triomq.broker.processors.reset import ResetProcessor
from triomq.broker.processors.topic_admin import TopicAdminProcessor
from triomq.broker.tables.built_in_topics import built_in_topics
from triomq.broker.tables.consumers import ConsumerTable, Consumption
from triomq.broker.tables.filters import FilterTable
from triomq.broker.tables.groups import GroupTable
from triomq.broker.tables.offsets import OffsetTable
from triomq.broker.tables.producers import ProducerTable
from triomq.broker.tables.stored_file import StoredFile
from triomq.broker.tables.topics import TopicTable
from triomq.protocol.bodies import fastjson
from triomq.protocol.bodies.offset import GetConsumerStatusBody
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import build_subscription
from triomq.remoting.errors import ConnectionClosed, RemotingTimeout
from triomq.store.config import BrokerRole, StoreSettings
from triomq.store.disk.files import Files

NOW = 1_700_000_000_000
RESET = {"topic": "T", "group": "G", "timestamp": str(NOW + 2), "isForce": "false"}


class Admin:
    """A broker's tables and all administrative processors."""

    def __init__(self, role: BrokerRole = BrokerRole.ASYNC_MASTER, **settings: Any) -> None:
        self.clock = FakeClock(NOW)
        self.configuration = Configuration(
            broker=BrokerSettings(broker_name="b-a", **settings), store=StoreSettings(broker_role=role)
        )
        built_in = built_in_topics(cluster="C", broker_name="b-a", default_queue_count=8)
        self.topics = TopicTable(now_ms=self.clock, built_in=built_in)
        self.groups = GroupTable(now_ms=self.clock)
        self.consumers = ConsumerTable(self.clock)
        self.producers = ProducerTable(self.clock)
        self.offsets = OffsetTable()
        self.filters = FilterTable(BloomFilter(20, 32), now_ms=self.clock)
        self.store = FakeStore()
        self.stats = BrokerStats("C", now_ms=self.clock)
        self.registrations: list[dict[str, TopicConfig]] = []
        self.topic = TopicAdminProcessor(self.configuration, self.topics, self.offsets, self.store, self.stats, self)
        self.group = GroupAdminProcessor(self.configuration, self.groups, self.offsets, self.stats)
        self.consume = ConsumeAdminProcessor(
            self.configuration,
            metadata(
                self.clock,
                topics=self.topics,
                groups=self.groups,
                consumers=self.consumers,
                offsets=self.offsets,
                filters=self.filters,
            ),
            self.store,
            self.stats,
            now_ms=self.clock,
            broker_addr="10.0.0.1:10911",
        )
        self.reset = ResetProcessor(self.configuration, self.topics, self.consumers, self.offsets, self.store)
        self.connection = FakeConnection("10.0.0.7:7")

    async def registered(self) -> None:
        self.registrations.append({config.topic_name: config for config in self.topics.configs()})

    def add_topic(self, name: str, queues: int = 1, **more: Any) -> None:
        self.topics.update(TopicConfig(topic_name=name, read_queue_nums=queues, write_queue_nums=queues, **more))

    def add_consumer(
        self, client_id: str = "c1", version: int = 407, topics: tuple[str, ...] = ("T",)
    ) -> FakeConnection:
        connection = FakeConnection(f"10.0.0.1:{len(self.consumers.groups()) + 1}")
        self.consumers.register(
            "G",
            connection,
            client_id,
            0,
            version,
            Consumption(),
            [build_subscription(topic, "TagA || TagB", sub_version=NOW) for topic in topics],
        )
        return connection


@pytest.fixture
def admin() -> Admin:
    return Admin()


def refusal(call: Any) -> tuple[int, str | None]:
    with pytest.raises(RequestRefused) as refused:
        call()
    return refused.value.code, refused.value.remark


NEW_TOPIC = {
    "topic": "T",
    "defaultTopic": "TBW102",
    "readQueueNums": "4",
    "writeQueueNums": "2",
    "perm": "6",
    "topicFilterType": "SINGLE_TAG",
    "topicSysFlag": "0",
    "order": "false",
}


# -- topics ----------------------------------------------------------------------------------------------------------


async def test_topic_update_is_registered_before_it_is_answered(admin: Admin) -> None:
    answer = await admin.topic.update(admin.connection, request(17, NEW_TOPIC))
    assert (answer.code, answer.remark) == (0, "not set any response code")
    config = TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=2, perm=6)
    assert admin.topics.get("T") == config
    assert [table["T"] for table in admin.registrations] == [config]


@pytest.mark.parametrize(
    ("changes", "remark"),
    [
        ({"topic": " "}, "The specified topic is blank."),
        ({"topic": "a.b"}, "The specified topic contains illegal characters, allowing only ^[%|a-zA-Z0-9_-]+$"),
        ({"topic": "x" * 128}, "The specified topic is longer than topic max length."),
        ({"topic": "b-a"}, "The topic[b-a] is conflict with system topic."),
        ({"topic": "rmq_sys_x"}, "The topic[rmq_sys_x] is conflict with system topic."),
        ({"topicFilterType": "X"}, "topicFilterType = [X] value invalid"),
        ({"readQueueNums": "-1"}, "readQueueNums must be within 0..65536, not -1"),
        ({"perm": "8"}, "perm must be within 0..7, not 8"),
    ],
)
async def test_topic_update_refusals(admin: Admin, changes: dict[str, str], remark: str) -> None:
    with pytest.raises(RequestRefused) as refused:
        await admin.topic.update(admin.connection, request(17, {**NEW_TOPIC, **changes}))
    assert (refused.value.code, refused.value.remark) == (1, remark)
    assert admin.registrations == []


async def test_slaves_refuse_changes() -> None:
    slave = Admin(BrokerRole.SLAVE)
    with pytest.raises(RequestRefused, match="from slave broker"):
        await slave.topic.update(slave.connection, request(17, NEW_TOPIC))
    for call, changed in (
        (slave.topic.delete, request(215, {"topic": "T"})),
        (slave.group.update, request(200, body=b'{"groupName":"G"}')),
        (slave.group.delete, request(207, {"groupName": "G"})),
    ):
        with pytest.raises(RequestRefused, match="from slave broker"):
            await call(slave.connection, changed)


async def test_topic_deletion_takes_its_queues_and_statistics() -> None:
    admin = Admin(auto_delete_unused_stats=True)
    admin.add_topic("T")
    admin.stats.topic_put("T", 0, 1, 1)
    assert (await admin.topic.delete(admin.connection, request(215, {"topic": "T"}))).code == 0
    assert admin.topics.get("T") is None
    assert admin.store.deleted == ["T"]
    assert admin.stats.per_second("TOPIC_PUT_NUMS", "T") == 0
    assert (await admin.topic.delete(admin.connection, request(215, {"topic": "T"}))).code == 0, "also when unknown"
    with pytest.raises(RequestRefused, match=r"The topic\[TBW102\] is conflict with system topic."):
        await admin.topic.delete(admin.connection, request(215, {"topic": "TBW102"}))


async def test_topic_stats(admin: Admin) -> None:
    admin.add_topic("T", 2)
    admin.store.fill("T", 0, NOW - 2, NOW - 1)
    admin.store.starts["T", 0] = 1
    answer = await admin.topic.topic_stats(admin.connection, request(202, {"topic": "T"}))
    assert answer.body == (
        b'{"offsetTable":{{"brokerName":"b-a","queueId":0,"topic":"T"}:{"lastUpdateTimestamp":1699999999999,'
        b'"maxOffset":2,"minOffset":1},{"brokerName":"b-a","queueId":1,"topic":"T"}:{"lastUpdateTimestamp":0,'
        b'"maxOffset":0,"minOffset":0}}}'
    )
    unknown = request(202, {"topic": "U"})
    with pytest.raises(RequestRefused, match=r"topic\[U\] not exist") as refused:
        await admin.topic.topic_stats(admin.connection, unknown)
    assert refused.value.code == 17


def test_lists_and_cleaning(admin: Admin) -> None:
    admin.add_topic("T")
    wrapper = json.loads(admin.topic.all_topics(admin.connection, request(21)).body)
    assert wrapper["topicConfigTable"]["T"]["perm"] == 6
    listed = json.loads(admin.topic.system_topics(admin.connection, request(305)).body)["topicList"]
    assert {"TBW102", "b-a", "C_REPLY_TOPIC", "RMQ_SYS_TRANS_HALF_TOPIC"} <= set(listed)
    assert "T" not in listed
    for topic in ("T", "Consumed", "Gone"):
        admin.store.fill(topic, 0)
    admin.offsets.commit("G", "Consumed", 0, 30)
    admin.topic.clean_expired_queues(admin.connection, request(306))
    assert admin.store.expired == {"Gone"}, "other queues would begin at 0, in front of their groups"
    admin.topic.clean_unused_topics(admin.connection, request(316))
    assert admin.store.calls == ["delete_expired_queues"]
    assert "T" in admin.store.used


# -- groups ----------------------------------------------------------------------------------------------------------


async def test_groups_are_updated_and_deleted(admin: Admin) -> None:
    await admin.group.update(admin.connection, request(200, body=b'{"groupName":"G","retryMaxTimes":3}'))
    config = admin.groups.get("G")
    assert config is not None
    assert (config.retry_max_times, config.retry_queue_nums) == (3, 1)
    with pytest.raises(RequestRefused, match="no groupName"):
        await admin.group.update(admin.connection, request(200, body=b"{}"))
    listed = json.loads(admin.group.all_groups(admin.connection, request(201)).body)
    assert listed["subscriptionGroupTable"]["G"]["retryMaxTimes"] == 3
    admin.offsets.commit("G", "T", 0, 5)
    await admin.group.delete(admin.connection, request(207, {"groupName": "G"}))
    assert admin.offsets.query("G", "T", 0) == 5
    await admin.group.delete(admin.connection, request(207, {"groupName": "G", "removeOffset": "true"}))
    assert admin.offsets.query("G", "T", 0) == -1
    assert admin.groups.get("G") is None


async def test_change_that_cannot_be_written_is_told(admin: Admin) -> None:
    async def fails() -> None:
        raise OSError("no space left on device")

    admin.groups.wait_saved = fails  # type: ignore[method-assign]
    with pytest.raises(RequestRefused, match="could not be written"):
        await admin.group.update(admin.connection, request(200, body=b'{"groupName":"G"}'))


async def test_groups_made_and_deleted_at_once_are_all_in_the_file(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    """Each response waits for a write that holds its own change, also when it came during another write."""
    path = tmp_path / "subscriptionGroup.json"
    admin = Admin()
    groups = GroupTable(StoredFile(Files(), str(path)), now_ms=admin.clock)
    admin.group = GroupAdminProcessor(admin.configuration, groups, admin.offsets, admin.stats)

    def written() -> set[str]:
        return {name for name in json.loads(path.read_text())["subscriptionGroupTable"] if name.startswith("G")}

    async def make(number: int) -> None:
        await trio.sleep(number % 3 / 100)
        await admin.group.update(admin.connection, request(200, body=b'{"groupName":"G%d"}' % number))
        assert f"G{number}" in written()
        if number % 2:
            await admin.group.delete(admin.connection, request(207, {"groupName": f"G{number}"}))
            assert f"G{number}" not in written()

    async def slow_disk(function: Any, *arguments: Any) -> Any:
        await trio.sleep(0.02)
        return function(*arguments)

    async with trio.open_nursery() as nursery:
        nursery.start_soon(groups.run, slow_disk)
        async with trio.open_nursery() as administrators:
            for number in range(20):
                administrators.start_soon(make, number)
        nursery.cancel_scope.cancel()
    assert written() == {f"G{number}" for number in range(0, 20, 2)}


def test_tools_of_rocketmq_5_ask_for_one_topic_and_one_group(admin: Admin) -> None:
    admin.add_topic("T")
    admin.groups.find("G")
    topic = admin.topic.topic_config(admin.connection, request(351, {"topic": "T"}))
    assert TopicConfig.decode(topic.body) == admin.topics.get("T")
    group = admin.group.group_config(admin.connection, request(352, {"group": "G"}))
    assert SubscriptionGroupConfig.decode(group.body) == admin.groups.get("G")
    with pytest.raises(RequestRefused, match="not exist"):
        admin.topic.topic_config(admin.connection, request(351, {"topic": "None"}))
    with pytest.raises(RequestRefused, match="subscription group not exist, None"):
        admin.group.group_config(admin.connection, request(352, {"group": "None"}))
    assert admin.groups.get("None") is None


async def test_a_tool_of_rocketmq_4_leaves_a_group_in_order(admin: Admin) -> None:
    """It does not know of it, and sends every other setting."""

    async def updated(**body: Any) -> SubscriptionGroupConfig | None:
        command = request(200, body=json.dumps({"groupName": "G", **body}).encode())
        await admin.group.update(admin.connection, command)
        return admin.groups.get("G")

    made = await updated(retryMaxTimes=3)
    assert made is not None and made.consume_message_orderly is None
    assert b"Orderly" not in made.encode(), "4.9.7 writes no such key"
    for body, is_in_order in (
        ({"consumeMessageOrderly": True}, True),
        ({}, True),
        ({"consumeMessageOrderly": False}, False),
    ):
        changed = await updated(**body)
        assert changed is not None and changed.consume_message_orderly is is_in_order
        assert changed.retry_max_times == 16


# -- progress --------------------------------------------------------------------------------------------------------


async def test_consume_stats_of_a_group(admin: Admin) -> None:
    admin.add_topic("T")
    admin.add_topic("Left")
    admin.store.fill("T", 0, *range(NOW, NOW + 10))
    admin.offsets.commit("G", "T", 0, 7)
    admin.offsets.commit("G", "Left", 0, 0)
    admin.offsets.commit("G", "Gone", 0, 0)
    admin.add_consumer()
    for pulled, pull_offset in ((5, 7), (9, 9)):
        admin.stats.group_get("G", "T", 0, 1, 100, pulled)
        answer = await admin.consume.consume_stats(admin.connection, request(208, {"consumerGroup": "G"}))
        assert answer.body == (
            b'{"consumeTps":0.0,"offsetTable":{{"brokerName":"b-a","queueId":0,"topic":"T"}:'
            b'{"brokerOffset":10,"consumerOffset":7,"lastTimestamp":1700000000006,"pullOffset":%d}}}' % pull_offset
        )
    one = await admin.consume.consume_stats(admin.connection, request(208, {"consumerGroup": "H", "topic": "T"}))
    assert b'"consumerOffset":0,"lastTimestamp":0' in one.body


async def test_a_topic_deleted_while_it_is_reported_costs_the_report_nothing(admin: Admin) -> None:
    admin.groups.find("G")
    for topic in ("T", "U", "V"):
        admin.add_topic(topic)
        admin.store.fill(topic, 0, NOW)
        admin.offsets.commit("G", topic, 0, 1)

    async def delete() -> None:
        for topic in ("T", "U", "V"):
            admin.topics.delete(topic)
            admin.offsets.remove_topic(topic)

    for code, report in ((208, admin.consume.consume_stats), (317, admin.consume.broker_consume_stats)):
        async with trio.open_nursery() as nursery:
            nursery.start_soon(delete)
            answer = await report(admin.connection, request(code, {"consumerGroup": "G", "isOrder": "false"}))
        assert answer.body.count(b'"brokerOffset"') in (1, 2), "what was looked up before the others were deleted"
        for topic in ("T", "U", "V"):
            admin.add_topic(topic)
            admin.offsets.commit("G", topic, 0, 1)


async def test_consume_stats_of_all_groups(admin: Admin) -> None:
    admin.add_topic("T")
    admin.add_topic("O", order=True)
    admin.groups.find("G")
    admin.store.fill("T", 0, 1, 2, 3)
    for topic in ("T", "O"):
        admin.offsets.commit("G", topic, 0, 1)
    every = await admin.consume.broker_consume_stats(admin.connection, request(317, {"isOrder": "false"}))
    answer = fastjson.loads(every.body)
    assert answer["brokerAddr"] == "10.0.0.1:10911"
    assert answer["totalDiff"] == 2 - 1
    by_group = {name: stats for entry in answer["consumeStatsList"] for name, stats in entry.items()}
    assert len(by_group["G"]) == 2
    assert by_group["TOOLS_CONSUMER"] == []
    some = await admin.consume.broker_consume_stats(admin.connection, request(317, {"isOrder": "true"}))
    ordered = fastjson.loads(some.body)
    by_group = {name: stats for entry in ordered["consumeStatsList"] for name, stats in entry.items()}
    assert [queue.topic for stats in by_group["G"] for queue in stats["offsetTable"]] == ["O"]


def test_connections_of_a_group(admin: Admin) -> None:
    asked = request(203, {"consumerGroup": "G"})
    offline = refusal(lambda: admin.consume.connections(admin.connection, asked))
    assert offline == (206, "the consumer group[G] not online")
    admin.add_consumer()
    answer = json.loads(admin.consume.connections(admin.connection, asked).body)
    assert answer["connectionSet"] == [
        {"clientAddr": "10.0.0.1:1", "clientId": "c1", "language": "JAVA", "version": 407}
    ]
    assert answer["subscriptionTable"]["T"]["subString"] == "TagA || TagB"
    assert answer["messageModel"] == "CLUSTERING"


def test_groups_of_a_topic(admin: Admin) -> None:
    admin.add_consumer()
    admin.offsets.commit("H", "T", 0, 5)
    answer = admin.consume.groups_of_topic(admin.connection, request(300, {"topic": "T"}))
    assert answer.body == b'{"groupList":["G","H"]}'


async def test_time_span(admin: Admin) -> None:
    admin.add_topic("T")
    admin.store.fill("T", 0, NOW - 400, NOW - 300, NOW - 200)
    asked = request(303, {"topic": "T", "group": "G"})
    fresh = json.loads((await admin.consume.time_span(admin.connection, asked)).body)["consumeTimeSpanSet"][0]
    assert (fresh["minTimeStamp"], fresh["maxTimeStamp"], fresh["consumeTimeStamp"], fresh["delayTime"]) == (
        NOW - 400,
        NOW - 200,
        NOW - 400,
        400,
    )
    admin.offsets.commit("G", "T", 0, 2)
    span = json.loads((await admin.consume.time_span(admin.connection, asked)).body)["consumeTimeSpanSet"][0]
    assert (span["consumeTimeStamp"], span["delayTime"]) == (NOW - 300, 200)
    assert span["messageQueue"] == {"brokerName": "b-a", "queueId": 0, "topic": "T"}
    unknown = request(303, {"topic": "U", "group": "G"})
    with pytest.raises(RequestRefused, match="not exist") as refused:
        await admin.consume.time_span(admin.connection, unknown)
    assert (refused.value.code, refused.value.remark) == (17, "topic[U] not exist")


@pytest.mark.parametrize(
    ("walk", "code", "fields"),
    [
        (lambda admin: admin.consume.time_span, 303, {"topic": "T", "group": "G"}),
        (lambda admin: admin.consume.consume_stats, 208, {"consumerGroup": "G", "topic": "T"}),
        (lambda admin: admin.topic.topic_stats, 202, {"topic": "T"}),
        (lambda admin: admin.reset.reset_offsets, 222, RESET),
    ],
)
async def test_what_walks_over_many_queues_lets_others_run(
    admin: Admin, walk: Any, code: int, fields: dict[str, Any]
) -> None:
    admin.topics.update(TopicConfig(topic_name="T", read_queue_nums=1024, write_queue_nums=1024))
    admin.add_consumer()
    for queue_id in range(1024):
        admin.offsets.commit("G", "T", queue_id, 0)
    turns = 0

    async def others() -> None:
        nonlocal turns
        while True:
            turns += 1
            await trio.lowlevel.checkpoint()

    async with trio.open_nursery() as nursery:
        nursery.start_soon(others)
        answer = await walk(admin)(admin.connection, request(code, fields))
        nursery.cancel_scope.cancel()
    assert turns >= 3
    assert answer.body.count(b'"queueId":') == 1024


def test_correction_offsets(admin: Admin) -> None:
    admin.store.starts["T", 1] = 3
    for group, offsets in {"A": {0: 5, 1: 2, 2: 9}, "B": {0: 7, 1: 4}, "C": {0: 1}, "compare": {0: 6, 1: 1}}.items():
        for queue_id, queue_offset in offsets.items():
            admin.offsets.commit(group, "T", queue_id, queue_offset)
    asked = request(308, {"compareGroup": "compare", "topic": "T", "filterGroups": "C,compare"})
    answer = admin.consume.correction_offsets(admin.connection, asked)
    assert answer.body == b'{"correctionOffsets":{0:5,1:9223372036854775807,2:9}}'
    assert admin.offsets.query("C", "T", 0) == 1, "asking changes nothing"


async def test_offsets_are_cloned_for_one_topic_or_for_all(admin: Admin) -> None:
    for topic in ("T", "U"):
        admin.add_topic(topic)
        admin.offsets.commit("A", topic, 0, 5)
    admin.offsets.commit("A", "Gone", 0, 5)
    await admin.consume.clone_offsets(admin.connection, request(314, {"srcGroup": "A", "destGroup": "B", "topic": "T"}))
    assert admin.offsets.topics_of_group("B") == ["T"]
    await admin.consume.clone_offsets(admin.connection, request(314, {"srcGroup": "A", "destGroup": "D"}))
    assert sorted(admin.offsets.topics_of_group("D")) == ["T", "U"]
    admin.add_consumer()
    await admin.consume.clone_offsets(admin.connection, request(314, {"srcGroup": "A", "destGroup": "G"}))
    assert admin.offsets.topics_of_group("G") == ["T"], "an online group gets what it subscribes to"


def test_entries_of_a_queue(admin: Admin) -> None:
    admin.store.fill("T", 0, 1, 2, 3, tags=5)
    admin.add_consumer()
    fields = {"topic": "T", "queueId": "0", "index": "1", "count": "10", "consumerGroup": "G"}
    answer = admin.consume.queue_entries(admin.connection, request(321, fields))
    body = json.loads(answer.body)
    assert answer.remark == "not set any response code"
    assert (body["minQueueIndex"], body["maxQueueIndex"], body["filterData"]) == (0, 3, "null")
    assert body["queueData"] == [
        {"eval": False, "physicOffset": 100, "physicSize": 100, "tagsCode": 5},
        {"eval": False, "physicOffset": 200, "physicSize": 100, "tagsCode": 5},
    ]
    assert body["subscriptionData"]["topic"] == "T"
    offline = json.loads(
        admin.consume.queue_entries(admin.connection, request(321, {**fields, "consumerGroup": "H"})).body
    )
    assert offline["filterData"] == "H@T is not online!"
    beyond = admin.consume.queue_entries(admin.connection, request(321, {**fields, "index": "3"}))
    assert (beyond.code, beyond.remark, beyond.body) == (0, "Index 3 of 0@T is not exist!", b"")


# -- producers -------------------------------------------------------------------------------------------------------


def test_the_producers_of_a_group_and_of_all_groups_are_listed(admin: Admin) -> None:
    processor = ProducerAdminProcessor(admin.producers)
    asked = request(204, {"producerGroup": "P"})
    assert refusal(lambda: processor.connections(admin.connection, asked)) == (1, "the producer group[P] not exist")
    admin.producers.register("P", FakeConnection("10.0.0.1:5000"), "c1", 0, 407)
    admin.producers.register("P", FakeConnection("10.0.0.1:5001"), "c2", 99, 407)
    answer = json.loads(processor.connections(admin.connection, asked).body)
    assert answer["connectionSet"][0]["clientAddr"] == "10.0.0.1:5000"
    everyone = json.loads(processor.all_producers(admin.connection, request(328, {})).body)
    assert everyone["data"]["P"][0] == {
        "clientId": "c1",
        "language": "JAVA",
        "lastUpdateTimestamp": NOW,
        "remoteIP": "/10.0.0.1:5000",
        "version": 407,
    }
    assert "language" not in everyone["data"]["P"][1]


# -- resets ----------------------------------------------------------------------------------------------------------


async def test_reset_goes_to_every_member_and_only_backwards_unless_forced(admin: Admin) -> None:
    admin.add_topic("T", 2)
    admin.store.fill("T", 0, *range(NOW, NOW + 5))
    admin.store.fill("T", 1, *range(NOW, NOW + 5))
    admin.offsets.commit("G", "T", 0, 4)
    admin.offsets.commit("G", "T", 1, 1)
    member = admin.add_consumer()
    with capture_logs() as logs:
        answer = await admin.reset.reset_offsets(admin.connection, request(222, RESET))
    (line,) = [entry for entry in logs if entry["event"] == "offset reset sent to the consumers"]
    assert (line["group"], line["before"], line["after"]) == ("G", {"0": 4}, {"0": 2})
    expected = {MessageQueue("T", "b-a", 0): 2, MessageQueue("T", "b-a", 1): 1}
    assert fastjson.loads(answer.body)["offsetTable"] == expected
    assert answer.remark == "not set any response code"
    sent = member.oneways[0]
    assert (sent.code, sent.body) == (220, answer.body)
    assert sent.ext_fields == {"topic": "T", "group": "G", "timestamp": str(NOW + 2), "isForce": "false"}
    to_the_end = request(222, {**RESET, "isForce": "true", "timestamp": "-1"})
    forced = await admin.reset.reset_offsets(admin.connection, to_the_end)
    assert set(fastjson.loads(forced.body)["offsetTable"].values()) == {5}
    cpp = await admin.reset.reset_offsets(admin.connection, request(222, RESET, language=1))
    assert fastjson.loads(cpp.body)["offsetTable"] == expected
    assert json.loads(member.oneways[-1].body)["offsetTable"][0]["offset"] == 2


async def test_a_reset_of_one_queue_to_an_offset_leaves_the_others(admin: Admin) -> None:
    """As RocketMQ 5's mqadmin asks for it, with a time that means nothing."""
    admin.add_topic("T", 2)
    for queue_id in (0, 1):
        admin.store.fill("T", queue_id, *range(NOW, NOW + 5))
        admin.offsets.commit("G", "T", queue_id, 3)
    member = admin.add_consumer()

    async def reset(queue_id: int, offset: int) -> RemotingCommand:
        fields = {**RESET, "timestamp": "0", "queueId": str(queue_id), "offset": str(offset)}
        return await admin.reset.reset_offsets(admin.connection, request(222, fields))

    for offset in (4, 1, 3):
        answer = await reset(1, offset)
        assert fastjson.loads(answer.body)["offsetTable"] == {MessageQueue("T", "b-a", 1): offset}
        assert member.oneways[-1].body == answer.body
    for queue_id, offset in ((1, 6), (2, 0)):
        with pytest.raises(RequestRefused, match=r"not in consume queue range|none with the id 2"):
            await reset(queue_id, offset)
    by_time = {**RESET, "queueId": "0", "offset": "-1"}
    answer = await admin.reset.reset_offsets(admin.connection, request(222, by_time))
    assert fastjson.loads(answer.body)["offsetTable"] == {MessageQueue("T", "b-a", 0): 2}
    everywhere = {**RESET, "queueId": "-1", "offset": "-1"}
    answer = await admin.reset.reset_offsets(admin.connection, request(222, everywhere))
    assert set(fastjson.loads(answer.body)["offsetTable"].values()) == {2}


async def test_reset_refusals(admin: Admin) -> None:
    async def reset() -> tuple[int, str | None]:
        with pytest.raises(RequestRefused) as refused:
            await admin.reset.reset_offsets(admin.connection, request(222, RESET))
        return refused.value.code, refused.value.remark

    assert await reset() == (1, "[reset-offset] reset offset failed, no topic in this broker. topic=T")
    admin.add_topic("T")
    assert await reset() == (1, "THe consumer group <G> not exist")
    admin.offsets.commit("G", "T", 0, 4)
    assert await reset() == (
        206,
        f"Consumer not online, so can not reset offset, Group: G Topic: T Timestamp: {NOW + 2}",
    )
    admin.add_consumer(version=27)
    assert (await reset())[1] == "the client does not support this feature. version=V3_0_6"


async def test_status_is_asked_of_all_members_at_once(admin: Admin, autojump_clock: object) -> None:
    async def answers(question: RemotingCommand) -> RemotingCommand:
        assert question.ext_fields == {"topic": "T", "group": "G"}
        body = GetConsumerStatusBody(message_queue_table={MessageQueue("T", "b-a", 0): 5}).encode()
        return new_response(question, body=body)

    async def times_out(question: RemotingCommand) -> RemotingCommand:
        raise RemotingTimeout("too late")

    admin.add_consumer("c1").on_invoke = answers
    admin.add_consumer("c2").on_invoke = times_out
    asked = request(223, {"topic": "T", "group": "G", "clientAddr": ""})
    answer = await admin.reset.consumer_status(admin.connection, asked)
    assert answer.body == (
        b'{"consumerTable":{"c1":{{"brokerName":"b-a","queueId":0,"topic":"T"}:5}},"messageQueueTable":{}}'
    )
    with pytest.raises(RequestRefused, match=r"No Any Consumer online in the consumer group: \[H\]"):
        await admin.reset.consumer_status(admin.connection, request(223, {"topic": "T", "group": "H"}))


async def test_a_member_that_leaves_while_it_is_asked_costs_the_others_nothing(admin: Admin) -> None:
    leaving, staying = admin.add_consumer("c1"), admin.add_consumer("c2")

    async def leaves(question: RemotingCommand) -> RemotingCommand:
        admin.consumers.leave(leaving, 1000)
        raise ConnectionClosed("gone")

    async def stays(question: RemotingCommand) -> RemotingCommand:
        await trio.testing.wait_all_tasks_blocked()
        return new_response(
            question, body=GetConsumerStatusBody(message_queue_table={MessageQueue("T", "b-a", 0): 5}).encode()
        )

    leaving.on_invoke, staying.on_invoke = leaves, stays
    answer = await admin.reset.consumer_status(admin.connection, request(223, {"topic": "T", "group": "G"}))
    assert answer.body.startswith(b'{"consumerTable":{"c2":{{') and b"c1" not in answer.body


INFO = {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false", "AccessKey": "k", "Signature": "s"}


async def test_running_info_is_relayed_without_credentials(admin: Admin) -> None:
    async def answers(question: RemotingCommand) -> RemotingCommand:
        return new_response(question, 0, "not set any response code", body=b"{}")

    member = admin.add_consumer()
    member.on_invoke = answers
    answer = await admin.reset.running_info(admin.connection, request(307, INFO))
    assert (answer.opaque, answer.remark, answer.body) == (7, "not set any response code", b"{}")
    question, seconds = member.invoked[0]
    assert (question.code, seconds) == (307, 10)
    assert question.ext_fields == {"consumerGroup": "G", "clientId": "c1", "jstackEnable": "false"}


async def test_running_info_of_clients_that_are_away_old_or_slow(admin: Admin) -> None:
    async def info() -> tuple[int, str | None]:
        with pytest.raises(RequestRefused) as refused:
            await admin.reset.running_info(admin.connection, request(307, INFO))
        return refused.value.code, refused.value.remark

    async def times_out(question: RemotingCommand) -> RemotingCommand:
        raise RemotingTimeout("too late")

    assert await info() == (1, "The Consumer <G> <c1> not online")
    old = admin.add_consumer(version=61)
    assert await info() == (
        1,
        "The Consumer <c1> Version <V3_1_7> too low to finish, please upgrade it to V3_1_8_SNAPSHOT",
    )
    admin.consumers.leave(old, 1000)
    admin.add_consumer().on_invoke = times_out
    assert await info() == (207, "consumer <G> <c1> Timeout: too late")


async def test_message_is_consumed_directly(admin: Admin) -> None:
    async def answers(question: RemotingCommand) -> RemotingCommand:
        return new_response(question, body=b'{"consumeResult":"CR_SUCCESS"}')

    member = admin.add_consumer()
    member.on_invoke = answers
    admin.store.records[0x178] = b"record"
    fields = {"consumerGroup": "G", "clientId": "c1", "msgId": "7F000002000055330000000000000178"}
    with capture_logs() as logs:
        answer = await admin.reset.consume_directly(admin.connection, request(309, fields))
    (line,) = [entry for entry in logs if entry["event"] == "a message was handed to a consumer"]
    assert (line["client"], line["message_id"]) == ("c1", fields["msgId"])
    assert answer.body == b'{"consumeResult":"CR_SUCCESS"}'
    question = member.invoked[0][0]
    assert (question.body, (question.ext_fields or {})["brokerName"]) == (b"record", "b-a")
    for msg_id in ("7F000002000055330000000000000179", "nonsense"):
        with pytest.raises(RequestRefused):
            await admin.reset.consume_directly(admin.connection, request(309, {**fields, "msgId": msg_id}))
