"""Programs written for the old rocketmq-client-python."""

from __future__ import annotations

import threading

import pytest
from client_cluster import LIMIT_SECONDS, Cluster, fresh

from triomq.client import compat
from triomq.client.facades import blocking


def producer(cluster: Cluster) -> compat.Producer:
    made = compat.Producer(fresh("PID"))
    made.set_name_server_address(cluster.name_server)
    made.start()
    return made


def message(topic: str, body: str) -> compat.Message:
    made = compat.Message(topic)
    made.set_keys("key")
    made.set_tags("tag")
    made.set_property("property", "value")
    made.set_body(body)
    return made


def test_sending_and_consuming(triomq: Cluster) -> None:
    topic = fresh()
    sending = producer(triomq)
    result = sending.send_sync(message(topic, "eins"))
    assert (result.status, result.offset) == (compat.SendStatus.OK, 0)
    sending.send_oneway(message(topic, "zwei"))
    sending.send_orderly_with_sharding_key(message(topic, "drei"), "k")
    sending.send_orderly(message(topic, "vier"), 3, queue_select_callback=lambda count, _message, arg: arg % count)
    sending.shutdown()
    seen: dict[str, compat.RecvMessage] = {}
    done = threading.Event()
    attempts: list[int] = []

    def callback(received: compat.RecvMessage) -> compat.ConsumeStatus:
        attempts.append(received.reconsume_times)
        if str(received) == "eins" and received.reconsume_times == 0:
            return compat.ConsumeStatus.RECONSUME_LATER
        seen[str(received)] = received
        if len(seen) == 4:
            done.set()
        return compat.ConsumeStatus.CONSUME_SUCCESS

    consumer = compat.PushConsumer(fresh("CID"))
    consumer.set_name_server_address(triomq.name_server)
    consumer.set_thread_count(2)
    consumer.subscribe(topic, callback)
    consumer.start()
    assert done.wait(LIMIT_SECONDS)
    consumer.shutdown()
    one = seen["eins"]
    assert (one.topic, one.tags, one.keys, one["property"]) == (topic, b"tag", b"key", b"value")
    assert one.get_property(compat.MessageProperty.TAGS) == b"tag"
    assert one.get_property("absent") == b""
    assert (one.id, one.reconsume_times, bytes(one)) == (result.msg_id, 1, b"eins")
    assert seen["vier"].queue_id == 3


def test_pulling(triomq: Cluster) -> None:
    topic = fresh()
    with blocking.Admin(name_server=triomq.name_server) as admin:
        admin.create_topic(topic, read_queues=4, write_queues=4)
    sending = producer(triomq)
    for number in range(5):
        sending.send_sync(message(topic, str(number)))
    sending.shutdown()
    with pulling(triomq) as consumer:
        assert sorted(str(one) for one in consumer.pull(topic)) == list("01234")
        assert list(consumer.pull(topic)) == []


def pulling(cluster: Cluster) -> compat.PullConsumer:
    consumer = compat.PullConsumer(fresh("CID"))
    consumer.set_namesrv_addr(cluster.name_server)
    return consumer


def test_transactions(triomq: Cluster) -> None:
    topic = fresh()
    executed: list[compat.ReceivedMessage] = []

    def remember_and_answer(half: compat.ReceivedMessage, argument: object) -> compat.TransactionStatus:
        executed.append(half)
        assert isinstance(argument, compat.TransactionStatus)
        return argument

    sending = compat.TransactionMQProducer(fresh("PID"), lambda received: compat.TransactionStatus.UNKNOWN)
    sending.set_name_server_address(triomq.name_server)
    with sending:
        for status in (compat.TransactionStatus.ROLLBACK, compat.TransactionStatus.COMMIT):
            sending.send_message_in_transaction(message(topic, status.name), remember_and_answer, status)
    seen: list[str] = []
    done = threading.Event()

    def callback(received: compat.RecvMessage) -> None:
        seen.append(str(received))
        done.set()

    consumer = compat.PushConsumer(fresh("CID"))
    consumer.set_name_server_address(triomq.name_server)
    consumer.subscribe(topic, callback)
    with consumer:
        assert done.wait(LIMIT_SECONDS)
    assert seen == ["COMMIT"]
    assert [(str(half), len(half.id)) for half in executed] == [("ROLLBACK", 32), ("COMMIT", 32)]


def test_failures_have_the_old_names(triomq: Cluster) -> None:
    with pytest.raises(compat.ProducerStartFailed, match="nowhere"):
        unknown = compat.Producer("P", timeout=1000, compress_level=9, max_message_size=10)
        unknown.set_name_server_domain("nowhere.invalid")
        unknown.start()
    small = compat.Producer("P", max_message_size=10)
    small.set_name_server_address(triomq.name_server)
    with small, pytest.raises(compat.ProducerSendSyncFailed, match="max_message_bytes=10"):
        small.send_sync(message("T", "more than ten bytes"))


def test_a_producer_that_was_not_started_says_so(triomq: Cluster) -> None:
    with pytest.raises(compat.RocketMQException, match="start"):
        compat.Producer("P").send_sync(message("T", "b"))
