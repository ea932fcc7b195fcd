"""The client against TrioMQ and against real Apache RocketMQ 4.9.7 and 5."""

from __future__ import annotations

import threading
from datetime import datetime, timedelta
from functools import partial
from pathlib import Path

import pytest
import trio
from client_cluster import LIMIT_SECONDS, Cluster, fresh, make_topic, send_all, until, until_findable

from triomq.client.api import (
    BrokerUnreachable,
    ConsumeFromWhere,
    ConsumeRules,
    ConsumeStatus,
    Message,
    MessageExt,
    MessageModel,
    MessageQueue,
    NameServersUnreachable,
    NoRoute,
    Producer,
    PullConsumer,
    PullResult,
    PullStatus,
    PushConsumer,
    RetryLater,
    SendStatus,
)
from triomq.client.core.config import ClientConfig
from triomq.client.instance.client import Client


async def test_what_is_sent_arrives(cluster: Cluster) -> None:
    topic = fresh()
    sent = Message(topic, b"x" * 9000, tags="tag", keys="k1 k2", flag=7, properties={"colour": "rot \N{SNOWMAN}"})
    async with Producer(fresh("P"), name_server=cluster.name_server) as producer:
        result = await producer.send(sent)
        assert result.status is SendStatus.SEND_OK
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(fresh("G"), name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic)
            message = await consumer.__anext__()
    assert (message.topic, message.body, message.tags, message.flag) == (topic, sent.body, "tag", 7)
    assert message.key_list == ["k1", "k2"]
    assert message.properties["colour"] == "rot \N{SNOWMAN}"
    assert (message.msg_id, message.offset_msg_id) == (result.message_id, result.offset_message_id)
    assert (message.queue_id, message.queue_offset) == (result.queue.queue_id, result.queue_offset)


async def test_a_message_is_acknowledged_by_asking_for_the_next(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"1", b"2", b"3"])
    got: list[bytes] = []
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(group, name_server=cluster.name_server, rules=ConsumeRules(concurrency=1)) as consumer:
            consumer.subscribe(topic)
            async for message in consumer:
                got.append(message.body)
                if len(got) == 2:
                    break
        async with PushConsumer(group, name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic)
            again = []
            async for message in consumer:
                again.append(message.body)
                if len(again) == 2:
                    consumer.ack()
                    break
        assert sorted([got[0], *again]) == [b"1", b"2", b"3"]
        async with PushConsumer(group, name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic)
            await consumer.wait_assigned(topic)
            await send_all(cluster, topic, [b"4"])
            assert (await consumer.receive()).message.body == b"4"


async def test_only_the_tags_asked_for(cluster: Cluster) -> None:
    topic = fresh()
    # "Aa" and "BB" have the same hash in Java, so the broker cannot tell them apart.
    for tag in ("Aa", "BB", "C"):
        await send_all(cluster, topic, [tag.encode()], tags=tag)
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(fresh("G"), name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic, "BB || C")
            assert {(await consumer.__anext__()).body for _ in range(2)} == {b"BB", b"C"}


async def test_sql_conditions(cluster: Cluster) -> None:
    topic = fresh()
    async with Producer(fresh("P"), name_server=cluster.name_server) as producer:
        for number in range(6):
            await producer.send(Message(topic, b"%d" % number, properties={"a": str(number)}))
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(fresh("G"), name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic, "a BETWEEN 2 AND 3", sql=True)
            assert {(await consumer.__anext__()).body for _ in range(2)} == {b"2", b"3"}


async def test_a_failed_message_comes_back_and_ends_in_the_dead_letter_topic(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"poison", b"good"])
    times: list[int] = []
    threads: set[str] = set()
    good = threading.Event()

    def handle(message: MessageExt) -> ConsumeStatus:
        threads.add(threading.current_thread().name)
        if message.body == b"good":
            good.set()
            return ConsumeStatus.CONSUME_SUCCESS
        assert message.topic == topic
        times.append(message.reconsume_times)
        if len(times) == 1:
            raise RuntimeError("first time")
        return ConsumeStatus.RECONSUME_LATER

    with trio.fail_after(LIMIT_SECONDS):
        rules = ConsumeRules(max_reconsume_times=2)
        async with PushConsumer(group, name_server=cluster.name_server, rules=rules) as consumer:
            consumer.subscribe(topic)
            consumer.listen(handle)
            async with PushConsumer(
                fresh("G"), name_server=cluster.name_server, consume_from=ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET
            ) as undertaker:
                undertaker.subscribe(f"%DLQ%{group}")
                dead = await undertaker.__anext__()
    assert times == [0, 1, 2]
    assert good.is_set()
    assert dead.body == b"poison"
    assert dead.properties["RETRY_TOPIC"] == topic
    assert threading.main_thread().name not in threads


async def test_retry_later_and_straight_to_the_dead_letter_topic(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"m"])
    seen: list[int] = []
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(group, name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic)
            async for message in consumer:
                seen.append(message.reconsume_times)
                if len(seen) == 2:
                    consumer.retry_later(delay_level=-1)
                    break
                consumer.retry_later(delay_level=1)
            async with PullConsumer(fresh("G"), name_server=cluster.name_server) as puller:
                queue = MessageQueue(f"%DLQ%{group}", "broker-a", 0)
                while True:
                    try:
                        result = await puller.pull(queue, "*", 0)
                    except NoRoute:
                        await trio.sleep(0.1)
                        continue
                    if result.status is PullStatus.FOUND:
                        break
    assert seen == [0, 1]
    assert [message.body for message in result.messages] == [b"m"]


async def test_ordered_consuming_keeps_the_order_of_each_queue(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    async with Producer(fresh("P"), name_server=cluster.name_server) as producer:
        for number in range(30):
            key = f"order-{number % 3}"
            await producer.send(Message(topic, b"%d" % number, keys=key), sharding_key=key)
    seen: list[MessageExt] = []
    failed: list[bytes] = []
    done = trio.Event()

    async def handle(message: MessageExt) -> None:
        if message.body == b"4" and len(failed) < 2:
            failed.append(message.body)
            raise RetryLater
        seen.append(message)
        if len(seen) == 30:
            done.set()

    rules = ConsumeRules(suspend_seconds=0.1)
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(group, name_server=cluster.name_server, ordered=True, rules=rules) as consumer:
            consumer.subscribe(topic)
            consumer.listen(handle)
            await done.wait()
    assert failed == [b"4", b"4"]
    for number in range(3):
        of_key = [int(message.body) for message in seen if message.keys == f"order-{number}"]
        assert of_key == list(range(number, 30, 3))


def of_topic(consumer: PushConsumer, topic: str) -> list[MessageQueue]:
    return [queue for queue in consumer.assigned_queues if queue.topic == topic]


async def test_members_share_the_queues_and_take_over(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"first"])
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(group, name_server=cluster.name_server) as one:
            one.subscribe(topic)
            one.listen(lambda message: None)
            await until(lambda: len(of_topic(one, topic)) == 4)
            async with PushConsumer(group, name_server=cluster.name_server) as two:
                two.subscribe(topic)
                two.listen(lambda message: None)

                def shared() -> bool:
                    first, second = (set(of_topic(member, topic)) for member in (one, two))
                    return len(first) == len(second) == 2 and not first & second

                await until(shared)
            await until(lambda: len(of_topic(one, topic)) == 4)


def was_consumed(consumer: PushConsumer, topic: str) -> bool:
    return any(consumer.consume_offsets(topic).values())


async def test_broadcasting_gives_everything_to_everyone_and_goes_on(cluster: Cluster, tmp_path: Path) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"old"])

    def member(name: str) -> PushConsumer:
        return PushConsumer(
            group,
            name_server=cluster.name_server,
            model=MessageModel.BROADCASTING,
            instance_name=name,
            offset_directory=tmp_path,
        )

    with trio.fail_after(LIMIT_SECONDS):
        async with member("one") as one, member("two") as two:
            for consumer in (one, two):
                consumer.subscribe(topic)
                await consumer.wait_assigned(topic)
            await send_all(cluster, topic, [b"a"])
            for consumer in (one, two):
                assert (await consumer.__anext__()).body == b"a"
                consumer.ack()
                await until(partial(was_consumed, consumer, topic))
        await send_all(cluster, topic, [b"while away"])
        async with member("one") as one:
            one.subscribe(topic)
            assert (await one.__anext__()).body == b"while away"


async def test_from_a_point_in_time(cluster: Cluster) -> None:
    topic = fresh()
    await send_all(cluster, topic, [b"old"] * 4)
    await trio.sleep(1.1)
    moment = datetime.now() - timedelta(seconds=0.5)
    await send_all(cluster, topic, [b"new"] * 4)
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(
            fresh("G"),
            name_server=cluster.name_server,
            consume_from=ConsumeFromWhere.CONSUME_FROM_TIMESTAMP,
            consume_from_time=moment,
        ) as consumer:
            consumer.subscribe(topic)
            # Real 4.9.7 starts a group without offsets at 0 if the whole queue is in memory, so this tests the search
            # itself.
            await consumer.wait_assigned(topic)
        async with PullConsumer(fresh("G"), name_server=cluster.name_server) as puller:
            for queue in await puller.queues(topic):
                at = await puller.search_offset(queue, int(moment.timestamp() * 1000))
                assert (await puller.pull(queue, "*", at, wait=True)).messages[0].body in (b"old", b"new")
                end_ms = int(datetime.now().timestamp() * 1000)
                # For a time after the last message, 4.9 returns that message, 5.x the offset after it.
                end = await puller.max_offset(queue)
                assert await puller.search_offset(queue, end_ms) in (end - 1, end)


async def test_delayed_messages_wait(cluster: Cluster) -> None:
    topic = await make_topic(cluster)
    with trio.fail_after(LIMIT_SECONDS):
        async with PushConsumer(fresh("G"), name_server=cluster.name_server) as consumer:
            consumer.subscribe(topic)
            await consumer.wait_assigned(topic)
            message = Message(topic, b"later")
            message.delay_level = 1
            async with Producer(fresh("P"), name_server=cluster.name_server) as producer:
                await producer.send(message)
            got = await consumer.__anext__()
    assert got.body == b"later"
    assert got.store_timestamp - got.born_timestamp >= 900


async def test_batches_oneway_and_chosen_queues(cluster: Cluster) -> None:
    topic = fresh()
    async with Producer(fresh("P"), name_server=cluster.name_server) as producer:
        await producer.send(Message(topic, b"make the topic"))
        queues = await producer.queues(topic)
        results = await producer.send_batch(
            [Message(topic, b"%03d" % number * 100) for number in range(50)], queue=queues[1], max_batch_bytes=4000
        )
        assert len(results) > 1
        assert {result.queue for result in results} == {queues[1]}
        chosen = await producer.send(Message(topic, b"c"), selector=lambda all_, m, arg: all_[arg], selector_argument=2)
        assert chosen.queue == queues[2]
        await producer.send_oneway(Message(topic, b"nobody answers"), queue=queues[3])
    await until_findable(cluster, topic, [chosen])
    async with PullConsumer(fresh("G"), name_server=cluster.name_server) as puller:
        bodies: list[bytes] = []
        at = 0
        while len(bodies) < 50:
            result = await puller.pull(queues[1], "*", at, wait=True)
            bodies += [message.body for message in result.messages if message.body != b"make the topic"]
            at = result.next_begin_offset
        assert bodies == [b"%03d" % number * 100 for number in range(50)]
        assert (await puller.pull(queues[3], "*", 0, wait=True)).status is PullStatus.FOUND


async def test_pulling_by_hand(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    queue = (await send_all(cluster, topic, [b"1"]))[0]
    async with PullConsumer(group, name_server=cluster.name_server) as puller:
        assert queue in await puller.queues(topic)
        found = await puller.pull(queue, "*", 0)
        assert (found.status, found.next_begin_offset, found.max_offset) == (PullStatus.FOUND, 1, 1)
        assert (await puller.pull(queue, "other tag", 0)).status is PullStatus.NO_MATCHED_MSG
        assert (await puller.pull(queue, "*", 1)).status is PullStatus.NO_NEW_MSG
        moved = await puller.pull(queue, "*", 99)
        assert (moved.status, moved.next_begin_offset) == (PullStatus.OFFSET_ILLEGAL, 1)
        await puller.commit(queue, 1)
        assert await puller.committed_offset(queue, from_store=True) == 1
        assert await puller.min_offset(queue) == 0
        assert await puller.earliest_store_time_ms(queue) > 0


async def test_a_pull_that_the_broker_holds(cluster: Cluster) -> None:
    topic = fresh()
    queue = (await send_all(cluster, topic, [b"1"]))[0]
    # Apache's broker checks the deadlines of held pulls every five seconds.
    for hold_seconds, is_sent in ((0.3, False), (LIMIT_SECONDS, True)):
        if cluster.is_apache and not is_sent:
            continue
        async with (
            PullConsumer(fresh("G"), name_server=cluster.name_server, suspend_seconds=hold_seconds) as puller,
            Producer(fresh("P"), name_server=cluster.name_server) as producer,
        ):
            results: list[PullResult] = []

            async def pull(puller: PullConsumer = puller, results: list[PullResult] = results) -> None:
                results.append(await puller.pull(queue, "*", 1, wait=True))

            async with trio.open_nursery() as nursery:
                nursery.start_soon(pull)
                if is_sent:
                    await producer.send(Message(topic, b"2"), queue=queue)
        assert [result.status for result in results] == [PullStatus.FOUND if is_sent else PullStatus.NO_NEW_MSG]


async def test_one_client_for_many(cluster: Cluster) -> None:
    topic = await make_topic(cluster)
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            Client(ClientConfig(name_server=cluster.name_server)) as client,
            Producer(fresh("P"), client=client) as producer,
            PushConsumer(fresh("G"), client=client) as consumer,
            PushConsumer(fresh("G"), client=client) as other,
        ):
            for one in (consumer, other):
                one.subscribe(topic)
                await one.wait_assigned(topic)
            await producer.send(Message(topic, b"m"))
            assert (await consumer.__anext__()).body == (await other.__anext__()).body == b"m"


async def test_namespaces_do_not_show(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    with trio.fail_after(LIMIT_SECONDS):
        async with Producer(fresh("P"), name_server=cluster.name_server, namespace="INST") as producer:
            result = await producer.send(Message(topic, b"m"))
            assert result.queue.topic == topic
        async with PushConsumer(group, name_server=cluster.name_server, namespace="INST") as consumer:
            consumer.subscribe(topic)
            message = await consumer.__anext__()
            assert (message.topic, message.properties["INSTANCE_ID"]) == (topic, "INST")
            consumer.retry_later(1)
            message = await consumer.__anext__()
            assert (message.topic, message.reconsume_times) == (topic, 1)
        async with PullConsumer(group, name_server=cluster.name_server) as puller:
            assert await puller.queues(f"INST%{topic}")


async def test_unknown_topics_and_absent_servers_are_named(cluster: Cluster) -> None:
    async with PullConsumer(fresh("G"), name_server=cluster.name_server) as puller:
        with pytest.raises(NoRoute, match="updateTopic") as caught:
            await puller.queues("NoSuchTopic")
        assert cluster.name_server in str(caught.value)
    nowhere = "127.0.0.1:1"
    async with Producer(fresh("P"), name_server=[nowhere], send_timeout_seconds=1) as producer:
        with pytest.raises(NameServersUnreachable, match=nowhere):
            await producer.send(Message("T", b"b"))
    async with Producer(fresh("P"), name_server=[nowhere, cluster.name_server]) as producer:
        assert (await producer.send(Message(fresh(), b"b"))).status is SendStatus.SEND_OK
    assert issubclass(BrokerUnreachable, Exception)


async def test_an_error_in_the_block_comes_out_as_it_is(cluster: Cluster) -> None:
    class Own(Exception):
        pass

    with pytest.raises(Own):
        async with PushConsumer(fresh("G"), name_server=cluster.name_server) as consumer:
            consumer.subscribe(fresh())
            raise Own
    with trio.move_on_after(0.5) as scope:
        async with PushConsumer(fresh("G"), name_server=cluster.name_server) as consumer:
            consumer.subscribe(fresh())
            await trio.sleep_forever()
    assert scope.cancelled_caught
