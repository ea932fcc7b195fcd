"""Bugs that are put into the rules on purpose, at least one for each rule of the protocol: some seed must find each.

A bug replaces one method by a wrong one. `faults` are the kinds of trouble in which it shows most.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from typing import Any

from sim.dledger.world import FAULTS
from triomq.dledger.rules.actions import Role, Settled
from triomq.dledger.rules.core import NEVER, Core
from triomq.dledger.rules.election import Election
from triomq.dledger.rules.following import Following
from triomq.dledger.rules.leading import Leading
from triomq.dledger.rules.pushing import Pusher
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import HeartBeatRequest, HeartBeatResponse, PushRequest, VoteRequest


@dataclass(frozen=True)
class Bug:
    """`wrong(original)` returns what replaces `name` of `owner`, a class or a module."""

    owner: Any
    name: str
    wrong: Callable[[Any], Any]
    faults: tuple[str, ...] = FAULTS
    seed: int = 0
    """Tried first: one of those that find it."""
    also: Bug | None = None
    """A second one, where two guards hold the same rule."""

    @contextmanager
    def planted(self) -> Iterator[None]:
        original = self.owner.__dict__[self.name]
        setattr(self.owner, self.name, self.wrong(original))
        try:
            with self.also.planted() if self.also is not None else nullcontext():
                yield
        finally:
            setattr(self.owner, self.name, original)


# Votes.


def _votes_twice(original: Any) -> Any:
    def judge(self: Election, request: VoteRequest, now: int) -> str:
        found: str = original(self, request, now)
        is_second = found in (codes.REJECT_ALREADY_VOTED, codes.REJECT_ALREADY_HAS_LEADER)
        return codes.ACCEPT if is_second and self._core.role is not Role.LEADER else found

    return judge


def _votes_for_shorter_logs(original: Any) -> Any:
    def judge(self: Election, request: VoteRequest, now: int) -> str:
        found: str = original(self, request, now)
        if found in (codes.REJECT_SMALL_LEDGER_END_INDEX, codes.REJECT_EXPIRED_LEDGER_TERM):
            if request.term > self._core.term:
                self._core.to_candidate(request.term)
                return codes.REJECT_TERM_NOT_READY
            if request.term == self._core.term and self._core.vote in (None, request.leader_id):
                self._core.vote_for(str(request.leader_id))
                return codes.ACCEPT
        return found

    return judge


def _forgets_its_vote(original: Any) -> Any:
    """The vote is in memory only."""

    def vote_for(self: Core, candidate: str) -> None:
        self.vote = candidate

    return vote_for


def _wins_with_half(original: Any) -> Any:
    def win(self: Election, asked: Any) -> bool:
        if asked.count(codes.ACCEPT) < self._core.quorum - 1:
            return False
        self.stop()
        self._core.lead()
        return True

    return win


def _leads_its_term_again(original: Any) -> Any:
    """A candidate asks in the term that it has, as if its last lead had been another's."""

    def campaign(self: Election, now: int) -> None:
        if self._core.term > 0 and self._core.vote == self._core.self_id:
            self._ask(now)
        else:
            original(self, now)

    return campaign


# Heartbeats.


def _follows_without_its_term(original: Any) -> Any:
    """A heartbeat of a larger term makes a follower that keeps its term."""

    def heart_beat(self: Following, request: HeartBeatRequest, now: int) -> HeartBeatResponse:
        if request.term <= self._core.term:
            return original(self, request, now)  # type: ignore[no-any-return]
        self._core.follow(str(request.leader_id))
        self.heard_at = now
        return HeartBeatResponse()

    return heart_beat


def _ignores_larger_terms(original: Any) -> Any:
    """A leader with a quorum does not step up to the term of a member that came back with a larger one."""

    def beaten(self: Leading, beat: Any, peer: str, answer: Any) -> None:
        if not isinstance(answer, HeartBeatResponse) or answer.code != codes.EXPIRED_TERM:
            original(self, beat, peer, answer)

    return beaten


# Pushes, the leader's side.


def _repeats_nothing(original: Any) -> Any:
    """A push without an answer is forgotten."""

    def answered(self: Pusher, stretch: int, last: int, answer: Any, now: int) -> None:
        if answer is not None:
            original(self, stretch, last, answer, now)

    return answered


def _leaves_what_differs(original: Any) -> Any:
    """A follower that has more than the leader is not truncated."""

    def agrees(self: Pusher, index: int, answer: Any) -> None:
        self._append_from(index + 1)

    return agrees


# Pushes, the follower's side.


def _appends_without_comparing(original: Any) -> Any:
    def make(self: Pusher, core: Core, peer: str) -> None:
        original(self, core, peer)
        if core.log.end_index >= 0:
            self._append_from(core.log.end_index + 1)

    return make


def _takes_appends_unproven(original: Any) -> Any:
    def append(self: Following, ticket: object, request: PushRequest, now: int) -> None:
        self._must_compare = False
        original(self, ticket, request, now)

    return append


def _cuts_what_is_proven(original: Any) -> Any:
    return lambda self: -1


def _takes_pushes_of_old_leaders(original: Any) -> Any:
    return lambda self, request: True


# Positions.


def _writes_without_looking(original: Any) -> Any:
    """What a follower has already counts as equal."""
    return lambda self, entry: 0 <= self.log.begin_index <= entry.index <= self.log.end_index


# Commitment and acknowledgement.


def _commits_old_terms(original: Any) -> Any:
    """Copies of entries of older terms are counted."""

    def advance(self: Leading) -> None:
        self._last_old = -1
        original(self)

    return advance


def _pushes_nothing_when_idle(original: Any) -> Any:
    """Followers hear of nothing but entries and commits. Not a fault by itself: the one above shows more often."""

    def commit_after_ms(self: Pusher) -> int:
        wait_ms: int = original.fget(self)
        return wait_ms if self._committed_sent < self._core.committed else NEVER

    return property(commit_after_ms)


def _acknowledges_at_once(original: Any) -> Any:
    def propose(self: Leading, ticket: object, write: Callable[[int], None], now: int) -> int:
        code: int = original(self, ticket, write, now)
        while self._waiting:
            index, taken, _ = self._waiting.popleft()
            self._core.actions.append(Settled(taken, codes.SUCCESS, index))
        return code

    return propose


def _counts_what_is_not_synced(original: Any) -> Any:
    return property(lambda self: self.log.end_index)


def _leaves_appends_unanswered(original: Any) -> Any:
    return lambda self: None


def _takes_appends_before_office(original: Any) -> Any:
    def refusal(self: Leading) -> int | None:
        self._in_office = True
        found: int | None = original(self)
        return found

    return refusal


def _commits_behind_the_end(original: Any) -> Any:
    """A follower believes the leader's committed index whatever it has."""

    def commit(self: Core, index: int) -> None:
        original(self, index)
        self.committed = max(self.committed, index)

    return commit


_SPLITS = ("crashes", "cut off", "mend", "kill")
_TRANSFERS = ("transfer", "cut off", "mend", "one way")
_LATE = ("weather", "cut off", "mend", "kill")
_UNPROVEN = Bug(Following, "_proven_end", _cuts_what_is_proven, seed=5)

BUGS = {
    # 3.2, votes
    "votes_twice": Bug(Election, "_judge", _votes_twice, seed=41),
    "votes_for_shorter_logs": Bug(Election, "_judge", _votes_for_shorter_logs, seed=5),
    "forgets_its_vote": Bug(Core, "vote_for", _forgets_its_vote, _SPLITS, seed=32),
    "wins_with_half": Bug(Election, "_win_if_elected", _wins_with_half),
    "leads_its_term_again": Bug(Election, "campaign", _leads_its_term_again, ("crashes", "power"), seed=17),
    # 3.3, heartbeats
    "follows_without_its_term": Bug(Following, "heart_beat", _follows_without_its_term),
    "ignores_larger_terms": Bug(Leading, "_beaten", _ignores_larger_terms, _TRANSFERS, seed=383),
    # 3.4, the leader's pushes
    "repeats_nothing": Bug(Pusher, "_answered", _repeats_nothing, seed=7),
    "leaves_what_differs": Bug(Pusher, "_agrees", _leaves_what_differs),
    # 3.5, the follower's pushes
    "nobody_compares": Bug(
        Following,
        "_append",
        _takes_appends_unproven,
        seed=289,
        also=Bug(Pusher, "__init__", _appends_without_comparing),
    ),
    "cuts_what_is_proven": _UNPROVEN,
    "takes_pushes_of_old_leaders": Bug(
        Following, "_is_of_leader", _takes_pushes_of_old_leaders, _LATE, seed=85, also=_UNPROVEN
    ),
    # 3.6, positions
    "writes_without_looking": Bug(Core, "has", _writes_without_looking, seed=7),
    # 3.7, commitment and acknowledgement
    "commits_old_terms": Bug(
        Leading,
        "advance",
        _commits_old_terms,
        ("pair", "mend", "one way", "kill"),
        seed=66,
        also=Bug(Pusher, "_commit_after_ms", _pushes_nothing_when_idle),
    ),
    "acknowledges_at_once": Bug(Leading, "propose", _acknowledges_at_once),
    "counts_what_is_not_synced": Bug(Core, "copied_index", _counts_what_is_not_synced, seed=276),
    "leaves_appends_unanswered": Bug(Leading, "close", _leaves_appends_unanswered, seed=6),
    "takes_appends_before_office": Bug(Leading, "append_refusal", _takes_appends_before_office),
    "commits_behind_the_end": Bug(Core, "commit", _commits_behind_the_end),
}
"""By the section of the protocol that it breaks (docs/internals/dledger.md)."""
