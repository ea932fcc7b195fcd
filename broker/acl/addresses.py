"""Patterns of remote addresses in ACL files (RemoteAddressStrategyFactory).

    (empty)                     nothing
    *  *.*.*.*  *:*:*:*:*:*:*:* everything
    1.2.3.4  ::1                one address
    1.2.3.4,1.2.3.5             several
    1.2.3.{4,5}  aa::{1,2}      several that differ in the last part
    1.2.3.*  1.2.*.*  1.2.3.5-20  1.2.5-20.*
    aaaa::5-200  aaaa:bb::*  aaaa::1-200:*
                                a range: the first part with * or a-b decides, what follows it is free

A pattern becomes a list of boxes, one (lowest, highest) pair for each of the 4 or 8 groups of an address.
"""

from __future__ import annotations

import struct
from socket import AF_INET, AF_INET6, inet_pton

from triomq.broker.acl.errors import AclFileError
from triomq.protocol.address import HostPort

EVERYTHING = frozenset({"*", "*.*.*.*", "*:*:*:*:*:*:*:*"})
MAX_ADDRESSES_IN_LIST = 10_000

Box = tuple[tuple[int, int], ...]
_V4_GROUPS, _V4_HIGHEST = 4, 255
_V6_GROUPS, _V6_HIGHEST = 8, 0xFFFF


class AddressPattern:
    """One compiled pattern. Immutable."""

    __slots__ = ("_boxes", "_is_everything", "text")

    def __init__(self, text: str) -> None:
        """Compile a pattern. Raises AclFileError for an invalid one."""
        self.text = text.strip()
        self._is_everything = self.text in EVERYTHING
        self._boxes: tuple[Box, ...] = ()
        if self.text and not self._is_everything:
            self._boxes = tuple(_box(part) for part in _split(self.text))

    def matches(self, remote: HostPort) -> bool:
        """Return True if the pattern covers the address of `remote`."""
        if self._is_everything:
            return True
        if not self._boxes:
            return False
        groups = _groups(remote.ip)
        return any(_is_inside(groups, box) for box in self._boxes)

    def __repr__(self) -> str:
        return f"AddressPattern({self.text!r})"


def _split(text: str) -> list[str]:
    """Return the single addresses and ranges of a list."""
    if "{" in text:
        prefix, _, rest = text.partition("{")
        inside, brace, behind = rest.partition("}")
        if not brace or behind or not prefix.endswith((".", ":")) or "," in prefix:
            raise AclFileError(f"address {text!r}: only the last part may be in braces, as in 1.2.3.{{4,5}}")
        parts = [prefix + part.strip() for part in inside.split(",")]
    else:
        parts = [part.strip() for part in text.split(",")]
    if not all(parts):
        raise AclFileError(f"address {text!r}: an entry of the list is empty")
    if len(parts) > MAX_ADDRESSES_IN_LIST:
        raise AclFileError(f"the address list has {len(parts)} entries, the limit is {MAX_ADDRESSES_IN_LIST}")
    return parts


def _box(text: str) -> Box:
    return _v6_box(text) if ":" in text else _v4_box(text)


def _v4_box(text: str) -> Box:
    return _ranges(text, text.split("."), _V4_GROUPS, _V4_HIGHEST, 10)


def _v6_box(text: str) -> Box:
    head, gap, tail = text.partition("::")
    if "::" in tail:
        raise AclFileError(f"address {text!r}: '::' occurs twice")
    before = head.split(":") if head else []
    after = tail.split(":") if tail else []
    if gap:
        missing = _V6_GROUPS - len(before) - len(after)
        if missing < 1:
            raise AclFileError(f"address {text!r} has too many parts")
        before += ["0"] * missing
    return _ranges(text, before + after, _V6_GROUPS, _V6_HIGHEST, 16)


def _ranges(text: str, parts: list[str], count: int, highest: int, base: int) -> Box:
    if len(parts) != count:
        raise AclFileError(f"address {text!r}: must have {count} parts, not {len(parts)}")
    box: list[tuple[int, int]] = []
    is_free = False
    for position, part in enumerate(parts):
        if is_free:
            box.append((0, highest))
        elif part == "*" or "-" in part:
            if position == 0:
                raise AclFileError(f"address {text!r}: the first part cannot be a range")
            box.append((0, highest) if part == "*" else _range(text, part, highest, base))
            is_free = True
        else:
            number = _number(text, part, highest, base)
            box.append((number, number))
    return tuple(box)


def _range(text: str, part: str, highest: int, base: int) -> tuple[int, int]:
    first, _, last = part.partition("-")
    lowest_value = _number(text, first, highest, base)
    highest_value = _number(text, last, highest, base)
    if lowest_value > highest_value:
        raise AclFileError(f"address {text!r}: the range {part} ends before it begins")
    return lowest_value, highest_value


def _number(text: str, part: str, highest: int, base: int) -> int:
    try:
        number = int(part, base) if part.isascii() and part.isalnum() else -1
    except ValueError:
        number = -1
    if not 0 <= number <= highest:
        raise AclFileError(
            f"address {text!r}: {part!r} is not a number from 0 to {highest:{'x' if base == 16 else 'd'}}"
        )
    return number


def _groups(ip: str) -> tuple[int, ...]:
    if ":" in ip:
        return struct.unpack(">8H", inet_pton(AF_INET6, ip))
    return tuple(inet_pton(AF_INET, ip))


def _is_inside(groups: tuple[int, ...], box: Box) -> bool:
    if len(groups) != len(box):
        return False
    return all(low <= group <= high for group, (low, high) in zip(groups, box, strict=True))
