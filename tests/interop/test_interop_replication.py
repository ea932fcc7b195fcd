"""Mixed pairs: a real RocketMQ master with a TrioMQ slave, and the other way round. Afterwards both commit logs are
equal, byte for byte, and a real client can read from either.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import interop_wire as wire
import pytest
from interop_driver_set import DriverSet
from interop_processes import wait_until

sys.path.append(str(Path(__file__).resolve().parents[1] / "replication"))

from interop_processes import pause, resume
from replication_processes import Cluster, create_topic, pull, send, send_fields, send_many

MIXED = [("apache", "triomq"), ("triomq", "apache")]
OK, SLAVE_NOT_AVAILABLE, FLUSH_SLAVE_TIMEOUT, SERVICE_NOT_AVAILABLE = 0, 11, 12, 14
GET_BROKER_RUNTIME_INFO = 28
SEND_MESSAGE_V2, END_TRANSACTION, SEND_BATCH_MESSAGE = 310, 37, 320


@contextmanager
def running(directory: Path, master: str, slave: str, **settings: str) -> Iterator[Cluster]:
    # Apache's slave is silent for haSendHeartbeatInterval after each connect.
    cluster = Cluster(directory, master, slave, **settings)
    try:
        cluster.start()
        yield cluster
    finally:
        cluster.end()


def send_all_kinds(cluster: Cluster, topic: str) -> None:
    """Send messages of every kind that has its own kind of record, delayed and half messages included."""
    with wire.Wire(cluster.master.address) as connection:
        for number in range(20):
            for properties in (
                "DELAY\u00011\u0002",
                "TRAN_MSG\u0001true\u0002PGROUP\u0001P\u0002",
                "TAGS\u0001a\u0002KEYS\u0001k\u0002",
            ):
                fields = send_fields(topic, number % 4, properties)
                fields["f"] = 4 if "TRAN_MSG" in properties else 0
                assert connection.call(SEND_MESSAGE_V2, fields, b"kinds %d" % number).code == OK


@pytest.mark.parametrize(("master", "slave"), MIXED, ids=str)
def test_mixed_pairs_have_the_same_log(peer: Path, tmp_path: Path, master: str, slave: str) -> None:
    with running(tmp_path, master, slave, slaveTimeout="1000") as cluster:
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        assert set(send_many(cluster.master, "T", 6000)) == {OK}  # over several files
        send_all_kinds(cluster, "T")
        assert send_many(cluster.slave, "T", 1) == [SERVICE_NOT_AVAILABLE]
        cluster.wait_equal()
        assert len(cluster.master.log()) > 3 << 20

        pause(cluster.slave.pid)
        assert send_many(cluster.master, "T", 1) == [FLUSH_SLAVE_TIMEOUT]
        resume(cluster.slave.pid)
        cluster.wait_replicating("T")

        cluster.slave.stop()
        wait_until(lambda: send_many(cluster.master, "T", 1) == [SLAVE_NOT_AVAILABLE], 30, "the slave's end is noticed")
        send_many(cluster.master, "T", 3000)
        # Apache's slave connects five seconds later if it has to query the NameServer for its master.
        cluster.slave.start(haMasterAddress=cluster.master.ha_address)
        cluster.wait_replicating("T")
        cluster.wait_equal()

        cluster.slave.kill()
        send_many(cluster.master, "T", 500)
        cluster.slave.start()
        cluster.wait_equal()

        cluster.master.kill()
        cluster.master.start()
        cluster.wait_replicating("T")
        assert set(send_many(cluster.master, "T", 500)) == {OK}
        cluster.wait_equal()
        wait_until(lambda: pull(cluster.slave, "T", 2, 0).code == OK, 30, "the slave knows the topic")
        wait_until(lambda: have_the_same_answers(cluster, "T"), 60, "nothing is stored while pulls are compared")


def have_the_same_answers(cluster: Cluster, topic: str) -> bool:
    """Return whether both respond alike to pulls of all messages. False if more was stored meanwhile: a master that was
    killed delivers delayed messages again some time after its start.
    """
    before = cluster.queue_ends(cluster.master, topic)
    cluster.wait_equal_queues(topic)
    unequal = []
    for queue_id in range(4):
        queue_offset = 0
        while (one := pull(cluster.master, topic, queue_id, queue_offset)).code == OK:
            other = pull(cluster.slave, topic, queue_id, queue_offset)
            queue_offset = int(one.fields["nextBeginOffset"])
            if (other.code, other.fields, other.body) != (one.code, one.fields, one.body):
                unequal.append((one, other))
        assert queue_offset > 2000
    if before != cluster.queue_ends(cluster.master, topic):
        return False
    assert not unequal, unequal[0]
    return True


@pytest.mark.parametrize(("master", "slave"), MIXED, ids=str)
def test_a_new_slave_of_a_long_log_has_its_newest_file(peer: Path, tmp_path: Path, master: str, slave: str) -> None:
    cluster = Cluster(tmp_path, master, slave)
    try:
        cluster.namesrv.start()
        cluster.master.start()
        create_topic(cluster.master, "T")
        send_many(cluster.master, "T", 5000)
        cluster.slave.start()
        cluster.wait_replicating("T")
        cluster.wait_equal()
        assert cluster.slave.log_begin() > 0
        # Queue offsets equal the master's, although the queues begin later.
        wait_until(lambda: pull(cluster.slave, "T", 0, 1249).code == OK, 30, "the slave knows the topic")
        cluster.wait_equal_queues("T")
        assert pull(cluster.slave, "T", 0, 1249).body == pull(cluster.master, "T", 0, 1249).body
    finally:
        cluster.end()


def test_a_slave_cuts_what_a_real_master_does_not_have(peer: Path, tmp_path: Path) -> None:
    cluster = Cluster(tmp_path, "apache", "triomq")
    proxy = cluster.proxy()
    own = b"only the slave has this"
    try:
        cluster.start()
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        assert set(send_many(cluster.master, "T", 300)) == {OK}
        cluster.wait_equal()
        proxy.mode = "refuse"
        proxy.break_all()
        cluster.slave.stop()
        cluster.slave.start(brokerRole="ASYNC_MASTER", brokerName="elsewhere", brokerId="0")
        with wire.Wire(cluster.slave.address) as connection:
            for _ in range(4000):
                send(connection, "T", own + bytes(400))
        send_many(cluster.master, "T", 100)
        cluster.slave.stop()
        proxy.mode = "pass"
        cluster.slave.start(brokerRole="SLAVE", brokerName="broker-a", brokerId="1")
        cluster.wait_equal(120)
        cluster.wait_replicating("T")
        assert own not in cluster.slave.log()
        assert list((cluster.slave.store / "salvage").glob("*.tail"))
    finally:
        cluster.end()


@pytest.mark.parametrize("kind", ["java4", "java5"])
def test_a_real_client_goes_on_with_the_slave(drivers: DriverSet, tmp_path: Path, kind: str) -> None:
    """Go is left out: its client queries only masters for its first offset."""
    driver = drivers(kind)
    with running(tmp_path, "triomq", "triomq") as cluster:
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        send_many(cluster.master, "T", 100)
        cluster.wait_equal()
        wait_until(lambda: pull(cluster.slave, "T", 0, 0).code == OK, 30, "the slave knows the topic")
        cluster.master.kill()
        wait_until(lambda: list(cluster.namesrv.brokers()) == ["1"], 30, "the NameServer drops the master")
        received = driver.receive(namesrv=cluster.namesrv.address, topic="T", group=f"CID_away_{kind}")
        received.wait_messages(100, 90)
        cluster.master.start()
        cluster.wait_replicating("T")
        send_many(cluster.master, "T", 20)
        received.wait_messages(120, 90)
        received.stop()


@pytest.mark.parametrize("kind", ["java4", "java5", "go"])
def test_a_real_client_that_reads_old_messages_is_sent_to_the_slave(
    drivers: DriverSet, tmp_path: Path, kind: str
) -> None:
    driver = drivers(kind)
    with running(tmp_path, "triomq", "triomq", slaveReadEnable="true", accessMessageInMemoryMaxRatio="0") as cluster:
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        assert set(send_many(cluster.master, "T", 800)) == {OK}
        wait_until(lambda: pull(cluster.slave, "T", 0, 0).code == OK, 30, "the slave knows the topic")
        before = messages_given(cluster.slave.address)
        received = driver.receive(namesrv=cluster.namesrv.address, topic="T", group=f"CID_old_{kind}")
        received.wait_messages(800, 90)
        received.stop()
        # The first response for each queue is the master's; it brings 32 messages.
        assert messages_given(cluster.slave.address) - before >= 600


def messages_given(address: str) -> int:
    table = wire.lenient_json(wire.ask(address, GET_BROKER_RUNTIME_INFO).body)["table"]
    return int(table["msgGetTotalTodayNow"])


@pytest.mark.parametrize(("slave", "promoted_id"), [("triomq", "0")])
def test_a_promoted_slave_serves_real_clients(
    drivers: DriverSet, peer: Path, tmp_path: Path, slave: str, promoted_id: str
) -> None:
    """A real master dies permanently; its TrioMQ slave takes over with all acknowledged messages."""
    driver = drivers("java4")
    with running(tmp_path, "apache", slave) as cluster:
        create_topic(cluster.master, "T")
        cluster.wait_replicating("T")
        assert set(send_many(cluster.master, "T", 200)) == {OK}
        wait_until(lambda: pull(cluster.slave, "T", 0, 0).code == OK, 30, "the slave knows the topic")
        cluster.master.kill()
        cluster.slave.stop()
        cluster.slave.start(brokerRole="ASYNC_MASTER", brokerId=promoted_id)
        wait_until(lambda: cluster.namesrv.brokers() == {"0": cluster.slave.address}, 60, "it is the master now")
        received = driver.receive(namesrv=cluster.namesrv.address, topic="T", group="CID_promoted")
        assert set(send_many(cluster.slave, "T", 50)) == {OK}
        received.wait_messages(250, 90)
        received.stop()
