"""dLegerPeers: `n0-host:port;n1-host:port;...`, the members of a group and where each of them listens."""

from __future__ import annotations

import re

_ID = re.compile(r"[A-Za-z]\d{1,9}")


class PeersRefused(ValueError):
    """The text does not name the members of a group. The message says what is wrong and what to do."""


def parse_peers(text: str, self_id: str | None) -> dict[str, str]:
    """Return id -> address ("host:port") in the order of the text. `self_id` is the member that reads it, None for a
    client. The id is what is before the first hyphen, so a host may have more of them. Raises PeersRefused."""
    members: dict[str, str] = {}
    for item in items_in(text):
        member, address = _parse(item)
        if member in members:
            raise PeersRefused(f"dLegerPeers names {member} twice: give each member an id of its own")
        for other, taken in members.items():
            if taken == address:
                raise PeersRefused(f"dLegerPeers has {address} for {other} and for {member}: each has its own port")
        members[member] = address
    if not members:
        raise PeersRefused("dLegerPeers is empty: write n0-host:port;n1-host:port;n2-host:port")
    if self_id is not None and self_id not in members:
        known = ", ".join(members)
        raise PeersRefused(f"dLegerSelfId is {self_id!r}, but dLegerPeers has only {known}: choose one or add it")
    return members


def items_in(text: str | None) -> list[str]:
    """Return the items of a text that separates them by semicolons; none of None."""
    return [part.strip() for part in (text or "").split(";") if part.strip()]


def _parse(item: str) -> tuple[str, str]:
    member, hyphen, address = item.partition("-")
    if not hyphen or not _ID.fullmatch(member):
        raise PeersRefused(f"dLegerPeers has {item!r}: write id-host:port, with a letter and a number as the id")
    host, _, port = address.rpartition(":")
    if not host or not port.isascii() or not port.isdigit() or not 0 < int(port) < 65536:
        raise PeersRefused(f"dLegerPeers has {item!r}: write a host and a port from 1 to 65535, as n0-host:40911")
    return member, f"{host}:{int(port)}"


def port_of(address: str) -> int:
    """Return the port of an address of `parse_peers`."""
    return int(address.rpartition(":")[2])
