"""How entries come to followers, and when they are committed and acknowledged."""

from __future__ import annotations

from typing import cast

import pytest
from dledger_lab import GROUP, Lab, body, entry

from triomq.dledger.rules.actions import Committed, Drop, Role
from triomq.dledger.rules.timing import Timing
from triomq.dledger.wire import codes
from triomq.dledger.wire.bodies import (
    PUSH_APPEND,
    PUSH_COMMIT,
    PUSH_COMPARE,
    PUSH_TRUNCATE,
    AppendRequest,
    AppendResponse,
    GetRequest,
    GetResponse,
    HeartBeatRequest,
    HeartBeatResponse,
    MetadataRequest,
    MetadataResponse,
    TransferRequest,
    TransferResponse,
    VoteRequest,
    VoteResponse,
)


def following(*terms: int, term: int = 1, **setup: object) -> Lab:
    """Return a follower of n1 in this term with a log of these terms, which n1 has not compared."""
    lab = Lab(terms=terms, term=term, **setup)
    lab.follow(term)
    return lab


def proven(*terms: int, term: int = 1, **setup: object) -> Lab:
    """Return such a follower after n1 has compared the last entry."""
    lab = following(*terms, term=term, **setup)
    last = lab.log.entry(lab.log.end_index)
    assert lab.pushed(PUSH_COMPARE, last, term=term).code == codes.SUCCESS
    return lab


def leading(proposals: int = 0) -> Lab:
    """Return a leader that has proposed entries from 0 on; n1 has compared the first."""
    lab = Lab()
    lab.lead()
    for number in range(proposals):
        lab.propose(number, body(number))
        lab.turn()
        if number == 0:
            lab.align("n1")
    return lab


# The follower.


def test_a_follower_takes_no_append_before_its_leader_has_compared() -> None:
    """Its end may be another leader's: nothing in an APPEND says what is before it."""
    lab = following(0)
    assert lab.pushed(PUSH_APPEND, entry(1, 1)).code == codes.INCONSISTENT_STATE
    assert lab.pushed(PUSH_COMPARE, entry(0, 0)).code == codes.SUCCESS
    answer = lab.pushed(PUSH_APPEND, entry(1, 1))
    assert (answer.code, answer.index, answer.begin_index, answer.end_index) == (codes.SUCCESS, 1, 0, 1)


def test_a_comparison_of_an_earlier_entry_proves_nothing_about_the_end() -> None:
    lab = following(0, 0, 0)
    assert lab.pushed(PUSH_COMPARE, entry(1, 0)).code == codes.SUCCESS
    assert lab.pushed(PUSH_APPEND, entry(3, 1)).code == codes.INCONSISTENT_STATE


@pytest.mark.parametrize("other", [{"text": b"A:1:y"}, {"term": 0}, {"pos": 51}])
def test_entries_are_the_same_only_with_equal_bytes_term_and_position(other: dict[str, object]) -> None:
    lab = following(1, 1)
    options = {"term": 1, **other}
    assert lab.pushed(PUSH_COMPARE, entry(1, **options)).code == codes.INCONSISTENT_STATE


def test_a_follower_truncates_what_its_leader_does_not_have() -> None:
    lab = following(0, 0, 0, term=1)
    assert lab.pushed(PUSH_TRUNCATE, entry(0, 0)).end_index == 0
    assert lab.pushed(PUSH_APPEND, entry(1, 1), entry(2, 1)).end_index == 2


def test_a_truncation_that_comes_late_removes_nothing_that_is_proven() -> None:
    lab = proven(0, 0, 0)
    assert lab.pushed(PUSH_TRUNCATE, entry(0, 0)).code == codes.SUCCESS
    assert lab.log.end_index == 2


def test_a_truncation_of_an_older_leader_is_refused() -> None:
    lab = following(0, 0, term=2)
    assert lab.pushed(PUSH_TRUNCATE, entry(0, 0), term=1).code == codes.INCONSISTENT_STATE
    assert lab.pushed(PUSH_TRUNCATE, entry(0, 0), term=2, leader="n2").code == codes.INCONSISTENT_STATE
    assert lab.log.end_index == 1


def test_committed_never_stays_behind_the_end_of_a_truncated_log() -> None:
    """D2: a leader of RocketMQ can replace what another called committed; this member could never lead afterwards."""
    lab = proven(0, 0, 0)
    lab.pushed(PUSH_COMMIT, committed=2)
    assert lab.member.committed == 2
    lab.follow(2, "n2")
    lab.pushed(PUSH_TRUNCATE, entry(0, 0), term=2, leader="n2")
    assert (lab.log.end_index, lab.member.committed) == (0, 0)


def test_a_log_with_nothing_in_common_begins_with_the_leaders_entry() -> None:
    lab = following(0, 0)
    far = entry(7, 1, pos=4096)
    assert lab.pushed(PUSH_TRUNCATE, far).code == codes.SUCCESS
    assert (lab.log.begin_index, lab.log.end_index, lab.member.committed) == (7, 7, -1)


def test_what_another_log_replaces_is_not_committed_any_more() -> None:
    lab = proven(0, 0, 0)
    lab.pushed(PUSH_COMMIT, committed=2)
    lab.follow(2, "n2")
    lab.pushed(PUSH_TRUNCATE, entry(1, 1), term=2, leader="n2")
    assert (lab.log.begin_index, lab.log.end_index, lab.member.committed) == (1, 1, 0)


def test_what_is_before_the_leaders_first_entry_stays_only_if_it_is_proven() -> None:
    """The logs may have parted there, which a leader without those entries cannot see."""
    lab = following(0, 0, 0)
    other = entry(1, 1)
    assert lab.pushed(PUSH_TRUNCATE, other).code == codes.SUCCESS
    assert (lab.log.begin_index, lab.log.end_index) == (1, 1)


def test_a_disk_that_refuses_the_first_entry_of_another_log_keeps_the_old_one() -> None:
    """A member without entries would vote for candidates that lack what it had."""
    lab = following(0, 0)
    lab.log.is_refusing = True
    assert lab.pushed(PUSH_TRUNCATE, entry(7, 1, pos=4096)).code == codes.INCONSISTENT_STATE
    assert lab.log.end_index == 1


def test_pushes_that_come_early_wait_for_those_before_them() -> None:
    lab = proven(1)
    assert lab.pushed(PUSH_APPEND, entry(3, 1)) is None
    assert lab.pushed(PUSH_APPEND, entry(2, 1)) is None
    lab.pushed(PUSH_APPEND, entry(1, 1))
    assert lab.log.end_index == 3
    assert [answer.index for answer in lab.replies[-3:]] == [1, 2, 3]


def test_a_batch_that_begins_with_known_entries_adds_the_rest() -> None:
    lab = proven(1, 1)
    answer = lab.pushed(PUSH_APPEND, entry(1, 1), entry(2, 1), entry(3, 1))
    assert (answer.code, answer.end_index) == (codes.SUCCESS, 3)


def test_a_known_entry_that_differs_makes_the_leader_compare() -> None:
    lab = proven(1, 1)
    assert lab.pushed(PUSH_APPEND, entry(1, 1, text=b"A:1:z")).code == codes.INCONSISTENT_STATE
    assert lab.pushed(PUSH_APPEND, entry(2, 1)).code == codes.INCONSISTENT_STATE


def test_a_missing_push_makes_the_leader_compare_after_a_second() -> None:
    """D26, D5: one of those that wait says so; whatever comes next does, until the leader has compared."""
    lab = proven(1)
    assert lab.pushed(PUSH_APPEND, entry(2, 1)) is None
    assert lab.pushed(PUSH_APPEND, entry(3, 1)) is None
    lab.turn(1000)
    assert [answer.code for answer in lab.replies[-1:]] == [codes.INCONSISTENT_STATE]
    assert any(isinstance(action, Drop) for action in lab.actions)
    assert lab.pushed(PUSH_APPEND, entry(0, 1)).code == codes.INCONSISTENT_STATE
    lab.pushed(PUSH_COMPARE, entry(0, 1))
    assert lab.pushed(PUSH_APPEND, entry(1, 1), entry(2, 1)).end_index == 2


def test_another_early_push_does_not_put_off_the_comparison() -> None:
    lab = proven(1)
    assert lab.pushed(PUSH_APPEND, entry(2, 1)) is None
    lab.turn(600)
    assert lab.pushed(PUSH_APPEND, entry(3, 1)) is None
    lab.turn(399)
    assert lab.pushed(PUSH_APPEND, entry(4, 1)) is None
    lab.turn(1)
    assert lab.replies[-1].code == codes.INCONSISTENT_STATE


def test_another_missing_push_has_a_second_of_its_own_to_come() -> None:
    lab = proven(1)
    for index in (2, 4):
        assert lab.pushed(PUSH_APPEND, entry(index, 1)) is None
    lab.turn(600)
    lab.pushed(PUSH_APPEND, entry(1, 1))
    assert lab.log.end_index == 2
    replies = len(lab.replies)
    lab.turn(999)
    assert len(lab.replies) == replies, "the third entry is awaited since the second came"
    lab.turn(1)
    assert lab.replies[-1].code == codes.INCONSISTENT_STATE


def test_early_pushes_have_a_bound() -> None:
    lab = proven(1, timing=Timing(max_waiting=2))
    for index in (3, 4):
        assert lab.pushed(PUSH_APPEND, entry(index, 1)) is None
    assert lab.pushed(PUSH_APPEND, entry(5, 1)).code == codes.PUSH_REQUEST_IS_FULL
    assert lab.pushed(PUSH_APPEND, entry(3, 1)).code == codes.REPEATED_PUSH


def test_an_entry_at_another_position_is_refused_before_it_is_written() -> None:
    lab = proven(1)
    assert lab.pushed(PUSH_APPEND, entry(1, 1, pos=4096)).code == codes.INCONSISTENT_STATE
    assert lab.log.end_index == 0


@pytest.mark.parametrize(
    "entries",
    [(entry(1, 1), entry(3, 1)), (entry(1, 1), entry(2, 0)), (entry(1, 9),)],
    ids=["a gap", "a term that falls", "a term of the future"],
)
def test_entries_that_no_leader_sends_are_refused(entries: tuple[object, ...]) -> None:
    lab = proven(1)
    assert lab.pushed(PUSH_APPEND, *entries).code == codes.INCONSISTENT_STATE


def test_a_follower_commits_what_it_has_of_what_the_leader_committed() -> None:
    lab = proven(1)
    lab.pushed(PUSH_APPEND, entry(1, 1), committed=9)
    assert lab.member.committed == 1
    lab.pushed(PUSH_COMMIT, committed=0)
    assert lab.member.committed == 1


def test_a_commit_says_nothing_about_entries_that_are_not_compared() -> None:
    lab = following(0, 0)
    lab.pushed(PUSH_COMMIT, committed=1)
    assert lab.member.committed == -1


def test_who_follows_nobody_takes_no_pushes() -> None:
    lab = Lab(terms=(1,), term=1)
    assert lab.pushed(PUSH_COMPARE, entry(0, 1)).code == codes.NOT_FOLLOWER


def test_a_push_without_an_entry_is_refused() -> None:
    lab = proven(1)
    assert lab.pushed(PUSH_APPEND).code == codes.UNEXPECTED_ARGUMENT


def test_with_sync_flush_a_follower_answers_when_its_copy_is_on_the_disk() -> None:
    """D24."""
    lab = proven(1, is_sync_flush=True)
    assert lab.pushed(PUSH_APPEND, entry(1, 1)) is None
    assert lab.pushed(PUSH_APPEND, entry(2, 1)) is None
    lab.log.synced_index = 1
    lab.member.synced()
    lab.turn()
    assert [answer.index for answer in lab.replies[-1:]] == [1]


# The leader.


def test_a_leader_that_was_elected_takes_appends_when_it_is_in_office() -> None:
    """D9: queue offsets are known only then."""
    lab = Lab()
    lab.turn(1000)
    assert lab.member.append_refusal() == codes.NOT_LEADER
    assert lab.propose("early", body(0)) == codes.NOT_LEADER
    lab.turn()
    assert lab.log.end_index == -1
    assert lab.settled == []
    lab = Lab()
    term = lab.lead()
    lab.member.take_office(term - 1)
    assert lab.member.append_refusal() is None
    assert lab.propose("now", body(0)) == codes.SUCCESS
    assert lab.log.end_index == 0


def test_office_is_taken_in_the_term_for_which_the_offsets_were_computed() -> None:
    lab = Lab()
    lab.turn(1000)
    lab.answer(lab.sent[0], MetadataResponse(group=GROUP))
    lab.answer(lab.calls(VoteRequest)[0], VoteResponse(vote_result=codes.ACCEPT))
    lab.member.take_office(0)
    assert lab.member.append_refusal() == codes.LEADER_NOT_READY
    assert lab.propose("early", body(0)) == codes.LEADER_NOT_READY
    lab.turn()
    assert lab.log.end_index == -1
    assert lab.settled == []


def test_the_appends_of_a_turn_are_one_push_to_each_follower() -> None:
    """D12."""
    lab = leading(1)
    for at in range(1, 6):
        lab.propose(at, body(at))
    lab.turn()
    (push,) = lab.pushes(PUSH_APPEND)
    assert [one.index for one in push.request.batch_entry] == [1, 2, 3, 4, 5]
    assert (push.request.batch, push.request.count, push.request.total_size) == (True, 5, 5 * 53)


def test_an_append_is_acknowledged_when_a_quorum_has_it() -> None:
    lab = leading()
    lab.propose("one", body(0))
    lab.turn()
    assert lab.settled == []
    lab.align("n1")
    assert [(one.ticket, one.code, one.index) for one in lab.settled] == [("one", codes.SUCCESS, 0)]
    assert Committed(0) in lab.actions


def test_entries_that_are_written_together_are_acknowledged_together_when_a_quorum_has_the_last_one() -> None:
    lab = leading()
    lab.propose("three", body(0), body(1), body(2))
    lab.turn()
    lab.align("n1")
    (push,) = lab.pushes(PUSH_APPEND)
    assert lab.member.committed == 0
    assert lab.settled == []
    lab.reply_push(push, codes.SUCCESS, begin=0, end=2)
    assert [(one.ticket, one.code, one.index) for one in lab.settled] == [("three", codes.SUCCESS, 2)]


def test_a_follower_that_was_aligned_after_the_commit_hears_of_it() -> None:
    """It commits nothing by a COMPARE or TRUNCATE, although these name the committed index."""
    lab = leading()
    lab.propose("one", body(0))
    lab.turn()
    lab.align("n1")
    assert lab.member.committed == 0
    lab.align("n2")
    lab.turn(100)
    assert [call.request.commit_index for call in lab.pushes(PUSH_COMMIT, "n2")] == [0]


def test_entries_of_older_terms_are_committed_with_one_of_the_own_term_only() -> None:
    """D1."""
    lab = Lab(terms=(1, 1), term=1)
    term = lab.lead()
    lab.reply_push(lab.pushes(PUSH_COMPARE)[0], codes.SUCCESS, begin=0, end=1)
    assert lab.member.committed == -1
    lab.propose("own", body(2))
    lab.turn()
    lab.reply_push(lab.pushes(PUSH_APPEND)[0], codes.SUCCESS, begin=0, end=2)
    assert lab.log.entry(2).term == term
    assert lab.member.committed == 2


def test_a_leader_says_whether_entries_of_older_terms_wait_for_one_of_its_own() -> None:
    lab = Lab(terms=(1, 1), term=1)
    assert not lab.member.must_open_term
    lab.lead()
    assert lab.member.must_open_term
    lab.reply_push(lab.pushes(PUSH_COMPARE)[0], codes.SUCCESS, begin=0, end=1)
    lab.propose("own", body(2))
    lab.turn()
    lab.reply_push(lab.pushes(PUSH_APPEND)[0], codes.SUCCESS, begin=0, end=2)
    assert not lab.member.must_open_term
    empty = Lab()
    empty.lead()
    assert not empty.member.must_open_term


def test_with_sync_flush_the_leaders_own_copy_counts_when_it_is_on_the_disk() -> None:
    """D24."""
    lab = Lab(is_sync_flush=True)
    lab.lead()
    lab.propose("one", body(0))
    lab.turn()
    lab.align("n1")
    assert lab.member.committed == -1
    lab.log.synced_index = 0
    lab.member.synced()
    lab.turn()
    assert lab.member.committed == 0


def test_an_append_without_a_quorum_is_answered_after_its_time_and_stays() -> None:
    lab = leading()
    lab.propose("one", body(0))
    lab.turn()
    lab.beat()
    lab.turn(2500)
    assert [(one.code, one.index) for one in lab.settled] == [(codes.WAIT_QUORUM_ACK_TIMEOUT, 0)]
    assert lab.log.end_index == 0


def test_a_leader_that_is_deposed_answers_all_appends_at_once() -> None:
    """D6."""
    lab = Lab()
    term = lab.lead()
    lab.propose("one", body(0))
    lab.turn()
    lab.ask(lab.vote_request(term=term + 1))
    assert [(one.code, one.index) for one in lab.settled] == [(codes.TERM_CHANGED, 0)]


def test_a_leader_whose_disk_refuses_takes_nothing_and_steps_down() -> None:
    """D14."""
    lab = leading()
    assert lab.propose("before", body(0)) == codes.SUCCESS
    lab.log.is_refusing = True
    assert lab.propose("one", body(1)) == codes.DISK_FULL
    assert lab.member.role is Role.CANDIDATE
    assert lab.member.append_refusal() == codes.NOT_LEADER
    assert lab.propose("two", body(1)) == codes.NOT_LEADER
    lab.turn()
    assert [(one.ticket, one.code, one.index) for one in lab.settled] == [("before", codes.TERM_CHANGED, 0)]


def test_appends_that_wait_have_a_bound() -> None:
    lab = Lab(timing=Timing(max_pending=2))
    lab.lead()
    assert [lab.propose(at, body(at)) for at in range(3)] == [codes.SUCCESS, codes.SUCCESS, codes.LEADER_PENDING_FULL]
    assert lab.member.append_refusal() == codes.LEADER_PENDING_FULL
    lab.turn()
    assert (lab.settled, lab.log.end_index) == ([], 1)


@pytest.mark.parametrize("code", [codes.REPEATED_PUSH, codes.INCONSISTENT_STATE, None])
def test_a_push_that_did_not_succeed_makes_the_leader_compare(code: int | None) -> None:
    """D26, and D5 as the leader: repeating only that push leaves a follower behind that lacks another one."""
    lab = leading(2)
    (push,) = lab.pushes(PUSH_APPEND)
    if code is None:
        lab.answer(push, None)
    else:
        lab.reply_push(push, code)
    lab.turn(500)
    assert [one.request.entry.index for one in lab.pushes(PUSH_COMPARE)] == [1]


def test_a_follower_that_agrees_and_refuses_an_entry_is_truncated_first() -> None:
    """A member of RocketMQ that was restarted may want its next entry in the next file, until it is cut."""
    lab = leading(2)
    lab.reply_push(lab.pushes(PUSH_APPEND)[0], codes.INCONSISTENT_STATE)
    lab.turn(500)
    lab.reply_push(lab.pushes(PUSH_COMPARE)[0], codes.INCONSISTENT_STATE, begin=0, end=0)
    lab.reply_push(lab.pushes(PUSH_COMPARE)[0], codes.SUCCESS, begin=0, end=0)
    (cut,) = lab.pushes(PUSH_TRUNCATE)
    assert cut.request.entry.index == 0
    lab.reply_push(cut, codes.SUCCESS, end=0)
    assert [push.request.entry.index for push in lab.pushes(PUSH_APPEND)] == [1]


def test_a_follower_that_was_truncated_is_not_truncated_at_the_next_trouble() -> None:
    lab = leading(2)
    for code, cuts in ((codes.INCONSISTENT_STATE, 1), (None, 0)):
        (push,) = lab.pushes(PUSH_APPEND)
        if code is None:
            lab.answer(push, None)
        else:
            lab.reply_push(push, code)
        lab.turn(500)
        lab.reply_push(lab.pushes(PUSH_COMPARE)[0], codes.INCONSISTENT_STATE, begin=0, end=0)
        lab.reply_push(lab.pushes(PUSH_COMPARE)[0], codes.SUCCESS, begin=0, end=0)
        truncations = lab.pushes(PUSH_TRUNCATE)
        assert len(truncations) == cuts
        for cut in truncations:
            lab.reply_push(cut, codes.SUCCESS, end=0)
    assert [push.request.entry.index for push in lab.pushes(PUSH_APPEND)] == [1]


def test_a_follower_that_makes_trouble_again_at_once_is_compared_after_a_pause() -> None:
    lab = leading(2)
    lab.answer(lab.pushes(PUSH_APPEND)[0], None)
    (first,) = lab.pushes(PUSH_COMPARE)
    lab.turn(100)
    lab.answer(first, None)
    lab.turn(499)
    assert lab.pushes(PUSH_COMPARE) == []
    lab.turn(1)
    assert len(lab.pushes(PUSH_COMPARE)) == 1


def test_the_answer_to_a_push_of_before_a_comparison_does_not_count() -> None:
    lab = leading(1)
    for at in (1, 2):
        lab.propose(at, body(at))
        lab.turn()
    first, second = lab.pushes(PUSH_APPEND)
    lab.reply_push(first, codes.INCONSISTENT_STATE)
    lab.reply_push(second, codes.SUCCESS, end=2)
    assert lab.member.committed == 0


def test_the_place_where_two_logs_part_is_found_by_doubling_and_halving() -> None:
    lab = Lab(terms=(1,) * 1000, term=1)
    lab.lead()
    part, questions = 300, 0
    while pushes := lab.pushes(PUSH_COMPARE):
        index = pushes[0].request.entry.index
        lab.reply_push(pushes[0], codes.SUCCESS if index <= part else codes.INCONSISTENT_STATE, begin=0, end=1200)
        questions += 1
    assert [one.request.entry.index for one in lab.pushes(PUSH_TRUNCATE)] == [part]
    assert questions < 25


def test_unanswered_pushes_to_a_follower_have_a_bound() -> None:
    lab = Lab(timing=Timing(max_outstanding=3))
    lab.lead()
    lab.propose(0, body(0))
    lab.turn()
    lab.align("n1")
    for at in range(1, 9):
        lab.propose(at, body(at))
        lab.turn()
    assert len(lab.pushes(PUSH_APPEND)) == 3
    lab.reply_push(lab.pushes(PUSH_APPEND)[0], codes.SUCCESS, end=1)
    assert [one.index for one in lab.pushes(PUSH_APPEND)[-1].request.entries] == [4, 5, 6, 7, 8]


def test_a_batch_has_a_bound_in_bytes() -> None:
    lab = Lab(timing=Timing(max_batch_bytes=110))
    lab.lead()
    lab.propose(0, body(0))
    lab.turn()
    lab.align("n1")
    for at in range(1, 4):
        lab.propose(at, body(at))
    lab.turn()
    assert [len(one.request.entries) for one in lab.pushes(PUSH_APPEND)] == [2, 1]


def far_behind(entries: int = 200, outstanding: int = 256, batch: int = 1) -> Lab:
    """Return a leader of entries that n2 has, too, and that n1 lacks but for the first. Pieces are 4 entries while
    clients append and 20 otherwise, and a batch has at most `batch` entries."""
    size = entry(100, 1).size
    piece, idle_piece = 4 * size, 20 * size
    lab = Lab(
        terms=(0,) * entries,
        timing=Timing(
            max_batch_entries=batch,
            max_behind=10,
            busy_piece_bytes=piece,
            idle_piece_bytes=idle_piece,
            catch_up_outstanding=outstanding,
        ),
    )
    lab.lead()
    lab.reply_push(lab.pushes(PUSH_COMPARE, "n2")[0], codes.SUCCESS, end=entries - 1)
    assert lab.propose("first", body(entries)) == codes.SUCCESS
    lab.turn()
    lab.reply_push(lab.pushes(PUSH_APPEND, "n2")[0], codes.SUCCESS, end=entries)
    assert lab.member.committed == entries
    lab.align("n1")
    return lab


def last_sent(lab: Lab) -> int:
    last: int = lab.pushes(PUSH_APPEND)[-1].request.entries[-1].index
    return last


def sent_to(lab: Lab, peer: str = "n1") -> int:
    return len(lab.pushes(PUSH_APPEND, peer))


def test_a_follower_that_is_far_behind_gets_its_entries_in_pieces_while_clients_append() -> None:
    lab = far_behind()
    before = sent_to(lab)
    lab.turn(after_ms=3)
    assert sent_to(lab) - before in (4, 5)  # entries differ by a digit
    before = sent_to(lab)
    for _ in range(3):
        lab.turn()
    assert sent_to(lab) == before
    assert lab.member.wake_at <= lab.now + 3


@pytest.mark.parametrize("batch", [1, 100])
def test_a_follower_that_is_far_behind_comes_nearer_however_fast_clients_append(batch: int) -> None:
    lab = far_behind(batch=batch)
    lab.turn(after_ms=3)
    for number in range(10):
        behind = lab.log.end_index - last_sent(lab)
        for each in range(12):
            assert lab.propose((number, each), body(300 + each)) == codes.SUCCESS
        lab.turn(after_ms=3)
        assert lab.log.end_index - last_sent(lab) < behind


def test_a_follower_that_is_far_behind_gets_larger_pieces_while_nobody_appends() -> None:
    lab = far_behind()
    lab.turn(after_ms=21)
    before = sent_to(lab)
    lab.turn(after_ms=1)
    assert sent_to(lab) - before in (20, 21)


def test_a_batch_is_no_longer_than_the_piece_that_it_belongs_to() -> None:
    lab = far_behind(batch=100)
    lab.turn(after_ms=3)
    before = lab.pushes(PUSH_APPEND)[-1].request.entries[-1].index
    lab.turn(after_ms=3)
    assert lab.pushes(PUSH_APPEND)[-1].request.entries[-1].index - before in (4, 5)  # entries differ by a digit


def test_little_is_on_its_way_to_a_follower_that_is_far_behind() -> None:
    """Clients that begin to append would wait while the follower takes what a leader without clients had sent."""
    lab = far_behind(outstanding=6)
    for _ in range(20):
        lab.turn(after_ms=21)
    assert sent_to(lab) == 6
    assert lab.member.wake_at > lab.now + 21, "only an answer lets it continue"
    last = lab.pushes(PUSH_APPEND)[-1].request.entries[-1].index
    for one in lab.pushes(PUSH_APPEND)[:2]:
        lab.reply_push(one, codes.SUCCESS, end=one.request.entries[-1].index)
    lab.turn(after_ms=21)
    assert sent_to(lab) == 6
    assert lab.pushes(PUSH_APPEND)[-1].request.entries[-1].index == last + 2


def test_entries_for_which_a_quorum_waits_are_sent_at_once() -> None:
    """n2 is gone: what n1 lacks decides, and no client waits for a piece."""
    lab = Lab(terms=(0,), timing=Timing(max_batch_entries=1, max_behind=10, busy_piece_bytes=1))
    lab.lead()
    lab.reply_push(lab.pushes(PUSH_COMPARE)[0], codes.SUCCESS)
    for each in range(50):
        assert lab.propose(each, body(each)) == codes.SUCCESS
    lab.turn()
    assert sent_to(lab) == 50


def test_followers_hear_of_a_commit_without_another_append() -> None:
    lab = leading(1)
    assert lab.member.committed == 0
    lab.turn(100)
    assert [one.request.commit_index for one in lab.pushes(PUSH_COMMIT)] == [0]


def test_get_returns_one_entry_of_the_leader() -> None:
    lab = Lab(terms=(1,), term=1)
    lab.lead()
    request = GetRequest(begin_index=0, group=GROUP, remote_id="n0")
    assert lab.ask(request) == GetResponse(entries=[entry(0, 1)], group=GROUP)
    beyond = GetRequest(begin_index=1, group=GROUP, remote_id="n0")
    assert lab.ask(beyond).code == codes.INDEX_OUT_OF_RANGE


def test_an_append_over_the_wire_is_answered_when_it_is_committed() -> None:
    lab = leading()
    assert lab.ask(AppendRequest(body=body(0), group=GROUP, remote_id="n0")) is None
    lab.align("n1")
    assert AppendResponse(group=GROUP, index=0) in lab.replies
    assert lab.settled == []


# Handing the leadership over.


def in_step(preferred: tuple[str, ...] = ()) -> Lab:
    """Return a leader whose follower n1 has everything."""
    lab = Lab(preferred=preferred)
    lab.lead()
    lab.propose(0, body(0))
    lab.turn()
    lab.align("n1")
    return lab


def transfer(lab: Lab, **changes: object) -> TransferRequest:
    values = {"remote_id": "n0", "term": lab.member.term, "transfer_id": "n0", "transferee_id": "n1", **changes}
    return TransferRequest(group=GROUP, local_id="admin", **values)


@pytest.mark.parametrize(
    ("changes", "code"),
    [
        ({"transferee_id": "n9"}, codes.UNKNOWN_MEMBER),
        ({"term": 0}, codes.INCONSISTENT_TERM),
        ({"transfer_id": "n1", "transferee_id": "n2"}, codes.UNEXPECTED_ARGUMENT),
    ],
)
def test_a_transfer_that_cannot_be_is_refused(changes: dict[str, object], code: int) -> None:
    lab = in_step()
    assert lab.ask(transfer(lab, **changes)).code == code


def test_a_leader_takes_no_appends_while_it_hands_over_and_takes_them_again_if_that_fails() -> None:
    lab = in_step()
    assert lab.ask(transfer(lab)) is None
    assert lab.ask(transfer(lab)).code == codes.LEADER_TRANSFERRING
    assert lab.member.append_refusal() == codes.LEADER_TRANSFERRING
    assert lab.propose("meanwhile", body(1)) == codes.LEADER_TRANSFERRING
    assert lab.log.end_index == 0
    (call,) = lab.calls(TransferRequest)
    assert (call.to, call.request.take_leadership_ledger_index) == ("n1", 0)
    lab.answer(call, TransferResponse(code=codes.TAKE_LEADERSHIP_FAILED, term=1))
    assert lab.replies[-1].code == codes.TAKE_LEADERSHIP_FAILED
    lab.propose("afterwards", body(1))
    lab.turn()
    assert lab.log.end_index == 1


def test_an_orderly_stop_hands_over_to_the_follower_with_the_longest_copy() -> None:
    """D25."""
    lab = in_step()
    assert lab.member.hand_over()
    lab.turn()
    assert [call.to for call in lab.calls(TransferRequest)] == ["n1"]
    assert not Lab().member.hand_over()


@pytest.mark.parametrize(
    ("answers", "best"),
    [
        ([HeartBeatResponse()], "n2"),
        ([None], "n1"),
        ([HeartBeatResponse(code=codes.INCONSISTENT_LEADER)], "n1"),
        ([None, HeartBeatResponse()], "n2"),
        ([HeartBeatResponse(), None], "n1"),
    ],
)
def test_leadership_goes_to_nobody_who_did_not_answer_the_last_heartbeat(
    answers: list[HeartBeatResponse | None], best: str
) -> None:
    """n2 has as much as n1 and comes after it. Its answers to the last heartbeats vary."""
    lab = in_step()
    lab.align("n2")
    for answer in answers:
        lab.turn(2000)
        for call in lab.calls(HeartBeatRequest):
            lab.answer(call, answer if call.to == "n2" else HeartBeatResponse())
    assert lab.member.hand_over()
    lab.turn()
    assert [call.to for call in lab.calls(TransferRequest)] == [best]


def test_a_leader_that_is_not_preferred_hands_over_to_one_that_is() -> None:
    lab = in_step(preferred=("n1",))
    lab.turn(1000)
    assert [call.to for call in lab.calls(TransferRequest)] == ["n1"]
    preferred = in_step(preferred=("n0", "n1"))
    preferred.turn(1000)
    assert preferred.calls(TransferRequest) == []


def test_a_member_takes_over_when_it_has_the_leaders_last_entry() -> None:
    lab = proven(1)
    request = transfer(lab, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=1)
    assert lab.ask(request) is None
    assert lab.member.role is Role.FOLLOWER
    lab.pushed(PUSH_APPEND, entry(1, 1))
    assert [call.request.term for call in lab.calls(VoteRequest)] == [2, 2]
    lab.answer(lab.calls(VoteRequest)[0], VoteResponse(vote_result=codes.ACCEPT))
    lab.turn()
    assert lab.replies[-1] == TransferResponse(term=2)


@pytest.mark.parametrize(
    ("changes", "code"),
    [({"transfer_id": "n2"}, codes.INCONSISTENT_LEADER), ({"term": 5}, codes.INCONSISTENT_TERM)],
)
def test_a_member_takes_over_from_its_leader_only(changes: dict[str, object], code: int) -> None:
    lab = proven(1)
    assert lab.ask(transfer(lab, **{"transfer_id": "n1", "transferee_id": "n0", **changes})).code == code


def test_a_member_that_does_not_get_the_last_entry_in_time_stays_a_follower() -> None:
    lab = proven(1)
    lab.ask(transfer(lab, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=1))
    lab.turn(1000)
    assert lab.replies[-1] == TransferResponse(code=codes.TAKE_LEADERSHIP_FAILED, term=1)
    assert lab.member.role is Role.FOLLOWER


def test_a_member_whose_takeover_failed_can_take_over_later() -> None:
    lab = proven(1)
    for term in (1, 5):
        lab.ask(transfer(lab, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=0))
        votes = lab.calls(VoteRequest)
        assert [call.request.term for call in votes] == [term + 1, term + 1]
        for call in votes:
            lab.answer(call, VoteResponse(vote_result=codes.REJECT_ALREADY_VOTED))
        lab.turn(lab.member._core.timing.transfer_ms)
        assert lab.replies[-1].code == codes.TAKE_LEADERSHIP_FAILED
        lab.follow(term + 4)
        lab.pushed(PUSH_COMPARE, lab.log.entry(0), term=term + 4)
        lab.sent.clear()


def test_while_it_takes_over_a_member_gives_no_vote_to_an_equal_candidate() -> None:
    lab = proven(1)
    lab.ask(transfer(lab, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=0))
    assert lab.member.term == 2
    assert lab.ask(lab.vote_request(term=2, leader_id="n2")).vote_result == codes.REJECT_ALREADY_VOTED


# Pushes in the name of others.


@pytest.mark.parametrize("kind", [PUSH_COMPARE, PUSH_TRUNCATE])
@pytest.mark.parametrize(("term", "leader"), [(0, "n1"), (9, "n1"), (1, "n2"), (1, "n7")])
def test_what_is_not_of_the_leader_makes_nobody_compare_again(kind: str, term: int, leader: str) -> None:
    lab = proven(0, 0)
    lab.pushed(kind, entry(1, 0, text=b"another"), term=term, leader=leader)
    assert lab.log.end_index == 1
    assert lab.pushed(PUSH_APPEND, entry(2, 1)).code == codes.SUCCESS


@pytest.mark.parametrize("kind", [VoteRequest, HeartBeatRequest])
def test_who_speaks_for_another_member_changes_nothing(kind: type[VoteRequest | HeartBeatRequest]) -> None:
    lab = proven(0, 0)
    request = kind(
        group=GROUP, leader_id="n1", local_id="n2", remote_id="n0", term=5, **({} if kind is HeartBeatRequest else END)
    )
    assert lab.ask(request).code == codes.UNKNOWN_MEMBER
    assert (lab.member.term, lab.member.role) == (1, Role.FOLLOWER)


END = {"ledger_end_index": 9, "ledger_end_term": 1}


def test_a_member_without_room_takes_no_leadership_over_and_says_that_it_has_none() -> None:
    lab = proven(1)
    metadata = MetadataRequest(group=GROUP, remote_id="n0")
    taken = transfer(lab, transfer_id="n1", transferee_id="n0", take_leadership_ledger_index=1)
    assert cast(MetadataResponse, lab.ask(metadata)).refuses is False
    lab.member.set_room(False)
    assert cast(MetadataResponse, lab.ask(metadata)).refuses is True
    assert lab.ask(taken).code == codes.TAKE_LEADERSHIP_FAILED
    lab.member.set_room(True)
    assert lab.ask(taken) is None, "it waits for the last entry"


def test_a_preferred_member_that_does_not_take_over_is_asked_again_after_a_while() -> None:
    lab = in_step(preferred=("n1",))
    lab.turn(1000)
    [call] = lab.calls(TransferRequest)
    lab.answer(call, TransferResponse(code=codes.TAKE_LEADERSHIP_FAILED, term=lab.member.term))
    lab.turn(5000)
    assert lab.calls(TransferRequest) == [], "appends wait while it is asked"
