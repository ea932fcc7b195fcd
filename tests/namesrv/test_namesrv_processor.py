"""Every request code of the NameServer, with valid and with bad input."""

from __future__ import annotations

import json
import zlib
from functools import partial
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from declared_values import body_text, bounded, header_fields, name_of
from namesrv_fakes import FakeNamesrv, broker_fields, registration
from structlog.testing import capture_logs

from docs.generators.body_registry import REQUEST_BODIES
from triomq.namesrv.config import NamesrvSettings
from triomq.namesrv.kv_config import KvConfig
from triomq.namesrv.runtime_config import RuntimeConfig
from triomq.protocol.address import HostPort
from triomq.protocol.bodies import fastjson
from triomq.protocol.bodies.kv_table import KVTable
from triomq.protocol.bodies.name_list import TopicList
from triomq.protocol.bodies.registration import OldRegistration
from triomq.protocol.bodies.route import ClusterInfo, TopicRouteData
from triomq.protocol.bodies.topic_config import DataVersion, TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.headers.registry import REQUEST_HEADERS
from triomq.remoting.config import ServerSettings

SUCCESS, ERROR, NOT_FOUND = ResponseCode.SUCCESS, ResponseCode.SYSTEM_ERROR, ResponseCode.QUERY_NOT_FOUND


@pytest.fixture
def namesrv(nursery: trio.Nursery) -> FakeNamesrv:
    return FakeNamesrv(nursery)


def writable(nursery: trio.Nursery, path: Path | None = None) -> FakeNamesrv:
    """A NameServer whose configuration every client may change."""
    settings = NamesrvSettings(config_store_path=str(path or ""), config_update_without_acl=True)
    return FakeNamesrv(nursery, settings=settings)


def topics(answer: RemotingCommand) -> list[str]:
    assert answer.code == SUCCESS, answer.remark
    return sorted(TopicList.decode(answer.body).topic_list)


async def route(namesrv: FakeNamesrv, topic: str) -> TopicRouteData | None:
    answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})
    return TopicRouteData.decode(answer.body) if answer.code == SUCCESS else None


async def test_register_and_route(namesrv: FakeNamesrv) -> None:
    answer = await namesrv.register(TopicConfig(topic_name="T", read_queue_nums=4, write_queue_nums=8, perm=6))
    assert (answer.code, answer.remark, answer.ext_fields, answer.body) == (SUCCESS, None, {}, b"")
    answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T"})
    assert answer.code == SUCCESS
    assert answer.body == (
        b'{"brokerDatas":[{"brokerAddrs":{"0":"10.0.0.1:10911"},"brokerName":"b-a","cluster":"C"}],'
        b'"filterServerTable":{},"queueDatas":[{"brokerName":"b-a","perm":6,"readQueueNums":4,"topicSysFlag":0,'
        b'"writeQueueNums":8}]}'
    )


@pytest.mark.parametrize(
    ("version", "fields", "is_standard"),
    [(400, {}, False), (401, {}, True), (100, {"acceptStandardJsonOnly": "true"}, True), (100, {}, False)],
)
async def test_both_json_forms_of_a_route(
    namesrv: FakeNamesrv, version: int, fields: dict[str, str], is_standard: bool
) -> None:
    await namesrv.register("T")
    await namesrv.register("T", broker_id=1, address="10.0.0.2:10911")
    for _ in range(2):  # the second one comes from the cache
        answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T", **fields}, version=version)
        quoted = b'{"0":"10.0.0.1:10911","1":"10.0.0.2:10911"}'
        bare = b'{0:"10.0.0.1:10911",1:"10.0.0.2:10911"}'
        assert (quoted if is_standard else bare) in answer.body


async def test_no_route(namesrv: FakeNamesrv) -> None:
    for fields, shown in (({"topic": "T"}, "T"), ({}, "null")):
        answer = await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, fields)
        assert answer.code == ResponseCode.TOPIC_NOT_EXIST
        assert answer.remark == (
            f"No topic route info in name server for the topic: {shown}\n"
            "See http://rocketmq.apache.org/docs/faq/ for further details."
        )
        assert answer.body == b""


async def test_a_route_answer_is_not_kept_beyond_a_change(namesrv: FakeNamesrv) -> None:
    await namesrv.register("T")
    before = await route(namesrv, "T")
    await namesrv.register(TopicConfig(topic_name="T", perm=4), version=2)
    after = await route(namesrv, "T")
    assert before is not None
    assert after is not None
    assert (before.queue_datas[0].perm, after.queue_datas[0].perm) == (6, 4)


async def test_encoded_routes_are_kept_while_the_tables_have_memory(namesrv: FakeNamesrv) -> None:
    for version, topic in enumerate(("T", "U"), 1):
        await namesrv.register(topic, version=version)
        namesrv.memory.limit_bytes = namesrv.memory.held_bytes + (1000 if topic == "U" else 0)
        before = namesrv.memory.held_bytes
        for _ in range(2):
            assert await route(namesrv, topic) is not None
        assert (namesrv.memory.held_bytes > before) == (topic == "U")
    await namesrv.register(TopicConfig(topic_name="U", perm=4), version=3)
    assert await route(namesrv, "none") is None
    assert namesrv.memory.held_bytes == before


async def test_filter_servers_are_part_of_the_route(namesrv: FakeNamesrv) -> None:
    await namesrv.register("T", filter_servers=["10.0.0.1:30000"])
    found = await route(namesrv, "T")
    assert found is not None
    assert found.filter_server_table == {"10.0.0.1:10911": ["10.0.0.1:30000"]}
    await namesrv.register("T")
    found = await route(namesrv, "T")
    assert found is not None
    assert found.filter_server_table == {}


@pytest.mark.parametrize(
    "changes",
    [{"name": "n" * 1025}, {"cluster": "n" * 1025}, {"filter_servers": ["f" * 1025]}, {"filter_servers": ["f"] * 65}],
)
async def test_a_registration_with_a_name_too_long_is_refused(namesrv: FakeNamesrv, changes: dict[str, Any]) -> None:
    answer = await namesrv.register("T", **changes)
    assert answer.code == ERROR
    assert "the limit is 64" in (answer.remark or "") or "1024" in (answer.remark or "")
    assert namesrv.routes.sizes()["brokers"] == 0


async def test_protected_routes_belong_to_the_address_of_the_connection(nursery: trio.Nursery) -> None:
    namesrv = FakeNamesrv(nursery, settings=NamesrvSettings(protect_routes=True))
    await namesrv.register("T")
    stranger = namesrv.connect()
    stranger.remote = HostPort("127.0.0.9", 40000)
    refused = await namesrv.register("T", version=2, address="127.0.0.9:10911", connection=stranger)
    assert (refused.code, "registered from 127.0.0.1" in (refused.remark or "")) == (ERROR, True)
    gone = await namesrv.ask(RequestCode.UNREGISTER_BROKER, broker_fields(), connection=stranger)
    assert gone.code == ERROR
    assert await route(namesrv, "T") is not None
    assert (await namesrv.ask(RequestCode.UNREGISTER_BROKER, broker_fields())).code == SUCCESS


async def test_protected_routes_belong_to_the_certificate_of_the_connection(nursery: trio.Nursery) -> None:
    namesrv = FakeNamesrv(nursery, settings=NamesrvSettings(protect_routes=True))
    broker, same_host, moved = namesrv.connect(), namesrv.connect(40001), namesrv.connect(40002)
    broker.peer_names = moved.peer_names = frozenset({"broker-a", "b-a.example"})
    moved.remote = HostPort("127.0.0.9", 40002)
    await namesrv.register("T", connection=broker)
    refused = await namesrv.register("T", version=2, connection=same_host)
    assert (refused.code, refused.remark) == (
        ERROR,
        "broker b-a (id 0) is registered from certificate b-a.example,broker-a; 127.0.0.1 cannot change that while it "
        "is alive (protectRoutes)",
    )
    assert (await namesrv.register("T", version=3, connection=moved)).code == SUCCESS


@pytest.mark.parametrize("address", ["10.0.0.1:10911", "10.0.0.66:10911"])
async def test_a_broker_that_loses_its_registration_to_another_connection_is_disconnected(
    namesrv: FakeNamesrv, address: str
) -> None:
    """So it notices, also when the other one leaves at once: without this the route is gone until its next period."""
    await namesrv.register("T")
    thief = namesrv.connect(40001)
    with capture_logs() as captured:
        assert (await namesrv.register("T", version=2, address=address, connection=thief)).code == SUCCESS
    assert namesrv.peer.close_reason == "127.0.0.1:40001 replaced or removed this broker's registration"
    assert thief.is_open
    (line,) = [entry for entry in captured if "took its registration" in entry["event"]]
    assert line["by"] == "127.0.0.1:40001"
    namesrv.disconnect(namesrv.peer)
    assert await route(namesrv, "T") is not None, "what the other connection registered stays"


async def test_a_broker_that_another_connection_unregisters_is_disconnected(namesrv: FakeNamesrv) -> None:
    await namesrv.register("T")
    thief = namesrv.connect(40001)
    assert (await namesrv.ask(RequestCode.UNREGISTER_BROKER, broker_fields(), connection=thief)).code == SUCCESS
    assert not namesrv.peer.is_open


async def test_registering_again_disconnects_nobody(namesrv: FakeNamesrv) -> None:
    await namesrv.register("T")
    slave = namesrv.connect(40001)
    await namesrv.register("T", broker_id=1, address="10.0.0.2:10911", connection=slave)
    await namesrv.register("T", version=2)
    absent = broker_fields(address="10.0.0.66:10911")  # holds neither the address nor the id
    assert (await namesrv.ask(RequestCode.UNREGISTER_BROKER, absent, connection=slave)).code == SUCCESS
    assert (await namesrv.ask(RequestCode.UNREGISTER_BROKER, broker_fields())).code == SUCCESS
    assert namesrv.peer.is_open
    assert slave.is_open


async def test_order_topic_conf(nursery: trio.Nursery) -> None:
    namesrv = FakeNamesrv(nursery, settings=NamesrvSettings(order_message_enable=True))
    await namesrv.register("T", "U")
    await namesrv.kv_config.put("ORDER_TOPIC_CONFIG", "T", "b-a:4")
    for topic, expected in (("T", "b-a:4"), ("U", None)):
        found = await route(namesrv, topic)
        assert found is not None
        assert found.order_topic_conf == expected


async def test_a_slave_learns_its_master(namesrv: FakeNamesrv) -> None:
    answer = await namesrv.register(broker_id=1, address="10.0.0.2:10911")
    assert answer.ext_fields == {}
    await namesrv.register("T")
    answer = await namesrv.register(broker_id=1, address="10.0.0.2:10911")
    assert answer.ext_fields == {"masterAddr": "10.0.0.1:10911", "haServerAddr": "10.0.0.1:10912"}


async def test_a_registration_brings_back_the_order_topics(namesrv: FakeNamesrv) -> None:
    await namesrv.kv_config.put("ORDER_TOPIC_CONFIG", "T", "b-a:4")
    answer = await namesrv.register("T")
    assert KVTable.decode(answer.body).table == {"T": "b-a:4"}
    await namesrv.kv_config.delete("ORDER_TOPIC_CONFIG", "T")
    answer = await namesrv.register("T")
    assert answer.body == b'{"table":{}}'


async def test_the_compressed_body(namesrv: FakeNamesrv) -> None:
    body = registration(TopicConfig(topic_name="T", read_queue_nums=3), version=7).encode_compressed()
    crc = str(zlib.crc32(body) & 0x7FFFFFFF)
    fields = {**broker_fields(), "haServerAddr": "10.0.0.1:10912", "compressed": "true", "bodyCrc32": crc}
    answer = await namesrv.ask(RequestCode.REGISTER_BROKER, fields, body)
    assert answer.code == SUCCESS
    found = await route(namesrv, "T")
    assert found is not None
    assert found.queue_datas[0].read_queue_nums == 3
    assert namesrv.routes.brokers.data_version("10.0.0.1:10911") == DataVersion(counter=7, timestamp=1_700_000_000_000)


async def test_the_body_of_brokers_older_than_3_0_11(namesrv: FakeNamesrv) -> None:
    body = registration("T").topic_config_serialize_wrapper.encode()
    fields = {**broker_fields(), "haServerAddr": "10.0.0.1:10912"}
    answer = await namesrv.ask(RequestCode.REGISTER_BROKER, fields, body, version=36)
    assert answer.code == SUCCESS
    assert await route(namesrv, "T") is not None


async def test_a_registration_without_a_body_only_registers_the_broker(namesrv: FakeNamesrv) -> None:
    fields = {**broker_fields(), "haServerAddr": "10.0.0.1:10912"}
    assert (await namesrv.ask(RequestCode.REGISTER_BROKER, fields)).code == SUCCESS
    assert namesrv.routes.topics() == []
    assert namesrv.routes.brokers.data_version("10.0.0.1:10911") == DataVersion()


async def test_a_oneway_registration_counts_and_is_not_answered(namesrv: FakeNamesrv) -> None:
    request = new_request(
        RequestCode.REGISTER_BROKER,
        body=registration("T").encode(),
        ext_fields={**broker_fields(), "haServerAddr": "h:1"},
        oneway=True,
    )
    namesrv.table.handle(namesrv.peer, request)
    assert namesrv.routes.topics() == ["T"]
    # The next response belongs to the next request.
    assert (await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)).body != b""


async def test_a_wrong_checksum_changes_nothing(namesrv: FakeNamesrv) -> None:
    answer = await namesrv.register("T", bodyCrc32="1")
    assert (answer.code, answer.remark) == (ERROR, "crc32 not match")
    assert namesrv.routes.topics() == []


@pytest.mark.parametrize(
    ("fields", "body"),
    [
        ({}, b'{"topicConfigSerializeWrapper":'),
        ({}, b'{"topicConfigSerializeWrapper":{"topicConfigTable":{"T":{"perm":"x"}}}}'),
        ({"compressed": "true"}, b"not zlib"),
        ({"compressed": "true"}, zlib.compress(b"\x00\x00\xff\xff")),
    ],
)
async def test_a_body_that_is_no_registration(namesrv: FakeNamesrv, fields: dict[str, str], body: bytes) -> None:
    answer = await namesrv.ask(RequestCode.REGISTER_BROKER, {**broker_fields(), "haServerAddr": "h:1", **fields}, body)
    assert answer.code == ERROR
    assert answer.remark
    assert namesrv.routes.sizes() == {"topics": 0, "broker_names": 0, "brokers": 0}


async def test_unregister(namesrv: FakeNamesrv) -> None:
    await namesrv.register("T")
    answer = await namesrv.ask(RequestCode.UNREGISTER_BROKER, broker_fields())
    assert (answer.code, answer.remark, answer.body) == (SUCCESS, None, b"")
    assert await route(namesrv, "T") is None
    # An unknown broker can unregister, too.
    assert (await namesrv.ask(RequestCode.UNREGISTER_BROKER, broker_fields(name="other"))).code == SUCCESS


async def test_query_data_version(namesrv: FakeNamesrv) -> None:
    version = DataVersion(counter=1, timestamp=1_700_000_000_000)
    answer = await namesrv.ask(RequestCode.QUERY_DATA_VERSION, broker_fields(), version.encode())
    assert (answer.code, answer.ext_fields, answer.body) == (SUCCESS, {"changed": "true"}, b"")
    await namesrv.register("T", version=1)
    answer = await namesrv.ask(RequestCode.QUERY_DATA_VERSION, broker_fields(), version.encode())
    assert answer.ext_fields == {"changed": "false"}
    assert answer.body == b'{"counter":1,"timestamp":1700000000000}'
    other = DataVersion(counter=2, timestamp=1_700_000_000_000)
    answer = await namesrv.ask(RequestCode.QUERY_DATA_VERSION, broker_fields(), other.encode())
    assert answer.ext_fields == {"changed": "true"}
    assert answer.body == b'{"counter":1,"timestamp":1700000000000}'
    for body in (b"", b"[]", b"x"):
        assert (await namesrv.ask(RequestCode.QUERY_DATA_VERSION, broker_fields(), body)).code == ERROR


async def test_a_broker_that_lost_a_topic_is_told_to_register_and_stays_alive(namesrv: FakeNamesrv) -> None:
    version = DataVersion(counter=1, timestamp=1_700_000_000_000)
    await namesrv.register("T", "U")
    await namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
    answer = await namesrv.ask(RequestCode.QUERY_DATA_VERSION, broker_fields(), version.encode())
    assert (answer.ext_fields, answer.body) == ({"changed": "true"}, b"")
    with capture_logs() as logs:
        await namesrv.register("T", "U")
    assert [line["event"] for line in logs] == [], "it is no new broker"
    assert await route(namesrv, "T") is not None
    answer = await namesrv.ask(RequestCode.QUERY_DATA_VERSION, broker_fields(), version.encode())
    assert answer.ext_fields == {"changed": "false"}


async def test_a_data_version_is_short(namesrv: FakeNamesrv) -> None:
    """Nothing of a long one is read."""
    text = DataVersion(counter=1).encode()
    for size, code in ((4096, SUCCESS), (4097, ERROR)):
        answer = await namesrv.ask(RequestCode.QUERY_DATA_VERSION, broker_fields(), text.ljust(size))
        assert answer.code == code
    assert "the limit is 4096" in (answer.remark or "")


async def test_lists_are_kept_until_something_changes(namesrv: FakeNamesrv) -> None:
    codes = (RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER, RequestCode.GET_BROKER_CLUSTER_INFO)
    await namesrv.register("T")
    before = namesrv.memory.held_bytes
    first = [(await namesrv.ask(code)).body for code in codes]
    assert namesrv.memory.held_bytes > before + sum(map(len, first))
    assert [(await namesrv.ask(code)).body for code in codes] == first
    await namesrv.register("U", name="b-b", address="b:1")
    assert all(body not in first for body in [(await namesrv.ask(code)).body for code in codes])


async def test_cluster_info(namesrv: FakeNamesrv) -> None:
    await namesrv.register("T")
    await namesrv.register(broker_id=1, address="10.0.0.2:10911")
    answer = await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert answer.body == (
        b'{"brokerAddrTable":{"b-a":{"brokerAddrs":{0:"10.0.0.1:10911",1:"10.0.0.2:10911"},"brokerName":"b-a",'
        b'"cluster":"C"}},"clusterAddrTable":{"C":["b-a"]}}'
    )


async def test_cluster_info_of_nothing(namesrv: FakeNamesrv) -> None:
    answer = await namesrv.ask(RequestCode.GET_BROKER_CLUSTER_INFO)
    assert ClusterInfo.decode(answer.body) == ClusterInfo()


async def test_topic_lists(namesrv: FakeNamesrv) -> None:
    assert topics(await namesrv.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == []
    assert topics(await namesrv.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)) == []
    await namesrv.register("T", "U")
    await namesrv.register("U", "V", cluster="D", name="b-d", address="10.0.0.3:10911")
    assert topics(await namesrv.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == ["T", "U", "V"]
    assert topics(await namesrv.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "D"})) == ["U", "V"]
    assert topics(await namesrv.ask(RequestCode.GET_TOPICS_BY_CLUSTER, {"cluster": "none"})) == []
    answer = await namesrv.ask(RequestCode.GET_SYSTEM_TOPIC_LIST_FROM_NS)
    assert topics(answer) == ["C", "D", "b-a", "b-d"]
    assert TopicList.decode(answer.body).broker_addr == "10.0.0.1:10911"


async def test_unit_topic_lists(namesrv: FakeNamesrv) -> None:
    await namesrv.register(*(TopicConfig(topic_name=f"flag{flag}", topic_sys_flag=flag) for flag in range(4)))
    assert topics(await namesrv.ask(RequestCode.GET_UNIT_TOPIC_LIST)) == ["flag1", "flag3"]
    assert topics(await namesrv.ask(RequestCode.GET_HAS_UNIT_SUB_TOPIC_LIST)) == ["flag2", "flag3"]
    assert topics(await namesrv.ask(RequestCode.GET_HAS_UNIT_SUB_UNUNIT_TOPIC_LIST)) == ["flag2"]


async def test_wipe_and_add_write_perm(namesrv: FakeNamesrv) -> None:
    await namesrv.register("T", TopicConfig(topic_name="U", perm=7))
    await namesrv.register("T", name="b-b", address="10.0.0.2:10911")

    async def perms(topic: str) -> dict[str, int]:
        found = await route(namesrv, topic)
        assert found is not None
        return {queues.broker_name: queues.perm for queues in found.queue_datas}

    answer = await namesrv.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b-a"})
    assert answer.ext_fields == {"wipeTopicCount": "2"}
    assert (await perms("T"), await perms("U")) == ({"b-a": 4, "b-b": 6}, {"b-a": 5})
    # An unchanged registration does not restore the permission.
    await namesrv.register("T", TopicConfig(topic_name="U", perm=7))
    assert await perms("T") == {"b-a": 4, "b-b": 6}
    answer = await namesrv.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b-a"})
    assert answer.ext_fields == {"addTopicCount": "2"}
    assert (await perms("T"), await perms("U")) == ({"b-a": 6, "b-b": 6}, {"b-a": 6})
    answer = await namesrv.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "none"})
    assert (answer.code, answer.ext_fields) == (SUCCESS, {"wipeTopicCount": "0"})


async def test_delete_topic(namesrv: FakeNamesrv) -> None:
    await namesrv.register("T", "U")
    await namesrv.register("T", cluster="D", name="b-d", address="10.0.0.3:10911")
    assert (await namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T", "clusterName": "D"})).code == SUCCESS
    found = await route(namesrv, "T")
    assert found is not None
    assert [queues.broker_name for queues in found.queue_datas] == ["b-a"]
    assert (await namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})).code == SUCCESS
    assert topics(await namesrv.ask(RequestCode.GET_ALL_TOPIC_LIST_FROM_NAMESERVER)) == ["U"]
    assert (await namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "none"})).code == SUCCESS


async def test_kv_config(nursery: trio.Nursery, tmp_path: Path) -> None:
    path = tmp_path / "namesrv" / "kvConfig.json"
    namesrv = FakeNamesrv(nursery, kv_config=KvConfig(path))
    put = {"namespace": "N", "key": "k", "value": "v"}
    assert (await namesrv.ask(RequestCode.PUT_KV_CONFIG, put)).code == SUCCESS
    assert path.read_text() == '{\n\t"configTable":{\n\t\t"N":{\n\t\t\t"k":"v"\n\t\t}\n\t}\n}'
    answer = await namesrv.ask(RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"})
    assert (answer.code, answer.ext_fields) == (SUCCESS, {"value": "v"})
    answer = await namesrv.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "N"})
    assert answer.body == b'{"table":{"k":"v"}}'
    for _ in range(2):
        assert (await namesrv.ask(RequestCode.DELETE_KV_CONFIG, {"namespace": "N", "key": "k"})).code == SUCCESS
    assert fastjson.loads(path.read_bytes()) == {"configTable": {"N": {}}}
    answer = await namesrv.ask(RequestCode.GET_KV_CONFIG, {"namespace": "N", "key": "k"})
    assert (answer.code, answer.remark) == (NOT_FOUND, "No config item, Namespace: N Key: k")
    answer = await namesrv.ask(RequestCode.GET_KVLIST_BY_NAMESPACE, {"namespace": "M"})
    assert (answer.code, answer.remark) == (NOT_FOUND, "No config item, Namespace: M")


@pytest.mark.parametrize(
    ("code", "fields", "missing"),
    [
        (RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k"}, "value"),
        (RequestCode.PUT_KV_CONFIG, {"namespace": "N", "value": "v"}, "key"),
        (RequestCode.GET_KV_CONFIG, {"key": "k"}, "namespace"),
        (RequestCode.DELETE_KV_CONFIG, {"namespace": "N"}, "key"),
        (RequestCode.GET_KVLIST_BY_NAMESPACE, {}, "namespace"),
        (RequestCode.REGISTER_BROKER, broker_fields(), "haServerAddr"),
        (RequestCode.REGISTER_BROKER, {**broker_fields(), "haServerAddr": "h:1", "brokerId": "x"}, "brokerId"),
        (RequestCode.UNREGISTER_BROKER, {}, "brokerName"),
        (RequestCode.QUERY_DATA_VERSION, {"brokerName": "b-a"}, "brokerAddr"),
        (RequestCode.WIPE_WRITE_PERM_OF_BROKER, {}, "brokerName"),
        (RequestCode.ADD_WRITE_PERM_OF_BROKER, {}, "brokerName"),
        (RequestCode.DELETE_TOPIC_IN_NAMESRV, {"clusterName": "C"}, "topic"),
        (RequestCode.GET_TOPICS_BY_CLUSTER, {}, "cluster"),
    ],
)
async def test_a_bad_header_field_is_named(
    namesrv: FakeNamesrv, code: RequestCode, fields: dict[str, str], missing: str
) -> None:
    answer = await namesrv.ask(code, fields)
    assert answer.code == ERROR
    assert f"<{missing}>" in (answer.remark or "")


async def test_config_listing_and_update(nursery: trio.Nursery, tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    settings = NamesrvSettings(kv_config_path="/kv.json", config_store_path=str(path), config_update_without_acl=True)
    namesrv = FakeNamesrv(nursery, settings=settings, extra={"mine": "1", "tls.server.keyPassword": "hush"})
    lines = (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode().splitlines()
    assert {"mine=1", "orderMessageEnable=false", "kvConfigPath=/kv.json", "listenPort=9876"} <= set(lines)
    update = b"orderMessageEnable=true\nclientWorkerThreads=5\n"
    assert (await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=update)).code == SUCCESS
    lines = (await namesrv.ask(RequestCode.GET_NAMESRV_CONFIG)).body.decode().splitlines()
    assert "orderMessageEnable=true" in lines
    assert "clientWorkerThreads=5" not in lines
    assert sorted(path.read_text().splitlines()) == sorted([*lines, "tls.server.keyPassword=hush"])
    assert (await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG)).code == SUCCESS


async def test_an_update_of_the_servers_settings_alone_is_applied_and_saved(
    nursery: trio.Nursery, tmp_path: Path
) -> None:
    path = tmp_path / "namesrv.properties"
    namesrv = writable(nursery, path)
    assert (await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"serverOnewaySemaphoreValue=7")).code == SUCCESS
    assert namesrv.config.server.oneway_limit == 7
    assert "serverOnewaySemaphoreValue=7" in path.read_text().splitlines()


@pytest.mark.parametrize(
    ("body", "code", "remark"),
    [
        (b"kvConfigPath=/etc/passwd\n", ResponseCode.NO_PERMISSION, "Can not update config path"),
        (b"configStorePath=/x\norderMessageEnable=true", ResponseCode.NO_PERMISSION, "Can not update config path"),
        (b"rocketmqHome=/x", ResponseCode.NO_PERMISSION, "Can not update config path"),
        (b"configStorePat\\u0068=/x", ResponseCode.NO_PERMISSION, "Can not update config path"),
        (b"a=\\u00", ERROR, "string2Properties error, line 1: "),
        (b"a=\xff", ERROR, "string2Properties error, "),
        (b"orderMessageEnable=maybe", ERROR, "orderMessageEnable: 'maybe' is neither true nor false"),
        (b"listenPort=1", ERROR, "listenPort: cannot be changed while running"),
        (b"namesrvAddr=10.0.0.1:9876\norderMessageEnable=true", ERROR, "namesrvAddr: cannot be changed while running"),
        (b"namesrvAddr=1.2.3.4:9876", ERROR, "namesrvAddr: cannot be changed while running"),
        (b"configUpdateWithoutAcl=false", ERROR, "configUpdateWithoutAcl: cannot be changed while running"),
    ],
)
async def test_a_refused_update_changes_nothing(
    nursery: trio.Nursery, tmp_path: Path, body: bytes, code: ResponseCode, remark: str
) -> None:
    path = tmp_path / "namesrv.properties"
    namesrv = writable(nursery, path)
    answer = await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
    assert answer.code == code
    assert (answer.remark or "").startswith(remark)
    assert not path.exists()
    assert not namesrv.config.namesrv.order_message_enable


async def test_an_update_that_cannot_be_written_changes_nothing(nursery: trio.Nursery, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("")
    path = tmp_path / "file" / "namesrv.properties"
    namesrv = writable(nursery, path)
    answer = await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true")
    assert answer.code == ERROR
    assert "nothing was changed" in (answer.remark or "")
    assert not namesrv.config.namesrv.order_message_enable


async def test_nobody_writes_configuration_unless_everybody_may(nursery: trio.Nursery, tmp_path: Path) -> None:
    path = tmp_path / "namesrv.properties"
    namesrv = FakeNamesrv(nursery, settings=NamesrvSettings(config_store_path=str(path)))
    for body in (
        b"orderMessageEnable=true",
        b"configUpdateWithoutAcl=true",
        b"maxTopics=1",
        b"whatever=1",
        b"kvConfigPath=/x",
    ):
        answer = await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
        assert answer.code == ResponseCode.NO_PERMISSION
        assert "configUpdateWithoutAcl=true" in (answer.remark or "")
    assert not path.exists()
    assert namesrv.config.namesrv == NamesrvSettings(config_store_path=str(path))


async def test_limits_can_be_changed_while_running(nursery: trio.Nursery) -> None:
    namesrv = writable(nursery)
    await namesrv.register("T")
    assert (await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"maxTopics=2\nmaxKvBytes=13")).code == SUCCESS
    assert (await namesrv.register("T", "U", version=2)).code == SUCCESS
    answer = await namesrv.register("T", "U", "V", version=3)
    assert (answer.code, answer.remark) == (ERROR, "there would be 3 topics, the limit (maxTopics) is 2")
    assert (await namesrv.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "a", "value": "1"})).code == SUCCESS
    assert (await namesrv.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "a", "value": "2"})).code == SUCCESS
    assert (await namesrv.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "M", "key": "b", "value": "1"})).code == ERROR


async def test_an_unknown_code_is_answered(namesrv: FakeNamesrv) -> None:
    request = new_request(9999)
    answer = await namesrv.send(request)
    assert (answer.code, answer.remark) == (3, " request type 9999 not supported")


async def test_cluster_test_asks_the_product_environment(nursery: trio.Nursery) -> None:
    asked: list[str] = []

    async def ask(request: RemotingCommand) -> bytes | None:
        topic = (request.ext_fields or {})["topic"]
        asked.append(topic)
        return json.dumps({"brokerDatas": []}).encode() if topic == "There" else None

    namesrv = FakeNamesrv(nursery, ask_product_environment=ask)
    await namesrv.register("Here")
    assert await route(namesrv, "Here") is not None
    assert await route(namesrv, "There") == TopicRouteData()
    assert await route(namesrv, "Nowhere") is None
    assert asked == ["There", "Nowhere"]


async def test_a_topic_registered_while_the_product_environment_is_asked_has_its_route(nursery: trio.Nursery) -> None:
    async def ask(request: RemotingCommand) -> bytes | None:
        await asked.register("Here")
        return None

    asked = FakeNamesrv(nursery, ask_product_environment=ask)
    asking = asked.connect(40001)
    request = new_request(RequestCode.GET_ROUTEINFO_BY_TOPIC, ext_fields={"topic": "Here"})
    answer = await asked.send(request, asking)
    assert answer.code == 0, answer.remark


async def test_two_updates_at_once_keep_both_changes(nursery: trio.Nursery, tmp_path: Path) -> None:
    path = tmp_path / "namesrv.conf"
    settings = NamesrvSettings(config_store_path=str(path), config_update_without_acl=True)
    namesrv = FakeNamesrv(nursery, settings=settings)

    async def update(port: int, body: bytes) -> None:
        request = new_request(RequestCode.UPDATE_NAMESRV_CONFIG, body=body)
        assert (await namesrv.send(request, namesrv.connect(port))).code == 0

    async with trio.open_nursery() as administrators:
        administrators.start_soon(update, 1, b"orderMessageEnable=true")
        administrators.start_soon(update, 2, b"maxTopics=77")
    assert namesrv.config.namesrv.order_message_enable
    assert namesrv.routes.limits.topic_count == namesrv.config.namesrv.max_topics == 77
    assert {"orderMessageEnable=true", "maxTopics=77"} <= set(path.read_text().splitlines())


async def test_a_reload_during_an_update_keeps_both(nursery: trio.Nursery, tmp_path: Path) -> None:
    """The update waits for the thread that writes the file; meanwhile a SIGHUP brings another key."""
    settings = NamesrvSettings(config_store_path=str(tmp_path / "namesrv.conf"), config_update_without_acl=True)
    config = RuntimeConfig(settings, ServerSettings())
    threads = trio.to_thread.current_default_thread_limiter()
    busy = [object() for _ in range(int(threads.available_tokens))]
    for task in busy:
        threads.acquire_on_behalf_of_nowait(task)
    async with trio.open_nursery() as administrators:
        administrators.start_soon(partial(config.update, b"orderMessageEnable=true", remote="10.0.0.1:1"))
        await trio.testing.wait_all_tasks_blocked()
        assert not config.namesrv.order_message_enable, "the update is not written yet"
        assert config.take({"maxTopics": "77"}) == {"maxTopics"}
        for task in busy:
            threads.release_on_behalf_of(task)
    assert config.namesrv.order_message_enable
    assert config.namesrv.max_topics == 77


# -- audit -------------------------------------------------------------------------------------------------------------


async def test_administration_leaves_a_line_each(nursery: trio.Nursery) -> None:
    namesrv = FakeNamesrv(nursery, settings=NamesrvSettings(config_update_without_acl=True))
    await namesrv.register("T", "U")
    with capture_logs() as logs:
        entry = {"namespace": "N", "key": "k"}
        for value in ("v", "w"):
            await namesrv.ask(RequestCode.PUT_KV_CONFIG, {**entry, "value": value})
        for _ in range(2):
            await namesrv.ask(RequestCode.DELETE_KV_CONFIG, entry)
        await namesrv.ask(RequestCode.WIPE_WRITE_PERM_OF_BROKER, {"brokerName": "b-a"})
        await namesrv.ask(RequestCode.ADD_WRITE_PERM_OF_BROKER, {"brokerName": "b-a"})
        await namesrv.ask(RequestCode.DELETE_TOPIC_IN_NAMESRV, {"topic": "T"})
        for _ in range(2):
            await namesrv.ask(RequestCode.UPDATE_NAMESRV_CONFIG, body=b"orderMessageEnable=true\n")
    lines = [{key: value for key, value in entry.items() if key != "log_level"} for entry in logs if "remote" in entry]
    remote = {"remote": "127.0.0.1:40000"}
    kv = {**remote, "namespace": "N", "key": "k"}
    assert lines == [
        {"event": "key-value entry set", "code": 100, **kv, "before": None, "after": {"k": "v"}},
        {"event": "key-value entry set", "code": 100, **kv, "before": {"k": "v"}, "after": {"k": "w"}},
        {"event": "key-value entry deleted", "code": 102, **kv, "before": {"k": "w"}, "after": None},
        {"event": "write permission removed", "code": 205, **remote, "name": "b-a", "topics": 2},
        {"event": "write permission added", "code": 327, **remote, "name": "b-a", "topics": 2},
        {"event": "topic deleted", "code": 216, **remote, "topic": "T", "cluster": "all"},
        {
            "event": "configuration changed",
            "code": 318,
            **remote,
            "before": {"orderMessageEnable": "false"},
            "after": {"orderMessageEnable": "true"},
        },
    ]


async def test_the_audit_log_has_the_beginning_of_a_long_value(namesrv: FakeNamesrv) -> None:
    with capture_logs() as captured:
        for value in ("v" * 1000, "w" * 60_000):
            await namesrv.ask(RequestCode.PUT_KV_CONFIG, {"namespace": "N", "key": "k", "value": value})
    lines = [line for line in captured if line["event"] == "key-value entry set"]
    assert [line["after"] for line in lines] == [
        {"k": "v" * 1000},
        {"k": "w" * 1000 + "... (60000 characters)"},
    ]


async def test_a_change_is_in_the_audit_log_although_its_connection_closes(namesrv: FakeNamesrv) -> None:
    request = new_request(RequestCode.PUT_KV_CONFIG, ext_fields={"namespace": "N", "key": "k", "value": "v"})
    namesrv.kv_config.put = _put  # type: ignore[method-assign, assignment]
    work = namesrv.processor._put_kv(namesrv.peer, request)
    with capture_logs() as captured, trio.CancelScope() as scope:
        scope.cancel()
        await work
    assert [line["event"] for line in captured] == ["key-value entry set"]


async def _put(namespace: str, key: str, value: str, steps: object) -> None:
    """A change that was made although its caller was cancelled meanwhile."""


async def test_encoded_routes_are_kept_up_to_a_size(namesrv: FakeNamesrv, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each of them may name every broker."""
    topics = [f"T{number}" for number in range(8)]
    await namesrv.register(*topics)
    processor = namesrv.processor
    size = len((await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": "T0"})).body)
    for name, limit in (("MAX_KEPT_BYTES", 3 * size), ("MAX_KEPT_ANSWERS", 3)):
        with monkeypatch.context() as patch:
            patch.setattr(f"triomq.namesrv.processor.{name}", limit)
            for topic in topics:
                assert (await namesrv.ask(RequestCode.GET_ROUTEINFO_BY_TOPIC, {"topic": topic})).body
                assert size <= processor.kept_bytes <= 3 * size


async def test_a_nameserver_refuses_what_is_beyond_a_bound_and_serves_others(namesrv: FakeNamesrv) -> None:
    await namesrv.register("Beside")
    refused = 0
    for code, one in [*bounded(is_header=True), *bounded(is_header=False)]:
        fields: dict[str, str] | None = None
        body = b""
        if one.record is REQUEST_HEADERS[code]:
            fields = header_fields(one, 1)
        elif one.record in REQUEST_BODIES.get(code, ()):
            fields = broker_fields("C", "b-a", 0, "a:1") | {"haServerAddr": "a:2"}
            body = body_text(one, 1)
        else:
            continue  # a response to a broker
        version = 1 if one.record is OldRegistration else 407
        answer = await namesrv.ask(RequestCode(code), fields, body, version=version)
        if answer.code == ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            continue
        if code == RequestCode.GET_ROUTEINFO_BY_TOPIC:  # it never says more, as RocketMQ's
            assert answer.code == ResponseCode.TOPIC_NOT_EXIST
            continue
        assert answer.code == ERROR, name_of(one)
        shown = f"<{one.path}>" if body == b"" else one.record.__name__
        assert shown in (answer.remark or ""), (name_of(one), answer.remark)
        refused += 1
    assert refused > 30
    assert await route(namesrv, "Beside") is not None
