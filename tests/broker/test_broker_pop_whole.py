"""POP over sockets: a whole broker, also one that is killed between a receive and the acknowledgements."""

from __future__ import annotations

import json
import os
import shutil
import subprocess
import sys
import time
from pathlib import Path
from typing import Any

import pytest
import trio
from broker_whole import INVISIBLE_MS, SETTINGS, WholeBroker, ack_fields, pop_fields, send_fields, whole_broker
from free_ports import free_port

from triomq.protocol.codes import POLLING_TIMEOUT, RequestCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.record import BatchUnit, decode_records, encode_batch_units
from triomq.remoting.client import open_client


async def test_receives_and_acknowledgements_over_a_socket_also_across_a_restart(tmp_path: Path) -> None:
    async def receive(broker: WholeBroker, **changes: Any) -> RemotingCommand:
        return await broker.ask(RequestCode.POP_MESSAGE, pop_fields(**changes))

    async with whole_broker(tmp_path) as broker:
        assert not (tmp_path / "store" / "pop").exists()
        await broker.create_topic("T", 2)
        for queue_id in (0, 1):
            await broker.send("T", f"m{queue_id}".encode(), queueId=queue_id)
        received = await receive(broker)
        messages = {message.body: message for message in decode_records(received.body)}
        assert (received.code, sorted(messages)) == (0, [b"m0", b"m1"])
        fields = ack_fields(received, messages[b"m0"])
        assert (await broker.ask(RequestCode.ACK_MESSAGE, fields)).code == 0
    async with whole_broker(tmp_path) as broker:
        again = await receive(broker, pollTime=10_000)
        [message] = decode_records(again.body)
        assert (message.body, message.reconsume_times) == (b"m1", 1)
        changed = {**ack_fields(again, message), "invisibleTime": 60_000}
        assert (await broker.ask(RequestCode.CHANGE_MESSAGE_INVISIBLETIME, changed)).code == 0
        refused = await broker.ask(RequestCode.ACK_MESSAGE, ack_fields(again, message))
        assert "not valid any more" in (refused.remark or "")


async def test_a_waiting_receive_ends_with_the_broker(tmp_path: Path) -> None:
    async with trio.open_nursery() as nursery, whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        began = time.monotonic()
        codes: list[int] = []

        async def wait(*, task_status: trio.TaskStatus[None]) -> None:
            with trio.CancelScope(shield=True):
                task_status.started()
                codes.append((await broker.ask(RequestCode.POP_MESSAGE, pop_fields(pollTime=60_000))).code)

        await nursery.start(wait)
        info = {"consumerGroup": "G", "topic": "T", "queueId": 0}
        while (await broker.ask(RequestCode.POLLING_INFO, info)).ext_fields == {"pollingNum": "0"}:
            pass
        assert broker.controller.serving is not None
        await broker.controller.serving.pull.long_polling.end()
    assert codes == [POLLING_TIMEOUT]
    assert time.monotonic() - began < 30


async def test_a_kill_loses_and_repeats_nothing(tmp_path: Path) -> None:
    """What was acknowledged stays done, what was received comes at its time, the rest at once."""
    port = free_port()
    settings = {**SETTINGS, "storePathRootDir": str(tmp_path / "store"), "listenPort": str(port)}
    settings["namesrvAddr"] = "127.0.0.1:9"
    (tmp_path / "broker.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    process = subprocess.Popen(  # noqa: ASYNC220
        [sys.executable, "-m", "triomq.broker", "-c", str(tmp_path / "broker.conf")],
        env={**os.environ, "HOME": str(tmp_path), "ROCKETMQ_HOME": str(tmp_path)},
        stdout=subprocess.PIPE,
        text=True,
    )
    try:
        assert process.stdout is not None
        assert "boot success" in process.stdout.readline()
        async with open_client() as client:

            async def ask(code: int, fields: dict[str, Any], body: bytes = b"") -> RemotingCommand:
                texts = {name: str(value) for name, value in fields.items()}
                return await client.invoke(f"127.0.0.1:{port}", new_request(code, ext_fields=texts, body=body), 10)

            for number in range(9):
                sent = await ask(10, send_fields("TBW102", queueId=0), b"%d" % number)
                assert sent.code == 0, sent.remark
            received = await ask(RequestCode.POP_MESSAGE, pop_fields(topic="TBW102", maxMsgNums=6))
            messages = decode_records(received.body)
            for message in messages[::2]:
                fields = {**ack_fields(received, message), "topic": "TBW102"}
                assert (await ask(RequestCode.ACK_MESSAGE, fields)).code == 0
            received_at = time.monotonic()
    finally:
        process.kill()
        process.wait()
    async with whole_broker(tmp_path) as broker:
        at_once = await broker.ask(RequestCode.POP_MESSAGE, pop_fields(topic="TBW102", invisibleTime=60_000))
        assert [message.body for message in decode_records(at_once.body)] == [b"6", b"7", b"8"]
        later = await broker.ask(RequestCode.POP_MESSAGE, pop_fields(topic="TBW102", pollTime=10_000))
        assert sorted(message.body for message in decode_records(later.body)) == [b"1", b"3", b"5"]
        assert time.monotonic() - received_at >= INVISIBLE_MS / 1000 - 0.1
        none = await broker.ask(RequestCode.POP_MESSAGE, pop_fields(topic="TBW102"))
        assert not none.body


async def test_a_slave_removes_a_log_from_its_time_as_a_master(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        await broker.send("T")
        assert (await broker.ask(RequestCode.POP_MESSAGE, pop_fields())).code == 0
    assert list((tmp_path / "store" / "pop").iterdir())
    async with whole_broker(tmp_path, brokerRole="SLAVE", brokerId="1") as broker:
        assert not list((tmp_path / "store" / "pop").iterdir())
        refused = await broker.ask(RequestCode.POP_MESSAGE, pop_fields())
        assert "slave" in (refused.remark or "")


async def test_a_topic_that_is_deleted_and_made_again_begins_anew(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        for _ in range(3):
            await broker.send("T", b"old")
        assert (await broker.ask(RequestCode.POP_MESSAGE, pop_fields())).code == 0
        assert (await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        await broker.create_topic("T", 1)
        await broker.send("T", b"new")
        received = await broker.ask(RequestCode.POP_MESSAGE, pop_fields(pollTime=5000))
        assert [message.body for message in decode_records(received.body)] == [b"new"]


async def test_nothing_of_a_topic_that_is_deleted_stays(tmp_path: Path) -> None:
    """Also when messages came again: that takes no topic of the group's."""

    async def topics(broker: WholeBroker) -> set[str]:
        return set(json.loads((await broker.ask(RequestCode.GET_ALL_TOPIC_CONFIG)).body)["topicConfigTable"])

    async with whole_broker(tmp_path) as broker:
        at_first = await topics(broker)
        await broker.create_topic("T", 1)
        await broker.send("T")
        for _ in range(3):
            received = await broker.ask(RequestCode.POP_MESSAGE, pop_fields(invisibleTime=1000, pollTime=5000))
            assert len(decode_records(received.body)) == 1
        assert await topics(broker) == {*at_first, "T"}
        assert (await broker.ask(RequestCode.DELETE_TOPIC_IN_BROKER, {"topic": "T"})).code == 0
        assert await topics(broker) == at_first
        assert (await broker.ask(RequestCode.DELETE_SUBSCRIPTIONGROUP, {"groupName": "G"})).code == 0
        assert b"T@G" not in (await broker.ask(RequestCode.GET_ALL_CONSUMER_OFFSET)).body


@pytest.mark.parametrize("order", ["false", "true"])
async def test_a_reset_of_a_group_that_receives_needs_no_members(tmp_path: Path, order: str) -> None:
    """As RocketMQ 5's mqadmin resets a queue: it stores the offset, then asks for the reset."""

    async def bodies(broker: WholeBroker) -> list[bytes]:
        received = await broker.ask(RequestCode.POP_MESSAGE, pop_fields(order=order, invisibleTime=60_000))
        return [message.body for message in decode_records(received.body)]

    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 2)
        for queue_id in (0, 1):
            for number in range(5):
                await broker.send("T", f"{queue_id}.{number}".encode(), queueId=queue_id)
        assert len(await bodies(broker)) == 10
        fields = {"topic": "T", "queueId": 1, "timestamp": 0}
        stored = {**fields, "consumerGroup": "G", "commitOffset": 3}
        assert (await broker.ask(RequestCode.UPDATE_CONSUMER_OFFSET, stored)).code == 0
        assert await bodies(broker) == []
        asked = {**fields, "group": "G", "isForce": "false", "offset": 3}
        for _ in range(2):
            assert (await broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, asked)).code == 0
            assert await bodies(broker) == [b"1.3", b"1.4"]
        backwards = {"topic": "T", "group": "G", "timestamp": 0, "isForce": "false"}
        assert (await broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, backwards)).code == 0
        assert await bodies(broker) == [b"1.0", b"1.1", b"1.2", b"1.3", b"1.4"]
        forced = {**backwards, "isForce": "true"}
        assert (await broker.ask(RequestCode.INVOKE_BROKER_TO_RESET_OFFSET, forced)).code == 0
        assert len(await bodies(broker)) == 10


@pytest.mark.parametrize("is_batch", [False, True])
async def test_a_received_message_that_is_sent_on_has_no_handle_of_its_former_life(
    tmp_path: Path, is_batch: bool
) -> None:
    """RocketMQ 5's clients would acknowledge it with that one."""
    properties = "KEYS\x01k\x02POP_CK\x010 1796007771737 3000 0 0 broker-b 0 0\x02own\x01x POP_CK y"
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        if is_batch:
            body = encode_batch_units([BatchUnit(0, b"x", properties.encode()), BatchUnit(0, b"x", b"")])
            fields = send_fields("T", properties="", batch="true")
        else:
            body, fields = b"x", send_fields("T", properties=properties)
        assert (await broker.ask(RequestCode.SEND_MESSAGE, fields, body)).code == 0
        received = await broker.ask(RequestCode.POP_MESSAGE, pop_fields())
        message = decode_records(received.body)[0]
        kept = {name: value for name, value in message.properties.items() if name != "CLUSTER"}
        assert kept == {"KEYS": "k", "own": "x POP_CK y"}
        assert (await broker.ask(RequestCode.ACK_MESSAGE, ack_fields(received, message))).code == 0


async def test_a_broker_without_receives_has_none_of_their_parts(tmp_path: Path) -> None:
    async with whole_broker(tmp_path) as broker:
        await broker.create_topic("T", 1)
        await broker.send("T")
        assert (await broker.pull("T")).code == 0
        assert broker.controller.serving is not None and broker.controller.serving.pop.parts is None


async def test_a_log_of_another_version_stops_the_start_and_stays(tmp_path: Path) -> None:
    from triomq.broker.pop import log_records
    from triomq.daemon.errors import StartError

    path = tmp_path / "store" / "pop" / f"{7:020d}"
    path.parent.mkdir(parents=True)
    path.write_bytes(log_records.encode(log_records.BEGIN, 99) + log_records.encode(log_records.COMPLETE))
    with pytest.RaisesGroup(pytest.RaisesExc(StartError, match="newer version"), flatten_subgroups=True):
        async with whole_broker(tmp_path):
            pass
    assert path.exists()


async def test_a_promoted_slave_with_a_shorter_log_delivers_what_gets_the_places_of_lost_messages(
    tmp_path: Path,
) -> None:
    for name, count in (("master", 6), ("slave", 3)):
        async with whole_broker(tmp_path / name) as broker:
            await broker.create_topic("T", 1)
            for number in range(count):
                await broker.send("T", f"m{number}".encode(), queueId=0)
            received = await broker.ask(RequestCode.POP_MESSAGE, pop_fields())
            messages = decode_records(received.body)
            assert len(messages) == count
            for message in messages:
                assert (await broker.ask(RequestCode.ACK_MESSAGE, ack_fields(received, message))).code == 0
    tables = [tmp_path / name / "store" / "config" / "consumerOffset.json" for name in ("master", "slave")]
    tables[1].write_bytes(tables[0].read_bytes())  # of the master it has three messages, and all tables
    shutil.rmtree(tmp_path / "slave" / "store" / "pop")
    tables[1].with_name("copied.json").write_text('{"copiedFrom":0}')
    async with whole_broker(tmp_path / "slave") as broker:
        assert '"T@G":{0:3}' in "".join(tables[1].read_text().split()), (
            "another start does not know that it was a slave"
        )
        for number in range(3):
            await broker.send("T", f"new{number}".encode(), queueId=0)
        received = await broker.ask(RequestCode.POP_MESSAGE, pop_fields())
        found = [(message.queue_offset, message.body) for message in decode_records(received.body)]
        assert found == [(3, b"new0"), (4, b"new1"), (5, b"new2")]
