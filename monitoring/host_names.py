"""What a Host header may name, so that no page of another site reads this one through a browser (DNS rebinding)."""

from __future__ import annotations

import ipaddress


def is_loopback(address: str) -> bool:
    """Return whether only this machine can reach a port at this address."""
    try:
        return ipaddress.ip_address(address).is_loopback
    except ValueError:
        return address == "localhost"


def is_local_name(host: str) -> bool:
    """Return whether a Host header is a name that no other site can have: an address, or localhost."""
    name = host.rpartition(":")[0] if host[-1:].isdigit() and ":" in host and not host.endswith("]") else host
    name = name.rstrip(".").lower()
    if name == "localhost" or name.endswith(".localhost"):
        return True
    try:
        ipaddress.ip_address(name[1:-1] if name.startswith("[") and name.endswith("]") else name)
    except ValueError:
        return False
    return True
