"""Masters and slaves as processes: roles, promotion, kills, broken connections, a full disk. A slave has every message
that its synchronous master acknowledged, whatever happens to the master.
"""

from __future__ import annotations

import json
import random
import re
import shutil
import subprocess
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import interop_wire as wire
import pytest
import trio
from free_ports import PortTaken
from interop_processes import ProcessFailed, pause, resume, wait_until
from replication_processes import (
    GET_MAX_OFFSET,
    QUERY_CONSUMER_OFFSET,
    UPDATE_CONSUMER_OFFSET,
    Cluster,
    Traffic,
    create_topic,
    is_prefix,
    pull,
    send,
    send_fields,
    send_many,
)

from triomq.admin.__main__ import main as admin
from triomq.client.consume.push_consumer import PushConsumer
from triomq.client.core.results import ConsumeFromWhere
from triomq.protocol import signature

pytestmark = pytest.mark.slow

OK, FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE, SERVICE_NOT_AVAILABLE = 0, 12, 11, 14
DELETE_TOPIC_IN_BROKER, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 215, 200


@contextmanager
def running(cluster: Cluster) -> Iterator[Cluster]:
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


@pytest.fixture(scope="module")
def settled(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Cluster]:
    """A synchronous master with its slave, and a topic T; for tests that disturb neither."""
    with running(Cluster(tmp_path_factory.mktemp("settled"))) as cluster:
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        yield cluster


def table(cluster: Cluster, file: str) -> Any:
    """Return one of the slave's files; fastjson leaves number keys without quotes."""
    path = cluster.slave.store / "config" / file
    if not path.exists():
        return None
    try:
        return json.loads(re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', path.read_text()))
    except ValueError:
        return None


def test_a_synchronous_master_has_its_slave_acknowledge(settled: Cluster) -> None:
    assert set(send_many(settled.master, "T", 500)) == {OK}
    settled.wait_equal()


def test_a_slave_takes_no_messages_and_no_changes(settled: Cluster) -> None:
    slave = settled.slave.address
    assert send_many(settled.slave, "T", 1) == [SERVICE_NOT_AVAILABLE]
    back = wire.ask(
        slave, 36, {"offset": 0, "group": "CID_back", "delayLevel": 0, "originMsgId": "", "originTopic": "T"}
    )
    assert (back.code, "SERVICE_NOT_AVAILABLE" in back.remark) in ((1, True), (SERVICE_NOT_AVAILABLE, True)), back
    fields = {
        "topic": "New",
        "defaultTopic": "TBW102",
        "readQueueNums": 1,
        "writeQueueNums": 1,
        "perm": 6,
        "topicFilterType": "SINGLE_TAG",
        "topicSysFlag": 0,
        "order": "false",
    }
    assert wire.ask(slave, wire.UPDATE_AND_CREATE_TOPIC, fields).code == 1
    assert wire.ask(slave, DELETE_TOPIC_IN_BROKER, {"topic": "T"}).code == 1
    group = json.dumps({"groupName": "CID_new"}).encode()
    assert wire.ask(slave, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group).code == 1
    end = {"producerGroup": "P", "tranStateTableOffset": 0, "commitLogOffset": 0, "commitOrRollback": 8, "msgId": "x"}
    assert wire.ask(slave, 37, {**end, "fromTransactionCheck": "false"}).code == SLAVE_NOT_AVAILABLE


def test_a_slave_has_its_masters_tables(settled: Cluster) -> None:
    create_topic(settled.master, "Synced", queues=3)
    group = json.dumps({"groupName": "CID_synced", "retryQueueNums": 2}).encode()
    assert wire.ask(settled.master.address, UPDATE_AND_CREATE_SUBSCRIPTIONGROUP, body=group).code == 0
    offset = {"consumerGroup": "CID_synced", "topic": "Synced", "queueId": 2, "commitOffset": 77}
    assert wire.ask(settled.master.address, UPDATE_CONSUMER_OFFSET, offset).code == 0

    with wire.Wire(settled.master.address) as connection:  # so that delay level 1 gets an offset
        fields = send_fields("T", properties="DELAY\u00011\u0002")
        assert connection.call(310, fields, b"delayed").code == 0

    def is_synced() -> bool:
        topics, groups = table(settled, "topics.json"), table(settled, "subscriptionGroup.json")
        offsets, delays = table(settled, "consumerOffset.json"), table(settled, "delayOffset.json")
        return (
            bool(topics and groups and offsets and delays)
            and topics["topicConfigTable"].get("Synced", {}).get("readQueueNums") == 3
            and groups["subscriptionGroupTable"].get("CID_synced", {}).get("retryQueueNums") == 2
            and offsets["offsetTable"].get("Synced@CID_synced", {}).get("2") == 77
            and delays["offsetTable"].get("1", 0) >= 1
        )

    wait_until(is_synced, 30, "topics, groups, consumer and delay offsets are on the slave")
    query = {"consumerGroup": "CID_synced", "topic": "Synced", "queueId": 2}
    assert wire.ask(settled.slave.address, QUERY_CONSUMER_OFFSET, query).fields["offset"] == "77"


def test_a_slave_answers_pulls_with_the_same_records(settled: Cluster) -> None:
    settled.wait_equal()
    wait_until(lambda: pull(settled.slave, "T", 0, 0).code == 0, 30, "the slave knows topic T")
    settled.wait_equal_queues("T")
    one, other = pull(settled.master, "T", 0, 0), pull(settled.slave, "T", 0, 0)
    assert one.body == other.body
    assert one.fields == other.fields
    ends = [
        wire.ask(broker.address, GET_MAX_OFFSET, {"topic": "T", "queueId": 1}).fields
        for broker in (settled.master, settled.slave)
    ]
    assert ends[0] == ends[1]
    beyond = pull(settled.slave, "T", 0, 1_000_000)  # a slave does not correct offsets
    assert (beyond.code, beyond.fields["nextBeginOffset"]) == (20, "1000000")


def test_without_its_slave_a_synchronous_master_stores_and_says_so(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with running(cluster):
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        cluster.slave.stop()
        wait_until(
            lambda: set(send_many(cluster.master, "T", 1)) == {SLAVE_NOT_AVAILABLE}, 10, "the slave's end is noticed"
        )
        assert set(send_many(cluster.master, "T", 50)) == {SLAVE_NOT_AVAILABLE}
        cluster.slave.start()
        cluster.wait_replicating("T")
        cluster.wait_equal()


def test_a_slave_that_stands_still_is_waited_for_and_then_given_up(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, slaveTimeout="1000", haHousekeepingInterval="2500", haSendHeartbeatInterval="500")
    with running(cluster):
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        pause(cluster.slave.pid)
        try:
            assert send_many(cluster.master, "T", 1) == [FLUSH_SLAVE_TIMEOUT]
            wait_until(lambda: send_many(cluster.master, "T", 1) == [SLAVE_NOT_AVAILABLE], 20, "the slave is given up")
        finally:
            resume(cluster.slave.pid)
        cluster.wait_replicating("T")
        cluster.wait_equal()


@pytest.mark.parametrize("fault", ["broken", "swallowed", "slow"])
def test_bad_lines_lose_nothing(tmp_path: Path, fault: str) -> None:
    cluster = Cluster(tmp_path, haHousekeepingInterval="2500", haSendHeartbeatInterval="500", slaveTimeout="500")
    proxy = cluster.proxy()
    with running(cluster):
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        traffic = Traffic(cluster.master, "T")
        try:
            for round_number in range(6 if fault == "broken" else 3):
                before = len(traffic.acknowledged)
                if fault == "broken":
                    proxy.break_all()
                elif fault == "swallowed":
                    proxy.mode = "swallow"
                    made = proxy.connections
                    wait_until(lambda made=made: proxy.connections > made, 30, "the dead line is given up")
                    proxy.mode = "pass"
                    proxy.break_all()
                else:
                    proxy.delay_seconds = 0.05 * round_number
                wait_until(
                    lambda before=before: len(traffic.acknowledged) > before + 10,
                    40,
                    f"sends go on, round {round_number}",
                )
        finally:
            traffic.stop()
        proxy.delay_seconds = 0
        cluster.wait_equal()
        kept = cluster.slave.log()
        assert [body for body in traffic.acknowledged if body not in kept] == []


def test_kills_of_either_side_lose_nothing_that_was_acknowledged(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, flushDiskType="SYNC_FLUSH", slaveTimeout="1000")
    choice = random.Random(497)
    cluster.slave.settings["haMasterAddress"] = cluster.master.ha_address
    with running(cluster):
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        traffic = Traffic(cluster.master, "T")
        try:
            for round_number in range(5):
                before = len(traffic.acknowledged)
                victims = (
                    [choice.choice([cluster.master, cluster.slave])]
                    if round_number % 4
                    else [cluster.master, cluster.slave]
                )
                for victim in victims:
                    victim.kill()
                for victim in victims:
                    victim.start()
                wait_until(
                    lambda before=before: len(traffic.acknowledged) > before + choice.randint(10, 60),
                    60,
                    f"sends are acknowledged again after kill {round_number}",
                )
        finally:
            traffic.stop()
        # The master and its disk are lost: the slave takes over.
        cluster.master.kill()
        shutil.rmtree(cluster.master.directory)
        cluster.slave.stop()
        cluster.slave.start(brokerRole="ASYNC_MASTER", brokerId="0", haMasterAddress="")
        kept = cluster.slave.log()
        assert len(traffic.acknowledged) > 50
        assert [body for body in traffic.acknowledged if body not in kept] == []
        assert send_many(cluster.slave, "T", 5) == [OK] * 5
        found = 0
        for queue_id in range(4):
            end = int(
                wire.ask(cluster.slave.address, GET_MAX_OFFSET, {"topic": "T", "queueId": queue_id}).fields["offset"]
            )
            assert pull(cluster.slave, "T", queue_id, end - 1).code == OK
            found += end
        assert found >= len(traffic.acknowledged)


def copied_from(store: Path) -> int:
    """The physical offset from which on a slave's log came from a master."""
    offset: int = json.loads((store / "config" / "copied.json").read_text())["copiedFrom"]
    return offset


def test_a_promoted_slave_is_followed_by_its_former_master(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    proxy = cluster.proxy()
    with running(cluster):
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        assert set(send_many(cluster.master, "T", 300)) == {OK}
        cluster.wait_equal()
        wait_until(lambda: pull(cluster.slave, "T", 0, 0).code == 0, 30, "the slave knows the topic")
        proxy.mode = "refuse"
        proxy.break_all()
        wait_until(lambda: send_many(cluster.master, "T", 1) != [OK], 20, "the master is alone")
        assert copied_from(cluster.slave.store) == 0
        own = b"only the former master has this"
        with wire.Wire(cluster.master.address) as connection:
            for _ in range(3000):  # over a file end
                send(connection, "T", own + bytes(400))
        cluster.master.kill()

        cluster.slave.stop()
        cluster.slave.start(brokerRole="SYNC_MASTER", brokerId="0", haMasterAddress="")
        wait_until(lambda: cluster.namesrv.brokers() == {"0": cluster.slave.address}, 60, "the slave is the master now")
        assert set(send_many(cluster.slave, "T", 100)) == {SLAVE_NOT_AVAILABLE}
        assert copied_from(cluster.slave.store) == -1, "it writes itself now"

        cluster.master.start(brokerRole="SLAVE", brokerId="1", haMasterAddress=cluster.slave.ha_address)
        wait_until(
            lambda: cluster.namesrv.brokers() == {"0": cluster.slave.address, "1": cluster.master.address},
            60,
            "the former master is a slave now",
        )
        wait_until(lambda: send_many(cluster.slave, "T", 1) == [OK], 60, "the former master acknowledges")
        cluster.wait_equal()
        assert own not in cluster.master.log()
        saved = b"".join(path.read_bytes() for path in (cluster.master.store / "salvage").glob("*.tail"))
        assert saved.count(own) == 3000


def test_an_empty_master_gets_nothing_deleted_on_its_slave(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with running(cluster):
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        assert set(send_many(cluster.master, "T", 300)) == {OK}
        cluster.wait_equal()
        kept = cluster.slave.log()
        wait_until(lambda: pull(cluster.slave, "T", 0, 0).code == OK, 30, "the slave knows the topic")
        cluster.master.kill()
        shutil.rmtree(cluster.master.store)
        cluster.master.start()
        send_many(cluster.master, "Other", 5)

        def is_refused() -> bool:
            texts = [path.read_text(errors="replace") for path in cluster.slave.directory.rglob("*.log")]
            return any("replication refused" in text for text in texts)

        wait_until(is_refused, 60, "the slave refuses the other log")
        assert cluster.slave.log() == kept
        assert pull(cluster.slave, "T", 0, 0).code == OK


def test_a_slave_far_behind_catches_up(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, mappedFileSizeCommitLog=str(16 << 20), brokerRole="ASYNC_MASTER")
    cluster.master.settings["brokerRole"] = "ASYNC_MASTER"
    cluster.slave.settings["brokerRole"] = "SLAVE"
    with running(cluster):
        create_topic(cluster.master, "T")
        assert set(send_many(cluster.master, "T", 5)) == {OK}
        cluster.wait_equal()
        cluster.slave.kill()
        assert set(send_many(cluster.master, "T", 700, body=bytes(100_000))) == {OK}
        cluster.slave.start()
        cluster.wait_equal(120)


def test_a_full_disk_of_the_slave_hurts_nobody_else(tmp_path: Path) -> None:
    mount = tmp_path / "disk"
    mount.mkdir()
    size = ["-o", "size=8m"]
    if subprocess.run(["mount", "-t", "tmpfs", *size, "none", str(mount)], capture_output=True, check=False).returncode:
        pytest.skip("a small file system of its own: mounting is not allowed here")
    cluster = Cluster(tmp_path / "cluster", slaveTimeout="500")
    cluster.slave.settings["storePathRootDir"] = str(mount / "store")
    cluster.slave.settings["storePathCommitLog"] = str(mount / "store" / "commitlog")
    cluster.slave.store = mount / "store"
    try:
        with running(cluster):
            create_topic(cluster.master, "T")
            cluster.wait_replicating("T")
            codes = send_many(cluster.master, "T", 100, bytes(100_000))
            assert codes[0] == OK
            assert set(codes[-1:]) <= {FLUSH_SLAVE_TIMEOUT, SLAVE_NOT_AVAILABLE}
            assert is_prefix(cluster.slave, cluster.master)
            assert cluster.slave.daemon is not None
            assert cluster.slave.daemon.child is not None
            assert cluster.slave.daemon.child.process.poll() is None
            subprocess.run(["mount", "-o", "remount,size=64m", str(mount)], check=True)
            cluster.wait_equal()
            cluster.wait_replicating("T")
    finally:
        cluster.end()
        subprocess.run(["umount", "-l", str(mount)], check=False)


def test_a_slave_without_an_id_of_its_own_does_not_start(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    with pytest.raises(ProcessFailed, match="brokerId"):
        cluster.slave.start(brokerId="0")
    cluster.end()


def test_a_broker_names_its_ha_port_when_that_is_taken(tmp_path: Path) -> None:
    import socket

    cluster = Cluster(tmp_path)
    with socket.create_server(("127.0.0.1", cluster.master.port + 1)), pytest.raises(PortTaken, match="HA port"):
        cluster.master.start_here()
    cluster.end()


async def test_a_consumer_reads_from_the_slave_while_the_master_is_away(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path)
    in_thread = trio.to_thread.run_sync
    try:
        await in_thread(cluster.start)
        await in_thread(create_topic, cluster.master, "T")
        await in_thread(cluster.wait_replicating, "T")
        await in_thread(send_many, cluster.master, "T", 200)
        await in_thread(cluster.wait_equal)
        await in_thread(wait_until, lambda: pull(cluster.slave, "T", 0, 0).code == 0, 30, "the slave knows the topic")
        await in_thread(cluster.master.kill)
        await in_thread(
            wait_until, lambda: list(cluster.namesrv.brokers()) == ["1"], 30, "the NameServer drops the master"
        )
        received: list[bytes] = []
        consumer = PushConsumer(
            "CID_away", name_server=cluster.namesrv.address, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
        )
        consumer.subscribe("T")
        consumer.listen(lambda message: received.append(message.body))
        async with consumer:
            with trio.fail_after(60):
                while len(set(received)) < 200:  # noqa: ASYNC110
                    await trio.sleep(0.05)
            await in_thread(cluster.master.start)
            await in_thread(cluster.wait_replicating, "T")
            await in_thread(send_many, cluster.master, "T", 20, b"after the return")
            with trio.fail_after(90):
                while sum(body.endswith(b"after the return") for body in set(received)) < 20:  # noqa: ASYNC110
                    await trio.sleep(0.05)
    finally:
        await in_thread(cluster.end)


def test_consumers_of_old_messages_are_sent_to_the_slave(tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, slaveReadEnable="true", accessMessageInMemoryMaxRatio="0")
    with running(cluster):
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        assert set(send_many(cluster.master, "T", 300)) == {OK}
        old, new = pull(cluster.master, "T", 0, 0), pull(cluster.master, "T", 3, 74)
        assert old.fields["suggestWhichBrokerId"] == "1"
        wait_until(lambda: pull(cluster.slave, "T", 0, 0).code == 0, 30, "the slave knows the topic")
        cluster.wait_equal_queues("T")
        assert pull(cluster.slave, "T", 0, 0).body == old.body
        assert new.fields["suggestWhichBrokerId"] in ("0", "1")


def test_a_slave_gets_the_tables_of_a_master_with_access_control(tmp_path: Path) -> None:
    """It signs with the account in its tools file."""
    account = "accessKey: operator\nsecretKey: secretOfOperator\n"
    (tmp_path / "conf").mkdir()
    bound = account.replace("\n", "\n  ") + "admin: true\n  boundSignature: true\n"
    (tmp_path / "conf/plain_acl.yml").write_text(f"accounts:\n- {bound}")
    (tmp_path / "conf/tools.yml").write_text(account)
    with running(Cluster(tmp_path / "cluster", aclEnable="true", rocketmqHome=str(tmp_path))) as cluster:
        fields = {
            "topic": "Guarded",
            "defaultTopic": "TBW102",
            "readQueueNums": "1",
            "writeQueueNums": "1",
            "perm": "6",
            "topicFilterType": "SINGLE_TAG",
        }
        who = ("operator", "secretOfOperator")
        signed_at = signature.stamp(time.time_ns() // 1_000_000, b"once")
        fields = signature.sign_bound(wire.UPDATE_AND_CREATE_TOPIC, fields, b"", *who, signed_at=signed_at)
        assert wire.ask(cluster.master.address, wire.UPDATE_AND_CREATE_TOPIC, fields).code == 0

        def is_copied() -> bool:
            topics = table(cluster, "topics.json")
            return topics is not None and "Guarded" in topics["topicConfigTable"]

        wait_until(is_copied, 40, "the slave has the master's topic")


def test_the_administrator_sees_that_a_slave_is_in_step(settled: Cluster, capsys: pytest.CaptureFixture[str]) -> None:
    settled.wait_equal()
    words = ["check", "replication", "-w", "0", "-c", "0", "-n", settled.namesrv.address, "--output", "json"]
    assert admin(words) == 0
    [item] = json.loads(capsys.readouterr().out)
    assert (item["status"], item["subject"], item["value"]) == ("OK", "broker-a/1", 0)
