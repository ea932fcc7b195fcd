"""What to say about a port that is not the expected one. HTTP and TLS are recognised by the first bytes that the peer
sends; a HA port by the broker at the port below it.
"""

from __future__ import annotations

HTTP_SERVER = (
    "that is the port of an HTTP server, such as metrics, health or the dashboard: a NameServer's is usually 9876, "
    "a broker's 10911"
)
TLS_SERVER = "the peer uses TLS there: connect with TLS"
BROKER = "that is a broker's port, not a NameServer's: a NameServer's is usually 9876"
NAME_SERVER = "that is a NameServer's port, not a broker's: a broker's is usually 10911"

GRPC = (
    "it speaks HTTP/2, as the gRPC clients of RocketMQ 5 do: they connect to grpcServerPort of a broker, usually 8081"
)

HTTP2_BEGINS = b"PRI * HTTP/2.0"
_TLS_ALERT = b"\x15\x03"


def ha_port(broker: str) -> str:
    """Return what to say of the port behind that of a broker (haListenPort, unless it is configured)."""
    return (
        f"that is the HA port of the broker at {broker}, to which only slaves connect: "
        "a NameServer's is usually 9876, a broker's 10911"
    )


def foreign_bytes(data: bytes) -> str:
    """Return what the first four bytes of a peer that does not send frames say about it; empty if they say nothing."""
    if data == b"HTTP":
        return HTTP_SERVER
    if data == HTTP2_BEGINS[:4]:
        return GRPC
    return TLS_SERVER if data.startswith(_TLS_ALERT) else ""


def port_before(address: str) -> str:
    """Return the address with the port before that of `address`, HOST:PORT."""
    host, _, port = address.rpartition(":")
    return f"{host}:{int(port) - 1}"


def answer_to_foreign(data: bytes) -> bytes:
    """Return what tells a peer whose first bytes these are that it is wrong here, in its own protocol; empty if nothing
    does. To HTTP/2 that is an empty SETTINGS frame and a GOAWAY."""
    if not data.startswith(HTTP2_BEGINS):
        return b""
    payload = bytes(4) + b"\0\0\0\x01" + GRPC.encode()  # no stream was handled; PROTOCOL_ERROR
    return bytes(3) + b"\x04" + bytes(5) + len(payload).to_bytes(3, "big") + b"\x07" + bytes(5) + payload
