"""SendMessage and EndTransaction: as the requests SEND_MESSAGE_V2 and END_TRANSACTION of remoting.

The producer group is the name of the topic, as in RocketMQ 5. A transaction id names the half message by its offsets,
"PHYSICAL-QUEUE", so that no table of transactions is needed, and an end is taken after a restart, too.
"""

from __future__ import annotations

import re
import zlib
from typing import Any, Final

from triomq.broker.assembly.serving import Serving
from triomq.broker.grpc.bodies import BODY_ENCODING, GZIP, GZIP_NAME, body_to_store
from triomq.broker.grpc.call import Call
from triomq.broker.grpc.gathering import Gathering, ask
from triomq.broker.grpc.messages import SHARDING_KEY, TRANSACTION, properties_of, recovery_seconds, to_ms
from triomq.broker.grpc.results import Refused, check, code_of, set_status, sum_up
from triomq.broker.grpc.routes import legal_topic
from triomq.broker.grpc.traces import Traces
from triomq.broker.put_responses import SEND_CODES, STORED
from triomq.grpc_front import schema
from triomq.protocol import property_names as names
from triomq.protocol import sys_flag
from triomq.protocol.codes import RequestCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.send import SendMessageResponseHeader
from triomq.protocol.message_id import physical_offset_in
from triomq.protocol.properties import format as format_properties
from triomq.protocol.properties import parse as parse_properties
from triomq.protocol.response_template import TemplatedResponse
from triomq.protocol.system_topics import AUTO_CREATE_TOPIC
from triomq.store.delay import DelayLevels

Code: Final = schema.Code
Resolution: Final = schema.TransactionResolution
_STORED: Final = frozenset([SEND_CODES[status] for status in STORED])
"""Codes of responses to sends whose message is stored, although perhaps not as safely as was asked for."""
_TRANSACTION_ID: Final = re.compile(r"(\d{1,19})-(\d{1,19})", re.ASCII)


class Producing:
    """See the module's docstring."""

    def __init__(self, serving: Serving, traces: Traces) -> None:
        self._traces = traces
        self._configuration = serving.tables.configuration
        self._topics = serving.tables.metadata.topics
        self._now_ms = serving.tables.now_ms
        self._delay_levels = DelayLevels(self._configuration.store.message_delay_level)

    def send(self, call: Call, request: Any) -> None:
        """SendMessage. Raises Refused."""
        if not request.messages:
            raise Refused(Code.MESSAGE_CORRUPTED, "the request has no message")
        topic = legal_topic(request.messages[0].topic.name)
        if len(request.messages) > 1 and any(message.topic.name != topic for message in request.messages):
            raise Refused(Code.MESSAGE_CORRUPTED, "the messages of one request have several topics")
        sends = [self._prepared(topic, message) for message in request.messages]
        ids = [message.system_properties.message_id for message in request.messages]
        began_ms = self._now_ms()

        def sent(responses: list[RemotingCommand]) -> None:
            if self._traces.is_on:
                self._trace(call, topic, sends, responses, began_ms)
            _reply_sent(call, ids, responses)

        gathering = Gathering(call, len(sends), sent)
        for place, (fields, body) in enumerate(sends):
            gathering.ask(place, RequestCode.SEND_MESSAGE_V2, fields, body)

    def _trace(
        self,
        call: Call,
        topic: str,
        sends: list[tuple[dict[str, str], bytes]],
        responses: list[RemotingCommand],
        began_ms: int,
    ) -> None:
        for (fields, body), response in zip(sends, responses, strict=True):
            if response.code in _STORED:
                offset_id = response.header(SendMessageResponseHeader).msg_id
                self._traces.sent(call.client, topic, parse_properties(fields["i"]), len(body), began_ms, offset_id)

    def _prepared(self, topic: str, message: Any) -> tuple[dict[str, str], bytes]:
        """Return fields and body of a send. Raises Refused."""
        limit = self._configuration.store.max_message_size_bytes
        if not message.body:
            raise Refused(Code.MESSAGE_BODY_EMPTY, "the body is empty")
        if len(message.body) > limit:
            raise Refused(Code.MESSAGE_BODY_TOO_LARGE, f"the body has {len(message.body)} bytes; the limit is {limit}")
        system = message.system_properties
        properties = properties_of(message)
        body, flags = message.body, 0
        if system.body_encoding == GZIP:
            compressed = body_to_store(body, limit)
            if compressed is not None:
                body, flags = compressed, sys_flag.COMPRESSED
            else:
                properties[BODY_ENCODING] = GZIP_NAME
        if system.HasField("delivery_timestamp"):
            properties[names.DELAY] = self._delay_level(to_ms(system.delivery_timestamp))
        if system.message_type == TRANSACTION:
            flags |= sys_flag.TRANSACTION_PREPARED
            properties |= {names.TRANSACTION_PREPARED: "true", names.PRODUCER_GROUP: topic}
            seconds = recovery_seconds(system)
            if seconds is not None:
                properties[names.CHECK_IMMUNITY_TIME_IN_SECONDS] = str(seconds)
        born_ms = to_ms(system.born_timestamp) if system.HasField("born_timestamp") else self._now_ms()
        fields = {
            "a": topic,
            "b": topic,
            "c": AUTO_CREATE_TOPIC,
            "d": str(self._configuration.broker.default_topic_queue_nums),
            "e": str(self._queue_id(topic, properties.get(SHARDING_KEY))),
            "f": str(flags),
            "g": str(born_ms),
            "h": "0",
            "i": format_properties(properties),
            "j": "0",
        }
        return fields, body

    def _queue_id(self, topic: str, group: str | None) -> int:
        """Return the queue of a message group, which is always the same; any queue (-1) for no group."""
        if group is None:
            return -1
        config = self._topics.get(topic)
        return zlib.crc32(group.encode()) % config.write_queue_nums if config is not None else 0

    def _delay_level(self, deliver_ms: int) -> str:
        """Return the level of the shortest delay that is not over before a message is to be delivered. Raises
        Refused."""
        levels = self._delay_levels
        delay_ms = max(0, deliver_ms - self._now_ms())
        long_enough = [level for level in range(1, levels.max_level + 1) if levels.delay_ms(level) >= delay_ms]
        if not long_enough:
            longest = max(levels.delays_ms, default=0) // 1000
            text = f"delivery in {delay_ms // 1000} s; the longest delay here (messageDelayLevel) is {longest} s"
            raise Refused(Code.ILLEGAL_DELIVERY_TIME, text)
        return str(min(long_enough, key=levels.delay_ms))

    def end_transaction(self, call: Call, request: Any) -> None:
        """EndTransaction. Raises Refused."""
        found = _TRANSACTION_ID.fullmatch(request.transaction_id)
        if found is None:
            text = f"{request.transaction_id[:64]!r} is no transaction id of this broker"
            raise Refused(Code.INVALID_TRANSACTION_ID, text)
        ends = {Resolution.COMMIT: sys_flag.TRANSACTION_COMMIT, Resolution.ROLLBACK: sys_flag.TRANSACTION_ROLLBACK}
        end = ends.get(request.resolution)
        if end is None:
            raise Refused(Code.BAD_REQUEST, "the resolution is neither COMMIT nor ROLLBACK")
        fields = {
            "producerGroup": request.topic.name,
            "commitLogOffset": found[1],
            "tranStateTableOffset": found[2],
            "commitOrRollback": str(end),
            "fromTransactionCheck": str(request.source == schema.TransactionSource.SOURCE_SERVER_CHECK).lower(),
            "msgId": request.message_id,
            "transactionId": request.transaction_id,
        }

        def ended(response: RemotingCommand) -> None:
            check(response)
            if self._traces.is_on:
                state = "COMMIT_MESSAGE" if end == sys_flag.TRANSACTION_COMMIT else "ROLLBACK_MESSAGE"
                asked = request.source == schema.TransactionSource.SOURCE_SERVER_CHECK
                topic, message_id = request.topic.name, request.message_id
                self._traces.ended(call.client, topic, message_id, request.transaction_id, state, was_asked=asked)
            call.reply(schema.EndTransactionResponse())

        ask(call, RequestCode.END_TRANSACTION, fields, ended)


def transaction_id(physical_offset: int, queue_offset: int) -> str:
    """Return the id of the transaction whose half message is there."""
    return f"{physical_offset}-{queue_offset}"


def _place_of(response: RemotingCommand) -> tuple[int, int]:
    """Return queue offset and physical offset of the message that a send has stored."""
    assert isinstance(response, TemplatedResponse)  # SendAnswer.finish
    queue_offset, made = response.value("queueOffset"), response.value("msgId")
    assert isinstance(queue_offset, int) and isinstance(made, bytes)
    return queue_offset, physical_offset_in(made)


def _reply_sent(call: Call, message_ids: list[str], responses: list[RemotingCommand]) -> None:
    answer = schema.SendMessageResponse()
    for message_id, response in zip(message_ids, responses, strict=True):
        entry = answer.entries.add(message_id=message_id)
        set_status(entry.status, code_of(response), response.remark)
        if response.code in _STORED:
            queue_offset, physical_offset = _place_of(response)
            entry.offset = queue_offset
            entry.transaction_id = transaction_id(physical_offset, queue_offset)
    sum_up(answer)
    call.reply(answer)
