"""Consuming, against a scripted cluster under a mock clock: bounds, retries, resets, locks, shutdown."""

from __future__ import annotations

import logging
import re
from collections.abc import Awaitable, Callable

import pytest
import trio
from client_fakes import NAME_SERVER, FakeCluster, refuse
from trio.testing import MockClock

from triomq.client.api import ConsumeFromWhere, ConsumeRules, ConsumeStatus, MessageExt, PushConsumer, RetryLater
from triomq.client.core.errors import ConfigurationError, NotSettled
from triomq.client.core.hooks import ConsumeContext
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.headers.client import NotifyConsumerIdsChangedRequestHeader
from triomq.protocol.headers.offset import UpdateConsumerOffsetRequestHeader
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.protocol.headers.send import SendMessageRequestHeaderV2

PULL = RequestCode.PULL_MESSAGE


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    return FakeCluster.installed(monkeypatch, "T", "%RETRY%G")


def offset(cluster: FakeCluster, topic: str = "T", queue_id: int = 0) -> int | None:
    return cluster.broker.offsets.get(("G", topic, queue_id))


def pulled_from(cluster: FakeCluster, topic: str = "T") -> list[int]:
    headers = [request.header(PullMessageRequestHeader) for request in cluster.broker.of(PULL)]
    return [header.queue_offset for header in headers if header.topic == topic]


def stored_offsets(cluster: FakeCluster, topic: str = "T") -> list[int]:
    headers = [
        request.header(UpdateConsumerOffsetRequestHeader)
        for request in cluster.broker.of(RequestCode.UPDATE_CONSUMER_OFFSET)
    ]
    return [header.commit_offset for header in headers if header.topic == topic]


def members_changed(cluster: FakeCluster) -> None:
    cluster.notify(RequestCode.NOTIFY_CONSUMER_IDS_CHANGED, NotifyConsumerIdsChangedRequestHeader(consumer_group="G"))


def consumer(**options: object) -> PushConsumer:
    options.setdefault("consume_from", ConsumeFromWhere.CONSUME_FROM_FIRST_OFFSET)
    made = PushConsumer("G", name_server=NAME_SERVER, **options)  # type: ignore[arg-type]
    made.subscribe("T")
    return made


async def test_offsets_are_stored_every_five_seconds_and_at_the_end(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, b"1", b"2", b"3")
    seen: list[bytes] = []
    async with consumer() as one:
        one.listen(collect_into(seen))
        await trio.sleep(2)
        assert seen == [b"1", b"2", b"3"]
        assert offset(cluster) is None
        await trio.sleep(4)
        assert offset(cluster) == 3
        updates = stored_offsets(cluster)
        await trio.sleep(20)
        assert stored_offsets(cluster) == updates
        cluster.broker.offsets.clear()
        await trio.sleep(60)
        assert offset(cluster) == 3, "a broker that lost the offset gets it again"
        cluster.broker.store("T", 0, b"4")
        await trio.sleep(0.1)
    assert offset(cluster) == 4
    assert cluster.broker.of(RequestCode.UNREGISTER_CLIENT)


async def test_a_group_that_leaves_before_its_first_message_misses_nothing(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, b"before")
    async with consumer(consume_from=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET) as one:
        await one.wait_assigned("T")
    cluster.broker.store("T", 0, b"while away")
    cluster.broker.members.clear()
    with trio.fail_after(60):
        async with consumer(consume_from=ConsumeFromWhere.CONSUME_FROM_LAST_OFFSET) as one:
            assert (await one.receive()).message.body == b"while away"


def collect_into(seen: list[bytes]) -> Callable[[MessageExt], Awaitable[None]]:
    async def handle(message: MessageExt) -> None:
        seen.append(message.body)

    return handle


async def test_a_listener_without_a_subscription_is_told_that_it_waits_for_nothing(
    cluster: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = PushConsumer("G", name_server=NAME_SERVER)
    with caplog.at_level(logging.WARNING):
        async with made:
            made.listen(collect_into([]))
            await trio.sleep(15)
            assert "topics not subscribed" not in caplog.text, "it may subscribe a moment later"
            await trio.sleep(50)
    assert caplog.text.count("topics not subscribed") == 1
    assert "subscribe(topic)" in caplog.text


async def test_a_loop_that_begins_late_without_a_subscription_does_not_wait_for_ever(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    """The heartbeats in between announce the retry topic, which is no subscription of the application."""
    async with PushConsumer("G", name_server=NAME_SERVER) as made:
        await trio.sleep(100)
        with pytest.raises(ConfigurationError, match="nothing is subscribed"):
            await made.receive()


async def test_a_listener_that_subscribes_after_a_while_is_told_nothing(
    cluster: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = PushConsumer("G", name_server=NAME_SERVER)
    async with made:
        made.listen(collect_into([]))
        await trio.sleep(15)
        made.subscribe("T")
        await trio.sleep(50)
    assert "topics not subscribed" not in caplog.text


async def test_the_first_offset_of_a_topic_is_stored_alone(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    """RocketMQ may lose first offsets of a topic that arrive together."""
    cluster.topic("T", 4)
    cluster.broker.slow_seconds = 0.5
    async with consumer() as one:
        await one.wait_assigned("T")
    updates = [
        (at, request.header(UpdateConsumerOffsetRequestHeader).queue_id)
        for at, request in cluster.broker.requests
        if request.code == RequestCode.UPDATE_CONSUMER_OFFSET
        and request.header(UpdateConsumerOffsetRequestHeader).topic == "T"
    ]
    began = updates[0][0]
    assert [(at - began, queue_id) for at, queue_id in updates[:1]] == [(0, 0)]
    assert sorted((at - began, queue_id) for at, queue_id in updates[1:]) == [(0.5, 1), (0.5, 2), (0.5, 3)]


async def test_a_cancelled_consumer_stores_its_offsets_too(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, b"1", b"2")
    with trio.move_on_after(1):
        async with consumer() as one:
            one.listen(collect_into([]))
            await trio.sleep_forever()
    assert offset(cluster) == 2
    assert cluster.broker.of(RequestCode.UNREGISTER_CLIENT)


async def test_only_the_oldest_unfinished_message_is_stored(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, *[b"%d" % number for number in range(6)])
    stuck = trio.Event()

    async def handle(message: MessageExt) -> None:
        if message.body == b"2":
            await stuck.wait()

    async with consumer(rules=ConsumeRules(close_seconds=0.1)) as one:
        one.listen(handle)
        await trio.sleep(6)
        assert offset(cluster) == 2
    assert offset(cluster) == 2


async def test_no_more_is_pulled_than_may_wait(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, *[b"x" * 10] * 500)
    go = trio.Event()
    running = most = done = 0

    async def handle(message: MessageExt) -> None:
        nonlocal running, most, done
        running += 1
        most = max(most, running)
        await go.wait()
        running -= 1
        done += 1

    async with consumer(rules=ConsumeRules(max_cached_messages=40, concurrency=3)) as one:
        one.listen(handle)
        await trio.sleep(30)
        assert most == 3
        assert max(pulled_from(cluster)) <= 64
        go.set()
        await trio.sleep(5)
        assert done == 500


async def test_bytes_count_as_well_and_a_suspended_consumer_pulls_nothing(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, *[b"x" * 1000] * 100)
    go = trio.Event()

    async def handle(message: MessageExt) -> None:
        await go.wait()

    async with consumer(rules=ConsumeRules(max_cached_bytes=10_000, pull_batch_size=4)) as one:
        one.listen(handle)
        one.suspend()
        await trio.sleep(5)
        assert pulled_from(cluster) == []
        one.resume()
        await trio.sleep(5)
        assert max(pulled_from(cluster)) == 8
        go.set()
        await trio.sleep(5)
    assert offset(cluster) == 100


async def test_a_failed_message_is_sent_back(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, b"1", b"2", b"3")

    async def handle(message: MessageExt) -> ConsumeStatus:
        if message.body == b"2":
            raise RetryLater(5)
        return ConsumeStatus.CONSUME_SUCCESS

    async with consumer(rules=ConsumeRules(max_reconsume_times=7)) as one:
        one.listen(handle)
        await trio.sleep(6)
        assert offset(cluster) == 3
    (back,) = cluster.broker.sent_back
    assert (back.group, back.delay_level, back.offset, back.max_reconsume_times) == ("G", 5, 1000, 7)


@pytest.mark.parametrize("in_thread", [False, True])
async def test_the_log_of_a_failing_listener_begins_at_its_own_line(
    cluster: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, in_thread: bool
) -> None:
    def fail(message: MessageExt) -> None:
        raise RuntimeError("no such order")

    async def fail_in_trio(message: MessageExt) -> None:
        fail(message)

    cluster.broker.store("T", 0, b"1")
    caplog.set_level(logging.WARNING, "triomq.client.consume")
    async with consumer() as one:
        one.listen(fail if in_thread else fail_in_trio)
        while not caplog.records:  # noqa: ASYNC110 - a thread of the listener is not the mock clock's
            await trio.sleep(0.1)
    frames = re.findall(r'(?m)^  File ".*", line \d+, in (\w+)$', caplog.text)
    assert frames == (["fail"] if in_thread else ["fail_in_trio", "fail"])


async def test_what_cannot_be_sent_back_goes_to_the_retry_topic_or_is_tried_again_here(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, b"1")
    cluster.broker.will(RequestCode.CONSUMER_SEND_MSG_BACK, *[refuse(ResponseCode.SYSTEM_ERROR)] * 2)
    cluster.broker.will(RequestCode.SEND_MESSAGE_V2, *[refuse(ResponseCode.SYSTEM_ERROR)] * 3)
    times: list[float] = []

    async def handle(message: MessageExt) -> None:
        if message.topic == "T" and len(times) < 2:
            times.append(trio.current_time())
            raise RetryLater

    async with consumer() as one:
        one.listen(handle)
        await trio.sleep(20)
        assert offset(cluster) == 1
    assert times[1] - times[0] == pytest.approx(5)
    sent = [request.header(SendMessageRequestHeaderV2) for request in cluster.broker.of(RequestCode.SEND_MESSAGE_V2)]
    assert {header.topic for header in sent} == {"%RETRY%G"}
    assert sent[-1].reconsume_times == 2
    assert "RETRY_TOPIC\x01T" in (sent[-1].properties or "")


async def test_a_message_that_takes_too_long_is_sent_back(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, b"slow", b"quick")

    async def handle(message: MessageExt) -> None:
        if message.body == b"slow":
            await trio.sleep(1000)

    async with consumer(rules=ConsumeRules(consume_timeout_seconds=60, close_seconds=0.1)) as one:
        one.listen(handle)
        await trio.sleep(50)
        assert offset(cluster) == 0
        await trio.sleep(100)
        assert offset(cluster) == 2
        assert [back.offset for back in cluster.broker.sent_back] == [0]
        await trio.sleep(1000)
    assert len(cluster.broker.sent_back) == 1


async def test_an_offset_outside_the_queue_is_corrected(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.first_offset[("T", 0)] = 50
    cluster.broker.store("T", 0, b"50", b"51")
    cluster.broker.offsets[("G", "T", 0)] = 7
    seen: list[bytes] = []
    async with consumer() as one:
        one.listen(collect_into(seen))
        await trio.sleep(5)
        assert seen == [b"50", b"51"]
    assert offset(cluster) == 52


async def test_a_broker_that_forgot_us_hears_from_us_at_once(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.will(PULL, refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST), refuse(ResponseCode.SUBSCRIPTION_NOT_LATEST))
    cluster.broker.store("T", 0, b"1")
    seen: list[bytes] = []
    async with consumer() as one:
        one.listen(collect_into(seen))
        beats = len(cluster.broker.of(RequestCode.HEART_BEAT))
        await trio.sleep(3)
        assert seen == [b"1"]
        assert len(cluster.broker.of(RequestCode.HEART_BEAT)) > beats + 1


@pytest.mark.parametrize("count", [1, 2])
async def test_a_restarted_broker_is_one_line_and_a_warning_only_if_a_heartbeat_does_not_help(
    autojump_clock: MockClock, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch, count: int
) -> None:
    cluster = FakeCluster.installed(monkeypatch, "T", queues=4)
    answer = refuse(ResponseCode.SUBSCRIPTION_NOT_EXIST, "the consumer's group info not exist\nSee http://faq")
    cluster.broker.will(PULL, *[answer] * 4 * count)
    with caplog.at_level(logging.INFO, "triomq.client.pull"):
        async with consumer() as one:
            one.listen(collect_into([]))
            await trio.sleep(30)
    assert [record.levelname for record in caplog.records] == ["INFO", *["WARNING"] * 4 * (count - 1)]
    assert "SUBSCRIPTION_NOT_EXIST" in caplog.records[0].getMessage()
    assert "http://" not in caplog.records[0].getMessage()


async def test_a_topic_that_does_not_exist_yet_is_a_warning_only_after_a_while(
    cluster: FakeCluster, autojump_clock: MockClock, caplog: pytest.LogCaptureFixture
) -> None:
    made = PushConsumer("G", name_server=NAME_SERVER)
    with caplog.at_level(logging.INFO, "triomq.client.consumer"):
        async with made:
            made.subscribe("Later")
            made.listen(collect_into([]))
            await trio.sleep(9)
            seen = [(record.levelname, record.getMessage()) for record in caplog.records]
            assert [level for level, text in seen if "not found" in text] == ["INFO"]
            assert all(len(text) < 120 for _, text in seen)
            await trio.sleep(120)
    late = [record.getMessage() for record in caplog.records if record.levelname == "WARNING"]
    assert len(late) == 1
    assert "mqadmin updateTopic" in late[0]


async def test_a_consumer_of_a_master_that_stops_looks_for_the_next_one_at_once(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    former, new = cluster.broker, cluster.replica("a")
    former.will(PULL, *[refuse(ResponseCode.SERVICE_NOT_AVAILABLE)] * 99)
    new.store("T", 0, b"of the next master")
    seen: list[bytes] = []
    async with consumer() as one:
        one.listen(collect_into(seen))
        await one.wait_assigned("T")
        former.advertised, new.advertised = new.advertised, former.advertised
        await trio.sleep(2)
        assert seen == [b"of the next master"]


async def test_errors_do_not_end_pulling(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.will(PULL, *[refuse(ResponseCode.NO_PERMISSION)] * 4)
    cluster.broker.store("T", 0, b"1")
    seen: list[bytes] = []
    async with consumer() as one:
        one.listen(collect_into(seen))
        await trio.sleep(1)
        assert seen == []
        await trio.sleep(30)
        assert seen == [b"1"]


async def test_a_replica_is_read_while_the_master_is_away(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    replica = cluster.replica("a")
    seen: list[bytes] = []
    async with consumer() as one:
        one.listen(collect_into(seen))
        await one.wait_assigned("T")
        cluster.broker.up = False
        replica.store("T", 0, b"from the replica")
        await trio.sleep(60)
        assert seen == [b"from the replica"]
        assert replica.of(PULL)


async def test_queues_are_shared_anew_when_a_broker_says_so(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.topic("T", 4)
    async with consumer(client_ip="1.1.1.1", instance_name="a") as one:
        one.listen(collect_into([]))
        assert len(await one.wait_assigned("T")) == 4
        cluster.broker.members["G"].add("9.9.9.9@z")
        members_changed(cluster)
        await trio.sleep(0.1)
        assert [queue.queue_id for queue in one.assigned_queues if queue.topic == "T"] == [0, 1]


async def test_a_topic_is_consumed_once_it_exists(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    del cluster.topics["T"]
    seen: list[bytes] = []
    async with consumer() as one:
        one.listen(collect_into(seen))
        await trio.sleep(10)
        cluster.topic("T")
        cluster.broker.store("T", 0, b"1")
        await trio.sleep(3)
        assert seen == [b"1"]
        one.unsubscribe("T")
        await trio.sleep(3)
        assert "T" not in {queue.topic for queue in one.assigned_queues}
    assert offset(cluster) == 1


async def test_ordered_consuming_waits_for_the_lock(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, b"1", b"2")
    cluster.broker.lockers[("G", "T", 0)] = "somebody else"
    seen: list[bytes] = []
    async with consumer(ordered=True) as one:
        one.listen(collect_into(seen))
        await trio.sleep(30)
        assert seen == []
        del cluster.broker.lockers[("G", "T", 0)]
        await trio.sleep(2)
        assert seen == [b"1", b"2"]
        # The lock is lost; another member continues and stores its offset. Ours must not overwrite it.
        cluster.broker.lockers[("G", "T", 0)] = "somebody else"
        await trio.sleep(60)
        cluster.broker.offsets[("G", "T", 0)] = 77
        await trio.sleep(60)
        assert offset(cluster) == 77
        assert "T" not in {queue.topic for queue in one.assigned_queues}
    assert offset(cluster) == 77


async def test_an_ordered_queue_that_comes_back_while_it_is_being_given_up_is_consumed_on(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.topic("T", 2)
    cluster.broker.store("T", 1, b"slow")
    seen: list[bytes] = []

    async def listener(message: MessageExt) -> None:
        if message.body == b"slow":
            await trio.sleep(10)
        seen.append(message.body)

    async with consumer(ordered=True, client_ip="1.1.1.1", instance_name="a") as one:
        one.listen(listener)
        await one.wait_assigned("T")
        await trio.sleep(1)
        for change in (set.add, set.remove):
            # A second member joins, and leaves again before the listener returns.
            change(cluster.broker.members["G"], "9.9.9.9@z")
            members_changed(cluster)
            await trio.sleep(3)
        assert seen == [], "the listener is still busy with the queue that had to go"
        await trio.sleep(30)
        cluster.broker.store("T", 1, b"next")
        await trio.sleep(30)
        assert seen == [b"slow", b"next"]


async def test_ordered_consuming_tries_again_in_place_and_gives_up_at_the_limit(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, b"bad", b"good")
    seen: list[tuple[float, bytes, int]] = []

    async def handle(message: MessageExt) -> ConsumeStatus:
        seen.append((trio.current_time(), message.body, message.reconsume_times))
        if message.body == b"bad":
            return ConsumeStatus.SUSPEND_CURRENT_QUEUE_A_MOMENT
        return ConsumeStatus.CONSUME_SUCCESS

    async with consumer(ordered=True, rules=ConsumeRules(max_reconsume_times=2, suspend_seconds=3)) as one:
        one.listen(handle)
        await trio.sleep(20)
    assert [(body, times) for _, body, times in seen] == [(b"bad", 0), (b"bad", 1), (b"bad", 2), (b"good", 0)]
    assert seen[1][0] - seen[0][0] == pytest.approx(3)
    assert cluster.broker.sent_back == []
    (letter,) = cluster.broker.of(RequestCode.SEND_MESSAGE_V2)
    assert "SUSPEND_CURRENT_QUEUE_A_MOMENT: the listener returned it" in letter.ext_fields["i"]
    assert offset(cluster) == 2


async def test_batches_go_together(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, *[b"%d" % number for number in range(10)])
    sizes: list[int] = []

    async def handle(messages: list[MessageExt]) -> None:
        sizes.append(len(messages))

    async with consumer(rules=ConsumeRules(batch_max_size=4)) as one:
        one.listen_batch(handle)
        await trio.sleep(6)
    assert sorted(sizes) == [2, 4, 4]
    assert offset(cluster) == 10


async def test_messages_handed_out_by_receive(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, b"1", b"2")
    async with consumer() as one:
        first = await one.receive()
        first.give_back()
        again = [await one.receive(), await one.receive()]
        assert sorted(delivery.message.body for delivery in again) == [b"1", b"2"]
        again[0].ack()
        again[1].retry_later(-1)
        with pytest.raises(NotSettled, match="settled already"):
            again[1].ack()
        await trio.sleep(6)
        assert offset(cluster) == 2
    assert [back.delay_level for back in cluster.broker.sent_back] == [-1]


async def test_hooks_see_every_call(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, b"good", b"bad")
    seen: list[tuple[bytes, bool]] = []

    class Hook:
        def before_consume(self, context: ConsumeContext) -> None:
            raise RuntimeError("a hook must not matter")

        def after_consume(self, context: ConsumeContext) -> None:
            seen.append((context.messages[0].body, context.success))

    async def handle(message: MessageExt) -> None:
        if message.body == b"bad":
            raise ValueError("bad")

    async with consumer(consume_hooks=[Hook()]) as one:
        one.listen(handle)
        await trio.sleep(1)
    assert sorted(seen) == [(b"bad", False), (b"good", True)]


async def test_leaving_does_not_wait_for_messages_nobody_wanted(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.broker.store("T", 0, b"1")
    async with consumer() as one:
        await one.wait_assigned("T")
        await trio.sleep(1)
        began = trio.current_time()
    assert trio.current_time() == began
    assert offset(cluster) != 1


async def test_leaving_waits_for_calls_that_run(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.broker.store("T", 0, b"1", b"2", b"3")

    async def handle(message: MessageExt) -> None:
        await trio.sleep(5)

    async with consumer(rules=ConsumeRules(concurrency=1)) as one:
        one.listen(handle)
        await trio.sleep(1)
    # The running call finished; those behind it did not begin.
    assert offset(cluster) == 1
