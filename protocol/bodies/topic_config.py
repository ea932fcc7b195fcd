"""Topics that brokers store and register: TopicConfig, DataVersion, and the two forms of REGISTER_BROKER's body.

The compressed form is one zlib stream (level 9) of the following, big endian:

    int32 length | DataVersion as JSON
    int32 number of topics
    each topic:  int32 length | "topicName readQueueNums writeQueueNums perm topicFilterType"
    int32 length | JSON array of filter server addresses, or null

It omits `order` and `topicSysFlag` of the topics. A NameServer reads both forms in parts (registration.py).
"""

from __future__ import annotations

import struct
import zlib
from typing import Annotated, Final

import msgspec

from triomq.protocol import permission
from triomq.protocol.bodies import fastjson
from triomq.protocol.bodies.base import Body
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

_INT: Final = struct.Struct(">i")
TOPICS: Final = Bound(
    "topics of one broker",
    key="maxTopics",
    limit="of all brokers together",
    beyond="the registration is refused as a whole",
    test="tests/namesrv/test_namesrv_routes.py::test_a_full_table_refuses_as_a_whole",
    clients="far beyond the 100,000 topics that a broker keeps, in a registration; RocketMQ sends one frame of them",
)
FILTER_SERVERS: Final = Bound(
    "filter servers of one broker",
    limit="64",
    test="tests/namesrv/test_namesrv_processor.py::test_a_registration_with_a_name_too_long_is_refused",
    clients="far beyond 0 filter servers, the default of RocketMQ's brokers",
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
    topic_config_table: Annotated[dict[TopicName, TopicConfig], TOPICS] = {}


class RegisterBrokerBody(Body, frozen=True, kw_only=True):
    """The body of REGISTER_BROKER from version V3_0_11 on; older brokers send only the wrapper."""

    filter_server_list: Annotated[list[Address], FILTER_SERVERS] = []
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


def _put(pieces: list[bytes], data: bytes) -> None:
    pieces.append(_INT.pack(len(data)))
    pieces.append(data)
