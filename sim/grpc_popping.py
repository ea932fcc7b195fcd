"""gRPC clients of a simulated cluster: simple consumers in a group with clients of remoting, and a producer.

They speak HTTP/2 over the simulated network, so everything that breaks connections breaks theirs, too.
"""

from __future__ import annotations

import hashlib
import hmac
from collections.abc import Mapping
from contextlib import suppress
from math import inf
from typing import Any, cast

import trio
from h2.exceptions import ProtocolError

from sim.cluster import now_ms
from sim.grpc_wire import Answer, Client, acknowledging, message, receiving
from sim.history import DONE, REFUSED, UNKNOWN, Acknowledged, Receipt, Use
from sim.network import Host
from sim.plan import GRPC, GRPC_PORT
from sim.popping import INVISIBLE_MS, LANES, LONGEST_WAIT_MS, MOST_AT_ONCE, REQUEST_SECONDS, Popping
from sim.workload import PAUSE_SECONDS, ClientNode
from triomq.grpc_front import schema
from triomq.protocol.receipt_handle import parse_handle
from triomq.remoting import network

CONNECT_AGAIN_SECONDS = 0.3
Code = schema.Code


class CallLost(Exception):
    """A call got no answer, or no whole one."""


class Link:
    """The connection of one client to one broker. It is made again when it is lost."""

    def __init__(self, broker: str, host: Host, headers: Mapping[str, str]) -> None:
        self.broker = broker
        self._host = host
        self._headers = headers
        self._client: Client | None = None

    async def run(self) -> None:
        """Keep the connection until cancelled."""
        while True:
            with suppress(OSError, trio.BrokenResourceError):
                stream = await network.connect(self._host.ip, GRPC_PORT)
                async with stream, trio.open_nursery() as nursery:
                    client = Client(stream, self._headers)
                    await nursery.start(client.run)
                    self._client = client
                    await client.wait_closed(inf)
                    nursery.cancel_scope.cancel()
            self._client = None
            await trio.sleep(CONNECT_AGAIN_SECONDS)

    async def call(self, method: str, request: Any, seconds: float) -> Answer:
        """Return the whole answer to a call. Raises CallLost."""
        client = self._client
        if client is None:
            raise CallLost(f"not connected to {self.broker}")
        stream_id = 0
        try:
            with trio.fail_after(seconds):
                stream_id = client.begin(method, request, grpc_timeout=f"{int(seconds * 1000)}m")
                await client.flush()
                answer = await client.answer(stream_id, seconds=seconds)
        except trio.TooSlowError:
            with suppress(ProtocolError, OSError, trio.BrokenResourceError, trio.ClosedResourceError):
                with trio.move_on_after(1):
                    await client.give_up(stream_id)
            raise CallLost(f"no answer in {seconds:g} s") from None
        except (ProtocolError, OSError, trio.BrokenResourceError, trio.ClosedResourceError) as error:
            raise CallLost(f"{type(error).__name__}: {error}") from None
        if answer.reset is not None or answer.fields.get(b"grpc-status") != b"0":
            raise CallLost(f"the answer was not whole: {answer.fields}")
        return answer


def headers_of(node: ClientNode) -> dict[str, str]:
    """Return the header fields of all calls of a client, signed if the cluster has accounts."""
    headers = {"x-mq-client-id": f"{node.name}-{node.host.ip}", "x-mq-language": "PYTHON"}
    if node.has_account:
        date = "20261130T101010Z"
        digest = hmac.digest(node.account.secret_key.encode(), date.encode(), hashlib.sha1).hex()
        headers["x-mq-date-time"] = date
        headers["authorization"] = (
            f"MQv2-HMAC-SHA1 Credential={node.account.access_key}, SignedHeaders=x-mq-date-time, Signature={digest}"
        )
    return headers


class GrpcPopping(Popping):
    """A simple consumer. It does with its messages what a client of remoting does."""

    hosts: Mapping[str, Host] = {}
    _links: dict[str, Link]

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        self._lives += 1
        async with trio.open_nursery() as nursery:
            self._links = {broker: Link(broker, host, headers_of(self)) for broker, host in self.hosts.items()}
            task_status.started()
            for link in self._links.values():
                nursery.start_soon(link.run)
                for _ in range(LANES):
                    nursery.start_soon(self._receive_by, link, nursery)

    async def _receive_by(self, link: Link, nursery: trio.Nursery) -> None:
        """Receive from one broker, one receive after the other."""
        while True:
            await trio.sleep(self.choose.random() * 0.2)
            invisible_ms = self.choose.choice(INVISIBLE_MS)
            receipts = await self._receive_once(link, invisible_ms)
            if receipts:
                nursery.start_soon(self._work_by, link, receipts)

    async def _receive_once(self, link: Link, invisible_ms: int) -> list[Receipt]:
        choose, history = self.choose, self.history
        request = receiving(self.group, count=choose.randint(1, MOST_AT_ONCE), topic=self.topic)
        request.invisible_duration.seconds, rest_ms = divmod(invisible_ms, 1000)
        request.invisible_duration.nanos = rest_ms * 1_000_000
        seconds = REQUEST_SECONDS + choose.choice((0, choose.randrange(LONGEST_WAIT_MS))) / 1000
        asked = self.group, link.broker, trio.current_time() + seconds
        history.unanswered.append(asked)
        try:
            answer = await link.call("ReceiveMessage", request, seconds)
        except CallLost as error:
            self._trace.add(f"{self.name}: no answer from {link.broker}: {error}")
            await trio.sleep(choose.random())
            return []
        history.unanswered.remove(asked)
        self._receives += 1
        found = [one.message for one in answer.messages if one.WhichOneof("content") == "message"]
        return [self._got_by(link, one) for one in found]

    def _got_by(self, link: Link, got: Any) -> Receipt:
        history, system = self.history, got.system_properties
        key = " ".join(system.keys)
        known = history.sent.get(key)
        if known is None or known[:2] != (self.topic, got.body):
            history.wrong.append(f"{self.name} received {key!r}, which nobody sent so")
        handle = parse_handle(system.receipt_handle)
        receipt = Receipt(
            *(self.group, self.name, link.broker, system.queue_id, system.queue_offset, key, handle.popped_ms),
            visible_ms=handle.popped_ms + handle.invisible_ms,
            got_ms=now_ms(),
            times=system.delivery_attempt - 1,
            receive=self._receives,
            handle=system.receipt_handle,
        )
        history.receipts.append(receipt)
        place = f"{link.broker} {receipt.queue_id}:{receipt.queue_offset}"
        self._trace.add(f"{self.name}: received {key} {place}, {receipt.times} times before, at {handle.popped_ms}")
        return receipt

    async def _work_by(self, link: Link, receipts: list[Receipt]) -> None:
        async with trio.open_nursery() as nursery:
            for receipt in receipts:
                nursery.start_soon(self._work_on_one, cast(Any, link), receipt)

    async def _acknowledge(self, lane: Any, receipt: Receipt) -> None:
        request = acknowledging(self.group, topic=self.topic)
        request.entries.add(message_id=receipt.key, receipt_handle=receipt.handle)
        [use] = self._begin_to_acknowledge([receipt])
        try:
            answer = await lane.call("AckMessage", request, REQUEST_SECONDS)
        except CallLost:
            self._acknowledged(receipt, use, UNKNOWN)
            return
        self._acknowledged(receipt, use, _result(answer.messages[0].entries[0].status.code))

    async def _change(self, lane: Any, receipt: Receipt) -> Receipt | None:
        invisible_ms = self.choose.choice(INVISIBLE_MS)
        request = schema.ChangeInvisibleDurationRequest(receipt_handle=receipt.handle, message_id=receipt.key)
        request.group.name, request.topic.name = self.group, self.topic
        request.invisible_duration.seconds, rest_ms = divmod(invisible_ms, 1000)
        request.invisible_duration.nanos = rest_ms * 1_000_000
        use = Use(True, now_ms())
        receipt.uses.append(use)
        before = receipt.visible_ms
        receipt.visible_ms = min(before, now_ms() + invisible_ms)
        try:
            answer = await lane.call("ChangeInvisibleDuration", request, REQUEST_SECONDS)
        except CallLost:
            return None
        use.ended_ms = now_ms()
        if answer.status != Code.OK:
            if answer.status == Code.INVALID_RECEIPT_HANDLE:
                use.result, receipt.visible_ms = REFUSED, before
            return None
        use.result = DONE
        handle = parse_handle(answer.messages[0].receipt_handle)
        changed = Receipt(
            *(receipt.group, self.name, receipt.broker, receipt.queue_id, receipt.queue_offset, receipt.key),
            handle.popped_ms,
            visible_ms=handle.popped_ms + invisible_ms,
            got_ms=now_ms(),
            times=receipt.times,
            handle=answer.messages[0].receipt_handle,
        )
        self.history.receipts.append(changed)
        self._trace.add(f"{self.name}: changes {receipt.key} of {receipt.popped_ms} to {handle.popped_ms}")
        return changed


def _result(code: int) -> str:
    if code == Code.OK:
        return DONE
    return REFUSED if code == Code.INVALID_RECEIPT_HANDLE else UNKNOWN


class GrpcSending(ClientNode):
    """A producer."""

    hosts: Mapping[str, Host] = {}
    _numbers = 0

    async def _serve(self, task_status: trio.TaskStatus[object]) -> None:
        async with trio.open_nursery() as nursery:
            links = [Link(broker, host, headers_of(self)) for broker, host in self.hosts.items()]
            for link in links:
                nursery.start_soon(link.run)
            task_status.started()
            while not self.is_finished:
                await trio.sleep(self.choose.random() ** 2 * PAUSE_SECONDS)
                await self._send(self.choose.choice(links))
            await trio.sleep_forever()

    async def _send(self, link: Link) -> None:
        self._numbers += 1
        key = f"{self.name}.{self._numbers}"
        body = f"{key} ".encode() + self.choose.randbytes(self.choose.choice((0, 10, 1000, 9000)))
        self.history.sent[key] = (GRPC, body, trio.current_time())
        request = message(body, topic=GRPC, message_id=key, keys=[key])
        try:
            answer = await link.call("SendMessage", request, REQUEST_SECONDS)
        except CallLost as error:
            self._trace.add(f"{self.name}: {key} not acknowledged: {error}")
            return
        if answer.status == Code.OK:  # it says no queue, so only the arrival is checked
            self.history.acknowledged[key] = Acknowledged(GRPC, link.broker, -1, -1, trio.current_time())
        self._trace.add(f"{self.name}: {key} at {link.broker}: {answer.status}")
