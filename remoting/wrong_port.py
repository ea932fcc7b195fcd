"""What listens at an address that accepted a connection and did not respond: for mqadmin, after a request timed out."""

from __future__ import annotations

import socket

from triomq.protocol.errors import FrameError
from triomq.protocol.json_frame import Request
from triomq.protocol.wrong_port import HTTP_SERVER, NAME_SERVER, ha_port, port_before
from triomq.remoting.blocking_connection import BlockingConnection

TYPE_CHECKING = False
if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable

LOOK_SECONDS = 0.5
NOT_SUPPORTED = 3
GET_BROKER_RUNTIME_INFO = 28
GET_BROKER_CLUSTER_INFO = 106


def recognized(address: str, context: Callable[[], ssl.SSLContext] | None) -> str:
    """Return what to say of the peer at `address`, or an empty text if nothing gives it away. Takes at most a second
    or two. `context`: as that of BlockingConnection. RocketMQ's NameServer is silent when asked what brokers do.
    """
    broker = port_before(address)
    if responds(broker, GET_BROKER_RUNTIME_INFO, context):
        return ha_port(broker)  # asked first, because an HA port takes any bytes for the report of a slave
    if responds(address, GET_BROKER_CLUSTER_INFO, context):
        return NAME_SERVER
    return HTTP_SERVER if _is_http(address) else ""


def responds(address: str, code: int, context: Callable[[], ssl.SSLContext] | None) -> bool:
    """Return whether the peer knows requests with this code, whatever it responds."""
    try:
        connection = BlockingConnection(address, LOOK_SECONDS, context=context)
    except (OSError, ValueError, OverflowError):
        return False
    try:
        return connection.receive(connection.send(Request(code, {}))[0]).code != NOT_SUPPORTED
    except (OSError, FrameError):
        return False
    finally:
        connection.close()


def _is_http(address: str) -> bool:
    host, _, port = address.rpartition(":")
    try:
        with socket.create_connection((host.strip("[]"), int(port)), LOOK_SECONDS) as peer:
            peer.settimeout(LOOK_SECONDS)
            peer.sendall(b"GET / HTTP/1.0\r\n\r\n")
            return peer.recv(4) == b"HTTP"
    except OSError:
        return False
