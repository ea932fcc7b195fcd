"""A member's port: requests of peers and clients become bodies for the rules, and the rules' answers become frames.

What is wrong with a request is found here, before the rules see it: a body that is not JSON, numbers that no file can
hold, an append that no member can take. A waiting request holds the memory of its frame, which counts as that of its
connection.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from typing import Final

from triomq.dledger.ledger.ledger import Ledger
from triomq.dledger.member import sense
from triomq.dledger.rules.log import LogRefused
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import REQUESTS, AppendRequest, GetRequest, PushRequest, Request, Response
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.remoting.connection import Connection
from triomq.remoting.handshake import HandshakeLog
from triomq.remoting.processor_table import ProcessorTable

FAR: Final = "term out of reach refused"


class Ticket:
    """A request that waits for its answer."""

    __slots__ = ("_held_bytes", "_request", "connection")

    def __init__(self, connection: Connection, request: RemotingCommand) -> None:
        self.connection = connection
        self._held_bytes = request.held_bytes
        self._request = request
        request.body = b""

    def hold(self) -> bool:
        """Count the memory of the request. Return whether memory is tight."""
        return self.connection.hold(self._held_bytes)

    def answer(self, response: Response) -> None:
        self.connection.hold(-self._held_bytes)
        if self.connection.is_open:
            frame = new_response(self._request, codes.SUCCESS, body=response.encode())
            self.connection.answer(self._request, frame)

    def drop(self) -> None:
        self.connection.hold(-self._held_bytes)


class Requests:
    """Fills the table of the member's port. `take(ticket, request)` gives a request to the rules, `refusal()` says why
    none can be taken at present, `leader()` names the leader, `furthest_term()` is the largest term that is
    believed. Without `serves_clients` APPEND and GET are refused: a
    broker appends in process only, an entry without a queue offset would be in its way, and its messages are read at
    its own port, where accounts count."""

    def __init__(
        self,
        ledger: Ledger,
        take: Callable[[Ticket, Request], None],
        refusal: Callable[[], str | None],
        leader: Callable[[], str | None],
        *,
        furthest_term: Callable[[], int],
        serves_clients: bool,
    ) -> None:
        self._ledger = ledger
        self._take = take
        self._refusal = refusal
        self._leader = leader
        self._furthest_term = furthest_term
        self._far = HandshakeLog(FAR)
        self._serves_clients = serves_clients
        self.table = ProcessorTable()
        for code, kind in REQUESTS.items():
            self.table.register(code, partial(self._process, kind))
        self.table.register(codes.PULL, _refuse_pull)

    def _process(self, kind: type[Request], connection: Connection, frame: RemotingCommand) -> RemotingCommand | None:
        remark = self._refusal()
        if remark is not None:
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, remark)
        request: Request = kind.decode_request(frame.body)
        self._check(connection, kind, request)
        if isinstance(request, AppendRequest | GetRequest):
            code = self._fault(request)
            if code is not None:
                refusal = bodies.refusal(request, code, self._leader())
                return new_response(frame, codes.SUCCESS, body=refusal.encode())
        ticket = Ticket(connection, frame)
        if ticket.hold() and isinstance(request, PushRequest):
            ticket.drop()
            raise RequestRefused(ResponseCode.SYSTEM_BUSY, "this member is short of memory; push again later")
        self._take(ticket, request)
        return None

    def _check(self, connection: Connection, kind: type[Request], request: Request) -> None:
        """Raise RequestRefused for numbers that no member writes, and for a term that is out of reach."""
        found = sense.fault(request)
        if found is not None:
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, found)
        furthest = self._furthest_term()
        if request.term > furthest:
            text = sense.far_term(request.term, furthest)
            self._far.failed(connection.remote.text, f"{kind.__name__} of {str(request.local_id)[:20]}: {text}")
            raise RequestRefused(ResponseCode.SYSTEM_ERROR, text)

    def _fault(self, request: AppendRequest | GetRequest) -> int | None:
        """Return why a request of a client cannot be served by any leader, or None."""
        if not self._serves_clients:
            return codes.UNSUPPORTED
        if isinstance(request, GetRequest):
            return None
        if not request.body:
            return codes.REQUEST_WITH_EMPTY_BODYS
        try:
            self._ledger.next_pos(len(request.body))
        except LogRefused:
            return codes.UNEXPECTED_ARGUMENT
        return None


def _refuse_pull(connection: Connection, frame: RemotingCommand) -> RemotingCommand | None:
    raise RequestRefused(ResponseCode.SYSTEM_ERROR, "PULL is not served: members push")
