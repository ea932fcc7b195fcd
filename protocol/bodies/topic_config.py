"""Topics that brokers store and register: TopicConfig, DataVersion, and the two forms of REGISTER_BROKER's body.

The compressed form is one zlib stream (level 9) of the following, big endian:

    int32 length | DataVersion as JSON
    int32 number of topics
    each topic:  int32 length | "topicName readQueueNums writeQueueNums perm topicFilterType"
    int32 length | JSON array of filter server addresses, or null

It omits `order` and `topicSysFlag` of the topics.
"""

from __future__ import annotations

import struct
import zlib
from typing import Annotated, Final

import msgspec

from triomq.protocol import permission
from triomq.protocol.bodies import fastjson
from triomq.protocol.bodies.base import Body, decode_body
from triomq.protocol.bounds import (
    Address,
    Bound,
    FilterType,
    Flags,
    RegisteredPermission,
    RegisteredQueueCount,
    TableVersion,
    TopicName,
)
from triomq.protocol.errors import BodyError

SINGLE_TAG: Final = "SINGLE_TAG"
MULTI_TAG: Final = "MULTI_TAG"

MAX_INFLATED_BYTES: Final = 64 * 1024 * 1024
"""Largest registration body that is accepted, after inflation. A million topics need about 40 MiB."""

MAX_INFLATED_TOPICS: Final = 200_000
"""The most topics of a compressed registration. Each takes some microseconds, in which no other client is served; a
plain registration of 16 MiB has fewer than half as many."""

_INT: Final = struct.Struct(">i")
_TOPICS: Final = Bound(
    "topics of one broker",
    key="maxTopics",
    limit="of all brokers together",
    beyond="the registration is refused as a whole",
    test="tests/namesrv/test_namesrv_routes.py::test_a_full_table_refuses_as_a_whole",
)
_FILTER_SERVERS: Final = Bound(
    "filter servers of one broker",
    limit="64",
    test="tests/namesrv/test_namesrv_processor.py::test_a_registration_with_a_name_too_long_is_refused",
)


class DataVersion(Body, frozen=True, kw_only=True, gc=False):
    """Version of a table: the time of its last change in ms, and the number of changes."""

    counter: TableVersion = 0
    timestamp: TableVersion = 0

    def next_version(self, now_ms: int) -> DataVersion:
        """Return the version after one more change at `now_ms`."""
        return DataVersion(counter=self.counter + 1, timestamp=now_ms)


class TopicConfig(Body, frozen=True, kw_only=True, gc=False):
    """One topic at one broker. `perm`: bits of `protocol.permission`; `topic_sys_flag`: 1 unit, 2 unit sub."""

    order: bool = False
    perm: RegisteredPermission = permission.READ_WRITE
    read_queue_nums: RegisteredQueueCount = 16
    topic_filter_type: FilterType = SINGLE_TAG
    topic_name: TopicName = ""
    topic_sys_flag: Flags = 0
    write_queue_nums: RegisteredQueueCount = 16

    def encode_line(self) -> str:
        """Return the five fields of the compressed registration, separated by spaces (TopicConfig.encode)."""
        queues = f"{self.read_queue_nums} {self.write_queue_nums}"
        return f"{self.topic_name} {queues} {self.perm} {self.topic_filter_type}"

    @classmethod
    def decode_line(cls, line: str) -> TopicConfig:
        """Parse the text that `encode_line` returns. Raise `BodyError`."""
        parts = line.split(" ")
        try:
            name, read, write, perm, filter_type = parts
            fields = {
                "topicName": name,
                "readQueueNums": int(read),
                "writeQueueNums": int(write),
                "perm": int(perm),
                "topicFilterType": filter_type,
            }
        except ValueError:
            raise BodyError(f"a topic line has five fields, three of them integers, not {line[:200]!r}") from None
        try:
            return msgspec.convert(fields, cls)
        except msgspec.ValidationError as error:
            raise BodyError(f"a topic line is out of bounds: {error}, in {line[:200]!r}") from None

    def __str__(self) -> str:
        """Return the text of Java's toString, which some remarks contain."""
        return (
            f"TopicConfig [topicName={self.topic_name}, readQueueNums={self.read_queue_nums}, "
            f"writeQueueNums={self.write_queue_nums}, perm={permission.perm_text(self.perm)}, "
            f"topicFilterType={self.topic_filter_type}, topicSysFlag={self.topic_sys_flag}, "
            f"order={'true' if self.order else 'false'}]"
        )


class TopicConfigSerializeWrapper(Body, frozen=True, kw_only=True):
    """All topics of a broker, by name: GET_ALL_TOPIC_CONFIG, topics.json, and part of a registration."""

    data_version: DataVersion = DataVersion()
    topic_config_table: Annotated[dict[TopicName, TopicConfig], _TOPICS] = {}


class RegisterBrokerBody(Body, frozen=True, kw_only=True):
    """The body of REGISTER_BROKER from version V3_0_11 on; older brokers send only the wrapper."""

    filter_server_list: Annotated[list[Address], _FILTER_SERVERS] = []
    topic_config_serialize_wrapper: TopicConfigSerializeWrapper = TopicConfigSerializeWrapper()

    def encode_compressed(self) -> bytes:
        """Return the compressed form, for requests with the header field `compressed` = true."""
        wrapper = self.topic_config_serialize_wrapper
        pieces: list[bytes] = []
        _put(pieces, wrapper.data_version.encode())
        pieces.append(_INT.pack(len(wrapper.topic_config_table)))
        for topic in wrapper.topic_config_table.values():
            _put(pieces, topic.encode_line().encode())
        _put(pieces, fastjson.dumps(self.filter_server_list))
        return zlib.compress(b"".join(pieces), 9)

    @classmethod
    def decode_compressed(cls, data: bytes, *, max_inflated_bytes: int = MAX_INFLATED_BYTES) -> RegisterBrokerBody:
        """Decode the compressed form. Raise `BodyError` if it is damaged or inflates beyond `max_inflated_bytes`."""
        return _read_inflated(_inflate(data, max_inflated_bytes))


def _put(pieces: list[bytes], data: bytes) -> None:
    pieces.append(_INT.pack(len(data)))
    pieces.append(data)


def _inflate(data: bytes, max_inflated_bytes: int) -> bytes:
    stream = zlib.decompressobj()
    try:
        inflated = stream.decompress(data, max_inflated_bytes)
    except zlib.error as error:
        raise BodyError(f"the compressed registration cannot be inflated: {error}") from None
    if not stream.eof:
        if stream.unconsumed_tail or len(inflated) >= max_inflated_bytes:
            raise BodyError(f"the compressed registration inflates to more than {max_inflated_bytes} bytes")
        raise BodyError("the compressed registration ends too early")
    return inflated


def _read_inflated(data: bytes) -> RegisterBrokerBody:
    at = 0

    def read_int(what: str) -> int:
        nonlocal at
        if at + 4 > len(data):
            raise BodyError(f"the registration ends inside the length of {what}, at byte {at} of {len(data)}")
        number: int = _INT.unpack_from(data, at)[0]
        at += 4
        if number < 0 or number > len(data) - at:
            raise BodyError(f"the registration has {number} as length of {what}, with {len(data) - at} bytes left")
        return number

    def read_piece(what: str) -> bytes:
        nonlocal at
        length = read_int(what)
        at += length
        return data[at - length : at]

    version = DataVersion.decode(read_piece("the data version"))
    topics: dict[str, TopicConfig] = {}
    count = read_int("the topic table")
    if count > MAX_INFLATED_TOPICS:
        raise BodyError(f"the registration has {count} topics, the limit is {MAX_INFLATED_TOPICS}")
    for _ in range(count):
        try:
            topic = TopicConfig.decode_line(read_piece("a topic").decode())
        except UnicodeDecodeError as error:
            raise BodyError(f"a topic line of the registration is not UTF-8: {error}") from None
        topics[topic.topic_name] = topic
    filter_servers: list[str] | None = decode_body(list[Address] | None, read_piece("the filter servers"))
    return RegisterBrokerBody(
        filter_server_list=filter_servers or [],
        topic_config_serialize_wrapper=TopicConfigSerializeWrapper(data_version=version, topic_config_table=topics),
    )
