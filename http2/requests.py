"""The fields of a request: which ones HTTP/2 needs and which it forbids (RFC 9113, sections 8.2 and 8.3)."""

from __future__ import annotations

from typing import Final

from triomq.http2.hpack import MALFORMED, Field

_PSEUDO: Final = frozenset((b":method", b":path", b":scheme", b":authority"))
_NEEDED: Final[tuple[bytes, ...]] = (b":method", b":path", b":scheme")
_OF_ONE_HOP: Final = frozenset((b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"))


def request_fault(fields: list[Field]) -> str | None:
    """Return what is wrong with the fields of a request, or None."""
    seen: set[bytes] = set()
    is_regular = False
    for name, value in fields:
        if name == MALFORMED:
            return value.decode("latin-1")
        if name[0] == 0x3A:  # a colon
            if is_regular:
                return f"{name.decode()} comes after other fields"
            if name not in _PSEUDO or name in seen:
                return f"{name.decode()} is unknown or comes twice"
            if not value and name != b":authority":
                return f"{name.decode()} is empty"
            seen.add(name)
            continue
        is_regular = True
        fault = _regular_fault(name, value)
        if fault is not None:
            return fault
    for name in _NEEDED:
        if name not in seen:
            return f"{name.decode()} is missing"
    return None


def trailer_fault(fields: list[Field]) -> str | None:
    """Return what is wrong with the fields behind a body, or None."""
    for name, value in fields:
        if name == MALFORMED:
            return value.decode("latin-1")
        if name[0] == 0x3A:
            return f"{name.decode()} comes after the body"
        fault = _regular_fault(name, value)
        if fault is not None:
            return fault
    return None


def _regular_fault(name: bytes, value: bytes) -> str | None:
    if name in _OF_ONE_HOP:
        return f"{name.decode()} is a field of HTTP/1.1"
    if name == b"te" and value != b"trailers":
        return "te is not trailers"
    return None
