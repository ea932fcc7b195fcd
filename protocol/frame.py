"""Frames: RemotingCommands as bytes on a connection (RocketMQ: RemotingCommand, RocketMQSerializable, NettyDecoder).

      4 bytes        1 byte          3 bytes         header length      length - 4 - header length
    +---------+----------------+----------------+------------------+----------------------------+
    | length  | serialize type | header length  |      header      |            body            |
    +---------+----------------+----------------+------------------+----------------------------+

`length` counts everything after itself. Each frame names the codec of its header, one of three:

    JSON      {"code":…,"extFields":{…},"flag":…,"language":"JAVA","opaque":…,"remark":…,…,"version":…}
    ROCKETMQ  code i16 · language i8 · version i16 · opaque i32 · flag i32 · remark length i32 · remark ·
              extFields length i32 · extFields as (key length i16 · key · value length i32 · value)*
    MSGPACK   array [code, language, version, opaque, flag, remark | nil, extFields | nil]

MSGPACK is specific to TrioMQ. RocketMQ peers never receive it, because a response uses the codec of its request.
The decoder holds at most one incomplete frame in one buffer, so its memory is bounded by `max_frame_bytes`.
"""

from __future__ import annotations

import struct
from io import BytesIO
from typing import Any, Final

import msgpack
import msgspec

from triomq.protocol.codes import LanguageCode
from triomq.protocol.command import JAVA, JSON, MSGPACK, ROCKETMQ, RemotingCommand
from triomq.protocol.entries import FrameReader, decode_entries
from triomq.protocol.errors import FrameError
from triomq.protocol.json_header import NO_EXT_FIELDS, read_json_header
from triomq.protocol.response_template import Body, TemplatedResponse
from triomq.protocol.speedups import fast_path
from triomq.protocol.wrong_port import foreign_bytes

MAX_FRAME_BYTES: Final = 16 * 1024 * 1024
"""Largest whole frame, its length field included (RocketMQ: com.rocketmq.remoting.frameMaxLength)."""

MAX_REQUEST_HEADER_BYTES: Final = 1024 * 1024
"""Largest header that a server accepts. Decoded, its fields take ten times as much. The largest field that a client
sends, the properties of a message, has at most 32 KiB."""

LONG_FRAME_BYTES: Final = 256 * 1024
"""The body of a longer frame is collected apart, so that it is copied once, as it arrives."""

_LANGUAGE_MEMBERS: Final = [b'"language":"%b",' % language.name.encode() for language in sorted(LanguageCode)]
_LANGUAGE_NUMBERS: Final[dict[str, int]] = {language.name: int(language) for language in LanguageCode}
_FIXED: Final = struct.Struct(">hbhiii")
_unpack_fixed: Final = _FIXED.unpack_from
_INT: Final = struct.Struct(">i")
_unpack_int: Final = _INT.unpack_from
_SHORT: Final = struct.Struct(">h")
_LENGTHS: Final = struct.Struct(">ii")

_encode_text: Final = msgspec.json.Encoder().encode
_read_frames: Final[FrameReader | None] = fast_path("read_frames")


class FrameDecoder:
    """Decodes the bytes of one connection into commands. The bytes may arrive in pieces of any size.

    `feed` returns the commands of all complete frames and keeps the rest. It raises FrameError at the first bytes that
    are not a frame. Do not use the decoder after that. `held_bytes` is the number of bytes held of an incomplete frame.
    """

    def __init__(self, max_frame_bytes: int = MAX_FRAME_BYTES, max_header_bytes: int = MAX_FRAME_BYTES) -> None:
        self._max_frame_bytes = max_frame_bytes
        self._max_header_bytes = max_header_bytes
        self._held = bytearray()
        self._head = b""
        self._body: BytesIO | None = None
        self.held_bytes = 0
        self._needed_bytes = 0

    @property
    def needed_bytes(self) -> int:
        """The number of bytes that the incomplete frame will have, as far as it is known; 0 if there is none."""
        return self._needed_bytes if self.held_bytes else 0

    def _reason(self, length: int) -> str:
        """Return what to say of bytes that announce no possible frame."""
        foreign = foreign_bytes(length.to_bytes(4, "big", signed=True))
        return foreign or f"a frame of {length} bytes was announced; the limits are 4 and {self._max_frame_bytes - 4}"

    def feed(self, data: bytes | bytearray) -> list[RemotingCommand]:
        commands: list[RemotingCommand] = []
        try:
            self._feed(bytes(data), commands)
        except FrameError as error:
            error.decoded = list(commands)
            raise
        return commands

    def _feed(self, data: bytes, commands: list[RemotingCommand]) -> None:
        position = 0
        if self.held_bytes:
            if self.held_bytes + len(data) < self._needed_bytes:
                is_begun = self.held_bytes < 8
                self.held_bytes += len(data)
                if self._body is not None:
                    self._body.write(data)
                    return
                self._held += data  # one buffer: pieces of a byte or two would each cost an object
                if is_begun:
                    self._check_begun()
                if self._needed_bytes > LONG_FRAME_BYTES:
                    self._begin_body()
                return
            held, self._held = self._held, bytearray()
            held_bytes, self.held_bytes = self.held_bytes, 0
            if self._body is not None:
                position = self._needed_bytes - held_bytes
                self._body.write(data[:position])
                body, self._body = self._body.getvalue(), None  # which copies nothing
                commands.append(_decode(self._head, 4, len(self._head), self._max_header_bytes, body))
            elif len(held) < 4:
                data = b"".join((held, data))
            else:  # only the frame that began earlier is copied, not all that came with its end
                position = self._needed_bytes - len(held)
                self._read(b"".join((held, data[:position])), 0, commands)
        position = self._read(data, position, commands)
        if position < len(data):
            self._held += data[position:]
            self.held_bytes = len(data) - position
            self._check_begun()

    def _read(self, data: bytes, position: int, commands: list[RemotingCommand]) -> int:
        """Decode the whole frames from `position` on. Return where the next one begins, and set what it needs."""
        end = len(data)
        self._needed_bytes = 4
        while True:
            if _read_frames is not None:
                position, frames = _read_frames(data, position, self._max_frame_bytes, self._max_header_bytes)
                for serialize_type, code, language, version, opaque, flag, entries, body in frames:
                    if not isinstance(language, int):
                        language = _LANGUAGE_NUMBERS.get(language, -1)
                    # Without keywords: in Python 3.11 they double the cost of making the object, which each request
                    # would pay.
                    commands.append(
                        RemotingCommand(code, entries, body, flag, opaque, None, serialize_type, language, version)
                    )
            if end - position < 4:
                return position
            length = _unpack_int(data, position)[0]
            if length < 4 or length + 4 > self._max_frame_bytes:
                raise FrameError(self._reason(length))
            if length > end - position - 4:
                self._needed_bytes = 4 + length
                return position
            commands.append(_decode(data, position + 4, position + 4 + length, self._max_header_bytes))
            position += 4 + length

    def _begin_body(self) -> None:
        """Collect the rest of a long frame as its body, once the header is there. To copy sixteen megabytes when the
        last of them arrives takes ten milliseconds, in which nobody else is served."""
        held = self._held
        head_bytes = 8 + int.from_bytes(held[5:8], "big")
        if len(held) >= 8 and len(held) >= head_bytes <= self._needed_bytes:
            self._head = bytes(held[:head_bytes])
            self._body = BytesIO()
            self._body.write(memoryview(held)[head_bytes:])
            self._held = bytearray()

    def _check_begun(self) -> None:
        """Refuse an incomplete frame whose header is too long, before the rest of it is read."""
        if self.held_bytes >= 8:
            _check_header_bytes(int.from_bytes(self._held[5:8], "big"), self._max_header_bytes)


def decode_frame(frame: bytes) -> RemotingCommand:
    """Decode exactly one whole frame, its length field included. Raise FrameError for anything else."""
    decoder = FrameDecoder(max(len(frame), 8))
    commands = decoder.feed(frame)
    if len(commands) != 1 or decoder.held_bytes:
        raise FrameError(f"not one whole frame: {len(commands)} frames and {decoder.held_bytes} bytes of another")
    return commands[0]


def _check_header_bytes(header_bytes: int, max_header_bytes: int) -> None:
    if header_bytes > max_header_bytes:
        raise FrameError(f"a header of {header_bytes} bytes was sent; the limit is {max_header_bytes}")


def _decode(
    data: bytes, start: int, end: int, max_header_bytes: int, collected: bytes | None = None
) -> RemotingCommand:
    """Decode the frame whose bytes after the length field are data[start:end], behind which follows a body that was
    `collected`."""
    serialize_type = data[start]
    header_start = start + 4
    header_bytes = _unpack_int(data, start)[0] & 0xFFFFFF
    header_end = header_start + header_bytes
    if header_end > end:
        raise FrameError(f"bad header length: {header_bytes} in a frame of {end - start} bytes")
    _check_header_bytes(header_bytes, max_header_bytes)
    body = data[header_end:end] if collected is None else collected
    header = data[header_start:header_end]
    if serialize_type == ROCKETMQ:
        return decode_rocketmq(header, body)
    if serialize_type == JSON:
        return decode_json(header, body)
    if serialize_type == MSGPACK:
        return _decode_msgpack(header, body)
    raise FrameError(f"unknown header codec {serialize_type}; known are 0 JSON, 1 ROCKETMQ, 2 MSGPACK")


def decode_json(header: bytes, body: bytes) -> RemotingCommand:
    fields = read_json_header(header)
    language = fields.language
    if language == "JAVA":
        number = JAVA
    elif isinstance(language, str):
        number = _LANGUAGE_NUMBERS.get(language, -1)
    else:
        number = -1 if language is None else _int32(language)
    raw = fields.extFields
    ext = None if raw is NO_EXT_FIELDS or bytes(raw) == b"null" else raw
    return RemotingCommand(
        _int32(fields.code),
        flag=_int32(fields.flag),
        opaque=_int32(fields.opaque),
        remark=fields.remark,
        body=body,
        serialize_type=JSON,
        language=number,
        version=_int32(fields.version),
        ext_fields=ext,
    )


def _int32(number: int) -> int:
    if -0x80000000 <= number <= 0x7FFFFFFF:
        return number
    raise FrameError(f"the JSON header holds {number}, which is not a 32 bit integer")


def decode_rocketmq(header: bytes, body: bytes) -> RemotingCommand:
    size = len(header)
    if size < 21:
        raise FrameError(f"a ROCKETMQ header has at least 21 bytes, not {size}")
    code, language, version, opaque, flag, remark_bytes = _unpack_fixed(header, 0)
    position = 17
    if remark_bytes < 0 or position + remark_bytes + 4 > size:
        raise FrameError(f"string length exceed limit:{remark_bytes} (remark)")
    try:
        remark = header[position : position + remark_bytes].decode() if remark_bytes else None
        position += remark_bytes
        ext_bytes = int.from_bytes(header[position : position + 4], "big", signed=True)
        position += 4
        if ext_bytes < 0 or position + ext_bytes > size:
            raise FrameError(f"string length exceed limit:{ext_bytes} (extFields)")
        ext_fields = decode_entries(header, position, position + ext_bytes) if ext_bytes else None
    except UnicodeDecodeError as error:
        raise FrameError(f"the ROCKETMQ header is not UTF-8: {error}") from None
    return RemotingCommand(
        code,
        flag=flag,
        opaque=opaque,
        remark=remark,
        body=body,
        serialize_type=ROCKETMQ,
        language=language,
        version=version & 0xFFFF,
        ext_fields=ext_fields,
    )


def _decode_msgpack(header: bytes, body: bytes) -> RemotingCommand:
    try:
        fields: Any = msgpack.unpackb(header, raw=False, max_map_len=1024, max_array_len=16)
        code, language, version, opaque, flag, remark, ext_fields = fields
    except Exception as error:  # msgpack raises many types; each means a malformed header
        raise FrameError(f"the MSGPACK header cannot be read: {error}") from None
    for number in (code, language, version, opaque, flag):
        if type(number) is not int or not -0x80000000 <= number <= 0x7FFFFFFF:
            raise FrameError("the MSGPACK header must begin with five 32 bit integers")
    if remark is not None and type(remark) is not str:
        raise FrameError("the remark of a MSGPACK header must be text or nil")
    if ext_fields is not None:
        if type(ext_fields) is not dict:
            raise FrameError("extFields of a MSGPACK header must be a map or nil")
        for key, value in ext_fields.items():
            if type(key) is not str or type(value) is not str:
                raise FrameError("extFields of a MSGPACK header must map text to text")
    return RemotingCommand(
        code,
        flag=flag,
        opaque=opaque,
        remark=remark,
        body=body,
        serialize_type=MSGPACK,
        language=language,
        version=version,
        ext_fields=ext_fields,
    )


def encode_frame(command: RemotingCommand) -> bytes:
    """Return the whole frame of a command, its length field included."""
    return encode_with(command, command.body)


def encode_with(command: RemotingCommand, body: Body) -> bytes:
    """Return the frame of a command with its body, or, for the size of that, up to it: it is to be sent behind."""
    if isinstance(command, TemplatedResponse):
        frame = command.frame(body)
        if frame is not None:
            return frame
    serialize_type = command.serialize_type
    if serialize_type == JSON:
        header = _encode_json(command)
    elif serialize_type == ROCKETMQ:
        header = _encode_rocketmq(command)
    else:
        header = _encode_msgpack(command)
    header_bytes = len(header)
    lengths = _LENGTHS.pack(4 + header_bytes + len(command.body), serialize_type << 24 | header_bytes)
    return lengths + header if isinstance(body, int) else lengths + header + body


def _encode_json(command: RemotingCommand) -> bytes:
    """Return the JSON header. Members are in alphabetical order, as in RocketMQ; absent ones are omitted."""
    ext_fields = command.ext_fields
    ext = b"" if ext_fields is None else b'"extFields":%b,' % _encode_text(ext_fields)
    remark = b"" if command.remark is None else b'"remark":%b,' % _encode_text(command.remark)
    language = command.language
    named = _LANGUAGE_MEMBERS[language] if 0 <= language < len(_LANGUAGE_MEMBERS) else b""
    return b'{"code":%d,%b"flag":%d,%b"opaque":%d,%b"serializeTypeCurrentRPC":"JSON","version":%d}' % (
        command.code,
        ext,
        command.flag,
        named,
        command.opaque,
        remark,
        command.version,
    )


def _encode_rocketmq(command: RemotingCommand) -> bytes:
    remark = command.remark.encode() if command.remark else b""
    pieces: list[bytes] = []
    ext_fields = command.ext_fields
    if ext_fields:
        for key, value in ext_fields.items():
            key_data = key.encode()
            value_data = value.encode()
            pieces.append(_SHORT.pack(len(key_data)) + key_data + _INT.pack(len(value_data)) + value_data)
    entries = b"".join(pieces)
    language = command.language if command.language >= 0 else JAVA
    fixed = _FIXED.pack(command.code, language, _short(command.version), command.opaque, command.flag, len(remark))
    return b"%b%b%b%b" % (fixed, remark, len(entries).to_bytes(4, "big"), entries)


def _short(number: int) -> int:
    return number - 0x10000 if number > 0x7FFF else number


def _encode_msgpack(command: RemotingCommand) -> bytes:
    data: bytes = msgpack.packb(
        [
            command.code,
            command.language,
            command.version,
            command.opaque,
            command.flag,
            command.remark,
            command.ext_fields,
        ]
    )
    return data
