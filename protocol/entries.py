"""extFields in the ROCKETMQ codec: entries of key length i16, key, value length i32, value (see protocol.frame).

Nearly all headers hold ASCII only and no remark. Those are looked over when their frame comes, and their entries are
left as they are until somebody asks for them: for a mapping (`decode_entries`), or for a header record
(protocol.headers.base). JSON headers of that kind are made entries, too, so that there is one reader for both.
"""

from __future__ import annotations

from triomq.protocol.errors import FrameError

BinaryHeader = tuple[int, int, int, int, int, bytes]
JsonHeader = tuple[int, str, int, int, int, bytes]


def read_binary_header_in_python(data: bytes, start: int, end: int) -> BinaryHeader | None:
    """(code, language, version, opaque, flag, entries) of the ROCKETMQ header data[start:end]; None for one with a
    remark, one that is not all ASCII and one that is broken. In Python the general way is the quickest."""
    return None


def read_json_header_in_python(data: bytes, start: int, end: int) -> JsonHeader | None:
    """(code, language, version, opaque, flag, entries) of the JSON header data[start:end], its extFields made entries
    of the ROCKETMQ codec; None for one with a remark, unusual members or escapes, empty texts, white space, one that is
    not all ASCII and one that is broken. In Python the general way is the quickest."""
    return None


def decode_entries(header: bytes, begin: int, end: int, is_ascii: bool = True) -> dict[str, str]:
    """extFields between two positions. An empty value reads as none at all, as in RocketMQ.

    The bytes are made text once, and names and values are cut out of it: half the cost of decoding each. That is right
    for ASCII, which nearly all are; when one was not, everything is read again. Looked at are runs of entries: the
    lengths between the texts are ASCII too while they are below 128. Lengths are put together byte by byte: a third of
    what int.from_bytes on a slice costs.
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
