"""A tiny remoting client on plain sockets, independent of the project's own codec, so that neither hides a fault of the
other.

A frame: int32 length of the rest, int32 (serialize type in the top byte, header length in the others), header, body.
Source: RocketMQ's RemotingCommand.
"""

from __future__ import annotations

import itertools
import json
import re
import socket
import struct
from dataclasses import dataclass, field
from typing import Any

VERSION_4_9_7 = 407
UPDATE_CONSUMER_OFFSET = 15
UPDATE_AND_CREATE_TOPIC = 17
GET_ROUTEINFO_BY_TOPIC = 105
GET_BROKER_CLUSTER_INFO = 106
UPDATE_AND_CREATE_SUBSCRIPTIONGROUP = 200

_opaque = itertools.count(1)


@dataclass
class Answer:
    """A decoded response frame."""

    code: int
    remark: str
    fields: dict[str, str] = field(default_factory=dict)
    body: bytes = b""
    opaque: int = 0


def request_header(code: int, fields: dict[str, Any] | None = None, *, opaque: int | None = None) -> bytes:
    header: dict[str, Any] = {
        "code": code,
        "flag": 0,
        "language": "JAVA",
        "opaque": next(_opaque) if opaque is None else opaque,
        "serializeTypeCurrentRPC": "JSON",
        "version": VERSION_4_9_7,
    }
    if fields is not None:
        header["extFields"] = {name: str(value) for name, value in fields.items()}
    return json.dumps(header).encode()


def frame(header: bytes, body: bytes = b"", *, serialize_type: int = 0) -> bytes:
    rest = struct.pack(">I", serialize_type << 24 | len(header)) + header + body
    return struct.pack(">I", len(rest)) + rest


def request(code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> bytes:
    return frame(request_header(code, fields), body)


class Wire:
    """One connection. `receive` returns None after the peer closed it, and raises TimeoutError if nothing arrives."""

    def __init__(self, address: str, timeout_seconds: float = 10) -> None:
        host, port = address.rsplit(":", 1)
        self.socket = socket.create_connection((host, int(port)), timeout_seconds)

    def __enter__(self) -> Wire:
        return self

    def __exit__(self, *exc: object) -> None:
        self.socket.close()

    def send(self, data: bytes) -> None:
        self.socket.sendall(data)

    def _exactly(self, size_bytes: int) -> bytes | None:
        data = bytearray()
        while len(data) < size_bytes:
            try:
                part = self.socket.recv(size_bytes - len(data))
            except ConnectionError:
                return None
            if not part:
                return None
            data += part
        return bytes(data)

    def receive(self, timeout_seconds: float = 10) -> Answer | None:
        self.socket.settimeout(timeout_seconds)
        length = self._exactly(4)
        rest = self._exactly(struct.unpack(">I", length)[0]) if length is not None else None
        if rest is None:
            return None
        header_length = struct.unpack(">I", rest[:4])[0] & 0xFFFFFF
        header = json.loads(rest[4 : 4 + header_length])
        return Answer(
            header["code"],
            header.get("remark") or "",
            header.get("extFields") or {},
            rest[4 + header_length :],
            header["opaque"],
        )

    def call(self, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Answer:
        self.send(request(code, fields, body))
        answer = self.receive()
        assert answer is not None, f"the connection was closed instead of answering request {code}"
        return answer

    def is_closed_by_peer(self, timeout_seconds: float = 5) -> bool:
        try:
            return self.receive(timeout_seconds) is None
        except TimeoutError:
            return False


def ask(address: str, code: int, fields: dict[str, Any] | None = None, body: bytes = b"") -> Answer:
    with Wire(address) as wire:
        return wire.call(code, fields, body)


def lenient_json(body: bytes) -> Any:
    """Parse fastjson's output, which may have number keys without quotes (`{0:"127.0.0.1:10911"}`)."""
    return json.loads(re.sub(r"([{,]\s*)(-?\d+)\s*:", r'\1"\2":', body.decode()))
