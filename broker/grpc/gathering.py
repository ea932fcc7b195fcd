"""What a call asks of the rest of the broker: one request of remoting, or several, of which the last response lets the
call be answered."""

from __future__ import annotations

from collections.abc import Callable

from triomq.broker.acl.signed_call import Fields
from triomq.broker.grpc.call import Call
from triomq.protocol.command import RemotingCommand


def ask(call: Call, code: int, fields: Fields, then: Callable[[RemotingCommand], None], body: bytes = b"") -> None:
    """Begin a request. `then` gets the response; what it raises is the answer to the call."""
    call.client.request(call.head.fields, code, fields, body, lambda response: call.attempt(lambda: then(response)))


class Gathering:
    """The responses to several requests of one call, in their order. `then` gets them when all are there."""

    def __init__(self, call: Call, count: int, then: Callable[[list[RemotingCommand]], None]) -> None:
        self._call = call
        self._then = then
        self._responses: dict[int, RemotingCommand] = {}
        self._count = count

    def ask(self, place: int, code: int, fields: Fields, body: bytes = b"") -> None:
        """Begin the request of this place."""
        ask(self._call, code, fields, lambda response: self._got(place, response), body)

    def _got(self, place: int, response: RemotingCommand) -> None:
        self._responses[place] = response
        if len(self._responses) == self._count:
            self._then([self._responses[each] for each in range(self._count)])
