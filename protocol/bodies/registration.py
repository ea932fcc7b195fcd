"""Reads the body of REGISTER_BROKER in parts, so that a server can do other things between them.

A registration may have a hundred thousand topics. Each reader here is a generator: an item is a part of the topics, and
the returned value is the rest of the body. What is returned counts only when all parts were read; a later topic
replaces an earlier one of the same name.

The plain form is cut behind entries of its table of topics (`_CUT`). A cut may be wrong, inside a text; but then what
is in front of it is not a JSON object, and the registration is refused. If each part is an object by itself, the whole
is what a reader of the whole would have read, because JSON is read from left to right. What follows the last part is
read together with what precedes the first. A mark among the topics shows that the parts belong to the table that
counts, and not to another of the same name.
"""

from __future__ import annotations

import re
import struct
import zlib
from collections.abc import Generator
from typing import Annotated, Final, NamedTuple, TypeVar

import msgspec

from triomq.protocol import permission
from triomq.protocol.bodies.base import Body, decode_body
from triomq.protocol.bodies.topic_config import FILTER_SERVERS, TOPICS, DataVersion, TopicConfig
from triomq.protocol.bounds import (
    NAME_CHARACTERS,
    Address,
    Flags,
    RegisteredPermission,
    RegisteredQueueCount,
    TopicName,
)
from triomq.protocol.errors import BodyError

PART_BYTES: Final = 32 * 1024
"""About the size of a part. The largest is a little more than twice as large."""

MAX_REGISTERED_TOPICS: Final = 200_000
"""The most topics of a registration. The shortest would take fifty times the memory of their text."""

MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
"""Largest compressed registration that is accepted, after inflation. A million topics need about 40 MiB."""

MAX_LENIENT_REGISTRATION_BYTES: Final = 8 * 1024
"""The longest registration that is not standard JSON. It is read a hundred times slower, in one go. RocketMQ's brokers
send standard JSON."""

MAX_PIECE_BYTES: Final = 512 * 1024
"""The longest piece of a compressed registration: a line, or the list of filter servers."""

_CUT: Final = re.compile(rb'\}(?=\s*+,\s*+")')
_COMMA: Final = re.compile(rb"\s*+,")
_HEAD: Final = re.compile(rb'"topicConfigTable"\s*+:\s*+\{')
_MARK: Final = "\N{REPLACEMENT CHARACTER} behind the other parts"
_MARKED: Final = f'"{_MARK}":{{}},'.encode()
_INT: Final = struct.Struct(">i")


class TopicQueues(Body, frozen=True, kw_only=True, gc=False):
    """What a NameServer keeps of a topic at a broker: those fields of its TopicConfig that routes show."""

    perm: RegisteredPermission = permission.READ_WRITE
    read_queue_nums: RegisteredQueueCount = 16
    topic_sys_flag: Flags = 0
    write_queue_nums: RegisteredQueueCount = 16


Topics = dict[str, TopicQueues]


class RestOfRegistration(NamedTuple):
    """A registration without its topics."""

    data_version: DataVersion
    filter_servers: list[str]


class OldRegistration(Body, frozen=True, kw_only=True):
    """What is read of the body of brokers before V3_0_11, a TopicConfigSerializeWrapper. Newer ones have it inside."""

    data_version: DataVersion = DataVersion()
    topic_config_table: Annotated[dict[TopicName, TopicQueues], TOPICS] = {}


class Registration(Body, frozen=True, kw_only=True):
    """What is read of the plain form, a RegisterBrokerBody."""

    filter_server_list: Annotated[list[Address], FILTER_SERVERS] = []
    topic_config_serialize_wrapper: OldRegistration = OldRegistration()


Parts = Generator[Topics, None, RestOfRegistration]


def read_registration(data: bytes) -> Parts:
    """Read the plain form (RegisterBrokerBody). Raise BodyError."""
    body: Registration = yield from _read_plain(data, Registration)
    return RestOfRegistration(body.topic_config_serialize_wrapper.data_version, body.filter_server_list)


def read_old_registration(data: bytes) -> Parts:
    """Read the form of brokers before V3_0_11 (TopicConfigSerializeWrapper). Raise BodyError."""
    wrapper: OldRegistration = yield from _read_plain(data, OldRegistration)
    return RestOfRegistration(wrapper.data_version, [])


_B = TypeVar("_B", OldRegistration, Registration)


def _read_plain(data: bytes, kind: type[_B]) -> Generator[Topics, None, _B]:
    is_long = len(data) > 2 * PART_BYTES
    head = _HEAD.search(data, 0, 2 * PART_BYTES) if is_long else None
    if is_long and head is None:
        raise BodyError(f"a registration of {len(data)} bytes begins its topics within {2 * PART_BYTES} bytes")
    begin = at = head.end() if head is not None else len(data)
    count = 0
    while len(data) - at > 2 * PART_BYTES:
        cut = _CUT.search(data, at + PART_BYTES, at + 2 * PART_BYTES)
        if cut is None:
            raise BodyError(f"the registration has no end of a topic in {PART_BYTES} bytes from byte {at + PART_BYTES}")
        topics = _decode_part(data[at : cut.end()], at)
        count = _counted(count, len(topics))
        yield topics
        comma = _COMMA.match(data, cut.end())
        assert comma is not None  # `_CUT` has seen it
        at = comma.end()
    if at == begin:
        body: _B = decode_body(kind, data, max_lenient_bytes=MAX_LENIENT_REGISTRATION_BYTES)
        rest = _topics_of(body)
    else:
        before, behind = data[:begin], data[at:]
        body = decode_body(kind, before + behind, max_lenient_bytes=MAX_LENIENT_REGISTRATION_BYTES)
        rest = _topics_of(body)
        marked = decode_body(kind, before + _MARKED + behind, max_lenient_bytes=MAX_LENIENT_REGISTRATION_BYTES)
        if _MARK in rest or _MARK not in _topics_of(marked):
            raise BodyError("the registration has another topicConfigTable than that of its topics")
    _counted(count, len(rest))
    yield rest
    return body


def _decode_part(text: bytes, at: int) -> Topics:
    if b'"$ref"' in text:
        raise BodyError(f"a registration of more than {2 * PART_BYTES} bytes has no references")
    try:
        return _topic_decoder.decode(b"{%b}" % text)
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise BodyError(f"the registration is not valid in the topics from byte {at} on: {error}") from None


def _topics_of(body: OldRegistration | Registration) -> Topics:
    wrapper = body.topic_config_serialize_wrapper if isinstance(body, Registration) else body
    return wrapper.topic_config_table


def _counted(count: int, more: int) -> int:
    if count + more > MAX_REGISTERED_TOPICS:
        raise BodyError(f"the registration has {count + more} topics or more, the limit is {MAX_REGISTERED_TOPICS}")
    return count + more


def read_compressed_registration(data: bytes, *, max_inflated_bytes: int = MAX_INFLATED_BYTES) -> Parts:
    """Read the compressed form (see topic_config). Raise BodyError."""
    pieces = _Pieces(data, max_inflated_bytes)
    version: DataVersion = decode_body(
        DataVersion, pieces.next("the data version"), max_lenient_bytes=MAX_LENIENT_REGISTRATION_BYTES
    )
    count = _counted(0, pieces.number("the topic table", MAX_REGISTERED_TOPICS))
    known: dict[str, TopicQueues] = {}
    topics: Topics = {}
    size = 0
    for _ in range(count):
        line = pieces.next("a topic")
        name, queues = _read_line(line, known)
        topics[name] = queues
        size += len(line) + _LINE_COST
        if size > PART_BYTES:
            yield topics
            topics = {}
            size = 0
    yield topics
    filter_servers: list[str] | None = decode_body(
        list[Address] | None, pieces.next("the filter servers"), max_lenient_bytes=MAX_LENIENT_REGISTRATION_BYTES
    )
    pieces.end()
    return RestOfRegistration(version, filter_servers or [])


_LINE_COST: Final = 150
_KNOWN_LINES: Final = 256


def _read_line(line: bytes, known: dict[str, TopicQueues]) -> tuple[str, TopicQueues]:
    """Return what a line says; most topics of a broker differ only in their names, so the rest of a line is kept."""
    try:
        name, _, rest = line.decode().partition(" ")
    except UnicodeDecodeError as error:
        raise BodyError(f"a topic line of the registration is not UTF-8: {error}") from None
    queues = known.get(rest)
    if queues is None or len(name) > NAME_CHARACTERS:
        topic = TopicConfig.decode_line(f"{name} {rest}")
        queues = TopicQueues(
            perm=topic.perm, read_queue_nums=topic.read_queue_nums, write_queue_nums=topic.write_queue_nums
        )
        if len(known) < _KNOWN_LINES:
            known[rest] = queues
    return name, queues


class _Pieces:
    """The pieces of a compressed registration, each behind its length. They are inflated as they are asked for."""

    def __init__(self, data: bytes, max_bytes: int) -> None:
        self._data = data
        self._fed = 0  # bytes of `data` that the stream has
        self._stream = zlib.decompressobj()
        self._left = max_bytes
        self._max_bytes = max_bytes
        self._held = b""
        self._at = 0

    def number(self, what: str, most: int = MAX_PIECE_BYTES) -> int:
        self._need(4, f"the length of {what}")
        number: int = _INT.unpack_from(self._held, self._at)[0]
        self._at += 4
        if not 0 <= number <= most:
            raise BodyError(f"the registration has {number} as length of {what}, from 0 to {most} are allowed")
        return number

    def next(self, what: str) -> bytes:
        length = self.number(what)
        self._need(length, what)
        self._at += length
        return self._held[self._at - length : self._at]

    def end(self) -> None:
        """Check that the stream ends; what is behind the last piece is not looked at."""
        while self._inflate():
            self._held, self._at = b"", 0
        if not self._stream.eof:
            raise BodyError("the compressed registration ends too early")

    def _need(self, count: int, what: str) -> None:
        while len(self._held) - self._at < count:
            more = self._inflate()
            if not more:
                held = len(self._held) - self._at
                early = "" if self._stream.eof else "the compressed registration ends too early: "
                raise BodyError(f"{early}the registration ends inside {what}, with {held} bytes left of {count}")
            self._held = self._held[self._at :] + more
            self._at = 0

    def _inflate(self) -> bytes:
        """Return at most PART_BYTES more; none at the end."""
        stream = self._stream
        while not stream.eof:
            given = stream.unconsumed_tail
            if not given:
                given = self._data[self._fed : self._fed + PART_BYTES]
                self._fed += len(given)
            try:
                more = stream.decompress(given, min(PART_BYTES, self._left + 1))
            except zlib.error as error:
                raise BodyError(f"the compressed registration cannot be inflated: {error}") from None
            self._left -= len(more)
            if self._left < 0:
                raise BodyError(f"the compressed registration inflates to more than {self._max_bytes} bytes")
            if more:
                return more
            if not given:
                break
        return b""


_topic_decoder: Final = msgspec.json.Decoder(dict[TopicName, TopicQueues])
