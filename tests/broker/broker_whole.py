"""A whole broker inside the test, on free ports, with its own store, and a client for it."""

from __future__ import annotations

import time
from collections.abc import AsyncIterator, Mapping
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any

import trio

from triomq.broker.configuration import Configuration
from triomq.broker.controller import BrokerController
from triomq.broker.extensions import Extensions
from triomq.protocol.command import ROCKETMQ, RemotingCommand, new_request
from triomq.protocol.message import MessageExt
from triomq.remoting.client import RemotingClient, open_client
from triomq.store.disk.files import Files

ANSWER_SECONDS = 10.0
INVISIBLE_MS = 2000
SETTINGS = {
    "listenPort": "0",
    "brokerIP1": "127.0.0.1",
    "brokerName": "broker-a",
    "namesrvAddr": "",
    "mappedFileSizeCommitLog": "1048576",
    "mappedFileSizeConsumeQueue": "60000",
    "maxHashSlotNum": "1000",
    "maxIndexNum": "4000",
    "maxMessageSize": "65536",
    "enablePropertyFilter": "true",
    # Requests that wait for a slow machine are not refused.
    "osPageCacheBusyTimeOutMills": "30000",
    "waitTimeMillsInSendQueue": "30000",
    "waitTimeMillsInPullQueue": "30000",
    "waitTimeMillsInHeartbeatQueue": "31000",
    "waitTimeMillsInTransactionQueue": "30000",
}


def now_ms() -> int:
    return int(time.time() * 1000)


class WholeBroker:
    """A running broker. Use `controller` to look inside."""

    def __init__(
        self, controller: BrokerController, address: str, client: RemotingClient, binary_client: RemotingClient
    ) -> None:
        self.controller = controller
        self.address = address
        self.client = client
        self.binary_client = binary_client

    @property
    def fast_address(self) -> str:
        host, port = self.address.rsplit(":", 1)
        return f"{host}:{int(port) - 2}"

    async def ask(
        self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"", *, is_binary: bool = False
    ) -> RemotingCommand:
        """Return the response to a request with these fields. Fields whose value is None are omitted. The header is
        JSON or, with `is_binary`, RocketMQ's own codec.
        """
        texts = None if fields is None else {name: str(value) for name, value in fields.items() if value is not None}
        client = self.binary_client if is_binary else self.client
        return await client.invoke(self.address, new_request(code, ext_fields=texts, body=body), ANSWER_SECONDS)

    async def create_topic(self, topic: str, queues: int = 2, perm: int = 6) -> None:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": queues,
            "writeQueueNums": queues,
            "perm": perm,
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        assert (await self.ask(17, fields)).code == 0

    async def send(self, topic: str, body: bytes = b"x", code: int = 10, **changes: Any) -> RemotingCommand:
        return await self.ask(code, send_fields(topic, **changes), body)

    async def pull(self, topic: str, **changes: Any) -> RemotingCommand:
        return await self.ask(11, pull_fields(topic, **changes))


def send_fields(topic: str, /, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "producerGroup": "P",
        "topic": topic,
        "defaultTopic": "TBW102",
        "defaultTopicQueueNums": 4,
        "queueId": 0,
        "sysFlag": 0,
        "bornTimestamp": 1_600_000_000_000,
        "flag": 0,
        "properties": "KEYS\x01k1\x02TAGS\x01TagA\x02UNIQ_KEY\x01U1",
        "reconsumeTimes": 0,
        "unitMode": "false",
        "batch": "false",
    }
    return {**fields, **changes}


def pull_fields(topic: str, /, **changes: Any) -> dict[str, Any]:
    fields: dict[str, Any] = {
        "consumerGroup": "G",
        "topic": topic,
        "queueId": 0,
        "queueOffset": 0,
        "maxMsgNums": 32,
        "sysFlag": 4,
        "commitOffset": 0,
        "suspendTimeoutMillis": 0,
        "subscription": "*",
        "subVersion": 1,
        "expressionType": "TAG",
    }
    return {**fields, **changes}


def pop_fields(**changes: Any) -> dict[str, Any]:
    """Return the fields of a receive (POP) of the group G from the topic T."""
    fields = {"consumerGroup": "G", "topic": "T", "queueId": -1, "maxMsgNums": 32, "invisibleTime": INVISIBLE_MS}
    return {**fields, "pollTime": 0, "bornTime": now_ms(), "initMode": 0, "expType": "TAG", "exp": "*", **changes}


def ack_fields(response: RemotingCommand, message: MessageExt) -> dict[str, Any]:
    """Return the fields of the acknowledgement of a message in a response to `pop_fields`."""
    fields = response.ext_fields or {}
    handle = f"0 {fields['popTime']} {fields['invisibleTime']} 0 0 broker-a {message.queue_id} {message.queue_offset}"
    where = {"topic": "T", "queueId": message.queue_id, "offset": message.queue_offset}
    return {"consumerGroup": "G", "extraInfo": handle, **where}


@asynccontextmanager
async def whole_broker(
    folder: Path,
    properties: Mapping[str, str] | None = None,
    files: Files | None = None,
    extensions_given: Extensions | None = None,
    **settings: str,
) -> AsyncIterator[WholeBroker]:
    """Start a broker. `properties` are system properties, which no settings record declares; `files` are its disk,
    `extensions_given` those of a program that embeds it."""
    values = {**SETTINGS, "storePathRootDir": str(folder / "store"), **settings}
    configuration = Configuration.from_values(values, source="test")
    configuration.properties = properties or {}
    controller = BrokerController(configuration, now_ms=now_ms, files=files, extensions=extensions_given)
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status: trio.TaskStatus[str]) -> None:
            await controller.serve(task_status=task_status)

        address: str = await nursery.start(serve)
        async with open_client() as client, open_client(serialize_type=ROCKETMQ) as binary_client:
            yield WholeBroker(controller, address, client, binary_client)
        nursery.cancel_scope.cancel()
