"""What listens at an address where a name server is silent."""

from __future__ import annotations

import trio

from triomq.protocol.codes import RequestCode, ResponseCode
from triomq.protocol.command import new_request
from triomq.protocol.wrong_port import HTTP_SERVER, ha_port, port_before
from triomq.remoting import network
from triomq.remoting.client import RemotingClient
from triomq.remoting.errors import RemotingError

LOOK_SECONDS = 0.5


async def recognized(address: str, remoting: RemotingClient) -> str:
    """Return what to say of the server at `address`, or an empty text if nothing gives it away."""
    broker = port_before(address)
    try:
        response = await remoting.invoke(broker, new_request(RequestCode.GET_BROKER_RUNTIME_INFO), LOOK_SECONDS)
        if response.code != ResponseCode.REQUEST_CODE_NOT_SUPPORTED:
            return ha_port(broker)  # asked first, because an HA port takes any bytes for the report of a slave
    except RemotingError:
        pass
    return HTTP_SERVER if await _is_http(address) else ""


async def _is_http(address: str) -> bool:
    host, _, port = address.rpartition(":")
    with trio.move_on_after(LOOK_SECONDS):
        try:
            stream = await network.connect(host.strip("[]"), int(port))
            async with stream:
                await stream.send_all(b"GET / HTTP/1.0\r\n\r\n")
                return bytes(await stream.receive_some(4)) == b"HTTP"
        except (OSError, trio.BrokenResourceError):
            pass
    return False
