"""One member of a group of three, n0, n1 and n2, whose events and time a test chooses."""

from __future__ import annotations

from random import Random

from sim.dledger.disk import MemoryLog
from triomq.dledger.rules.actions import Action, Reply, Role, Send, Settled, StoreTerm
from triomq.dledger.rules.core import Setup
from triomq.dledger.rules.member import Member
from triomq.dledger.wire import bodies, codes
from triomq.dledger.wire.bodies import (
    Entry,
    HeartBeatRequest,
    HeartBeatResponse,
    MetadataRequest,
    MetadataResponse,
    PushRequest,
    PushResponse,
    Request,
    Response,
    VoteRequest,
    VoteResponse,
)

GROUP = "lab"
MEMBERS = {"n0": "127.0.0.1:1", "n1": "127.0.0.1:2", "n2": "127.0.0.1:3"}


def body(at: int) -> bytes:
    return f"A:{at}:x".encode()


class Lab:
    """The member n0. `sent` are the calls of its last turns that have no answer yet."""

    def __init__(self, *, terms: tuple[int, ...] = (), term: int = 0, vote: str | None = None, **setup: object) -> None:
        self.log = MemoryLog(Random(1))
        for at, entry_term in enumerate(terms):
            self.log.append(entry_term, [body(at)])
        self.log.synced_index = self.log.end_index
        self.now = 1000
        options: dict[str, object] = {"group": GROUP, "self_id": "n0", "members": MEMBERS, **setup}
        self.member = Member(Setup(**options), self.log, lambda low, high: low, StoreTerm(term, vote), -1, self.now)
        self.sent: list[Send] = []
        self.replies: list[Response] = []
        self.settled: list[Settled] = []
        self.stored: list[StoreTerm] = []
        self.actions: list[Action] = []

    def turn(self, after_ms: int = 0) -> list[Action]:
        self.now += after_ms
        actions = self.member.turn(self.now)
        self.actions += actions
        self.sent += [action for action in actions if isinstance(action, Send)]
        self.replies += [action.response for action in actions if isinstance(action, Reply)]
        self.settled += [action for action in actions if isinstance(action, Settled)]
        self.stored += [action for action in actions if isinstance(action, StoreTerm)]
        return actions

    def ask(self, request: Request) -> Response | None:
        """Return the answer to a request, None if it gets none in this turn."""
        before = len(self.replies)
        self.member.requested(object(), request, self.now)
        self.turn()
        return self.replies[-1] if len(self.replies) > before else None

    def calls(self, kind: type, to: str | None = None) -> list[Send]:
        return [call for call in self.sent if isinstance(call.request, kind) and to in (None, call.to)]

    def answer(self, call: Send, response: Response | None) -> None:
        self.sent.remove(call)
        self.member.answered(call.call, response, self.now)
        self.turn()

    def pushes(self, kind: str, to: str = "n1") -> list[Send]:
        return [call for call in self.calls(PushRequest, to) if call.request.type == kind]

    def propose(self, ticket: object, *texts: bytes) -> int:
        return self.member.propose(ticket, lambda term: self.log.append(term, list(texts)), self.now)

    # Whole steps.

    def vote_request(self, **changes: object) -> VoteRequest:
        values = {"term": 1, "ledger_end_index": self.log.end_index, "ledger_end_term": self.log.end_term, **changes}
        values["local_id"] = values.setdefault("leader_id", "n1")
        return VoteRequest(**{"group": GROUP, "remote_id": "n0", **values})

    def heart_beat(self, term: int, leader: str = "n1") -> HeartBeatResponse:
        request = HeartBeatRequest(group=GROUP, leader_id=leader, local_id=leader, remote_id="n0", term=term)
        answer = self.ask(request)
        assert isinstance(answer, HeartBeatResponse)
        return answer

    def follow(self, term: int, leader: str = "n1") -> None:
        while self.heart_beat(term, leader).code != codes.SUCCESS:
            pass
        assert self.member.role is Role.FOLLOWER

    def push(self, kind: str, *entries: Entry, term: int = 1, leader: str = "n1", committed: int = -1) -> PushRequest:
        return bodies.push_request(
            kind, group=GROUP, leader=leader, follower="n0", term=term, committed=committed, entries=list(entries)
        )

    def pushed(self, kind: str, *entries: Entry, **options: object) -> PushResponse | None:
        return self.ask(self.push(kind, *entries, **options))

    def lead(self) -> int:
        """Become leader and take office; n1 and n2 follow. Return the term."""
        self.turn(1000)
        for call in self.calls(MetadataRequest):
            self.answer(call, MetadataResponse(group=GROUP))
        for call in self.calls(VoteRequest):
            self.answer(call, VoteResponse(vote_result=codes.ACCEPT))
        assert self.member.role is Role.LEADER
        self.beat()
        self.member.take_office(self.member.term)
        return self.member.term

    def beat(self) -> None:
        for call in self.calls(HeartBeatRequest):
            self.answer(call, HeartBeatResponse())

    def align(self, peer: str) -> None:
        """Let a follower be empty and take the leader's first entry."""
        self.reply_push(self.pushes(bodies.PUSH_COMPARE, peer)[0], codes.INCONSISTENT_STATE, begin=-1, end=-1)
        self.reply_push(self.pushes(bodies.PUSH_TRUNCATE, peer)[0], codes.SUCCESS, begin=0, end=0)

    def reply_push(self, call: Send, code: int, begin: int = 0, end: int = 0) -> None:
        self.answer(call, PushResponse(begin_index=begin, code=code, end_index=end, term=self.member.term))


def entry(index: int, term: int, text: bytes | None = None, pos: int | None = None) -> Entry:
    content = body(index) if text is None else text
    size = len(content) + bodies.ENTRY_HEADER_BYTES
    return Entry(
        body=content,
        index=index,
        pos=sum(len(body(at)) + 48 for at in range(index)) if pos is None else pos,
        size=size,
        term=term,
    )
