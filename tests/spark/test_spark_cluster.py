"""A cluster as sources and sink see it: the name server and address of each request, and which requests are retried."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from scripted_servers import Registry, Respond, ScriptedServer, closed_address, scripted_server

from triomq.client.core import name_server_list
from triomq.client.core.cluster_requests import check_subscription
from triomq.client.core.requests import Call
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.headers.offset import GetMaxOffsetResponseHeader
from triomq.protocol.message_queue import MessageQueue
from triomq.protocol.subscription import SQL92, build_subscription
from triomq.spark.cluster import Cluster
from triomq.spark.errors import BrokerError, OptionError
from triomq.spark.options import ConnectionOptions

READ, WRITE = 4, 2


class Timer:
    """A clock that moves only in pauses. `then`: what happens elsewhere in each pause, in order."""

    def __init__(self) -> None:
        self.seconds = 0.0
        self.pauses = 0
        self.then: list[Any] = []

    def clock(self) -> float:
        return self.seconds

    def wait(self, seconds: float) -> None:
        self.seconds += seconds
        self.pauses += 1
        if self.then:
            self.then.pop(0)()


@contextmanager
def opened(*name_servers: str, timer: Timer | None = None, retry_timeout_ms: int = 3000) -> Iterator[Cluster]:
    timer = timer or Timer()
    options = ConnectionOptions(name_servers, request_timeout_ms=5000, retry_timeout_ms=retry_timeout_ms)
    with Cluster(options, clock=timer.clock, wait=timer.wait) as cluster:
        yield cluster


def offset(value: int) -> Respond:
    return lambda request: new_response(request, 0, header=GetMaxOffsetResponseHeader(offset=value))


def check() -> Call[None]:
    return check_subscription("id", "g", build_subscription("T", "a > 1", SQL92))


def refusal(code: int) -> Respond:
    return lambda request: new_response(request, code, "no")


@pytest.fixture
def registry() -> Registry:
    made = Registry()
    made.brokers["b"] = {0: "127.0.0.1:1"}
    return made


@pytest.fixture
def name_server(registry: Registry) -> Iterator[ScriptedServer]:
    with scripted_server(registry.script()) as server:
        yield server


def test_the_name_server_that_responded_last_is_asked_first(
    registry: Registry, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(name_server_list.random, "randrange", lambda count: 0)
    with scripted_server({}) as first, scripted_server(registry.script()) as second:
        first.script[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: None
        with opened(first.address, second.address) as cluster:
            assert cluster.brokers() == cluster.brokers() == {"b": "127.0.0.1:1"}
    assert (len(first.requests), len(second.requests)) == (1, 2)


def test_a_connection_that_a_name_server_closed_is_made_anew(registry: Registry, name_server: ScriptedServer) -> None:
    timer = Timer()
    name_server.script[RequestCode.GET_BROKER_CLUSTER_INFO] = lambda request: None
    timer.then = [lambda: name_server.script.update(registry.script())]
    with opened(name_server.address, timer=timer) as cluster:
        assert cluster.brokers() == {"b": "127.0.0.1:1"}
        assert timer.pauses == 1


def test_name_servers_are_asked_again_until_the_time_is_over(registry: Registry) -> None:
    timer = Timer()
    dead = closed_address()
    with (
        opened(dead, timer=timer, retry_timeout_ms=2000) as cluster,
        pytest.raises(BrokerError, match=rf"no name server .*{dead}: .*\(tried for 2000 ms\)"),
    ):
        cluster.brokers()
    assert timer.seconds == 2.0


def test_queues_are_those_with_permission_and_addresses_those_of_masters(
    registry: Registry, name_server: ScriptedServer
) -> None:
    registry.brokers |= {"c": {1: "slave:1", 0: "master:1"}, "d": {2: "second:1", 1: "first:1"}}
    registry.topics["T"] = {"c": (2, 1, READ | WRITE), "b": (1, 1, READ), "d": (0, 1, WRITE)}
    with opened(name_server.address) as cluster:
        route = cluster.route("T")
        assert route.subscribe == [MessageQueue("T", "b", 0), MessageQueue("T", "c", 0), MessageQueue("T", "c", 1)]
        assert MessageQueue("T", "c", 0) in route.publish and MessageQueue("T", "b", 0) not in route.publish
        assert cluster.address("T", "c") == "master:1"
        assert cluster.address("T", "d") == "first:1", "without a master the first slave is read from"


def test_a_broker_without_the_topic_is_found_among_the_registered_ones(
    registry: Registry, name_server: ScriptedServer
) -> None:
    registry.brokers["c"] = {1: "slave:1", 0: "c:1"}
    registry.topics["T"] = {"b": (1, 1, READ | WRITE)}
    with opened(name_server.address) as cluster:
        assert cluster.address("T", "c") == "c:1"
        assert cluster.has_route(MessageQueue("T", "b", 0)) and not cluster.has_route(MessageQueue("T", "c", 0))
        assert not cluster.has_route(MessageQueue("New", "b", 0))
        assert cluster.address("New", "c") == "c:1"
        registry.topics["T"]["c"] = (1, 1, READ | WRITE)
        assert cluster.address("T", "c") == "c:1"
        assert cluster.has_route(MessageQueue("T", "c", 0)), "a route that leaves a broker out is not kept"


def test_a_route_is_asked_for_once_until_it_is_forgotten(registry: Registry, name_server: ScriptedServer) -> None:
    registry.topics["T"] = {"b": (1, 1, READ)}
    with opened(name_server.address) as cluster:
        for _ in range(3):
            cluster.route("T")
        assert name_server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 1
        cluster.forget_routes()
        cluster.route("T")
        cluster.drop("127.0.0.1:1")
        cluster.route("T")
        assert name_server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC) == 3


def test_a_missing_topic_is_an_error_only_when_brokers_are_registered(
    registry: Registry, name_server: ScriptedServer
) -> None:
    timer = Timer()
    with opened(name_server.address, timer=timer) as cluster:
        with pytest.raises(OptionError, match=f"topic 'T' does not exist .name server {name_server.address}"):
            cluster.route("T")
        assert (timer.pauses, cluster.settled_route("T")) == (0, None)
        registry.brokers.clear()

        def restarted() -> None:
            registry.brokers["b"] = {0: "b:1"}
            registry.topics["T"] = {"b": (1, 1, READ)}

        timer.then = [lambda: None, restarted]
        assert cluster.route("T").subscribe == [MessageQueue("T", "b", 0)]
        assert timer.pauses == 2


def test_topics_match_by_their_whole_name_and_are_waited_for(registry: Registry, name_server: ScriptedServer) -> None:
    timer = Timer()
    with opened(name_server.address, timer=timer) as cluster:
        assert cluster.topics_matching("Or.*") == []
        registry.topics |= {"Orders": {}, "Orphans": {}, "BackOrders": {}, "OrdersOld": {}}
        assert cluster.topics_matching("Or.*s") == ["Orders", "Orphans"]
        topics = dict(registry.topics)
        registry.topics.clear()
        registry.brokers.clear()
        timer.then = [lambda: registry.topics.update(topics)]
        assert cluster.topics_matching("Or.*s") == ["Orders", "Orphans"]


QUEUES = [MessageQueue("T", "b", number) for number in range(600)]


@pytest.fixture
def broker(registry: Registry) -> Iterator[ScriptedServer]:
    with scripted_server() as server:
        registry.brokers["b"] = {0: server.address}
        registry.topics["T"] = {"b": (600, 600, READ | WRITE)}
        yield server


def test_offsets_of_many_queues_come_in_the_order_of_the_queues(
    name_server: ScriptedServer, broker: ScriptedServer
) -> None:
    def number(request: RemotingCommand) -> RemotingCommand:
        return new_response(
            request, 0, header=GetMaxOffsetResponseHeader(offset=int((request.ext_fields or {})["queueId"]))
        )

    broker.script[RequestCode.GET_MAX_OFFSET] = number
    with opened(name_server.address) as cluster:
        assert cluster.max_offsets(QUEUES) == {queue: queue.queue_id for queue in QUEUES}
    assert len(broker.requests) == 600


def test_a_broker_that_goes_away_is_asked_again(name_server: ScriptedServer, broker: ScriptedServer) -> None:
    """A broken connection is opened again, at the broker's present address."""
    timer = Timer()
    broker.script[RequestCode.GET_MAX_OFFSET] = lambda request: None
    timer.then = [lambda: broker.script.update({RequestCode.GET_MAX_OFFSET: offset(7)})]
    with opened(name_server.address, timer=timer) as cluster:
        assert cluster.max_offsets(QUEUES[:1]) == {QUEUES[0]: 7}
    assert (timer.pauses, name_server.count(RequestCode.GET_ROUTEINFO_BY_TOPIC)) == (1, 2)


def test_a_topic_that_does_not_exist_gets_four_queues_at_each_broker_that_creates_topics(
    registry: Registry, name_server: ScriptedServer
) -> None:
    registry.brokers["c"] = {0: "c:1"}
    with opened(name_server.address) as cluster:
        assert cluster.publish_route("T") is None
        registry.topics["TBW102"] = {"b": (8, 8, READ | WRITE), "c": (2, 2, READ | WRITE)}
        route = cluster.publish_route("T")
        assert route is not None and route.is_template
        assert [(queue.broker_name, queue.queue_id) for queue in route.publish] == [
            ("b", 0),
            ("b", 1),
            ("b", 2),
            ("b", 3),
            ("c", 0),
            ("c", 1),
        ]
        assert not cluster.has_route(MessageQueue("T", "c", 0)), "the template says nothing about the topic"
        assert cluster.address("T", "c") == "c:1"
        registry.topics["T"] = {"b": (1, 1, READ | WRITE)}
        route = cluster.publish_route("T")
        assert route is not None and (route.is_template, len(route.publish)) == (False, 1)


@pytest.mark.parametrize("code", [ResponseCode.SYSTEM_BUSY, ResponseCode.SERVICE_NOT_AVAILABLE])
def test_a_broker_that_is_busy_or_still_starting_is_asked_again(
    code: int, name_server: ScriptedServer, broker: ScriptedServer
) -> None:
    timer = Timer()
    broker.script[RequestCode.GET_MAX_OFFSET] = refusal(code)
    broker.script[RequestCode.CHECK_CLIENT_CONFIG] = refusal(code)
    timer.then = [
        lambda: broker.script.update({RequestCode.GET_MAX_OFFSET: offset(7)}),
        lambda: broker.script.update({RequestCode.CHECK_CLIENT_CONFIG: refusal(0)}),
    ]
    with opened(name_server.address, timer=timer) as cluster:
        assert cluster.max_offsets(QUEUES[:1]) == {QUEUES[0]: 7}
        cluster.ask("T", "b", check)
        assert timer.pauses == 2
        broker.script[RequestCode.GET_MAX_OFFSET] = refusal(code)
        with pytest.raises(BrokerError, match=r"tried for 3000 ms") as caught:
            cluster.max_offsets(QUEUES[:1])
        assert caught.value.code == code


def test_a_broker_that_is_not_registered_is_waited_for(
    registry: Registry, name_server: ScriptedServer, broker: ScriptedServer
) -> None:
    timer = Timer()
    broker.script[RequestCode.GET_MIN_OFFSET] = offset(3)
    addresses = registry.brokers.pop("b")
    registry.topics["T"] = {}
    timer.then = [lambda: None, lambda: registry.brokers.update(b=addresses)]
    with opened(name_server.address, timer=timer) as cluster:
        assert cluster.min_offsets(QUEUES[:1]) == {QUEUES[0]: 3}
        assert timer.pauses == 2
        registry.brokers.clear()
        with pytest.raises(BrokerError, match=r"broker 'b' of topic 'T' is not registered .tried for 3000 ms."):
            cluster.min_offsets(QUEUES[:1])


def test_who_waits_for_a_broker_is_told_once_after_three_seconds(
    registry: Registry, name_server: ScriptedServer, caplog: pytest.LogCaptureFixture
) -> None:
    registry.brokers.clear()
    registry.topics["T"] = {}
    with (
        opened(name_server.address, timer=Timer(), retry_timeout_ms=10_000) as cluster,
        pytest.raises(BrokerError, match="tried for 10000 ms"),
    ):
        cluster.min_offsets(QUEUES[:1])
    (said,) = [each.getMessage() for each in caplog.records if each.name == "triomq.spark"]
    assert said.endswith("is not registered; trying for another 7 s (retryTimeoutMs)")


def test_refusals_of_a_read_are_final_and_name_the_code(name_server: ScriptedServer, broker: ScriptedServer) -> None:
    broker.script[RequestCode.GET_MAX_OFFSET] = refusal(ResponseCode.NO_PERMISSION)
    timer = Timer()
    with opened(name_server.address, timer=timer) as cluster:
        with pytest.raises(BrokerError, match=r"NO_PERMISSION \(16\)") as caught:
            cluster.max_offsets(QUEUES[:1])
        assert (caught.value.code, timer.pauses) == (ResponseCode.NO_PERMISSION, 0)


def test_a_response_that_cannot_be_read_names_the_request(name_server: ScriptedServer, broker: ScriptedServer) -> None:
    broker.script[RequestCode.GET_MAX_OFFSET] = refusal(ResponseCode.SUCCESS)  # without its header
    with (
        opened(name_server.address) as cluster,
        pytest.raises(BrokerError, match=rf"asking for the end of .* at {broker.address} failed: .*offset"),
    ):
        cluster.max_offsets(QUEUES[:1])


def test_queues_without_a_group_offset_are_left_out(name_server: ScriptedServer, broker: ScriptedServer) -> None:
    def respond(request: RemotingCommand) -> RemotingCommand:
        if (request.ext_fields or {})["queueId"] == "1":
            return new_response(request, ResponseCode.QUERY_NOT_FOUND, "none")
        return offset(5)(request)

    broker.script[RequestCode.QUERY_CONSUMER_OFFSET] = respond
    with opened(name_server.address) as cluster:
        assert cluster.group_offsets("g", QUEUES[:3]) == {QUEUES[0]: 5, QUEUES[2]: 5}
        broker.script[RequestCode.QUERY_CONSUMER_OFFSET] = refusal(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(BrokerError, match="SYSTEM_ERROR"):
            cluster.group_offsets("g", QUEUES[:1])


def test_group_offsets_are_stored_with_their_queues(name_server: ScriptedServer, broker: ScriptedServer) -> None:
    broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = refusal(ResponseCode.SUCCESS)
    with opened(name_server.address) as cluster:
        cluster.store_group_offsets("g", {QUEUES[2]: 9, QUEUES[0]: 4})
        sent = [request.ext_fields or {} for request in broker.requests]
        assert [(one["consumerGroup"], one["queueId"], one["commitOffset"]) for one in sent] == [
            ("g", "2", "9"),
            ("g", "0", "4"),
        ]
        broker.script[RequestCode.UPDATE_CONSUMER_OFFSET] = refusal(ResponseCode.SYSTEM_ERROR)
        with pytest.raises(BrokerError, match=r"storing the offset of group 'g'.*SYSTEM_ERROR"):
            cluster.store_group_offsets("g", {QUEUES[0]: 4})


def test_a_request_that_may_be_repeated_is_asked_again_on_a_new_connection(
    name_server: ScriptedServer, broker: ScriptedServer
) -> None:
    timer = Timer()
    broker.script[RequestCode.CHECK_CLIENT_CONFIG] = lambda request: None
    timer.then = [lambda: broker.script.update({RequestCode.CHECK_CLIENT_CONFIG: refusal(0)})]
    with opened(name_server.address, timer=timer) as cluster:
        cluster.ask("T", "b", check)
        assert timer.pauses == 1
        broker.script[RequestCode.CHECK_CLIENT_CONFIG] = refusal(ResponseCode.SUBSCRIPTION_PARSE_FAILED)
        with pytest.raises(BrokerError, match=r"checking the subscription to 'T'.*SUBSCRIPTION_PARSE_FAILED.*: no"):
            cluster.ask("T", "b", check)
