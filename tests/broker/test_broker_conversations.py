"""Conversations that real clients and mqadmin had with the real broker, held with this one.

Every recorded request goes out in its order, on a connection of its own where it had one; code, remark, the names of
the header fields and the members of JSON bodies of the answer have to be the recorded ones. Requests that the recording
left out (it keeps about two of a kind) and times are missing, so what depends on them is listed as unlike beside each
conversation; everything else may not differ. Pulls that were held are left out.
"""

import re
import shutil
import time
from collections.abc import AsyncIterator, Callable
from contextlib import AsyncExitStack, asynccontextmanager
from pathlib import Path
from typing import Any

import pytest
import trio

from broker.configuration import Configuration
from broker.controller import BrokerController
from protocol.bodies.fastjson import loads
from protocol.codes import RequestCode
from protocol.command import RemotingCommand, new_request, new_response
from remoting.client import RemotingClient, open_client
from remoting.connection import Connection

Frame = dict[str, Any]
Frames = Callable[..., list[Frame]]

PULL_SUSPEND = 2
ADDRESS = re.compile(r"127\.0\.0\.\d+:\d+")

SEND = {
    "a": "P",
    "c": "TBW102",
    "d": "4",
    "f": "0",
    "g": "1795240600000",
    "h": "0",
    "j": "0",
    "k": "false",
    "m": "false",
}


class Conversation:
    """One recording and the broker that answers it now."""

    def __init__(self, frames: list[Frame], address: str, clients: AsyncExitStack) -> None:
        self._frames = frames
        self._address = address
        self._stack = clients
        self._clients: dict[str, RemotingClient] = {}
        self._answers = {
            (frame["conn"], frame["header"]["opaque"]): frame
            for frame in frames
            if frame["type"] == "response" and frame["from"] == "broker"
        }
        self._client_answers: dict[str, list[Frame]] = {}
        for frame in frames:
            if frame["type"] == "response" and frame["from"] == "client":
                self._client_answers.setdefault(frame["answers"], []).append(frame)
        self.same = 0
        self.different: set[tuple[str, str]] = set()
        self.reasons: list[str] = []

    async def hold(self) -> None:
        for frame in self._frames:
            if frame["from"] != "client" or frame["to"] != "broker" or frame["type"] == "response":
                continue
            fields = frame["header"].get("extFields")
            if frame["header"]["code"] == RequestCode.PULL_MESSAGE and int(fields.get("sysFlag", 0)) & PULL_SUSPEND:
                continue
            await self._say(frame, None if fields is None else dict(fields))

    async def _say(self, frame: Frame, fields: dict[str, str] | None) -> None:
        client = self._clients.get(frame["conn"])
        if client is None:
            client = self._clients[frame["conn"]] = await self._stack.enter_async_context(open_client())
            for code in ("GET_CONSUMER_RUNNING_INFO", "CONSUME_MESSAGE_DIRECTLY", "GET_CONSUMER_STATUS_FROM_CLIENT"):
                client.register(RequestCode[code], self._answer_of_client)
        header = frame["header"]
        command = RemotingCommand(
            header["code"], flag=header["flag"], version=header["version"], body=_body(frame), ext_fields=fields
        )
        if frame["type"] == "oneway":
            await client.invoke_oneway(self._address, command)
            return
        answer = await client.invoke(self._address, command, 10)
        recorded = self._answers.get((frame["conn"], header["opaque"]))
        if recorded is None:
            return
        difference = _difference(answer, recorded)
        if difference is None:
            self.same += 1
        else:
            self.different.add((frame["scenario"], frame["code_name"]))
            self.reasons.append(f"{frame['scenario']} {frame['code_name']}: {difference}")

    def _answer_of_client(self, connection: Connection, request: RemotingCommand) -> RemotingCommand:
        wants_threads = (request.ext_fields or {}).get("jstackEnable") == "true"
        recorded = self._client_answers[RequestCode(request.code).name][-1 if wants_threads else 0]
        return new_response(request, 0, recorded["header"].get("remark"), body=_body(recorded))


def _body(frame: Frame) -> bytes:
    if frame.get("body") is not None:
        return str(frame["body"]).encode()
    return bytes.fromhex(frame.get("body_hex") or "")


def _difference(answer: RemotingCommand, recorded: Frame) -> str | None:
    """What is not as recorded, None when everything is."""
    header = recorded["header"]
    if answer.code != header["code"]:
        return f"code {answer.code} for {header['code']}, remark {answer.remark!r} for {header.get('remark')!r}"
    remark, expected = (ADDRESS.sub("ADDRESS", text or "") for text in (answer.remark, header.get("remark")))
    if remark != expected:
        return f"remark {remark!r} for {expected!r}"
    if set(answer.ext_fields or {}) != set(header.get("extFields") or {}):
        return f"fields {answer.ext_fields} for {header.get('extFields')}"
    body = _body(recorded)
    if bool(answer.body) != bool(body):
        return f"a body of {len(answer.body)} bytes for one of {len(body)}"
    if body.startswith(b"{"):
        members, wanted = set(loads(answer.body)), set(loads(body))
        if members != wanted:
            return f"members {sorted(map(str, members ^ wanted))} of the body"
    return None


@asynccontextmanager
async def broker(folder: Path) -> AsyncIterator[str]:
    """A broker configured as the recorded one was; its address."""
    values = {
        "listenPort": "0",
        "brokerIP1": "127.0.0.1",
        "brokerName": "wire-a",
        "brokerClusterName": "WireCluster",
        "storePathRootDir": str(folder / "store"),
        "mappedFileSizeCommitLog": "1048576",
        "maxMessageSize": "65536",
        "enablePropertyFilter": "true",
        "traceTopicEnable": "true",
        "slaveReadEnable": "true",
        "configUpdateWithoutAcl": "true",
        "namesrvAddr": "",
    }
    controller = BrokerController(
        Configuration.from_values(values, source="test"), now_ms=lambda: int(time.time() * 1000)
    )
    async with trio.open_nursery() as nursery:

        async def serve(*, task_status: trio.TaskStatus[str]) -> None:
            await controller.serve(task_status=task_status)

        address: str = await nursery.start(serve)
        yield address
        nursery.cancel_scope.cancel()
    shutil.rmtree(folder / "store")


async def create_topic(address: str, topic: str, queues: int, perm: int = 6, messages: int = 0) -> None:
    """What had happened before the recording began."""
    async with open_client() as client:
        fields = {
            "topic": topic,
            "defaultTopic": "TBW102",
            "readQueueNums": str(queues),
            "writeQueueNums": str(queues),
            "perm": str(perm),
            "topicFilterType": "SINGLE_TAG",
            "order": "false",
        }
        assert (await client.invoke(address, new_request(17, ext_fields=fields))).code == 0
        for queue_id in range(queues):
            for number in range(messages):
                properties = f"KEYS\x01K{number}\x02UNIQ_KEY\x01{topic}{queue_id}{number}\x02TAGS\x01TagA"
                fields = {**SEND, "b": topic, "e": str(queue_id), "i": properties}
                assert (await client.invoke(address, new_request(310, ext_fields=fields, body=b"x"))).code == 0


async def commit_offsets(address: str, group: str, topic: str, queues: int) -> None:
    async with open_client() as client:
        for queue_id in range(queues):
            fields = {"consumerGroup": group, "topic": topic, "queueId": str(queue_id), "commitOffset": "5"}
            assert (await client.invoke(address, new_request(15, ext_fields=fields))).code == 0


async def converse(frames: list[Frame], address: str) -> Conversation:
    async with AsyncExitStack() as stack:
        conversation = Conversation(frames, address, stack)
        await conversation.hold()
    return conversation


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
async def test_clients(golden_frames: Frames, tmp_path: Path, codec: str) -> None:
    async with broker(tmp_path) as address:
        await create_topic(address, "WireA", 2)
        await create_topic(address, "WireNoRead", 1, perm=2)
        conversation = await converse(golden_frames(f"clients_{codec}"), address)
    unlike = {
        # A broken SQL92 expression is refused here, there it passed everything.
        ("pull_sql_bad_expression", "PULL_MESSAGE"),
        # The recorded remarks name Java's exceptions and lines.
        ("missing_header_field", "PULL_MESSAGE"),
        ("no_ext_fields", "GET_MAX_OFFSET"),
        # The time range of the query is that of the recording.
        ("query_by_key", "QUERY_MESSAGE"),
        # Messages and deliveries that the recording left out.
        ("push_retry", "CONSUMER_SEND_MSG_BACK"),
        ("slave_config_requests", "GET_ALL_DELAY_OFFSET"),
        ("request_reply", "SEND_REPLY_MESSAGE_V2"),
    }
    assert conversation.different <= unlike, "\n".join(conversation.reasons)
    assert conversation.same > 170


@pytest.mark.parametrize("codec", ["json", "rocketmq"])
async def test_administration(golden_frames: Frames, tmp_path: Path, codec: str) -> None:
    async with broker(tmp_path) as address:
        await create_topic(address, "WireOne", 2, messages=5)
        await create_topic(address, "WireTwo", 1, messages=4)
        await commit_offsets(address, "GID_Wire_one", "WireOne", 2)
        conversation = await converse(golden_frames(f"admin_{codec}"), address)
    different = {(scenario.removeprefix("admin:"), code) for scenario, code in conversation.different}
    unlike = {
        # The log here holds other messages at other places.
        *((f"queryMsgById{which}", "VIEW_MESSAGE_BY_ID") for which in ("", "_two", "_consume", "_resend")),
        ("queryMsgById_consume", "CONSUME_MESSAGE_DIRECTLY"),
        ("queryMsgByUniqueKey_consume", "CONSUME_MESSAGE_DIRECTLY"),
        *((f"queryMsgByUniqueKey{which}", "QUERY_MESSAGE") for which in ("", "_a", "_consume")),
        ("queryMsgTraceById", "QUERY_MESSAGE"),
        *((scenario, "PULL_MESSAGE") for scenario in ("consumeMessage", "consumeMessage_q", "printMsg_tag")),
        *((scenario, "PULL_MESSAGE") for scenario in ("queryMsgByOffset", "printMsg", "printMsgByQueue")),
        # The producers and consumers of that time were connected through connections that are not in the recording.
        ("producerConnection", "GET_PRODUCER_CONNECTION_LIST"),
        *((f"statsAll{which}", "VIEW_BROKER_STATS_DATA") for which in ("", "_t", "_a")),
        # A value that makes no sense is refused here, there it was ignored.
        ("updateBrokerConfig_bad_value", "UPDATE_BROKER_CONFIG"),
    }
    assert different <= unlike, "\n".join(conversation.reasons)
    assert conversation.same > 180
