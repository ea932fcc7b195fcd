"""The records of the log of messages in flight. Each is MessagePack with its length and its CRC:

    | length of the body 4 | CRC-32 of the body 4 | body: [kind, ...]

    kind           then                                                                written by
    BEGIN       0  format version                                                      a new file, first
    QUEUE       1  number, topic, group, queue id, next, four columns (in_flight.py)   a new file; the first receive
    COMPLETE    2  -                                                                   a new file, behind its queues
    RECEIVED    3  number, popped, visible, next, [offsets]                            a receive of new messages
    AGAIN       4  number, popped, visible, [offsets]                                  a receive of messages in flight
    DONE        5  number, [offsets]                                                   an acknowledgement
    CHANGED     6  number, popped, visible, offset                                     a change of the invisible time
    BEGINS_AT   7  number, next                                                        a reset: nothing is in flight
    GONE        8  number                                                              the end of a topic or group

A queue has a number in its file, which the records behind name. Times are Unix ms. Columns are little endian.
"""

from __future__ import annotations

import sys
from array import array
from collections.abc import Iterator
from struct import Struct as Layout
from typing import Any, Final
from zlib import crc32

import msgpack

from triomq.broker.pop.in_flight import Columns, InFlight

VERSION: Final = 1
BEGIN: Final = 0
QUEUE: Final = 1
COMPLETE: Final = 2
RECEIVED: Final = 3
AGAIN: Final = 4
DONE: Final = 5
CHANGED: Final = 6
BEGINS_AT: Final = 7
GONE: Final = 8

_HEAD: Final = Layout(">II")
HEAD_BYTES: Final = _HEAD.size
_pack: Final = msgpack.Packer(use_bin_type=True).pack


def encode(*body: Any) -> bytes:
    """Return the record with this body: its kind, then its values."""
    data: bytes = _pack(body)
    return _HEAD.pack(len(data), crc32(data)) + data


def encode_queue(number: int, topic: str, group: str, queue_id: int, in_flight: InFlight) -> bytes:
    """Return the record of a queue with all that is in flight."""
    columns = in_flight.columns()
    packed = [_bytes_of(each) for each in (columns.offsets, columns.popped, columns.visible, columns.attempts)]
    return encode(QUEUE, number, topic, group, queue_id, in_flight.next_offset, *packed)


def decode_queue(body: list[Any]) -> tuple[int, str, str, int, InFlight]:
    """Return number, topic, group, queue id and messages in flight of a record of kind QUEUE."""
    _, number, topic, group, queue_id, next_offset, offsets, popped, visible, attempts = body
    in_flight = InFlight(next_offset)
    columns = [_array_of(code, data) for code, data in zip("qqqH", (offsets, popped, visible, attempts), strict=True)]
    in_flight.add(Columns(*columns))
    return number, topic, group, queue_id, in_flight


class Records:
    """The bodies of the records of a file, up to the first that is incomplete or damaged, which begins at `end`."""

    def __init__(self, data: bytes) -> None:
        self._data = data
        self.end = 0

    def __iter__(self) -> Iterator[list[Any]]:
        data = memoryview(self._data)
        while self.end + HEAD_BYTES <= len(data):
            length, crc = _HEAD.unpack_from(data, self.end)
            begin = self.end + HEAD_BYTES
            body = data[begin : begin + length]
            if not length or len(body) < length or crc32(body) != crc:
                return
            yield msgpack.unpackb(body, use_list=True, raw=False, strict_map_key=False)
            self.end = begin + length


def _bytes_of(column: array[int]) -> bytes:
    if sys.byteorder != "little":
        column = column[:]
        column.byteswap()
    return column.tobytes()


def _array_of(code: str, data: bytes) -> array[int]:
    column = array(code)
    column.frombytes(data)
    if sys.byteorder != "little":
        column.byteswap()
    return column
