"""The address a broker announces when the configuration names none (brokerIP1, brokerIP2).

The rule is RocketMQ's (RemotingUtil.getLocalAddress): of the IPv4 addresses of all interfaces that are neither
loopback nor a bridge take the first outside 127.0.* and 192.168.*, else the last; IPv6 only where there is no IPv4;
else what the host name resolves to. In a container or behind NAT no such guess can be right: there brokerIP1 has to be
configured.
"""

from __future__ import annotations

import ipaddress
import socket
import struct
from collections.abc import Iterable
from pathlib import Path

try:
    import fcntl
except ImportError:
    fcntl = None  # type: ignore[assignment]

_SIOCGIFADDR = 0x8915
_PRIVATE_LAST_CHOICE = ("127.0", "192.168")


def choose_address(ipv4: Iterable[str], ipv6: Iterable[str]) -> str | None:
    """Return the address that RocketMQ would announce, given the addresses of the usable interfaces; None if there are
    none."""
    last = None
    for address in ipv4:
        if not address.startswith(_PRIVATE_LAST_CHOICE):
            return address
        last = address
    if last is not None:
        return last
    return next(iter(ipv6), None)


def local_address() -> str:
    """Return the address at which other hosts most likely reach this host (text, IPv4 or IPv6)."""
    chosen = choose_address(_ipv4_addresses(), _ipv6_addresses())
    if chosen is not None:
        return chosen
    try:
        return socket.gethostbyname(socket.gethostname())
    except OSError:
        return "127.0.0.1"


def host_name() -> str:
    """Return the host's name, the default of brokerName."""
    return socket.gethostname() or "DEFAULT_BROKER"


def _is_bridge(interface: str) -> bool:
    return Path("/sys/class/net", interface, "bridge").exists()


def _ipv4_addresses() -> list[str]:
    if fcntl is None:  # not a POSIX system: the host name decides
        return []
    found: list[str] = []
    with socket.socket(socket.AF_INET, socket.SOCK_DGRAM) as probe:
        for _, interface in socket.if_nameindex():
            if _is_bridge(interface):
                continue
            request = struct.pack("256s", interface.encode()[:15])
            try:
                answer = fcntl.ioctl(probe.fileno(), _SIOCGIFADDR, request)
            except OSError:  # an interface without an IPv4 address
                continue
            address = ipaddress.IPv4Address(answer[20:24])
            if not address.is_loopback:
                found.append(str(address))
    return found


def _ipv6_addresses() -> list[str]:
    try:
        lines = Path("/proc/net/if_inet6").read_text(encoding="ascii").splitlines()
    except OSError:
        return []
    found: list[str] = []
    for line in lines:
        fields = line.split()
        if len(fields) != 6 or _is_bridge(fields[5]):
            continue
        address = ipaddress.IPv6Address(bytes.fromhex(fields[0]))
        if not address.is_loopback and not address.is_link_local:
            found.append(str(address))
    return found
