"""The header of the PROXY protocol, versions 1 and 2, with which a load balancer says whose connection it passes on
(HAProxy's proxy-protocol.txt).

A connection begins with it, before TLS. It is read to the byte: what follows belongs to the client.
"""

from __future__ import annotations

from collections.abc import Awaitable, Callable
from typing import Final

from triomq.protocol.address import HostPort
from triomq.protocol.networks import plain_ip

MAX_HEADER_BYTES: Final = 4096
"""The longest header of version 2, with all that it says beside addresses."""
MAX_LINE_BYTES: Final = 107
_V1: Final = b"PROXY "
_V2: Final = b"\r\n\r\n\x00\r\nQUIT\n"
_LOCAL, _PROXY = 0x20, 0x21  # version 2, and the command
_TCP_4, _TCP_6 = 0x11, 0x21
_SIZES: Final = {_TCP_4: 4, _TCP_6: 16}

Receive = Callable[[int], Awaitable[bytes]]
"""Return at least one byte and at most this number; nothing at the end of the connection."""


class ProxyHeaderError(Exception):
    """A connection does not begin with a header as the protocol has it."""


async def read_proxy_header(receive: Receive) -> HostPort | None:
    """Read a header. Return the client's end of its connection; None if the proxy speaks for itself, as in its health
    checks. Raises ProxyHeaderError."""
    first = await _exactly(receive, len(_V2))
    if first == _V2:
        head = await _exactly(receive, 4)
        size = int.from_bytes(head[2:], "big")
        if size > MAX_HEADER_BYTES:
            raise ProxyHeaderError(f"its PROXY header has {size} bytes; {MAX_HEADER_BYTES} are allowed")
        return _source_of_v2(head[0], head[1], await _exactly(receive, size))
    if not first.startswith(_V1):
        raise ProxyHeaderError(
            f"it begins with {first!r} and not with a PROXY header, which every connection from an address of "
            "grpcProxyProtocolFrom must: turn the PROXY protocol on there (HAProxy: send-proxy-v2), or remove the "
            "address from the key"
        )
    line = first
    while not line.endswith(b"\r\n"):
        if len(line) >= MAX_LINE_BYTES:
            raise ProxyHeaderError(f"its PROXY header is longer than {MAX_LINE_BYTES} bytes")
        line += await _exactly(receive, 1)
    return _source_of_v1(line)


async def _exactly(receive: Receive, size: int) -> bytes:
    data = b""
    while len(data) < size:
        more = await receive(size - len(data))
        if not more:
            raise ProxyHeaderError("it ended within its PROXY header")
        data += more
    return data


def _source_of_v1(line: bytes) -> HostPort | None:
    match line[len(_V1) : -2].split(b" "):
        case [b"UNKNOWN", *_]:
            return None
        case [b"TCP4" | b"TCP6", source, _, port, _] if port.isdigit():
            return _end(source.decode("latin-1"), int(port))
    raise ProxyHeaderError(f"its PROXY header cannot be read: {line!r}")


def _source_of_v2(command: int, family: int, body: bytes) -> HostPort | None:
    if command not in (_LOCAL, _PROXY):
        raise ProxyHeaderError(f"its PROXY header has the version and command {command:#04x}, which is neither")
    size = _SIZES.get(family)
    if command == _LOCAL or size is None:  # an end of another kind than TCP names no client
        return None
    if len(body) < 2 * size + 4:
        raise ProxyHeaderError(f"its PROXY header has {len(body)} bytes of addresses; {2 * size + 4} are needed")
    source = HostPort.from_packed(body[:size] + b"\x00\x00" + body[2 * size : 2 * size + 2])
    return _end(source.ip, source.port)


def _end(ip: str, port: int) -> HostPort:
    try:
        if port > 0xFFFF:
            raise ValueError(f"the port {port} is out of range")
        return HostPort(plain_ip(ip), port)
    except ValueError as error:
        raise ProxyHeaderError(f"its PROXY header names no address: {error}") from None
