"""A broker with grpcServerPort, and gRPC clients made of the h2 library and the project's table of fields."""

from __future__ import annotations

import ssl
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from pathlib import Path

import trio
from free_ports import free_port

from sim.grpc_wire import LIMIT_SECONDS as LIMIT_SECONDS
from sim.grpc_wire import TOPIC as TOPIC
from sim.grpc_wire import Answer as Answer
from sim.grpc_wire import Client as Client
from sim.grpc_wire import acknowledging as acknowledging
from sim.grpc_wire import message as message
from sim.grpc_wire import receiving as receiving
from triomq.broker.assembly.serving import Serving
from triomq.broker.controller import BrokerController
from triomq.broker.embedded import LocalCluster
from triomq.grpc_front import schema
from triomq.protocol.bodies.topic_config import TopicConfig

Code = schema.Code


class Lab:
    """A broker, and clients of it."""

    def __init__(self, cluster: LocalCluster, port: int, nursery: trio.Nursery) -> None:
        self.cluster = cluster
        self.port = port
        self._nursery = nursery

    @property
    def controller(self) -> BrokerController:
        return self.cluster._controllers[0]

    @property
    def serving(self) -> Serving:
        assert self.controller.serving is not None
        return self.controller.serving

    async def client(
        self,
        client_id: str = "client-1",
        *,
        tls: ssl.SSLContext | None = None,
        nursery: trio.Nursery | None = None,
        proxied: bytes = b"",
        **headers: str,
    ) -> Client:
        """Connect a client, which runs in the nursery. Header names have underscores. `proxied` is what a load balancer
        sends first."""
        stream: trio.abc.Stream = await trio.open_tcp_stream("127.0.0.1", self.port)
        await stream.send_all(proxied)
        if tls is not None:
            secured = trio.SSLStream(stream, tls)  # type: ignore[arg-type]
            await secured.do_handshake()
            stream = secured
        named = {name.replace("_", "-"): value for name, value in headers.items()}
        client = Client(stream, {"x-mq-client-id": client_id, "x-mq-language": "JAVA", **named})
        await (nursery or self._nursery).start(client.run)
        return client


@asynccontextmanager
async def lab(store: Path | None = None, **settings: str) -> AsyncIterator[Lab]:
    """Run a broker with these settings, and with the topic T of two queues."""
    port = free_port()
    values = {"grpcServerPort": str(port), **settings}
    async with LocalCluster(store=store, settings=values) as cluster, trio.open_nursery() as nursery:
        broker = Lab(cluster, port, nursery)
        topic = TopicConfig(topic_name=TOPIC, read_queue_nums=2, write_queue_nums=2)
        broker.serving.tables.metadata.topics.update(topic)
        await broker.serving.registration.register_all()
        yield broker
        nursery.cancel_scope.cancel()


async def true_soon(holds: Callable[[], bool]) -> None:
    """Wait until something holds."""
    with trio.fail_after(LIMIT_SECONDS):
        while not holds():  # noqa: ASYNC110
            await trio.sleep(0.01)
