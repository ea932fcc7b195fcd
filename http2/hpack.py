"""HPACK: header fields as bytes (RFC 7541).

    1xxxxxxx            a field of the table                  01xxxxxx name value   a field, added to the table
    001xxxxx            a new size of the table               0000xxxx name value   a field, not added
                                                              0001xxxx name value   the same, never to be added

x begins a number: an index (0: the name follows as text) or a size. A text is its length, whose first bit says whether
it is in Huffman's code, and its bytes. Indexes 1 to 61 are the static table, 62 is the newest field of the dynamic one.

`HeaderDecoder` reads the blocks of one connection. `encode_fields` writes blocks that never use the dynamic table: the
few texts of a server's answers are short, and such a block is the same bytes every time, so callers keep it.

A field whose name or value HTTP forbids is read as MALFORMED with the reason: the request is at fault, not the
connection, because a proxy may pass on the requests of many clients. The table keeps its size right.
"""

from __future__ import annotations

import re
from collections import deque
from collections.abc import Iterable
from typing import Final

from triomq.http2.errors import ErrorCode, HeaderFault
from triomq.http2.huffman import decode_huffman

Field = tuple[bytes, bytes]

TABLE_BYTES: Final = 4096
"""Size of the dynamic table: the default of SETTINGS_HEADER_TABLE_SIZE, which this server does not change."""
ENTRY_OVERHEAD_BYTES: Final = 32
"""What a field counts in addition to its name and value."""
MAX_FIELD_LIST_BYTES: Final = 32 * 1024
"""Decoded size of all fields of a request, each with its overhead (SETTINGS_MAX_HEADER_LIST_SIZE). A block of a few
kilobytes can name the longest field of the table thousands of times."""
MALFORMED: Final = b""
"""The name of a field that HTTP forbids; its value is the reason."""

_MAX_NUMBER_BYTES: Final = 4
_MAX_SIZE_UPDATES: Final = 2

_NAME: Final = re.compile(rb":?[a-z0-9!#$%&'*+.^_`|~-]+\Z")

STATIC_TABLE: Final[tuple[Field, ...]] = (
    (b":authority", b""), (b":method", b"GET"), (b":method", b"POST"), (b":path", b"/"), (b":path", b"/index.html"),
    (b":scheme", b"http"), (b":scheme", b"https"),
    *((b":status", status) for status in (b"200", b"204", b"206", b"304", b"400", b"404", b"500")),
    (b"accept-charset", b""), (b"accept-encoding", b"gzip, deflate"),
    *(
        (name, b"")
        for name in (
            b"accept-language accept-ranges accept access-control-allow-origin age allow authorization cache-control "
            b"content-disposition content-encoding content-language content-length content-location content-range "
            b"content-type cookie date etag expect expires from host if-match if-modified-since if-none-match if-range "
            b"if-unmodified-since last-modified link location max-forwards proxy-authenticate proxy-authorization "
            b"range referer refresh retry-after server set-cookie strict-transport-security transfer-encoding "
            b"user-agent vary via www-authenticate"
        ).split()
    ),
)  # fmt: skip
_STATIC_NAMES: Final = {name: len(STATIC_TABLE) - index for index, (name, _) in enumerate(reversed(STATIC_TABLE))}
_STATIC_FIELDS: Final = {field: index for index, field in enumerate(STATIC_TABLE, 1)}
_STATIC_COUNT: Final = len(STATIC_TABLE)


class HeaderDecoder:
    """The dynamic table that the peer's encoder fills. Only the connection that owns it may touch it."""

    def __init__(self) -> None:
        self._fields: deque[tuple[Field, int]] = deque()  # newest first, each with its size
        self._size_bytes = 0
        self._limit_bytes = TABLE_BYTES

    def decode(self, block: bytes) -> list[Field]:
        """Return the fields of a block. Raise HeaderFault, after which no other block can be decoded."""
        found: list[Field] = []
        position = 0
        end = len(block)
        list_bytes = 0
        updates = 0
        while position < end:
            first = block[position]
            if first & 0x80:
                index, position = _number(block, position, 0x7F)
                field, size_bytes = self._indexed(index)
            elif first & 0xE0 == 0x20:
                updates += 1
                if found or updates > _MAX_SIZE_UPDATES:
                    raise HeaderFault("the size of the table changes in the middle of a header block")
                limit, position = _number(block, position, 0x1F)
                self._resize(limit)
                continue
            else:
                is_kept = first & 0x40
                index, position = _number(block, position, 0x3F if is_kept else 0x0F)
                field, size_bytes, position = self._literal(block, position, index)
                if is_kept:
                    self._add(field, size_bytes)
            list_bytes += size_bytes
            if list_bytes > MAX_FIELD_LIST_BYTES:
                reason = f"header fields of more than {MAX_FIELD_LIST_BYTES} bytes in one request"
                raise HeaderFault(reason, ErrorCode.ENHANCE_YOUR_CALM)
            found.append(field)
        return found

    def _indexed(self, index: int) -> tuple[Field, int]:
        if index > _STATIC_COUNT:
            if index - _STATIC_COUNT > len(self._fields):
                raise HeaderFault(f"the header table has no field {index}")
            return self._fields[index - _STATIC_COUNT - 1]
        if index == 0:
            raise HeaderFault("the header table has no field 0")
        field = STATIC_TABLE[index - 1]
        return field, len(field[0]) + len(field[1]) + ENTRY_OVERHEAD_BYTES

    def _literal(self, block: bytes, position: int, index: int) -> tuple[Field, int, int]:
        """Return the field, its size, and where it ends."""
        if index:
            name = self._indexed(index)[0][0]
        else:
            name, position = _text(block, position)
        value, position = _text(block, position)
        return checked(name, value, is_known=index > 0), len(name) + len(value) + ENTRY_OVERHEAD_BYTES, position

    def _add(self, field: Field, size_bytes: int) -> None:
        self._size_bytes += size_bytes
        self._fields.appendleft((field, size_bytes))
        if self._size_bytes > self._limit_bytes:
            self._evict()

    def _resize(self, limit_bytes: int) -> None:
        if limit_bytes > TABLE_BYTES:
            raise HeaderFault(f"a header table of {limit_bytes} bytes was asked for; the limit is {TABLE_BYTES}")
        self._limit_bytes = limit_bytes
        self._evict()

    def _evict(self) -> None:
        while self._size_bytes > self._limit_bytes:
            self._size_bytes -= self._fields.pop()[1]


def checked(name: bytes, value: bytes, *, is_known: bool = False) -> Field:
    """Return the field, or a MALFORMED one with the reason. `is_known`: the name is one of the table."""
    if is_known and not name:
        return MALFORMED, b"it has the name of a malformed field"
    if not is_known and _NAME.match(name) is None:
        return MALFORMED, b"a name is empty, or has a character that HTTP/2 forbids"
    if b"\0" in value or b"\r" in value or b"\n" in value or value.strip(b" \t") != value:
        return MALFORMED, b"the value of " + name + b" has a character that HTTP forbids there"
    return name, value


def encode_fields(fields: Iterable[Field]) -> bytes:
    """Return a header block that neither reads nor changes the dynamic table."""
    block = bytearray()
    for name, value in fields:
        index = _STATIC_FIELDS.get((name, value))
        if index is not None:
            block += encode_number(index, 0x7F, 0x80)
            continue
        block += encode_number(_STATIC_NAMES.get(name, 0), 0x0F, 0)
        if name not in _STATIC_NAMES:
            block += encode_number(len(name), 0x7F, 0) + name
        block += encode_number(len(value), 0x7F, 0) + value
    return bytes(block)


def encode_number(number: int, mask: int, first: int) -> bytes:
    """Return a number whose first byte has the bits of `first` and as many of its own as `mask` has."""
    if number < mask:
        return bytes((first | number,))
    encoded = bytearray((first | mask,))
    number -= mask
    while number >= 0x80:
        encoded.append(number & 0x7F | 0x80)
        number >>= 7
    encoded.append(number)
    return bytes(encoded)


def _number(block: bytes, position: int, mask: int) -> tuple[int, int]:
    """Return a number and the position behind it."""
    number = block[position] & mask
    position += 1
    if number < mask:
        return number, position
    for shift in range(0, 7 * _MAX_NUMBER_BYTES, 7):
        if position >= len(block):
            raise HeaderFault("a header block ends in the middle of a number")
        byte = block[position]
        position += 1
        number += (byte & 0x7F) << shift
        if byte < 0x80:
            return number, position
    raise HeaderFault(f"a number of a header block has more than {_MAX_NUMBER_BYTES + 1} bytes")


def _text(block: bytes, position: int) -> tuple[bytes, int]:
    """Return a text and the position behind it."""
    if position >= len(block):
        raise HeaderFault("a header block ends before a text")
    is_huffman = block[position] & 0x80
    length, position = _number(block, position, 0x7F)
    end = position + length
    if end > len(block):
        raise HeaderFault("a header block ends in the middle of a text")
    text = block[position:end]
    return (decode_huffman(text) if is_huffman else text), end
