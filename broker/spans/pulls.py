"""TracingPulls: a PullProcessor that makes a span for each traced message that it hands out. It takes the place of the
other with tracesEndpoint: only then are the records of a response decoded."""

from __future__ import annotations

from typing import Final

from triomq.broker.processors.pull import PullProcessor, Tried
from triomq.broker.spans.puts import Spans
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand
from triomq.protocol.headers.pull import PullMessageRequestHeader
from triomq.remoting.connection import Connection

_SUCCESS: Final = int(ResponseCode.SUCCESS)


class TracingPulls(PullProcessor):
    """See the module's docstring. `spans` is set before the first pull."""

    spans: Spans

    def _attempt(self, connection: Connection, request: RemotingCommand, header: PullMessageRequestHeader) -> Tried:
        began_ns = self.spans.now_ns()
        tried = super()._attempt(connection, request, header)
        if isinstance(tried, RemotingCommand) and tried.code == _SUCCESS:
            self.spans.delivered(began_ns, tried.body, header.consumer_group)
        return tried
