"""The request codes of the protocol, and whether a broker and a NameServer handle them: found by sending them.

Every code is sent to an embedded cluster with empty fields. A code without a handler gets REQUEST_CODE_NOT_SUPPORTED; a
handled one gets any other response, usually about a missing field.
"""

from __future__ import annotations

import json
import re
import socket
import struct
from functools import cache
from pathlib import Path

from triomq.broker.acl.needs import need_of
from triomq.broker.embedded import LocalCluster
from triomq.protocol.codes import RequestCode, ResponseCode

ROOT = Path(__file__).resolve().parents[2]
WAIT_SECONDS = 10.0
FAST_PORT_DISTANCE = -2


def broker_requests() -> str:
    """Return a table of the codes that go to brokers, and of those that RocketMQ declares without a handler."""
    broker, fast, _ = handled_codes()
    rows = ["| code | name | sender | TrioMQ | on the fast port | with aclEnable needs |", "|---|---|---|---|---|---|"]
    for code, direction in directions().items():
        if "to broker" in direction or (direction == "unused" and code in broker):
            here = "yes" if code in fast else "no"
            needs = need_of(code).text if code in broker else ""
            state = _state(code in broker)
            rows.append(f"| {code} | {code.name} | {_sender(direction)} | {state} | {here} | {needs} |")
    return "\n".join(rows)


def namesrv_requests() -> str:
    """Return a table of the codes that go to NameServers."""
    _, _, namesrv = handled_codes()
    rows = ["| code | name | sender | TrioMQ |", "|---|---|---|---|"]
    for code, direction in directions().items():
        if "to NameServer" in direction:
            rows.append(f"| {code} | {code.name} | {_sender(direction)} | {_state(code in namesrv)} |")
    return "\n".join(rows)


def other_requests() -> str:
    """Return a sentence each on the codes that servers send to clients, and on those without a handler."""
    broker, _, namesrv = handled_codes()
    to_clients = [code for code, text in directions().items() if "to client" in text]
    unused = [code for code, text in directions().items() if text == "unused" and code not in broker | namesrv]
    return (
        f"Requests from the broker to clients: {_listed(to_clients)}.\n\n"
        f"Declared by RocketMQ 4.9.7 and handled by neither server there or here (code 3): {_listed(unused)}."
    )


@cache
def directions() -> dict[RequestCode, str]:
    """Return code -> "client to broker" and the like, from the comments beside the codes."""
    source = (ROOT / "protocol/codes.py").read_text()
    body = source[source.index("class RequestCode") : source.index("class ResponseCode")]
    found = dict(re.findall(r"(?m)^    ([A-Z0-9_]+) = [\d_]+  # (.*)$", body))
    return {code: found[code.name] for code in RequestCode}


@cache
def handled_codes() -> tuple[set[int], set[int], set[int]]:
    """Return the codes that a broker handles, on its fast port, and those that a NameServer handles."""
    with LocalCluster() as cluster:
        host, _, port = next(iter(cluster.brokers.values())).rpartition(":")
        fast = f"{host}:{int(port) + FAST_PORT_DISTANCE}"
        return _handled(f"{host}:{port}"), _handled(fast), _handled(cluster.name_server)


def _handled(address: str) -> set[int]:
    host, _, port = address.rpartition(":")
    return {code for code in RequestCode if _response(host, int(port), code) != ResponseCode.REQUEST_CODE_NOT_SUPPORTED}


def _response(host: str, port: int, code: int) -> int | None:
    """Return the response's code; None if the server closes the connection over empty fields."""
    header = json.dumps({"code": code, "flag": 0, "language": "OTHER", "opaque": 1, "version": 407, "extFields": {}})
    frame = struct.pack(">ii", 4 + len(header), len(header)) + header.encode()
    with socket.create_connection((host, port), WAIT_SECONDS) as connection:
        connection.settimeout(WAIT_SECONDS)
        connection.sendall(frame)
        with connection.makefile("rb") as stream:
            lengths = stream.read(8)
            if len(lengths) < 8:
                return None
            found: int = json.loads(stream.read(struct.unpack(">i", lengths[4:])[0] & 0xFFFFFF))["code"]
            return found


def _state(is_handled: bool) -> str:
    return "handled" if is_handled else "**refused** (code 3)"


def _sender(direction: str) -> str:
    return direction.partition(" to ")[0]


def _listed(codes: list[RequestCode]) -> str:
    return ", ".join(f"{code.name} ({code})" for code in codes)
