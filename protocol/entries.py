"""extFields in the ROCKETMQ codec: entries of key length i16, key, value length i32, value (see protocol.frame).

Nearly all headers are ASCII without a remark. With the C extension, such a header is only validated when its frame
arrives. Its entries stay bytes until a handler needs a mapping (`decode_entries`) or a header record
(protocol.headers.base). JSON headers of that kind are converted to entries, too, so that one reader serves both codecs.
"""

from __future__ import annotations

from collections.abc import Callable

from triomq.protocol.errors import FrameError

UsualFrame = tuple[int, int, int | str, int, int, int, bytes | None, bytes]
"""(codec, code, language, version, opaque, flag, entries, body): a frame in the ROCKETMQ or JSON codec whose header has
no remark and is ASCII, and in JSON has no white space, empty texts, or unknown or repeated members. The language is a
number, or in JSON a name unless it is JAVA. The extFields are entries in either codec; None if there are none."""

FrameReader = Callable[[bytes, int, int, int], tuple[int, list[UsualFrame]]]
"""Fast path over `data` from a position on, given the limits of the bytes of a frame and of its header. It returns the
whole, usual frames up to the first that is not one, and the position of that."""


def decode_entries(header: bytes, begin: int, end: int, is_ascii: bool = True) -> dict[str, str]:
    """Decode the extFields in header[begin:end]. An entry with an empty value counts as absent, as in RocketMQ. Raise
    FrameError for lengths that exceed the range.

    The bytes are decoded once, as Latin-1, and names and values are slices of that text: half the cost of decoding
    each. This is correct for ASCII, as nearly all headers are; if any byte is not ASCII, everything is decoded again as
    UTF-8. The check covers whole runs of entries at once, because lengths below 128 are ASCII bytes themselves. Lengths
    are assembled byte by byte, at a third of the cost of int.from_bytes on a slice.
    """
    fields: dict[str, str] = {}
    text = header.decode("latin-1")
    position = run_start = begin
    runs_are_ascii = True
    while position < end:
        if position + 2 > end:
            raise FrameError("extFields end inside a key length")
        key_start = position + 2
        key_end = key_start + (header[position] << 8 | header[position + 1])
        value_start = key_end + 4
        if value_start > end:
            raise FrameError(f"string length exceed limit:{key_end - key_start} (key)")
        value_bytes = header[key_end + 2] << 8 | header[key_end + 3]
        if header[key_end] or header[key_end + 1]:
            value_bytes |= header[key_end] << 24 | header[key_end + 1] << 16
        position = value_start + value_bytes
        if position > end:
            raise FrameError(f"string length exceed limit:{value_bytes} (value)")
        if value_bytes > 127:
            runs_are_ascii = runs_are_ascii and header[run_start:key_end].isascii()
            run_start = value_start
        if value_bytes == 0 or key_end == key_start:
            continue
        if is_ascii:
            fields[text[key_start:key_end]] = text[value_start:position]
        else:
            fields[header[key_start:key_end].decode("utf-8")] = header[value_start:position].decode("utf-8")
    if is_ascii and not (runs_are_ascii and header[run_start:end].isascii()):
        return decode_entries(header, begin, end, False)
    return fields
