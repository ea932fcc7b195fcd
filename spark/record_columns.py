"""Stored records as Arrow columns, many at a time.

`RecordColumns` walks over the records in one buffer (a mapped segment, or the bodies of pull responses) and notes
where the parts of each record begin. These notes are the offsets of an Arrow array over all parts of all records, so
Arrow itself gathers bodies, topics and properties, and the fixed fields are strides over the gathered heads: no Python
object is made per field. Rare cases (IPv6 hosts, compressed bodies, malformed properties) are decoded row by row, with
the same result.
"""

from __future__ import annotations

import struct
import sys
from array import array
from collections.abc import Callable, Mapping, Sequence
from functools import cached_property
from itertools import accumulate
from typing import Any, Final, Literal
from zlib import crc32

import pyarrow as pa
from pyarrow import compute

from triomq.protocol import compression, message_id, sys_flag
from triomq.protocol.address import HostPort
from triomq.protocol.errors import BodyError
from triomq.protocol.record import (
    FIXED_BYTES,
    MESSAGE_MAGIC,
    PHYSICAL_OFFSET_AT,
    QUEUE_ID_AT,
    QUEUE_OFFSET_AT,
    SYS_FLAG_AT,
)
from triomq.spark.property_columns import PropertyColumns, as_text, every
from triomq.spark.store_files import has_good_crc, has_good_lengths, host_bytes

Buffer = Any  # bytes, bytearray or mmap
Builder = Callable[["_Records", Any], Any]

ROWS_PER_BATCH: Final = 8192
BYTES_PER_BATCH: Final = 8 * 1024 * 1024
_BYTES_PER_RUN: Final = 1024 * 1024  # the bounds above are checked between runs
LOG_APPEND_TIME: Final = 1
_LEAST, _MOST = -(2**63), 2**63

# The parts of a record, whose borders are in `_bounds`: fixed fields, body, topic length, topic, properties length,
# properties. The seventh part is the gap before the next record taken.
_PARTS: Final = 7
_HEAD, _BODY, _TOPIC, _PROPERTIES = 0, 1, 3, 5

_BODY_CRC_AT, _FLAG_AT, _BORN_TIME_AT, _BORN_HOST_AT, _STORE_TIME_AT = 8, 16, 40, 48, 56
_RECONSUME_TIMES_AT, _PREPARED_AT = 72, 76  # with IPv4 hosts, as above

# TOTALSIZE, MAGICCODE, BODYCRC, QUEUEOFFSET, SYSFLAG, and with IPv4 hosts BODYLENGTH
_FRONT = struct.Struct(">iii8xq8xi44xi")
_LENGTH = struct.Struct(">i")
_V4_BYTES: Final = 88
_HOSTS_V6: Final = sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6


class RecordColumns:
    """Collects records as columns until `take`. One owner, one thread."""

    def __init__(self, schema: Any, names: Sequence[str], broker_name: str | None) -> None:
        """`schema` is the pyarrow schema of the columns `names`."""
        self._schema = schema
        self._builders = [(_BUILDERS[name], schema.field(at).type) for at, name in enumerate(names)]
        self._broker_name = broker_name
        self._wants_bodies = not {"body", "value"}.isdisjoint(names)
        self._clear()

    def _clear(self) -> None:
        self._data: Buffer = b""
        self._bounds: list[int] = []
        self._inflated: dict[int, bytes] = {}
        self._byte_count = 0

    @property
    def is_full(self) -> bool:
        return self._byte_count >= BYTES_PER_BATCH or len(self._bounds) >= ROWS_PER_BATCH * _PARTS

    def __len__(self) -> int:
        return len(self._bounds) // _PARTS

    def fits(self, data: Buffer, at: int) -> bool:
        """Return whether a record there can be added: it is in the same buffer, behind the last one."""
        return not self._bounds or (data is self._data and at >= self._bounds[-1])

    def add_run(
        self,
        data: Buffer,
        at: int,
        limit: int,
        end: int,
        first: int = _LEAST,
        last: int = _MOST,
        *,
        keeps: Callable[[], bool] | None = None,
        check_crc: bool = False,
    ) -> int:
        """Add the consecutive records that begin in [at, limit) and end at or before `end`. Return where the run
        stopped: at `at` itself when there is no valid record (`why_not` says why); while that is before `limit`, call
        again, after a `take` when `is_full`. Skips records whose queue offset is outside of [first, last), and those
        for which `keeps`, which may look at `last_at`, returns False. Call `take` first when `fits` is False."""
        self._data = data
        bounds = self._bounds
        front = _FRONT.unpack_from
        begin = at
        passed_bytes = 0
        limit = min(limit, end - FIXED_BYTES + 1, at + _BYTES_PER_RUN)
        while at < limit:
            size, magic, crc, queue_offset, flags, body_length = front(data, at)
            body_at = at + _V4_BYTES
            if flags & _HOSTS_V6:
                body_at += host_bytes(data, at)
                if body_at > end:
                    break
                body_length = _LENGTH.unpack_from(data, body_at - 4)[0]
            next_at = at + size
            topic_at = body_at + body_length + 1
            if magic != MESSAGE_MAGIC or next_at > end or body_length < 0 or topic_at + 2 > next_at:
                break
            topic_end = topic_at + data[topic_at - 1]
            if topic_end + 2 > next_at or next_at - topic_end - 2 != data[topic_end] << 8 | data[topic_end + 1]:
                break
            if check_crc and body_length and crc32(data[body_at : topic_at - 1]) & 0x7FFFFFFF != crc:
                break
            if first <= queue_offset < last:
                bounds += (at, body_at, topic_at - 1, topic_at, topic_end, topic_end + 2, next_at)
                if keeps is not None and not keeps():
                    del bounds[-_PARTS:]
                    passed_bytes += size
                elif flags & sys_flag.COMPRESSED and self._wants_bodies and body_length:
                    try:
                        body = _inflated(data, body_at, topic_at - 1, flags)
                    except BodyError:
                        del bounds[-_PARTS:]
                        break
                    self._inflated[len(self) - 1] = body
                    self._byte_count += len(body)
                    limit = next_at if self.is_full else limit
            else:
                passed_bytes += size
            at = next_at
        self._byte_count += at - begin - passed_bytes
        return at

    @property
    def last_at(self) -> int:
        """Position of the last record in its buffer."""
        return self._bounds[-_PARTS]

    @property
    def last_topic(self) -> str:
        return bytes(self._data[self._bounds[-4] : self._bounds[-3]]).decode("utf-8", "replace")

    @property
    def last_properties(self) -> bytes:
        return bytes(self._data[self._bounds[-2] : self._bounds[-1]])

    def take(self) -> Any:
        """Return what was collected as one pyarrow RecordBatch, which shares no memory with the buffer, and start
        over."""
        records = _Records(self._data, self._bounds, self._inflated, self._broker_name)
        arrays = [build(records, kind) for build, kind in self._builders]
        self._clear()
        return pa.RecordBatch.from_arrays(arrays, schema=self._schema)


def why_not(data: Buffer, at: int, end: int) -> str:
    """Say why there is no valid record at a position where `add_run` stopped."""
    size, magic = struct.unpack_from(">ii", data, at) if end - at >= FIXED_BYTES else (end - at, 0)
    if magic != MESSAGE_MAGIC or not FIXED_BYTES <= size <= end - at or not has_good_lengths(data, at, size):
        return f"{size} bytes with magic {magic & 0xFFFFFFFF:#010x} are not a record"
    if not has_good_crc(data, at):
        return "the body of a record does not match its CRC"
    body_at = at + _V4_BYTES + host_bytes(data, at)
    body_end = body_at + _LENGTH.unpack_from(data, body_at - 4)[0]
    flags = _LENGTH.unpack_from(data, at + SYS_FLAG_AT)[0]
    if flags & sys_flag.COMPRESSED:
        try:
            _inflated(data, body_at, body_end, flags)
        except BodyError as error:
            return str(error)
    return "the record was not taken"


def _inflated(data: Buffer, begin: int, end: int, flags: int) -> bytes:
    return compression.decompress(bytes(data[begin:end]), sys_flag.compression_type(flags))


class _Records:
    """The records of one batch. Parts that several columns need are computed once, on first use."""

    def __init__(self, data: Buffer, bounds: list[int], inflated: dict[int, bytes], broker_name: str | None) -> None:
        self.data = data
        self.bounds = bounds
        self.inflated = inflated
        self.broker_name = broker_name
        self.count = len(bounds) // _PARTS
        offsets = pa.py_buffer(array("i", bounds))
        self._parts = pa.Array.from_buffers(pa.binary(), len(bounds) - 1, [None, offsets, pa.py_buffer(data)])

    def part(self, which: int) -> Any:
        """One part of each record, as a binary array."""
        return self._parts.take(every(_PARTS, which, self.count))

    @cached_property
    def heads(self) -> Any:
        return self.part(_HEAD)

    @cached_property
    def fixed_fields(self) -> memoryview:
        """The fixed fields, 88 bytes each. IPv6 hosts are cut out, so that all numbers have the same positions as with
        IPv4."""
        heads = self.heads
        if compute.max(compute.binary_length(heads)).as_py() > _V4_BYTES:
            return memoryview(b"".join(map(_with_short_hosts, heads.to_pylist())))
        return memoryview(heads.buffers()[2])[: _V4_BYTES * self.count]

    def int32(self, at: int) -> Any:
        """The 4-byte field at byte `at` of the fixed fields."""
        return self._numbers("i", at, 0, pa.int32())

    def int64(self, at: int) -> Any:
        """The 8-byte field at byte `at` of the fixed fields."""
        return self._numbers("q", at - at % 8, at % 8, pa.int64())

    def _numbers(self, code: Literal["i", "q"], at: int, shift: int, kind: Any) -> Any:
        numbers = array(code)
        words = self.fixed_fields[shift : len(self.fixed_fields) - shift].cast("B").cast(code)
        numbers.frombytes(words[at // numbers.itemsize :: _V4_BYTES // numbers.itemsize].tobytes())
        if sys.byteorder == "little":
            numbers.byteswap()
        return pa.Array.from_buffers(kind, self.count, [None, pa.py_buffer(numbers)])

    @cached_property
    def hosts(self) -> list[tuple[bytes, bytes]]:
        """(born host, store host) of each record, packed."""
        return [_hosts(head) for head in self.heads.to_pylist()]

    @cached_property
    def properties(self) -> PropertyColumns:
        return PropertyColumns(self.part(_PROPERTIES))

    def offset_ids(self) -> list[str]:
        offsets = self.int64(PHYSICAL_OFFSET_AT).to_pylist()
        return [
            message_id.offset_message_id(store_host, offset)
            for (_, store_host), offset in zip(self.hosts, offsets, strict=True)
        ]


def _hosts(head: bytes) -> tuple[bytes, bytes]:
    born_end = _BORN_HOST_AT + (20 if head[SYS_FLAG_AT + 3] & sys_flag.BORN_HOST_V6 else 8)
    return head[_BORN_HOST_AT:born_end], head[born_end + 8 : -16]


def _with_short_hosts(head: bytes) -> bytes:
    born_end = _BORN_HOST_AT + len(_hosts(head)[0])
    return head[:_BORN_HOST_AT] + bytes(8) + head[born_end : born_end + 8] + bytes(8) + head[-16:]


# -- one builder per column: (records, pyarrow type) -> array ---------------------------------------------------


def _constant(value_of: Callable[[_Records], Any]) -> Builder:
    return lambda records, kind: pa.repeat(pa.scalar(value_of(records), kind), records.count)


def _int32(at: int) -> Builder:
    return lambda records, _: records.int32(at)


def _int64(at: int) -> Builder:
    return lambda records, _: records.int64(at)


def _timestamp(at: int) -> Builder:
    return lambda records, kind: compute.multiply(records.int64(at), 1000).view(kind)


def _property(name: str) -> Builder:
    return lambda records, kind: records.properties.value_of(name).cast(kind)


def _host(which: int) -> Builder:
    def build(records: _Records, kind: Any) -> Any:
        texts = {hosts[which]: "" for hosts in records.hosts}
        texts = {packed: HostPort.from_packed(packed).text for packed in texts}
        return pa.array([texts[hosts[which]] for hosts in records.hosts], kind)

    return build


def _body(records: _Records, kind: Any) -> Any:
    if not records.inflated:
        return records.part(_BODY)
    bodies = [records.inflated.get(row, body) for row, body in enumerate(records.part(_BODY).to_pylist())]
    # Joined at once: growing Arrow's buffer costs several times as much.
    ends = array("i", accumulate(map(len, bodies), initial=0))
    return pa.Array.from_buffers(kind, len(bodies), [None, pa.py_buffer(ends), pa.py_buffer(b"".join(bodies))])


def _properties(records: _Records, kind: Any) -> Any:
    table = records.properties
    return pa.MapArray.from_arrays(table.offsets, table.names, table.values, type=kind)


def _headers(records: _Records, kind: Any) -> Any:
    table = records.properties
    fields = kind.value_type
    pairs = pa.StructArray.from_arrays([table.names, table.values.cast(pa.binary())], fields=list(fields))
    return pa.ListArray.from_arrays(table.offsets, pairs, type=kind)


def _msg_id(records: _Records, kind: Any) -> Any:
    unique = records.properties.value_of("UNIQ_KEY")
    if unique.null_count:
        return compute.coalesce(unique, pa.array(records.offset_ids(), kind))
    return unique


def _record_crc(records: _Records, kind: Any) -> Any:
    bounds = records.bounds
    places = zip(bounds[::_PARTS], bounds[_PARTS - 1 :: _PARTS], strict=True)
    return pa.array([crc32(records.data[begin:end]) for begin, end in places], kind)


_BUILDERS: Final[Mapping[str, Builder]] = {
    "topic": lambda records, _: as_text(records.part(_TOPIC)),
    "brokerName": _constant(lambda records: records.broker_name),
    "queueId": _int32(QUEUE_ID_AT),
    "partition": _int32(QUEUE_ID_AT),
    "flag": _int32(_FLAG_AT),
    "queueOffset": _int64(QUEUE_OFFSET_AT),
    "offset": _int64(QUEUE_OFFSET_AT),
    "physicalOffset": _int64(PHYSICAL_OFFSET_AT),
    "sysFlag": _int32(SYS_FLAG_AT),
    "bornTimestamp": _timestamp(_BORN_TIME_AT),
    "bornHost": _host(0),
    "storeTimestamp": _timestamp(_STORE_TIME_AT),
    "timestamp": _timestamp(_STORE_TIME_AT),
    "storeHost": _host(1),
    "reconsumeTimes": _int32(_RECONSUME_TIMES_AT),
    "preparedTransactionOffset": _int64(_PREPARED_AT),
    "bodyCrc": _int32(_BODY_CRC_AT),
    "storeSize": _int32(0),
    "body": _body,
    "value": _body,
    "tags": _property("TAGS"),
    "keys": _property("KEYS"),
    "key": _property("KEYS"),
    "properties": _properties,
    "headers": _headers,
    "msgId": _msg_id,
    "offsetMsgId": lambda records, kind: pa.array(records.offset_ids(), kind),
    "timestampType": _constant(lambda _: LOG_APPEND_TIME),
    "recordCrc32": _record_crc,
}
