"""Quotas of a whole broker: what is refused, with which words, and that nothing is counted that should not be."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
import structlog.testing
import trio
from broker_whole import ANSWER_SECONDS, WholeBroker, pull_fields, send_fields, whole_broker

from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.message import Message
from triomq.protocol.record import encode_batch
from triomq.remoting.client import open_client
from triomq.remoting.config import ClientSettings

BUSY = ResponseCode.SYSTEM_BUSY
BATCH = encode_batch([Message(topic="T", body=b"12345") for _ in range(100)])
"""It leaves a quota of one message a second in debt for longer than a test runs."""


def open_broker(folder: Path, **settings: str) -> Any:
    return whole_broker(folder, configUpdateWithoutAcl="true", **settings)


async def change(broker: WholeBroker, line: str) -> RemotingCommand:
    return await broker.ask(RequestCode.UPDATE_BROKER_CONFIG, body=line.encode())


async def runtime(broker: WholeBroker) -> dict[str, str]:
    answer = await broker.ask(RequestCode.GET_BROKER_RUNTIME_INFO)
    table: dict[str, str] = json.loads(answer.body)["table"]
    return table


def end_of(broker: WholeBroker, topic: str) -> int:
    serving = broker.controller.serving
    assert serving is not None
    return max(0, serving.store.reading.max_offset(topic, 0))


async def test_without_a_quota_no_request_passes_a_check_and_nothing_is_listed(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        serving = broker.controller.serving
        assert serving.pull._quotas is None
        assert not serving.quotas.is_on
        assert not [key for key in await runtime(broker) if key.startswith("quota")]
        listed = (await broker.ask(RequestCode.GET_BROKER_CONFIG)).body.decode()
        assert "quotaOverrides" not in listed
        for lifted in ("", "bytesIn=0"):
            await change(broker, "quotaPerAddress=bytesIn=1")
            assert serving.pull._quotas is not None
            await change(broker, f"quotaPerAddress={lifted}")
            assert serving.pull._quotas is None


async def test_a_send_above_the_quota_is_refused_with_a_reason_and_not_stored(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="bytesIn=1") as broker:
        await broker.create_topic("T")
        assert (await broker.send("T", b"x" * 1000)).code == 0, "larger than the burst"
        refused = await broker.send("T")
        assert refused.code == BUSY
        remark = refused.remark or ""
        start = "[QUOTA] bytesIn: address 127.0.0.1 may have 1 bytes a second in; try again in "
        assert remark.startswith(start)
        assert 900_000 < int(remark.removeprefix(start).removesuffix(" ms")) <= 1_000_000
        assert end_of(broker, "T") == 1
        assert (await runtime(broker))["quotaRefused_address_bytesIn"] == "1"


async def test_a_one_way_send_above_the_quota_is_not_stored(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="bytesIn=1") as broker:
        await broker.create_topic("T")
        fields = {name: str(value) for name, value in send_fields("T").items()}
        for _ in range(3):
            await broker.client.invoke_oneway(broker.address, new_request(10, ext_fields=fields, body=b"x" * 1000))
        assert (await broker.send("T")).code == BUSY
        assert end_of(broker, "T") == 1


async def test_a_batch_counts_its_messages_and_its_bytes(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerGroup="messagesIn=1") as broker:
        await broker.create_topic("T")
        assert (await broker.send("T", BATCH, batch="true")).code == 0
        refused = await broker.send("T")
        assert refused.code == BUSY
        text = refused.remark or ""
        assert "group P may have 1 messages a second in" in text
        assert 90_000 < int(text.split()[-2]) <= 100_000
        assert (await broker.send("T", producerGroup="Q")).code == 0, "another group has its own"
        await change(broker, "quotaPerGroup=bytesIn=1")
        assert (await broker.send("T", BATCH, batch="true")).code == 0
        refused = await broker.send("T", BATCH, batch="true")
        assert int((refused.remark or "").split()[-2]) > (len(BATCH) - 10) * 1000


async def test_a_batch_that_is_too_long_to_count_counts_with_about_all_of_its_messages(tmp_path: Path) -> None:
    body = encode_batch([Message(topic="T", body=b"12345") for _ in range(20_000)])
    async with open_broker(tmp_path, quotaPerGroup="messagesIn=1", maxMessageSize="1048576") as broker:
        await broker.create_topic("T")
        assert (await broker.send("T", body, batch="true")).code == 0
        refused = await broker.send("T")
        assert refused.code == BUSY
        assert 19_900_000 < int((refused.remark or "").split()[-2]) <= 20_000_000


async def test_two_sends_at_once_do_not_share_the_last_token(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="messagesIn=1") as broker:
        await broker.create_topic("T")
        codes: list[int] = []

        async def send() -> None:
            codes.append((await broker.send("T", BATCH, batch="true")).code)

        async with trio.open_nursery() as nursery:
            for _ in range(20):
                nursery.start_soon(send)
        assert sorted(codes) == [0] + [BUSY] * 19
        assert end_of(broker, "T") == 100


async def test_a_refused_send_takes_nothing_from_the_quotas_that_have_room(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="bytesIn=25000", quotaPerGroup="bytesIn=1") as broker:
        await broker.create_topic("T")
        groups = ("P", "P", "P", "P", "P", "P", "Q", "R")
        codes = [(await broker.send("T", b"x" * 10_000, producerGroup=group)).code for group in groups]
        assert codes == [0, *[BUSY] * 5, 0, 0]


async def test_a_pull_that_does_not_wait_is_refused_and_gets_its_messages_later(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerGroup="bytesOut=50000") as broker:
        await broker.create_topic("T")
        for _ in range(4):
            await broker.send("T", b"x" * 30_000)
        first = await broker.pull("T", maxMsgNums=2)
        assert first.code == 0
        refused = await broker.pull("T", maxMsgNums=2, queueOffset=2)
        assert refused.code == BUSY
        assert "[QUOTA] bytesOut: group G may have 50000 bytes a second out" in (refused.remark or "")
        assert (await broker.pull("T", maxMsgNums=2, consumerGroup="H", queueOffset=2)).code == 0
        held = await broker.pull("T", maxMsgNums=2, queueOffset=2, sysFlag=6, suspendTimeoutMillis=8000)
        assert held.code == 0
        assert (held.ext_fields or {})["nextBeginOffset"] == "4"
        table = await runtime(broker)
        assert (table["quotaRefused_group_bytesOut"], table["quotaDelayed_group_bytesOut"]) == ("1", "1")


async def test_what_administration_does_not_send_or_create_is_never_refused(tmp_path: Path) -> None:
    quota = "connections=1,bytesIn=1,messagesIn=1,topicsPerHour=1,groupsPerHour=1"
    async with open_broker(tmp_path, quotaPerAddress=quota) as broker:
        assert (await broker.send("T", b"x" * 1000)).code == 0
        assert (await broker.send("T")).code == BUSY
        async with open_client(ClientSettings()) as other:
            fields = {name: str(value) for name, value in send_fields("T").items()}
            send = await other.invoke(broker.address, new_request(10, ext_fields=fields), ANSWER_SECONDS)
            assert "[QUOTA] connections: address 127.0.0.1 may have 1 connections at once" in (send.remark or "")
            update = new_request(RequestCode.UPDATE_BROKER_CONFIG, body=b"quotaPerAddress=connections=2")
            assert (await other.invoke(broker.address, update, ANSWER_SECONDS)).code == 0
            send = await other.invoke(broker.address, new_request(10, ext_fields=fields), ANSWER_SECONDS)
            assert send.code == 0


async def test_a_connection_gives_its_place_back_when_it_closes(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="connections=1") as broker:
        await broker.create_topic("T")
        fields = {name: str(value) for name, value in send_fields("T").items()}
        serving = broker.controller.serving
        assert serving is not None
        closed = trio.Event()
        serving.tables.listeners.on_close(lambda connection: closed.set())
        for _ in range(3):
            async with open_client(ClientSettings()) as one:
                answer = await one.invoke(broker.address, new_request(10, ext_fields=fields), ANSWER_SECONDS)
                assert answer.code == 0
                assert (await broker.send("T")).code == BUSY
                assert (await broker.pull("T")).code == BUSY
            await closed.wait()
            closed = trio.Event()
        assert serving.quotas._connections._numbers == {}


async def test_topics_count_whether_sends_or_administration_create_them(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="topicsPerHour=2") as broker:
        await broker.create_topic("Made")
        await broker.create_topic("Made", queues=3)  # a change
        assert (await broker.send("Sent")).code == 0
        assert (await broker.send("Sent")).code == 0
        refused = await broker.send("More")
        assert refused.code == BUSY
        assert "[QUOTA] topicsPerHour: address 127.0.0.1 may have 2 new topics an hour" in (refused.remark or "")
        made = await broker.ask(17, {**TOPIC, "topic": "More"})
        assert made.code == BUSY
        assert "topicsPerHour" in (made.remark or "")
        assert (await broker.send("%RETRY%More")).code == BUSY, "the retry topic of a group that does not exist"
        serving = broker.controller.serving
        assert serving is not None
        topics = serving.tables.metadata.topics
        assert topics.get("More") is None
        assert (await broker.pull("Made")).code != BUSY  # creates the group G
        assert (await broker.send("%RETRY%G")).code == 0, "that of a known group belongs to it"
        assert (await runtime(broker))["quotaRefused_address_topicsPerHour"] == "3"


TOPIC = {
    "defaultTopic": "TBW102",
    "readQueueNums": 2,
    "writeQueueNums": 2,
    "perm": 6,
    "topicFilterType": "SINGLE_TAG",
    "order": "false",
}


async def test_two_topics_made_at_once_by_administration_count_both(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="topicsPerHour=3") as broker:
        codes: list[int] = []

        async def make(number: int) -> None:
            codes.append((await broker.ask(17, {**TOPIC, "topic": f"T{number}"})).code)

        async with trio.open_nursery() as nursery:
            for number in range(8):
                nursery.start_soon(make, number)
        assert sorted(codes) == [0] * 3 + [BUSY] * 5


def heartbeat(*groups: str) -> bytes:
    data = [
        {
            "groupName": group,
            "consumeType": "CONSUME_PASSIVELY",
            "messageModel": "CLUSTERING",
            "consumeFromWhere": "CONSUME_FROM_LAST_OFFSET",
            "subscriptionDataSet": [],
            "unitMode": False,
        }
        for group in groups
    ]
    return json.dumps({"clientID": "c", "consumerDataSet": data, "producerDataSet": []}).encode()


async def test_groups_count_and_a_heartbeat_still_registers_those_that_exist(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="groupsPerHour=2") as broker:
        await broker.create_topic("T")
        assert (await broker.ask(RequestCode.HEART_BEAT, body=heartbeat("A"))).code == 0
        body = json.dumps({"groupName": "B"}).encode()
        assert (await broker.ask(RequestCode.UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=body)).code == 0
        refused = await broker.pull("T", consumerGroup="C")
        assert refused.code == BUSY
        assert "[QUOTA] groupsPerHour: address 127.0.0.1 may have 2 new groups an hour" in (refused.remark or "")
        answer = await broker.ask(RequestCode.HEART_BEAT, body=heartbeat("C", "B", "A"))
        assert answer.code == BUSY
        serving = broker.controller.serving
        assert serving is not None
        metadata = serving.tables.metadata
        assert metadata.groups.get("C") is None
        assert metadata.consumers.get("A") is not None
        assert metadata.consumers.get("B") is not None


async def test_an_override_takes_the_place_of_the_default_and_survives_a_restart(tmp_path: Path) -> None:
    settings = {"quotaPerGroup": "messagesIn=1", "storePathRootDir": str(tmp_path / "store")}
    async with open_broker(tmp_path, **settings) as broker:
        await broker.create_topic("T")
        answer = await change(broker, "quotaOverrides=group P messagesIn=0; address 127.0.0.0/8 messagesIn=100000")
        assert answer.code == 0, answer.remark
        assert [(await broker.send("T", BATCH, batch="true")).code for _ in range(5)] == [0] * 5
        assert [(await broker.send("T", BATCH, batch="true", producerGroup="Q")).code for _ in range(2)] == [
            0,
            BUSY,
        ]
    async with open_broker(tmp_path, **settings) as broker:
        assert [(await broker.send("T", BATCH, batch="true")).code for _ in range(5)] == [0] * 5
        listed = (await broker.ask(RequestCode.GET_BROKER_CONFIG)).body.decode().splitlines()
        assert "quotaOverrides=address 127.0.0.0/8 messagesIn=100000; group P messagesIn=0" in listed


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("quotaPerAccount=bytes=1", "quotaPerAccount: 'bytes' is not a quota of this kind"),
        ("quotaOverrides=group P connections=1", "quotaOverrides: 'group P connections=1': 'connections' is not"),
        ("quotaPerGroup=bytesIn=1\nquotaOverrides=nobody", "quotaOverrides: 'nobody': it must begin with account"),
    ],
)
async def test_an_update_that_cannot_be_read_changes_nothing(tmp_path: Path, line: str, reason: str) -> None:
    async with open_broker(tmp_path) as broker:
        answer = await change(broker, line)
        assert answer.code == ResponseCode.SYSTEM_ERROR
        assert reason in (answer.remark or "")
        assert not broker.controller.serving.quotas.is_on
        assert broker.controller.configuration.broker.quota_per_group == ""


async def test_two_changes_of_overrides_at_once_are_both_made(tmp_path: Path) -> None:
    async with open_broker(tmp_path) as broker:
        async with trio.open_nursery() as nursery:
            for number in range(5):
                nursery.start_soon(change, broker, f"quotaOverrides=group G{number} bytesIn={number + 1}")
        serving = broker.controller.serving
        assert len(serving.quotas.overrides) == 5


async def test_a_held_pull_counts_for_nothing_before_it_gets_messages(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerGroup="messagesOut=1") as broker:
        await broker.create_topic("T")
        waits = pull_fields("T", sysFlag=6, suspendTimeoutMillis=100)
        for _ in range(3):
            answer = await broker.ask(RequestCode.PULL_MESSAGE, waits)
            assert answer.code == ResponseCode.PULL_NOT_FOUND
        await broker.send("T")
        assert (await broker.ask(RequestCode.PULL_MESSAGE, waits)).code == 0
        assert "quotaDelayed_group_messagesOut" not in await runtime(broker)


async def test_what_the_broker_writes_by_itself_counts_for_nobody(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="bytesIn=1", messageDelayLevel="1s") as broker:
        await broker.create_topic("T")
        assert (await broker.send("T", b"x" * 60_000, properties="DELAY\x011\x02UNIQ_KEY\x01U1")).code == 0
        assert (await broker.send("T")).code == BUSY, "the address is in debt"
        due = await broker.pull("T", sysFlag=6, suspendTimeoutMillis=8000)
        assert due.code == 0
        assert end_of(broker, "T") == 1
        back = {"offset": 0, "group": "G", "delayLevel": 1, "originMsgId": "U1", "originTopic": "T"}
        assert (await broker.ask(RequestCode.CONSUMER_SEND_MSG_BACK, back)).code == 0


async def test_the_end_of_a_transaction_counts_for_nobody(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="bytesIn=1") as broker:
        await broker.create_topic("T")
        properties = "TRAN_MSG\x01true\x02PGROUP\x01P\x02UNIQ_KEY\x01U1"
        half = await broker.send("T", b"x" * 1000, properties=properties, sysFlag=4)
        assert half.code == 0
        fields = half.ext_fields or {}
        end = {
            "producerGroup": "P",
            "tranStateTableOffset": fields["queueOffset"],
            "commitOrRollback": 8,
            "commitLogOffset": int(fields["msgId"][16:], 16),
            "msgId": "U1",
            "transactionId": "U1",
            "fromTransactionCheck": "false",
        }
        assert (await broker.ask(RequestCode.END_TRANSACTION, end)).code == 0
        assert end_of(broker, "T") == 1


async def test_the_task_that_prints_watermarks_logs_refusals(tmp_path: Path) -> None:
    async with open_broker(tmp_path, quotaPerAddress="bytesIn=1") as broker:
        await broker.create_topic("T")
        assert [(await broker.send("T", b"x" * 1000)).code for _ in range(3)] == [0, BUSY, BUSY]
        with structlog.testing.capture_logs() as lines:
            await broker.controller.serving.schedule._call("printWaterMark")
        [line] = [line for line in lines if line["event"] == "quotas exceeded; requests were refused"]
        assert line["requests"] == 2
