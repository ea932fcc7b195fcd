"""mqhealth: checks whether a daemon responds to requests, for HEALTHCHECK, probes and scripts.

    mqhealth broker 10911               a broker on this machine
    mqhealth namesrv 10.0.0.1:9876      a NameServer on another machine
    mqhealth ready 5557                 what a daemon says on its metricsPort: it is ready for clients
    mqhealth live 5557                  the same: its event loop runs

To a broker or NameServer it sends one request of the protocol (to a broker: GET_BROKER_RUNTIME_INFO, to a NameServer:
GET_BROKER_CLUSTER_INFO) and waits for its response, so an open port is not enough: the event loop must be running. A
broker with access control refuses the request, which proves the same. `ready` and `live` ask over HTTP. Exit code 0:
healthy; 1: not healthy, or wrong arguments, since Docker reserves 2.
"""

from __future__ import annotations

import argparse
import json
import socket
import ssl
import sys
from collections.abc import Sequence

from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import RemotingCommand, new_request
from triomq.protocol.errors import ProtocolError
from triomq.protocol.frame import FrameDecoder, encode_frame

_REQUESTS = {"broker": RequestCode.GET_BROKER_RUNTIME_INFO, "namesrv": RequestCode.GET_BROKER_CLUSTER_INFO}
_PAGES = {"ready": "/health/ready", "live": "/health/live"}
_OPAQUE = 1
_MAX_REPORT_BYTES = 65_536
_MAX_RESPONSE_BYTES = 16 * 1024 * 1024
_MAX_PIECES = 10_000


class Unhealthy(Exception):
    """The daemon did not respond as a healthy one does. The text says what happened instead."""


def parser() -> argparse.ArgumentParser:
    """Return the parser of the command line."""
    made = argparse.ArgumentParser(
        prog="mqhealth", description="Exit code 0 when a daemon responds to requests, otherwise 1."
    )
    made.add_argument("kind", choices=[*sorted(_REQUESTS), *_PAGES], help="what to ask")
    made.add_argument("address", help="PORT of this machine, or HOST:PORT")
    made.add_argument("--timeout", type=float, default=5.0, metavar="SECONDS", help="of each step; default: 5")
    made.add_argument("--tls", action="store_true", help="connect with TLS; no certificate is checked")
    return made


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command. Return its exit code."""
    try:
        options = parser().parse_args(arguments)
    except SystemExit as error:
        return 1 if error.code else 0
    host, _, port = str(options.address).rpartition(":")
    try:
        if not port.isdigit() or options.timeout <= 0:
            raise Unhealthy("wrong arguments: an address is PORT or HOST:PORT, a timeout is above 0")
        address = (host.strip("[]") or "127.0.0.1", int(port))
        print(ask(options.kind, address, timeout_seconds=options.timeout, tls=options.tls))  # noqa: T201
    except Unhealthy as error:
        print(f"{options.kind} at {options.address} is not healthy: {error}", file=sys.stderr)  # noqa: T201
        return 1
    return 0


def ask(kind: str, address: tuple[str, int], *, timeout_seconds: float, tls: bool = False) -> str:
    """Return one sentence about a healthy daemon, or raise Unhealthy. Each step waits `timeout_seconds` at most."""
    if kind in _PAGES:
        return _ask_page(kind, address, timeout_seconds)
    try:
        with socket.create_connection(address, timeout_seconds) as plain, _wrapped(plain, tls) as stream:
            request = new_request(_REQUESTS[kind])
            request.opaque = _OPAQUE
            stream.sendall(encode_frame(request))
            response = _receive(stream)
    except (OSError, ProtocolError, OverflowError) as error:
        raise Unhealthy(str(error)) from None
    if response.code == ResponseCode.SUCCESS:
        return f"{kind} responds"
    if response.code == ResponseCode.NO_PERMISSION or "AclException" in (response.remark or ""):
        return f"{kind} responds and has access control"
    raise Unhealthy(f"response code {response.code}: {response.remark}")


def _ask_page(kind: str, address: tuple[str, int], timeout_seconds: float) -> str:
    """Ask a page of metricsPort. Its checks that fail are the reason of Unhealthy."""
    import http.client  # only here: it takes longer to import than all the rest

    connection = http.client.HTTPConnection(*address, timeout=timeout_seconds)
    try:
        connection.request("GET", _PAGES[kind])
        response = connection.getresponse()
        body = response.read(_MAX_REPORT_BYTES)
    except (OSError, http.client.HTTPException) as error:
        raise Unhealthy(str(error) or type(error).__name__) from None
    finally:
        connection.close()
    if response.status == http.client.OK:
        return f"the daemon is {kind}"
    raise Unhealthy(_reasons(body) or f"HTTP status {response.status}")


def _reasons(body: bytes) -> str:
    """Return the details of the checks that fail, "" if the body is no report."""
    try:
        checks = json.loads(body)["checks"]
        return "; ".join(f"{check['name']}: {check['detail']}" for check in checks if not check["ok"])
    except (ValueError, KeyError, TypeError):
        return ""


def _wrapped(plain: socket.socket, tls: bool) -> socket.socket:
    if not tls:
        return plain
    context = ssl.create_default_context()
    context.check_hostname = False
    context.verify_mode = ssl.CERT_NONE
    return context.wrap_socket(plain)


def _receive(stream: socket.socket) -> RemotingCommand:
    """Receive the response, which may arrive in pieces. Skip requests that the daemon sends before it. Raise Unhealthy
    if the connection closes or too many pieces arrive first."""
    decoder = FrameDecoder(_MAX_RESPONSE_BYTES)
    for _ in range(_MAX_PIECES):
        data = stream.recv(65536)
        if not data:
            raise Unhealthy("it closed the connection without a response")
        for command in decoder.feed(data):
            if command.is_response and command.opaque == _OPAQUE:
                return command
    raise Unhealthy("no response among all that it sent")


if __name__ == "__main__":
    sys.exit(main())
