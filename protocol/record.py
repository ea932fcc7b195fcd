"""The stored record (CommitLog, MessageDecoder): the layout on disk, on the HA port and in pull responses.

    TOTALSIZE 4 | MAGICCODE 4 | BODYCRC 4 | QUEUEID 4 | FLAG 4 | QUEUEOFFSET 8 | PHYSICALOFFSET 8 | SYSFLAG 4
    | BORNTIMESTAMP 8 | BORNHOST 8 or 20 | STORETIMESTAMP 8 | STOREHOST 8 or 20 | RECONSUMETIMES 4
    | PREPAREDTRANSACTIONOFFSET 8 | BODYLENGTH 4 + body | TOPICLENGTH 1 + topic | PROPERTIESLENGTH 2 + properties

The hosts are 20 bytes long when SYSFLAG has BORN_HOST_V6 or STORE_HOST_V6. Everything is big endian and signed. A blank
record (TOTALSIZE, BLANK_MAGIC) fills the end of a log file. BODYCRC covers the body only: CRC-32 without its top bit.

A batch unit is one message inside a producer's batch request. It is never stored in this layout:

    TOTALSIZE 4 | MAGICCODE 4 | BODYCRC 4 | FLAG 4 | BODYLENGTH 4 + body | PROPERTIESLENGTH 2 + properties
"""

from __future__ import annotations

import struct
from collections.abc import Callable, Iterable, Iterator
from typing import Any, Final
from zlib import crc32

from triomq.protocol import compression, properties, stored_properties, sys_flag
from triomq.protocol.errors import BodyError, RecordError
from triomq.protocol.message import Message, MessageExt
from triomq.protocol.message_to_store import MessageToStore, Place
from triomq.protocol.speedups import accelerated, fast_path

MESSAGE_MAGIC: Final = -626843481
BLANK_MAGIC: Final = -875286124
MESSAGE_MAGIC_BYTES: Final = (MESSAGE_MAGIC & 0xFFFFFFFF).to_bytes(4, "big")
BLANK_MAGIC_BYTES: Final = (BLANK_MAGIC & 0xFFFFFFFF).to_bytes(4, "big")

# The size of a record with two IPv4 hosts without body, topic and properties; each IPv6 host adds 12 bytes.
FIXED_BYTES: Final = 91
BLANK_BYTES: Final = 8
BATCH_FIXED_BYTES: Final = 22
MAX_TOPIC_BYTES: Final = 127

# The positions of fields that do not depend on the hosts.
QUEUE_ID_AT: Final = 12
QUEUE_OFFSET_AT: Final = 20
PHYSICAL_OFFSET_AT: Final = 28
SYS_FLAG_AT: Final = 36

_HEAD: Final = struct.Struct(">iiiiiqqiq")
_HEAD_V4_V4: Final = struct.Struct(">iiiiiqqiq8sq8siqi")
_HEAD_V6_V4: Final = struct.Struct(">iiiiiqqiq20sq8siqi")
_HEAD_V4_V6: Final = struct.Struct(">iiiiiqqiq8sq20siqi")
_HEAD_V6_V6: Final = struct.Struct(">iiiiiqqiq20sq20siqi")
_BLANK: Final = struct.Struct(">ii")
_BATCH_HEAD: Final = struct.Struct(">iiiii")
_FLAG_AND_BODY_LENGTH: Final = struct.Struct(">12xii")
_OWN_PLACE: Final = struct.Struct(">ii20xq")
_INT64: Final = struct.Struct(">q")
_SHORT: Final = struct.Struct(">h")
# By the lengths of born host and store host: how to pack the fields, the size without the others, the bits of SYSFLAG.
_HEADS: Final[dict[tuple[int, int], tuple[Callable[..., bytes], int, int]]] = {
    (8, 8): (_HEAD_V4_V4.pack, FIXED_BYTES, 0),
    (20, 8): (_HEAD_V6_V4.pack, FIXED_BYTES + 12, sys_flag.BORN_HOST_V6),
    (8, 20): (_HEAD_V4_V6.pack, FIXED_BYTES + 12, sys_flag.STORE_HOST_V6),
    (20, 20): (_HEAD_V6_V6.pack, FIXED_BYTES + 24, sys_flag.BORN_HOST_V6 | sys_flag.STORE_HOST_V6),
}
# What a buffer may be; all of them slice, and struct reads them in place.
Buffer = bytes | bytearray | memoryview

_pack_short: Final = _SHORT.pack
_unpack_v4_v4: Final = _HEAD_V4_V4.unpack_from
_unpack_unit: Final = _FLAG_AND_BODY_LENGTH.unpack_from


def body_crc(body: bytes | memoryview) -> int:
    """Return BODYCRC for this body: its CRC-32 without the top bit."""
    return crc32(body) & 0x7FFFFFFF


def write_record_reference(
    tail: bytearray,
    topic: bytes,
    queue_id: int,
    flag: int,
    queue_offset: int,
    physical_offset: int,
    sys_flags: int,
    born_timestamp: int,
    born_host: bytes,
    store_timestamp: int,
    store_host: bytes,
    reconsume_times: int,
    prepared_transaction_offset: int,
    body: bytes,
    crc: int,
    stored_properties: bytes,
) -> int:
    """Append one record (see encode_into). `crc` is BODYCRC; a negative one stands for that of the body."""
    try:
        pack, fixed_bytes, host_flags = _HEADS[len(born_host), len(store_host)]
    except KeyError:
        raise struct.error(f"packed hosts of {len(born_host)} and {len(store_host)} bytes, not of 8 or 20") from None
    size: int = fixed_bytes + len(body) + len(topic) + len(stored_properties)
    sys_flags = sys_flags & ~0x30 | host_flags
    # packed before the tail changes, so that a value that does not fit leaves the tail unchanged
    properties_length = _pack_short(len(stored_properties))
    if crc < 0:
        crc = body_crc(body)
    head = pack(
        size,
        MESSAGE_MAGIC,
        crc,
        queue_id,
        flag,
        queue_offset,
        physical_offset,
        sys_flags,
        born_timestamp,
        born_host,
        store_timestamp,
        store_host,
        reconsume_times,
        prepared_transaction_offset,
        len(body),
    )
    if len(topic) > MAX_TOPIC_BYTES:
        raise struct.error(f"a topic of {len(topic)} bytes does not fit its length byte")
    tail += head
    tail += body
    tail.append(len(topic))
    tail += topic
    tail += properties_length
    tail += stored_properties
    return size


_write_record: Final = accelerated(write_record_reference)
_take_messages: Final[Any] = fast_path("take_messages")


def encode_into(tail: bytearray, topic: bytes, message: MessageToStore, place: Place, properties_text: bytes) -> int:
    """Append the record of `message` at `place` to `tail` and return its size in bytes. `topic` is the message's topic
    in UTF-8; `properties_text` is that of its properties, or what the record has in their place. Hosts are packed (8 or
    20 bytes); the host bits in the record's SYSFLAG are set to match their lengths. Raises struct.error if a number or
    length does not fit its field.

    This is the only call that lists the fields one after another: reading them from C as attributes takes a third of a
    microsecond longer."""
    return _write_record(
        tail,
        topic,
        message.queue_id,
        message.flag,
        place.queue_offset,
        place.physical_offset,
        message.sys_flag,
        message.born_timestamp,
        message.born_host,
        place.store_timestamp,
        message.store_host,
        message.reconsume_times,
        message.prepared_transaction_offset,
        message.body,
        message.body_crc,
        properties_text,
    )


def stored_again(
    data: bytes, fields: RecordFields, topic: str, queue_id: int, properties: stored_properties.StoredProperties
) -> MessageToStore:
    """Return the message of a record, whose fields are `fields`, for another queue. It keeps hosts, time, flags and the
    CRC of its body."""
    return MessageToStore(
        topic,
        queue_id,
        data[fields.body_at : fields.body_at + fields.body_length],
        properties,
        born_timestamp=fields.born_timestamp,
        born_host=fields.born_host,
        store_host=fields.store_host,
        flag=fields.flag,
        sys_flag=fields.sys_flag,
        reconsume_times=fields.reconsume_times,
        body_crc=fields.body_crc,
    )


def encode_record(message: MessageExt) -> bytes:
    """Return the record of a MessageExt, with its body unchanged."""
    tail = bytearray()
    to_store = MessageToStore(
        message.topic,
        message.queue_id,
        message.body,
        stored_properties.of(message.properties),
        born_timestamp=message.born_timestamp,
        born_host=message.born_host.packed,
        store_host=message.store_host.packed,
        flag=message.flag,
        sys_flag=message.sys_flag,
        reconsume_times=message.reconsume_times,
        prepared_transaction_offset=message.prepared_transaction_offset,
    )
    place = Place(
        physical_offset=message.physical_offset,
        queue_offset=message.queue_offset,
        store_timestamp=message.store_timestamp,
    )
    encode_into(tail, message.topic.encode(), to_store, place, to_store.properties.text)
    return bytes(tail)


def queue_offset_of(data: Buffer) -> int:
    """Return QUEUEOFFSET of the record with which the buffer begins."""
    queue_offset: int = _INT64.unpack_from(data, QUEUE_OFFSET_AT)[0]
    return queue_offset


def with_more_reconsume_times(data: bytes, more: int) -> bytes:
    """Return a record whose RECONSUMETIMES is larger by `more`. No checksum covers the field."""
    sys_flags = data[SYS_FLAG_AT + 3]
    at = SYS_FLAG_AT + 4 + 8 + 8
    at += 20 if sys_flags & sys_flag.BORN_HOST_V6 else 8
    at += 20 if sys_flags & sys_flag.STORE_HOST_V6 else 8
    times = int.from_bytes(data[at : at + 4], "big", signed=True) + more
    return data[:at] + times.to_bytes(4, "big", signed=True) + data[at + 4 :]


def encode_blank(size_bytes: int) -> bytes:
    """Return the head of the blank record that fills the last `size_bytes` of a log file; its rest is not written."""
    return _BLANK.pack(size_bytes, BLANK_MAGIC)


class RecordFields:
    """The fields of one record, with undecoded body and properties. `body_at` is the body's position in the buffer."""

    __slots__ = (
        "body_at",
        "body_crc",
        "body_length",
        "born_host",
        "born_timestamp",
        "flag",
        "physical_offset",
        "prepared_transaction_offset",
        "properties",
        "queue_id",
        "queue_offset",
        "reconsume_times",
        "size_bytes",
        "store_host",
        "store_timestamp",
        "sys_flag",
        "topic",
    )

    def __init__(
        self,
        head: tuple[int, int, int, int, int, int, int, int, int, bytes, int, bytes, int, int, int],
        body_at: int,
        topic: bytes,
        stored_properties: bytes,
    ) -> None:
        self.size_bytes = head[0]
        self.body_crc = head[2]
        self.queue_id = head[3]
        self.flag = head[4]
        self.queue_offset = head[5]
        self.physical_offset = head[6]
        self.sys_flag = head[7]
        self.born_timestamp = head[8]
        self.born_host = head[9]
        self.store_timestamp = head[10]
        self.store_host = head[11]
        self.reconsume_times = head[12]
        self.prepared_transaction_offset = head[13]
        self.body_length = head[14]
        self.body_at = body_at
        self.topic = topic
        self.properties = stored_properties


def read_fields(buffer: Buffer, offset: int, end: int) -> RecordFields:
    """Return the fields of the record at `offset`, which must end at or before `end`. Checks the magic and that all
    lengths add up to TOTALSIZE, not the CRC. Raises RecordError, which names what does not fit."""
    if end - offset < FIXED_BYTES:
        raise RecordError(f"{end - offset} bytes at {offset} are too few for a record")
    head = _unpack_v4_v4(buffer, offset)
    magic: int = head[1]
    if magic != MESSAGE_MAGIC:
        raise RecordError(f"magic code {magic & 0xFFFFFFFF:#010x} at {offset} is not that of a record")
    body_at = offset + _HEAD_V4_V4.size
    sys_flags: int = head[7]
    if sys_flags & 0x30:
        layout = _HEAD_V4_V6
        if sys_flags & sys_flag.BORN_HOST_V6:
            layout = _HEAD_V6_V6 if sys_flags & sys_flag.STORE_HOST_V6 else _HEAD_V6_V4
        body_at = offset + layout.size
        if body_at > end:
            raise RecordError(f"the record at {offset} is cut short inside its fixed fields")
        head = layout.unpack_from(buffer, offset)
    size_bytes: int = head[0]
    body_length: int = head[14]
    record_end = offset + size_bytes
    if size_bytes < FIXED_BYTES or record_end > end:
        raise RecordError(f"total size {size_bytes} of the record at {offset} does not fit into {end - offset} bytes")
    topic_at = body_at + body_length + 1
    if body_length < 0 or topic_at > record_end:
        raise RecordError(f"body length {body_length} of the record at {offset} does not fit its size {size_bytes}")
    # The rest in one piece: items and slices of bytes cost less than those of any buffer.
    rest = buffer[topic_at - 1 : record_end] if isinstance(buffer, bytes) else bytes(buffer[topic_at - 1 : record_end])
    properties_at = rest[0] + 3
    if properties_at > len(rest):
        raise RecordError(f"topic length {rest[0]} of the record at {offset} does not fit its total size")
    if rest[properties_at - 2] << 8 | rest[properties_at - 1] != len(rest) - properties_at:
        raise RecordError(f"the lengths inside the record at {offset} do not add up to its total size {size_bytes}")
    return RecordFields(head, body_at, rest[1 : properties_at - 2], rest[properties_at:])


def decode_record(buffer: Buffer, offset: int = 0, *, decompress: bool = True) -> MessageExt:
    """Return the message at `offset`. With `decompress`, a compressed body is decompressed (`sys_flag` keeps its bits).
    Raises RecordError for anything but a whole record with a valid CRC and valid compression."""
    fields = read_fields(buffer, offset, len(buffer))
    body = bytes(buffer[fields.body_at : fields.body_at + fields.body_length])
    if body and body_crc(body) != fields.body_crc:
        raise RecordError(f"the body of the record at {offset} does not match its CRC")
    if decompress and fields.sys_flag & sys_flag.COMPRESSED and body:
        try:
            body = compression.decompress(body, sys_flag.compression_type(fields.sys_flag))
        except BodyError as error:
            raise RecordError(f"the body of the record at {offset}: {error}") from error
    message: MessageExt = MessageExt.__new__(MessageExt)
    message.topic = fields.topic.decode("utf-8", "replace")
    message.body = body
    message.flag = fields.flag
    message.transaction_id = None
    message.broker_name = None
    message._properties = fields.properties
    message._born_host = fields.born_host
    message._store_host = fields.store_host
    message._began_ms = None
    message.queue_id = fields.queue_id
    message.queue_offset = fields.queue_offset
    message.physical_offset = fields.physical_offset
    message.store_size_bytes = fields.size_bytes
    message.sys_flag = fields.sys_flag
    message.body_crc = fields.body_crc
    message.born_timestamp = fields.born_timestamp
    message.store_timestamp = fields.store_timestamp
    message.reconsume_times = fields.reconsume_times
    message.prepared_transaction_offset = fields.prepared_transaction_offset
    return message


# The order in which the C function fills them.
_SLOTS: Final = tuple(
    [
        getattr(MessageExt, name)
        for name in (
            *("topic", "body", "_properties", "_born_host", "_store_host"),
            *("broker_name", "transaction_id", "_began_ms"),
            *("store_size_bytes", "body_crc", "queue_id", "flag", "queue_offset", "physical_offset", "sys_flag"),
            *("born_timestamp", "store_timestamp", "reconsume_times", "prepared_transaction_offset"),
        )
    ]
)


def decode_records(buffer: bytes, broker_name: str | None = None) -> list[MessageExt]:
    """Return all messages of a pull response, whose records lie one behind the other, with decompressed bodies. Raises
    RecordError for the first invalid one."""
    if _take_messages is None:
        messages = list(iterate_records(buffer))
        for message in messages:
            message.broker_name = broker_name
        return messages
    found: list[MessageExt] = []
    offset = 0
    while True:
        offset, taken = _take_messages(buffer, offset, MessageExt, _SLOTS, broker_name)
        found += taken
        if offset >= len(buffer):
            return found
        message = decode_record(buffer, offset)
        message.broker_name = broker_name
        offset += message.store_size_bytes
        found.append(message)


def iterate_records(buffer: Buffer, *, decompress: bool = True) -> Iterator[MessageExt]:
    """Yield all messages of a buffer of consecutive records (the body of a pull response). Raises RecordError at the
    first invalid one."""
    offset = 0
    while offset < len(buffer):
        message = decode_record(buffer, offset, decompress=decompress)
        offset += message.store_size_bytes
        yield message


def head_of(buffer: Buffer) -> tuple[int, int, int]:
    """Return TOTALSIZE, MAGICCODE and PHYSICALOFFSET of the record at the start of `buffer`."""
    size, magic, physical_offset = _OWN_PLACE.unpack_from(buffer)
    return size, magic, physical_offset


def store_timestamp_at(buffer: Buffer, offset: int = 0) -> int:
    """Return STORETIMESTAMP (ms) of the record at `offset`."""
    at = offset + (68 if buffer[offset + SYS_FLAG_AT + 3] & sys_flag.BORN_HOST_V6 else 56)
    timestamp: int = _INT64.unpack_from(buffer, at)[0]
    return timestamp


class BatchUnit:
    """One message inside a batch request; `properties` is its own stored text."""

    __slots__ = ("body", "flag", "properties")

    def __init__(self, flag: int, body: bytes, stored_properties: bytes) -> None:
        self.flag = flag
        self.body = body
        self.properties = stored_properties


def encode_batch(messages: Iterable[Message]) -> bytes:
    """Return the body of a batch request (RocketMQ: MessageDecoder.encodeMessages)."""
    return encode_batch_units(
        [BatchUnit(message.flag, message.body, properties.encode(message.properties)) for message in messages]
    )


def encode_batch_units(units: Iterable[BatchUnit]) -> bytes:
    """Return the body of a batch request with these units. Raises RecordError if properties are too long."""
    body = bytearray()
    for unit in units:
        text = unit.properties
        if len(text) > properties.MAX_PROPERTIES_BYTES:
            raise RecordError(f"properties of {len(text)} bytes are longer than {properties.MAX_PROPERTIES_BYTES}")
        body += _BATCH_HEAD.pack(BATCH_FIXED_BYTES + len(unit.body) + len(text), 0, 0, unit.flag, len(unit.body))
        body += unit.body
        body += _SHORT.pack(len(text))
        body += text
    return bytes(body)


def split_batch(body: Buffer, max_units: int = 1 << 31) -> list[BatchUnit]:
    """Return the units of a batch request. TOTALSIZE, MAGICCODE and BODYCRC are ignored, as in RocketMQ's broker.
    Raises RecordError if the lengths do not fit, or if there are more than `max_units`."""
    units: list[BatchUnit] = []
    offset = 0
    data = body if isinstance(body, bytes) else bytes(body)
    end = len(data)
    if end > max_units * BATCH_FIXED_BYTES and end_of_units(data, 0, max_units) < end:
        raise RecordError(f"it has more than {max_units} messages; send several batches")
    while offset < end:
        if end - offset < BATCH_FIXED_BYTES:
            raise RecordError(f"{end - offset} bytes at {offset} are too few for a message of a batch")
        flag, body_length = _unpack_unit(data, offset)
        body_at = offset + BATCH_FIXED_BYTES - 2
        properties_at = body_at + body_length + 2
        if body_length < 0 or properties_at > end:
            raise RecordError(f"body length {body_length} of the batch message at {offset} does not fit")
        properties_length = data[properties_at - 2] << 8 | data[properties_at - 1]
        offset = properties_at + properties_length
        if properties_length > 0x7FFF or offset > end:
            raise RecordError(f"properties length {properties_length} at {properties_at - 2} of a batch does not fit")
        units.append(BatchUnit(flag, data[body_at : body_at + body_length], data[properties_at:offset]))
    return units


def end_of_units(body: bytes, offset: int, count: int) -> int:
    """Return where the `count` units of a batch from `offset` on end, without a copy of any; the end of the body if
    there are no more, or a length does not fit."""
    end = len(body)
    while offset < end and count > 0:
        if end - offset < count * BATCH_FIXED_BYTES:  # fewer units than `count` are left
            return end
        at = offset + BATCH_FIXED_BYTES - 2
        # Byte by byte, which compiled code does without an object; a negative length is too long for any body.
        at += body[at - 4] << 24 | body[at - 3] << 16 | body[at - 2] << 8 | body[at - 1]
        if at + 2 > end:
            return end
        properties_length = body[at] << 8 | body[at + 1]
        offset = at + 2 + (properties_length if properties_length <= 0x7FFF else 0)
        count -= 1
    return min(offset, end)
