"""Calls that need several requests of remoting: all are begun, and the last response lets the call be answered."""

from __future__ import annotations

from collections.abc import Callable

from triomq.broker.grpc.call import Call
from triomq.protocol.command import ExtFields, RemotingCommand


class Gathering:
    """The responses to the requests of one call, in their order. `then` gets them when all are there."""

    def __init__(self, call: Call, count: int, then: Callable[[list[RemotingCommand]], None]) -> None:
        self._call = call
        self._then = then
        self._responses: dict[int, RemotingCommand] = {}
        self._count = count

    def ask(self, place: int, code: int, fields: ExtFields, body: bytes = b"") -> None:
        """Begin the request of this place."""
        call = self._call
        call.client.request(call.head.fields, code, fields, body, lambda response: self.got(place, response))

    def got(self, place: int, response: RemotingCommand) -> None:
        """Note a response."""
        self._responses[place] = response
        if len(self._responses) == self._count:
            responses = [self._responses[each] for each in range(self._count)]
            self._call.attempt(lambda: self._then(responses))
