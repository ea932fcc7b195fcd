"""Sending, against a scripted cluster under a mock clock: retries, bounds, statuses, heartbeats."""

from __future__ import annotations

from collections.abc import Sequence

import pytest
import trio
from client_fakes import NAME_SERVER, ConnectionClosed, FakeCluster, refuse, sent_with
from trio.testing import MockClock

from triomq.client.api import (
    BrokerRefused,
    ClientClosed,
    ConfigurationError,
    Message,
    MessageQueue,
    NoRoute,
    OperationTimeout,
    Producer,
    SendFailed,
    SendStatus,
)
from triomq.client.core.config import ClientConfig, Credentials
from triomq.client.core.hooks import SendContext
from triomq.client.instance.caller import vip_address
from triomq.client.instance.client import Client
from triomq.protocol.bodies.heartbeat import HeartbeatData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.signature import is_signed_by

SEND = RequestCode.SEND_MESSAGE_V2


@pytest.fixture
def cluster(monkeypatch: pytest.MonkeyPatch) -> FakeCluster:
    made = FakeCluster("a", "b")
    made.topic("T", 2)
    made.install(monkeypatch)
    return made


def sends(cluster: FakeCluster) -> dict[str, int]:
    return {name: len(broker.of(SEND)) for name, broker in cluster.brokers.items()}


async def test_sends_are_spread(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with Producer("P", name_server=NAME_SERVER) as producer:
        queues = {(await producer.send(Message("T", b"m"))).queue for _ in range(4)}
    assert len(queues) == 4
    assert sends(cluster) == {"a": 2, "b": 2}


@pytest.mark.parametrize(
    "failure",
    [refuse(ResponseCode.SYSTEM_BUSY), refuse(ResponseCode.SYSTEM_ERROR), ConnectionClosed("gone")],
)
async def test_a_failed_send_goes_to_another_broker(
    cluster: FakeCluster, autojump_clock: MockClock, failure: Exception
) -> None:
    cluster.brokers["a"].will(SEND, failure)
    async with Producer("P", name_server=NAME_SERVER) as producer:
        result = await producer.send(Message("T", b"m"))
    assert result.queue.broker_name == "b"
    assert sends(cluster) == {"a": 1, "b": 1}
    one, other = cluster.brokers["a"].of(SEND)[0], cluster.brokers["b"].of(SEND)[0]
    assert (one.ext_fields or {})["i"] == (other.ext_fields or {})["i"]


async def test_a_master_that_is_a_slave_now_is_left_at_once(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    former, new = cluster.brokers["a"], cluster.replica("a")
    del cluster.brokers["b"]
    async with Producer("P", name_server=NAME_SERVER) as producer:
        await producer.send(Message("T", b"m"))
        former.will(SEND, *[refuse(ResponseCode.SERVICE_NOT_AVAILABLE)] * 9)
        former.advertised, new.advertised = new.advertised, former.advertised
        began = trio.current_time()
        await producer.send(Message("T", b"m"))
        assert trio.current_time() - began < 1
    assert [len(broker.of(SEND)) for broker in (former, new)] == [2, 1]


@pytest.mark.parametrize("was_known", [False, True])
async def test_the_new_master_gets_messages_of_a_topic_that_no_name_server_knows(
    cluster: FakeCluster, autojump_clock: MockClock, was_known: bool
) -> None:
    """A slave that takes over may lack a new topic, and its registration is then the first without it."""
    former, new = cluster.brokers["a"], cluster.replica("a")
    del cluster.brokers["b"]
    cluster.topic("TBW102", 4)
    if not was_known:
        del cluster.topics["T"]
    async with Producer("P", name_server=NAME_SERVER) as producer:
        await producer.send(Message("T", b"m"))
        cluster.topics.pop("T", None)
        former.will(SEND, *[refuse(ResponseCode.SERVICE_NOT_AVAILABLE)] * 9)
        former.advertised, new.advertised = new.advertised, former.advertised
        await producer.send(Message("T", b"m"))
    assert [len(broker.of(SEND)) for broker in (former, new)] == [2, 1]


async def test_after_all_attempts_the_error_tells_each(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    for broker in cluster.brokers.values():
        broker.will(SEND, *[refuse(ResponseCode.SYSTEM_ERROR, f"{broker.name} is ill")] * 3)
    async with Producer("P", name_server=NAME_SERVER, retries=3) as producer:
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", b"m"))
    assert len(caught.value.attempts) == 4
    assert "a is ill" in str(caught.value)
    assert "b is ill" in str(caught.value)


@pytest.mark.parametrize("retries", [0, 1, 2])
async def test_a_send_is_tried_once_and_then_as_often_as_retries_says(
    cluster: FakeCluster, autojump_clock: MockClock, retries: int
) -> None:
    failing = [cluster.brokers["a"], cluster.brokers["b"]][:retries]
    for broker in failing:
        broker.will(SEND, refuse(ResponseCode.SYSTEM_ERROR))
    async with Producer("P", name_server=NAME_SERVER, retries=retries) as producer:
        await producer.send(Message("T", b"m"))
    assert sum(sends(cluster).values()) == 1 + retries, "the last attempt that is allowed succeeds"


async def test_no_attempt_begins_after_the_time_limit(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    for broker in cluster.brokers.values():
        broker.slow_seconds = 1
        broker.will(SEND, *[refuse(ResponseCode.SYSTEM_ERROR, "ill")] * 10)
    async with Producer("P", name_server=NAME_SERVER, retries=9, send_timeout_seconds=2.5) as producer:
        began = trio.current_time()
        with pytest.raises(SendFailed) as caught:
            await producer.send(Message("T", b"m"))
    assert len(caught.value.attempts) == 3
    assert [at - began < 2.5 for broker in cluster.brokers.values() for at in broker.times_of(SEND)] == [True] * 3


async def test_what_cannot_get_better_is_not_tried_again(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    for broker in cluster.brokers.values():
        broker.will(SEND, refuse(ResponseCode.MESSAGE_ILLEGAL, "too long"))
    async with Producer("P", name_server=NAME_SERVER) as producer:
        with pytest.raises(BrokerRefused, match="too long"):
            await producer.send(Message("T", b"m"))
    assert sum(sends(cluster).values()) == 1


async def test_codes_of_newer_brokers_are_named(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    for broker in cluster.brokers.values():
        broker.will(SEND, refuse(501, "not here"))
    async with Producer("P", name_server=NAME_SERVER) as producer:
        with pytest.raises(BrokerRefused, match=r"NOT_LEADER_FOR_QUEUE \(501\): not here. The topic is a static one"):
            await producer.send(Message("T", b"m"))


async def test_a_chosen_queue_is_tried_once(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.brokers["b"].will(SEND, refuse(ResponseCode.SYSTEM_ERROR))
    seen: list[Sequence[MessageQueue]] = []

    def last(queues: Sequence[MessageQueue], message: Message, argument: object) -> MessageQueue:
        seen.append(queues)
        return queues[-1]

    async with Producer("P", name_server=NAME_SERVER) as producer:
        with pytest.raises(BrokerRefused):
            await producer.send(Message("T", b"m"), selector=last)
        with pytest.raises(ConfigurationError, match="only one"):
            await producer.send(Message("T", b"m"), selector=last, sharding_key="k")
        with pytest.raises(ConfigurationError, match="of topic"):
            await producer.send(Message("T", b"m"), queue=MessageQueue("U", "a", 0))
        keyed = {(await producer.send(Message("T", b"m"), sharding_key="k")).queue for _ in range(5)}
    assert len(keyed) == 1
    assert seen[0] == sorted(seen[0])
    assert len(seen[0]) == 4


async def test_time_is_limited(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    for broker in cluster.brokers.values():
        broker.slow_seconds = 60
    async with Producer("P", name_server=NAME_SERVER, send_timeout_seconds=2) as producer:
        began = trio.current_time()
        with pytest.raises(OperationTimeout):
            await producer.send(Message("T", b"m"))
        assert trio.current_time() - began == pytest.approx(2)


async def test_name_servers_that_are_silent_count_into_the_time(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.name_server_seconds = 60
    servers = ["ns:9876", "ns:9877", "ns:9878"]
    async with Producer("P", name_server=servers, send_timeout_seconds=4) as producer:
        began = trio.current_time()
        with pytest.raises(OperationTimeout, match="name server"):
            await producer.send(Message("T", b"m"))
        assert trio.current_time() - began == pytest.approx(4)


@pytest.mark.parametrize(
    ("code", "status"),
    [
        (ResponseCode.FLUSH_DISK_TIMEOUT, SendStatus.FLUSH_DISK_TIMEOUT),
        (ResponseCode.FLUSH_SLAVE_TIMEOUT, SendStatus.FLUSH_SLAVE_TIMEOUT),
        (ResponseCode.SLAVE_NOT_AVAILABLE, SendStatus.SLAVE_NOT_AVAILABLE),
    ],
)
async def test_stored_with_a_doubt(
    cluster: FakeCluster, autojump_clock: MockClock, code: int, status: SendStatus
) -> None:
    cluster.brokers["a"].will(SEND, sent_with(code), sent_with(code))
    async with Producer("P", name_server=NAME_SERVER) as producer:
        assert (await producer.send(Message("T", b"m"))).status is status
    cluster.brokers["b"].will(SEND, sent_with(code), sent_with(code), sent_with(code))
    async with Producer("P", name_server=NAME_SERVER, retry_when_not_stored_ok=True, retries=3) as producer:
        assert (await producer.send(Message("T", b"m"))).status is SendStatus.SEND_OK


async def test_slow_brokers_are_avoided(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.brokers["a"].slow_seconds = 1
    async with Producer("P", name_server=NAME_SERVER, latency_faults=True) as producer:
        for _ in range(10):
            await producer.send(Message("T", b"m"))
    assert sends(cluster)["a"] == 1


async def test_sends_in_flight_are_bounded(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    running = most = 0

    class Counting:
        def before_send(self, context: SendContext) -> None:
            nonlocal running, most
            running += 1
            most = max(most, running)

        def after_send(self, context: SendContext) -> None:
            nonlocal running
            running -= 1

    for broker in cluster.brokers.values():
        broker.slow_seconds = 0.5
    async with Producer(
        "P", name_server=NAME_SERVER, max_in_flight=3, send_hooks=[Counting()], send_timeout_seconds=2.8
    ) as producer:
        await producer.queues("T")
        sent = failed = 0

        async def one() -> None:
            nonlocal sent, failed
            try:
                await producer.send(Message("T", b"m"))
                sent += 1
            except OperationTimeout:
                failed += 1

        async with trio.open_nursery() as nursery:
            for _ in range(30):
                nursery.start_soon(one)
    assert (most, running) == (3, 0)
    # Five rounds of three fit into the time; the sixth was in flight, the others were never sent.
    assert (sent, failed, sum(sends(cluster).values())) == (15, 15, 18)


async def test_unknown_topics(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    async with Producer("P", name_server=NAME_SERVER) as producer:
        with pytest.raises(NoRoute, match="updateTopic") as caught:
            await producer.send(Message("New", b"m"))
        assert NAME_SERVER in str(caught.value)
        cluster.topic("TBW102", 8)
        assert (await producer.send(Message("New", b"m"))).queue.topic == "New"
        assert len(await producer.queues("New")) == 8
        cluster.topic("New", 3)
        await trio.sleep(31)
        assert len(await producer.queues("New")) == 6


async def test_sends_that_begin_together_ask_for_the_route_once(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    cluster.topic("TBW102", 8)
    async with Producer("P", name_server=NAME_SERVER) as producer:
        await producer.send_many([Message("New", b"m")] * 100, in_flight=50)
    assert [topic for _, topic in cluster.route_requests] == ["New", "TBW102"]


async def test_a_broker_that_sheds_load_is_given_a_moment(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    cluster.brokers["b"].up = False
    for broker in cluster.brokers.values():
        broker.will(SEND, refuse(ResponseCode.SYSTEM_BUSY), refuse(ResponseCode.SYSTEM_BUSY))
    async with Producer("P", name_server=NAME_SERVER) as producer:
        began = trio.current_time()
        assert (await producer.send(Message("T", b"m"))).status is SendStatus.SEND_OK
    times = [at - began for at in cluster.brokers["a"].times_of(SEND)]
    assert times == pytest.approx([0, 0.15, 0.3])


async def test_brokers_hear_of_a_producer_at_once_and_every_half_minute(
    cluster: FakeCluster, autojump_clock: MockClock
) -> None:
    async with Producer("P", name_server=NAME_SERVER) as producer:
        began = trio.current_time()
        await producer.send(Message("T", b"m"))
        await trio.sleep(95)
        for broker in cluster.brokers.values():
            beats = [at - began for at in broker.times_of(RequestCode.HEART_BEAT)]
            assert beats[0] == 0
            assert len(beats) == 4
            heartbeat = HeartbeatData.decode(broker.of(RequestCode.HEART_BEAT)[0].body)
            assert [one.group_name for one in heartbeat.producer_data_set] == ["P"]
        assert len([at for at, topic in cluster.route_requests if topic == "T"]) == 4
    assert all(broker.of(RequestCode.UNREGISTER_CLIENT) for broker in cluster.brokers.values())


async def test_closed_producers_and_taken_groups(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    producer = Producer("P", name_server=NAME_SERVER)
    with pytest.raises(ClientClosed, match="async with"):
        await producer.send(Message("T", b"m"))
    async with Client(ClientConfig(name_server=NAME_SERVER)) as client, Producer("P", client=client):
        with pytest.raises(ConfigurationError, match="already has a producer"):
            async with Producer("P", client=client):
                pass
        with pytest.raises(ConfigurationError, match="shared client"):
            Producer("Q", client=client, namespace="N")
    with pytest.raises(ConfigurationError, match="name"):
        Producer(" ", name_server=NAME_SERVER)


async def test_requests_are_signed(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    account = Credentials("key", "secret", "token")
    async with Producer("P", name_server=NAME_SERVER, credentials=account) as producer:
        await producer.send(Message("T", b"m"))
    request = cluster.brokers["a"].of(SEND)[0]
    assert request.ext_fields is not None
    assert (request.ext_fields["AccessKey"], request.ext_fields["SecurityToken"]) == ("key", "token")
    assert is_signed_by(request.ext_fields, request.body, "secret")


async def test_the_vip_port_is_used_when_asked_for(cluster: FakeCluster, autojump_clock: MockClock) -> None:
    for broker in cluster.brokers.values():
        broker.advertised, broker.address = broker.address, vip_address(broker.address)
    async with Producer("P", name_server=NAME_SERVER, vip_channel=True) as producer:
        assert (await producer.send(Message("T", b"m"))).status is SendStatus.SEND_OK
    async with Producer("P", name_server=NAME_SERVER) as producer:
        with pytest.raises(SendFailed, match="10911"):
            await producer.send(Message("T", b"m"))
