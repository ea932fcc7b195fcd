"""A client of a group: appends bytes and reads entries, at whichever member leads. Tests, and `python -m
triomq.dledger append`, use it; brokers append in process."""

from __future__ import annotations

from typing import TypeVar

import trio

from triomq.dledger.member.asking import NoAnswer, ask
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import (
    AppendRequest,
    AppendResponse,
    Entry,
    GetRequest,
    GetResponse,
    MetadataRequest,
    MetadataResponse,
    Request,
    RequestOrResponse,
    TransferRequest,
    TransferResponse,
)
from triomq.protocol.bodies.base import replace
from triomq.remoting.client import RemotingClient

PAUSE_SECONDS = 0.2
_TRANSFER_REASONS = {
    codes.UNKNOWN_GROUP: "the members are of another group; --group is dLegerGroup",
    codes.UNKNOWN_MEMBER: "it is not a member that follows the leader; name another member than the leader, as n1",
    codes.NOT_LEADER: "the leader has changed meanwhile; try again",
    codes.INCONSISTENT_TERM: "the leader has changed meanwhile; try again",
    codes.INCONSISTENT_LEADER: "it follows another leader; see who leads with `members`, and try again",
    codes.FALL_BEHIND_TOO_MUCH: "it lacks too many entries; wait until `members` shows a smaller lag",
    codes.LEADER_TRANSFERRING: "the leader is handing over already; see who leads with `members`",
    codes.TAKE_LEADERSHIP_FAILED: "it could not take over in time, or lost the vote; look at its log and try again",
    codes.EXPIRED_TERM: "another member was elected meanwhile; see who leads with `members`",
    codes.NETWORK_ERROR: "the leader cannot reach it; start it, or look at the network between both",
}

R = TypeVar("R", bound=RequestOrResponse)


class GroupFailed(Exception):
    """The group did not do what was asked. `code` is DLedger's, None if nobody answered: then an append may have been
    taken all the same. `term` is that of the member that refused, if it said one."""

    def __init__(self, message: str, code: int | None = None, term: int = -1) -> None:
        super().__init__(message)
        self.code = code
        self.term = term


class GroupClient:
    """`members` maps ids to addresses, as `parse_peers` returns them."""

    def __init__(self, client: RemotingClient, group: str, members: dict[str, str]) -> None:
        self._client = client
        self._group = group
        self._members = members
        self._leader: str | None = None

    async def append(self, body: bytes) -> int:
        """Append once, at the leader that is known or is found now. Return the index when a quorum has the entry.
        Raises GroupFailed."""
        leader = await self._find_leader()
        request = AppendRequest(body=body, group=self._group, remote_id=leader)
        answer = await self._leaders_answer(leader, request, AppendResponse)
        return answer.index

    async def get(self, index: int) -> Entry:
        """Return an entry of the leader. Raises GroupFailed."""
        leader = await self._find_leader()
        request = GetRequest(begin_index=index, group=self._group, remote_id=leader)
        return (await self._leaders_answer(leader, request, GetResponse)).entries[0]

    async def find_leader(self, seconds: float) -> str:
        """Return the id of the leader, once there is one. Raises GroupFailed when the time is over."""
        with trio.move_on_after(seconds):
            while True:
                try:
                    return await self._find_leader()
                except GroupFailed:
                    await trio.sleep(PAUSE_SECONDS)
        raise GroupFailed(f"no member led {self._group} within {seconds:g} s")

    async def transfer(self, to: str) -> None:
        """Have the leader hand its leadership to a member. Raises GroupFailed, with a sentence that says what to do."""
        leader = await self._find_leader()
        request = TransferRequest(group=self._group, remote_id=leader, transfer_id=leader, transferee_id=to)
        try:
            try:
                await self._leaders_answer(leader, request, TransferResponse)
            except GroupFailed as error:
                if error.code != codes.INCONSISTENT_TERM or error.term < 0:
                    raise
                request = replace(request, term=error.term)  # nothing else tells the term of a leader
                await self._leaders_answer(leader, request, TransferResponse)
        except GroupFailed as error:
            reason = _TRANSFER_REASONS.get(error.code or 0)
            raise GroupFailed(f"{to} does not lead: {reason or error}", error.code) from error
        self._leader = None

    async def metadata(self, member: str) -> MetadataResponse:
        """Return what a member knows of the group. Raises GroupFailed."""
        return await self.ask(member, MetadataRequest(group=self._group, remote_id=member), MetadataResponse)

    async def _find_leader(self) -> str:
        if self._leader is not None:
            return self._leader
        for member in self._members:
            try:
                leader = (await self.metadata(member)).leader_id
            except GroupFailed:
                continue
            if leader in self._members:
                self._leader = leader
                return leader
        raise GroupFailed(f"no member of {self._group} names a leader")

    async def _leaders_answer(self, leader: str, request: Request, kind: type[R]) -> R:
        try:
            return await self.ask(leader, request, kind)
        except GroupFailed:
            self._leader = None
            raise

    async def ask(self, member: str, request: Request, kind: type[R]) -> R:
        try:
            answer = await ask(self._client, self._members[member], request)
        except NoAnswer as error:
            raise GroupFailed(f"{member}: {error}") from error
        assert isinstance(answer, kind)
        if answer.code != codes.SUCCESS:
            raise GroupFailed(f"{member} answered with DLedger's code {answer.code}", answer.code, answer.term)
        return answer
