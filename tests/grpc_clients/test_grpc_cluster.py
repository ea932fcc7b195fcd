"""Routes and assignments of a cluster, through any of its brokers."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio
from free_ports import free_port
from grpc_lab import LIMIT_SECONDS, TOPIC, Answer, Client, Code, Lab, lab
from msgspec.structs import replace

from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.broker.embedded.plan import EMBEDDED_SETTINGS
from triomq.daemon.clock import system_now_ms
from triomq.grpc_front import schema
from triomq.protocol.bodies.topic_config import TopicConfig

GROUP = "g"


@asynccontextmanager
async def another(broker: Lab, folder: Path, *topics: str, **settings: str) -> AsyncIterator[BrokerController]:
    """Run a further broker of the cluster, with these topics of one queue each."""
    values = {
        **EMBEDDED_SETTINGS,
        "listenPort": "0",
        "brokerName": "broker-b",
        "namesrvAddr": broker.cluster.name_server,
        "storePathRootDir": str(folder),
        **settings,
    }
    controller = BrokerController(Configuration.from_values(values), now_ms=system_now_ms)
    async with trio.open_nursery() as nursery:
        await nursery.start(controller.serve)
        assert controller.serving is not None
        for topic in topics:
            config = TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1)
            controller.serving.tables.metadata.topics.update(config)
        await controller.serving.registration.register_all()
        yield controller
        nursery.cancel_scope.cancel()


async def routed(client: Client, topic: str = TOPIC) -> Answer:
    request = schema.QueryRouteRequest()
    request.topic.name = topic
    return await client.call("QueryRoute", request)


def places(queues: Any) -> list[tuple[str, int, int]]:
    """Return broker, port and queue of each."""
    return [(each.broker.name, each.broker.endpoints.addresses[0].port, each.id) for each in queues]


async def test_a_route_has_the_queues_of_all_brokers(broker: Lab, tmp_path: Path) -> None:
    port = free_port()
    async with another(broker, tmp_path, TOPIC, "Elsewhere", grpcServerPort=str(port)):
        client = await broker.client()
        expected = [("broker-a", 18081, 0), ("broker-a", 18081, 1), ("broker-b", port, 0)]
        assert places((await routed(client)).messages[0].message_queues) == expected
        elsewhere = (await routed(client, "Elsewhere")).messages[0].message_queues
        assert places(elsewhere) == [("broker-b", port, 0)]
        request = schema.QueryAssignmentRequest()
        request.topic.name, request.group.name = TOPIC, GROUP
        assignments = (await client.call("QueryAssignment", request)).messages[0].assignments
        assert places([each.message_queue for each in assignments]) == [("broker-a", 18081, -1), ("broker-b", port, -1)]
        answer = await routed(client, "Nowhere")
        assert answer.status == Code.TOPIC_NOT_FOUND
        assert "neither broker-a nor another broker" in answer.messages[0].status.message


async def test_a_broker_that_grpc_clients_cannot_use_is_in_no_route(broker: Lab, tmp_path: Path) -> None:
    async with another(broker, tmp_path, TOPIC, "Elsewhere"):
        client = await broker.client()
        assert len((await routed(client)).messages[0].message_queues) == 2
        assert (await routed(client, "Elsewhere")).status == Code.TOPIC_NOT_FOUND


async def test_a_slave_leads_to_its_master(broker: Lab, tmp_path: Path) -> None:
    port = free_port()
    slave = {"brokerName": "broker-a", "brokerRole": "SLAVE", "brokerId": "1", "grpcServerPort": str(port)}
    async with another(broker, tmp_path, TOPIC, **slave):
        client = await Lab(broker.cluster, port, broker._nursery).client()
        expected = [("broker-a", broker.port, 0), ("broker-a", broker.port, 1)]
        assert places((await routed(client)).messages[0].message_queues) == expected


async def test_a_slave_without_a_master_says_so(tmp_path: Path) -> None:
    slave = {"brokerRole": "SLAVE", "brokerId": "1"}
    async with lab(tmp_path / "slave", **slave) as broker:
        answer = await routed(await broker.client())
        assert answer.status == Code.HA_NOT_AVAILABLE
        assert "broker-a has no master now" in answer.messages[0].status.message


async def test_a_broker_that_said_no_endpoint_is_asked_again(
    broker: Lab, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("triomq.broker.grpc.others.RETRY_SECONDS", 0.1)
    async with another(broker, tmp_path, TOPIC, grpcServerPort=str(free_port())) as controller:
        client, configuration = await broker.client(), controller.configuration
        opened = configuration.broker
        configuration.broker = replace(opened, grpc_server_port=0)
        assert len((await routed(client)).messages[0].message_queues) == 2
        configuration.broker = opened
        with trio.fail_after(LIMIT_SECONDS):
            while len((await routed(client)).messages[0].message_queues) == 2:  # noqa: ASYNC110
                await trio.sleep(0.1)
