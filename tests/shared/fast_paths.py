"""The inputs that the fast paths in C accept, specified in Python: the exact limit between "decoded here" and "returns
None".

Only tests use these functions. A build without the extension uses the general decoders alone, which are faster in
Python.
"""

from __future__ import annotations

import json
import re
import struct
from collections.abc import Iterator
from struct import unpack_from
from typing import Any

from triomq.broker.filters.expression import Equal, Expression, Junction, Not, Order, Property
from triomq.broker.filters.java_values import Kind
from triomq.protocol import sys_flag
from triomq.protocol.codes import LanguageCode
from triomq.protocol.command import JSON, ROCKETMQ
from triomq.protocol.entries import UsualFrame, decode_entries
from triomq.protocol.errors import RecordError
from triomq.protocol.message import MessageExt
from triomq.protocol.record import decode_record

_DECIMAL = r"0|-?[1-9][0-9]{0,17}"
_TEXT = r'"(?:[ !#-\[\]-~]|\\["\\/bfnrt]|\\u00[0-7][0-9A-Fa-f])+"'
_PAIR = f"({_TEXT}):({_TEXT})"
_MEMBER = (
    f'"(?P<name>code|flag|opaque|version)":(?P<number>{_DECIMAL})|"language":"(?P<language>[A-Z_]*)"'
    f'|"extFields":(?:null|{{(?P<pairs>{_TEXT}:{_TEXT}(?:,{_TEXT}:{_TEXT})*)}})|"serializeTypeCurrentRPC":"JSON"'
)
_ANY_MEMBER = "(?:" + re.sub(r"\?P<\w+>", "?:", _MEMBER) + ")"
_MEMBERS = re.compile(_MEMBER)
_HEADER = re.compile(rf"\{{{_ANY_MEMBER}(?:,{_ANY_MEMBER})*\}}")


_Header = tuple[int, int | str, int, int, int, bytes | None]


def frames(data: bytes, at: int, longest: int, longest_header: int) -> tuple[int, list[UsualFrame]]:
    """Accept whole frames with a usual header, none of them longer than allowed."""
    if at < 0:
        raise ValueError("the position is negative")
    found: list[UsualFrame] = []
    while len(data) - at >= 8:
        length, codec, header_bytes = *unpack_from(">iB", data, at), int.from_bytes(data[at + 5 : at + 8], "big")
        frame = data[at + 4 : at + 4 + length] if length >= 4 else b""
        if not 4 <= len(frame) == length <= longest - 4 or header_bytes > min(length - 4, longest_header):
            break
        read_header = {JSON: json_header, ROCKETMQ: binary_header}.get(codec)
        header = read_header(frame[4 : 4 + header_bytes]) if read_header is not None else None
        if header is None:
            break
        found.append((codec, *header, frame[4 + header_bytes :]))
        at += 4 + length
    return at, found


def messages(
    data: bytes, at: int, kind: type[MessageExt], slots: tuple[Any, ...], broker_name: str | None
) -> tuple[int, list[MessageExt]]:
    """Accept whole and sound records with a topic in ASCII and a body that is not compressed."""
    if at < 0:
        raise ValueError("the position is negative")
    found: list[MessageExt] = []
    while True:
        try:
            message = decode_record(data, at, decompress=False)
        except RecordError:
            break
        if message.sys_flag & sys_flag.COMPRESSED or not message.topic.isascii():
            break
        message.broker_name = broker_name
        found.append(message)
        at += message.store_size_bytes
    return at, found


def values_of(usual: UsualFrame) -> tuple[Any, ...]:
    """Return code, language, version, opaque, flag, remark and fields, as the general decoder finds them."""
    _, code, language, version, opaque, flag, entries, _ = usual
    if isinstance(language, str):
        language = int(LanguageCode[language]) if language in LanguageCode.__members__ else -1
    return code, language, version, opaque, flag, None, decode_entries(entries, 0, len(entries)) if entries else None


def binary_header(header: bytes) -> _Header | None:
    """Accept an ASCII header without a remark whose lengths add up."""
    if len(header) < 21:
        return None
    code, language, version, opaque, flag, remark_bytes, entries_bytes = unpack_from(">hbHiiii", header)
    entries = header[21:]
    if remark_bytes != 0 or entries_bytes != len(entries):
        return None
    for key, value in _pairs(entries):
        if key is None or value is None or not (key + value).isascii():
            return None
    return code, language, version, opaque, flag, entries or None


def json_header(header: bytes) -> _Header | None:
    """Accept a header as RocketMQ's own clients write it: no white space, no remark, each member at most once."""
    if not header.isascii():
        return None
    text = header.decode("ascii")
    if _HEADER.fullmatch(text) is None:
        return None
    members = list(_MEMBERS.finditer(text, 1))
    kinds = [member[0].partition(":")[0] for member in members]
    numbers = {member["name"]: int(member["number"]) for member in members if member["name"]}
    if len(set(kinds)) < len(kinds) or not all(-(2**31) <= number < 2**31 for number in numbers.values()):
        return None
    name = next((member["language"] for member in members if member["language"] is not None), "JAVA")
    language = int(LanguageCode.JAVA) if name == "JAVA" else name
    entries = b""
    for name, value in re.findall(_PAIR, next((member["pairs"] for member in members if member["pairs"]), "")):
        key, item = json.loads(name).encode(), json.loads(value).encode()
        if len(key) > 0x7FFF:
            return None
        entries += len(key).to_bytes(2, "big") + key + len(item).to_bytes(4, "big") + item
    code, version, opaque, flag = (numbers.get(name, 0) for name in ("code", "version", "opaque", "flag"))
    return code, language, version, opaque, flag, entries or None


def header_record(
    entries: bytes,
    record: type[Any] | None,
    columns: tuple[tuple[str, ...], tuple[bytes, ...], bytes, tuple[Any, ...], bytes],
) -> Any:
    """Accept a record in which each field is present or has a default, in the canonical text of its kind, and no text
    is longer than its field's longest."""
    attributes, names, kinds, defaults, longest = columns
    most = dict(zip(names, struct.unpack(f"={len(names)}I", longest), strict=True))
    found: dict[bytes, bytes] = {}
    for key, value in _pairs(entries):
        if key is None or value is None:
            return None
        if key and value:
            if len(value) > most.get(key, len(value)):
                return None
            found[key] = value
    values: dict[str, Any] = {}
    for attribute, name, kind, default in zip(attributes, names, kinds, defaults, strict=True):
        values[attribute] = _canonical(kind, found[name]) if name in found else default
        if values[attribute] is ... or (values[attribute] is None and name in found):
            return None
    return tuple(values.values()) if record is None else record(**values)


def _pairs(entries: bytes) -> Iterator[tuple[bytes | None, bytes | None]]:
    """Return key and value of each entry; (None, None) if a length exceeds the end."""
    at = 0
    while at < len(entries):
        key_end = at + 2 + int.from_bytes(entries[at : at + 2], "big")
        value_at = key_end + 4
        end = value_at + int.from_bytes(entries[key_end:value_at], "big")
        if end > len(entries):
            yield None, None
            return
        yield entries[at + 2 : key_end], entries[value_at:end]
        at = end


def _canonical(kind: int, text: bytes) -> Any:
    """Return the value as text, int32, int64 or boolean; None if the text is not canonical or not ASCII."""
    if kind == 0:
        return text.decode() if text.isascii() else None
    if kind == 3:
        return {b"true": True, b"false": False}.get(text)
    if re.fullmatch(_DECIMAL.encode(), text) is None:
        return None
    number = int(text)
    return number if kind == 2 or -(2**31) <= number < 2**31 else None


def conditions_decide(node: Expression, properties: dict[str, str]) -> bool:
    """Accept properties whose numbers are plain: at most 18 digits for an integer, 15 for a double without an exponent,
    and in range; and ASCII where a boolean is compared. It does not matter whether the value of a part matters."""
    if isinstance(node, Junction):
        return all(conditions_decide(operand, properties) for operand in node.operands)
    if isinstance(node, Not):
        return conditions_decide(node.operand, properties)
    if not isinstance(node, Equal | Order):
        return True
    operand, constant = (node.left, node.right) if isinstance(node.left, Property) else (node.right, node.left)
    text = operand.evaluate(properties)
    if text is None:
        return True
    assert isinstance(text, str)
    if constant.kind in (Kind.INT32, Kind.INT64):
        limit = 1 << (31 if constant.kind is Kind.INT32 else 63)
        return re.fullmatch(r"[+-]?[0-9]{1,18}", text) is not None and -limit <= int(text) < limit
    if constant.kind is Kind.DOUBLE:
        digits = text.replace(".", "", 1).lstrip("+-")
        is_plain = re.fullmatch(r"[+-]?[0-9]+\.?[0-9]*", text) is not None and len(digits) <= 15
        return is_plain and not (text.startswith("-") and not float(text))
    return constant.evaluate({}) is None or constant.kind is not Kind.BOOLEAN or text.isascii()
