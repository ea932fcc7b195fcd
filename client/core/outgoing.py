"""From a message to the content of a request: checks, id, compression, batches. Pure but for ids and the clock.

The application's message is never changed, so it can be sent again (as a new message with a new id).
"""

from __future__ import annotations

import os
import secrets
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass

import msgspec

from triomq.client.core.errors import InvalidMessage
from triomq.client.core.namespace import Namespace
from triomq.protocol import properties as property_text
from triomq.protocol import property_names as names
from triomq.protocol import sys_flag, system_topics
from triomq.protocol.codes import RequestCode
from triomq.protocol.compression import compress
from triomq.protocol.errors import BodyError, RequestRefused
from triomq.protocol.message import Message
from triomq.protocol.message_id import UniqKeyMaker
from triomq.protocol.record import encode_batch

BATCH_UNIT_FIXED_BYTES = 22
BODY_TYPES = (bytes, bytearray, memoryview)


@dataclass(frozen=True, slots=True)
class SendRules:
    """Sizes and compression of one producer's messages."""

    max_message_bytes: int = 4 * 1024 * 1024
    compress_over_bytes: int = 4096
    """Bodies of at least this size are compressed; 0 turns compression off."""
    compression: int = sys_flag.COMPRESSION_ZLIB
    compression_level: int = 5
    max_delay_level: int = 18
    """The highest delay level of the brokers: the number of entries in their messageDelayLevel."""


class Outgoing(msgspec.Struct, frozen=True, kw_only=True):
    """What a send request carries, apart from the queue. `message_id`: UNIQ_KEY, comma-joined for a batch."""

    code: int
    topic: str
    body: bytes
    flag: int
    sys_flag: int
    properties: str
    message_id: str
    is_batch: bool = False
    reconsume_times: int = 0
    max_reconsume_times: int | None = None


class MessagePreparer:
    """Builds `Outgoing` values for one producer."""

    def __init__(self, rules: SendRules, namespace: Namespace, host: bytes, now_ms: Callable[[], int]) -> None:
        """`host` is a packed address (4 or 16 bytes) for the ids."""
        self._rules = rules
        self._namespace = namespace
        self._now_ms = now_ms
        self._ids = UniqKeyMaker(host, os.getpid(), secrets.randbits(32), secrets.randbits(16))

    def check(self, message: Message) -> None:
        """Raise InvalidMessage for a message that no broker accepts."""
        if not isinstance(message.body, BODY_TYPES):
            is_text = isinstance(message.body, str)
            hint = "encode it: text.encode()" if is_text else "encode it, or use a serializer: Json()"
            raise InvalidMessage(f"the body must be bytes, not {type(message.body).__name__}; {hint}")
        if not message.body:
            raise InvalidMessage("the body is empty")
        if len(message.body) > self._rules.max_message_bytes:
            raise InvalidMessage(
                f"the body has {len(message.body)} bytes, more than max_message_bytes={self._rules.max_message_bytes}"
            )
        if names.DELAY in message.properties:
            self._check_delay_level(message)
        try:
            system_topics.check_topic_name(message.topic)
            system_topics.check_may_send(message.topic)
        except RequestRefused as error:
            raise InvalidMessage(f"topic {message.topic!r}: {error.remark}") from None

    def _check_delay_level(self, message: Message) -> None:
        level = message.properties[names.DELAY]
        highest = self._rules.max_delay_level
        if not str(level).isascii() or not str(level).isdigit() or int(level) > highest:
            raise InvalidMessage(
                f"delay_level is {level}, not 0 to {highest}; for brokers with more levels (messageDelayLevel) set "
                "SendRules(max_delay_level=...)"
            )

    def single(self, message: Message, extra: Mapping[str, str] | None = None) -> Outgoing:
        """Prepare one message; `extra` properties override its own. Raises InvalidMessage."""
        self.check(message)
        properties = self._properties(message, extra)
        topic = self._namespace.wrap(message.topic)
        reconsume_times, max_reconsume_times = 0, None
        if system_topics.is_retry_topic(topic):
            reconsume_times = int(properties.pop(names.RECONSUME_TIME, "0"))
            limit = properties.pop(names.MAX_RECONSUME_TIMES, None)
            max_reconsume_times = None if limit is None else int(limit)
        body, flags = self._compressed(bytes(message.body))
        if properties.get(names.TRANSACTION_PREPARED, "").lower() == "true":
            flags |= sys_flag.TRANSACTION_PREPARED
        is_reply = properties.get(names.MSG_TYPE) == names.MSG_TYPE_REPLY
        return Outgoing(
            code=RequestCode.SEND_REPLY_MESSAGE_V2 if is_reply else RequestCode.SEND_MESSAGE_V2,
            topic=topic,
            body=body,
            flag=message.flag,
            sys_flag=flags,
            properties=_format(properties),
            message_id=properties[names.UNIQ_KEY],
            reconsume_times=reconsume_times,
            max_reconsume_times=max_reconsume_times,
        )

    def batch(self, messages: Sequence[Message], extra: Mapping[str, str] | None = None) -> Outgoing:
        """Prepare messages that `batches` has checked. They are never compressed, because brokers split them. `extra`
        properties are for those that have none of them."""
        units: list[Message] = []
        for message in messages:
            lacks = extra is not None and extra.keys().isdisjoint(message.properties)
            properties = self._properties(message, extra if lacks else None)
            unit = Message(message.topic, bytes(message.body), flag=message.flag, properties=properties)
            units.append(unit)
        wait = {} if messages[0].wait_store_msg_ok else {names.WAIT: "false"}
        return Outgoing(
            code=RequestCode.SEND_BATCH_MESSAGE,
            topic=self._namespace.wrap(messages[0].topic),
            body=encode_batch(units),
            flag=0,
            sys_flag=0,
            properties=_format(wait),
            message_id=",".join(unit.properties[names.UNIQ_KEY] for unit in units),
            is_batch=True,
        )

    def batches(
        self, messages: Iterable[Message], max_batch_bytes: int, extra_bytes: int = 0
    ) -> Iterator[list[Message]]:
        """Split messages into runs that fit into one request each, in order, with `extra_bytes` of properties for each
        message. Raises InvalidMessage for mixed topics and for messages that a batch cannot hold, before the first
        run."""
        every = list(messages)
        for message in every:
            self.check(message)
            if message.properties and not all(isinstance(value, str) for value in message.properties.values()):
                raise _not_text(message.properties)
            if message.topic != every[0].topic:
                raise InvalidMessage(f"a batch has one topic, not {every[0].topic!r} and {message.topic!r}")
            if message.wait_store_msg_ok != every[0].wait_store_msg_ok:
                raise InvalidMessage("wait_store_msg_ok must be the same for all messages of a batch")
            if message.delay_level > 0:
                raise InvalidMessage("a batch cannot hold delayed messages")
            if system_topics.is_retry_topic(message.topic):
                raise InvalidMessage("a batch cannot go to a retry topic")
        return _runs(every, min(max_batch_bytes, self._rules.max_message_bytes), extra_bytes)

    def _properties(self, message: Message, extra: Mapping[str, str] | None = None) -> dict[str, str]:
        properties = {**message.properties, **extra} if extra else dict(message.properties)
        if names.UNIQ_KEY not in properties:
            properties[names.UNIQ_KEY] = self._ids.make(self._now_ms())
        if self._namespace.name is not None:
            properties[names.INSTANCE_ID] = self._namespace.name
        return properties

    def _compressed(self, body: bytes) -> tuple[bytes, int]:
        rules = self._rules
        if not rules.compress_over_bytes or len(body) < rules.compress_over_bytes:
            return body, 0
        try:
            packed = compress(body, rules.compression, rules.compression_level)
        except BodyError as error:
            raise InvalidMessage(str(error)) from error
        return packed, sys_flag.COMPRESSED | rules.compression


def _not_text(properties: dict[str, str]) -> InvalidMessage:
    """Return the error for properties of which some name or value is not a string."""
    for name, value in properties.items():
        if not isinstance(name, str) or not isinstance(value, str):
            return InvalidMessage(f"property {name!r} is {value!r}; names and values must be strings")
    raise AssertionError("all properties are strings")


def unit_bytes(message: Message) -> int:
    """Return an upper bound of a message's size inside a batch request, its id included."""
    text = property_text.format(message.properties)
    return BATCH_UNIT_FIXED_BYTES + len(message.body) + len(text.encode("utf-8", "replace")) + 80


def _runs(messages: list[Message], max_bytes: int, extra_bytes: int) -> Iterator[list[Message]]:
    run: list[Message] = []
    run_bytes = 0
    for message in messages:
        size = unit_bytes(message) + extra_bytes
        if run and run_bytes + size > max_bytes:
            yield run
            run, run_bytes = [], 0
        run.append(message)
        run_bytes += size
    if run:
        yield run


def _format(properties: dict[str, str]) -> str:
    try:
        text = "\x02".join([name + "\x01" + value for name, value in properties.items()])
    except TypeError:
        raise _not_text(properties) from None
    if properties and text.count("\x02") != len(properties) - 1:
        raise InvalidMessage("a property name or value contains the separator \\u0002")
    if len(text) > property_text.MAX_PROPERTIES_BYTES // 4:
        size_bytes = len(text.encode("utf-8", "replace"))
        if size_bytes > property_text.MAX_PROPERTIES_BYTES:
            raise InvalidMessage(
                f"the properties have {size_bytes} bytes, more than {property_text.MAX_PROPERTIES_BYTES}"
            )
    return text
