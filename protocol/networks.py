"""Addresses and networks in lists of the configuration, and whether an address is among them. A list is read once; what
is asked of it later comes from connections, whose addresses are text."""

from __future__ import annotations

import ipaddress
from typing import TypeAlias

Network: TypeAlias = ipaddress.IPv4Network | ipaddress.IPv6Network


def parse_networks(text: str) -> tuple[Network, ...]:
    """Parse addresses and networks (10.0.0.0/24), separated by commas. Raises ValueError, which says what to do."""
    try:
        return tuple(ipaddress.ip_network(part.strip(), strict=False) for part in text.split(",") if part.strip())
    except ValueError as error:
        raise ValueError(f"{error}; give addresses or networks like 10.0.0.0/24, separated by commas") from None


def is_listed(ip: str, networks: tuple[Network, ...]) -> bool:
    """Return whether one of the networks has this address."""
    try:
        address = ipaddress.ip_address(plain_ip(ip))
    except ValueError:
        return False
    return any(address in network for network in networks)


def is_loopback(ip: str) -> bool:
    try:
        return ipaddress.ip_address(plain_ip(ip)).is_loopback
    except ValueError:
        return False


def plain_ip(text: str) -> str:
    """Return an address in the one notation in which connections have it: IPv4 also where it is mapped into IPv6, IPv6
    shortened and without a zone. Raises ValueError for what is not an address."""
    address = ipaddress.ip_address(text.strip().removeprefix("[").removesuffix("]").partition("%")[0])
    mapped = address.ipv4_mapped if isinstance(address, ipaddress.IPv6Address) else None
    return str(mapped or address)
