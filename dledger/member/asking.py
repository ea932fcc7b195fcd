"""One call to a member of a group: a request of DLedger's, and the response that can be read."""

from __future__ import annotations

from typing import Final

from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import REQUEST_CODES, RESPONSES, Request, Response
from triomq.protocol.command import new_request
from triomq.protocol.errors import BodyError
from triomq.remoting.client import RemotingClient
from triomq.remoting.errors import RemotingError

CALL_SECONDS: Final = 3.0


class NoAnswer(Exception):
    """A member did not answer in time, or not with a response that can be read; the message says why."""


async def ask(client: RemotingClient, address: str, request: Request) -> Response:
    """Return the response, whatever DLedger's code in it. Raises NoAnswer."""
    command = new_request(REQUEST_CODES[type(request)], body=request.encode())
    try:
        frame = await client.invoke(address, command, CALL_SECONDS)
        if frame.code != codes.SUCCESS:
            raise NoAnswer(f"code {frame.code}, {frame.remark}")
        response: Response = RESPONSES[type(request)].decode(frame.body)
    except (RemotingError, BodyError) as error:
        raise NoAnswer(str(error)) from error
    return response
