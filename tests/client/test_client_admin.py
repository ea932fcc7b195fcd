"""Administration, consumer running info, offset resets and message trace, against TrioMQ and Apache RocketMQ."""

from __future__ import annotations

from functools import partial

import pytest
import trio
from client_cluster import LIMIT_SECONDS, LOOK_SECONDS, Cluster, fresh, send_all, trace_lines, until, until_answer

from triomq.client.administer.admin import Admin, TrackType
from triomq.client.api import (
    BrokerRefused,
    ConfigurationError,
    ConsumeRules,
    Message,
    MessageExt,
    NoRoute,
    Producer,
    PushConsumer,
)
from triomq.protocol.bodies.subscription_group import SubscriptionGroupConfig
from triomq.protocol.codes import ResponseCode
from triomq.protocol.system_topics import TRACE_TOPIC


async def until_caught_up(admin: Admin, group: str, topic: str) -> None:
    """Wait until the broker's offsets of a group are at the end. On a busy machine a consumer may have closed before
    the response to its last update arrived.
    """

    async def caught_up() -> bool:
        return (await admin.consume_stats(group, topic)).total_diff() == 0

    await until_answer(caught_up)


async def test_topics_live_and_die(cluster: Cluster) -> None:
    topic = fresh()
    async with Admin(name_server=cluster.name_server) as admin:
        assert await admin.create_topic(topic, read_queues=3, write_queues=2, perm=6) == [cluster.broker]
        config = await admin.topic_config(cluster.broker, topic)
        assert config is not None
        assert (config.read_queue_nums, config.write_queue_nums, config.perm) == (3, 2, 6)
        assert topic in await admin.topics()
        assert topic in await admin.topics(cluster="DefaultCluster")
        assert await admin.topic_clusters(topic) == ["DefaultCluster"]
        assert [queue.queue_id for queue in await admin.topic_queues(topic)] == [0, 1, 2]
        await send_all(cluster, topic, [b"1", b"2", b"3"])
        assert sum(one.max_offset for one in (await admin.topic_stats(topic)).offset_table.values()) == 3
        await admin.delete_topic(topic)
        with pytest.raises(NoRoute):
            await admin.route(topic)
        assert topic not in await admin.topics()
        with pytest.raises(BrokerRefused, match="conflict with system topic"):
            await admin.create_topic("TBW102")
        with pytest.raises(ConfigurationError, match="DefaultCluster"):
            await admin.create_topic(topic, cluster="NoSuchCluster")


async def test_ordered_topics_have_an_order_configuration(cluster: Cluster) -> None:
    topic = fresh()
    async with Admin(name_server=cluster.name_server) as admin:
        await admin.create_topic(topic, write_queues=4, read_queues=4, ordered=True)
        assert await admin.order_conf(topic) == "broker-a:4"
        assert (await admin.kv_table("ORDER_TOPIC_CONFIG"))[topic] == "broker-a:4"
        await admin.delete_order_conf(topic)
        assert await admin.order_conf(topic) is None
        assert await admin.kv_table("no such namespace") == {}


async def test_groups_progress_and_offsets(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    queues = await send_all(cluster, topic, [b"%d" % number for number in range(8)])
    async with Admin(name_server=cluster.name_server) as admin:
        await admin.create_group(SubscriptionGroupConfig(group_name=group, retry_max_times=3))
        config = await admin.group_config(cluster.broker, group)
        assert config is not None
        assert config.retry_max_times == 3
        with trio.fail_after(LIMIT_SECONDS):
            async with PushConsumer(group, name_server=cluster.name_server) as consumer:
                consumer.subscribe(topic)
                consumer.listen(lambda message: None)
                await until(lambda: sum(consumer.consume_offsets(topic).values()) == 8)
        await until_caught_up(admin, group, topic)
        assert group in await admin.groups_of_topic(topic)
        queue = queues[0]
        assert await admin.offset(group, queue) == 2
        await admin.set_offset(group, queue, 1)
        assert await admin.offset(group, queue) == 1
        other = fresh("G")
        await admin.clone_offsets(group, other, topic, offline=True)
        assert await admin.offset(other, queue) == 1
        moved = await admin.reset_offset(group, topic, 0)
        assert set(moved.values()) == {0}
        assert await admin.offset(group, queue) == 0
        assert (await admin.consume_stats(group, topic)).total_diff() == 8
        span = await admin.consume_time_span(topic, group)
        assert len(span.consume_time_span_set) == 4
        await admin.delete_group(group, remove_offsets=True)
        assert await admin.group_config(cluster.broker, group) is None


async def test_the_inside_of_a_consumer(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"m"])
    seen: list[bytes] = []
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            Admin(name_server=cluster.name_server) as admin,
            PushConsumer(group, name_server=cluster.name_server) as consumer,
        ):
            consumer.subscribe(topic, "*")
            consumer.listen(lambda message: seen.append(message.body))
            await consumer.wait_assigned(f"%RETRY%{group}")
            await until(lambda: sum(consumer.consume_offsets(topic).values()) == 1)
            assert seen == [b"m"]
            members = await admin.members(group)
            assert [member.client_id for member in members] == [consumer.client.client_id]
            assert members[0].language == "PYTHON"
            connection = await admin.consumer_connection(group)
            assert sorted(connection.subscription_table) == sorted([topic, f"%RETRY%{group}"])
            info = await admin.consumer_running_info(group, consumer.client.client_id, with_stacks=True)
            assert info.properties["PROP_NAMESERVER_ADDR"] == cluster.name_server
            assert {queue.topic for queue in info.mq_table} == {topic, f"%RETRY%{group}"}
            assert info.jstack is not None
            assert "running_info.py" in info.jstack
            assert info.status_table[topic].consume_ok_tps > 0
            offsets = await admin.member_offsets(group, topic)
            assert sum(offsets[consumer.client.client_id].values()) == 1
            assert await admin.members(fresh("G")) == []


async def test_the_stacks_of_a_consumer_name_the_line_at_which_its_listener_waits(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"m"])
    entered, leave = trio.Event(), trio.Event()

    async def stuck_listener(message: MessageExt) -> None:
        entered.set()
        await leave.wait()

    with trio.fail_after(LIMIT_SECONDS):
        async with (
            Admin(name_server=cluster.name_server) as admin,
            PushConsumer(group, name_server=cluster.name_server) as consumer,
        ):
            consumer.subscribe(topic, "*")
            consumer.listen(stuck_listener)
            await entered.wait()
            await consumer.wait_assigned(f"%RETRY%{group}")  # a NameServer knows the route by which it is asked
            info = await admin.consumer_running_info(group, consumer.client.client_id, with_stacks=True)
            leave.set()
    assert info.jstack is not None
    assert "in stuck_listener\n    await leave.wait()" in info.jstack


async def test_members_online_are_moved_by_a_reset(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    await send_all(cluster, topic, [b"%d" % number for number in range(4)])
    seen: list[bytes] = []
    # RocketMQ 5 notifies no member; the next pull is redirected to the new offset.
    rules = ConsumeRules(pull_suspend_seconds=1)
    with trio.fail_after(LIMIT_SECONDS):
        async with (
            Admin(name_server=cluster.name_server) as admin,
            PushConsumer(group, name_server=cluster.name_server, rules=rules, persist_interval_seconds=0.2) as consumer,
        ):
            consumer.subscribe(topic)
            consumer.listen(lambda message: seen.append(message.body))
            await until(lambda: sum(consumer.consume_offsets(topic).values()) == 4)
            await until_caught_up(admin, group, topic)
            assert set((await admin.reset_offset(group, topic, 0)).values()) == {0}
            await until(lambda: len(seen) == 8)


async def test_single_messages(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    async with (
        Producer(fresh("P"), name_server=cluster.name_server) as producer,
        Admin(name_server=cluster.name_server) as admin,
    ):
        result = await producer.send(Message(topic, b"body", tags="tag", keys=["one", "two"]))
        await until_answer(partial(admin.messages_by_key, topic, "two"))
        found = await admin.messages_by_key(topic, "two")
        assert [message.body for message in found] == [b"body"]
        assert await admin.messages_by_key(topic, "three") == []
        by_offset_id = await admin.message_by_offset_id(result.offset_message_id)
        by_id = await admin.message_by_id(topic, result.message_id)
        assert by_id is not None
        assert by_offset_id.msg_id == by_id.msg_id == result.message_id
        assert await admin.message_by_id(topic, "0" * 32) is None
        with trio.fail_after(LIMIT_SECONDS):
            async with PushConsumer(group, name_server=cluster.name_server) as consumer:
                consumer.subscribe(topic, "other")
                seen: list[bytes] = []
                consumer.listen(lambda message: seen.append(message.body))
                await until(lambda: sum(consumer.consume_offsets(topic).values()) == 1)
                await consumer.persist_offsets()
                # RocketMQ 5.3 lists the topic itself among its groups.
                tracks = [track for track in await admin.track(by_id) if track.group != topic]
                assert [(track.group, track.track) for track in tracks] == [(group, TrackType.CONSUMED_BUT_FILTERED)]
                answer = await admin.consume_message_directly(
                    group, consumer.client.client_id, result.offset_message_id, cluster.broker
                )
                assert (answer.consume_result, seen) == ("CR_SUCCESS", [b"body"])
        tracks = await admin.track(by_id)
        assert [track.track for track in tracks if track.group != topic] == [TrackType.NOT_ONLINE]
        entries = await admin.consume_queue(cluster.broker, topic, result.queue.queue_id, 0, 10)
        assert entries is not None
        assert len(entries.queue_data) == 1


async def test_brokers_and_name_servers(cluster: Cluster) -> None:
    async with Admin(name_server=cluster.name_server) as admin:
        assert await admin.masters() == {"broker-a": cluster.broker}
        assert int((await admin.broker_runtime(cluster.broker))["bootTimestamp"]) > 0
        assert (await admin.broker_config(cluster.broker))["brokerName"] == "broker-a"
        before = (await admin.broker_config(cluster.broker))["maxTransferCountOnMessageInMemory"]
        await admin.update_broker_config(cluster.broker, {"maxTransferCountOnMessageInMemory": "33"})
        assert (await admin.broker_config(cluster.broker))["maxTransferCountOnMessageInMemory"] == "33"
        await admin.update_broker_config(cluster.broker, {"maxTransferCountOnMessageInMemory": before})
        configs = await admin.name_server_configs()
        assert list(configs) == [cluster.name_server]
        assert "kvConfigPath" in configs[cluster.name_server]
        topic = fresh()
        await admin.create_topic(topic)
        assert await admin.wipe_write_perm(cluster.name_server, "broker-a") > 0
        async with Producer(fresh("P"), name_server=cluster.name_server, template_topic="none") as producer:
            with pytest.raises(NoRoute, match="accepts messages"):
                await producer.send(Message(topic, b"b"))
        assert await admin.add_write_perm(cluster.name_server, "broker-a") > 0
        with pytest.raises(BrokerRefused) as caught:
            await admin.broker_stats(cluster.broker, "TOPIC_PUT_NUMS", "no such topic")
        assert caught.value.code == ResponseCode.SYSTEM_ERROR


async def test_message_trace(cluster: Cluster) -> None:
    topic, group = fresh(), fresh("G")
    with trio.fail_after(LIMIT_SECONDS):
        async with Producer(fresh("P"), name_server=cluster.name_server, trace=True) as producer:
            result = await producer.send(Message(topic, b"traced", keys="trace-key"))
        async with PushConsumer(group, name_server=cluster.name_server, trace=True) as consumer:
            consumer.subscribe(topic)
            seen: list[bytes] = []
            consumer.listen(lambda message: seen.append(message.body))
            await until(lambda: bool(seen))
        async with Admin(name_server=cluster.name_server) as admin:
            lines: list[list[str]] = []
            while len(lines) < 3:
                found = await admin.messages_by_key(TRACE_TOPIC, result.message_id)
                lines = [line for message in found for line in trace_lines(message.body.decode())]
                lines = [line for line in lines if result.message_id in line]
                await trio.sleep(LOOK_SECONDS)
    by_kind = {line[0]: line for line in lines}
    assert sorted(by_kind) == ["Pub", "SubAfter", "SubBefore"]
    assert by_kind["Pub"][4:9] == [topic, result.message_id, "", "trace-key", cluster.broker]
    assert by_kind["Pub"][-1] == "true"
    assert by_kind["SubBefore"][3] == group
    assert by_kind["SubBefore"][4] == by_kind["SubAfter"][1]
    assert by_kind["SubAfter"][4] == "true"
