"""A cluster without sockets, for tests under a mock clock: the remoting client's servers, scripted and recording."""

from __future__ import annotations

from collections import deque
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from typing import Any

import pytest
import trio

from triomq.protocol import sys_flag
from triomq.protocol.address import HostPort
from triomq.protocol.bodies.heartbeat import HeartbeatData
from triomq.protocol.bodies.name_list import GetConsumerListByGroupResponseBody
from triomq.protocol.bodies.queue_lock import LockBatchRequestBody, LockBatchResponseBody
from triomq.protocol.bodies.route import BrokerData, ClusterInfo, QueueData, TopicRouteData
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.headers.base import Header
from triomq.protocol.headers.namesrv import GetRouteInfoRequestHeader
from triomq.protocol.headers.offset import (
    GetMaxOffsetRequestHeader,
    GetMaxOffsetResponseHeader,
    QueryConsumerOffsetRequestHeader,
    QueryConsumerOffsetResponseHeader,
    UpdateConsumerOffsetRequestHeader,
)
from triomq.protocol.headers.pull import PullMessageRequestHeader, PullMessageResponseHeader
from triomq.protocol.headers.send import (
    ConsumerSendMsgBackRequestHeader,
    SendMessageRequestHeaderV2,
    SendMessageResponseHeader,
)
from triomq.protocol.message import MessageExt
from triomq.protocol.record import encode_record
from triomq.remoting.errors import ConnectFailed, ConnectionClosed, RemotingTimeout

Answer = Callable[[RemotingCommand], RemotingCommand] | Exception
NAME_SERVER = "ns:9876"


class FakeBroker:
    """One broker. `script[code]` holds the responses to the next requests of that code; later ones get a default
    response. `requests` holds all requests received.
    """

    def __init__(self, cluster: FakeCluster, name: str, broker_id: int = 0) -> None:
        self.cluster = cluster
        self.name = name
        self.address = self.advertised = f"{name}:{10911 + broker_id}"
        self.up = True
        self.is_still_listed = False
        self.slow_seconds = 0.0
        self.script: dict[int, deque[Answer]] = {}
        self.requests: list[tuple[float, RemotingCommand]] = []
        self.records: dict[tuple[str, int], list[bytes]] = {}
        self.first_offset: dict[tuple[str, int], int] = {}
        self.offsets: dict[tuple[str, str, int], int] = {}
        self.members: dict[str, set[str]] = {}
        self.lockers: dict[tuple[str, str, int], str] = {}
        self.sent_back: list[ConsumerSendMsgBackRequestHeader] = []
        self.arrived = trio.Event()

    def of(self, code: int) -> list[RemotingCommand]:
        return [request for _, request in self.requests if request.code == code]

    def times_of(self, code: int) -> list[float]:
        return [at for at, request in self.requests if request.code == code]

    def will(self, code: int, *answers: Answer) -> None:
        self.script.setdefault(code, deque()).extend(answers)

    def store(self, topic: str, queue_id: int, *bodies: bytes, tags: str | None = None) -> None:
        """Store messages as if another client had sent them."""
        records = self.records.setdefault((topic, queue_id), [])
        for body in bodies:
            message = MessageExt(topic, body, properties={"TAGS": tags} if tags else {})
            message.queue_id = queue_id
            message.queue_offset = len(records) + self.first_offset.get((topic, queue_id), 0)
            message.physical_offset = len(records) * 1000 + queue_id
            message.store_host = HostPort("10.0.0.1", 10911)
            records.append(encode_record(message))
        self.arrived.set()
        self.arrived = trio.Event()

    async def handle(self, request: RemotingCommand) -> RemotingCommand:
        self.requests.append((trio.current_time(), request))
        if self.slow_seconds:
            await trio.sleep(self.slow_seconds)
        scripted = self.script.get(request.code)
        if scripted:
            answer = scripted.popleft()
            if isinstance(answer, Exception):
                raise answer
            return answer(request)
        name = RequestCode(request.code).name.lower()
        handler = getattr(self, name, None)
        if handler is None:
            return new_response(request)
        response = handler(request)
        return response if isinstance(response, RemotingCommand) else await response

    def send_message_v2(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(SendMessageRequestHeaderV2)
        topic = header.topic
        if header.max_reconsume_times is not None and (header.reconsume_times or 0) >= header.max_reconsume_times:
            topic = topic.replace("%RETRY%", "%DLQ%")
        self.store(topic, header.queue_id, request.body)
        at = len(self.records[(topic, header.queue_id)]) - 1
        answer = SendMessageResponseHeader(msg_id="0" * 32, queue_id=header.queue_id, queue_offset=at)
        return new_response(request, header=answer)

    send_batch_message = send_message_v2

    async def pull_message(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(PullMessageRequestHeader)
        key = (header.topic, header.queue_id)
        deadline = trio.current_time() + header.suspend_timeout_millis / 1000
        while True:
            first = self.first_offset.get(key, 0)
            records = self.records.get(key, [])
            end = first + len(records)
            if not first <= header.queue_offset <= end:
                code, moved = ResponseCode.PULL_OFFSET_MOVED, first if header.queue_offset < first else end
                return new_response(request, code, header=self._bounds(moved, first, end))
            at = header.queue_offset - first
            found = records[at : at + header.max_msg_nums]
            if found:
                answer = self._bounds(header.queue_offset + len(found), first, end)
                return new_response(request, header=answer, body=b"".join(found))
            waits = header.sys_flag & sys_flag.PULL_SUSPEND and trio.current_time() < deadline
            if not waits:
                answer = self._bounds(header.queue_offset, first, end)
                return new_response(request, ResponseCode.PULL_NOT_FOUND, header=answer)
            with trio.move_on_at(deadline):
                await self.arrived.wait()

    @staticmethod
    def _bounds(next_offset: int, first: int, end: int) -> PullMessageResponseHeader:
        return PullMessageResponseHeader(
            suggest_which_broker_id=0, next_begin_offset=next_offset, min_offset=first, max_offset=end
        )

    def get_max_offset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(GetMaxOffsetRequestHeader)
        key = (header.topic, header.queue_id)
        end = self.first_offset.get(key, 0) + len(self.records.get(key, []))
        return new_response(request, header=GetMaxOffsetResponseHeader(offset=end))

    def query_consumer_offset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(QueryConsumerOffsetRequestHeader)
        known = self.offsets.get((header.consumer_group, header.topic, header.queue_id))
        if known is None:
            return new_response(request, ResponseCode.QUERY_NOT_FOUND, "Not found")
        return new_response(request, header=QueryConsumerOffsetResponseHeader(offset=known))

    def update_consumer_offset(self, request: RemotingCommand) -> RemotingCommand:
        header = request.header(UpdateConsumerOffsetRequestHeader)
        self.offsets[(header.consumer_group, header.topic, header.queue_id)] = header.commit_offset
        return new_response(request)

    def heart_beat(self, request: RemotingCommand) -> RemotingCommand:
        data = HeartbeatData.decode(request.body)
        assert data.client_id is not None
        for group in data.consumer_data_set:
            self.members.setdefault(group.group_name, set()).add(data.client_id)
        return new_response(request)

    def get_consumer_list_by_group(self, request: RemotingCommand) -> RemotingCommand:
        group = (request.ext_fields or {})["consumerGroup"]
        body = GetConsumerListByGroupResponseBody(consumer_id_list=sorted(self.members.get(group, ())))
        return new_response(request, body=body.encode())

    def lock_batch_mq(self, request: RemotingCommand) -> RemotingCommand:
        body = LockBatchRequestBody.decode(request.body)
        assert body.consumer_group is not None
        assert body.client_id is not None
        granted = set()
        for queue in body.mq_set:
            key = (body.consumer_group, queue.topic, queue.queue_id)
            if self.lockers.setdefault(key, body.client_id) == body.client_id:
                granted.add(queue)
        return new_response(request, body=LockBatchResponseBody(lock_ok_mq_set=frozenset(granted)).encode())

    def consumer_send_msg_back(self, request: RemotingCommand) -> RemotingCommand:
        self.sent_back.append(request.header(ConsumerSendMsgBackRequestHeader))
        return new_response(request)


class FakeConnection:
    """The connection to one broker: when something came last, and its end, which requests that wait notice."""

    def __init__(self) -> None:
        self.last_active = trio.current_time()
        self.ended = trio.Event()

    def close(self, reason: str) -> None:
        self.ended.set()


class FakeCluster:
    """Name server and brokers; `install` puts them in place of the client's connections."""

    def __init__(self, *broker_names: str) -> None:
        self.brokers = {name: FakeBroker(self, name) for name in broker_names}
        self.replicas: dict[str, FakeBroker] = {}
        self.left: FakeBroker | None = None
        self.topics: dict[str, int] = {}
        self.route_requests: list[tuple[float, str]] = []
        self.name_server_seconds = 0.0
        self.name_server_up = True
        self.are_brokers_registered = True
        self.processors: dict[int, Any] = {}
        self.on_close: list[Callable[[str, Any], None]] = []
        self.connections: dict[str, FakeConnection] = {}

    @property
    def broker(self) -> FakeBroker:
        return next(iter(self.brokers.values()))

    def topic(self, name: str, queues: int = 1) -> None:
        self.topics[name] = queues

    def replica(self, name: str) -> FakeBroker:
        """Create a slave that has its master's messages."""
        made = self.replicas[name] = FakeBroker(self, name, 1)
        made.records, made.offsets = self.brokers[name].records, self.brokers[name].offsets
        return made

    @classmethod
    def installed(cls, monkeypatch: pytest.MonkeyPatch, *topics: str, queues: int = 1) -> FakeCluster:
        """Create a cluster of one broker, "a", with these topics, which all clients of the test reach."""
        made = cls("a")
        for topic in topics:
            made.topic(topic, queues)
        made.install(monkeypatch)
        return made

    def install(self, monkeypatch: pytest.MonkeyPatch) -> None:
        @asynccontextmanager
        async def open_client(**_: object) -> AsyncIterator[FakeCluster]:
            yield self

        monkeypatch.setattr("triomq.client.instance.client.open_client", open_client)
        monkeypatch.setattr("triomq.client.core.routes.first_turn", lambda: 0)

    # RemotingClient.

    def register(self, code: int, processor: Any) -> None:
        self.processors[code] = processor

    def on_connection_closed(self, hook: Callable[[str, Any], None]) -> None:
        self.on_close.append(hook)

    def lose(self, address: str) -> None:
        """Let the client see that its connection to a broker ended."""
        for hook in self.on_close:
            hook(address, None)

    def connection(self, address: str) -> FakeConnection | None:
        return self.connections.get(address)

    def fail_over(self, name: str) -> FakeBroker:
        """Let the slave of this name be the master; the old master is in no route any more."""
        self.brokers[name], self.left = self.replicas.pop(name), self.brokers[name]
        return self.brokers[name]

    async def _until_closed(self, address: str, scope: trio.CancelScope) -> None:
        await self.connections[address].ended.wait()
        scope.cancel()

    async def _handled(self, broker: FakeBroker, request: RemotingCommand) -> RemotingCommand:
        """Raises ConnectionClosed if the connection ends before the response."""
        connection = self.connections.get(broker.address)
        if connection is None or connection.ended.is_set():
            connection = self.connections[broker.address] = FakeConnection()
        response: RemotingCommand | None = None
        error: Exception | None = None
        async with trio.open_nursery() as nursery:
            nursery.start_soon(self._until_closed, broker.address, nursery.cancel_scope)
            try:
                response = await broker.handle(request)
            except Exception as raised:
                error = raised
            nursery.cancel_scope.cancel()
        if error is not None:
            raise error
        if response is None:
            raise ConnectionClosed(f"connection to {broker.address} is closed")
        connection.last_active = trio.current_time()
        return response

    async def invoke(self, address: str, request: RemotingCommand, timeout_seconds: float = 3.0) -> RemotingCommand:
        await trio.lowlevel.checkpoint()
        if address.startswith("ns:"):
            if not self.name_server_up:
                raise ConnectFailed(f"connect to {address} failed: nobody there")
            if self.name_server_seconds:
                with trio.move_on_after(timeout_seconds):
                    await trio.sleep(self.name_server_seconds)
                    return self.route(request)
                raise RemotingTimeout(f"no response from {address} to request {request.code} in {timeout_seconds:g} s")
            return self.route(request)
        broker = self._at(address)
        with trio.move_on_after(timeout_seconds):
            response = await self._handled(broker, request)
            if not broker.up:
                raise ConnectionClosed(f"connection to {address} is closed")
            return response
        raise RemotingTimeout(f"no response from {address} to request {request.code} in {timeout_seconds:g} s")

    async def invoke_oneway(self, address: str, request: RemotingCommand, timeout_seconds: float = 3.0) -> None:
        await self.invoke(address, request, timeout_seconds)

    def _at(self, address: str) -> FakeBroker:
        for broker in (*self.brokers.values(), *self.replicas.values(), *filter(None, [self.left])):
            if broker.address == address and broker.up:
                return broker
        raise ConnectFailed(f"connect to {address} failed: nobody there")

    def route(self, request: RemotingCommand) -> RemotingCommand:
        if request.code == RequestCode.GET_BROKER_CLUSTER_INFO:
            names = self.brokers if self.are_brokers_registered else ()
            table = {
                name: BrokerData(broker_name=name, cluster="c", broker_addrs=self._addresses(name)) for name in names
            }
            return new_response(request, body=ClusterInfo(broker_addr_table=table).encode())
        topic = request.header(GetRouteInfoRequestHeader).topic
        self.route_requests.append((trio.current_time(), topic))
        queues = self.topics.get(topic)
        if queues is None or not self.are_brokers_registered:
            return new_response(request, ResponseCode.TOPIC_NOT_EXIST, "No topic route info")
        data = TopicRouteData(
            broker_datas=[
                BrokerData(broker_name=name, cluster="c", broker_addrs=self._addresses(name)) for name in self.brokers
            ],
            queue_datas=[
                QueueData(broker_name=name, read_queue_nums=queues, write_queue_nums=queues, perm=6)
                for name in self.brokers
            ],
        )
        return new_response(request, body=data.encode_standard())

    def _addresses(self, name: str) -> dict[int, str]:
        broker = self.brokers[name]
        addresses = {0: broker.advertised} if broker.up or broker.is_still_listed else {}
        if name in self.replicas:
            addresses[1] = self.replicas[name].advertised
        return addresses

    def notify(self, code: int, header: Header) -> None:
        """Send the client a request of a broker."""
        self.processors[code](None, new_request(code, header))


def refuse(code: int, remark: str = "no") -> Answer:
    return lambda request: new_response(request, code, remark)


def sent_with(code: int) -> Answer:
    """Return a result of a message that is stored, but not confirmed as durable."""
    header = SendMessageResponseHeader(msg_id="0" * 32, queue_id=0, queue_offset=0)
    return lambda request: new_response(request, code, header=header)


__all__ = ["NAME_SERVER", "ConnectionClosed", "FakeBroker", "FakeCluster", "refuse", "sent_with"]
