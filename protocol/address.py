"""Host and port, as text and in the packed form of records, message ids and headers.

Packed: address (4 or 16 bytes) + port int32, so 8 bytes for IPv4 and 20 for IPv6.
"""

from __future__ import annotations

import struct
from functools import lru_cache
from socket import AF_INET, AF_INET6, inet_ntop, inet_pton
from typing import Final

PACKED_V4_BYTES = 8
PACKED_V6_BYTES = 20
KEPT_HOSTS: Final = 1024
"""Hosts of messages whose decoded form is kept."""


class HostPort:
    """One end of a connection. Immutable. The constructor computes both forms, because each message needs them.

    `ip` is the usual notation (`::1`). `text` is RocketMQ's notation (`10.0.0.1:10911`, `0:0:0:0:0:0:0:1:10911`).
    """

    __slots__ = ("ip", "is_ipv6", "packed", "port", "text")

    def __init__(self, ip: str, port: int) -> None:
        """`ip` is a literal address. Raise ValueError for anything else, also a host name, and for a bad port."""
        address = ip.strip().removeprefix("[").removesuffix("]").partition("%")[0]
        if not 0 <= port <= 0xFFFFFFFF:
            raise ValueError(f"port {port} is out of range")
        self.is_ipv6: bool = ":" in address
        try:
            raw = inet_pton(AF_INET6 if self.is_ipv6 else AF_INET, address)
        except OSError:
            raise ValueError(f"{ip!r} is not an IPv4 or IPv6 address") from None
        self.ip: str = inet_ntop(AF_INET6, raw) if self.is_ipv6 else address
        self.port: int = port
        self.packed: bytes = raw + struct.pack(">I", port)
        self.text: str = f"{_java_text(raw) if self.is_ipv6 else address}:{port}"

    @classmethod
    def from_packed(cls, packed: bytes) -> HostPort:
        """Decode the packed form, 8 or 20 bytes. Raise ValueError for any other length."""
        return _unpacked(packed)

    @classmethod
    def parse(cls, text: str) -> HostPort:
        """Parse `ip:port`, `[v6]:port` or `v6:port` (the last colon separates the port). Raise ValueError."""
        host, colon, port = text.strip().removeprefix("/").rpartition(":")
        if not colon or not port.isascii() or not port.isdigit():
            raise ValueError(f"{text!r} is not host:port")
        return cls(host, int(port))

    def __reduce__(self) -> tuple[type[HostPort], tuple[str, int]]:
        """Have copies and pickles made by the constructor: those of compiled classes cannot be made without it."""
        return HostPort, (self.ip, self.port)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, HostPort) and self.packed == other.packed

    def __lt__(self, other: HostPort) -> bool:
        return self.packed < other.packed

    def __hash__(self) -> int:
        return hash(self.packed)

    def __str__(self) -> str:
        return self.text

    def __repr__(self) -> str:
        return f"HostPort({self.ip!r}, {self.port})"


@lru_cache(maxsize=KEPT_HOSTS)
def _unpacked(packed: bytes) -> HostPort:
    """Decode the packed form. Most messages have the same few hosts, and to decode the two of a message takes longer
    than to decode its other fields."""
    if len(packed) == PACKED_V4_BYTES:
        ip = inet_ntop(AF_INET, packed[:4])
    elif len(packed) == PACKED_V6_BYTES:
        ip = inet_ntop(AF_INET6, packed[:16])
    else:
        raise ValueError(f"a packed host has 8 or 20 bytes, not {len(packed)}")
    return HostPort(ip, int.from_bytes(packed[-4:], "big"))


def _java_text(raw: bytes) -> str:
    """Format as Inet6Address.getHostAddress does: eight groups in lower-case hex, never shortened."""
    return ":".join(f"{group:x}" for group in struct.unpack(">8H", raw))
