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
from triomq.dledger.rules.log import LogRefused
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import REQUESTS, AppendRequest, Entry, GetRequest, PushRequest, Request, Response
from triomq.protocol.codes import ResponseCode
from triomq.protocol.command import RemotingCommand, new_response
from triomq.protocol.errors import RequestRefused
from triomq.remoting.connection import Connection
from triomq.remoting.processor_table import ProcessorTable

_LARGEST: Final = (1 << 62) - 1
_LARGEST_INT: Final = (1 << 31) - 1


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
    none can be taken at present, `leader()` names the leader. Without `serves_clients` APPEND and GET are refused: a
    broker appends in process only, an entry without a queue offset would be in its way, and its messages are read at
    its own port, where accounts count."""

    def __init__(
        self,
        ledger: Ledger,
        take: Callable[[Ticket, Request], None],
        refusal: Callable[[], str | None],
        leader: Callable[[], str | None],
        *,
        serves_clients: bool,
    ) -> None:
        self._ledger = ledger
        self._take = take
        self._refusal = refusal
        self._leader = leader
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
        _check(request)
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


def _check(request: Request) -> None:
    """Raise RequestRefused for numbers that no member writes, and that neither file nor arithmetic has room for."""
    _check_number("term", request.term, -1, _LARGEST)
    if isinstance(request, PushRequest):
        if request.entry is not None:
            _check_entry(request.entry)
        for entry in request.batch_entry:
            _check_entry(entry)


def _check_entry(entry: Entry) -> None:
    for name in ("index", "pos", "term"):
        _check_number(name, getattr(entry, name), 0, _LARGEST)
    for name in ("body_crc", "chain_crc", "channel", "magic", "size"):
        _check_number(name, getattr(entry, name), -_LARGEST_INT - 1, _LARGEST_INT)


def _check_number(name: str, value: int, least: int, most: int) -> None:
    if not least <= value <= most:
        raise RequestRefused(ResponseCode.SYSTEM_ERROR, f"{name} is {value}, which no member of a group writes")
