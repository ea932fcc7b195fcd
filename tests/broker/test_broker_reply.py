"""Replies: pushed to the client that sent the request, then stored."""

from __future__ import annotations

from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path
from typing import Any, cast

import pytest
import trio.testing
from broker_fakes import FakeConnection
from broker_metadata import metadata
from broker_store_lab import STORE_HOST, Lab, WallClock, open_lab
from golden_data import golden_frames

from triomq.broker.message_writer import MessageWriter
from triomq.broker.metrics.stats import BrokerStats
from triomq.broker.processors.reply import ReplyProcessor
from triomq.broker.processors.send import SendProcessor
from triomq.protocol import properties as property_text
from triomq.protocol.bodies.topic_config import TopicConfig
from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request, new_response
from triomq.protocol.frame import decode_frame
from triomq.protocol.headers.send import ReplyMessageRequestHeader, SendMessageRequestHeaderV2
from triomq.remoting.errors import ConnectionClosed, RemotingTimeout
from triomq.remoting.processor_table import Pool
from triomq.store.results import PutResult, PutStatus

TOPIC = "C_REPLY_TOPIC"
STANDING = {"MSG_REGION": "DefaultRegion", "TRACE_ON": "true"}


class Replies:
    """The reply processor, the client that sent the request ("asker"), and the one that replies."""

    def __init__(self, lab: Lab) -> None:
        self.lab = lab
        self.asker = FakeConnection("10.0.0.5:5000")
        self.answerer = FakeConnection("10.0.0.6:6000")
        lab.producers.register("ASK", cast(Any, self.asker), "asker", 0, 407)
        lab.topics.update(TopicConfig(topic_name=TOPIC, read_queue_nums=1, write_queue_nums=1))
        stats = BrokerStats("C", now_ms=lab.now_ms)
        writer: MessageWriter = lab.writer
        send = SendProcessor(
            lab.configuration,
            metadata(lab.now_ms, topics=lab.topics),
            writer,
            stats,
            store_host=STORE_HOST.packed,
            now_ms=lab.now_ms,
            pool=Pool("send", 10),
        )
        self.processor = ReplyProcessor(
            lab.configuration, send, lab.producers, writer, stats, store_host=STORE_HOST, now_ms=lab.now_ms
        )

    async def reply(self, properties: str | None = None, code: int = 325, **changes: Any) -> RemotingCommand:
        values: dict[str, Any] = {
            "producer_group": "ANSWER",
            "topic": TOPIC,
            "default_topic": "TBW102",
            "default_topic_queue_nums": 4,
            "queue_id": 0,
            "sys_flag": 0,
            "born_timestamp": 1_700_000_000_000,
            "flag": 3,
            "properties": properties if properties is not None else property_text.format(PROPERTIES),
        }
        header = SendMessageRequestHeaderV2(**{**values, **changes})
        work = self.processor(cast(Any, self.answerer), new_request(code, header, b"answer"))
        return work if isinstance(work, RemotingCommand) else await work


PROPERTIES = {"MSG_TYPE": "reply", "REPLY_TO_CLIENT": "asker", "CORRELATION_ID": "c1", "UNIQ_KEY": "U"}


@asynccontextmanager
async def open_replies(root: Path, **options: Any) -> AsyncIterator[Replies]:
    async with open_lab(root, **options) as lab:
        replies = Replies(lab)

        async def take(request: RemotingCommand) -> RemotingCommand:
            return new_response(request)

        replies.asker.on_invoke = take
        yield replies


async def test_pushed_and_stored(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_replies(tmp_path) as replies:
        response = await replies.reply()
        stored = replies.lab.messages(TOPIC)[0]
        assert (response.code, response.remark) == (0, None)
        assert response.ext_fields == {
            **STANDING,
            "msgId": stored.offset_msg_id,
            "queueId": "0",
            "queueOffset": "0",
        }
        assert stored.properties == PROPERTIES, "as they were sent, without CLUSTER"
        assert (stored.body, stored.flag, stored.born_host) == (b"answer", 3, replies.answerer.remote)
        [(push, timeout_seconds)] = replies.asker.invoked
        assert (push.code, push.body, timeout_seconds) == (326, b"answer", 10)
        header = push.header(ReplyMessageRequestHeader)
        assert property_text.parse(header.properties or "") == {**PROPERTIES, "PUSH_REPLY_TIME": "1700000000000"}
        assert (header.born_host, header.store_host) == ("10.0.0.6:6000", STORE_HOST.text)


async def test_without_storing(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_replies(tmp_path, broker={"store_reply_message_enable": False}) as replies:
        response = await replies.reply()
        assert response.ext_fields == {**STANDING, "msgId": "0", "queueId": "0", "queueOffset": "0"}
        assert replies.lab.messages(TOPIC) == []


async def test_the_receiver_is_missing(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_replies(tmp_path) as replies:
        response = await replies.reply("UNIQ_KEY\x01U")
        assert (response.code, response.remark) == (1, "reply message properties[REPLY_TO_CLIENT] is null")
        response = await replies.reply("REPLY_TO_CLIENT\x01other")
        assert response.remark == "push reply message fail, channel of <other> not found."
        replies.asker.close()
        response = await replies.reply()
        assert response.remark == "push reply message fail, channel of <asker> not found."
        assert len(replies.lab.messages(TOPIC)) == 3, "stored all the same"


@pytest.mark.parametrize("failure", [RemotingTimeout("late"), ConnectionClosed("gone"), None])
async def test_the_push_fails(
    tmp_path: Path, autojump_clock: trio.testing.MockClock, failure: Exception | None
) -> None:
    async with open_replies(tmp_path, broker={"store_reply_message_enable": False}) as replies:

        async def refuse(request: RemotingCommand) -> RemotingCommand:
            if failure is not None:
                raise failure
            return new_response(request, ResponseCode.SYSTEM_ERROR, "process reply message fail")

        replies.asker.on_invoke = refuse
        response = await replies.reply()
        assert (response.code, response.remark) == (1, "push reply message to askerfail.")
        assert response.ext_fields == STANDING


async def test_the_checks_of_sends(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_replies(tmp_path) as replies:
        response = await replies.reply(topic="no!such")
        assert (response.code, response.ext_fields) == (1, STANDING)
        response = await replies.reply(topic="Unknown", default_topic="None")
        assert response.code == ResponseCode.TOPIC_NOT_EXIST
        assert replies.asker.invoked == []


async def test_a_refused_put_leaves_the_pushs_answer(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    async with open_replies(tmp_path) as replies:
        replies.lab.store.append = lambda message: PutResult(PutStatus.MESSAGE_ILLEGAL)  # type: ignore[method-assign]
        response = await replies.reply()
        assert (response.code, (response.ext_fields or {})["msgId"]) == (0, "0")


async def test_the_reply_of_the_real_client(tmp_path: Path, autojump_clock: trio.testing.MockClock) -> None:
    """Push the recorded reply as the real broker did, and send the recorded response."""
    frames = golden_frames("clients_json", scenario="request_reply")
    by_name = {
        (frame["code_name"], frame.get("answers")): decode_frame(bytes.fromhex(frame["frame_hex"])) for frame in frames
    }
    sent = by_name["SEND_REPLY_MESSAGE_V2", None]
    pushed = by_name["PUSH_REPLY_MESSAGE_TO_CLIENT", None]
    answered = by_name["RESPONSE SUCCESS", "SEND_REPLY_MESSAGE_V2"]
    assert (pushed.ext_fields, answered.ext_fields, sent.ext_fields) != (None, None, None)
    topic = (sent.ext_fields or {})["b"]
    theirs = pushed.header(ReplyMessageRequestHeader)
    requester = property_text.parse(theirs.properties or "")["REPLY_TO_CLIENT"]
    async with open_replies(tmp_path, now_ms=WallClock(theirs.store_timestamp)) as replies:
        replies.lab.topics.update(TopicConfig(topic_name=topic, read_queue_nums=1, write_queue_nums=1))
        replies.lab.producers.register("P", cast(Any, replies.asker), requester, 0, 407)
        response = await replies.processor(cast(Any, replies.answerer), sent)
        [(push, _)] = replies.asker.invoked
        ours = push.header(ReplyMessageRequestHeader)
        for name in ("properties", "born_host", "store_host"):
            assert getattr(ours, name)
        own_properties = property_text.parse(ours.properties or "")
        their_properties = property_text.parse(theirs.properties or "")
        own_properties["PUSH_REPLY_TIME"] = their_properties["PUSH_REPLY_TIME"]
        assert own_properties == their_properties
        left_out = {"properties", "bornHost", "storeHost"}
        assert _without(push.ext_fields, left_out) == _without(pushed.ext_fields, left_out)
        assert push.body == pushed.body
        assert push.code == RequestCode.PUSH_REPLY_MESSAGE_TO_CLIENT
        assert _without(response.ext_fields, {"msgId"}) == _without(answered.ext_fields, {"msgId"})


def _without(fields: dict[str, str] | None, names: set[str]) -> dict[str, str]:
    return {name: text for name, text in (fields or {}).items() if name not in names}


async def test_a_reply_is_not_stored_in_a_topic_that_was_deleted_while_its_receiver_took_it(
    tmp_path: Path, autojump_clock: trio.testing.MockClock
) -> None:
    async with open_replies(tmp_path) as replies:

        async def take(request: RemotingCommand) -> RemotingCommand:
            await trio.sleep(1)
            return new_response(request)

        replies.asker.on_invoke = take
        async with trio.open_nursery() as nursery:

            async def reply() -> None:
                answer = await replies.reply(default_topic="no such template")
                assert answer.code == ResponseCode.SUCCESS, "it was taken"
                assert answer.ext_fields == {**STANDING, "msgId": "0", "queueId": "0", "queueOffset": "0"}

            nursery.start_soon(reply)
            await trio.sleep(0.5)
            replies.lab.topics.delete(TOPIC)
        assert replies.lab.bodies(TOPIC) == []
