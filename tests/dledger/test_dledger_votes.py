"""Who becomes leader: the rules of VOTE one by one, candidates, heartbeats."""

from __future__ import annotations

import pytest
from dledger_lab import GROUP, MEMBERS, Lab

from triomq.dledger.rules.actions import Role, Send, Slowed, StoreTerm
from triomq.dledger.rules.timing import DEFAULT, FAST
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import (
    HeartBeatRequest,
    HeartBeatResponse,
    MetadataRequest,
    MetadataResponse,
    TransferRequest,
    VoteRequest,
    VoteResponse,
)


@pytest.mark.parametrize(
    ("changes", "result", "term"),
    [
        ({"leader_id": "n9", "ledger_end_term": 0}, codes.REJECT_UNKNOWN_LEADER, 3),
        ({"leader_id": "n0", "ledger_end_term": 0}, codes.REJECT_UNEXPECTED_LEADER, 3),
        ({"term": 9, "ledger_end_term": 1}, codes.REJECT_EXPIRED_LEDGER_TERM, 3),
        ({"term": 9, "ledger_end_index": 0}, codes.REJECT_SMALL_LEDGER_END_INDEX, 3),
        ({"term": 2}, codes.REJECT_EXPIRED_VOTE_TERM, 3),
        ({"term": 3}, codes.REJECT_ALREADY_VOTED, 3),
        ({"term": 4}, codes.REJECT_TERM_NOT_READY, 3),
        ({"term": 3, "leader_id": "n2"}, codes.ACCEPT, 3),
        ({"term": 3, "leader_id": "n2", "ledger_end_index": 7}, codes.ACCEPT, 3),
    ],
)
def test_a_vote_is_answered_by_the_first_rule_that_fits(changes: dict[str, object], result: str, term: int) -> None:
    lab = Lab(terms=(1, 2), term=3, vote="n2")
    answer = lab.ask(lab.vote_request(**changes))
    assert isinstance(answer, VoteResponse)
    assert (answer.vote_result, answer.term) == (result, term)


def test_a_term_below_that_of_the_log_is_refused_with_the_term_of_the_log() -> None:
    lab = Lab(terms=(5,), term=3)
    answer = lab.ask(lab.vote_request(term=3))
    assert (answer.vote_result, answer.term) == (codes.REJECT_TERM_SMALL_THAN_LEDGER, 5)


def test_another_candidate_of_a_term_that_has_a_leader_is_refused_with_that_reason() -> None:
    lab = Lab(term=1, vote="n1")
    lab.follow(1)
    answer = lab.ask(lab.vote_request(term=1, leader_id="n2"))
    assert answer.vote_result == codes.REJECT_ALREADY_HAS_LEADER


def test_a_vote_is_stored_before_it_is_given() -> None:
    lab = Lab(term=1)
    lab.ask(lab.vote_request())
    kinds = [type(action).__name__ for action in lab.actions]
    assert lab.stored == [StoreTerm(1, "n1")]
    assert kinds.index("StoreTerm") < kinds.index("Reply")


def test_a_larger_term_is_raised_at_once_so_that_the_second_round_finds_the_member_ready() -> None:
    lab = Lab(term=1, vote="n2")
    assert lab.ask(lab.vote_request(term=2)).vote_result == codes.REJECT_TERM_NOT_READY
    assert lab.stored == [StoreTerm(2, None)]
    assert lab.ask(lab.vote_request(term=2)).vote_result == codes.ACCEPT


def test_a_candidate_stores_its_own_vote_before_it_asks_for_others() -> None:
    lab = Lab()
    lab.turn(1000)
    lab.answer(lab.calls(MetadataRequest, "n1")[0], MetadataResponse(group=GROUP))
    assert lab.stored == [StoreTerm(1, "n0")]
    kinds = [type(action.request if isinstance(action, Send) else action) for action in lab.actions]
    assert kinds.index(StoreTerm) < kinds.index(VoteRequest)


def test_a_member_leads_no_term_twice() -> None:
    """After a restart it asks in a later term also where its own vote of the present one is stored."""
    lab = Lab(term=4, vote="n0")
    assert lab.lead() == 5


def test_a_candidate_keeps_its_term_while_others_follow_a_leader() -> None:
    """A member that was cut off and returns deposes nobody."""
    lab = Lab(term=1)
    lab.turn(1000)
    for call in lab.calls(MetadataRequest):
        lab.answer(call, MetadataResponse(group=GROUP, leader_id="n1"))
    lab.turn(200)
    assert lab.member.term == 1
    assert not lab.calls(VoteRequest)
    lab.turn(300)
    assert len(lab.calls(MetadataRequest)) == 2


def test_a_candidate_without_a_quorum_of_answers_keeps_its_term() -> None:
    lab = Lab(term=1)
    for _ in range(20):
        lab.turn(500)
        for call in lab.calls(MetadataRequest):
            lab.answer(call, None)
    assert lab.member.term == 1


def test_a_member_whose_leaders_process_is_gone_asks_at_once_in_the_next_term() -> None:
    """D11: it waits neither for the heartbeat nor for the others to miss it. Members of RocketMQ would say for six more
    seconds that they follow the leader, but they vote."""
    lab = Lab(terms=(1,), term=1)
    lab.follow(1)
    lab.member.gone("n1", lab.now)
    lab.turn()
    assert lab.calls(MetadataRequest) == []
    assert [(call.to, call.request.term) for call in lab.calls(VoteRequest)] == [("n1", 2), ("n2", 2)]


def test_only_the_first_round_after_the_end_of_a_leaders_process_goes_without_a_look() -> None:
    """The log of another member is longer: it must come first, and may follow a new leader by then."""
    lab = Lab(terms=(1,), term=1)
    lab.follow(1)
    lab.member.gone("n1", lab.now)
    lab.turn()
    for call in lab.calls(VoteRequest):
        lab.answer(call, VoteResponse(vote_result=codes.REJECT_SMALL_LEDGER_END_INDEX))
    lab.turn(3000)
    assert [call.request.term for call in lab.calls(VoteRequest)] == []
    assert len(lab.calls(MetadataRequest)) == 2


def test_a_member_whose_leader_is_gone_asks_nobody_when_another_leads_by_then() -> None:
    lab = Lab(terms=(1,), term=1)
    lab.member._core.draw = lambda low, high: high
    lab.follow(1)
    lab.member.gone("n1", lab.now)
    lab.turn()
    assert lab.heart_beat(2, "n2").code == codes.TERM_NOT_READY
    lab.turn(150)
    assert lab.calls(VoteRequest) == []
    assert len(lab.calls(MetadataRequest)) == 2


def test_a_member_whose_disk_refuses_does_not_take_the_place_of_a_leader_that_is_gone() -> None:
    lab = Lab(terms=(1,), term=1)
    lab.follow(1)
    lab.log.is_refusing = True
    lab.member.gone("n1", lab.now)
    lab.turn()
    assert lab.calls(VoteRequest) == []


def test_the_end_of_another_process_than_the_leaders_changes_nothing() -> None:
    lab = Lab(term=1)
    lab.follow(1)
    lab.member.gone("n2", lab.now)
    lab.turn()
    assert lab.member.role is Role.FOLLOWER


def test_peers_that_are_about_to_raise_their_term_are_asked_again_at_once() -> None:
    lab = Lab()
    lab.turn(1000)
    lab.answer(lab.calls(MetadataRequest, "n1")[0], MetadataResponse(group=GROUP))
    for call in lab.calls(VoteRequest):
        lab.answer(call, VoteResponse(vote_result=codes.REJECT_TERM_NOT_READY))
    again = lab.calls(VoteRequest)
    assert [call.request.term for call in again] == [1, 1]
    lab.answer(again[0], VoteResponse(vote_result=codes.ACCEPT))
    assert lab.member.role is Role.LEADER


def test_a_candidate_steps_up_to_a_larger_term() -> None:
    lab = Lab()
    lab.turn(1000)
    lab.answer(lab.calls(MetadataRequest, "n1")[0], MetadataResponse(group=GROUP))
    lab.answer(lab.calls(VoteRequest, "n1")[0], VoteResponse(vote_result=codes.REJECT_EXPIRED_VOTE_TERM, term=8))
    assert (lab.member.term, lab.member.role) == (8, Role.CANDIDATE)


def test_a_refusal_for_a_longer_log_is_no_larger_term() -> None:
    lab = Lab()
    lab.turn(1000)
    lab.answer(lab.calls(MetadataRequest, "n1")[0], MetadataResponse(group=GROUP))
    refused = VoteResponse(vote_result=codes.REJECT_SMALL_LEDGER_END_INDEX, term=8)
    lab.answer(lab.calls(VoteRequest, "n1")[0], refused)
    assert lab.member.term == 1


@pytest.mark.parametrize(
    ("term", "leader", "code", "own"),
    [
        (1, "n9", codes.UNKNOWN_MEMBER, -1),
        (1, "n0", codes.UNEXPECTED_MEMBER, -1),
        (0, "n1", codes.EXPIRED_TERM, 1),
        (1, "n1", codes.SUCCESS, -1),
        (1, "n2", codes.INCONSISTENT_LEADER, -1),
        (2, "n2", codes.TERM_NOT_READY, -1),
    ],
)
def test_a_heartbeat_is_answered_by_term_and_leader(term: int, leader: str, code: int, own: int) -> None:
    lab = Lab(term=1)
    lab.follow(1)
    assert lab.heart_beat(term, leader) == HeartBeatResponse(code=code, term=own)


def test_a_follower_without_heartbeats_becomes_candidate_in_its_term() -> None:
    lab = Lab(term=1)
    lab.follow(1)
    lab.turn(6000)
    assert lab.member.role is Role.FOLLOWER
    lab.turn(1)
    assert (lab.member.role, lab.member.term) == (Role.CANDIDATE, 1)


def test_a_leader_without_a_quorum_gives_up_after_six_seconds() -> None:
    lab = Lab()
    lab.lead()
    for _ in range(3):
        lab.turn(2000)
    assert lab.member.role is Role.LEADER
    lab.turn(2000)
    assert lab.member.role is Role.CANDIDATE


def test_a_leader_that_stood_still_is_not_confirmed_until_a_quorum_has_answered_it_again() -> None:
    """Without having done anything since: others may have elected one of them meanwhile."""
    lab = Lab()
    assert not lab.member.is_confirmed(lab.now)
    lab.lead()
    sent_at = lab.now
    assert lab.member.is_confirmed(sent_at + DEFAULT.lost_after_ms)
    assert not lab.member.is_confirmed(sent_at + DEFAULT.lost_after_ms + 1)
    lab.turn(2000)
    lab.now += 1000
    lab.answer(lab.calls(HeartBeatRequest, "n1")[-1], HeartBeatResponse())
    assert lab.member.is_confirmed(sent_at + 2000 + DEFAULT.lost_after_ms), "since it was sent, not answered"
    assert not lab.member.is_confirmed(sent_at + 2000 + DEFAULT.lost_after_ms + 1)


def test_a_leader_with_a_quorum_steps_up_to_the_larger_term_of_another_member() -> None:
    """D4: that member would never come back otherwise."""
    lab = Lab()
    lab.lead()
    lab.turn(2000)
    lab.answer(lab.calls(HeartBeatRequest, "n1")[0], HeartBeatResponse())
    lab.answer(lab.calls(HeartBeatRequest, "n2")[0], HeartBeatResponse(code=codes.EXPIRED_TERM, term=9))
    assert (lab.member.role, lab.member.term) == (Role.CANDIDATE, 9)


def test_a_member_that_is_not_ready_gets_a_second_heartbeat_at_once() -> None:
    lab = Lab()
    lab.lead()
    lab.turn(2000)
    lab.answer(lab.calls(HeartBeatRequest, "n1")[0], HeartBeatResponse(code=codes.TERM_NOT_READY))
    assert len(lab.calls(HeartBeatRequest, "n1")) == 1


def test_a_member_that_is_still_not_ready_gets_its_next_heartbeat_with_the_others() -> None:
    lab = Lab()
    lab.lead()
    lab.turn(2000)
    for _ in range(2):
        lab.answer(lab.calls(HeartBeatRequest, "n1")[0], HeartBeatResponse(code=codes.TERM_NOT_READY))
    assert lab.calls(HeartBeatRequest, "n1") == []
    lab.turn(2000)
    assert len(lab.calls(HeartBeatRequest, "n1")) == 1


def test_a_late_answer_to_an_earlier_heartbeat_takes_nothing_from_what_a_later_one_has_shown() -> None:
    lab = Lab()
    lab.lead()
    lab.turn(2000)
    lab.turn(2000)
    earlier, later = lab.calls(HeartBeatRequest, "n1")
    lab.answer(later, HeartBeatResponse())
    lab.answer(earlier, HeartBeatResponse())
    for _ in range(3):
        lab.turn(2000)
    assert lab.member.role is Role.LEADER, "the quorum was there six seconds ago"
    lab.turn(2000)
    assert lab.member.role is Role.CANDIDATE


def test_a_member_whose_disk_refuses_does_not_want_to_lead() -> None:
    """D14: heartbeats of a leader that can take nothing would keep the group without a master."""
    lab = Lab()
    lab.log.is_refusing = True
    lab.turn(1000)
    assert not lab.sent
    leader = Lab()
    leader.lead()
    leader.log.is_refusing = True
    leader.turn(2000)
    assert leader.member.role is Role.CANDIDATE


def test_metadata_names_the_members_and_the_leader_that_is_known() -> None:
    lab = Lab(term=1)
    request = MetadataRequest(group=GROUP, remote_id="n0")
    assert lab.ask(request) == MetadataResponse(group=GROUP, peers=MEMBERS, refuses=False)
    lab.follow(1)
    assert lab.ask(request) == MetadataResponse(group=GROUP, leader_id="n1", peers=MEMBERS, refuses=False)


@pytest.mark.parametrize(
    ("changes", "code"), [({"remote_id": "n2"}, codes.UNKNOWN_MEMBER), ({"group": "Other"}, codes.UNKNOWN_GROUP)]
)
def test_a_request_for_another_member_or_group_is_refused(changes: dict[str, str], code: int) -> None:
    lab = Lab(term=1)
    lab.follow(1)
    answer = lab.ask(lab.vote_request(**changes))
    assert (answer.code, answer.leader_id, answer.vote_result) == (code, "n1", codes.VOTE_UNKNOWN)


def test_a_candidate_asks_again_at_once_although_another_member_is_silent() -> None:
    """Otherwise each of two asks in a new term while the other waits for the silent one."""
    lab = Lab()
    lab.turn(1000)
    for call in lab.calls(MetadataRequest):
        lab.answer(call, MetadataResponse(group=GROUP))
    first = lab.calls(VoteRequest, "n1")[0]
    lab.answer(first, VoteResponse(vote_result=codes.REJECT_TERM_NOT_READY))
    again = lab.calls(VoteRequest, "n1")[0]
    assert again.request.term == first.request.term == lab.member.term
    lab.answer(again, VoteResponse(vote_result=codes.ACCEPT))
    assert lab.member.role is Role.LEADER


def test_a_candidate_keeps_its_term_while_a_member_waits_for_votes_of_its_own() -> None:
    """RocketMQ's raises its term after its own round, three seconds when one of those it asked is silent. A candidate
    that asks in ever larger terms meanwhile finds it ready by chance only."""
    lab = Lab()
    lab.turn(1000)
    for call in lab.calls(MetadataRequest):
        lab.answer(call, MetadataResponse(group=GROUP))
    began, term = lab.now, lab.member.term
    while lab.now < began + DEFAULT.vote_round_ms + 900:
        for call in lab.calls(VoteRequest, "n1"):
            lab.answer(call, VoteResponse(vote_result=codes.REJECT_TERM_NOT_READY))
        lab.turn(10)
    lab.turn(DEFAULT.vote_repeat_ms)
    assert lab.member.term == term
    lab.answer(lab.calls(VoteRequest, "n1")[-1], VoteResponse(vote_result=codes.ACCEPT))
    assert lab.member.role is Role.LEADER
    assert len(lab.calls(VoteRequest, "n2")) < 100


def test_a_candidate_does_not_repeat_its_question_for_ever() -> None:
    lab = Lab()
    lab.turn(1000)
    for call in lab.calls(MetadataRequest):
        lab.answer(call, MetadataResponse(group=GROUP))
    term = lab.member.term
    for _ in range(600):
        for call in lab.calls(MetadataRequest):
            lab.answer(call, MetadataResponse(group=GROUP))
        for call in lab.calls(VoteRequest, "n1"):
            lab.answer(call, VoteResponse(vote_result=codes.REJECT_TERM_NOT_READY))
        lab.turn(10)
    assert lab.member.term == term + 1


def test_a_group_with_fast_elections_notices_a_silent_leader_within_a_second() -> None:
    lab = Lab(timing=FAST)
    lab.follow(1)
    lab.turn(FAST.lost_after_ms + 2)
    assert lab.member.role is Role.CANDIDATE
    lab.turn(FAST.first_wait_ms)
    for call in lab.calls(MetadataRequest):
        lab.answer(call, MetadataResponse(group=GROUP, heart_beat_ms=FAST.heartbeat_ms))
    assert [call.request.term for call in lab.calls(VoteRequest)] == [2, 2]
    request = MetadataRequest(group=GROUP, remote_id="n0")
    expected = MetadataResponse(group=GROUP, heart_beat_ms=FAST.heartbeat_ms, peers=MEMBERS, refuses=False)
    assert lab.ask(request) == expected


@pytest.mark.parametrize("other", [None, 100])
def test_a_member_with_fast_elections_is_as_slow_as_others_when_one_of_them_is(other: int | None) -> None:
    """Otherwise it would replace a leader with two seconds between heartbeats all the time."""
    lab = Lab(timing=FAST)
    lab.turn(FAST.first_wait_ms)
    first, second = lab.calls(MetadataRequest)
    lab.answer(first, MetadataResponse(group=GROUP, heart_beat_ms=FAST.heartbeat_ms))
    lab.answer(second, MetadataResponse(group=GROUP, heart_beat_ms=other))
    assert Slowed("n2") in lab.actions
    lab.follow(2)
    lab.turn(DEFAULT.lost_after_ms - 1)
    assert lab.member.role is Role.FOLLOWER
    lab.turn(3)
    assert lab.member.role is Role.CANDIDATE


def test_a_leader_hands_over_to_a_member_that_is_preferred_later() -> None:
    lab = Lab()
    lab.lead()
    lab.propose("a", b"A:0:x")
    lab.turn()
    lab.align("n2")
    lab.member.prefer(("n2",))
    lab.turn(1001)
    assert [call.to for call in lab.calls(TransferRequest)] == ["n2"]
    assert lab.member.is_handing_over
    lab.answer(lab.calls(TransferRequest)[0], None)
    assert not lab.member.is_handing_over


def test_a_member_without_fast_elections_says_nothing_that_rocketmqs_does_not() -> None:
    lab = Lab()
    request = MetadataRequest(group=GROUP, remote_id="n0")
    answer = lab.ask(request)
    assert answer is not None and b"heartBeatMs" not in answer.encode()
