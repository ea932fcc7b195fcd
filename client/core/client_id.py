"""The identity of one client process at the brokers (RocketMQ: ClientConfig.buildMQClientId).

    <ip>@<instance name>[@<unit name>]

Two clients with the same id count as ONE member of a consumer group, so each would get the other's queues or none. The
default instance name therefore holds the process id and a random part, as newer Java clients do.
"""

from __future__ import annotations

import os
import secrets
import socket

DEFAULT_INSTANCE_NAME = "DEFAULT"


def local_ip(towards: str | None = None) -> str:
    """Return the address of this host that packets to `towards` ("host:port") would carry; "127.0.0.1" when there is
    none.

    A connected datagram socket knows it without sending anything.
    """
    host, port = "192.0.2.1", 9
    if towards:
        name, _, number = towards.rpartition(":")
        if name and number.isdigit():
            host = name.strip("[]")
            port = int(number)
    try:
        found = socket.getaddrinfo(host, port, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    except OSError:
        # A name, not a literal: looking it up may block, so fall back to the default route.
        found = socket.getaddrinfo("192.0.2.1", 9, type=socket.SOCK_DGRAM, flags=socket.AI_NUMERICHOST)
    family, kind, number_of_protocol, _, address = found[0]
    try:
        with socket.socket(family, kind, number_of_protocol) as probe:
            probe.connect(address)
            return str(probe.getsockname()[0])
    except OSError:
        return "127.0.0.1"


def make_instance_name() -> str:
    """Return a name that no other client has: process id and a random part."""
    return f"{os.getpid()}#{secrets.token_hex(6)}"


def make_client_id(ip: str, instance_name: str, unit_name: str | None = None) -> str:
    """Return `ip@instance[@unit]`; a unique name replaces the instance name "DEFAULT"."""
    instance = make_instance_name() if instance_name == DEFAULT_INSTANCE_NAME else instance_name
    return f"{ip}@{instance}@{unit_name}" if unit_name else f"{ip}@{instance}"
