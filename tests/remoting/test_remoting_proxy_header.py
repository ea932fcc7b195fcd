"""Headers of the PROXY protocol."""

from __future__ import annotations

import struct

import pytest
import trio
from hypothesis import given
from hypothesis import strategies as st

from triomq.protocol.address import HostPort
from triomq.remoting.proxy_header import MAX_HEADER_BYTES, ProxyHeaderError, read_proxy_header

V2 = b"\r\n\r\n\x00\r\nQUIT\n"
V4 = bytes([10, 1, 2, 3, 10, 9, 9, 9]) + struct.pack(">HH", 5000, 8081)
V6 = bytes(10) + b"\xff\xff" + bytes([10, 1, 2, 3]) + bytes(16) + struct.pack(">HH", 5000, 8081)
CLIENT = HostPort("10.1.2.3", 5000)


def v2(command: int = 0x21, family: int = 0x11, body: bytes = V4) -> bytes:
    return V2 + bytes([command, family]) + struct.pack(">H", len(body)) + body


def read(data: bytes, piece: int = 1 << 16) -> tuple[HostPort | None, bytes]:
    """Return what a header says, and what is left behind it; at most `piece` bytes come at once."""
    rest = data

    async def receive(size: int) -> bytes:
        nonlocal rest
        part, rest = rest[: min(size, piece)], rest[min(size, piece) :]
        return part

    async def main() -> HostPort | None:
        return await read_proxy_header(receive)

    return trio.run(main), rest


@pytest.mark.parametrize(
    ("header", "source"),
    [
        (b"PROXY TCP4 10.1.2.3 10.9.9.9 5000 8081\r\n", CLIENT),
        (b"PROXY TCP6 2001:db8::1 ::1 5000 8081\r\n", HostPort("2001:db8::1", 5000)),
        (b"PROXY TCP6 ::ffff:10.1.2.3 ::1 5000 8081\r\n", CLIENT),
        (b"PROXY UNKNOWN\r\n", None),
        (b"PROXY UNKNOWN ffff::1 ffff::2 1 2\r\n", None),
        (v2(), CLIENT),
        (v2(body=V4 + b"\x01\x00\x02h2"), CLIENT),
        (v2(family=0x21, body=V6), CLIENT),
        (v2(command=0x20), None),
        (v2(command=0x20, family=0, body=b""), None),
        (v2(family=0x31, body=bytes(216)), None),
    ],
)
@pytest.mark.parametrize("piece", [1, 1 << 16])
def test_a_header_is_read_to_the_byte(header: bytes, source: HostPort | None, piece: int) -> None:
    assert read(header + b"PRI *", piece) == (source, b"PRI *")


@pytest.mark.parametrize(
    ("data", "reason"),
    [
        (b"PRI * HTTP/2.0\r\n\r\n", "not with a PROXY header"),
        (b"\x16\x03\x01" + bytes(20), "not with a PROXY header"),
        (b"PROXY TCP4 10.1", "ended within"),
        (b"", "ended within"),
        (v2()[:-1], "ended within"),
        (b"PROXY TCP4 10.1.2.3 10.9.9.9 5000\r\n", "cannot be read"),
        (b"PROXY UDP4 10.1.2.3 10.9.9.9 5000 8081\r\n", "cannot be read"),
        (b"PROXY TCP4 10.1.2.3 10.9.9.9 -1 8081\r\n", "cannot be read"),
        (b"PROXY TCP4 host 10.9.9.9 5000 8081\r\n", "names no address"),
        (b"PROXY TCP4 10.1.2.3 10.9.9.9 65536 8081\r\n", "out of range"),
        (b"PROXY TCP4 " + b"1" * 200, "longer than 107 bytes"),
        (v2(command=0x11), "neither"),
        (v2(body=V4[:-1]), "12 are needed"),
        (V2 + b"\x21\x11" + struct.pack(">H", MAX_HEADER_BYTES + 1), f"{MAX_HEADER_BYTES} are allowed"),
    ],
)
def test_what_is_no_header_is_refused_with_a_reason(data: bytes, reason: str) -> None:
    with pytest.raises(ProxyHeaderError, match=reason):
        read(data)


@given(st.binary(max_size=64), st.sampled_from([b"", b"PROXY ", b"PROXY TCP4 ", V2, V2 + b"\x21\x11\x00"]))
def test_any_bytes_are_a_header_or_refused(data: bytes, begin: bytes) -> None:
    try:
        source, _ = read(begin + data)
    except ProxyHeaderError:
        return
    assert source is None or source.port <= 0xFFFF
