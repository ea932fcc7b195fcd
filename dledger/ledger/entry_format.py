"""The bytes of an entry and of an index unit (DLedgerEntryCoder, DLedgerIndexEntryCoder). Big endian, signed.

Entry, in a data file:

    magic int32 @0 (1) | size int32 @4 | index int64 @8 | term int64 @16 | pos int64 @24 | channel int32 @32
    | chain CRC int32 @36 (0) | body CRC int32 @40 (0) | body length int32 @44 | body @48

End of a data file, when an entry and 8 more bytes do not fit any more; zeros follow to the end of the file:

    -1 int32 @0 | bytes left int32 @4

Index unit, at index * 32 in the index files:

    magic int32 @0 (1) | pos int64 @4 | size int32 @12 | index int64 @16 | term int64 @24
"""

from __future__ import annotations

import struct
from collections.abc import Iterator
from typing import Final, NamedTuple

from triomq.dledger.wire.bodies import ENTRY_HEADER_BYTES, ENTRY_MAGIC, Entry

BLANK_MAGIC: Final = -1
BLANK_BYTES: Final = 8
UNIT_BYTES: Final = 32

_HEADER: Final = struct.Struct(">iiqqqiiii")
pack_header = _HEADER.pack
_BLANK: Final = struct.Struct(">ii")
_UNIT: Final = struct.Struct(">iqiqq")
pack_unit = _UNIT.pack


class Header(NamedTuple):
    """The header of an entry, as it lies in a file."""

    magic: int
    size: int
    entry_index: int
    term: int
    pos: int
    channel: int
    chain_crc: int
    body_crc: int
    body_bytes: int

    def is_sound(self, at: int) -> bool:
        """Return whether an entry at this position can have this header. Nothing covers its bytes with a checksum."""
        return (
            self.magic == ENTRY_MAGIC
            and self.pos == at
            and self.body_bytes >= 0
            and self.body_bytes + ENTRY_HEADER_BYTES == self.size
            and self.entry_index >= 0
        )

    @property
    def unit(self) -> bytes:
        """The index unit of this entry."""
        return pack_unit(ENTRY_MAGIC, self.pos, self.size, self.entry_index, self.term)


def encode(entry: Entry) -> bytes:
    """Return the bytes of an entry."""
    body = entry.body
    crcs = (entry.chain_crc, entry.body_crc)
    header = (entry.magic, entry.size, entry.index, entry.term, entry.pos, entry.channel, *crcs, len(body))
    return pack_header(*header) + body


def unit_of(entry: Entry) -> bytes:
    """Return the index unit of an entry."""
    return pack_unit(ENTRY_MAGIC, entry.pos, entry.size, entry.index, entry.term)


def read_header(data: bytes) -> Header:
    """Return the header in the first 48 bytes."""
    return Header(*_HEADER.unpack_from(data))


def decode(data: bytes) -> Entry:
    """Return the entry in these bytes, which are whole."""
    header = read_header(data)
    return Entry(
        body=data[ENTRY_HEADER_BYTES : header.size],
        body_crc=header.body_crc,
        chain_crc=header.chain_crc,
        channel=header.channel,
        index=header.entry_index,
        magic=header.magic,
        pos=header.pos,
        size=header.size,
        term=header.term,
    )


def blank(bytes_left: int) -> bytes:
    """Return what fills the rest of a data file."""
    return _BLANK.pack(BLANK_MAGIC, bytes_left).ljust(bytes_left, b"\0")


def place_of(unit: bytes) -> tuple[int, int]:
    """Return position and size of the entry of an index unit."""
    _, pos, size, _, _ = _UNIT.unpack(unit)
    return pos, size


def places_of(units: bytes) -> Iterator[tuple[int, int]]:
    """Yield position and size of the entry of each of these index units."""
    return ((pos, size) for _, pos, size, _, _ in _UNIT.iter_unpack(units))
