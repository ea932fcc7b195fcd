"""Replay recorded conversations of real clients with the real broker against this one, and compare every response.

The requests of a file are sent in order, each over its original connection (and fast port). Code, remark, names and
values of header fields, and the decoded body of every response must equal the recorded ones. Values that cannot be
equal are adapted first. A physical offset or message id in a request is replaced by that of the same message here
(known from the responses to sends and from pulls). Times, addresses and ids in both responses are replaced by a
placeholder. A table for each file lists the remaining differences with their reasons; the last test fails for an entry
that no recording needs.

The recording keeps about two frames of a kind, so messages and offsets of the others are missing here. The number of
messages in a queue is therefore compared only as "none" or "some" (COUNTS).
"""

from __future__ import annotations

import json
import re
import time
from collections.abc import AsyncIterator
from contextlib import AsyncExitStack
from fnmatch import fnmatchcase
from pathlib import Path
from typing import Any

import pytest
import trio
import trio.testing
from broker_whole import WholeBroker, whole_broker
from golden_data import golden_frames

from triomq.protocol import properties as property_text
from triomq.protocol.bodies import fastjson
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RecordError
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.record import iterate_records
from triomq.remoting.client import RemotingClient, open_client
from triomq.remoting.connection import Connection

Frame = dict[str, Any]

PULL_SUSPEND = 2
HOLD_MS = "400"
"""How long pulls are held here, at most: what wakes them up comes at once or not at all."""
SENDS = {"SEND_MESSAGE", "SEND_MESSAGE_V2", "SEND_BATCH_MESSAGE", "SEND_REPLY_MESSAGE", "SEND_REPLY_MESSAGE_V2"}
RECORDS = {"PULL_MESSAGE", "QUERY_MESSAGE", "VIEW_MESSAGE_BY_ID"}
ADDRESS = re.compile(r"/?127\.0\.0\.\d+:\d+")
MESSAGE_ID = re.compile(r"\b7F0000[0-9A-F]{26}\b")
DATE = re.compile(r"\d{4}-\d\d-\d\d[#T ]\d\d:\d\d:\d\d[:,.]\d{3}")
NUMBER = re.compile(r"\b\d{13}\b")
RECORDED_MS = (1_795_200_000_000, 1_795_300_000_000)
"""The day of the recording."""

SPEC = json.loads((Path(__file__).parent / "broker_spec.json").read_text())
KNOWN_KEYS = {key for keys in SPEC["config"].values() for key in keys}
"""Keys of RocketMQ; TrioMQ lists a few of its own as well."""

COUNTS = {
    *("queueOffset", "nextBeginOffset", "maxOffset", "minOffset", "offset", "brokerOffset", "consumerOffset"),
    *("maxQueueIndex", "minQueueIndex", "totalDiff", "delayTime", "counter"),
}
"""Members that count messages or changes: none or some."""
MEASURED = {
    "consumeTps",
    "avgpt",
    "sum",
    "tps",
    "timestamp",
    "spentTimeMills",
    "indexLastUpdatePhyoffset",
    "physicOffset",
}
"""Members that were measured, or say where in the log something is."""


class Conversation:
    """One recorded file and the brokers that replay it; `addresses` by their recorded names."""

    def __init__(
        self, frames: list[Frame], addresses: dict[str, str], clients: AsyncExitStack, *, is_signed: bool
    ) -> None:
        self._is_signed = is_signed
        self._frames = frames
        self._addresses = addresses
        self._stack = clients
        self._clients: dict[int, RemotingClient] = {}
        self._answers = {
            (frame["conn"], frame["header"]["opaque"]): frame
            for frame in frames
            if frame["type"] == "response" and frame["from"] in addresses
        }
        self._client_answers: dict[str, list[Frame]] = {}
        for frame in frames:
            if frame["type"] == "response" and frame["from"] == "client":
                self._client_answers.setdefault(frame["answers"], []).append(frame)
        self._places: dict[int, int] = {}
        self._pulls: trio.Nursery
        self.compared = 0
        self.differences: list[tuple[str, str, str]] = []

    async def hold(self) -> None:
        askers = {"client", "slave"}  # a slave requests its master's tables
        frames = [f for f in self._frames if f["from"] in askers and f["to"] in self._addresses]
        frames = [frame for frame in frames if frame["type"] != "response"]
        codecs = {frame["conn"]: int(frame["serialize"] == "ROCKETMQ") for frame in frames}
        for connection, codec in codecs.items():
            client = await self._stack.enter_async_context(open_client(serialize_type=codec))
            self._clients[connection] = client
            for code in ("GET_CONSUMER_RUNNING_INFO", "CONSUME_MESSAGE_DIRECTLY", "GET_CONSUMER_STATUS_FROM_CLIENT"):
                client.register(RequestCode[code], self._answer_of_client)
            client.register(RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT, lambda _, request: new_response(request))
        async with trio.open_nursery() as self._pulls:
            for frame in frames:
                await self._say(frame)

    async def _say(self, frame: Frame) -> None:
        client = self._clients[frame["conn"]]
        header = frame["header"]
        recorded = self._answers.get((frame["conn"], header["opaque"]))
        fields = header.get("extFields")
        if fields is not None and not self._is_signed:
            fields = {name: self._place(name, str(value)) for name, value in fields.items()}
            if frame["code_name"] == "PULL_MESSAGE" and recorded is not None:
                adapt_pull(fields, recorded["header"]["code"])
            if frame["code_name"] == "QUERY_MESSAGE":
                fields["endTimestamp"] = str(2**62)
        command = RemotingCommand(
            header["code"],
            flag=header["flag"],
            body=body_of(frame),
            ext_fields=fields,
        )
        command.version = header["version"]
        if frame["type"] == "oneway" or recorded is None:
            await client.invoke_oneway(self._addresses[frame["to"]], command)
            return
        if int((fields or {}).get("sysFlag", "0")) & PULL_SUSPEND and frame["code_name"] == "PULL_MESSAGE":
            self._pulls.start_soon(self._ask, client, command, frame, recorded)
            await trio.testing.wait_all_tasks_blocked(0.005)
        else:
            await self._ask(client, command, frame, recorded)

    async def _ask(self, client: RemotingClient, command: RemotingCommand, frame: Frame, recorded: Frame) -> None:
        answer = await client.invoke(self._addresses[frame["to"]], command, 10)
        assert answer.serialize_type == (recorded["serialize"] == "ROCKETMQ")
        self._learn(frame, answer, recorded)
        self.compared += 1
        ours = plain(answer.code, answer.remark, answer.ext_fields, answer.body, frame["code_name"])
        header = recorded["header"]
        theirs = plain(
            header["code"], header.get("remark"), header.get("extFields"), body_of(recorded), frame["code_name"]
        )
        scenario = frame["scenario"].removeprefix("admin:")
        for place, text in differing("", ours, theirs):
            self.differences.append((f"{scenario} {frame['code_name']}", place, text))

    def _answer_of_client(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        wants_threads = (request.ext_fields or {}).get("jstackEnable") == "true"
        recorded = self._client_answers[RequestCode(request.code).name][-1 if wants_threads else 0]
        return new_response(request, 0, recorded["header"].get("remark"), body=body_of(recorded))

    # -- the position of a message here --------------------------------------------------------------------------------

    def _place(self, name: str, text: str) -> str:
        """Return a field of a request with the message's position in this log."""
        if name in ("offset", "commitLogOffset") and text.isdigit():
            return str(self._places.get(int(text), int(text)))
        return MESSAGE_ID.sub(
            lambda found: found[0][:16] + f"{self._places.get(int(found[0][16:], 16), int(found[0][16:], 16)):016X}",
            text,
        )

    def _learn(self, frame: Frame, answer: RemotingCommand, recorded: Frame) -> None:
        fields, wanted = answer.ext_fields or {}, recorded["header"].get("extFields") or {}
        if frame["code_name"] in SENDS and "msgId" in fields and "msgId" in wanted:
            for ours, theirs in zip(fields["msgId"].split(","), wanted["msgId"].split(","), strict=False):
                self._places[int(theirs[16:], 16)] = int(ours[16:], 16)
        if frame["code_name"] in RECORDS:
            here = {(m.topic, m.queue_id, m.queue_offset): m.physical_offset for m in messages(answer.body)}
            for message in messages(body_of(recorded)):
                place = here.get((message.topic, message.queue_id, message.queue_offset))
                if place is not None:
                    self._places.setdefault(message.physical_offset, place)


def adapt_pull(fields: dict[str, str], recorded_code: int) -> None:
    """Return a pull that is held no longer than necessary, with a version that the recorded heartbeats allow."""
    if "suspendTimeoutMillis" in fields:
        fields["suspendTimeoutMillis"] = "1" if recorded_code == ResponseCode.PULL_NOT_FOUND else HOLD_MS
    if recorded_code != ResponseCode.SUBSCRIPTION_NOT_LATEST and "subVersion" in fields:
        fields["subVersion"] = "0"


def body_of(frame: Frame) -> bytes:
    if frame.get("body") is not None:
        return str(frame["body"]).encode()
    return bytes.fromhex(frame.get("body_hex") or "")


def messages(body: bytes) -> list[Any]:
    try:
        return list(iterate_records(body)) if body else []
    except RecordError:
        return []


def plain(code: int, remark: str | None, fields: dict[str, str] | None, body: bytes, name: str) -> dict[str, Any]:
    """Return a response with all values replaced that must differ."""
    shown: dict[str, Any] = {"code": code, "remark": value_of("remark", remark or "")}
    shown["fields"] = {key: value_of(key, value) for key, value in (fields or {}).items()}
    if name in RECORDS and messages(body):
        shown["body"] = [message_of(message) for message in messages(body)]
    elif name == "GET_BROKER_RUNTIME_INFO" and body:
        shown["body"] = {key.partition("_/")[0] for key in fastjson.loads(body)["table"]}  # all of it is measured
    elif name == "GET_BROKER_CONFIG":
        shown["body"] = KNOWN_KEYS & {line.partition("=")[0] for line in body.decode().splitlines()}
    elif body[:1] in (b"{", b"["):
        shown["body"] = value_of("body", fastjson.loads(body))
    else:
        shown["body"] = value_of("body", body.decode("utf-8", "replace"))
    return shown


def message_of(message: Any) -> dict[str, Any]:
    stored = property_text.encode(message.properties).decode()
    return {
        "topic": message.topic,
        "queueId": message.queue_id,
        "flag": message.flag,
        "sysFlag": message.sys_flag,
        "body": message.body[:100],
        "reconsumeTimes": message.reconsume_times,
        "properties": {key: value_of("", text) for key, text in property_text.parse(stored).items()},
    }


def value_of(name: str, value: Any) -> Any:
    if name in MEASURED:
        return "MEASURED"
    if name in COUNTS and str(value).lstrip("-").isdigit():
        return "NONE" if int(value) <= 0 else "SOME"
    if isinstance(value, str):
        value = DATE.sub("TIME", MESSAGE_ID.sub("ID", ADDRESS.sub("ADDRESS", value)))
        return NUMBER.sub(lambda found: "TIME" if is_time(int(found[0])) else found[0], value)
    if isinstance(value, bool):
        return value
    if isinstance(value, int):
        return "TIME" if is_time(value) else value
    if isinstance(value, dict):
        return {value_of("", key): value_of(str(key), item) for key, item in value.items()}
    if isinstance(value, list | set | frozenset):
        items = [value_of("", item) for item in value]
        return sorted(items, key=repr) if items and not isinstance(items[0], int) else items
    return value


def is_time(number: int) -> bool:
    return RECORDED_MS[0] <= number <= RECORDED_MS[1] or abs(number - time.time() * 1000) < 3600_000


def differing(place: str, ours: Any, theirs: Any) -> list[tuple[str, str]]:
    if isinstance(ours, dict) and isinstance(theirs, dict):
        found = []
        for key in sorted(ours.keys() | theirs.keys(), key=str):
            name = f"{key.topic}:{key.queue_id}" if isinstance(key, MessageQueue) else str(key)
            found += differing(f"{place}.{name}".lstrip("."), ours.get(key, "ABSENT"), theirs.get(key, "ABSENT"))
        return found
    if isinstance(ours, list) and isinstance(theirs, list) and len(ours) == len(theirs):
        return [
            difference
            for number, pair in enumerate(zip(ours, theirs, strict=True))
            for difference in differing(f"{place}[{number}]", *pair)
        ]
    if isinstance(ours, set) and isinstance(theirs, set):
        return [(f"{place}.{key}", "here only" if key in ours else "recorded only") for key in sorted(ours ^ theirs)]
    return [] if ours == theirs else [(place, f"here {ours!r:.300}, recorded {theirs!r:.300}")]


Table = dict[tuple[str, str], str]


USED: dict[str, set[tuple[str, str]]] = {}


def assert_alike(conversation: Conversation, name: str, table: Table) -> None:
    used = USED.setdefault(name, set())
    left = []
    for what, place, text in conversation.differences:
        entry = next((key for key in table if fnmatchcase(what, key[0]) and fnmatchcase(place, key[1])), None)
        if entry is None:
            left.append(f"{what}: {place}: {text}")
        else:
            used.add(entry)
    assert not left, "\n".join(left)


MADE_ON_THE_WAY = {"WireAuto", "WireCluster", "WireCluster_REPLY_TOPIC"}
"""Topics that are made by what the clients do."""

CLIENTS: Table = {
    ("pull_sql_bad_expression PULL_MESSAGE", "*"): "a broken expression is refused; there it let everything pass",
    ("missing_header_field PULL_MESSAGE", "remark"): "there a Java exception",
    ("no_ext_fields GET_MAX_OFFSET", "remark"): "there a Java exception",
    (
        "offset_max_min_search_earliest SEARCH_OFFSET_BY_TIMESTAMP",
        "fields.offset",
    ): "it asks for a time of the recording",
    # Commits of offsets that the recording omits.
    ("rebalance_second_consumer* QUERY_CONSUMER_OFFSET", "fields.offset"): "left-out commits",
    ("slave_config_requests GET_ALL_CONSUMER_OFFSET", "body.offsetTable.*"): "left-out commits",
    # Topics that the recording's admin created earlier, some without a recorded request.
    ("slave_config_requests GET_ALL_TOPIC_CONFIG", "body.topicConfigTable.INST_1%WireNs.*"): "made by hand",
    # What only elapsed time causes: checks of transactions, deliveries of delayed messages, closed connections.
    ("slave_config_requests GET_ALL_TOPIC_CONFIG", "body.topicConfigTable.RMQ_SYS_TRANS_HALF_TOPIC"): "no check yet",
    ("slave_config_requests GET_ALL_DELAY_OFFSET", "body.offsetTable.1"): "not delivered yet",
    ("slave_config_requests GET_ALL_PRODUCER_INFO", "body.data.*"): "connections stay open until the end here",
    # Pulls of consumers whose first heartbeats the recording omits.
    ("push_consumer_start PULL_MESSAGE", "*"): "left-out heartbeats",
}
# GET_BROKER_CONFIG does not list unset keys.
UNSET = ("namesrvAddr", "rocketmqHome", "storePathCommitLog")
OF_OUR_OWN: Table = {
    ("* GET_BROKER_RUNTIME_INFO", f"body.{key}"): "ours has it, too"
    for key in ("eventLoopLagMax", "syncTimes", "syncLatency99", "syncLatencyMax", "product", "productVersion")
}
ADMINISTRATION: Table = {
    **OF_OUR_OWN,
    ("* GET_BROKER_CONSUME_STATS", "body.*.pullOffset"): "RocketMQ 5 has it",
    ("* GET_CONSUME_STATS", "body.*.pullOffset"): "RocketMQ 5 has it",
    **{("* GET_BROKER_CONFIG", f"body.{key}"): "unset here" for key in UNSET},
    ("* GET_BROKER_CONFIG", "fields.version"): "there also updates counted that changed nothing",
    ("updateBrokerConfig_bad_value UPDATE_BROKER_CONFIG", "*"): "a bad value is refused; there it was ignored",
    # A producer was connected outside of the recording.
    ("producerConnection GET_PRODUCER_CONNECTION_LIST", "*"): "not connected here",
    ("producer GET_ALL_PRODUCER_INFO", "body.data.*"): "not connected here",
    # The recording shows the state of the group before its start and at its end only roughly.
    ("admin_live QUERY_CONSUMER_OFFSET", "fields.offset"): "left-out commits",
    ("cloneGroupOffset GET_CONSUME_STATS", "body.offsetTable.*"): "left-out commits",
    ("startMonitoring PULL_MESSAGE", "*"): "left-out heartbeats",
    ("export* GET_ALL_TOPIC_CONFIG", "body.topicConfigTable.RMQ_SYS_TRANS_HALF_TOPIC"): "no check of transactions yet",
    (
        "export* GET_ALL_TOPIC_CONFIG",
        "body.topicConfigTable.WireNewB.order",
    ): "told by the NameServer, which is not here",
}


@pytest.fixture(params=["json", "rocketmq"])
def codec(request: pytest.FixtureRequest) -> str:
    """Return the header codec of the clients and brokers of the recording."""
    name: str = request.param
    return name


@pytest.fixture
async def broker(tmp_path: Path, codec: str) -> AsyncIterator[WholeBroker]:
    settings = {
        "brokerName": "wire-a",
        "brokerClusterName": "WireCluster",
        "traceTopicEnable": "true",
        "slaveReadEnable": "true",
        "configUpdateWithoutAcl": "true",
    }
    async with whole_broker(tmp_path, {"rocketmq.serialize.type": codec}, **settings) as running:
        yield running


async def converse(
    frames: list[Frame], broker: WholeBroker, *, slave: WholeBroker | None = None, is_signed: bool = False
) -> Conversation:
    addresses = {"broker": broker.address} if slave is None else {"broker": broker.address, "slave": slave.address}
    async with AsyncExitStack() as stack:
        conversation = Conversation(frames, addresses, stack, is_signed=is_signed)
        await conversation.hold()
    return conversation


async def prepare(frames: list[Frame], broker: WholeBroker, topics: dict[str, int]) -> None:
    """Create what existed before the recording began: the messages that it shows."""
    for topic, queues in topics.items():
        await broker.create_topic(topic, queues)
    later = {
        int(frame["header"]["extFields"]["msgId"][16:32], 16)
        for frame in frames
        if frame.get("answers") in SENDS and "msgId" in (frame["header"].get("extFields") or {})
    }
    sent = {
        message.physical_offset: message
        for frame in frames
        if frame.get("answers") in RECORDS
        for message in messages(body_of(frame))
        if message.topic in topics and message.physical_offset not in later
    }
    for _, message in sorted(sent.items()):
        properties = {key: text for key, text in message.properties.items() if key != "CLUSTER"}
        fields = {
            "queueId": message.queue_id,
            "properties": property_text.encode(properties).decode(),
            "bornTimestamp": message.born_timestamp,
            "sysFlag": message.sys_flag,
            "flag": message.flag,
        }
        assert (await broker.send(message.topic, message.body, **fields)).code == 0


async def test_clients(broker: WholeBroker, codec: str) -> None:
    frames = golden_frames(f"clients_{codec}")
    [recorded] = [f for f in frames if f.get("answers") == "GET_ALL_TOPIC_CONFIG"]
    for name, config in fastjson.loads(body_of(recorded))["topicConfigTable"].items():
        if name.startswith("Wire") and name not in MADE_ON_THE_WAY:
            await broker.create_topic(name, config["readQueueNums"], perm=config["perm"])
    conversation = await converse(frames, broker)
    assert conversation.compared > 180
    assert_alike(conversation, f"clients_{codec}", CLIENTS)


async def test_administration(broker: WholeBroker, codec: str) -> None:
    frames = golden_frames(f"admin_{codec}")
    await prepare(frames, broker, {"WireOne": 2, "WireTwo": 1})
    group = "GID_Wire_one"
    await broker.ask(200, None, json.dumps({"groupName": group}).encode())
    for topic, queue_id, offset in (("WireOne", 0, 5), ("WireOne", 1, 5), (f"%RETRY%{group}", 0, 0)):
        fields = {"consumerGroup": group, "topic": topic, "queueId": queue_id, "commitOffset": offset}
        assert (await broker.ask(15, fields)).code == 0
    conversation = await converse(frames, broker)
    assert conversation.compared > 190
    assert_alike(conversation, f"admin_{codec}", ADMINISTRATION)


ACCESS: Table = {
    ("clusterAclConfigVersion* GET_BROKER_CLUSTER_ACL_INFO", "fields.allAclFileVersion"): "the file lies elsewhere",
    ("* GET_BROKER_CONFIG", "body.namesrvAddr"): "unset here",
    ("* GET_BROKER_CONFIG", "body.storePathCommitLog"): "unset here",
}


ADMINS_ONLY: Table = {
    ("clusterAclConfigVersion* GET_BROKER_CLUSTER_ACL_INFO", "fields.allAclFileVersion"): "the file lies elsewhere",
    ("not_admin_getBrokerConfig GET_BROKER_CONFIG", "*"): "only administrators see the configuration",
}


@pytest.mark.parametrize(("like_rocketmq", "table"), [("true", ACCESS), ("false", ADMINS_ONLY)])
async def test_access_control(tmp_path: Path, like_rocketmq: str, table: Table) -> None:
    """The requests are signed, so each is sent byte for byte as recorded."""
    frames = golden_frames("acl_json")
    recorded = next(frame for frame in frames if frame.get("answers") == "GET_BROKER_CLUSTER_ACL_CONFIG")
    known = json.loads(body_of(recorded))
    home = tmp_path / "home" / "conf"
    home.mkdir(parents=True)
    accounts = {"globalWhiteRemoteAddresses": known["globalWhiteAddrs"], "accounts": known["plainAccessConfigs"]}
    (home / "plain_acl.yml").write_text(json.dumps(accounts))
    settings = {"brokerName": "wire-a", "brokerClusterName": "WireCluster", "aclEnable": "true"}
    settings["aclLikeRocketMQ"] = like_rocketmq
    async with whole_broker(tmp_path, rocketmqHome=str(home.parent), **settings) as broker:
        conversation = await converse(frames, broker, is_signed=True)
    assert conversation.compared > 40
    assert_alike(conversation, f"acl {like_rocketmq}", table)
    assert not table.keys() - USED[f"acl {like_rocketmq}"]


PAIR: Table = {
    **OF_OUR_OWN,
    ("* GET_BROKER_RUNTIME_INFO", "body.notReady_replication"): "ours says why it is not ready",
    # The two brokers are not connected here: tests/replication does that.
    ("ha_send_* SEND_MESSAGE_V2", "code"): "no slave has the message",
    ("read_from_slave_when_master_is_down PULL_MESSAGE", "*"): "the slave is empty",
    ("read_from_slave_when_master_is_down QUERY_CONSUMER_OFFSET", "*"): "the slave is empty",
    ("* GET_ALL_TOPIC_CONFIG", "body.topicConfigTable.RMQ_SYS_TRANS_HALF_TOPIC"): "no check of transactions yet",
}


async def test_a_master_and_its_slave(tmp_path: Path) -> None:
    frames = golden_frames("master_slave_json")
    both = {"brokerName": "wire-a", "brokerClusterName": "WireCluster", "traceTopicEnable": "true"}
    async with (
        whole_broker(tmp_path / "master", brokerRole="SYNC_MASTER", **both) as master,
        whole_broker(tmp_path / "slave", brokerRole="SLAVE", brokerId="1", **both) as slave,
    ):
        await master.create_topic("WireHa", 1)
        conversation = await converse(frames, master, slave=slave)
    assert conversation.compared > 80
    assert_alike(conversation, "pair", PAIR)
    assert not PAIR.keys() - USED["pair"]


@pytest.mark.parametrize(("name", "table"), [("clients", CLIENTS), ("admin", ADMINISTRATION)])
def test_every_entry_is_needed(name: str, table: Table) -> None:
    """Run this after the other tests."""
    used = [USED.get(f"{name}_{codec}") for codec in ("json", "rocketmq")]
    if None in used:
        pytest.skip("not the whole file was run")
    assert not table.keys() - set().union(*(each for each in used if each is not None))
