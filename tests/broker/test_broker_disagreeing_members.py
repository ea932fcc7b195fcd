"""Members of a group that subscribe differently: the broker logs it once, with both sides, and tells the members."""

from __future__ import annotations

import json
import logging
from typing import Any

import pytest
import structlog
import trio
from broker_fakes import FakeConnection, request
from broker_metadata import metadata
from fake_clock import FakeClock

from triomq.broker.config import BrokerSettings
from triomq.broker.configuration import Configuration
from triomq.broker.processors.client import SHORT_HEARTBEAT_BYTES, ClientProcessor
from triomq.broker.tables.consumers import ConsumerTable
from triomq.client.api import Message, Producer, PushConsumer
from triomq.protocol.command import RemotingCommand
from triomq.testing import LocalCluster

EVENT = "different subscriptions found within a group"


class Broker:
    """The part of a broker that members of groups see."""

    def __init__(self, clock: FakeClock) -> None:
        self.clock = clock
        self.consumers = ConsumerTable(clock)
        configuration = Configuration(broker=BrokerSettings(broker_name="b-a"))
        self.processor = ClientProcessor(configuration, metadata(clock, consumers=self.consumers))

    def beat(self, connection: FakeConnection, client: str, subscriptions: dict[str, str], **more: Any) -> str | None:
        """Send a heartbeat for the group G; return the remark of its response."""
        found = [
            {"topic": topic, "subString": text, "expressionType": "TAG", "subVersion": more.get("version", 1)}
            for topic, text in subscriptions.items()
        ]
        group = {"groupName": "G", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": found}
        body = json.dumps({"clientID": client, "consumerDataSet": [group], "producerDataSet": []})
        response = self.processor.heartbeat(connection, request(34, body=body.encode()))
        assert isinstance(response, RemotingCommand)
        assert response.code == 0
        return response.remark


@pytest.fixture
def broker() -> Broker:
    return Broker(FakeClock())


def logged(captured: list[Any]) -> list[str]:
    return [entry["reason"] for entry in captured if entry["event"] == EVENT]


def test_different_expressions_are_logged_once_with_both_sides_and_told_to_both(broker: Broker) -> None:
    first, second = FakeConnection(), FakeConnection()
    with structlog.testing.capture_logs() as captured:
        assert broker.beat(first, "m1", {"T": "new"}, version=2) is None
        remark = broker.beat(second, "m2", {"T": "paid"}, version=1)
        assert remark is not None
        for _ in range(3):
            broker.clock.advance(30_000)
            assert broker.beat(first, "m1", {"T": "new"}, version=2) == remark
            assert broker.beat(second, "m2", {"T": "paid"}, version=1) == remark
    assert logged(captured) == [remark]
    assert "members of group G subscribe differently: m2 to T 'paid', m1 or others to T 'new'." in remark


def test_different_topics_are_told(broker: Broker) -> None:
    broker.beat(FakeConnection(), "m1", {"T": "*", "U": "*"})
    remark = broker.beat(FakeConnection(), "m2", {"T": "*", "V": "*"})
    assert remark is not None
    assert "m2 to V '*', m1 or others to U '*'." in remark


def test_members_that_agree_and_one_that_changes_its_mind_alone_are_told_nothing(broker: Broker) -> None:
    first, second = FakeConnection(), FakeConnection()
    with structlog.testing.capture_logs() as captured:
        assert broker.beat(first, "m1", {"T": "a"}) is None
        assert broker.beat(first, "m1", {"T": "b"}, version=2) is None
        assert broker.beat(second, "m2", {"T": "b"}, version=1) is None
        assert broker.beat(first, "m1", {"T": "b"}, version=2) is None
    assert logged(captured) == []


def test_the_successor_of_a_member_that_left_is_told_nothing(broker: Broker) -> None:
    first, second, third = FakeConnection(), FakeConnection(), FakeConnection()
    broker.beat(second, "m2", {"T": "a"})
    broker.beat(first, "m1", {"T": "a"})
    broker.consumers.unregister("G", first)
    assert broker.beat(third, "m3", {"T": "a"}) is None


def test_it_is_over_two_minutes_after_the_last_difference_and_logged_when_it_comes_again(broker: Broker) -> None:
    first, second = FakeConnection(), FakeConnection()
    with structlog.testing.capture_logs() as captured:
        broker.beat(first, "m1", {"T": "a"}, version=2)
        assert broker.beat(second, "m2", {"T": "b"}, version=1) is not None
        broker.clock.advance(120_001)
        assert broker.beat(second, "m2", {"T": "a"}, version=3) is None
        assert broker.beat(second, "m2", {"T": "a"}, version=3) is None
        assert broker.beat(first, "m1", {"T": "c"}, version=4) is not None
    assert len(logged(captured)) == 2


async def test_long_heartbeats_are_answered_alike(broker: Broker) -> None:
    broker.beat(FakeConnection(), "m1", {"T": "a"}, version=2)
    found = [{"topic": "T", "subString": "b", "expressionType": "TAG", "subVersion": 1}]
    group = {"groupName": "G", "consumeType": "CONSUME_PASSIVELY", "subscriptionDataSet": found}
    body = json.dumps({"clientID": "m2", "consumerDataSet": [group]}).ljust(SHORT_HEARTBEAT_BYTES + 1)
    response = await broker.processor.heartbeat(FakeConnection(), request(34, body=body.encode()))  # type: ignore[misc]
    assert response.remark is not None


def test_names_and_expressions_are_cut(broker: Broker) -> None:
    broker.beat(FakeConnection(), "m" * 200, {f"T{number}": "a" * 150 for number in range(20)})
    remark = broker.beat(FakeConnection(), "n" * 200, {f"U{number}": "a" * 150 for number in range(20)})
    assert remark is not None
    assert len(remark) < 2000
    assert "and 17 more" in remark


async def test_the_python_client_warns(caplog: pytest.LogCaptureFixture) -> None:
    with LocalCluster() as cluster, caplog.at_level(logging.WARNING):
        async with Producer("P", name_server=cluster.name_server) as producer:
            await producer.send(Message("T", b"m"))
        async with (
            PushConsumer("G", name_server=cluster.name_server, instance_name="a") as first,
            PushConsumer("G", name_server=cluster.name_server, instance_name="b") as second,
        ):
            first.subscribe("T", "new")
            second.subscribe("T", "paid")
            with trio.fail_after(30):
                while not any(text.startswith("remark received from a broker") for text in caplog.messages):  # noqa: ASYNC110
                    await trio.sleep(0.02)
    [told] = [text for text in caplog.messages if text.startswith("remark received from a broker")][:1]
    assert "T 'new'" in told
    assert "T 'paid'" in told
